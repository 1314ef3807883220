"""What stands between an AI agent and what it does.

The stations, in the order an event passes them:

1. `events`: what can happen. One row for each event, with all its spellings.
2. `registry`: who is told, and in which order. A `HookRegistry` takes hooks (`on`, `gate`, `observe`, `around`,
   `HookMatcher` lists) and emits events to them. Around hooks see a `HookContext`: `AgentContext`, `ToolContext`,
   `WorkflowContext`, `RequestContext`, `ModelContext`.
3. `result`: what a hook may answer, a `HookResult` with `ContextInjection`s; and all answers together, the `Outcome`.
4. `coordinator`: a `SessionCoordinator` carries an outcome to its effects and runs tool calls past the hooks; each
   ends as a `ToolOutcome`.
5. `effects`: what an answer does to the world. The host's side of it are small protocols: a `ContextManager` for the
   model's messages, an `ApprovalBackend` that turns an `ApprovalRequest` into a `Decision`, a `DisplaySystem` for the
   person at the screen, and an `AuditLog` for the record.

Errors are `HookError`s; `HookAbortError` stops an operation from around it, and a backend raises `ApprovalTimeout`
when its own time is up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amplifier_hooks.around import (
        AgentContext,
        HookContext,
        ModelContext,
        RequestContext,
        ToolContext,
        WorkflowContext,
    )
    from amplifier_hooks.coordinator import SessionCoordinator
    from amplifier_hooks.effects.audit import AuditLog
    from amplifier_hooks.errors import ApprovalTimeout, HookAbortError, HookError
    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, ContextManager, Decision, DisplaySystem
    from amplifier_hooks.registry import HookRegistry
    from amplifier_hooks.result import ContextInjection, HookResult, Outcome
    from amplifier_hooks.shapes import HookMatcher
    from amplifier_hooks.toolcall import ToolOutcome

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
    "AgentContext": "around",
    "ApprovalBackend": "ports",
    "ApprovalRequest": "ports",
    "ApprovalTimeout": "errors",
    "AuditLog": "effects.audit",
    "ContextInjection": "result",
    "ContextManager": "ports",
    "Decision": "ports",
    "DisplaySystem": "ports",
    "HookAbortError": "errors",
    "HookContext": "around",
    "HookError": "errors",
    "HookMatcher": "shapes",
    "HookRegistry": "registry",
    "HookResult": "result",
    "ModelContext": "around",
    "Outcome": "result",
    "RequestContext": "around",
    "SessionCoordinator": "coordinator",
    "ToolContext": "around",
    "ToolOutcome": "toolcall",
    "WorkflowContext": "around",
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
