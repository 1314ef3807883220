"""Hooks between an AI agent and its actions: an event comes in; permission, context, and a record go out.

`ls` shows the stations, in the order an event passes them:

1. `events` and `payloads` name what can happen, and what each event carries.
2. `registry` takes hooks (`on`, `gate`, `observe`, `around`, `HookMatcher` lists); `dispatch` runs them. Around hooks
   see a `HookContext`: `AgentContext`, `ToolContext`, `WorkflowContext`, `RequestContext`, `ModelContext`.
3. `result` holds a hook's answer, a `HookResult` with `ContextInjection`s, and all answers together, the `Outcome`.
4. `session` carries an outcome to its effects: a `SessionCoordinator` runs tool calls past the hooks; each ends as a
   `ToolOutcome`. `admission` asks, `injection` writes into the context, `record` keeps the log.
5. `ports` names what a host brings: a `ContextManager` for the model's messages, an `ApprovalBackend` that turns an
   `ApprovalRequest` into a `Decision`, a `DisplaySystem` for the person at the screen; the log is an `AuditLog`.

Errors are `HookError`s; `HookAbortError` stops an operation from around it, and a backend raises `ApprovalTimeout`
when its own time is up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amplifier_hooks.dispatch.middleware import (
        AgentContext,
        HookContext,
        ModelContext,
        RequestContext,
        ToolContext,
        WorkflowContext,
    )
    from amplifier_hooks.errors import ApprovalTimeout, HookAbortError, HookError
    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, ContextManager, Decision, DisplaySystem
    from amplifier_hooks.record.write.log import AuditLog
    from amplifier_hooks.registry.handler_shapes import HookMatcher
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import ContextInjection, HookResult, Outcome
    from amplifier_hooks.session.coordinator import SessionCoordinator
    from amplifier_hooks.session.tool_call import ToolOutcome

__all__ = [
    "AgentContext",
    "ApprovalBackend",
    "ApprovalRequest",
    "ApprovalTimeout",
    "AuditLog",
    "ContextInjection",
    "ContextManager",
    "Decision",
    "DisplaySystem",
    "HookAbortError",
    "HookContext",
    "HookError",
    "HookMatcher",
    "HookRegistry",
    "HookResult",
    "ModelContext",
    "Outcome",
    "RequestContext",
    "SessionCoordinator",
    "ToolContext",
    "ToolOutcome",
    "WorkflowContext",
]


HOMES: Final = {
    "AgentContext": "dispatch.middleware",
    "ApprovalBackend": "ports",
    "ApprovalRequest": "ports",
    "ApprovalTimeout": "errors",
    "AuditLog": "record",
    "ContextInjection": "result",
    "ContextManager": "ports",
    "Decision": "ports",
    "DisplaySystem": "ports",
    "HookAbortError": "errors",
    "HookContext": "dispatch.middleware",
    "HookError": "errors",
    "HookMatcher": "registry.handler_shapes",
    "HookRegistry": "registry.registry",
    "HookResult": "result",
    "ModelContext": "dispatch.middleware",
    "Outcome": "result",
    "RequestContext": "dispatch.middleware",
    "SessionCoordinator": "session.coordinator",
    "ToolContext": "dispatch.middleware",
    "ToolOutcome": "session.tool_call",
    "WorkflowContext": "dispatch.middleware",
}
"""Each is loaded on first use: the command, the bridge and the plain data of a hook need little of it."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # as slow to import as all the rest

        return version("amplifier-hooks")
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"amplifier_hooks.{HOMES[name]}"), name)
    globals()[name] = value
    return value
