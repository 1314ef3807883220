from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, Outcome, SessionCoordinator
from amplifier_hooks.library.side_effects import SideEffects
from amplifier_hooks.text.matching import compile_matcher

pytestmark = pytest.mark.rule("LIB-2")

# -- the hook ----------------------------------------------------------------------------------------------------------


async def told(command: object, folder: Path, **more: Any) -> Outcome:
    """Return the note about a command."""
    registry = HookRegistry()
    SideEffects().register(registry)
    return await registry.emit("tool:pre", {"tool_name": "Bash", "tool_input": command, "cwd": str(folder), **more})


async def test_a_note_before_it_runs(tmp_path: Path) -> None:
    """The note names the effects, existing files and unseen parts; the payload has them for other hooks."""
    (tmp_path / "a").touch()
    outcome = await told({"command": "touch a b; python x; rm c"}, tmp_path)
    assert outcome.context_injection == (
        "As far as it can be read, this command writes a, b; deletes c. Not seen is what x does. "
        "There already: a; look before repeating it."
    )
    assert outcome.data["side_effects"] == {"writes": ["a", "b"], "deletes": ["c"], "unseen": ["what x does"]}
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("command", [{"command": "ls"}, {"command": "python x"}, {"command": 3}, {}, None, "touch a"])
async def test_nothing_to_note(command: object, tmp_path: Path) -> None:
    """A command without effects on files, and a call without a command, are left unchanged."""
    assert (await told(command, tmp_path)).action == "continue"


async def test_where_it_cannot_be_told(tmp_path: Path) -> None:
    """Existing files are searched for in the folder of the command, after `cd` too; unknown names nowhere."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").touch()
    assert "There already: a" in str(
        (await told({"command": "touch a"}, tmp_path, cwd=str(tmp_path / "sub"))).injections
    )
    assert "None of the files" in str((await told({"cmd": "touch a"}, tmp_path)).injections)
    assert "There already: sub/a" in str((await told({"command": "cd sub && touch a"}, tmp_path)).injections)
    assert (await told({"command": "touch $X"}, tmp_path)).action == "continue"


async def test_much_is_cut(tmp_path: Path) -> None:
    """Of very many files the first are named, and long names are cut."""
    names = " ".join([f"f{number}" for number in range(20)] + ["x" * 500])
    text = (await told({"command": f"touch {names}"}, tmp_path)).context_injection or ""
    assert "f11 and 9 more" in text
    assert len((await told({"command": f"touch {'x' * 500}"}, tmp_path)).context_injection or "") < 300


async def test_what_runs_is_what_was_given(tmp_path: Path) -> None:
    """The note changes nothing about the call: the call is approved and run unchanged, and gates look at it."""
    registry = HookRegistry()
    SideEffects().register(registry)
    looked: list[object] = []
    registry.gate("tool:pre", lambda event, data: looked.append(data["tool_input"]), name="gate")
    ran: list[object] = []
    async with SessionCoordinator(hooks=registry, cwd=tmp_path) as session, session.turn("go"):
        assert (await session.call_tool("Bash", {"command": "touch zzz"}, ran.append)).ok
    assert ran == [{"command": "touch zzz"}]
    assert looked[0] == {"command": "touch zzz"}
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="no")
    assert (await registry.emit("tool:pre", {"tool_name": "Bash", "tool_input": {"command": "touch a"}})).denied


@pytest.mark.rule("LIB-2")
def test_tools_that_are_looked_at_by_default() -> None:
    """The usual names of a shell tool are looked at without a setting."""
    hook = SideEffects().points()[0]
    assert all(compile_matcher(hook.match).matches(tool) for tool in ("Bash", "shell", "execute_bash_command"))
