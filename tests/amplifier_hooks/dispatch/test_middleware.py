import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from threading import Lock
from typing import Any

import pytest

from amplifier_hooks import (
    AgentContext,
    HookAbortError,
    HookContext,
    HookRegistry,
    ModelContext,
    Outcome,
    RequestContext,
    ToolContext,
    WorkflowContext,
)
from amplifier_hooks.dispatch.chain import OnError
from amplifier_hooks.dispatch.middleware import OPERATIONS, MemoryContext
from amplifier_hooks.errors import InvalidRegistration, OperationRanTwice
from tests.hooks import Hands

CallNext = Callable[[], Awaitable[Any]]


class Operation:
    """Something to wrap: counts its runs, returns or raises, and can be made to wait."""

    def __init__(self, result: Any = "done", error: BaseException | None = None) -> None:
        self.result = result
        self.error = error
        self.runs = 0
        self.running = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> Any:
        """Run once."""
        self.runs += 1
        self.running.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return self.result


async def passing(context: HookContext, call_next: CallNext) -> Any:
    """A layer that only calls on."""
    return await call_next()


def tool(name: str = "Write", **fields: Any) -> ToolContext:
    """The context of a tool call for its layers."""
    return ToolContext(tool_name=name, **fields)


@pytest.mark.rule("REG-6")
async def test_layers_nest_by_priority() -> None:
    """The lowest priority is outermost: first before the operation, last after it."""
    registry = HookRegistry()
    seen: list[str] = []

    def layer(name: str) -> Callable[..., Awaitable[None]]:
        async def handler(context: HookContext, call_next: CallNext) -> None:
            seen.append(f"{name} before")
            await call_next()
            seen.append(f"{name} after")

        return handler

    registry.around("tool", layer("inner"), priority=10, name="inner")
    registry.around("tool", layer("outer"), priority=-5, name="outer")
    registry.around("tool", layer("middle"), name="middle")
    assert await registry.wrap("tool", tool(), Operation()) == "done"
    assert seen == ["outer before", "middle before", "inner before", "inner after", "middle after", "outer after"]


@pytest.mark.rule("REG-6")
async def test_layers_share_metadata_and_say_what_became_of_them() -> None:
    """Metadata of one layer reaches the others, and each layer leaves a record in the results."""
    registry = HookRegistry()

    @registry.around("tool", priority=1)
    async def outer(context: ToolContext, call_next: CallNext) -> None:
        context.metadata["asked by"] = "outer"
        await call_next()
        context.metadata["seen"] = context.result

    @registry.around("tool", priority=2)
    async def inner(context: ToolContext, call_next: CallNext) -> None:
        context.metadata["heard"] = context.metadata["asked by"]
        await call_next()

    context = tool()
    await registry.wrap("tool", context, Operation("written"))
    assert context.metadata == {"asked by": "outer", "heard": "outer", "seen": "written"}
    assert [(answer.hook_name, answer.success) for answer in context.results] == [("inner", True), ("outer", True)]
    assert context.result == "written"
    assert context.duration_ms is not None


@pytest.mark.rule("REG-6")
async def test_not_calling_on_skips_the_operation() -> None:
    """A layer that does not call on answers in the operation's place, by returning or through the context."""
    registry = HookRegistry()

    @registry.around("tool", match="Read")
    async def cached(context: ToolContext, call_next: CallNext) -> str:
        return "from the cache"

    @registry.around("tool", match="List")
    async def noted(context: ToolContext, call_next: CallNext) -> None:
        context.result = "from memory"

    @registry.around("tool", match="Skip")
    async def silent(context: ToolContext, call_next: CallNext) -> None:
        return None

    operation = Operation()
    results = [await registry.wrap("tool", tool(name), operation) for name in ("Read", "List", "Skip")]
    assert results == ["from the cache", "from memory", None]
    assert operation.runs == 0


@pytest.mark.rule("REG-6")
async def test_a_layer_replaces_the_result() -> None:
    """A value that a layer returns, or puts into the context after calling on, is the result for all outside."""
    registry = HookRegistry()

    @registry.around("tool", priority=1)
    async def returned(context: ToolContext, call_next: CallNext) -> str:
        return f"<{await call_next()}>"

    @registry.around("tool", priority=2)
    async def put(context: ToolContext, call_next: CallNext) -> None:
        await call_next()
        context.result = f"[{context.result}]"

    context = tool()
    assert await registry.wrap("tool", context, Operation("x")) == "<[x]>"
    assert context.result == "<[x]>"


@pytest.mark.rule("REG-6", "REG-11")
@pytest.mark.parametrize("how", ["flag", "flag and call", "exception"])
async def test_a_layer_aborts_the_operation(how: str) -> None:
    """The flag and the exception both stop the operation, and the caller learns the hook and the reason."""
    registry = HookRegistry()

    @registry.around("tool", timeout=None)
    async def quota(context: ToolContext, call_next: CallNext) -> None:
        if how == "exception":
            raise HookAbortError("used up")
        context.abort, context.abort_reason = True, "used up"
        if how == "flag and call":
            await call_next()

    operation = Operation()
    with pytest.raises(HookAbortError, match="used up") as caught:
        await registry.wrap("tool", tool(), operation)
    assert (caught.value.hook, caught.value.reason, operation.runs) == ("quota", "used up", 0)


@pytest.mark.rule("REG-6")
async def test_an_abort_without_a_reason_names_the_hook() -> None:
    """Where the hook gave no reason, its name stands for one."""
    registry = HookRegistry()

    @registry.around("tool")
    async def quota(context: ToolContext, call_next: CallNext) -> None:
        context.abort = True

    with pytest.raises(HookAbortError, match="stopped by quota"):
        await registry.wrap("tool", tool(), Operation())


@pytest.mark.rule("REG-6")
async def test_an_inner_abort_passes_the_outer_layers() -> None:
    """An outer layer sees an abort as an exception, and lets it through or answers in its place."""
    registry = HookRegistry()
    seen: list[str] = []

    @registry.around("tool", priority=1, match="Write|Read")
    async def outer(context: ToolContext, call_next: CallNext) -> str | None:
        try:
            await call_next()
        except HookAbortError as abort:
            seen.append(abort.reason)
            if context.tool_name == "Write":
                raise
            return "nothing to read"
        return None

    @registry.around("tool", priority=2)
    async def inner(context: ToolContext, call_next: CallNext) -> None:
        context.abort, context.abort_reason = True, "closed"

    with pytest.raises(HookAbortError, match="closed") as caught:
        await registry.wrap("tool", tool("Write"), Operation())
    assert caught.value.hook == "inner"
    assert await registry.wrap("tool", tool("Read"), Operation()) == "nothing to read"
    assert seen == ["closed", "closed"]


@pytest.mark.rule("REG-6")
@pytest.mark.parametrize("how", ["flag", "exception"])
async def test_an_abort_after_the_operation_withholds_its_result(how: str) -> None:
    """After an abort the operation has run, but the caller does not get its result."""
    registry = HookRegistry()

    @registry.around("tool")
    async def guard(context: ToolContext, call_next: CallNext) -> None:
        await call_next()
        if how == "exception":
            raise HookAbortError("it holds a secret")
        context.abort, context.abort_reason = True, "it holds a secret"

    operation = Operation("secret")
    with pytest.raises(HookAbortError, match="it holds a secret"):
        await registry.wrap("tool", tool(), operation)
    assert operation.runs == 1


@pytest.mark.rule("REG-6", "TEN-1")
async def test_layers_are_chosen_by_operation_tool_and_tenant() -> None:
    """A layer runs for its operation, its tools and its tenant only."""
    registry = HookRegistry()
    seen: list[str] = []

    def layer(name: str, operation: str, **options: Any) -> None:
        async def handler(context: HookContext, call_next: CallNext) -> None:
            seen.append(name)
            await call_next()

        registry.around(operation, handler, name=name, **options)

    layer("any tool", "tool")
    layer("writes", "tool", match="Write|Edit")
    layer("acme", "tool", tenant="acme", priority=-1)
    layer("agents", "agent")
    layer("twice", "tool", match="Nothing")

    await registry.wrap("tool", tool("Write"), Operation())
    await registry.wrap("tool", tool("Read", tenant_id="acme"), Operation())
    await registry.wrap("agent", AgentContext(agent_name="a"), Operation())
    assert seen == ["any tool", "writes", "acme", "any tool", "agents"]
    seen.clear()
    await registry.wrap("tool", HookContext(), Operation(), tool="Edit")
    assert seen == ["any tool", "writes"]


@pytest.mark.rule("REG-13")
async def test_calling_on_twice_is_an_error() -> None:
    """The second call raises, the operation ran once, and the first result stands if the error is let through."""
    registry = HookRegistry()
    errors: list[BaseException] = []

    @registry.around("tool")
    async def retry(context: ToolContext, call_next: CallNext) -> Any:
        await call_next()
        try:
            return await call_next()
        except OperationRanTwice as error:
            errors.append(error)
            raise

    operation, context = Operation(), tool()
    assert await registry.wrap("tool", context, operation) == "done"
    assert operation.runs == 1
    assert "retry" in str(errors[0])
    assert [answer.status for answer in context.results] == ["error"]


@pytest.mark.rule("REG-13")
async def test_calling_on_after_the_handler_has_ended_is_an_error() -> None:
    """A call kept for later runs nothing, so what was skipped stays skipped."""
    registry = HookRegistry()
    kept: list[CallNext] = []

    @registry.around("tool")
    async def later(context: ToolContext, call_next: CallNext) -> str:
        kept.append(call_next)
        return "skipped"

    operation = Operation()
    assert await registry.wrap("tool", tool(), operation) == "skipped"
    with pytest.raises(OperationRanTwice):
        await kept[0]()
    assert operation.runs == 0


@pytest.mark.rule("REG-13")
@pytest.mark.parametrize("failure", ["error", "timeout"])
@pytest.mark.parametrize("on_error", ["continue", "deny"])
async def test_failing_before_calling_on(failure: str, on_error: OnError) -> None:
    """A layer that fails first is skipped, or aborts the operation, as its on_error says."""
    registry = HookRegistry()

    async def broken(context: ToolContext, call_next: CallNext) -> None:
        if failure == "error":
            raise ValueError("broken")
        await asyncio.Event().wait()

    registry.around("tool", broken, on_error=on_error, timeout=0.02 if failure == "timeout" else 60.0)
    operation, context = Operation(), tool()
    if on_error == "continue":
        assert await registry.wrap("tool", context, operation) == "done"
    else:
        with pytest.raises(HookAbortError, match="broken failed"):
            await registry.wrap("tool", context, operation)
    assert operation.runs == (1 if on_error == "continue" else 0)
    assert [answer.status for answer in context.results] == [failure]


@pytest.mark.rule("REG-13")
async def test_a_hook_that_said_abort_and_then_failed_has_aborted() -> None:
    """The abort flag counts even if the handler fails after setting it."""
    registry = HookRegistry()

    @registry.around("tool")
    async def broken(context: ToolContext, call_next: CallNext) -> None:
        context.abort, context.abort_reason = True, "stop"
        raise ValueError("while tidying up")

    operation = Operation()
    with pytest.raises(HookAbortError, match="stop"):
        await registry.wrap("tool", tool(), operation)
    assert operation.runs == 0


@pytest.mark.rule("REG-13", "DSP-5")
async def test_an_abort_after_the_deadline_is_discarded() -> None:
    """A layer whose time was up has failed, whatever it raises then; open, it is skipped."""
    registry = HookRegistry()

    @registry.around("tool", timeout=0.02)
    async def late(context: ToolContext, call_next: CallNext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise HookAbortError("too late") from None

    context = tool()
    assert await registry.wrap("tool", context, Operation()) == "done"
    assert [answer.status for answer in context.results] == ["timeout"]


@pytest.mark.rule("REG-13", "DSP-5")
async def test_calling_on_after_the_deadline() -> None:
    """A layer that failed closed by taking too long cannot let the operation run in its grace."""
    registry = HookRegistry()

    async def late(context: ToolContext, call_next: CallNext) -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await call_next()

    registry.around("tool", late, timeout=0.02, on_error="deny")
    operation = Operation()
    with pytest.raises(HookAbortError, match=r"late failed: no answer within 0\.02 s"):
        await registry.wrap("tool", tool(), operation)
    assert operation.runs == 0


@pytest.mark.rule("DSP-6", "REG-13")
@pytest.mark.parametrize("how", ["in a finally", "instead"])
async def test_calling_on_after_the_caller_was_cancelled(how: str) -> None:
    """Nothing runs for a caller that is gone, whatever a layer does when it is cancelled."""
    registry = HookRegistry()
    waiting = asyncio.Event()

    @registry.around("tool")
    async def layer(context: ToolContext, call_next: CallNext) -> Any:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "instead":
                return await call_next()
            raise
        finally:
            if how == "in a finally":
                await call_next()

    operation = Operation()
    task = asyncio.create_task(registry.wrap("tool", tool(), operation))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert operation.runs == 0


@pytest.mark.rule("DSP-6", "REG-13")
async def test_the_grace_of_a_layer_begins_after_the_operation(monkeypatch: pytest.MonkeyPatch, clock: Hands) -> None:
    """Cancelled inside the operation, which takes its time to end, a layer has its whole grace to clean up."""
    monkeypatch.setattr("amplifier_hooks.dispatch.timeouts.GRACE", 0.4)
    registry = HookRegistry()
    began = asyncio.Event()
    cleaned: list[str] = []

    async def layer(context: ToolContext, call_next: CallNext) -> Any:
        try:
            return await call_next()
        finally:
            await asyncio.sleep(0.06)
            cleaned.append("layer")

    async def operation() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.45)  # longer than any grace, which is the operation's right
            cleaned.append("operation")

    registry.around("tool", layer, timeout=0.1)
    task = asyncio.create_task(registry.wrap("tool", tool(), operation))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == ["operation", "layer"]


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("then", ["calls on", "is skipped"])
async def test_a_layer_that_cancels_its_own_task(then: str) -> None:
    """A layer that cancels its task cancels the caller: the operation does not run, not even to its first await."""
    registry = HookRegistry()

    @registry.around("tool")
    async def layer(context: ToolContext, call_next: CallNext) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if then == "is skipped":
            raise ValueError("broken")
        return await call_next()

    operation = Operation()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(registry.wrap("tool", tool(), operation))
    assert operation.runs == 0


@pytest.mark.rule("REG-13")
@pytest.mark.parametrize("failure", ["error", "timeout"])
@pytest.mark.parametrize("on_error", ["continue", "deny"])
async def test_failing_after_calling_on(failure: str, on_error: OnError) -> None:
    """The result from below stands, whatever the layer made of it and whatever its on_error says."""
    registry = HookRegistry()

    async def broken(context: ToolContext, call_next: CallNext) -> None:
        await call_next()
        context.result = "half"
        if failure == "error":
            raise ValueError("broken")
        await asyncio.Event().wait()

    registry.around("tool", broken, on_error=on_error, timeout=0.02 if failure == "timeout" else 60.0)
    operation, context = Operation("whole"), tool()
    assert await registry.wrap("tool", context, operation) == "whole"
    assert (context.result, operation.runs) == ("whole", 1)
    assert [answer.status for answer in context.results] == [failure]


@pytest.mark.rule("REG-13")
async def test_time_inside_the_operation_is_not_the_hooks(clock: Hands) -> None:
    """An operation may take many times a layer's timeout; the layer's own time before and after it counts."""
    registry = HookRegistry()

    @registry.around("tool", timeout=0.25, on_error="deny")
    async def brief(context: ToolContext, call_next: CallNext) -> Any:
        await asyncio.sleep(0)
        result = await call_next()
        await asyncio.sleep(0)
        return result

    async def long() -> str:
        await asyncio.sleep(0.4)
        return "done"

    context = tool()
    assert await registry.wrap("tool", context, long) == "done"
    assert [answer.status for answer in context.results] == ["ok"]
    assert context.duration_ms is not None
    assert context.duration_ms >= 390
    assert context.results[0].duration_ms is None or context.results[0].duration_ms < 350


@pytest.mark.rule("REG-13")
async def test_the_time_before_the_operation_counts_after_it(clock: Hands) -> None:
    """A layer's time goes on where it stopped when it called on, and does not begin anew."""
    registry = HookRegistry()

    @registry.around("tool", timeout=0.1)
    async def slow(context: ToolContext, call_next: CallNext) -> Any:
        await asyncio.sleep(0.07)
        await call_next()
        await asyncio.sleep(0.07)

    context = tool()
    assert await registry.wrap("tool", context, Operation()) == "done"
    assert [answer.status for answer in context.results] == ["timeout"]


@pytest.mark.rule("REG-13")
@pytest.mark.parametrize("error", [ValueError("broken"), HookAbortError("inner"), SystemExit(3)])
async def test_the_operations_exception_passes_through_unchanged(error: BaseException) -> None:
    """Every layer sees it, the caller gets that very exception, and no layer is said to have failed."""
    registry = HookRegistry()
    seen: list[BaseException] = []

    for number in range(3):

        @registry.around("tool", name=f"layer {number}")
        async def layer(context: ToolContext, call_next: CallNext) -> Any:
            await asyncio.sleep(0)
            try:
                return await call_next()
            except BaseException as passing:
                seen.append(passing)
                raise

    context = tool()
    with pytest.raises(type(error)) as caught:
        await registry.wrap("tool", context, Operation(error=error))
    assert caught.value is error
    assert seen == [error] * 3
    assert all(answer.success for answer in context.results)
    assert context.duration_ms is not None


@pytest.mark.rule("REG-13")
async def test_a_layer_answers_in_place_of_the_operations_exception() -> None:
    """The layer that catches the exception decides the result, and layers outside see no exception."""
    registry = HookRegistry()

    @registry.around("tool", priority=1)
    async def outer(context: ToolContext, call_next: CallNext) -> str:
        return f"told {await call_next()}"

    @registry.around("tool", priority=2)
    async def fallback(context: ToolContext, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except ValueError:
            return "sorry"

    assert await registry.wrap("tool", tool(), Operation(error=ValueError("broken"))) == "told sorry"


@pytest.mark.rule("REG-13")
async def test_a_layer_that_fails_at_the_operations_exception_hides_nothing() -> None:
    """The caller gets the operation's exception, and the layer's own is on record."""
    registry = HookRegistry()

    @registry.around("tool")
    async def clumsy(context: ToolContext, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except ValueError as error:
            raise KeyError("while logging") from error

    context = tool()
    with pytest.raises(ValueError, match="broken"):
        await registry.wrap("tool", context, Operation(error=ValueError("broken")))
    assert "while logging" in (context.results[0].error or "")


@pytest.mark.rule("REG-13", "DSP-6")
async def test_cancelling_the_caller_inside_the_operation() -> None:
    """The operation is cancelled, has all the time it needs to clean up, and the caller gets CancelledError."""
    registry = HookRegistry()
    seen: list[str] = []
    cleaned = asyncio.Event()
    clean = asyncio.Event()

    @registry.around("tool", timeout=0.02)
    async def layer(context: ToolContext, call_next: CallNext) -> Any:
        try:
            return await call_next()
        finally:
            seen.append("layer")

    started = asyncio.Event()

    async def operation() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
            await clean.wait()
            await asyncio.sleep(0.2)  # longer than a hook's grace
            seen.append("operation")

    task = asyncio.create_task(registry.wrap("tool", tool(), operation))
    await started.wait()
    task.cancel()
    await cleaned.wait()
    clean.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["operation", "layer"]
    assert task.cancelled()


@pytest.mark.rule("REG-13", "DSP-6")
async def test_an_operation_that_cancels_itself() -> None:
    """The CancelledError of the operation reaches the caller as any exception would, and the caller's task lives on."""
    registry = HookRegistry()

    @registry.around("tool")
    async def layer(context: ToolContext, call_next: CallNext) -> Any:
        await asyncio.sleep(0)
        return await call_next()

    with pytest.raises(asyncio.CancelledError, match="mine"):
        await registry.wrap("tool", tool(), Operation(error=asyncio.CancelledError("mine")))
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.rule("REG-6")
async def test_the_operation_runs_where_its_layers_are() -> None:
    """A context variable that a layer sets is visible to the operation, and not to the caller."""
    registry = HookRegistry()
    span: ContextVar[str] = ContextVar("span", default="none")

    @registry.around("tool")
    async def traced(context: ToolContext, call_next: CallNext) -> Any:
        span.set("traced")
        return await call_next()

    async def operation() -> str:
        return span.get()

    assert await registry.wrap("tool", tool(), operation) == "traced"
    assert span.get() == "none"


@pytest.mark.rule("REG-3")
async def test_a_layer_disabled_meanwhile_is_left_out() -> None:
    """Disabling takes effect at once: a layer further inside is not called any more, even if it fails closed."""
    registry = HookRegistry()
    seen: list[str] = []

    @registry.around("tool", priority=1)
    async def operator(context: ToolContext, call_next: CallNext) -> Any:
        registry.disable("strict")
        return await call_next()

    @registry.around("tool", priority=2, on_error="deny")
    async def strict(context: ToolContext, call_next: CallNext) -> Any:
        seen.append("strict")
        return await call_next()

    assert await registry.wrap("tool", tool(), Operation()) == "done"
    assert seen == []


@pytest.mark.rule("REG-16")
async def test_an_emergency_stop_holds_operations_that_were_let_through() -> None:
    """An operation that was decided before the stop, and waited for a person, does not run after it."""
    registry = HookRegistry()
    lift = registry.emergency_stop("key leaked")
    operation = Operation()
    with pytest.raises(HookAbortError, match="emergency stop: key leaked"):
        await registry.wrap("tool", tool(), operation)
    lift()
    assert await registry.wrap("tool", tool(), operation) == "done"
    assert operation.runs == 1


@pytest.mark.rule("REG-16")
async def test_an_emergency_stop_while_a_layer_takes_its_time() -> None:
    """An operation that has not begun when the stop comes does not begin."""
    registry = HookRegistry()
    waiting, go = asyncio.Event(), asyncio.Event()

    @registry.around("tool")
    async def queue(context: ToolContext, call_next: CallNext) -> Any:
        waiting.set()
        await go.wait()
        return await call_next()

    operation = Operation()
    task = asyncio.create_task(registry.wrap("tool", tool(), operation))
    await waiting.wait()
    registry.emergency_stop("key leaked")
    go.set()
    with pytest.raises(HookAbortError, match="emergency stop: key leaked"):
        await task
    assert operation.runs == 0


@pytest.mark.rule("DSP-8", "REG-3")
async def test_telling_of_layers_is_not_too_deep() -> None:
    """An operation at the last depth returns its result although its layers are told of to observers."""
    registry = HookRegistry(max_depth=1)
    told: list[str] = []
    results: list[Any] = []
    registry.around("tool", passing, name="layer")
    registry.observe("hook:complete", lambda event, data, outcome: told.append(data["hook_name"]))

    @registry.on("tool:pre", name="outer")
    async def nested(event: str, data: Mapping[str, Any]) -> None:
        results.append(await registry.wrap("tool", tool(), Operation()))

    await registry.emit("tool:pre", {})
    assert results == ["done"]
    assert told == ["layer", "outer"]


@pytest.mark.rule("DSP-8")
async def test_layers_of_what_an_observer_of_hooks_does_are_not_told_of() -> None:
    """An observer of hooks that runs an operation is not told of its layers, and so does not go in circles."""
    registry = HookRegistry()
    told: list[str] = []
    registry.around("tool", passing, name="layer")

    @registry.observe("hook:complete")
    async def observer(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        told.append(data["hook_name"])
        await registry.wrap("tool", tool(), Operation())

    await registry.wrap("tool", tool(), Operation())
    assert told == ["layer"]


@pytest.mark.rule("REG-13", "DSP-5")
async def test_an_operation_is_not_looked_at_while_it_runs(timers: list[float]) -> None:
    """However short the time of a layer is, no timer runs while the operation does: that time is not its own."""
    registry = HookRegistry()
    registry.around("tool", passing, timeout=0.004)
    operation = Operation()
    operation.go.clear()
    task = asyncio.create_task(registry.wrap("tool", tool(), operation))
    await operation.running.wait()
    asyncio.get_running_loop().call_later(0.1, operation.go.set)
    assert await task == "done"
    assert len(timers) < 5


@pytest.mark.rule("REG-13", "REG-3")
async def test_hooks_of_what_the_operation_emits_are_not_deeper() -> None:
    """Operations inside operations do not use up the depth that keeps hooks from going in circles."""
    registry = HookRegistry(max_depth=1)
    seen: list[str] = []

    @registry.around("agent")
    async def layer(context: HookContext, call_next: CallNext) -> Any:
        return await call_next()

    registry.on("tool:pre", lambda event, data: seen.append(event), name="note")

    async def operation() -> None:
        await registry.emit("tool:pre", {})

    await registry.wrap("agent", AgentContext(agent_name="a"), operation)
    assert seen == ["tool:pre"]


@pytest.mark.rule("REG-6")
async def test_only_operations_can_be_wrapped() -> None:
    """An unknown operation is refused, as is a handler that could not await it."""
    registry = HookRegistry()

    async def handler(context: HookContext, call_next: CallNext) -> None:
        return None

    with pytest.raises(InvalidRegistration, match="the operations are agent, tool"):
        registry.around("dance", handler)
    with pytest.raises(InvalidRegistration, match="async"):
        registry.around("tool", lambda context, call_next: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidRegistration, match="the operations are"):
        await registry.wrap("dance", HookContext(), Operation())


FIELDS: dict[type[HookContext], str] = {
    AgentContext: "agent_name agent_definition inputs system_prompt model",
    ToolContext: "tool_name arguments tool_context",
    WorkflowContext: "workflow_name step_id step_action inputs state",
    RequestContext: "method path headers body status_code response_headers",
    ModelContext: "messages model",
    MemoryContext: "content key",
}
COMMON = "event_type tenant_id metadata abort abort_reason results result duration_ms"


def filled(kind: type[HookContext], **fields: Any) -> Any:
    """A context with every required field."""
    required = {
        AgentContext: {"agent_name": "a"},
        ToolContext: {"tool_name": "Write"},
        WorkflowContext: {"workflow_name": "w", "step_id": "1"},
        RequestContext: {"method": "GET", "path": "/"},
    }
    return kind(**{**required.get(kind, {}), **fields})


@pytest.mark.rule("REG-12")
def test_every_operation_has_a_context_with_its_fields() -> None:
    """Each kind of context has the fields of its operation, and the common fields."""
    assert {operation.context for operation in OPERATIONS.values()} == set(FIELDS)
    for kind, names in FIELDS.items():
        context = filled(kind)
        assert all(hasattr(context, name) for name in f"{names} {COMMON}".split())


@pytest.mark.rule("REG-12")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ToolContext, "arguments"),
        (ToolContext, "tool_name"),
        (ToolContext, "tenant_id"),
        (AgentContext, "agent_name"),
        (AgentContext, "model"),
        (WorkflowContext, "step_id"),
        (WorkflowContext, "state"),
        (RequestContext, "path"),
        (RequestContext, "headers"),
        (ModelContext, "model"),
    ],
)
def test_what_an_operation_is_about_cannot_be_changed(kind: type[HookContext], name: str) -> None:
    """A layer that assigns to a fact of the operation gets an error, and the value stays."""
    context = filled(kind)
    before = getattr(context, name)
    with pytest.raises(AttributeError):
        setattr(context, name, "other")
    assert getattr(context, name) == before


@pytest.mark.rule("REG-12")
@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (AgentContext, "inputs", {"a": 1}),
        (AgentContext, "system_prompt", "be brief"),
        (WorkflowContext, "inputs", {"a": 1}),
        (RequestContext, "status_code", 404),
        (RequestContext, "response_headers", {"x": "y"}),
        (ModelContext, "messages", ["hi"]),
    ],
)
async def test_what_may_be_replaced_is_replaced(kind: type[HookContext], name: str, value: Any) -> None:
    """The operation finds in the context what a layer put there."""
    operation = next(key for key, row in OPERATIONS.items() if row.context is kind)
    registry = HookRegistry()

    @registry.around(operation)
    async def layer(context: HookContext, call_next: CallNext) -> Any:
        setattr(context, name, value)
        return await call_next()

    context = filled(kind)

    async def run() -> Any:
        return getattr(context, name)

    assert await registry.wrap(operation, context, run) == value


@pytest.mark.rule("REG-12")
def test_arguments_are_read_only() -> None:
    """The arguments read as a dict and refuse to be written, whatever was passed."""
    given = {"file_path": "a"}
    context = tool(arguments=given)
    assert context.arguments == given
    with pytest.raises(TypeError, match="read-only"):
        context.arguments["file_path"] = "b"  # type: ignore[index]
    assert given == {"file_path": "a"}


@pytest.mark.rule("REG-12")
def test_state_is_a_snapshot() -> None:
    """Later changes to a workflow's state are not seen, as far as the state can be copied."""
    live: dict[str, Any] = {"done": ["one"]}
    context = filled(WorkflowContext, state=live)
    live["done"].append("two")
    live["more"] = True
    assert context.state == {"done": ["one"]}
    with pytest.raises(TypeError, match="read-only"):
        context.state["done"] = []

    lock = Lock()
    stubborn = filled(WorkflowContext, state={"lock": lock})
    assert stubborn.state["lock"] is lock


@pytest.mark.rule("DSP-6", "REG-13")
async def test_a_layer_that_hangs_after_a_cancelled_operation() -> None:
    """The caller is cancelled, the operation cleans up and returns, and the layer around it hangs: it has its grace."""
    registry, running, problems = HookRegistry(), asyncio.Event(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))

    async def layer(context: Any, call_next: Any) -> None:
        await call_next()
        await asyncio.Event().wait()

    async def operation() -> str:
        running.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.sleep(0.2)  # longer than a hook's grace
        return "cleaned up"

    registry.around("tool", layer)
    task = asyncio.create_task(registry.wrap("tool", ToolContext(tool_name="Bash"), operation))
    await running.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    assert problems == []
