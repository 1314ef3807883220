"""Hooks between an AI agent and its actions: an event comes in; permission, context, and a record go out.

`ls` shows the stations, in the order an event passes them:

1. `events` and `payloads` name what can happen, and what each event carries.
2. `registry` takes hooks (`on`, `gate`, `observe`, `around`, `HookMatcher` lists); `dispatch` runs them. Around hooks
   see a `HookContext`: `AgentContext`, `ToolContext`, `WorkflowContext`, `RequestContext`, `ModelContext`.
3. `result` holds a hook's answer, a `HookResult` with `ContextInjection`s, and all answers together, the `Outcome`.
4. `session` carries out the effects of an outcome: a `SessionCoordinator` runs tool calls past the hooks; each ends
   as a `ToolOutcome`. `admission` asks, `injection` writes into the context, `record` keeps the log. A
   `SelfProtection` denies the calls that could take the guard away.
5. `ports` names what a host brings: a `ContextManager` for the model's messages, an `ApprovalBackend` that turns an
   `ApprovalRequest` into a `Decision`, a `DisplaySystem` for the person at the screen; the log is an `AuditLog`.
   `InMemoryContext`, `TerminalDisplay` and `NoRecord` are simple ones to begin with.

Errors are `HookError`s. An around hook raises `HookAbortError` to stop its operation, and a backend raises
`ApprovalTimeout` when its own time is up.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.admission.rules import SelfProtection
    from amplifier_hooks.dispatch.middleware import (
        AgentContext,
        HookContext,
        ModelContext,
        RequestContext,
        ToolContext,
        WorkflowContext,
    )
    from amplifier_hooks.errors import ApprovalTimeout, HookAbortError, HookError
    from amplifier_hooks.injection.memory_context import InMemoryContext
    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, ContextManager, Decision, DisplaySystem
    from amplifier_hooks.record.log import AuditLog
    from amplifier_hooks.record.recorder import NoRecord
    from amplifier_hooks.registry.handler_shapes import HookMatcher
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import ContextInjection, HookResult, Outcome
    from amplifier_hooks.session.coordinator import SessionCoordinator
    from amplifier_hooks.session.display import TerminalDisplay
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
    "InMemoryContext",
    "ModelContext",
    "NoRecord",
    "Outcome",
    "RequestContext",
    "SelfProtection",
    "SessionCoordinator",
    "TerminalDisplay",
    "ToolContext",
    "ToolOutcome",
    "WorkflowContext",
]


def load_on_use(package: str, homes: "Mapping[str, tuple[str, ...]]") -> "Callable[[str], object]":
    """Return the `__getattr__` of `package`, which loads each public name from its module on first use.

    `homes` lists the names that each module below the package defines. Importing a front door is cheap: the command,
    the bridge and the plain data of a hook need few of its names.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version  # imports as slowly as all the rest

            return version("amplifier-hooks")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(import_module(package), name, value)  # the next use does not call this function
        return value

    return load


__getattr__ = load_on_use(
    __name__,
    {
        "admission.rules": ("SelfProtection",),
        "dispatch.middleware": (
            "AgentContext",
            "HookContext",
            "ModelContext",
            "RequestContext",
            "ToolContext",
            "WorkflowContext",
        ),
        "errors": (
            "ApprovalTimeout",
            "HookAbortError",
            "HookError",
        ),
        "injection.memory_context": ("InMemoryContext",),
        "ports": (
            "ApprovalBackend",
            "ApprovalRequest",
            "ContextManager",
            "Decision",
            "DisplaySystem",
        ),
        "record.log": ("AuditLog",),
        "record.recorder": ("NoRecord",),
        "registry.handler_shapes": ("HookMatcher",),
        "registry.registry": ("HookRegistry",),
        "result": (
            "ContextInjection",
            "HookResult",
            "Outcome",
        ),
        "session.coordinator": ("SessionCoordinator",),
        "session.display": ("TerminalDisplay",),
        "session.tool_call": ("ToolOutcome",),
    },
)
