"""Why a log cannot be written, or a line not be read.

```
LogUnavailable (OSError)   base of what keeps a record from being written; gates deny
├── LogClosed              it was closed
├── LogInUse               another process, or another log here, writes to this file
├── LogForked              it was opened by the process this one was forked from
├── LogHangs               the disk does not answer in time
├── UnsafeLog              others could read or replace the file or its key, or it is no plain file
├── LogCut                 the store knows of lines that the file does not have; the operator decides
└── StoreReplaced          the file knows of a store that is not this one, or was further; the same
MalformedLine (ValueError) bytes that are no line of a log
└── TornLine               a line without an end, as a crash leaves it
HeadConflict               two hashes for one line; somebody has written a log anew
BadNote (ValueError)       a checkpoint or key that is not what it has to be
```
"""

from __future__ import annotations

from amplifier_hooks.errors import HookError


class RecordUnavailable(HookError):
    """The record could not be written, so what it was to precede does not happen. Never leaves the session."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        super().__init__(f"audit_unavailable, the record cannot be written ({type(problem).__name__}: {problem})")


class LogUnavailable(HookError, OSError):
    """The log cannot be written. Nothing that was not acknowledged may be relied upon."""


class LogClosed(LogUnavailable):
    """It was closed; open it anew."""


class LogInUse(LogUnavailable):
    """Somebody else writes to it. One log has one writer."""


class LogForked(LogUnavailable):
    """It was opened before the fork. Two processes cannot go on with one chain; open a log of this one's own."""


class LogHangs(LogUnavailable):
    """The disk did not answer in time."""


class UnsafeLog(LogUnavailable):
    """Others could read it, replace it, or lead it elsewhere."""


class LogCut(LogUnavailable):
    """The store remembers lines that the file lacks, or another hash for them."""


class StoreReplaced(LogUnavailable):
    """The file was written beside another store, or beside this one when more had happened in it."""


class HeadConflict(HookError):
    """The store has another hash for this size of this log."""

    def __init__(self, log: str, segment: int, size: int) -> None:
        self.log = log
        self.segment = segment
        self.size = size
        super().__init__(f"line {size} in segment {segment} of log {log} has another hash in the store")


class MalformedLine(HookError, ValueError):
    """Bytes that are no line of a log; the sentence goes on where `a line` begins it."""


class TornLine(MalformedLine):
    """A line without an end, as a crash leaves it."""


class BadNote(HookError, ValueError):
    """A checkpoint, signature or verifier key that is not what it has to be."""
