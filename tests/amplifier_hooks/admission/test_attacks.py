"""Attacks on the path of an act: what a hostile hook, a late answer or an unlucky cancellation could make run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import HookAbortError
from amplifier_hooks.ports import Decision
from amplifier_hooks.testing import ScriptedApprover
from approval_backends import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


ROBIN = Decider(name="Robin", channel="test")


class Desk:
    """A durable store, the programs that ask there one after another, and the person who answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.approvals = DeferredApprovals(SqliteStore(path / "approvals.db"))
        self.ran: list[Any] = []

    def session(self, registry: HookRegistry, **options: Any) -> SessionCoordinator:
        """Return the session as a program has it."""
        given: dict[str, Any] = {
            "session_id": "s1",
            "approvals": self.approvals,
            "approval_wait": 0.0,
            "cwd": str(self.path),
        }
        return SessionCoordinator(registry, **(given | options))

    async def call(self, session: SessionCoordinator, given: Any = None, call_id: str = "c1", **options: Any) -> Any:
        """Make the call, or make it again."""
        return await session.call_tool("Write", given or {"n": 1}, self.ran.append, call_id=call_id, **options)

    async def pending(self) -> list[Any]:
        """Return the open requests."""
        return await self.approvals.broker.pending(ROBIN)

    async def answer(self, label: str, **options: Any) -> None:
        """Answer the oldest open request."""
        record = (await self.pending())[0]
        option = next(one.id for one in record.request.options if one.label == label)
        result = await self.approvals.broker.decide(record.id, record.digest, option, ROBIN, **options)
        assert result.accepted, result.refusal


class SlowWithdrawal(ScriptedApprover):
    """An approver that takes a question back when it is released."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.going, self.go = asyncio.Event(), asyncio.Event()
        self.taken: list[str] = []

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Wait, and take the question back."""
        self.going.set()
        await self.go.wait()
        self.taken.append(request_id)
        await super().withdraw(request_id, reason)


class UnreadableRules:
    """Rules whose digest can be read once."""

    reads = 0

    @property
    def digest(self) -> str:
        """Return the digest, or fail."""
        self.reads += 1
        if self.reads > 1:
            raise OSError("gone")
        return "x"

    def judge(self, _facts: Any) -> None:
        """Say nothing."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Return the desk."""
    desk = Desk(tmp_path)
    async with desk.approvals:
        yield desk


def ask(prompt: str = "Write?", **options: Any) -> HookResult:
    """Return a question."""
    return HookResult.ask(prompt, options=["Allow", "Deny"], **options)


@pytest.mark.rule("APR-12")
async def test_denied_then_not_asked(desk: Desk) -> None:
    """A denial given while the call was pending holds, although the hook does not ask again."""
    registry = HookRegistry()
    asking = [True]
    registry.gate("tool:pre", lambda event, data: ask() if asking[0] else None, name="guard")
    session = desk.session(registry)
    assert (await desk.call(session)).status == "pending"
    await desk.answer("Deny")
    asking[0] = False
    outcome = await desk.call(session)
    assert (outcome.status, desk.ran) == ("denied", [])


@pytest.mark.rule("APR-12")
async def test_pending_then_not_asked(desk: Desk) -> None:
    """An open question stands, although its hook does not ask again."""
    registry = HookRegistry()
    asking = [True]
    registry.gate("tool:pre", lambda event, data: ask() if asking[0] else None, name="guard")
    session = desk.session(registry)
    assert (await desk.call(session)).status == "pending"
    asking[0] = False
    outcome = await desk.call(session)
    assert (outcome.status, desk.ran) == ("pending", [])


@pytest.mark.rule("APR-7")
async def test_edit_then_hook_change_then_again(desk: Desk) -> None:
    """An edit that a hook changed waits for its own answer, also when the call is made again."""
    registry = HookRegistry()

    @registry.on("tool:pre")
    def turner(event: str, data: Any) -> HookResult | None:
        return HookResult.modify({"tool_input": {"n": 99}}) if data["tool_input"]["n"] == 2 else None

    registry.gate("tool:pre", lambda event, data: ask() if data["tool_input"]["n"] == 1 else None, name="guard")
    session = desk.session(registry)
    assert (await desk.call(session)).status == "pending"
    await desk.answer("Allow", arguments={"n": 2})
    assert (await desk.call(session)).status == "pending"
    outcome = await desk.call(session)
    assert (outcome.status, desk.ran) == ("pending", [])


@pytest.mark.rule("APR-12", "APR-6")
async def test_other_words(desk: Desk) -> None:
    """An approval in other words is void, and a new question is asked in the words of now."""
    registry = HookRegistry()
    words = ["Write?"]
    registry.gate("tool:pre", lambda event, data: ask(words[0]), name="guard")
    session = desk.session(registry)
    assert (await desk.call(session)).status == "pending"
    await desk.answer("Allow")
    words[0] = "This is malicious. Run it?"
    outcome = await desk.call(session)
    assert (outcome.status, desk.ran) == ("pending", [])
    assert len(await desk.pending()) == 1
    await desk.answer("Allow")
    outcome = await desk.call(session)
    assert (outcome.status, desk.ran) == ("ok", [{"n": 1}])


@pytest.mark.rule("APR-12")
async def test_fewer_questions(desk: Desk) -> None:
    """A request with more questions than are asked now still stands, and the tool runs once."""
    registry = HookRegistry()
    two = [True]
    registry.gate("tool:pre", lambda event, data: ask("A?"), name="a")
    registry.gate("tool:pre", lambda event, data: ask("B?") if two[0] else None, name="b")
    session = desk.session(registry)
    assert (await desk.call(session)).status == "pending"
    two[0] = False
    assert (await desk.call(session)).status == "pending"
    assert len(await desk.pending()) == 1
    await desk.answer("Allow")
    outcome = await desk.call(session)
    assert (outcome.status, desk.ran) == ("ok", [{"n": 1}])
    two[0] = True
    assert (await desk.call(session)).ok, "a retry gets the kept result"
    assert desk.ran == [{"n": 1}]
    assert len(desk.ran) == 1


@pytest.mark.rule("COO-4", "APR-6")
async def test_cancel_twice_while_withdrawing() -> None:
    """A call that is cancelled while it withdraws its approval withdraws it all the same."""
    registry = HookRegistry()
    count = [0]

    def guard(event: str, data: Any) -> HookResult:
        count[0] += 1
        return ask("A?") if count[0] == 1 else HookResult.deny("no")

    registry.gate("tool:pre", guard, name="guard")
    approver = SlowWithdrawal("Allow")
    session = SessionCoordinator(registry, approvals=approver)
    task = asyncio.create_task(session.call_tool("Write", {}, lambda _: None))
    await approver.going.wait()
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    approver.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert approver.taken


@pytest.mark.rule("BCK-6")
async def test_error_in_look_again() -> None:
    """Rules whose digest cannot be read still judge, and nothing reaches the caller."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: ask(), name="guard")
    approver = ScriptedApprover("Allow")
    session = SessionCoordinator(registry, approvals=approver, rules=UnreadableRules())
    outcome = await session.call_tool("Write", {}, lambda _: 1)
    assert outcome.ok


@pytest.mark.rule("APR-12")
async def test_restart_other(desk: Desk) -> None:
    """An approved call id runs no other input, folder or tool, and runs once in all programs."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: ask(), name="guard")
    assert (await desk.call(desk.session(registry))).status == "pending"
    await desk.answer("Allow")
    again = desk.session(registry)
    assert (await desk.call(again, {"n": 2})).cause == "approval_mismatch"
    assert (await desk.call(again, cwd="/")).cause == "approval_mismatch"
    assert (await again.call_tool("Other", {"n": 1}, desk.ran.append, call_id="c1")).cause == "approval_mismatch"
    assert desk.ran == []
    assert (await desk.call(again)).ok
    assert (await desk.call(again)).ok, "a retry gets the kept result"
    assert desk.ran == [{"n": 1}]
    assert (await desk.call(desk.session(registry))).ok
    assert desk.ran == [{"n": 1}]


@pytest.mark.rule("APR-12")
async def test_nonidempotent(desk: Desk) -> None:
    """A hook that changes the input each time does not change the stored act of a resumed call."""
    registry = HookRegistry()

    @registry.on("tool:pre")
    def plus(event: str, data: Any) -> HookResult:
        return HookResult.modify({"tool_input": {"n": data["tool_input"]["n"] + 1}})

    registry.gate("tool:pre", lambda event, data: ask(), name="guard")
    assert (await desk.call(desk.session(registry))).status == "pending"
    await desk.answer("Allow")
    assert (await desk.call(desk.session(registry))).ok
    assert desk.ran == [{"n": 2}]


@pytest.mark.rule("APR-12", "APR-5")
async def test_a_grant_repeats_no_call(desk: Desk) -> None:
    """A call that has run returns its kept result, also where a grant would allow it; a new call runs by the grant."""
    registry = HookRegistry()
    words = HookResult.ask("Write?", options=["Allow", "Allow always", "Deny"])
    registry.gate("tool:pre", lambda event, data: words, name="guard")
    session = desk.session(registry)
    assert (await desk.call(session)).status == "pending"
    await desk.answer("Allow always")
    for again in (session, session, desk.session(registry)):
        assert (await desk.call(again)).ok
        assert desk.ran == [{"n": 1}]
        assert (await desk.call(again, {"n": 2})).cause == "approval_mismatch"
    assert desk.ran == [{"n": 1}]
    assert (await desk.call(session, call_id="c2")).ok
    assert desk.ran == [{"n": 1}, {"n": 1}]


@pytest.mark.rule("APR-12")
async def test_a_changed_hook_repeats_no_call(desk: Desk) -> None:
    """A call that has run returns its kept result, also after the hook that asked about it was changed."""
    for version in ("1", "2"):
        registry = HookRegistry()

        def guard(event: str, data: Any) -> HookResult:
            return ask()

        guard.hook_version = version  # type: ignore[attr-defined]
        registry.gate("tool:pre", guard, name="guard")
        outcome = await desk.call(desk.session(registry))
        if version == "1":
            await desk.answer("Allow")
            outcome = await desk.call(desk.session(registry))
        assert (outcome.status, desk.ran) == ("ok", [{"n": 1}])


@pytest.mark.rule("APR-12")
async def test_a_call_that_cannot_be_looked_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store cannot tell if a call has run, no grant lets the call run."""
    registry = HookRegistry()
    words = HookResult.ask("Write?", options=["Allow", "Allow always", "Deny"])
    registry.gate("tool:pre", lambda event, data: words, name="guard")
    session = desk.session(registry)
    await desk.call(session)
    await desk.answer("Allow always")
    assert (await desk.call(session)).ok

    async def fail(*_args: Any) -> None:
        raise OSError("gone")

    monkeypatch.setattr(desk.approvals.broker.store, "find_call", fail)
    assert (await desk.call(session, call_id="c2")).cause == "approval_unavailable"
    assert desk.ran == [{"n": 1}]


@pytest.mark.rule("APR-5", "APR-7")
async def test_an_always_with_an_edit() -> None:
    """An "allow always" with edited arguments allows nothing, and leaves no grant for the arguments as they were."""
    registry, ran = HookRegistry(), list[Any]()
    words = HookResult.ask("Write?", options=["Allow", "Allow always", "Deny"], approval_key="write")
    registry.gate("tool:pre", lambda event, data: words, name="guard")

    async def edit(request: Any) -> Decision:
        always = next(one.id for one in request.options if one.lasts)
        return Decision(option=always, by="Robin", channel="test", arguments={"n": 2})

    session = SessionCoordinator(registry, approvals=ScriptedApprover(edit, "Deny"))
    outcome = await session.call_tool("Write", {"n": 1}, ran.append)
    assert (outcome.cause, await session.grants(), ran) == ("approval_unavailable", [], [])
    assert (await session.call_tool("Write", {"n": 1}, ran.append)).cause == "denied_by_person"


class Unreadable(Mapping[str, Any]):
    """A mapping that raises while it is read."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["command"])

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.rule("COO-4")
async def test_callers_input_that_raises() -> None:
    """An input that raises while it is read is denied, and no exception of the call."""
    outcome = await SessionCoordinator(HookRegistry()).call_tool("Write", Unreadable(), str)
    assert (outcome.denied, outcome.by) == (True, "InputNotFreezable")


@pytest.mark.rule("COO-7")
async def test_middleware_that_puts_an_object_into_a_field() -> None:
    """Middleware that replaces a field by something that is no JSON stops the operation."""
    registry, ran = HookRegistry(), list[Any]()

    @registry.around("memory")
    async def layer(context: Any, call_next: Any) -> Any:
        context.content = object()
        return await call_next()

    with pytest.raises(HookAbortError):
        await SessionCoordinator(registry).operation("memory", {"content": "x", "key": "k"}, ran.append)
    assert ran == []


@pytest.mark.rule("COO-4", "DSP-7")
async def test_raw_event_returns_what_was_approved() -> None:
    """An object that a hook keeps and changes after the approval is not the one that the caller gets back."""
    registry, held = HookRegistry(), list[Any]()
    registry.on("tool:pre", lambda event, data: held.append(data["tool_input"]))
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Go?"), name="guard", recheck=False)
    session = SessionCoordinator(registry, approvals=ScriptedApprover("Allow"))
    outcome = await session.emit("tool:pre", {"tool_name": "Write", "tool_call_id": "c", "tool_input": {"a": ["ls"]}})
    held[0]["a"].append("rm -rf /")
    assert (outcome.denied, outcome.data["tool_input"], outcome.data["tool_call_id"]) == (False, {"a": ["ls"]}, "c")


@pytest.mark.rule("COO-4")
async def test_fields_beside_the_input_are_not_approved() -> None:
    """No field beside the input of an approved raw event reaches its effect, as the caller or a hook set it."""
    registry = HookRegistry()
    registry.on("tool:pre", lambda event, data: HookResult.modify({"sudo": True, "note": "x"}))
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Go?") if data["tool_input"] else None, name="guard")
    session = SessionCoordinator(registry, approvals=ScriptedApprover("Allow"))
    event = {"tool_name": "Bash", "tool_call_id": "c", "tool_input": {"a": 1}, "sudo": False, "root": "/"}
    outcome = await session.emit("tool:pre", event)
    assert (outcome.denied, outcome.data["tool_input"]) == (False, {"a": 1})
    assert {"tool_name", "tool_call_id", "cwd", "event_id"} <= outcome.data.keys()
    assert not {"sudo", "note"} & outcome.data.keys()
    assert (await session.emit("tool:pre", {**event, "tool_input": {}})).data["note"] == "x"
