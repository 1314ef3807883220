"""Middleware around an operation: each layer may look, change, skip, or stop, and the operation runs at most once.

A handler takes `(context, call_next)`. `await call_next()` runs the layers inside and the operation, and returns its
result; not calling it skips the operation. What the handler returns replaces the result, and so does what it puts into
`context.result`; `None` leaves it as it is.

To stop the operation, raise `HookAbortError` or set `context.abort`; once it has run, that withholds its result. A
failure is another matter: before calling on it means what the hook's `on_error` says, afterwards the result stands.

Layers nest by priority, the lowest outermost, and share the context's `metadata`.
"""

from __future__ import annotations

from asyncio import CancelledError, sleep
from copy import deepcopy
from time import monotonic as clock
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen, setters

from amplifier_hooks import events
from amplifier_hooks.dispatch.chain import DataView, Selection
from amplifier_hooks.dispatch.run_hooks import CURRENT, Run
from amplifier_hooks.dispatch.timeouts import has_cancelled_itself
from amplifier_hooks.errors import HookAbortError, InvalidRegistration, OperationRanTwice
from amplifier_hooks.result import CONTINUE, Answer, HookResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.dispatch.chain import Hook


_fixed: Final = setters.frozen
"""For what the operation is about: a layer can read it and not change it."""


def _snapshot(state: Mapping[str, Any]) -> DataView:
    """As it is now, as far as it can be copied."""
    try:
        return DataView(deepcopy(dict(state)))
    except Exception:  # noqa: BLE001  # a lock, a connection: whatever refuses to be copied
        return DataView(state)


@define(kw_only=True)
class HookContext:
    """What every layer sees. Set `abort` (and `abort_reason`) instead of calling on, and the operation is stopped."""

    event_type: str = field(default="", on_setattr=_fixed)
    tenant_id: str = field(default="", on_setattr=_fixed)
    metadata: dict[str, Any] = field(factory=dict)
    """Shared by the layers of one operation; for them to talk to each other."""
    abort: bool = False
    abort_reason: str | None = None
    results: list[Answer] = field(factory=list)
    """One record for each layer that is through, the innermost first."""
    result: Any = None
    """What the operation returned, once it has; a layer may put something else there."""
    duration_ms: float | None = None
    """How long the operation took, without its layers."""


@define(kw_only=True)
class AgentContext(HookContext):
    """Around one invocation of an agent. `inputs` and `system_prompt` may be replaced before calling on."""

    agent_name: str = field(on_setattr=_fixed)
    agent_definition: Any = field(default=None, on_setattr=_fixed)
    inputs: dict[str, Any] = field(factory=dict)
    system_prompt: str | None = None
    model: str | None = field(default=None, on_setattr=_fixed)


@define(kw_only=True)
class ToolContext(HookContext):
    """Around one tool call. The arguments were approved as they are: they can be read, not changed."""

    tool_name: str = field(on_setattr=_fixed)
    arguments: Mapping[str, Any] = field(factory=dict, converter=DataView, on_setattr=_fixed)
    tool_context: Any = None


@define(kw_only=True)
class WorkflowContext(HookContext):
    """Around one workflow step, its retries included. `inputs` may be replaced; `state` is a snapshot."""

    workflow_name: str = field(on_setattr=_fixed)
    step_id: str = field(on_setattr=_fixed)
    step_action: str | None = field(default=None, on_setattr=_fixed)
    inputs: dict[str, Any] = field(factory=dict)
    state: Mapping[str, Any] = field(factory=dict, converter=_snapshot, on_setattr=_fixed)


@define(kw_only=True)
class RequestContext(HookContext):
    """Around one HTTP request. After calling on, `status_code` and `response_headers` may be replaced."""

    method: str = field(on_setattr=_fixed)
    path: str = field(on_setattr=_fixed)
    headers: Mapping[str, str] = field(factory=dict, on_setattr=_fixed)
    body: Any = field(default=None, on_setattr=_fixed)
    status_code: int | None = None
    response_headers: dict[str, str] = field(factory=dict)


@define(kw_only=True)
class ModelContext(HookContext):
    """Around one model call. `messages` may be replaced before calling on."""

    messages: list[Any] = field(factory=list)
    model: str = field(default="", on_setattr=_fixed)


@define(kw_only=True)
class MemoryContext(HookContext):
    """Around storing something in memory. `content` may be replaced before calling on."""

    content: Any = None
    key: str | None = field(default=None, on_setattr=_fixed)


@frozen
class Operation:
    """What can be wrapped: what its layers see, and the events told before and after it."""

    context: type[HookContext]
    first: str
    last: str


OPERATIONS: Final[Mapping[str, Operation]] = {
    "agent": Operation(AgentContext, events.AGENT_PRE, events.AGENT_POST),
    "tool": Operation(ToolContext, events.TOOL_PRE, events.TOOL_POST),
    "workflow": Operation(WorkflowContext, events.WORKFLOW_PRE, events.WORKFLOW_POST),
    "request": Operation(RequestContext, events.REQUEST_PRE, events.REQUEST_POST),
    "model": Operation(ModelContext, events.LLM_PRE, events.LLM_POST),
    "memory": Operation(MemoryContext, events.MEMORY_PRE, events.MEMORY_POST),
}

_BY_NAME: Final = {
    alias: name for name, operation in OPERATIONS.items() for alias in (name, operation.first, operation.last)
}


def operation_of(name: str) -> str:
    """The operation of this name, or of the event that is its first or last.

    Raises `InvalidRegistration` for an operation nobody runs.
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
    that fails open is skipped; one that fails after calling on leaves the result as it was.

    Cancelling it cancels whatever runs inside, which has all the time it needs to clean up; only a layer's own code
    is held to the grace of a hook.
    """
    if hooks:
        context.result = await _Layer(hooks[0], hooks[1:], operation, context, call).run()
        return context.result
    if has_cancelled_itself():
        await sleep(0)  # raises: a layer has cancelled the caller, and nothing may run
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
        self.returned: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.abort: HookAbortError | None = None
        outer = CURRENT.get()
        depth = outer.depth if outer else 0  # what the operation emits is not emitted by a hook
        about = {"tenant_id": context.tenant_id}
        self.around = Run(Selection((hook,), operation), about, self, outer=outer, depth=depth)

    async def run(self) -> Any:  # as run_around
        self.around.start() or await self.around.finish()
        self.over = True
        answer = self.around.answers[0] if self.around.answers else Answer(hook_name=self.hook.name)
        self.context.results.append(answer)
        if self.abort is not None and answer.success:
            raise self.abort
        if self.error is not None:
            raise self.error
        if answer.success:
            return self.context.result if self.returned is None else self.returned
        if self.called:
            return self.result
        if self.context.abort:  # it said so before it failed
            raise self.stop()
        if answer.denies:
            raise HookAbortError(f"{self.hook.name} failed: {answer.error}", self.hook.name)
        return await run_middleware(self.inside, self.operation, self.context, self.call)

    async def handle(self) -> HookResult:
        """Call the handler; what it makes of the operation is kept here, what goes wrong in it is the Run's."""
        context = self.context
        try:
            self.returned = await self.hook.handler(context, self.call_next)
        except (Exception, CancelledError, SystemExit) as error:
            if error is self.error:  # the operation's own, passing through
                return CONTINUE
            if not isinstance(error, HookAbortError):
                raise
            self.abort = error
            error.hook = error.hook or self.hook.name
        else:
            self.error = None  # if there was one, the handler took it and answered in its place
            if context.abort and not self.stopped_inside:
                self.abort = self.stop()
        return CONTINUE

    def stop(self) -> HookAbortError:
        """What the flag in the context amounts to."""
        return HookAbortError(self.context.abort_reason or f"stopped by {self.hook.name}", self.hook.name)

    async def call_next(self, _context: HookContext | None = None) -> Any:  # as run_around
        """Run what is inside. Time spent here is not the handler's.

        Raises `OperationRanTwice` when it was called before, or comes after the handler has ended, and
        `CancelledError` when the handler was cancelled and calls on all the same.
        """
        if self.called or self.over:
            raise OperationRanTwice(self.hook.name)
        if self.around.wait is not None and self.around.wait.over:
            raise CancelledError
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
    """How a Run calls a layer."""
    return layer.handle()
