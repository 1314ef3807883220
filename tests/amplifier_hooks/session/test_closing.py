"""The end of a session: in order, in time, and past steps that hang."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import AuditLog, HookAbortError, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.admission import approver
from amplifier_hooks.approvals import SessionGrants
from amplifier_hooks.foreign_code import LEFT_BEHIND
from amplifier_hooks.record import recorder
from amplifier_hooks.record.record_errors import LogUnavailable
from amplifier_hooks.session import coordinator
from amplifier_hooks.testing import HANG, CollectingAudit, ManualClock, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLOSED = "Operation denied by session: the session is closed"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert not LEFT_BEHIND


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "CLOSING", 0.02)
    monkeypatch.setattr(approver, "BACKEND_TIMEOUT", 0.02)
    monkeypatch.setattr(recorder, "SINK_TIMEOUT", 0.02)


soon = pytest.mark.usefixtures("_soon")


def never(*_args: Any) -> None:
    """Fail: this tool must not run."""
    pytest.fail("it ran")


async def forever(*_args: Any, **_options: Any) -> None:
    """Hang until cancelled."""
    await asyncio.Event().wait()


def asking(registry: HookRegistry | None = None) -> HookRegistry:
    """Return a registry whose gate asks about every tool."""
    registry = registry or HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?", options=["Allow", "Deny"]), name="asker")
    return registry


class Ends(SessionGrants):
    """Grants that note their end, which is the last step of closing."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(ManualClock())
        self.told = told

    async def end_grants(self, tenant: str, session: str) -> None:
        """Note that the grants end."""
        await super().end_grants(tenant, session)
        self.told.append("grants")


# -- in order ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-5", "COO-9")
async def test_order() -> None:
    """Closing withdraws questions and cancels hooks, closes children, emits session:end, and ends grants last."""
    registry, approver = asking(), ScriptedApprover(HANG)
    told: list[Any] = []
    hanging = asyncio.Event()

    async def hang(event: str, data: Any) -> None:
        hanging.set()
        try:
            await forever()
        finally:
            told.append("hook")

    registry.on("memory:pre", hang)
    registry.observe("session:end", lambda event, data, outcome: told.append(data["session_id"]))
    registry.observe("tool:pre", lambda event, data, outcome: told.append(outcome.cause))
    session = SessionCoordinator(registry, session_id="s1", approvals=approver, grants=Ends(told))
    await session.start()
    child = session.child("a", session_id="s2", grants=Ends([]))
    await child.start()
    asked = asyncio.create_task(session.call_tool("Read", {}, never))
    storing = asyncio.create_task(session.operation("memory", {"content": "x"}, never))
    await approver.asked.wait()
    await hanging.wait()
    await session.close()
    assert set(told[:-2]) == {"hook", "session_cancelled", "s2"}
    assert told[-2:] == ["s1", "grants"]
    assert (await asked).denied
    assert isinstance((await asyncio.gather(storing, return_exceptions=True))[0], Exception)
    assert approver.step_names == ["request", "withdraw"]


@pytest.mark.rule("COO-5", "AUD-1")
@pytest.mark.parametrize("event", ["tool:pre", "memory:pre"])
async def test_what_was_open_is_on_record(event: str) -> None:
    """The record of a closed session says that the open question was cancelled and its call denied."""
    audit = CollectingAudit()
    registry = HookRegistry()
    registry.gate(event, lambda event, data: HookResult.ask("Really?"), name="asker")

    class Slow(ScriptedApprover):
        async def withdraw(self, request_id: str, reason: str) -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            await super().withdraw(request_id, reason)

    approver = Slow(HANG)

    async def work() -> str | None:
        if event == "tool:pre":
            return (await session.call_tool("Read", {}, never)).reason
        with pytest.raises(HookAbortError) as caught:
            await session.operation("memory", {"content": "x"}, never)
        return caught.value.reason

    async with SessionCoordinator(hooks=registry, approvals=approver, audit=audit) as session:
        task = asyncio.create_task(work())
        await approver.asked.wait()
    assert "the session is closed" in (await task or "")
    assert audit.facts("approval.decided")[0]["status"] == "cancelled"
    assert audit.kinds[-2:] == ["tool.denied" if event == "tool:pre" else "memory.denied", "outcome"]
    assert audit.facts("outcome")[-1]["event"] == "session:end"


@pytest.mark.rule("COO-5")
async def test_nothing_runs_afterwards() -> None:
    """A closed session runs nothing any more: no call, no turn, no child, and it asks no gate."""
    registry = HookRegistry()
    asked: list[str] = []
    async with SessionCoordinator(hooks=registry) as session:
        old = session.child("old")
    registry.on("*", lambda event, data: asked.append(event))
    assert (await session.call_tool("Read", {}, never)).reason == CLOSED
    assert (await session.call_model(never)).reason == CLOSED
    session.reset_turn()
    assert (await session.emit("prompt:submit", {"prompt": "x"})).cause == "session_cancelled"
    async with session.turn("again") as turn:
        assert turn.denied
        assert (await session.call_tool("Read", {}, never)).reason == CLOSED
    for child in (old, session.child("new")):
        async with child.turn("go") as turn:
            assert turn.denied
            assert (await child.call_tool("Read", {}, never)).denied
    assert not {"prompt:submit", "tool:pre", "llm:pre"} & set(asked)


@pytest.mark.rule("COO-5", "COO-9")
async def test_running_tool_goes_on() -> None:
    """A tool that runs when its session closes goes on: its value comes back, and its result is on record."""
    running, go = asyncio.Event(), asyncio.Event()

    async def tool(given: Any) -> str:
        running.set()
        await go.wait()
        return "done"

    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        task = asyncio.create_task(session.call_tool("Wait", {}, tool))
        await running.wait()
    go.set()
    assert (await task).value == "done"
    assert audit.kinds[-2:] == ["tool.done", "outcome"]


@pytest.mark.rule("COO-5")
async def test_tool_closes_its_session() -> None:
    """A tool may close the session it runs in."""
    session = SessionCoordinator()
    await session.start()

    async def tool(given: Any) -> str:
        await session.close()
        return "done"

    assert (await session.call_tool("Quit", {}, tool)).value == "done"


@pytest.mark.rule("COO-5")
@soon
@pytest.mark.parametrize("event", ["tool:pre", "session:end"])
async def test_hook_closes_its_session(event: str) -> None:
    """A hook that closes its own session does not wait for itself for ever."""
    registry, told = HookRegistry(), list[str]()
    session = SessionCoordinator(hooks=registry, grants=Ends(told))
    registry.gate(event, lambda event, data: session.close())
    await session.start()
    if event == "tool:pre":
        assert (await session.call_tool("Read", {}, never)).denied
    await session.close()
    assert told == ["grants"]


# -- twice, and half way -----------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-5")
async def test_twice() -> None:
    """Starting and closing twice, one after the other and at once, notifies the hooks once."""
    registry = HookRegistry()
    told: list[str] = []
    registry.observe("session:*", lambda event, data, outcome: told.append(event))
    session = SessionCoordinator(hooks=registry, grants=Ends(told))
    await asyncio.gather(session.start(), session.start())
    await session.start()
    await asyncio.gather(session.close(), session.close())
    await session.close()
    assert told == ["session:start", "session:end", "grants"]


@pytest.mark.rule("COO-5")
async def test_never_started() -> None:
    """A session that was never started emits no end; its grants end."""
    registry = HookRegistry()
    told: list[str] = []
    registry.observe("session:*", lambda event, data, outcome: told.append(event))
    await SessionCoordinator(hooks=registry, grants=Ends(told)).close()
    assert told == ["grants"]


@pytest.mark.rule("COO-5")
async def test_error_in_the_body() -> None:
    """A session whose body fails is ended like any other, and the error comes out."""
    registry = HookRegistry()
    told: list[str] = []
    registry.observe("session:end", lambda event, data, outcome: told.append(event))
    with pytest.raises(LookupError):
        async with SessionCoordinator(hooks=registry, grants=Ends(told)):
            raise LookupError
    assert told == ["session:end", "grants"]


@pytest.mark.rule("COO-5")
async def test_start_is_cancelled() -> None:
    """A session that is cancelled while it starts closes its collaborators."""
    registry, starting = HookRegistry(), asyncio.Event()
    told: list[str] = []

    async def hang(event: str, data: Any) -> None:
        starting.set()
        await forever()

    registry.on("session:start", hang)

    async def work() -> None:
        async with SessionCoordinator(hooks=registry, grants=Ends(told)):
            pytest.fail("it began")

    task = asyncio.create_task(work())
    await starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["grants"]


@pytest.mark.rule("COO-5")
@pytest.mark.fault("F-LC-04")
async def test_stopped_from_outside() -> None:
    """A task that is cancelled while a question is open and a hook hangs ends its session before it ends."""
    registry, approver = asking(), ScriptedApprover(HANG)
    told: list[str] = []
    hanging = asyncio.Event()

    async def hang(event: str, data: Any) -> None:
        hanging.set()
        await forever()

    registry.on("memory:pre", hang)
    registry.observe("session:end", lambda event, data, outcome: told.append(event))
    audit = CollectingAudit()

    async def program() -> None:
        async with (
            SessionCoordinator(hooks=registry, approvals=approver, audit=audit, grants=Ends(told)) as session,
            session.turn("go"),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(session.call_tool("Read", {}, never))
            group.create_task(session.operation("memory", {"content": "x"}, never))

    task = asyncio.create_task(program())
    await approver.asked.wait()
    await hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["session:end", "grants"]
    assert approver.step_names == ["request", "withdraw"]
    assert audit.facts("approval.decided")[0]["status"] == "cancelled"


@pytest.mark.rule("COO-5")
@pytest.mark.fault("F-LC-04")
@soon
async def test_cancelled_while_closing() -> None:
    """A second cancellation, while the session closes, is raised when it is closed, and not before."""
    registry, ending = HookRegistry(), asyncio.Event()
    told: list[str] = []

    async def hang(event: str, data: Any) -> None:
        ending.set()
        await forever()

    registry.on("session:end", hang)
    session = SessionCoordinator(hooks=registry, grants=Ends(told))
    await session.start()
    task = asyncio.create_task(session.close())
    await ending.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["grants"]


# -- what hangs or fails -----------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-5")
@soon
async def test_hook_hangs_at_the_end() -> None:
    """A hook or observer that hangs at session:end does not keep the grants from ending."""
    registry = HookRegistry()
    told: list[str] = []
    registry.on("session:end", forever)
    registry.observe("session:end", forever)
    async with SessionCoordinator(hooks=registry, grants=Ends(told)):
        pass
    assert told == ["grants"]


@pytest.mark.rule("COO-5", "DIS-3")
@soon
async def test_screen_hangs() -> None:
    """A screen that hangs at the end does not keep the grants from ending."""

    class Screen:
        async def show_message(self, message: str, level: str, source: str) -> None:
            await forever()

    registry = HookRegistry()
    told: list[str] = []
    registry.on("session:end", lambda event, data: HookResult(user_message="bye"))
    async with SessionCoordinator(hooks=registry, display=Screen(), grants=Ends(told)):
        pass
    assert told == ["grants"]


@pytest.mark.rule("COO-5")
@soon
async def test_backend_hangs() -> None:
    """A backend that hangs when its question is withdrawn does not keep the grants from ending."""

    class Backend(ScriptedApprover):
        async def withdraw(self, request_id: str, reason: str) -> None:
            await forever()

    backend, told = Backend(HANG), list[str]()
    async with SessionCoordinator(hooks=asking(), approvals=backend, grants=Ends(told)) as session:
        task = asyncio.create_task(session.call_tool("Read", {}, never))
        await backend.asked.wait()
    assert told == ["grants"]
    assert (await task).denied


@pytest.mark.rule("COO-5")
@soon
@pytest.mark.parametrize("hangs", [False, True])
async def test_grants_fail_to_end(hangs: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A store of grants that fails or hangs at the end is logged, and the session is closed."""

    class Broken(SessionGrants):
        async def end_grants(self, tenant: str, session: str) -> None:
            if hangs:
                await forever()
            raise OSError("disk is gone")

    session = SessionCoordinator(grants=Broken(ManualClock()))
    await session.start()
    await session.close()
    assert "session_closing_" in caplog.text
    assert (await session.call_tool("Read", {}, never)).reason == CLOSED


@pytest.mark.rule("COO-5")
@soon
async def test_record_hangs_at_the_end() -> None:
    """A record that hangs when the end is written does not keep the grants from ending."""
    told: list[str] = []

    class Sink(CollectingAudit):
        async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
            if facts["event"] == "session:end":
                await forever()

    async with SessionCoordinator(audit=Sink(), grants=Ends(told)):
        pass
    assert told == ["grants"]


@pytest.mark.rule("COO-5", "COO-9")
@soon
async def test_children_that_hang_close_together() -> None:
    """Children that hang at their end cost their parent the time of one, and are closed before it."""
    registry = HookRegistry()
    told: list[str] = []
    began: list[str] = []

    async def hang(event: str, data: Any) -> None:
        began.append(data["session_id"])
        if data["session_id"] != "s0":
            await forever()

    registry.on("session:end", hang)
    session = SessionCoordinator(registry, session_id="s0", grants=Ends(told))
    await session.start()
    for number in range(1, 6):
        await session.child("a", session_id=f"s{number}").start()
    await session.close()
    assert sorted(began[:5]) == [f"s{number}" for number in range(1, 6)]
    assert began[5:] == ["s0"]
    assert told == ["grants"] * 6


@pytest.mark.rule("COO-9")
async def test_child_closes_alone() -> None:
    """A child that closes leaves its parent and the record open."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        async with session.child("a") as child:
            pass
        assert (await session.call_tool("Read", {}, lambda _: 1)).ok
        assert (await child.call_tool("Read", {}, never)).denied
    assert "tool.done" in audit.kinds


@pytest.mark.rule("COO-5", "AUD-9")
async def test_a_shared_record(tmp_path: Path) -> None:
    """A session that ends leaves a shared record open, with its own end on disk; the owner of the record closes it."""
    path = tmp_path / "record.jsonl"
    async with AuditLog.open(path) as log:
        second = SessionCoordinator(session_id="s2", audit=log)
        await second.start()
        async with SessionCoordinator(session_id="s1", audit=log):
            pass
        recorded = [json.loads(line)["facts"] for line in path.read_text().splitlines()]
        assert ("s1", "session:end") in [(facts.get("session"), facts.get("event")) for facts in recorded]
        assert (await second.call_tool("Read", {}, lambda _: 1)).ok
        await second.close()
        await log.check()
    assert json.loads(path.read_text().splitlines()[-2])["kind"] == "log.closed"
    with pytest.raises(LogUnavailable, match="closed"):
        await log.check()
