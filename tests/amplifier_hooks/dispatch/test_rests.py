"""Hook objects before an operation: changes before the approval, and rests after the operation."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator, ToolOutcome
from amplifier_hooks.errors import OperationNotRun, OperationRanTwice
from amplifier_hooks.ports import ApprovalRequest, Decision
from amplifier_hooks.testing import HANG, CollectingAudit, ScriptedApprover
from approval_backends import Broker, Decider, DeferredApprovals, SqliteStore

CallNext = Callable[..., Awaitable[Any]]
Execute = Callable[[Any, CallNext], Awaitable[Any]]


class Hook:
    """A hook object that runs a function."""

    enabled = True

    def __init__(self, execute: Execute, event_type: str = "tool.execute.pre", name: str = "it") -> None:
        self.name, self.event_type, self.priority = name, event_type, 10
        self.body = execute

    async def execute(self, context: Any, call_next: CallNext) -> Any:
        """Run the function."""
        return await self.body(context, call_next)


def with_hook(execute: Execute, event_type: str = "tool.execute.pre", **options: Any) -> HookRegistry:
    """Return a registry with one hook object."""
    registry = HookRegistry()
    registry.add(Hook(execute, event_type), **options)
    return registry


def allows(request: ApprovalRequest) -> Decision:
    """Return the decision that allows a request."""
    option = next(option.id for option in request.options if option.allows)
    return Decision(option=option, by="Robin", channel="script")


async def in_place(context: Any, call_next: CallNext) -> Any:
    """Change the arguments in place."""
    context.arguments["password"] = "***"
    context.arguments["deep"]["token"] = "***"
    return await call_next(context)


async def by_assignment(context: Any, call_next: CallNext) -> Any:
    """Replace the arguments."""
    context.arguments = {"password": "***", "deep": {"token": "***"}}
    return await call_next(context)


HIDDEN = {"password": "***", "deep": {"token": "***"}}


@pytest.mark.rule("REG-17", "COO-4")
@pytest.mark.parametrize("execute", [in_place, by_assignment])
async def test_arguments_change_before_the_approval(execute: Execute) -> None:
    """The approver is shown the arguments as the hook object left them, and the tool gets those."""
    given: dict[str, Any] = {"password": "hunter2", "deep": {"token": "t"}}
    got: list[Any] = []
    registry = with_hook(execute)
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Send it?"), priority=99)
    approver = ScriptedApprover("Allow")
    async with SessionCoordinator(registry, approvals=approver) as session:
        outcome = await session.call_tool("Http", given, got.append)
    assert (outcome.status, got) == ("ok", [HIDDEN])
    assert approver.requests[0].arguments == HIDDEN
    assert given == {"password": "hunter2", "deep": {"token": "t"}}


@pytest.mark.rule("REG-17")
async def test_a_gate_looks_at_the_changed_arguments() -> None:
    """A gate that ran before a hook object looks again at the arguments that the object left."""
    seen: list[Any] = []
    registry = with_hook(by_assignment)
    registry.gate("tool:pre", lambda event, data: seen.append(dict(data["tool_input"])), priority=1)
    async with SessionCoordinator(registry) as session:
        await session.call_tool("Http", {"password": "p"}, lambda _: None)
    assert seen == [{"password": "p"}, HIDDEN]


async def memory(session: SessionCoordinator) -> Any:
    """Store a text."""
    return await session.operation("memory", {"content": "a", "key": "k"}, lambda data: data)


async def model(session: SessionCoordinator) -> Any:
    """Call a model."""

    def call(messages: Any, model: str) -> Any:
        return {"messages": messages, "model": model}

    return (await session.call_model(call, [{"role": "user", "content": "a"}], model="dear")).value


OPERATIONS: dict[str, tuple[Callable[[SessionCoordinator], Awaitable[Any]], dict[str, Any], Any]] = {
    "agent.invoke.pre": (
        lambda session: session.invoke_agent("a", {"q": 1}, lambda inputs, prompt: (inputs, prompt), system_prompt="s"),
        {"inputs": {"q": 2}, "system_prompt": "t"},
        ({"q": 2}, "t"),
    ),
    "workflow.step.pre": (
        lambda session: session.run_step("w", "1", {"q": 1}, lambda inputs: inputs),
        {"inputs": {"q": True}},
        {"q": True},
    ),
    "memory.store.pre": (memory, {"content": "b"}, {"content": "b", "key": "k"}),
    "llm.call.pre": (model, {"messages": [], "model": "cheap"}, {"messages": [], "model": "cheap"}),
}


@pytest.mark.rule("REG-17", "EVT-8")
@pytest.mark.parametrize("event", OPERATIONS)
async def test_every_operation(event: str) -> None:
    """A hook object changes the replaceable fields of every operation, and goes on with the operation's result."""
    operate, changes, expected = OPERATIONS[event]
    results: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        for name, value in changes.items():
            setattr(context, name, value)
        results.append(await call_next(context))
        results.append(context.result)
        return context

    async with SessionCoordinator(with_hook(execute, event)) as session:
        result = await operate(session)
    assert getattr(result, "result", result) == expected
    assert results == [expected, expected]


@pytest.mark.rule("REG-17")
@pytest.mark.parametrize(
    ("event", "name"),
    [("tool.execute.pre", "tool_name"), ("tool.execute.pre", "tenant_id"), ("agent.invoke.pre", "agent_name")],
)
async def test_the_other_fields_refuse(event: str, name: str) -> None:
    """A hook object that changes a fact of the operation fails, and the operation goes on unchanged."""
    raised: list[BaseException] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        try:
            setattr(context, name, "other")
        except AttributeError as error:
            raised.append(error)
            raise

    async with SessionCoordinator(with_hook(execute, event)) as session:
        if event == "tool.execute.pre":
            assert (await session.call_tool("Write", {}, lambda _: "w")).value == "w"
        else:
            assert await session.invoke_agent("a", {}, lambda inputs, prompt: "w") == "w"
    assert len(raised) == 1


@pytest.mark.rule("REG-17", "COO-3")
async def test_the_rest_runs_after_the_operation() -> None:
    """Decision, approval, operation, rest and last event follow each other, around hooks inside of the rest."""
    steps: list[str] = []

    async def timed(context: Any, call_next: CallNext) -> Any:
        steps.append("before")
        assert await call_next() == context.result == "written"
        assert context.duration_ms is not None
        steps.append("after")
        context.arguments["n"] = 2
        return "replaced"

    async def approve(request: ApprovalRequest) -> Decision:
        steps.append("asked")
        return allows(request)

    registry = with_hook(timed)
    registry.gate("tool:pre", lambda event, data: HookResult.ask("?"), priority=20)

    @registry.around("tool")
    async def inner(context: Any, call_next: CallNext) -> None:
        steps.append("around")
        await call_next()
        steps.append("around after")

    def write(_: Any) -> str:
        steps.append("tool")
        return "written"

    registry.observe("tool:post", lambda event, data, outcome: steps.append(f"post {data['tool_input']}"))
    async with SessionCoordinator(registry, approvals=ScriptedApprover(approve)) as session:
        outcome = await session.call_tool("Write", {"n": 1}, write)
    assert outcome.value == "replaced"
    assert steps == ["before", "asked", "around", "tool", "around after", "after", "post {'n': 1}"]


@pytest.mark.rule("REG-17")
@pytest.mark.parametrize("way", ["raises", "flags", "sets the result"])
async def test_the_rest_withholds_or_replaces_a_result(way: str) -> None:
    """The rest of a hook object stops what the operation returned, or puts another result in its place."""

    async def after(context: Any, call_next: CallNext) -> Any:
        await call_next(context)
        if way == "raises":
            raise HookAbortError("secret")
        context.abort, context.abort_reason = way == "flags", "secret"
        context.result = "clean"
        return context

    async with SessionCoordinator(with_hook(after)) as session:
        outcome = await session.call_tool("Read", {}, lambda _: "raw")
    assert outcome.value == ("clean" if way == "sets the result" else None)
    assert (outcome.reason is None) == (way == "sets the result")


async def denied(registry: HookRegistry) -> str:
    """A call that a later gate denies."""
    registry.gate("tool:pre", lambda event, data: HookResult.deny("closed"), priority=99, name="guard")
    async with SessionCoordinator(registry) as session:
        assert (await session.call_tool("Write", {}, pytest.fail)).denied
    return "guard: closed"


async def refused(registry: HookRegistry) -> str:
    """A call that a person denies."""
    registry.gate("tool:pre", lambda event, data: HookResult.ask("?"), priority=99, name="guard")
    async with SessionCoordinator(registry, approvals=ScriptedApprover("Deny")) as session:
        assert (await session.call_tool("Write", {}, pytest.fail)).denied
    return "User denied"


async def pending(registry: HookRegistry) -> str:
    """A call that waits for its approval."""
    registry.gate("tool:pre", lambda event, data: HookResult.ask("?"), priority=99, name="guard")
    with TemporaryDirectory() as folder:
        async with (
            SqliteStore(Path(folder, "approvals.db")) as store,
            SessionCoordinator(registry, approvals=DeferredApprovals(Broker(store)), approval_wait=0.0) as session,
        ):
            assert (await session.call_tool("Write", {}, pytest.fail, call_id="c")).pending
    return "waits for an approval"


async def cancelled(registry: HookRegistry) -> str:
    """A call that is cancelled while a person is asked."""
    registry.gate("tool:pre", lambda event, data: HookResult.ask("?"), priority=99, name="guard")
    approver = ScriptedApprover(HANG)
    async with SessionCoordinator(registry, approvals=approver) as session:
        call = asyncio.create_task(session.call_tool("Write", {}, pytest.fail))
        await approver.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    return "cancelled"


async def bare(registry: HookRegistry) -> str:
    """An emit without an operation."""
    outcome = await registry.emit("tool:pre", {"tool_name": "Write", "tool_input": {}})
    assert (outcome.action, outcome.data["tool_input"]) == ("modify", {"n": 1})
    return "nothing here runs the operation"


@pytest.mark.rule("REG-17")
@pytest.mark.parametrize("way", [denied, refused, pending, cancelled, bare])
@pytest.mark.parametrize("then", ["passes it on", "returns", "aborts", "fails"])
async def test_call_next_raises_where_the_operation_does_not_run(
    way: Callable[[HookRegistry], Awaitable[str]], then: str
) -> None:
    """The error names the reason, and nothing that the hook object answers to it counts."""
    raised: list[OperationNotRun] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.arguments["n"] = 1
        try:
            return await call_next(context)
        except OperationNotRun as error:
            raised.append(error)
            if then == "aborts":
                raise HookAbortError("mine") from None
            if then == "fails":
                raise ValueError("mine") from None
            if then == "passes it on":
                raise
            return "mine"

    why = await way(with_hook(execute))
    assert [(error.event, why in error.why) for error in raised] == [("tool:pre", True)]


@pytest.mark.rule("REG-17", "COO-7")
async def test_a_denied_operation_tells_the_rest() -> None:
    """The rest of a hook object at an agent, a model and a step is told of the denial, too."""
    whys: list[str] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        try:
            await call_next(context)
        except OperationNotRun as error:
            whys.append(error.why)
            raise

    registry = HookRegistry()
    for event in ("agent:pre", "workflow:pre", "llm:pre"):
        registry.add(Hook(execute, event))
        registry.gate(event, lambda event, data: HookResult.deny(f"no {event}"), priority=99, name="g")
    async with SessionCoordinator(registry) as session:
        with pytest.raises(HookAbortError):
            await session.invoke_agent("a", {}, lambda inputs, prompt: pytest.fail("it ran"))
        assert (await session.run_step("w", "1", {}, lambda inputs: pytest.fail("it ran"))).status == "failed"
        assert (await session.call_model(pytest.fail, [])).denied
    assert [why.rsplit("no ", 1)[-1] for why in whys] == ["agent:pre", "workflow:pre", "llm:pre"]


@pytest.mark.rule("REG-17", "REG-13")
@pytest.mark.parametrize("here", [True, False])
async def test_a_hook_that_does_not_call_on(here: bool) -> None:
    """A hook object that returns without calling on answers in place of the operation; without one, it denies."""

    async def cache(context: Any, call_next: CallNext) -> Any:
        return "cached"

    registry = with_hook(cache)
    if here:
        async with SessionCoordinator(registry) as session:
            assert (await session.call_tool("Read", {}, pytest.fail)).value == "cached"
    else:
        assert (await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {}})).denied


@pytest.mark.rule("REG-17", "REG-13")
async def test_call_next_once() -> None:
    """A second `call_next` raises, and so does one after the hook object has ended."""
    kept: list[CallNext] = []

    async def twice(context: Any, call_next: CallNext) -> Any:
        kept.append(call_next)
        await call_next()
        with pytest.raises(OperationRanTwice):
            await call_next()

    ran: list[Any] = []
    async with SessionCoordinator(with_hook(twice)) as session:
        assert (await session.call_tool("Read", {}, ran.append)).ok
    with pytest.raises(OperationRanTwice):
        await kept[0]()
    assert len(ran) == 1


@pytest.mark.rule("REG-17", "COO-3")
async def test_the_rest_meets_the_error_of_the_operation() -> None:
    """`call_next` raises what the tool raised; a rest that swallows it gives the result."""

    async def mend(context: Any, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except ValueError as error:
            return f"mended {error}"

    async def watch(context: Any, call_next: CallNext) -> Any:
        return await call_next()

    def broken(_: Any) -> None:
        raise ValueError("disk")

    async with SessionCoordinator(with_hook(mend)) as session:
        assert (await session.call_tool("Read", {}, broken)).value == "mended disk"
    async with SessionCoordinator(with_hook(watch)) as session:
        outcome = await session.call_tool("Read", {}, broken)
        assert (outcome.status, outcome.reason) == ("failed", "disk")


@pytest.mark.rule("REG-17")
async def test_a_call_that_is_taken_up_again_begins_anew(tmp_path: Path) -> None:
    """The rest of the attempt that left a question open has ended; the next attempt has a rest of its own."""
    ends: list[str] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.arguments["n"] = 1
        try:
            ends.append(await call_next())
        except OperationNotRun:
            ends.append("not run")

    registry = with_hook(execute)
    registry.gate("tool:pre", lambda event, data: HookResult.ask("?", approval_key="k"), priority=99, name="guard")
    outcomes: list[ToolOutcome[Any]] = []
    robin = Decider(name="Robin", channel="test")
    for _ in range(2):
        async with SqliteStore(tmp_path / "approvals.db") as store:
            broker = Broker(store)
            approvals = DeferredApprovals(broker)
            async with SessionCoordinator(registry, session_id="s", approvals=approvals, approval_wait=0.0) as session:
                outcomes.append(await session.call_tool("Write", {}, lambda given: f"wrote {given}", call_id="c1"))
            for record in await broker.pending(robin):
                await broker.decide(record.id, record.digest, allows(record.request).option, robin)
    assert (outcomes[-1].status, ends) == ("ok", ["not run", "wrote {'n': 1}"])


@pytest.mark.rule("REG-17", "COO-4")
async def test_a_hook_object_that_only_the_second_look_meets() -> None:
    """A hook object that is registered while a person decides goes on with the tool's result."""
    registry, seen = HookRegistry(), list[Any]()

    async def execute(context: Any, call_next: CallNext) -> Any:
        seen.append(await call_next(context))
        return context

    async def decide(request: ApprovalRequest) -> Decision:
        registry.add(Hook(execute))
        return allows(request)

    registry.gate("tool:pre", lambda event, data: HookResult.ask("Send it?"))
    async with SessionCoordinator(registry, approvals=ScriptedApprover(decide)) as session:
        await session.call_tool("Http", {}, lambda _: "sent")
    assert seen == ["sent"]


@pytest.mark.rule("REG-17", "REG-6")
async def test_a_hook_object_that_comes_too_late_for_the_operation() -> None:
    """A hook object that only meets what middleware made of the act is told at once that it has no operation here."""
    registry, why = HookRegistry(), list[str]()

    async def execute(context: Any, call_next: CallNext) -> Any:
        try:
            await call_next(context)
        except OperationNotRun as error:
            why.append(str(error))

    async def change(context: Any, call_next: CallNext) -> Any:
        registry.add(Hook(execute, "agent.invoke.pre"))
        context.inputs = {"q": 2}
        return await call_next(context)

    registry.around("agent", change)
    async with SessionCoordinator(registry) as session:
        got = await session.invoke_agent("a", {"q": 1}, lambda inputs, prompt: (inputs, len(why)))
    assert got == ({"q": 2}, 1)


@pytest.mark.rule("REG-17", "APR-7")
async def test_an_edit_begins_anew() -> None:
    """The hook object looks at an approver's edit from its beginning; its first rest ends without the operation."""
    ends: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        given = dict(context.arguments)
        try:
            ends.append((given, await call_next()))
        except OperationNotRun:
            ends.append((given, None))

    async def edit(request: ApprovalRequest) -> Decision:
        return replace(allows(request), arguments={"n": 2})

    registry = with_hook(execute)
    registry.gate("tool:pre", lambda event, data: HookResult.ask("?"), priority=99, name="guard")
    async with SessionCoordinator(registry, approvals=ScriptedApprover(edit, "Allow")) as session:
        assert (await session.call_tool("Write", {"n": 1}, lambda given: given["n"])).value == 2
    assert sorted(ends, key=str) == [({"n": 1}, None), ({"n": 2}, 2)]


@pytest.mark.rule("REG-17", "DSP-11")
@pytest.mark.parametrize("calls_on", [True, False])
async def test_a_report_only_hook_object(calls_on: bool) -> None:
    """A report-only hook object changes no input, answers in no operation's place, and replaces no result."""
    whys: list[str] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.arguments["n"] = 2
        if not calls_on:
            return "cached"
        try:
            await call_next()
        except OperationNotRun as error:
            whys.append(error.why)
        return "replaced"

    async with SessionCoordinator(with_hook(execute, report_only=True)) as session:
        assert (await session.call_tool("Write", {"n": 1}, lambda given: given)).value == {"n": 1}
    assert len(whys) == calls_on


# -- time, failures and tasks ------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-17", "DSP-5", "REG-13")
@pytest.mark.parametrize("part", ["first", "rest"])
@pytest.mark.parametrize("stubborn", [False, True])
async def test_each_part_has_the_timeout(part: str, stubborn: bool) -> None:
    """A hook object that hangs before or after `call_next` is cut off there, and the operation stands."""
    ends, over, raised = asyncio.Event(), asyncio.Event(), []

    async def hang() -> None:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    async def execute(context: Any, call_next: CallNext) -> Any:
        if part == "rest":
            await call_next()
        try:
            await hang()
            await call_next()
        except (asyncio.CancelledError, OperationRanTwice) as error:
            raised.append(type(error))
            raise
        finally:
            over.set()

    registry = with_hook(execute, timeout=0.05)
    async with SessionCoordinator(registry) as session:
        outcome = await session.call_tool("Read", {}, lambda _: "read")
        assert outcome.value == "read"
    ends.set()
    await over.wait()
    assert [hook.leaks for hook in registry.hooks()] == [int(stubborn)]
    assert raised == [OperationRanTwice if part == "rest" and stubborn else asyncio.CancelledError]


@pytest.mark.rule("REG-17")
async def test_a_slow_operation_uses_no_time_of_the_hook() -> None:
    """The time that the tool takes is not the time of the hook object that waits for it."""
    rested: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        rested.append(await call_next())

    async with SessionCoordinator(with_hook(execute, timeout=0.05)) as session:
        assert (await session.call_tool("Read", {}, lambda _: asyncio.sleep(0.15, "slow"))).value == "slow"
    assert rested == ["slow"]


@pytest.mark.rule("REG-17")
async def test_a_timeout_of_its_own_ends_the_hook_alone() -> None:
    """A hook object that waits only so long for `call_next` ends itself; the approved tool runs to its end."""
    ended: list[str] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        try:
            async with asyncio.timeout(0.02):
                await call_next()
        except TimeoutError:
            ended.append("too slow")

    async with SessionCoordinator(with_hook(execute)) as session:
        assert (await session.call_tool("Read", {}, lambda _: asyncio.sleep(0.1, "slow"))).value == "slow"
    assert ended == ["too slow"]


@pytest.mark.rule("REG-17", "DSP-6")
@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize(("on_error", "status"), [("continue", "ok"), ("deny", "denied")])
async def test_a_hook_that_fails_before_it_calls_on(error: type[BaseException], on_error: Any, status: str) -> None:
    """Its `on_error` decides, as for every hook, whatever it raises; its changes do not count."""
    got: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.arguments["n"] = 2
        raise error

    async with SessionCoordinator(with_hook(execute, on_error=on_error)) as session:
        assert (await session.call_tool("Read", {"n": 1}, got.append)).status == status
    assert got == ([{"n": 1}] if status == "ok" else [])


@pytest.mark.rule("REG-17", "DSP-7")
@pytest.mark.parametrize("left", [{"n": {1}}, "text", float("nan")])
async def test_arguments_that_are_no_input(left: Any) -> None:
    """Arguments that no input can have deny the call: without the change it is not the act that the hook wanted."""

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.arguments = left
        return await call_next(context)

    async with SessionCoordinator(with_hook(execute)) as session:
        assert (await session.call_tool("Read", {"n": 1}, pytest.fail)).denied


@pytest.mark.rule("REG-17")
async def test_a_hook_object_that_calls_a_tool_itself() -> None:
    """The hook objects of a call that a hook makes belong to that call."""
    order: list[str] = []
    registry = HookRegistry()

    async def execute(context: Any, call_next: CallNext) -> Any:
        name = context.tool_name
        order.append(f"{name} begins")
        if name == "Outer":
            assert (await session.call_tool("Inner", {}, lambda _: order.append("Inner runs"))).ok
        await call_next()
        order.append(f"{name} ends")

    registry.add(Hook(execute))
    async with SessionCoordinator(registry) as session:
        assert (await session.call_tool("Outer", {}, lambda _: order.append("Outer runs"))).ok
    assert order == ["Outer begins", "Inner begins", "Inner runs", "Inner ends", "Outer runs", "Outer ends"]


@pytest.mark.rule("REG-17")
@pytest.mark.parametrize("event", ["tool:pre", "memory:pre"])
async def test_an_event_inside_of_a_decision_has_no_operation(event: str) -> None:
    """A hook object that answers an event which a gate or an approver emits does not wait for the act in hand."""
    whys: list[str] = []
    registry = HookRegistry()

    async def execute(context: Any, call_next: CallNext) -> Any:
        try:
            await call_next()
        except OperationNotRun as error:
            whys.append(error.why)
            raise

    async def approve(request: ApprovalRequest) -> Decision:
        if event == "memory:pre":
            await registry.emit(event, {"content": "inner"})
        return allows(request)

    async def gate(_event: str, data: Any) -> HookResult:
        if event == "tool:pre" and data["tool_name"] == "Outer":
            await registry.emit(event, {"tool_name": "Inner", "tool_input": {}})
        return HookResult.ask("?")

    registry.add(Hook(execute, event), match="Inner" if event == "tool:pre" else None)
    registry.gate("tool:pre", gate, priority=99, recheck=False)
    async with SessionCoordinator(registry, approvals=ScriptedApprover(approve)) as session:
        assert (await session.call_tool("Outer", {}, lambda _: "ran")).value == "ran"
    assert whys == ["nothing here runs the operation"]


@pytest.mark.rule("REG-17", "REG-6")
async def test_calling_on_after_an_abort() -> None:
    """`call_next` raises in a hook object that has set `abort`, and the operation is denied for its reason."""
    raised: list[str] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.abort, context.abort_reason = True, "closed"
        try:
            await call_next()
        except HookAbortError as error:
            raised.append(error.reason)
            raise

    async with SessionCoordinator(with_hook(execute)) as session:
        outcome = await session.call_tool("Write", {}, pytest.fail)
    assert (outcome.by, outcome.reason, raised) == ("it", "Operation denied by it: closed", ["closed"])


@pytest.mark.rule("REG-17")
async def test_the_inner_rest_ends_first() -> None:
    """Of two hook objects, the one that answered last is told first, as around an operation that runs."""
    order: list[str] = []
    registry = HookRegistry()

    def add(name: str) -> None:
        async def execute(context: Any, call_next: CallNext) -> Any:
            try:
                await call_next()
            finally:
                order.append(name)

        registry.add(Hook(execute, name=name))

    add("outer")
    add("inner")
    async with SessionCoordinator(registry) as session:
        await session.call_tool("Write", {}, lambda _: None)
        registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), priority=99)
        await session.call_tool("Write", {}, pytest.fail)
    assert order == ["inner", "outer"] * 2


@pytest.mark.rule("REG-17", "COO-4")
async def test_equal_values_of_other_types_are_changes() -> None:
    """A hook object that replaces 1 by True has changed the input, although the two are equal in Python."""
    got: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.arguments["n"] = True
        return await call_next()

    async with SessionCoordinator(with_hook(execute)) as session:
        await session.call_tool("Write", {"n": 1}, got.append)
    assert got[0]["n"] is True


@pytest.mark.rule("REG-17", "EVT-8")
async def test_metadata_that_is_the_operations_own() -> None:
    """Where the payload has a field `metadata` of its own, a hook object's notes stay beside it."""
    seen: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.metadata["note"] = 1
        context.content = "b"
        await call_next()
        seen.append(context.metadata)

    async with SessionCoordinator(with_hook(execute, "memory.store.pre")) as session:
        data = {"content": "a", "metadata": {"who": "me"}}
        assert await session.operation("memory", data, lambda data: data) == {**data, "content": "b"}
    assert seen[0]["note"] == 1


@pytest.mark.rule("REG-17", "EVT-8")
async def test_metadata_from_the_first_part_to_the_last_event() -> None:
    """Notes that a hook object makes before and after the operation reach around hooks and the last event."""
    seen: list[Any] = []

    async def execute(context: Any, call_next: CallNext) -> Any:
        context.metadata["before"] = 1
        await call_next()
        context.metadata["after"] = 2

    registry = with_hook(execute)

    @registry.around("tool")
    async def inner(context: Any, call_next: CallNext) -> None:
        seen.append(dict(context.metadata))
        await call_next()

    registry.observe("tool:post", lambda event, data, outcome: seen.append(data["metadata"]))
    async with SessionCoordinator(registry) as session:
        await session.call_tool("Read", {}, lambda _: "read")
    assert seen == [{"before": 1}, {"before": 1, "after": 2}]


@pytest.mark.rule("REG-17", "COO-9")
async def test_cancelling_while_the_tool_runs() -> None:
    """The rest of a hook object is cancelled with the tool, and the record has the end."""
    running, ends = asyncio.Event(), []
    audit = CollectingAudit()

    async def execute(context: Any, call_next: CallNext) -> Any:
        try:
            await call_next()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def tool(_: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    async with SessionCoordinator(with_hook(execute), audit=audit) as session:
        call = asyncio.create_task(session.call_tool("Read", {}, tool))
        await running.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert ends == ["cancelled"]
    assert "tool.cancelled" in audit.kinds
