import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.library.keep_going import AgentCheckpoint, KeepGoing, KeepGoingSettings
from amplifier_hooks.library.parts.ready_made import text_of
from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.testing import CollectingDisplay, ManualClock, RecordingContext
from tests import stores

pytestmark = pytest.mark.rule("LIB-3", "LIB-7", "RES-6")


def keeping(registry: HookRegistry, store: object, **settings: Any) -> KeepGoing:
    """Return the hook, registered, with its checkpoints in this file."""
    hook = KeepGoing(KeepGoingSettings.model_validate({"store": str(store), **settings}), clock=ManualClock())
    hook.register(registry)
    return hook


async def stop(registry: HookRegistry, response: object = "half of it", **more: Any) -> Any:
    """Emit the stop of an agent."""
    return await registry.emit("agent:stop", {"session_id": "s", "turn": 1, "response": response, **more})


async def test_until_the_promise_is_met(tmp_path: Path) -> None:
    """The agent goes on, with the reason as instruction and for the user to see, until it writes its promise."""
    registry = HookRegistry()
    async with keeping(registry, tmp_path / "c.db", promise="ALL DONE"):
        first, second = await stop(registry), await stop(registry, {"content": [{"text": "I am not ALL DONE yet"}]})
        third = await stop(registry, [{"type": "text", "text": "Now it is.\n\n**All done.**"}])
    assert (first.action, second.action, third.action) == ("deny", "deny", "continue")
    assert first.reason == (
        "round 1 of 3: nothing says that it is finished. Go on with what is left; when everything is done, write "
        "ALL DONE on a line of its own"
    )
    assert second.user_message == "The agent goes on, round 2 of 3: nothing says that it is finished."


async def test_a_bound(tmp_path: Path) -> None:
    """After the last round the agent may stop, and the user is told; the next prompt begins the rounds anew."""
    registry = HookRegistry()
    async with keeping(registry, tmp_path / "c.db", rounds=2) as hook:
        assert [(await stop(registry)).action for _ in range(4)] == ["deny", "deny", "continue", "continue"]
        message = (await stop(registry)).user_message
        assert message == "The agent stops after 2 more rounds although nothing says that it is finished."
        assert len(await hook.checkpoints("s")) == 2
        assert (await stop(registry, session_id="other")).denied
        hook._clock.advance(1)  # type: ignore[attr-defined]  # a ManualClock
        await registry.emit("prompt:submit", {"session_id": "s", "prompt": "more"})
        assert (await stop(registry, turn=2)).denied


async def test_stops_at_once(tmp_path: Path) -> None:
    """Agents of one session that stop at the same time have the rounds in common."""
    registry = HookRegistry()
    async with keeping(registry, tmp_path / "c.db", rounds=2) as hook:
        outcomes = await asyncio.gather(*(stop(registry) for _ in range(6)))
        assert sorted(outcome.action for outcome in outcomes) == ["continue"] * 4 + ["deny"] * 2
        assert [one.round for one in await hook.checkpoints("s")] == [1, 2]


@pytest.mark.parametrize("text", ["\n", "é"])
async def test_the_end_of_a_response(text: str, tmp_path: Path) -> None:
    """A checkpoint has the end of a long response, however its characters are written."""
    registry = HookRegistry()
    async with keeping(registry, tmp_path / "c.db") as hook:
        await stop(registry, text * 5_000 + "the end")
        assert (await hook.checkpoints("s"))[0].response.endswith("the end")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_checkpoint_comes_first(kind: str, tmp_path: Path) -> None:
    """A checkpoint is saved before the agent goes on; after a restart the rounds do not begin anew."""
    if kind == "postgres":
        await stores.server()
        async with stores.schema() as schema:
            await _restarted({"database": partial(PostgresDatabase, stores.DSN, schema=schema)})
    else:
        await _restarted({"settings": KeepGoingSettings(store=str(tmp_path / "c.db"))})


async def _restarted(given: dict[str, Any]) -> None:
    saved: list[AgentCheckpoint] = []
    for number in (1, 2, 3, 4):
        registry = HookRegistry()
        hook = KeepGoing(**given, clock=ManualClock())
        hook.register(registry)
        outcome = await stop(registry, f"token=abcdef123456 round {number}", tenant_id="acme")
        assert outcome.denied is (number < 4)
        saved = await hook.checkpoints("s", tenant="acme")
        assert [one.round for one in saved] == [1, 2, 3][:number]
        assert not await hook.checkpoints("s")
        await hook.close()
    assert "round 1" in saved[0].response
    assert "abcdef" not in saved[0].response
    assert saved[0].reason == "nothing says that it is finished"
    assert saved[0].at == ManualClock().now()


async def test_without_a_checkpoint_it_stops(tmp_path: Path) -> None:
    """If the checkpoint cannot be saved, the agent stops, and the user reads the reason."""
    registry = HookRegistry()
    keeping(registry, tmp_path / "nowhere" / "c.db")
    outcome = await stop(registry)
    assert outcome.action == "continue"
    assert "The checkpoint could not be saved, so the agent stops although nothing says" in (outcome.user_message or "")
    assert outcome.all_succeeded


async def test_artifacts_and_a_check_of_ones_own(tmp_path: Path) -> None:
    """Missing files, and a function that names a missing part, make the agent go on, even if it wrote the promise."""
    registry, verdicts = HookRegistry(), list[bool | str](["two tests fail", False, True, True])

    async def kept(data: Any) -> bool | str:
        return verdicts.pop(0)

    settings = KeepGoingSettings(store=str(tmp_path / "c.db"), cwd=str(tmp_path), artifacts=("out/*.txt",), rounds=9)
    async with KeepGoing(settings, condition=kept) as hook:
        hook.register(registry)
        done = "TASK COMPLETE"
        reasons = [(await stop(registry, done)).reason for _ in range(3)]
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "a.txt").write_text("x")
        last = await stop(registry, done)
    assert [reason and reason.partition(".")[0] for reason in reasons] == [
        "round 1 of 9: two tests fail",
        "round 2 of 9: what was promised is not there",
        "round 3 of 9: there is no out/*",
    ]  # fmt: skip
    assert last.action == "continue"


async def test_a_response_nobody_told(tmp_path: Path) -> None:
    """A stop without the agent's response does not make it go on for want of a promise."""
    registry = HookRegistry()
    async with keeping(registry, tmp_path / "c.db"):
        assert (await stop(registry, None)).action == "continue"
        assert (await stop(registry, 3)).action == "continue"
        assert (await stop(registry, "")).denied


def test_the_text_of_a_response() -> None:
    """A response is text, holds text, or has none; one that contains itself ends the search."""
    circle: list[object] = ["a"]
    circle.append(circle)
    assert text_of(["a", {"content": [{"text": "b"}, {"image": 1}]}, b"c"]) == "a\nb"
    assert text_of({"message": SimpleNamespace(content="c")}) == "c"
    assert (text_of(circle) or "").startswith("a\na\n")
    nothing: list[object] = [None, 3, {}, [], b"x"]
    assert [text_of(value) for value in nothing] == [None] * 5


async def test_in_a_session(tmp_path: Path) -> None:
    """In a session the agent reads the reason, and the user sees it."""
    context, display, registry = RecordingContext(), CollectingDisplay(), HookRegistry()
    async with (
        keeping(registry, tmp_path / "c.db"),
        SessionCoordinator(hooks=registry, context=context, display=display) as session,
        session.turn("go"),
    ):
        assert (await session.emit("agent:stop", {"response": "done, I think"})).denied
    assert any("round 1 of 3: nothing says that it is finished" in message.content for message in context.messages)
    assert any("The agent goes on, round 1 of 3" in text for text, _, _ in display.messages)


async def test_where_artifacts_are(tmp_path: Path) -> None:
    """Artifacts are searched for in the session's folder, unless settings name another one."""
    registry = HookRegistry()
    (tmp_path / "report.md").write_text("done")
    async with keeping(registry, tmp_path / "c.db", artifacts=("report.md",), promise=""):
        assert not (await stop(registry, cwd=str(tmp_path))).denied
        assert "there is no report.md" in ((await stop(registry, cwd=str(tmp_path.parent))).reason or "")
