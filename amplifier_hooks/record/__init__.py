"""Facts of a session come in; a chained and signed log, and verdicts on one, go out.

The format is described in specs/audit-format.md. Redaction comes before hashing; verification reads the bytes
themselves. The log loads on first use.
"""

from typing import TYPE_CHECKING

from amplifier_hooks.record.record_errors import LogUnavailable, RecordUnavailable
from amplifier_hooks.record.write.recorder import NoRecord, Recorder

if TYPE_CHECKING:
    from amplifier_hooks.record.write.log import AuditLog
    from amplifier_hooks.record.write.signing_key import AuditKey

__all__ = ["AuditKey", "AuditLog", "LogUnavailable", "NoRecord", "RecordUnavailable", "Recorder"]


def __getattr__(name: str) -> object:
    if name == "AuditLog":
        from amplifier_hooks.record.write.log import AuditLog

        return AuditLog
    if name == "AuditKey":
        from amplifier_hooks.record.write.signing_key import AuditKey

        return AuditKey
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
