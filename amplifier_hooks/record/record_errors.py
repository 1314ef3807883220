"""Errors of a log that cannot be written, and of lines that cannot be read.

```
LogUnavailable (OSError)   the log cannot write a record; gates deny
├── LogClosed              the log is closed
├── LogInUse               another process, or another log in this process, writes to the file, whatever its name
├── LogForked              the parent process opened the log before the fork
├── LogHangs               the disk does not answer in time
├── LogReplaced            another program removed, replaced or changed the file under its writer
├── UnsafeLog              other users can read or replace the file or its key, or the file is not a plain file
├── LogCut                 the store knows lines that the file lacks; the operator decides
└── StoreReplaced          the file names another store, or a later mark of this one; the operator decides
MalformedLine (ValueError) bytes that are not a line of a log
└── TornLine               a line without an end, as a crash leaves it
HeadConflict               two hashes for one line; the log was rewritten
BadNote (ValueError)       a malformed checkpoint, signature or key
```
"""

from __future__ import annotations

from typing import Final

from amplifier_hooks.errors import HookError
from amplifier_hooks.text.escape import clip, for_log

LONGEST_PROBLEM: Final = 300


def problem_text(error: BaseException) -> str:
    """Return the type and the message of a foreign error on one line: escaped, and clipped."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # the error brings code of its own
        message = "its message cannot be read"
    return clip(for_log(f"{type(error).__name__}: {message}"), LONGEST_PROBLEM)


class RecordUnavailable(HookError):
    """The record could not be written, so the act that it precedes does not happen. The session never raises it."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        super().__init__(f"audit_unavailable, the record cannot be written ({problem_text(problem)})")


class LogUnavailable(HookError, OSError):
    """The log cannot be written. Callers may rely on acknowledged records only."""


class LogClosed(LogUnavailable):
    """The log is closed; open it again."""


class LogInUse(LogUnavailable):
    """Another writer has the log open. One log has one writer."""


class LogForked(LogUnavailable):
    """The log was opened before the fork. Two processes cannot extend one chain; open another log in this process."""


class LogHangs(LogUnavailable):
    """The disk did not answer in time."""


class LogReplaced(LogUnavailable):
    """Another program removed, replaced, shortened or extended the file while the log was written."""


class UnsafeLog(LogUnavailable):
    """Other users could read the log or its key, replace it, or point its name at another file."""


class LogCut(LogUnavailable):
    """The store knows lines that the file lacks, or another hash for one of them."""


class StoreReplaced(LogUnavailable):
    """The file was written beside another store, or beside a later state of this store."""


class HeadConflict(HookError):
    """The store has another hash for this size of this log."""

    def __init__(self, log: str, segment: int, size: int) -> None:
        self.log = log
        self.segment = segment
        self.size = size
        super().__init__(f"line {size} in segment {segment} of log {log} has another hash in the store")


class MalformedLine(HookError, ValueError):
    """Bytes that are not a line of a log. The message continues a sentence that begins with `the line`."""


class TornLine(MalformedLine):
    """A line without an end, as a crash leaves it."""


class BadNote(HookError, ValueError):
    """A malformed checkpoint, signature or verifier key, or a signature that does not verify."""
