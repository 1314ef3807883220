import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, Outcome, SessionCoordinator
from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.impact.shell_impact import IMPACT_KINDS, predict_impact
from amplifier_hooks.impact.shell_parser import LONGEST, MOST_SIGNS, ShellReader
from amplifier_hooks.library.side_effects import SideEffects
from amplifier_hooks.text.matching import compile_matcher

pytestmark = pytest.mark.rule("LIB-2")

READER = ShellReader()


def seen(command: str) -> dict[str, list[str]]:
    """Return the predicted effects of a command."""
    foreseen = predict_impact(READER, command)
    facts = {what: foreseen.paths_of(what) for what in IMPACT_KINDS} | {"unseen": foreseen.unseen}
    return {name: value for name, value in facts.items() if value}


@pytest.mark.parametrize(
    ("command", "effects"),
    [
        ("touch a 'b c' \"d\" e\\ f", {"creates": ["a", "b c", "d", "e f"]}),
        ("touch -d yesterday -- -a", {"creates": ["-a"]}),
        ("mkdir -p a/b && cd a", {"creates": ["a/b"]}),
        ("rm -rf build; rmdir x || unlink y", {"deletes": ["build", "x", "y"]}),
        ("cp -r a b", {"creates": ["b"]}),
        ("cp -t dir a b", {"creates": ["dir"]}),
        ("mv a b c/", {"creates": ["c/"], "deletes": ["a", "b"]}),
        ("mv --target-directory=d a", {"creates": ["d"], "deletes": ["a"]}),
        ("ln -s /x/y/name", {"creates": ["name"]}),
        ("ln -s x y", {"creates": ["y"]}),
        ("echo hi > a 2>/dev/null", {"creates": ["a"]}),
        ("make >> log 2>&1", {"changes": ["log"], "unseen": ["what make does"]}),
        ("ls &> a; ls >| b", {"creates": ["a", "b"]}),
        ("cat <<EOF > a\nrm b\nEOF\n", {"creates": ["a"]}),
        ("cat < a | tee b", {"creates": ["b"]}),
        ("cat < a | tee -a b", {"changes": ["b"]}),
        ("sed -i.bak s/a/b/ x y", {"changes": ["x", "y"]}),
        ("sed -i -e s/a/b/ x", {"changes": ["x"]}),
        ("sed s/a/b/ x", {}),
        ("dd if=a of=b", {"creates": ["b"]}),
        ("curl -sSo a https://example.com", {"creates": ["a"]}),
        ("curl --output=a https://example.com", {"creates": ["a"]}),
        ("curl -O https://example.com/b", {"creates": ["a file named by the address"]}),
        ("curl https://example.com", {}),
        ("wget https://example.com/b", {"creates": ["a file named by the address"]}),
        ("tar xzf a.tgz", {"creates": ["what the archive holds"]}),
        ("tar -czf a.tgz b", {"creates": ["a.tgz"]}),
        ("tar tf a.tgz", {}),
        ("unzip a.zip", {"creates": ["what the archive holds"]}),
        ("unzip -l a.zip", {}),
        ("zip -r a.zip b", {"creates": ["a.zip"]}),
        ("sort -o a b", {"changes": ["a"]}),
        ("chmod +x a b; chown me c", {"changes": ["a", "b", "c"]}),
        ("patch -p1 < a.diff", {"changes": ["files that the patch names"]}),
        ("git clone https://example.com/a/b.git", {"creates": ["b"]}),
        ("git clone https://example.com/a/b.git c", {"creates": ["c"]}),
        ("git -C x status && git log", {}),
        ("git checkout main", {"changes": ["files of the repository"]}),
        ("git --no-pager mv a b; git rm --cached d", {"deletes": ["a"], "creates": ["b"]}),
        ("git worktree add ../w main; git worktree list", {"creates": ["../w"]}),
        ("git rm a; git mv b c; git init", {"deletes": ["a", "b"], "creates": ["c", ".git"]}),
        ("git frobnicate", {"unseen": ["what git frobnicate does"]}),
        ("find . -name '*.pyc' -delete", {"deletes": ["the files it finds"]}),
        ("find . -exec rm {} +", {"deletes": ["the files it finds"]}),
        ("find . -type f", {}),
        ("ls | xargs -n 1 rm -f", {"deletes": ["what it is given"]}),
        ("sudo -u me env A=1 nice -n 5 timeout -k 3 10 /bin/rm a", {"deletes": ["a"]}),
        ("bash -lc 'touch a && python x'", {"creates": ["a"], "unseen": ["what python does"]}),
        ("sh -c \"sh -c 'rm a'\"", {"deletes": ["a"]}),
        ("x=$(touch a); (rm b); if true; then mkdir c; fi; f() { rm d; }",
         {"creates": ["a", "c"], "deletes": ["b", "d"]}),
        ("cat <<'EOF' > a\n" + "x | (" * 9_000 + "\nEOF\nrm b", {"creates": ["a"], "deletes": ["b"]}),
        ("cat <<EOF > a\nx $(rm b)\nEOF\n",
         {"creates": ["a"], "deletes": ["b"], "unseen": ["a part that could not be read"]}),
        ("cat <<-EOF > a\n\t`rm b`\n\tEOF\ntouch c",
         {"creates": ["c", "a"], "unseen": ["a part that could not be read"]}),
        ("cat <<-EOF > a\n\t$HOME\n\tEOF\n", {"creates": ["a"]}),
        ("python - <<'EOF'\nopen('a', 'w')\nEOF", {"unseen": ["what python does"]}),
        ("bash <<EOF\nrm x\nEOF\n", {"unseen": ["what bash does"]}),
        ("cat <<EOF > a\nno end", {"creates": ["a"], "unseen": ["a part that could not be read"]}),
        ("for i in 1 2; do touch $i.txt; done", {"creates": ["$i.txt"]}),
        ('rm *.o {a,b} "$x"', {"deletes": ["*.o", "{a,b}", '"$x"']}),
        ("$RUN a; ./build.sh; source env; eval 'rm a'",
         {"unseen": ["what $RUN does", "what build.sh does", "what source does", "what eval does"]}),
        ("A=1", {}),
        ("", {}),
        ("touch a; if (", {"creates": ["a"], "unseen": ["a part that could not be read"]}),
        ("touch " + "a" * LONGEST, {"unseen": ["a part that could not be read"]}),
    ],
)  # fmt: skip
def test_what_can_be_read(command: str, effects: dict[str, list[str]]) -> None:
    """Files that a command creates, changes or deletes are named; unseen parts are named as unseen."""
    assert seen(command) == effects


NAMES = st.sampled_from(["a", "b", "sub/c", "new dir"])
QUOTED = NAMES.map(lambda name: f"'{name}'")
LINES = st.one_of(
    st.builds("touch {}".format, QUOTED),
    st.builds("mkdir -p {}".format, QUOTED),
    st.builds("cp {} {}".format, QUOTED, QUOTED),
    st.builds("mv {} {}".format, QUOTED, QUOTED),
    st.builds("rm -rf {}".format, QUOTED),
    st.builds("echo x > {}".format, QUOTED),
    st.builds("echo x | tee {}".format, QUOTED),
    st.builds('bash -c "touch {}"'.format, QUOTED),
)


@pytest.mark.slow
@given(st.lists(LINES, min_size=1, max_size=4).map("; ".join))
def test_as_a_shell_does_it(tmp_path_factory: pytest.TempPathFactory, command: str) -> None:
    """Run by a real shell, a command whose parts are all known makes and removes no file that was not named."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "sub").mkdir()
    (folder / "b").write_text("b")
    before = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, check=False)
    after = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    effects = seen(command)
    touched = [*effects.get("creates", ()), *effects.get("deletes", ())]
    assert "unseen" not in effects
    for path in before ^ after:
        assert any(path == name or path.startswith(f"{name}/") for name in touched), (path, command)


@given(st.text("ab $'\"\\(){}<>|&;`!#*\n\u202e\ud800", max_size=60))
def test_any_text(command: str) -> None:
    """For every text, the reader ends and reports its findings."""
    seen(command)


@pytest.mark.parametrize("deep", ["(", "$(", "{ ", "if ", "a|", "<(", '"$(', "bash -c 'bash -c ", "a=(", ")", "<<a\n"])
def test_hostile_commands(deep: str) -> None:
    """Endless nesting is read in reasonable time or reported as unread, and is no error."""
    seen(deep * (MOST_SIGNS // len(deep)))
    assert seen(deep * 100_000) == {"unseen": ["a part that could not be read"]}


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
        "As far as it can be read, this command creates a, b; deletes c. Not seen is what python does. "
        "There already: a; look before repeating it."
    )
    assert outcome.data["side_effects"] == {"creates": ["a", "b"], "deletes": ["c"], "unseen": ["what python does"]}
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("command", [{"command": "ls"}, {"command": "python x"}, {"command": 3}, {}, None, "touch a"])
async def test_nothing_to_note(command: object, tmp_path: Path) -> None:
    """A command without effects on files, and a call without a command, are left unchanged."""
    assert (await told(command, tmp_path)).action == "continue"


async def test_where_it_cannot_be_told(tmp_path: Path) -> None:
    """Existing files are searched for in the folder of the command; after `cd` and for unknown names, nowhere."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").touch()
    assert "There already: a" in str(
        (await told({"command": "touch a"}, tmp_path, cwd=str(tmp_path / "sub"))).injections
    )
    assert "None of the files" in str((await told({"cmd": "touch a"}, tmp_path)).injections)
    for command in ("cd sub && touch a", "touch a; git -C sub rm b", "touch $X"):
        text = (await told({"command": command}, tmp_path)).context_injection or ""
        assert text.endswith(("creates a.", "creates a; deletes b.", "creates $X."))


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


def test_without_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the grammar, the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    with pytest.raises(MissingExtra, match=r"pip install 'amplifier-hooks\[shell\]'"):
        SideEffects()


@pytest.mark.rule("LIB-2")
def test_tools_that_are_looked_at_by_default() -> None:
    """The usual names of a shell tool are looked at without a setting."""
    hook = SideEffects().points()[0]
    assert all(compile_matcher(hook.match).matches(tool) for tool in ("Bash", "shell", "execute_bash_command"))
