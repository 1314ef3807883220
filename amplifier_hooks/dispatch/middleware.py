"""Middleware around an operation: each layer may look, change, skip, or stop, and the operation runs at most once.

A handler takes `(context, call_next)`. `await call_next()` runs the inner layers and the operation, and returns its
result; a handler that does not call it skips the operation. The handler's return value replaces the result, and so does
a value put into `context.result`; `None` leaves the result as it is.

To stop the operation, a handler raises `HookAbortError` or sets `context.abort`; after the operation has run, both
withhold its result. A failure before `call_next` is handled as the hook's `on_error` says; after a later failure the
result stands.

Layers nest by priority, the lowest outermost, and share the context's `metadata`.
"""

from __future__ import annotations

from asyncio import CancelledError, sleep
from collections.abc import Mapping
from copy import deepcopy
from time import monotonic as clock
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec.structs import force_setattr

from amplifier_hooks import events
from amplifier_hooks.dispatch.chain import DataView, Selection
from amplifier_hooks.dispatch.merge import CAUSES
from amplifier_hooks.dispatch.run_hooks import CURRENT, Run
from amplifier_hooks.dispatch.timeouts import has_cancelled_itself
from amplifier_hooks.errors import HookAbortError, InvalidRegistration, OperationRanTwice
from amplifier_hooks.result import CONTINUE, Answer, HookResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.dispatch.chain import Hook


def _snapshot(state: Mapping[str, Any]) -> DataView:
    """Return a read-only copy of the state. A state that cannot be copied is not copied."""
    try:
        return DataView(deepcopy(dict(state)))
    except Exception:  # noqa: BLE001  # a lock or a connection refuses to be copied
        return DataView(state)


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
    agent_definition: Any = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    system_prompt: str | None = None
    model: str | None = None


class ToolContext(HookContext, kw_only=True):
    """Context around one tool call. A layer can read the approved arguments, not change them."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"tool_name", "arguments"}
    tool_name: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    tool_context: Any = None

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
    step_id: str
    step_action: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    state: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "state", _snapshot(self.state))


class RequestContext(HookContext, kw_only=True):
    """Context around one HTTP request. After calling on, a layer may replace `status_code` and `response_headers`."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"method", "path", "headers", "body"}
    method: str
    path: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    status_code: int | None = None
    response_headers: dict[str, str] = msgspec.field(default_factory=dict)


class ModelContext(HookContext, kw_only=True):
    """Context around one model call. A layer may replace `messages` before calling on."""

    facts: ClassVar[frozenset[str]] = COMMON_FACTS | {"model"}
    messages: list[Any] = msgspec.field(default_factory=list)
    model: str = ""


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
        except (Exception, CancelledError, SystemExit) as error:
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
    """Return the work of a layer. A `Run` calls layers through this function."""
    return layer.handle()
