"""Middleware around an operation: each layer may look, change, skip, or stop, and the operation runs at most once.

A handler takes `(context, call_next)`. `await call_next()` runs the inner layers and the operation, and returns its
result; a handler that does not call it skips the operation. The handler's return value replaces the result, and so does
a value put into `context.result`; `None` leaves the result as it is.

To stop the operation, a handler raises `HookAbortError` or sets `context.abort`; after the operation has run, both
withhold its result. A failure before `call_next` is handled as the hook's `on_error` says; after a later failure the
result stands.

Layers nest by priority, the lowest outermost, and share the context's `metadata`.

A hook object at the first event of an operation runs in a task of its own. It answers when it calls on, or ends; its
arguments at that moment are its change. The task then waits. If the operation runs, the rest of the hook object is the
outermost layer around it; if not, `call_next` raises `OperationNotRun`.

```
with rests:     while the act is decided, keeps the hook objects that have answered
rests.layers    are layers around the operation
rests.end()     tells the rests that still wait that the operation did not run
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from time import monotonic as clock
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec.structs import force_setattr, replace

from amplifier_hooks import events
from amplifier_hooks.dispatch.chain import DataView, Selection
from amplifier_hooks.dispatch.merge import CAUSES
from amplifier_hooks.dispatch.run_hooks import CURRENT, Run
from amplifier_hooks.errors import HookAbortError, InvalidRegistration, OperationNotRun, OperationRanTwice
from amplifier_hooks.foreign_code import finish_despite_cancel, has_cancelled_itself, keep_until_done
from amplifier_hooks.result import CONTINUE, Answer, HookResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.dispatch.chain import Hook

    CallNext = Callable[[], Awaitable[Any]]


def _snapshot(state: Mapping[str, Any]) -> DataView:
    """Return a read-only copy of the state. A state that cannot be copied is not copied."""
    try:
        return DataView(deepcopy(dict(state)))
    except Exception:  # noqa: BLE001  # a lock or a connection refuses to be copied
        return DataView(state)


ELSEWHERE: Final = "nothing here runs the operation"
REPORT_ONLY: Final = "a report-only hook does not stand around it"

REPLACEABLE: Final = ("result", "status_code", "response_headers")
"""Fields of a context that an operation sets, and that a rest may replace."""

COMMON_FACTS: Final = frozenset({"event_type", "tenant_id"})


class HookContext(msgspec.Struct, kw_only=True):
    """State that every layer sees.

    A layer that sets `abort` (and `abort_reason`) instead of calling on stops the operation.
    """

    facts: ClassVar[frozenset[str]] = COMMON_FACTS
    """Names of the facts of an operation: a layer can read them and not change them."""
    event_type: str = ""
    """The event at which the operation begins."""
    tenant_id: str = ""
    """The tenant of the operation."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    """Notes shared by the layers of one operation."""
    abort: bool = False
    """True stops the operation, if a layer sets it instead of calling on."""
    abort_reason: str | None = None
    """The reason for that, which the caller reads."""
    results: list[Answer] = msgspec.field(default_factory=list)
    """One record for each layer that has ended, the innermost first."""
    result: Any = None
    """Return value of the operation, once it has run; a layer may replace it."""
    duration_ms: float | None = None
    """Milliseconds the operation took, without its layers."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.facts:
            raise AttributeError(f"{name} is a fact of the operation; a layer cannot change it")
        super().__setattr__(name, value)


class AgentContext(HookContext, kw_only=True):
    """Context around one invocation of an agent. A layer may replace `inputs` and `system_prompt` before calling on."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"agent_name", "agent_definition", "model"}
    agent_name: str
    """The agent's name."""
    agent_definition: Any = None
    """The host's own description of the agent."""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """The inputs of the agent. A layer may replace them before calling on."""
    system_prompt: str | None = None
    """The system prompt of the agent. A layer may replace it before calling on."""
    model: str | None = None
    """The model of the agent, where the host named one."""


class ToolContext(HookContext, kw_only=True):
    """Context around one tool call. A layer can read the approved arguments, not change them."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"tool_name", "arguments"}
    tool_name: str
    """The tool's name."""
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The approved arguments, which no layer can change."""
    tool_context: Any = None
    """The host's own object beside the arguments."""

    def __post_init__(self) -> None:
        force_setattr(self, "arguments", DataView(self.arguments))


class ToolInputContext(ToolContext, kw_only=True):
    """Context of a hook object before a tool call is decided about. The hook may change the arguments."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"tool_name"}
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Leave the arguments as they are, a copy of the hook's own."""


class WorkflowContext(HookContext, kw_only=True):
    """Context around one workflow step, its retries included. A layer may replace `inputs`; `state` is a snapshot."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"workflow_name", "step_id", "step_action", "state"}
    workflow_name: str
    """The name of the workflow."""
    step_id: str
    """The id of the step within its workflow."""
    step_action: str | None = None
    """The name of the step's work."""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """The inputs of the step. A layer may replace them before calling on."""
    state: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The state of the workflow as a snapshot."""

    def __post_init__(self) -> None:
        force_setattr(self, "state", _snapshot(self.state))


class RequestContext(HookContext, kw_only=True):
    """Context around one HTTP request. After calling on, a layer may replace `status_code` and `response_headers`."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"method", "path", "headers", "body"}
    method: str
    """The method, such as GET."""
    path: str
    """The path of the address, without the query."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The headers of the request, by their names."""
    body: Any = None
    """The body, where the host has read it."""
    status_code: int | None = None
    """The status of the response, once there is one. A layer may replace it after calling on."""
    response_headers: dict[str, str] = msgspec.field(default_factory=dict)
    """The headers of the response. A layer may replace them after calling on."""


class ModelContext(HookContext, kw_only=True):
    """Context around one model call. A layer may replace `messages` before calling on."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"model"}
    messages: list[Any] = msgspec.field(default_factory=list)
    """The messages that the model reads. A layer may replace them before calling on."""
    model: str = ""
    """The model's name; empty if the host names none."""


class ModelChoiceContext(ModelContext, kw_only=True):
    """Context of a hook object before a model call is decided about. The hook may choose another model."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS


class MemoryContext(HookContext, kw_only=True):
    """Context around storing content in memory. A layer may replace `content` before calling on."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"key"}
    content: Any = None
    key: str | None = None


class Operation(msgspec.Struct, frozen=True):
    """An operation that can be wrapped: the context of its layers, and the events emitted before and after it.

    `before` is the context of hook objects at the first event, if it differs. `name` lists the fields that name one
    operation. `handles` are fields that are passed on by reference: they are no part of what is decided about, and no
    card shows them.
    """

    context: type[HookContext]
    first: str
    last: str
    name: tuple[str, ...] = ()
    handles: frozenset[str] = frozenset()
    before: type[HookContext] | None = None


OPERATIONS: Final[Mapping[str, Operation]] = {
    "agent": Operation(
        AgentContext, events.AGENT_PRE, events.AGENT_POST, ("agent_name",), frozenset({"agent_definition"})
    ),
    "tool": Operation(ToolContext, events.TOOL_PRE, events.TOOL_POST, before=ToolInputContext),
    "workflow": Operation(
        WorkflowContext, events.WORKFLOW_PRE, events.WORKFLOW_POST, ("workflow_name", "step_id"), frozenset({"state"})
    ),
    "request": Operation(RequestContext, events.REQUEST_PRE, events.REQUEST_POST, ("method", "path")),
    "model": Operation(ModelContext, events.LLM_PRE, events.LLM_POST, before=ModelChoiceContext),
    "memory": Operation(MemoryContext, events.MEMORY_PRE, events.MEMORY_POST, ("key",)),
}

_BY_NAME: Final = {
    alias: name for name, operation in OPERATIONS.items() for alias in (name, operation.first, operation.last)
}


def operation_of(name: str) -> str:
    """Return the operation with this name, or with this event as its first or last one.

    Raises `InvalidRegistration` for an unknown operation.
    """
    try:
        return _BY_NAME[events.canonical(name)]
    except KeyError:
        known = ", ".join(OPERATIONS)
        raise InvalidRegistration(f"nothing runs around {name!r}; the operations are {known}") from None


async def run_middleware(
    hooks: tuple[Hook, ...], operation: str, context: HookContext, call: Callable[[], Awaitable[Any]]
) -> Any:  # a layer may return anything in its place
    """Run `call` inside these layers and return its result.

    Raises what `call` raises, and `HookAbortError` when a layer stops it or fails closed before calling on. A layer
    that fails open is skipped; a layer that fails after calling on leaves the result as it was.

    Cancelling it cancels the code inside, which has unlimited time to clean up; the grace of a hook limits only a
    layer's own code.
    """
    if hooks:
        context.result = await _Layer(hooks[0], hooks[1:], operation, context, call).run()
        return context.result
    if has_cancelled_itself():
        await asyncio.sleep(0)  # raises: a layer has cancelled the caller, and nothing may run
    began = clock()
    try:
        context.result = await call()
    finally:
        context.duration_ms = (clock() - began) * 1e3
    return context.result


class _Layer:
    """One handler of one operation under way."""

    def __init__(
        self,
        hook: Hook,
        inside: tuple[Hook, ...],
        operation: str,
        context: HookContext,
        call: Callable[[], Awaitable[Any]],
    ) -> None:
        self.hook, self.inside, self.operation = hook, inside, operation
        self.context, self.call = context, call
        self.called = False
        self.over = False
        self.stopped_inside = False
        self.return_value: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.abort: HookAbortError | None = None
        outer = CURRENT.get()
        depth = outer.depth if outer else 0  # emits of the operation are not emits of a hook
        about = {"tenant_id": context.tenant_id}
        self.around = Run(Selection((hook,), operation), about, outer, depth, given=self)

    async def run(self) -> Any:  # as run_middleware
        self.around.start() or await self.around.finish()
        self.over = True
        answer = self.around.answers[0] if self.around.answers else Answer(hook_name=self.hook.name)
        self.context.results.append(answer)
        if self.abort is not None and answer.success:
            raise self.abort
        if self.error is not None:
            raise self.error
        if answer.success:
            return self.context.result if self.return_value is None else self.return_value
        if self.called:
            return self.result
        if self.context.abort:  # the handler set it before it failed
            raise self.stop()
        if answer.denies:
            raise HookAbortError(f"{self.hook.name} failed: {answer.error}", self.hook.name, CAUSES[answer.status])
        return await run_middleware(self.inside, self.operation, self.context, self.call)

    async def handle(self) -> HookResult:
        """Call the handler. Its effect on the operation is kept here; the `Run` records its failure."""
        context = self.context
        try:
            self.return_value = await self.hook.handler(context, self.call_next)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if error is self.error:  # the operation's own error, passing through
                return CONTINUE
            if not isinstance(error, HookAbortError):
                raise
            self.abort = error
            error.hook = error.hook or self.hook.name
        else:
            self.error = None  # the handler caught an error of the operation and returned instead
            if context.abort and not self.stopped_inside:
                self.abort = self.stop()
        return CONTINUE

    def stop(self) -> HookAbortError:
        """Return the error for a context in which `abort` is set."""
        return HookAbortError(self.context.abort_reason or f"stopped by {self.hook.name}", self.hook.name)

    async def call_next(self, _context: HookContext | None = None) -> Any:  # as run_middleware
        """Run the inner layers and the operation. Time spent here does not count as the handler's.

        Raises `OperationRanTwice` for a second call and for a call after the handler has ended, and `CancelledError`
        for a call by a handler that was cancelled.
        """
        if self.called or self.over:
            raise OperationRanTwice(self.hook.name)
        if self.around.wait is not None and self.around.wait.over:
            raise asyncio.CancelledError
        if self.context.abort:
            raise self.stop()
        self.called = True
        self.around.pause()
        try:
            self.result = await run_middleware(self.inside, self.operation, self.context, self.call)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.stopped_inside = self.context.abort
            self.around.resume()
        return self.result


def run_layer(_event: str, layer: _Layer) -> Awaitable[HookResult]:
    """Return the work of a layer. A `Run` calls layers through this function."""
    return layer.handle()


# -- the rests of hook objects -----------------------------------------------------------------------------------------


class Rest:
    """One hook object under way at the first event of an operation."""

    run: Run
    hook: Hook
    layer: Hook
    """The rest as a layer of middleware."""
    _calling: asyncio.Future[None]
    _resumed: asyncio.Future[None]
    _task: asyncio.Task[None]

    def __init__(
        self, name: str, context: HookContext, execute: Callable[[HookContext, CallNext], Awaitable[Any]]
    ) -> None:
        self.name = name
        self.context = context
        self.execute = execute
        self.called_on = False
        """True if the hook has called `call_next`."""
        self.over = False
        """True if the hook cannot call on any more: it has ended, or was cancelled."""
        self.value: Any = None
        self.error: BaseException | None = None
        """The exception that the hook raised."""
        self.failure: BaseException | None = None
        """The exception of the operation."""

    async def begin(self) -> None:
        """Run the hook until it calls on, or ends. Raises what the hook raises before that."""
        run = CURRENT.get()
        assert run is not None  # noqa: S101  # a hook runs in a run
        loop = asyncio.get_running_loop()
        self._calling, self._resumed = loop.create_future(), loop.create_future()
        self._task = asyncio.Task(self._execute(), loop=loop)  # a factory of eager tasks would run it here
        await self._wait(self._calling)
        self.run, self.hook = run, run.hook  # a run knows its hook once the hook waits
        self.layer = replace(self.hook, intent="around", call=run_layer, handler=self.carry_on)
        if not self.called_on and self.error is not None:
            raise self.error

    async def wait_for_operation(self) -> bool:
        """Keep the rest for the operation whose act is being decided. Without one, end it, and return False.

        The rest of a report-only hook never waits, because it could replace the result.
        """
        rests = self.run.rests
        if rests is not None and not self.hook.report_only:
            rests.waiting.append(self)
            return True
        why = REPORT_ONLY if self.hook.report_only else ELSEWHERE
        await Rests(self.run.event, waiting=[self], why=why).end()
        return False

    @property
    def waits(self) -> bool:
        """True if the hook waits for its operation."""
        return not self._task.done()

    async def carry_on(self, around: HookContext, call_next: CallNext) -> Any:  # the hook may return anything
        """Run the operation, then the rest; or skip the operation, if the hook did not call on."""
        own = self.context
        if not self.called_on:
            return None if self.value is own else self.value
        try:
            await call_next()
        except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001  # the hook meets it
            self.failure = error
        shared = around.metadata
        shared.update({name: value for name, value in own.metadata.items() if name not in shared})
        own.metadata = shared
        for name in ("results", "duration_ms", *self._replaceable):
            setattr(own, name, getattr(around, name))
        if not self._resumed.done():
            self._resumed.set_result(None)
        await self._wait()
        if self.error is not None:
            raise self.error
        for name in self._replaceable:
            setattr(around, name, getattr(own, name))
        if own.abort:
            around.abort, around.abort_reason = True, own.abort_reason
        return None if self.value is own else self.value

    @property
    def _replaceable(self) -> tuple[str, ...]:
        return tuple(name for name in REPLACEABLE if hasattr(self.context, name))

    async def _execute(self) -> None:
        try:
            self.value = await self.execute(self.context, self._call_next)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a task that raises SystemExit ends its loop
            self.error = error
        finally:
            self.over = True

    async def _call_next(self, _context: HookContext | None = None) -> Any:  # the operation may return anything
        """Answer, wait for the operation, and return its result.

        Raises what the operation raises, `OperationNotRun` if it does not run, `OperationRanTwice` for a second call
        and for a call after the hook has ended, `HookAbortError` if `abort` is set, and `CancelledError` for a hook
        that was cancelled.
        """
        if self.called_on or self._task.done():
            raise OperationRanTwice(self.name)
        if self.over:
            raise asyncio.CancelledError
        if self.context.abort:
            raise HookAbortError(self.context.abort_reason or f"stopped by {self.name}", self.name)
        self.called_on = True
        if not self._calling.done():
            self._calling.set_result(None)
        await self._resumed
        if self.failure is not None:
            raise self.failure
        return self.context.result

    async def _wait(self, until: asyncio.Future[None] | None = None) -> None:
        """Wait until the hook has ended, or has called on. A cancellation goes to the hook, which may clean up."""
        task, over = self._task, {self._task} if until is None else {self._task, until}
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.over = True
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            if not any(one.done() for one in over):  # the hook swallows cancellations
                keep_until_done(task)
                task.cancel()


class Rests(msgspec.Struct, eq=False):
    """The hook objects that wait for one act, whose event is `event`. Each run that decides about the act has them."""

    event: str
    waiting: list[Rest] = []
    why: str = "it was cancelled"
    """The reason why the operation does not run, unless it runs."""

    @property
    def layers(self) -> tuple[Hook, ...]:
        """The rests as layers, in the order the hooks have answered. Of two answers of one hook the last counts."""
        if not self.waiting:
            return ()
        return tuple(rest.layer for rest in {rest.hook.number: rest for rest in self.waiting}.values())

    async def end(self) -> None:
        """End the act: raise `OperationNotRun` in the rests that still wait, because the operation did not run.

        Cancelling does not interrupt this; the hooks' timeouts bound it.
        """
        if not self.waiting:
            return
        if any(rest.waits for rest in self.waiting):
            await finish_despite_cancel(self._end(OperationNotRun(self.event, self.why)))
        for rest in self.waiting:
            if rest.layer.leaks > rest.hook.leaks:
                rest.hook.count_leak(rest.run.tenant)
        self.waiting.clear()  # each rest refers to its run, and the run to these

    async def _end(self, error: OperationNotRun) -> None:
        async def refuse() -> None:
            raise error

        for rest in reversed(self.waiting):
            if rest.waits:
                with suppress(HookAbortError, OperationNotRun):
                    await run_middleware((rest.layer,), self.event, rest.context, refuse)
