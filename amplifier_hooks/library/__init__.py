"""Ready-made hooks, a file for each or for a few of one kind: settings come in, a registered hook goes out.

Each hook is a class with pydantic settings. Switch one on with `RateLimit().register(registry)`, with settings from a
file `RateLimit.from_config({…}).register(registry)`, or by name with `registry.discover(["rate_limit"])`. The table of
all hooks is in specs/library.md; `parts` holds the code that several hooks share. Each hook loads on first use.
"""

from typing import TYPE_CHECKING

from amplifier_hooks import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.library.audit_log import AuditLogHook
    from amplifier_hooks.library.cost_guard import CostGuard
    from amplifier_hooks.library.date_time import DateTime
    from amplifier_hooks.library.feedback import LinterFeedback, TestFeedback, TypeFeedback
    from amplifier_hooks.library.git_status import GitStatus
    from amplifier_hooks.library.guard import Guard
    from amplifier_hooks.library.injection_scan import InjectionScan
    from amplifier_hooks.library.keep_going import KeepGoing
    from amplifier_hooks.library.metrics import Metrics
    from amplifier_hooks.library.notify import Notify
    from amplifier_hooks.library.protected_paths import ProtectedPaths
    from amplifier_hooks.library.rate_limit import RateLimit
    from amplifier_hooks.library.recovery_hint import RecoveryHint
    from amplifier_hooks.library.redact_secrets import RedactSecrets
    from amplifier_hooks.library.side_effects import SideEffects
    from amplifier_hooks.library.skills import Skills
    from amplifier_hooks.library.subagent_artifacts import SubagentArtifacts
    from amplifier_hooks.library.tool_ledger import ToolLedger
    from amplifier_hooks.library.tool_schemas import SchemaGuard, SchemaNudge
    from amplifier_hooks.library.tracing import Tracing

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


def _module_of(name: str) -> str:
    """Return the module of a hook that has a file of its own: `RateLimit` is in `rate_limit`."""
    words = "".join(f"_{one.lower()}" if one.isupper() else one for one in name.removesuffix("Hook"))
    return words.removeprefix("_")


__getattr__ = load_on_use(
    __name__,
    {_module_of(name): (name,) for name in __all__}
    | {"feedback": ("LinterFeedback", "TestFeedback", "TypeFeedback"), "tool_schemas": ("SchemaGuard", "SchemaNudge")},
)
