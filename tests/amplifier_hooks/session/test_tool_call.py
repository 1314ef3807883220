"""One tool call among others: in parallel, nested, watched, cancelled, and with a record that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator, ToolOutcome
from amplifier_hooks.errors import EmitTooDeep, InvalidRegistration, UnknownTool
from amplifier_hooks.record import recorder
from amplifier_hooks.testing import CollectingAudit, RecordingContext, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STEPS = ["outcome", "approval.requested", "approval.decided", "tool.running"]


def never(*_args: Any) -> None:
    """Fail: this tool must not run."""
    pytest.fail("it ran")


class Waiting:
    """A tool that waits until it is released."""

    def __init__(self, result: Any = "done") -> None:
        self.result = result
        self.running = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, given: Any) -> Any:
        """Wait, and return."""
        self.running.set()
        await self.go.wait()
        return self.result


class HangingAudit(CollectingAudit):
    """A record that hangs at one kind of record, until it is cancelled or released."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at
        self.hanging = asyncio.Event()
        self.go = asyncio.Event()

    async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
        """Append one record, or hang."""
        if kind == self.at:
            self.hanging.set()
            await self.go.wait()
        await super().write(kind, facts, durable=durable)


def asking(registry: HookRegistry | None = None) -> HookRegistry:
    """Return a registry whose gate asks about every tool."""
    registry = registry or HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?", options=["Allow", "Deny"]), name="asker")
    return registry


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel the task, and check that it was cancelled."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- the four ends -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-9")
@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (ToolOutcome(value=1), "ok"),
        (ToolOutcome(denied=True, reason="no", by="guard"), "denied"),
        (ToolOutcome(pending="r1"), "pending"),
        (ToolOutcome(error=ValueError()), "failed"),
    ],
)
def test_status(outcome: ToolOutcome[Any], status: str) -> None:
    """A tool call has one of four ends, and only one of them is ok."""
    assert outcome.status == status
    assert outcome.ok is (status == "ok")


@pytest.mark.rule("EVT-8")
async def test_call_id() -> None:
    """A call's id is the host's, or a new one, in every event and record of the call."""
    registry, audit = HookRegistry(), CollectingAudit()
    told: list[str] = []
    registry.observe("tool:*", lambda event, data, outcome: told.append(data["tool_call_id"]))
    session = SessionCoordinator(hooks=registry, audit=audit)
    await session.call_tool("Read", {}, lambda _: 1, call_id="call_7")
    await session.call_tool("Read", {}, lambda _: 1)
    await session.call_tool("Read", {}, lambda _: 1)
    assert told[:2] == ["call_7", "call_7"]
    assert len(set(told)) == 3
    assert all(told)
    assert audit.facts("tool.running")[0]["call"] == audit.facts("tool.done")[0]["call"] == "call_7"


@pytest.mark.rule("COO-8")
async def test_own_tools() -> None:
    """A session runs its own tools by name, past the hooks; an unknown name is the caller's error."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), match="Write", name="guard")
    session = SessionCoordinator(hooks=registry, tools={"Read": lambda given: given["path"], "Write": never})
    assert (await session.execute_tool("Read", {"path": "x"})).value == "x"
    assert (await session.execute_tool("Write", {"path": "x"})).reason == "Operation denied by guard: no"
    with pytest.raises(UnknownTool, match="it has Read, Write"):
        await session.execute_tool("Delete", {})


@pytest.mark.rule("EVT-8", "RES-6")
async def test_denied_afterwards() -> None:
    """A denial at tool:post undoes nothing: the value comes back."""
    registry = HookRegistry()
    registry.on("tool:post", lambda event, data: HookResult.deny("too late"))
    assert (await SessionCoordinator(hooks=registry).call_tool("Read", {}, lambda _: 1)).value == 1


@pytest.mark.rule("DSP-7", "COO-3")
async def test_a_change_of_a_result_cannot_be_undone_in_place() -> None:
    """A hook that changes the event data in place leaves the result as an earlier hook has masked it."""
    registry = HookRegistry()
    registry.on("tool:post", lambda event, data: HookResult.modify({"result": "masked"}), name="mask")
    registry.on("tool:post", lambda event, data: dict.__setitem__(data, "result", "secret"), name="changer")
    assert (await SessionCoordinator(hooks=registry).call_tool("Read", {}, lambda _: "secret")).value == "masked"


# -- several at once ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3")
async def test_in_parallel() -> None:
    """Calls side by side in one turn each get their own input, answer and record."""
    registry, audit = HookRegistry(), CollectingAudit()

    @registry.gate("tool:pre")
    async def odd(event: str, data: Any) -> HookResult | None:
        await asyncio.sleep(0)
        return HookResult.deny("odd") if data["tool_input"]["n"] % 2 else None

    async def double(given: Any) -> int:
        await asyncio.sleep(0)
        return int(given["n"]) * 2

    session = SessionCoordinator(hooks=registry, audit=audit)
    async with session.turn("go"):
        outcomes = await asyncio.gather(*(session.call_tool("Double", {"n": n}, double) for n in range(20)))
    assert [outcome.value for outcome in outcomes] == [None if n % 2 else n * 2 for n in range(20)]
    assert len(audit.facts("tool.done")) == len(audit.facts("tool.denied")) == 10


@pytest.mark.rule("COO-3")
async def test_tool_that_calls_tools() -> None:
    """A tool may call tools, to any depth; those are no hooks that emit in circles."""
    registry = HookRegistry()
    depths: list[int] = []
    registry.gate("tool:pre", lambda event, data: depths.append(data["tool_input"]["left"]))

    @registry.around("tool")
    async def layer(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
        await call_next()

    session = SessionCoordinator(hooks=registry)

    async def dig(given: Any) -> int:
        left = given["left"]
        return 1 + ((await session.call_tool("Dig", {"left": left - 1}, dig)).value or 0) if left else 0

    assert (await session.call_tool("Dig", {"left": 9}, dig)).value == 9
    assert depths == list(range(9, -1, -1))


@pytest.mark.rule("COO-3")
@pytest.mark.fault("F-HD-16")
async def test_hook_that_calls_tools_without_end() -> None:
    """A gate that calls a tool whose gate calls a tool … is stopped at the depth limit, and nothing ran."""
    registry = HookRegistry()
    session = SessionCoordinator(hooks=registry)

    @registry.gate("tool:pre", name="circle")
    async def circle(event: str, data: Any) -> HookResult:
        return HookResult.deny((await session.call_tool("Read", {}, never)).reason)

    outcome = await session.call_tool("Read", {}, never)
    assert outcome.denied
    assert EmitTooDeep.__name__ in (outcome.reason or "")


# -- observers ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-5", "COO-3")
async def test_slow_observer() -> None:
    """An observer of tool:pre runs beside the tool, and has ended when the call returns."""
    registry = HookRegistry()
    tool, seen = Waiting(), []

    @registry.observe("tool:pre")
    async def slow(event: str, data: Any, outcome: Any) -> None:
        await tool.running.wait()  # a tool that waited for its observers would never run
        tool.go.set()
        await asyncio.sleep(0)
        seen.append(event)

    assert (await SessionCoordinator(hooks=registry).call_tool("Read", {}, tool)).value == "done"
    assert seen == ["tool:pre"]


@pytest.mark.rule("REG-5", "EVT-6")
@pytest.mark.parametrize("error", [None, ValueError("x")])
async def test_observers_are_told_in_order(error: Exception | None) -> None:
    """An observer is notified of a tool's start, to the end, before any observer is notified of its end."""
    registry = HookRegistry()
    seen: list[str] = []

    @registry.observe("tool:*")
    async def slow(event: str, data: Any, outcome: Any) -> None:
        for _ in range(5 if event == "tool:pre" else 0):
            await asyncio.sleep(0)
        seen.append(event)

    def tool(given: Any) -> None:
        if error is not None:
            raise error

    await SessionCoordinator(hooks=registry).call_tool("Read", {}, tool)
    assert seen == ["tool:pre", "tool:error" if error else "tool:post"]


@pytest.mark.rule("REG-5")
async def test_observer_of_a_denied_call() -> None:
    """An observer is notified of a call that was denied, and has ended when the denial comes back."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"))
    seen: list[str] = []

    @registry.observe("tool:pre")
    async def slow(event: str, data: Any, outcome: Any) -> None:
        await asyncio.sleep(0)
        seen.append(outcome.action)

    await SessionCoordinator(hooks=registry).call_tool("Read", {}, never)
    assert seen == ["deny"]


@pytest.mark.rule("REG-5")
async def test_cancelled_with_a_slow_observer() -> None:
    """Cancelling a call cancels the observers that still run beside its tool."""
    registry = HookRegistry()
    tool, ended = Waiting(), []

    @registry.observe("tool:pre", timeout=600)
    async def slow(event: str, data: Any, outcome: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(event)

    task = asyncio.create_task(SessionCoordinator(hooks=registry).call_tool("Read", {}, tool))
    await tool.running.wait()
    await cancelled(task)
    assert ended == ["tool:pre"]


# -- how tools end -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("mine"), SystemExit(3), HookAbortError("no"), ValueError("x")]
)
@pytest.mark.parametrize("around", [False, True])
async def test_tool_raises_anything(error: BaseException, around: bool) -> None:
    """Any exception of a tool comes back in .error; it cancels no task, and no program exits."""
    registry, audit, approver = asking(), CollectingAudit(), ScriptedApprover("Allow")
    if around:

        @registry.around("tool")
        async def layer(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
            await call_next()

    told: list[Any] = []
    registry.observe("tool:error", lambda event, data, outcome: told.append(data["error"]["type"]))

    async def tool(given: Any) -> None:
        await asyncio.sleep(0)
        raise error

    outcome = await SessionCoordinator(hooks=registry, audit=audit, approvals=approver).call_tool("Read", {}, tool)
    assert (outcome.status, outcome.error) == ("failed", error)
    assert told == [type(error).__name__]
    assert audit.kinds.count("tool.failed") == 1
    assert approver.step_names == ["request", "claim", "settle"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.rule("COO-3")
async def test_tool_interrupted_by_the_keyboard() -> None:
    """Ctrl-C in a tool is raised to the program, and is on record."""
    audit = CollectingAudit()

    def tool(given: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await SessionCoordinator(audit=audit).call_tool("Read", {}, tool)
    assert audit.facts("tool.cancelled")[0]["ran"] is True


@pytest.mark.rule("COO-3")
async def test_tool_cancels_its_caller() -> None:
    """A tool that cancels the task it runs in receives the cancellation itself."""
    audit = CollectingAudit()

    async def tool(given: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    task = asyncio.create_task(SessionCoordinator(audit=audit).call_tool("Read", {}, tool))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert audit.facts("tool.cancelled")[0]["ran"] is True


@pytest.mark.rule("COO-3")
async def test_cancelled_before_it_began() -> None:
    """A pending cancellation of the caller's task arrives in the tool, and is not the tool's error."""

    async def tool(given: Any) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await SessionCoordinator().call_tool("Read", {}, tool)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


@pytest.mark.rule("COO-9")
async def test_tool_cancels_its_session() -> None:
    """A tool may cancel its own session: the tool ends unchanged, and the next call is denied."""
    session = SessionCoordinator()

    async def tool(given: Any) -> str:
        await session.cancel("enough")
        return "done"

    assert (await session.call_tool("Stop", {}, tool)).value == "done"
    assert (await session.call_tool("Read", {}, never)).reason == "Operation denied by session: enough"


@pytest.mark.rule("REG-6")
async def test_skipped() -> None:
    """A call that an around hook answers in the tool's place has a value, and did not run, also for its approval."""
    registry, audit = asking(), CollectingAudit()
    became: list[str] = []

    class Approver(ScriptedApprover):
        async def settle(self, request_id: str, outcome: Any, result: Any = None) -> None:
            became.append(outcome)

    @registry.around("tool")
    async def cache(context: Any, call_next: Callable[[], Awaitable[Any]]) -> str:
        return "cached"

    session = SessionCoordinator(hooks=registry, audit=audit, approvals=Approver("Allow"))
    assert (await session.call_tool("Read", {}, never)).value == "cached"
    assert audit.facts("tool.done")[0]["ran"] is False
    assert became == ["failed"]


@pytest.mark.rule("REG-6")
async def test_around_aborts_by_flag() -> None:
    """An around hook that sets `abort` stops the tool, with its reason."""
    registry = HookRegistry()

    @registry.around("tool", name="quota")
    async def quota(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
        context.abort, context.abort_reason = True, "used up"

    outcome = await SessionCoordinator(hooks=registry).call_tool("Read", {}, never)
    assert outcome.reason == "Operation denied by quota: used up"


@pytest.mark.rule("REG-16")
async def test_emergency_stop() -> None:
    """Under an emergency stop nothing runs, with hooks or without."""
    registry = HookRegistry()
    registry.emergency_stop("fire")
    outcome = await SessionCoordinator(hooks=registry).call_tool("Read", {}, never)
    assert outcome.reason == "Operation denied by registry: emergency stop: fire"


# -- cancelled at every step -------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-2", "COO-3")
@pytest.mark.parametrize("step", STEPS)
async def test_cancelled_while_recording(step: str) -> None:
    """Cancelled while a record before the run is written, the call runs nothing, and no approval of it stays good."""
    audit, approver = HangingAudit(step), ScriptedApprover("Allow")
    session = SessionCoordinator(hooks=asking(), audit=audit, approvals=approver)
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await audit.hanging.wait()
    await cancelled(task)
    assert not any([await approver.claim(request.id, request.digest) for request in approver.requests])


@pytest.mark.rule("COO-3")
async def test_cancelled_while_claiming() -> None:
    """Cancelled while the approval is being claimed, the call runs nothing, and settles it as failed."""
    audit = CollectingAudit()
    claiming = asyncio.Event()

    class Approver(ScriptedApprover):
        async def claim(self, request_id: str, digest: str) -> bool:
            claiming.set()
            await asyncio.Event().wait()
            return True

    approver = Approver("Allow")
    session = SessionCoordinator(hooks=asking(), audit=audit, approvals=approver)
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await claiming.wait()
    await cancelled(task)
    assert approver.step_names == ["request", "settle", "withdraw"]
    assert audit.facts("tool.cancelled")[0]["ran"] is False


@pytest.mark.rule("COO-3")
async def test_cancelled_in_an_around_hook() -> None:
    """Cancelled before its around hooks have called it, the tool does not run, and the record says so."""
    registry, audit = HookRegistry(), CollectingAudit()
    waiting = asyncio.Event()

    @registry.around("tool")
    async def slow(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(SessionCoordinator(hooks=registry, audit=audit).call_tool("Read", {}, never))
    await waiting.wait()
    await cancelled(task)
    assert audit.facts("tool.cancelled")[0]["ran"] is False


@pytest.mark.rule("COO-3")
async def test_cancelled_afterwards() -> None:
    """Cancelled while tool:post is emitted, the call raises; the record says that the tool was done."""
    registry, audit = HookRegistry(), CollectingAudit()
    waiting = asyncio.Event()

    @registry.on("tool:post")
    async def slow(event: str, data: Any) -> None:
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(SessionCoordinator(hooks=registry, audit=audit).call_tool("Read", {}, lambda _: 1))
    await waiting.wait()
    await cancelled(task)
    assert "tool.done" in audit.kinds
    assert "tool.cancelled" not in audit.kinds


# -- a record that fails or hangs --------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-3")
@pytest.mark.parametrize("step", STEPS)
async def test_record_hangs(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose record hangs before the run is denied, and no approval stays good."""
    monkeypatch.setattr(recorder, "SINK_TIMEOUT", 0.01)
    audit, approver = HangingAudit(step), ScriptedApprover("Allow")
    session = SessionCoordinator(hooks=asking(), audit=audit, approvals=approver)
    outcome = await session.call_tool("Read", {}, never)
    assert (outcome.denied, outcome.by) == (True, "record")
    assert "not written within 0.01 s" in (outcome.reason or "")
    assert not any([await approver.claim(request.id, request.digest) for request in approver.requests])


@pytest.mark.rule("AUD-3")
@pytest.mark.parametrize("step", ["tool.done", "injection"])
@pytest.mark.parametrize("hangs", [False, True])
async def test_record_fails_afterwards(step: str, hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that fails or hangs after the run is logged: the value comes back, and tool:post is emitted."""
    monkeypatch.setattr(recorder, "SINK_TIMEOUT", 0.01)
    audit = HangingAudit(step) if hangs else CollectingAudit(OSError("full"), only=step)
    registry = HookRegistry()
    told: list[str] = []
    registry.on("tool:post", lambda event, data: told.append(event))
    assert (await SessionCoordinator(hooks=registry, audit=audit).call_tool("Read", {}, lambda _: 1)).value == 1
    assert told == ["tool:post"]


@pytest.mark.rule("AUD-3")
async def test_record_of_a_failure_fails() -> None:
    """A record that fails after the tool has failed does not change the outcome."""
    error = ValueError("x")

    def tool(given: Any) -> None:
        raise error

    audit = CollectingAudit(OSError("full"), only="tool.failed")
    assert (await SessionCoordinator(audit=audit).call_tool("Read", {}, tool)).error is error


@pytest.mark.rule("AUD-3")
async def test_record_of_a_denial_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denial whose record hangs is a denial."""
    monkeypatch.setattr(recorder, "SINK_TIMEOUT", 0.01)
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="guard")
    outcome = await SessionCoordinator(hooks=registry, audit=HangingAudit("tool.denied")).call_tool("Read", {}, never)
    assert outcome.reason == "Operation denied by guard: no"


@pytest.mark.rule("AUD-3")
async def test_slow_record() -> None:
    """A slow record holds the call up, and breaks nothing."""
    audit = HangingAudit("tool.running")
    task = asyncio.create_task(SessionCoordinator(audit=audit).call_tool("Read", {}, lambda _: 1))
    await audit.hanging.wait()
    assert not task.done()
    audit.go.set()
    assert (await task).value == 1
    assert audit.kinds == ["outcome", "tool.running", "tool.done", "outcome"]


@pytest.mark.rule("AUD-3")
async def test_record_raises_its_own_timeout() -> None:
    """A record's own TimeoutError, at once or after waiting, denies the call with its text."""

    class Sink(CollectingAudit):
        async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
            await asyncio.sleep(0)
            raise TimeoutError("the disk says so")

    outcome = await SessionCoordinator(audit=Sink()).call_tool("Read", {}, never)
    assert "the disk says so" in (outcome.reason or "")


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-4")
async def test_answered_late_is_not_run() -> None:
    """A session that is cancelled while the answer is recorded does not run the allowed call."""
    audit, approver = HangingAudit("tool.running"), ScriptedApprover("Allow")
    session = SessionCoordinator(hooks=asking(), audit=audit, approvals=approver)
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await audit.hanging.wait()
    await session.cancel("enough")
    audit.go.set()
    assert (await task).reason == "Operation denied by session: enough"
    assert approver.step_names == ["request", "withdraw"]


@pytest.mark.rule("RES-7")
async def test_injection_of_a_failed_call() -> None:
    """An injection into a call that fails reaches the context, because the tool did run."""
    registry, context = HookRegistry(), RecordingContext()
    registry.on("tool:pre", lambda event, data: HookResult.inject("mind the gap"), name="a")
    registry.on("tool:error", lambda event, data: HookResult.inject("try again"), name="b")

    def tool(given: Any) -> None:
        raise ValueError

    await SessionCoordinator(hooks=registry, context=context).call_tool("Read", {}, tool)
    assert ["mind the gap" in context.texts[0], "try again" in context.texts[1]] == [True, True]


PATHS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.fault("F-HD-07", "F-HD-06")
@pytest.mark.rule("COO-3")
@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"path": 3}, "$.path: this value is not of type"),
        ({}, '"path" is a required property'),
        ({"path": "a", "as_root": True}, "as_root"),
        ({"path": "b"}, None),
        ({"path": "a"}, None),
    ],
)
async def test_a_changed_input_fits_its_tools_schema(made: dict[str, Any], problem: str | None) -> None:
    """An input that a hook changed and the tool does not take is denied as that hook's invalid answer."""
    ran: list[Any] = []
    audit = CollectingAudit()
    session = SessionCoordinator(tool_schemas={"Read": PATHS}, audit=audit)
    session.hooks.on("tool:pre", lambda event, data: HookResult.modify({"note": 1}), name="first")
    session.hooks.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": made}), name="changer")
    session.hooks.gate("tool:pre", lambda event, data: HookResult.modify({"note": 2}), name="last", priority=5)
    outcome = await session.call_tool("Read", {"path": "a"}, ran.append)
    assert outcome.denied is (problem is not None)
    assert bool(ran) is (problem is None)
    if problem is not None:
        assert outcome.by == "changer"
        assert problem in (outcome.reason or "")
        assert [one["cause"] for one in audit.facts("tool.denied")] == ["hook_invalid_output"]


@pytest.mark.fault("F-HD-07")
async def test_only_what_hooks_change_is_looked_at() -> None:
    """The agent's own input and other tools are not checked, and a child has its parent's schemas."""
    ran: list[Any] = []
    session = SessionCoordinator(tool_schemas={"Read": PATHS})
    assert (await session.call_tool("Read", {"odd": 1}, ran.append)).ok
    session.hooks.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"other": 1}}), name="changer")
    assert (await session.call_tool("Write", {"odd": 1}, ran.append)).ok
    assert ran == [{"odd": 1}, {"other": 1}]
    child = session.child("helper")
    assert (await child.call_tool("Read", {"path": "a"}, ran.append)).by == "changer"
    assert len(ran) == 2


@pytest.mark.fault("F-HD-07")
@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "https://example.com/x"}, 3, {"pattern": "(?=a)"}])
def test_a_schema_that_cannot_be_used(schema: Any) -> None:
    """A tool's schema that is broken, or refers outside, is refused when the session is made."""
    with pytest.raises(InvalidRegistration, match=r"tool_schemas\['Read'\]"):
        SessionCoordinator(tool_schemas={"Read": schema})


@pytest.mark.rule("COO-4")
@pytest.mark.parametrize("by", ["caller", "hook"])
async def test_large_input_is_refused(by: str) -> None:
    """A tool input of more than 1 MiB is denied, before any hook looks at the caller's."""
    registry, large = HookRegistry(), {"x": "y" * 1_100_000}
    seen: list[str] = []

    @registry.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        seen.append(event)
        return HookResult.modify({"tool_input": large})

    session = SessionCoordinator(hooks=registry)
    outcome = await session.call_tool("Write", large if by == "caller" else {}, lambda _: pytest.fail("it ran"))
    assert (outcome.denied, outcome.by) == (True, "InputTooLarge")
    assert seen == ([] if by == "caller" else ["tool:pre"])
