"""Middleware around an operation: each layer may look, change, skip, or stop, and the operation runs at most once.

A handler takes `(context, call_next)`. `await call_next()` runs the layers inside and the operation, and returns its
result; not calling it skips the operation. What the handler returns replaces the result; `None` leaves it as it is.
Layers nest by priority, the lowest outermost, and share the context's `metadata`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from attrs import define, field, setters

from amplifier_hooks.dispatch import CURRENT, Run
from amplifier_hooks.errors import HookAbortError, InvalidRegistration, OperationRanTwice
from amplifier_hooks.hook import Hook
from amplifier_hooks.result import CONTINUE, Answer, HookResult

__all__ = [
    "OPERATIONS",
    "AgentContext",
    "HookContext",
    "ModelContext",
    "RequestContext",
    "ToolContext",
    "WorkflowContext",
    "context_class",
    "layer_call",
    "run_around",
]

_fixed: Final = setters.frozen


@define(kw_only=True)
class HookContext:
    """What every layer sees. Set `abort` (and `abort_reason`) instead of calling on, and the operation is stopped."""

    event_type: str = ""
    tenant_id: str = ""
    metadata: dict[str, Any] = field(factory=dict)
    """Shared by the layers of one operation; for them to talk to each other."""
    abort: bool = False
    abort_reason: str | None = None
    results: list[Answer] = field(factory=list)
    """What became of the layers that failed."""
    result: Any = None
    duration_ms: float | None = None


@define(kw_only=True)
class AgentContext(HookContext):
    """Around one invocation of an agent. `inputs` and `system_prompt` may be replaced before calling on."""

    agent_name: str
    agent_definition: Any = None
    inputs: dict[str, Any] = field(factory=dict)
    system_prompt: str | None = None
    model: str | None = None


@define(kw_only=True)
class ToolContext(HookContext):
    """Around one tool call. The arguments were approved as they are: they can be read, not changed."""

    tool_name: str = field(on_setattr=_fixed)
    arguments: Mapping[str, Any] = field(factory=dict, on_setattr=_fixed)
    tool_context: Any = None


@define(kw_only=True)
class WorkflowContext(HookContext):
    """Around one workflow step, its retries included. `inputs` may be replaced; `state` is a snapshot."""

    workflow_name: str
    step_id: str
    step_action: str | None = None
    inputs: dict[str, Any] = field(factory=dict)
    state: Mapping[str, Any] = field(factory=dict, on_setattr=_fixed)


@define(kw_only=True)
class RequestContext(HookContext):
    """Around one HTTP request. After calling on, `status_code` and `response_headers` may be replaced."""

    method: str
    path: str
    headers: Mapping[str, str] = field(factory=dict)
    body: Any = None
    status_code: int | None = None
    response_headers: dict[str, str] = field(factory=dict)


@define(kw_only=True)
class ModelContext(HookContext):
    """Around one model call."""

    messages: list[Any] = field(factory=list)
    model: str = ""


OPERATIONS: Final[Mapping[str, type[HookContext]]] = {
    "agent": AgentContext,
    "tool": ToolContext,
    "workflow": WorkflowContext,
    "request": RequestContext,
    "model": ModelContext,
}
"""What can be wrapped, and what its layers see."""


def context_class(operation: str) -> type[HookContext]:
    """The context of an operation.

    Raises `InvalidRegistration` for an operation nobody runs.
    """
    try:
        return OPERATIONS[operation]
    except KeyError:
        known = ", ".join(OPERATIONS)
        raise InvalidRegistration(f"nothing runs around {operation!r}; the operations are {known}") from None


async def run_around(
    hooks: tuple[Hook, ...], operation: str, context: HookContext, call: Callable[[], Awaitable[Any]]
) -> Any:
    """Run `call` inside these layers and return its result.

    Raises what `call` raises, and `HookAbortError` when a layer stops it or fails closed before calling on. A layer
    that fails open is skipped; one that fails after calling on leaves the result as it was.

    Cancelling it cancels whatever runs inside, which has all the time it needs to clean up; only a layer's own code
    is held to the grace of a hook.
    """
    if not hooks:
        result = await call()
    else:
        result = await _Layer(hooks[0], hooks[1:], operation, context, call).run()
    context.result = result
    return result


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
        self.returned: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.abort: HookAbortError | None = None
        outer = CURRENT.get()
        depth = outer.depth if outer else 0  # what the operation emits is not emitted by a hook
        self.around = Run(operation, (hook,), (hook.name,), {}, self, outer=outer, depth=depth)

    async def run(self) -> Any:
        if not self.around.start():
            await self.around.finish()
        failures = [answer for answer in self.around.answers if not answer.success]
        self.context.results.extend(failures)
        if self.abort is not None:
            raise self.abort
        if self.error is not None:
            raise self.error
        if failures and not self.called:
            if self.hook.gates:
                raise HookAbortError(f"{self.hook.name} failed: {failures[0].error}", self.hook.name)
            return await self.call_next()
        return self.result if self.returned is None or failures else self.returned

    async def handle(self) -> HookResult:
        """Call the handler; what it makes of the operation is kept here, what goes wrong in it is the Run's."""
        try:
            self.returned = await self.hook.handler(self.context, self.call_next)
        except HookAbortError as abort:
            self.abort = abort
        except Exception as error:
            if error is not self.error:
                raise
        else:
            if self.called and self.error is not None:
                self.error = None  # the handler took the operation's error and answered in its place
        if self.context.abort and not self.called and self.abort is None:
            self.abort = HookAbortError(self.context.abort_reason or f"stopped by {self.hook.name}", self.hook.name)
        return CONTINUE

    async def call_next(self, _context: HookContext | None = None) -> Any:
        """Run what is inside. Time spent here is not the handler's."""
        if self.called:
            raise OperationRanTwice(self.hook.name)
        self.called = True
        self.around.pause()
        try:
            self.result = await run_around(self.inside, self.operation, self.context, self.call)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.around.resume()
        return self.result


def layer_call(_event: str, layer: _Layer) -> Awaitable[HookResult]:
    """How a Run calls a layer."""
    return layer.handle()
