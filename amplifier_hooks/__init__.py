"""What stands between an AI agent and what it does.

The stations, in the order an event passes them:

    1  events        what can happen
    2  registry      who is told, and in which order
    3  result        what a hook may answer, and all answers together
    4  coordinator   carries an outcome to its effects
    5  effects/      what an answer does to the world: context, approval, display, record

Start with `HookRegistry` and `HookResult`; add a `SessionCoordinator` to have the answers carried out.
"""

from amplifier_hooks.around import AgentContext, HookContext, ModelContext, RequestContext, ToolContext, WorkflowContext
from amplifier_hooks.coordinator import SessionCoordinator, ToolOutcome
from amplifier_hooks.effects.audit import AuditLog
from amplifier_hooks.errors import ApprovalTimeout, HookAbortError, HookError
from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, ContextManager, Decision, DisplaySystem
from amplifier_hooks.registry import HookMatcher, HookRegistry
from amplifier_hooks.result import ContextInjection, HookResult, Outcome

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
