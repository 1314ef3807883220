"""Ready-made hooks, one file each: settings come in, a registered hook goes out.

Each is a class with pydantic settings; switch one on with `RateLimit().register(registry)`, with settings from a file
`RateLimit.from_config({…}).register(registry)`, or by name with `registry.discover(["rate_limit"])`. The table of all
of them is in specs/library.md; `parts` holds what several of them share. Each loads on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amplifier_hooks.library.audit_log import AuditLogHook
    from amplifier_hooks.library.cost_guard import CostGuard
    from amplifier_hooks.library.date_time import DateTime
    from amplifier_hooks.library.git_status import GitStatus
    from amplifier_hooks.library.injection_scan import InjectionScan
    from amplifier_hooks.library.keep_going import KeepGoing
    from amplifier_hooks.library.linter_feedback import LinterFeedback
    from amplifier_hooks.library.metrics import Metrics
    from amplifier_hooks.library.notify import Notify
    from amplifier_hooks.library.protected_paths import ProtectedPaths
    from amplifier_hooks.library.rate_limit import RateLimit
    from amplifier_hooks.library.recovery_hint import RecoveryHint
    from amplifier_hooks.library.redact_secrets import RedactSecrets
    from amplifier_hooks.library.schema_guard import SchemaGuard
    from amplifier_hooks.library.schema_nudge import SchemaNudge
    from amplifier_hooks.library.side_effects import SideEffects
    from amplifier_hooks.library.skills import Skills
    from amplifier_hooks.library.subagent_artifacts import SubagentArtifacts
    from amplifier_hooks.library.test_feedback import TestFeedback
    from amplifier_hooks.library.tool_ledger import ToolLedger
    from amplifier_hooks.library.type_feedback import TypeFeedback

__all__ = [
    "AuditLogHook",
    "CostGuard",
    "DateTime",
    "GitStatus",
    "InjectionScan",
    "KeepGoing",
    "LinterFeedback",
    "Metrics",
    "Notify",
    "ProtectedPaths",
    "RateLimit",
    "RecoveryHint",
    "RedactSecrets",
    "SchemaGuard",
    "SchemaNudge",
    "SideEffects",
    "Skills",
    "SubagentArtifacts",
    "TestFeedback",
    "ToolLedger",
    "TypeFeedback",
]

HOMES: Final = {
    "AuditLogHook": "audit_log",
    "CostGuard": "cost_guard",
    "DateTime": "date_time",
    "GitStatus": "git_status",
    "InjectionScan": "injection_scan",
    "KeepGoing": "keep_going",
    "LinterFeedback": "linter_feedback",
    "Metrics": "metrics",
    "Notify": "notify",
    "ProtectedPaths": "protected_paths",
    "RateLimit": "rate_limit",
    "RecoveryHint": "recovery_hint",
    "RedactSecrets": "redact_secrets",
    "SchemaGuard": "schema_guard",
    "SchemaNudge": "schema_nudge",
    "SideEffects": "side_effects",
    "Skills": "skills",
    "SubagentArtifacts": "subagent_artifacts",
    "TestFeedback": "test_feedback",
    "ToolLedger": "tool_ledger",
    "TypeFeedback": "type_feedback",
}
"""The module of each hook."""


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"amplifier_hooks.library.{HOMES[name]}"), name)
