"""Ready-made hooks, one file each: settings come in, a registered hook goes out.

Each hook is a class with pydantic settings. Switch one on with `RateLimit().register(registry)`, with settings from a
file `RateLimit.from_config({…}).register(registry)`, or by name with `registry.discover(["rate_limit"])`. The table of
all hooks is in specs/library.md; `parts` holds the code that several hooks share. Each hook loads on first use.
"""

from typing import TYPE_CHECKING

from amplifier_hooks.front_door import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.library.audit_log import AuditLogHook
    from amplifier_hooks.library.cost_guard import CostGuard
    from amplifier_hooks.library.date_time import DateTime
    from amplifier_hooks.library.git_status import GitStatus
    from amplifier_hooks.library.guard import Guard
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
    from amplifier_hooks.library.tracing import Tracing
    from amplifier_hooks.library.type_feedback import TypeFeedback

__all__ = [
    "AuditLogHook",
    "CostGuard",
    "DateTime",
    "GitStatus",
    "Guard",
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
    "Tracing",
    "TypeFeedback",
]

__getattr__ = load_on_use(
    __name__,
    {
        "audit_log": ("AuditLogHook",),
        "cost_guard": ("CostGuard",),
        "date_time": ("DateTime",),
        "git_status": ("GitStatus",),
        "guard": ("Guard",),
        "injection_scan": ("InjectionScan",),
        "keep_going": ("KeepGoing",),
        "linter_feedback": ("LinterFeedback",),
        "metrics": ("Metrics",),
        "notify": ("Notify",),
        "protected_paths": ("ProtectedPaths",),
        "rate_limit": ("RateLimit",),
        "recovery_hint": ("RecoveryHint",),
        "redact_secrets": ("RedactSecrets",),
        "schema_guard": ("SchemaGuard",),
        "schema_nudge": ("SchemaNudge",),
        "side_effects": ("SideEffects",),
        "skills": ("Skills",),
        "subagent_artifacts": ("SubagentArtifacts",),
        "test_feedback": ("TestFeedback",),
        "tool_ledger": ("ToolLedger",),
        "tracing": ("Tracing",),
        "type_feedback": ("TypeFeedback",),
    },
)
