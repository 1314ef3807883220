"""The one thread that writes a log, in batches.

Callers queue records under a lock that is never held while the disk is awaited. The thread makes lines of all queued
records, writes them, syncs them if a caller waits, and wakes all waiters at once. Before it acknowledges a record, it
checks that the file still has its name and its length.

A failure refuses every record since the last sync: no record, no service. The thread never uses the descriptor again,
because after a failed sync the system may have dropped the bytes, and report success the next time. A later record
begins a new segment, whose first line states how much of the old segment counts; until that succeeds, every record is
refused.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field, frozen

from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import Head
from amplifier_hooks.record.line import ChainPosition, encode_log_record
from amplifier_hooks.record.record_errors import (
    LogClosed,
    LogForked,
    LogReplaced,
    LogUnavailable,
    UnsafeLog,
    problem_text,
)
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from amplifier_hooks.record.log_files import Segments


log = get_logger(__name__)

LINGER: Final = 0.01
"""Seconds for which the thread collects records that no caller waits for."""

MOST_QUEUED: Final = 8 << 20
"""Most bytes that may wait for the disk."""


@frozen(kw_only=True)
class WriteSchedule:
    """Intervals of checkpoints, syncs, segments and retries."""

    lines: int = 256
    """Most lines between two checkpoints."""
    seconds: float = 5.0
    """Most seconds between a line and the checkpoint that covers it."""
    sync: float = 0.5
    """Seconds until the sync of a record that no caller waits for."""
    segment: int = 64 << 20
    """Size in bytes at which a segment is closed."""
    retry: float = 1.0
    """Seconds between two attempts to continue after a failure."""


if TYPE_CHECKING:
    Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[None], float]
    """A caller that continues when its record is on disk: its event loop, its future, and the time since it waits."""

Piece = tuple[bytes, str]
"""The encoded kind and facts of a record, and its time."""


@define(eq=False)
class LogWriter:
    """The writer of one log's segments. Its thread calls `on_checkpoint` for every checkpoint that is on disk.

    While `held` is True, the writer signs nothing.
    """

    segments: Segments
    schedule: WriteSchedule
    held: bool = False
    on_checkpoint: Callable[[Head], None] | None = None
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _something: threading.Event = field(init=False, factory=threading.Event)
    _urgent: threading.Event = field(init=False, factory=threading.Event)
    _process: int = field(init=False, factory=os.getpid)
    # with the lock
    _pieces: list[Piece] = field(init=False, factory=list)
    _waiters: list[Waiter] = field(init=False, factory=list)
    _committing: list[Waiter] = field(init=False, factory=list)
    """The waiters of the last commit."""
    _queue_size: int = field(init=False, default=0)
    _ending: bool = field(init=False, default=False)
    _abandoned: bool = field(init=False, default=False)
    _leaving: str = field(init=False, default="")
    # in the thread
    _position: ChainPosition = field(init=False)
    _descriptor: int | None = field(init=False, default=None)
    _file: Path = field(init=False)
    _opened: os.stat_result = field(init=False)
    _synced: ChainPosition = field(init=False)
    """The last line on disk."""
    _unsynced: int = field(init=False, default=0)
    """Records since the last sync."""
    _unsynced_since: float | None = field(init=False, default=None)
    _uncovered_since: float | None = field(init=False, default=None)
    _down: OSError | None = field(init=False, default=None)
    _why: str = field(init=False, default="")
    """Reason for which the last segment has no end."""
    _retry_at: float = field(init=False, default=0.0)
    _loss: int = field(init=False, default=0)
    _unsigned: bool = field(init=False, default=False)
    _over: bool = field(init=False, default=False)

    def start(self) -> None:
        """Open the log, record how it resumes, and start the thread. Raises `OSError`, and leaves no file open then."""
        begun = self.segments.start()
        self._swap(begun.descriptor)
        self._move_to(begun.position)
        self._uncovered_since = monotonic()
        pieces = [(piece, self.segments.now()) for piece in begun.pieces]
        try:
            if len(pieces) > self.held:  # while held, the first record resumes the log
                self._put(pieces)
            else:
                self._pieces = pieces
        except BaseException:
            self._close_log()
            raise
        threading.Thread(target=self._work, name="audit", daemon=True).start()

    # -- for callers ---------------------------------------------------------------------------------------------------

    @property
    def down(self) -> bool:
        """True if the last attempt to write failed."""
        return self._down is not None

    @property
    def log_id(self) -> str:
        """The id of the log."""
        return self._synced.opening.log

    def append(self, piece: bytes | None, waiter: Waiter | None = None) -> None:
        """Queue a record, if any, as the next line, and resume the waiter when all lines so far are on disk.

        Raises `LogForked`, `LogClosed`, and `LogUnavailable` if too many bytes wait for the disk.
        """
        self._check_process()
        with self._lock:
            if self._ending:
                raise LogClosed("the record is closed")
            if self._queue_size > MOST_QUEUED:
                raise LogUnavailable(
                    f"{self._queue_size:,} bytes wait for the disk; no record is taken until it has them"
                )
            if piece is not None:
                self._pieces.append((piece, self.segments.now()))
                self._queue_size += len(piece)
            if waiter is not None:
                self._waiters.append(waiter)
        if waiter is not None and not self._urgent.is_set():
            self._urgent.set()
        if not self._something.is_set():
            self._something.set()

    def end(self, waiter: Waiter, *, abandon: bool = False) -> None:
        """Write all records, close the log, and resume the waiter. Call it once.

        With `abandon`, which is for a log without a record of this writer, release the log without another line.
        """
        self._check_process()
        with self._lock:
            self._ending, self._abandoned = True, abandon
            self._waiters.append(waiter)
        self._wake()

    def leave(self, why: str, waiter: Waiter) -> None:
        """Continue in a new segment, whose first line states the reason, and resume the waiter."""
        with self._lock:
            self._leaving = why
            self._waiters.append(waiter)
        self._wake()

    def release(self) -> None:
        """Sign checkpoints from now on."""
        self.held = False

    def waiting(self) -> list[Waiter]:
        """Return the waiters that have not been resumed, and some that have been."""
        with self._lock:
            return self._committing + self._waiters

    def _wake(self) -> None:
        self._urgent.set()
        self._something.set()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise LogForked("the record was opened before the fork; open another one in this process")

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._over:
            self._something.wait(self._seconds_until_due())
            if not self._urgent.is_set():
                self._urgent.wait(LINGER)
            self._something.clear()
            self._urgent.clear()
            self._commit()

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until a sync or a checkpoint is due by itself, or None."""
        due = [
            since + limit
            for since, limit in (
                (self._unsynced_since, self.schedule.sync),
                (None if self.held else self._uncovered_since, self.schedule.seconds),
            )
            if since is not None
        ]
        return max(0.0, min(due) - monotonic()) if due else None

    def _commit(self) -> None:
        """Write all queued records, and resume their waiters: with the end of the log, or with the problem."""
        with self._lock:
            pieces, self._pieces, self._queue_size = self._pieces, [], 0
            waiters, self._waiters = self._waiters, []
            self._committing = waiters
            ending, leaving, self._leaving = self._ending, self._leaving, ""
        if self._abandoned:
            self._close_log()
            resume_waiters(waiters, None)
            return
        if self._down is not None and not ending and monotonic() < self._retry_at:
            self._loss += len(pieces)
            resume_waiters(waiters, self._down)
            return
        self._unsynced += len(pieces)
        try:
            fresh = self._down is not None or bool(leaving)
            if fresh:
                self._begin_again(leaving)
            closing = [(encode_log_record("log.closed", {}), self.segments.now())] if ending else []
            self._put([*pieces, *closing], due=ending, sync=bool(waiters) or ending or fresh)
        except Exception as error:  # noqa: BLE001  # a defect must not look like a record that was written
            problem = self._fail(error)
            if ending:
                self._close_log()
            resume_waiters(waiters, problem)
            return
        if ending:
            self._close_log()
        resume_waiters(waiters, None)
        if self._position.length >= self.schedule.segment and not ending:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def _put(self, pieces: Sequence[Piece], *, due: bool = False, sync: bool = False) -> None:
        """Write records as the next lines, with a checkpoint if one is due, and sync them if a caller waits.

        Raises `OSError`, and then it is not known what the file holds.
        """
        now, position, files = monotonic(), self._position, self.segments.files
        if self._descriptor is None:
            raise LogUnavailable("the record has no open segment")
        lines = []
        if self._loss:
            lines.append(position.add(encode_log_record("log.lost", {"records": self._loss}), self.segments.now()))
        lines += position.add_all(pieces)
        note = self._note(lines, now, due=due)
        if lines:
            files.write(self._descriptor, b"".join(lines))
            self._unsynced_since = now if self._unsynced_since is None else self._unsynced_since
        late = self._unsynced_since is not None and now - self._unsynced_since >= self.schedule.sync
        if sync or note or late:
            if self._unsynced_since is not None:
                files.sync(self._descriptor)
            files.check(self._file, self._opened, position.length)
            self._synced = ChainPosition(position.opening, position.seq, position.head, position.length)
            self._unsynced, self._unsynced_since, self._loss = 0, None, 0
        if note and self.on_checkpoint is not None:
            opening = position.opening
            head = Head(
                log=opening.log, segment=opening.segment, size=position.seq, head=position.head.hex(), note=note
            )
            self.on_checkpoint(head)

    def _note(self, lines: list[bytes], now: float, *, due: bool) -> str:
        """Add a checkpoint if one is due, and return its note, or an empty text."""
        position, signer = self._position, self.segments.signer
        if self.held or not position.since:
            return ""
        if self._uncovered_since is None:
            self._uncovered_since = now
        if not due and position.since < self.schedule.lines and now - self._uncovered_since < self.schedule.seconds:
            return ""
        self._uncovered_since = None
        try:
            line, note = position.checkpoint(signer)
        except Exception as error:  # noqa: BLE001  # a foreign signer may raise anything
            if not self._unsigned:
                log.error("audit_unsigned", error=problem_text(error))  # noqa: TRY400
                facts = {"error": type(error).__name__}
                lines.append(position.add(encode_log_record("log.unsigned", facts), self.segments.now()))
            self._unsigned, position.since = True, 0
            return ""
        self._unsigned = False
        lines.append(line)
        return note

    def _turn(self) -> None:
        """Close the segment, and continue in the next one."""
        closed = encode_log_record("segment.closed", {"next": self._position.opening.segment + 1})
        self._put([(closed, self.segments.now())], due=True, sync=True)
        self._begin()

    def _begin(self, left: dict[str, Any] | None = None) -> None:
        """Create the next segment and switch to it."""
        position = self.segments.next_position(self._synced)
        try:
            descriptor = self.segments.create(position, left)
        except FileExistsError as problem:
            raise UnsafeLog(f"{self.segments.file(position.opening)} is there already, and not ours") from problem
        except OSError:
            if self.segments.file(position.opening).exists():  # it may not survive a power cut; the log continues there
                self._move_to(position)
            raise
        self._swap(descriptor)
        self._move_to(position)

    def _move_to(self, position: ChainPosition) -> None:
        self._position, self._synced = position, evolve(position)
        self._file = self.segments.file(position.opening)

    def _swap(self, descriptor: int | None) -> None:
        """Switch to another descriptor, and ignore errors of closing the old one: its lines are synced or lost."""
        before, self._descriptor = self._descriptor, descriptor
        if before is not None:
            self.segments.close(before)
        if descriptor is not None:
            self._opened = os.fstat(descriptor)

    def _close_log(self) -> None:
        """Close the files and end the thread, as the last step before waiters for the end resume."""
        self._swap(None)
        self.segments.release()
        self._over = True

    # -- when it failed ------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> OSError:
        """Give up the descriptor, and count all records since the last sync as lost. Return the problem."""
        self._swap(None)
        if self._down is None:
            self._why = "changed" if isinstance(error, LogReplaced) else "failure"
        self._down = error if isinstance(error, OSError) else LogUnavailable(problem_text(error))
        self._loss += self._unsynced
        self._unsynced, self._unsynced_since, self._uncovered_since = 0, None, None
        self._retry_at = monotonic() + self.schedule.retry
        log.error("audit_unavailable", error=problem_text(error), lost=self._loss)
        return self._down

    def _begin_again(self, leaving: str) -> None:
        """Begin a segment whose first line says why the one before has no end."""
        left: dict[str, Any] = {"why": leaving or self._why, "bytes": self._synced.length}
        if self._down is not None:
            left["error"] = problem_text(self._down)
            self.segments.hold()
        self._begin(left)
        self._down = None


def resume_waiters(waiters: list[Waiter], problem: OSError | None) -> None:
    """Resume all waiters, each in its own event loop, with one call for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for loop, future, _ in waiters:
        loops.setdefault(loop, []).append(future)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and its waiters are gone
            loop.call_soon_threadsafe(_set_results, futures, problem)


def _set_results(futures: list[asyncio.Future[None]], problem: OSError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if problem is None:
            future.set_result(None)
        else:
            kind = type(problem) if isinstance(problem, LogUnavailable) else LogUnavailable
            future.set_exception(kind(for_log(str(problem))))
