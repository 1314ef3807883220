"""The stand-ins behave as their names promise."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.approvals import as_options
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.ports import ApprovalRequest, Decision, Question
from amplifier_hooks.result import Outcome
from amplifier_hooks.testing import HANG, CollectingAudit, ManualClock, RecordingContext, ScriptedApprover, SpoilingHook

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.ports import ApprovalBackend, AuditSink, Clock, ContextManager

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def request(number: int = 1) -> ApprovalRequest:
    """Return a request that offers Allow and Deny."""
    return ApprovalRequest(
        id=f"r{number}",
        tenant="",
        session="s1",
        agent="coder",
        event="tool:pre",
        tool="Write",
        arguments={},
        digest=f"digest-{number}",
        questions=(Question(hook="guard", prompt="Really?"),),
        options=as_options(["Allow", "Deny"]),
        default="deny",
        created=NOW,
        expires=NOW + timedelta(minutes=1),
    )


def test_ports() -> None:
    """Each stand-in fits its port, also for the type checker."""
    fakes: tuple[ApprovalBackend, AuditSink, Clock, ContextManager]
    fakes = (ScriptedApprover(), CollectingAudit(), ManualClock(), RecordingContext())
    assert len(fakes) == 4


def test_clock() -> None:
    """The clock stands still until it is moved."""
    clock = ManualClock(NOW)
    assert clock.now() == clock.now() == NOW
    clock.advance(1.5)
    assert clock.now() - NOW == timedelta(seconds=1.5)


async def test_approver_answers_in_order() -> None:
    """Answers come in the order of the script, by label; a label that was not offered is answered unchanged."""
    approver = ScriptedApprover("Deny", "Allow", "Maybe")
    answers = [await approver.request(request(number)) for number in (1, 2, 3)]
    assert [answer.option for answer in answers] == ["option-2", "option-1", "Maybe"]
    assert [one.id for one in approver.requests] == ["r1", "r2", "r3"]


async def test_approver_claims() -> None:
    """Only an approval can be claimed, once, for its digest, and not after it was withdrawn."""
    approver = ScriptedApprover("Deny", "Allow", "Allow", "Allow")
    for number in (1, 2, 3, 4):
        await approver.request(request(number))
    await approver.withdraw("r4", "late")
    claims = [("r1", "digest-1"), ("r2", "digest-2"), ("r2", "digest-2"), ("r3", "digest-2"), ("r4", "digest-4")]
    assert [await approver.claim(*one) for one in claims] == [False, True, False, False, False]
    await approver.settle("r2", "done")
    assert approver.step_names[4:] == ["withdraw", *["claim"] * 5, "settle"]


@pytest.mark.parametrize("error", [ApprovalTimeout(), RuntimeError("x")])
async def test_approver_raises(error: Exception) -> None:
    """An exception in the script is raised."""
    with pytest.raises(type(error)):
        await ScriptedApprover(error).request(request())


async def test_approver_hangs() -> None:
    """HANG waits until it is cancelled."""
    approver = ScriptedApprover(HANG)
    task = asyncio.create_task(approver.request(request()))
    await approver.asked.wait()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_approver_calls() -> None:
    """A function in the script returns the decision."""

    async def mine(given: ApprovalRequest) -> Any:
        return Decision(option="option-1", by=given.agent, channel="x")

    approver = ScriptedApprover(mine)
    assert (await approver.request(request())).by == "coder"
    assert await approver.claim("r1", "digest-1")


async def test_approver_runs_out() -> None:
    """When the script has ended, asking raises."""
    with pytest.raises(IndexError):
        await ScriptedApprover().request(request())


async def test_context_fails() -> None:
    """A context whose `error` is set raises it, and keeps its messages."""
    context = RecordingContext()
    await context.add_message("user", "one")
    context.error = OSError("full")
    with pytest.raises(OSError, match="full"):
        await context.add_message("user", "two")
    assert [message.content for message in await context.get_messages()] == context.texts == ["one"]


async def test_audit_fails() -> None:
    """A record whose `error` is set raises it, for one kind only if a kind was named."""
    audit = CollectingAudit(OSError("full"), only="b")
    await audit.write("a", {"x": 1}, durable=True)
    with pytest.raises(OSError, match="full"):
        await audit.write("b", {})
    assert audit.kinds == ["a"]
    assert audit.facts("a") == [{"x": 1}]


class Emitter:
    """A registry of its own, which gives every hook the data as `give` returns it."""

    def __init__(self, give: Callable[[Any], Any]) -> None:
        self.give = give
        self.hooks: list[Any] = []

    def add(self, event: str, handler: Any, **options: Any) -> None:
        """Keep a hook."""
        self.hooks.append(handler)

    register = on = gate = add

    def observe(self, event: str, handler: Any, **options: Any) -> None:
        """Keep a hook that gets an outcome, too."""
        self.hooks.append(lambda event, data: handler(event, data, Outcome(event, data)))

    def emit(self, event: str, data: Any) -> None:
        """Call every hook."""
        for hook in self.hooks:
            hook(event, self.give(data))


DATA: Final = {
    "command": "ls",
    "edits": [{"path": "a.py"}, ("b.py", {"c.py"})],
    "raw": bytearray(b"1"),
    "nested": {"deep": [[]]},
}


@pytest.mark.rule("DSP-7")
@pytest.mark.parametrize(
    ("give", "shares"),
    [(lambda data: data, True), (DataView, True), (dict, True), (deepcopy, False)],
    ids=["itself", "read-only", "shallow copy", "deep copy"],
)
def test_spoiling(give: Callable[[Any], Any], shares: bool) -> None:
    """An emitter that shares an object between hooks, at any depth, gives a later hook or its caller spoilt data."""
    emitter, read, data = Emitter(give), [], deepcopy(DATA)
    spoiling = SpoilingHook.attach(emitter)  # type: ignore[arg-type]  # as far as it is used
    emitter.on("tool:pre", lambda event, data: read.append(deepcopy(dict(data))))
    emitter.emit("tool:pre", data)
    assert (read != [DATA]) == (SpoilingHook.MARK in str(read)) == shares
    spoiling.spoil()
    assert (data != DATA) == shares


@pytest.mark.rule("DSP-7")
def test_everything_is_spoilt() -> None:
    """Every container is overwritten in place, read-only ones and the fields of an outcome included, circles too."""
    hook = SpoilingHook()
    circle: dict[str, Any] = {"list": [1], "set": {1}, "raw": bytearray(b"1"), "pair": ([2], 3)}
    pair, inner, raw, numbers = circle["pair"][0], circle["list"], circle["raw"], circle["set"]
    circle["self"], view, outcome = circle, DataView(text="ls"), Outcome("tool:pre", {"text": "ls"})
    hook("tool:pre", circle, view)
    hook("tool:pre", outcome)
    assert (inner, pair, numbers, raw) == (["spoilt"] * 2, ["spoilt"] * 2, {"spoilt"}, b"spoilt")
    assert set(circle.values()) == set(view.values()) == {"spoilt"}
    assert outcome.data == {"text": "ls"}
    hook.spoil()
    assert outcome.data == {"text": "spoilt", "spoilt": "spoilt"}
    assert hook.given == []


@pytest.mark.rule("DSP-7")
async def test_spoiling_in_a_registry() -> None:
    """In a registry it is called in four ways at every event, and answers nothing."""
    registry = HookRegistry()
    spoiling = SpoilingHook.attach(registry, priority=-5)
    assert sorted(hook.intent for hook in registry.hooks()) == ["gate", "observe", "on", "register"]
    outcome = await registry.emit("session:start", {"source": "startup"})
    assert (outcome.denied, outcome.modified, outcome.asks) == (False, False, ())
    assert spoiling.given
