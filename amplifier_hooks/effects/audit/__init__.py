"""The record: a log nobody can quietly rewrite. The format is described in specs/audit-format.md.

    line          one record as one line of bytes            pure
    chain         what ties each line to all before it       pure
    checkpoint    signed statements about the head           pure
    redact        secrets are taken out …
    values        … and what JSON cannot hold
    encoding      a record's kind and facts as bytes
    strand        where a log stands, and its next line
    files         what a log asks of the file system
    segments      how the last writer ended, and how to go on
    writer        the one thread that writes
    log           the record as a session has it: an `AuditSink`
    recorder      the front of one session to its record
    sinks         two records in two failure domains
    heads         the head of the chain, in a database
    marks         how far that database was, in the log
    arguments     what was called with, in a database, for a limited time
    key           the key that signs
    reader        a file of the log as lines
    walk          one segment as it is read
    verify        whether a log is what was written
    report        what can be said about it: the verdicts, and every sentence
    errors        why it cannot be written or read

What is redacted is redacted before it is hashed; what is verified is verified from the bytes.

The front of a session is all that is needed without a log; the log itself loads on first use.
"""

from typing import TYPE_CHECKING

from amplifier_hooks.effects.audit.errors import LogUnavailable, RecordUnavailable
from amplifier_hooks.effects.audit.recorder import NoRecord, Recorder

if TYPE_CHECKING:
    from amplifier_hooks.effects.audit.key import AuditKey
    from amplifier_hooks.effects.audit.log import AuditLog

__all__ = ["AuditKey", "AuditLog", "LogUnavailable", "NoRecord", "RecordUnavailable", "Recorder"]


def __getattr__(name: str) -> object:
    if name == "AuditLog":
        from amplifier_hooks.effects.audit.log import AuditLog

        return AuditLog
    if name == "AuditKey":
        from amplifier_hooks.effects.audit.key import AuditKey

        return AuditKey
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
