"""The record: a log nobody can quietly rewrite. The format is described in specs/audit-format.md.

line          one record as one line of bytes            pure
chain         what ties each line to all before it       pure
checkpoint    signed statements about the head           pure
strand        where a log stands, and what its next line looks like
key           the key that signs them
redact        secrets hidden; values and encoding: any value as part of a line
files         the file system; segments: the files of one log, and how the next one begins
writer        the one thread that writes, in groups
log           the front of it; sinks: two in two failure domains; heads: the head in a database
recorder      the front of one session to its record
reader        a file of the log as lines
walk          one segment as it is read
verify        whether a log is what was written
report        what can be said about it: the verdicts, and every sentence
errors        why it cannot be written or read
"""

from amplifier_hooks.effects.audit.errors import LogUnavailable, RecordUnavailable
from amplifier_hooks.effects.audit.key import AuditKey
from amplifier_hooks.effects.audit.log import AuditLog
from amplifier_hooks.effects.audit.recorder import NoRecord, Recorder

__all__ = ["AuditKey", "AuditLog", "LogUnavailable", "NoRecord", "RecordUnavailable", "Recorder"]
