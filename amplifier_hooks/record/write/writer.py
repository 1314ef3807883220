"""The one thread that writes a log, in batches.

Callers compute their lines themselves, in the order of their calls, under a lock that is never held while the disk is
awaited. The thread joins the queued lines, writes them, syncs them if a caller waits, and wakes all waiters at once.

The thread never uses a descriptor again after a failure: after a failed sync the system may have dropped the bytes, and
report success the next time. All records since the last successful sync then go into a new segment, whose first line
states how much of the old segment counts. If that fails, too, every waiter gets the error, and so does every later
caller until a new segment can be created.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attrs import define, field, frozen

from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.format.line import encode_log_record
from amplifier_hooks.record.record_errors import LogClosed, LogForked, LogUnavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from amplifier_hooks.record.format.line import ChainPosition, LineEnd, Opening
    from amplifier_hooks.record.write.segments import Segments


log = get_logger(__name__)

LINGER: Final = 0.01
"""Seconds for which the thread collects records that no caller waits for."""

MOST_QUEUED: Final = 8 << 20
"""Most bytes that may wait for the disk."""

MOST_UNSYNCED: Final = 4 << 20
"""Unsynced bytes that make a sync due at once. The writer keeps them until then, to write them again on failure."""


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


class Mark(NamedTuple):
    """The last line of a log that is on disk, with the note if that line is a checkpoint."""

    log: str
    segment: int
    size: int
    head: str
    note: str = ""


if TYPE_CHECKING:
    Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[Mark]]
    """A caller that continues when its record is on disk: its event loop and its future."""

Piece = tuple[bytes, str]
"""The encoded kind and facts of a record, and its time."""


@define
class Batch:
    """Lines that the thread writes at once, and the waiters for them."""

    lines: list[bytes]
    waiters: list[Waiter]
    end: LineEnd
    """End of the segment after this batch."""
    mark: Mark
    sync: bool
    next_segment: NextSegment | None = None
    last: bool = False
    """True if this batch closes the log."""


@frozen
class NextSegment:
    """The segment that begins after a batch: its opening, its first line, and the end of that line."""

    opening: Opening
    line: bytes
    end: LineEnd


@define(eq=False)
class LogWriter:
    """The writer of one log's segments. Its thread calls `on_checkpoint` for every checkpoint that is on disk.

    While `held` is True, the writer signs nothing.
    """

    segments: Segments
    schedule: WriteSchedule
    lock_descriptor: int
    held: bool = False
    on_checkpoint: Callable[[Mark], None] | None = None
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _something: threading.Event = field(init=False, factory=threading.Event)
    _urgent: threading.Event = field(init=False, factory=threading.Event)
    _process: int = field(init=False, factory=os.getpid)
    # with the lock
    _position: ChainPosition = field(init=False)
    _lines: list[bytes] = field(init=False, factory=list)
    _pieces: list[Piece] = field(init=False, factory=list)
    _waiters: list[Waiter] = field(init=False, factory=list)
    _queue_size: int = field(init=False, default=0)
    _ending: bool = field(init=False, default=False)
    _abandoned: bool = field(init=False, default=False)
    _leaving: str = field(init=False, default="")
    _over: bool = field(init=False, default=False)
    _down: OSError | None = field(init=False, default=None)
    # in the thread
    _descriptor: int | None = field(init=False, default=None)
    _base: Opening = field(init=False)
    """The segment that the thread writes to."""
    _synced_end: LineEnd = field(init=False)
    _unsynced_pieces: list[Piece] = field(init=False, factory=list)
    _unsynced_bytes: int = field(init=False, default=0)
    _unsynced_since: float | None = field(init=False, default=None)
    _uncovered_since: float | None = field(init=False, default=None)
    _turned: bool = field(init=False, default=False)
    """True if the synced lines end in `segment.closed`."""
    _last_try: float = field(init=False, default=0.0)
    _loss: int = field(init=False, default=0)
    _unsigned: bool = field(init=False, default=False)

    def start(self) -> None:
        """Open the log, record how it resumes, and start the thread. Raises `OSError`, and leaves no file open then."""
        try:
            begun = self.segments.start()
            self._position, self._base = begun.position, begun.position.opening
            self._descriptor, self._synced_end = begun.descriptor, begun.position.end
            self._uncovered_since = None if self.segments.signer is None else monotonic()
            for piece in begun.pieces:
                self._add(piece)
            if begun.finish or len(begun.pieces) > self.held:  # while held, the first record resumes the log
                self._carry_out(self._take_batch(finish=begun.finish))
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
    def position(self) -> ChainPosition:
        """The segment to which records are appended now."""
        return self._position

    def append(self, piece: bytes, waiter: Waiter | None = None) -> None:
        """Queue a record as the next line, and resume the waiter when the line is on disk.

        Raises `LogForked`, `LogClosed`, and `LogUnavailable` if too many bytes wait for the disk.
        """
        if self._process != os.getpid():
            self.check()
        with self._lock:
            self._admit()
            self._add(piece)
            if waiter is not None:
                self._waiters.append(waiter)
        if waiter is not None and not self._urgent.is_set():
            self._urgent.set()
        if not self._something.is_set():
            self._something.set()

    def flush(self, waiter: Waiter) -> None:
        """Resume the waiter when all records so far are on disk. Raises the errors of `append`."""
        self.check()
        with self._lock:
            self._admit()
            self._waiters.append(waiter)
        self._wake()

    def _admit(self) -> None:
        """Raise `LogClosed` or `LogUnavailable` while the writer takes no record. The caller holds the lock."""
        if self._ending:
            raise LogClosed("the record is closed")
        if self._queue_size > MOST_QUEUED:
            raise LogUnavailable(f"{self._queue_size:,} bytes wait for the disk; no record is taken until it has them")

    def end(self, waiter: Waiter) -> None:
        """Write all records, close the log, and resume the waiter. Call it once."""
        self.check()
        with self._lock:
            self._ending = True
            self._waiters.append(waiter)
        self._wake()

    def abandon(self, waiter: Waiter) -> None:
        """Release the log without another line, and resume the waiter. Call it once, and only before any record."""
        with self._lock:
            self._ending = self._abandoned = True
            self._waiters = [waiter]
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

    def _wake(self) -> None:
        self._urgent.set()
        self._something.set()

    def check(self) -> None:
        """Raise `LogForked` in a process that was forked from the one that opened the log."""
        if self._process != os.getpid():
            raise LogForked("the record was opened before the fork; open another one in this process")

    def _add(self, piece: bytes) -> None:
        time = self.segments.now()
        self._pieces.append((piece, time))
        self._queue_size += len(piece)
        if self._down is None:  # else its line is made when there is a segment for it
            self._lines.append(self._position.add(piece, time))

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._over:
            self._something.wait(self._seconds_until_due())
            if not self._urgent.is_set():
                self._urgent.wait(LINGER)
            self._something.clear()
            self._urgent.clear()
            try:
                self._commit()
            except Exception as error:  # noqa: BLE001  # the thread must go on, or all callers wait for ever
                self._give_up([], OSError(f"{type(error).__name__}: {error}"))

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until a sync or a checkpoint is due by itself, or None."""
        due = [
            since + limit
            for since, limit in (
                (self._unsynced_since, self.schedule.sync),
                (self._uncovered_since, self.schedule.seconds),
            )
            if since is not None
        ]
        return max(0.0, min(due) - monotonic()) if due else None

    def _commit(self) -> None:
        """Write all queued lines."""
        if self._abandoned:
            self._close_log()
            resume_waiters(self._waiters, Mark("", 0, 0, ""))
            return
        waiters: list[Waiter] = []
        problem = self._down
        if self._leaving:
            left, self._leaving = {"why": self._leaving, **self._closing_facts}, ""
            problem = self._attempt(lambda: self._begin_anew(waiters, left))
        elif problem is None:
            batch = self._take_batch()
            waiters, problem = batch.waiters, self._attempt(lambda: self._carry_out(batch))
        if problem is not None:
            self._mend(waiters, problem)

    def _close_log(self) -> None:
        """Close the files and end the thread, as the last step before waiters for the end resume."""
        self._swap(None)
        with suppress(OSError):
            self.segments.files.close(self.lock_descriptor)
        self._over = True

    @property
    def _closing_facts(self) -> dict[str, Any]:
        return {"bytes": self._synced_end.length}

    def _attempt(self, step: Callable[[], None]) -> OSError | None:
        """Run one step, and return its error as an `OSError`, or None."""
        try:
            step()
        except OSError as error:
            return error
        except Exception as error:  # noqa: BLE001  # a defect must not look like a record that was written
            return OSError(f"{type(error).__name__}: {error}")
        return None

    def _take_batch(self, *, finish: bool = False) -> Batch:
        """Return all queued records as a batch. Later records follow it."""
        now = monotonic()
        with self._lock:
            lines, self._lines = self._lines, []
            self._unsynced_pieces += self._pieces
            self._unsynced_bytes += self._queue_size
            waiters, self._waiters = self._waiters, []
            self._pieces, self._queue_size = [], 0
            strand, turn, ending = self._position, None, self._ending
            turning = finish or (strand.length >= self.schedule.segment and not ending)
            if turning and not finish:
                lines.append(
                    strand.add(
                        encode_log_record("segment.closed", {"next": strand.opening.segment + 1}), self.segments.now()
                    )
                )
            if ending:
                lines.append(strand.add(encode_log_record("log.closed", {}), self.segments.now()))
            note = self._note(lines, now, due=turning or ending)
            place = strand.end
            mark = Mark(strand.opening.log, strand.opening.segment, place.seq, place.head.hex(), note)
            if turning:
                self._position = self.segments.next_position(strand.opening, place)
                turn = NextSegment(self._position.opening, self.segments.first_line(self._position), self._position.end)
        if lines and self._unsynced_since is None:
            self._unsynced_since = now
        late = self._unsynced_since is not None and now - self._unsynced_since >= self.schedule.sync
        sync = bool(waiters or turning or ending or note or late) or self._unsynced_bytes > MOST_UNSYNCED
        return Batch(lines, waiters, place, mark, sync, turn, last=ending)

    def _note(self, lines: list[bytes], now: float, *, due: bool) -> str:
        """Add a checkpoint if one is due, and return its note, or an empty text."""
        strand, signer = self._position, self.segments.signer
        if signer is None or self.held or not strand.since:
            return ""
        if self._uncovered_since is None:
            self._uncovered_since = now
        if not due and strand.since < self.schedule.lines and now - self._uncovered_since < self.schedule.seconds:
            return ""
        self._uncovered_since = None
        try:
            line, note = strand.checkpoint(signer)
        except Exception as error:  # noqa: BLE001  # a foreign signer may raise anything
            if not self._unsigned:
                log.error("audit_unsigned", error=f"{type(error).__name__}: {error}")  # noqa: TRY400
                lines.append(
                    strand.add(encode_log_record("log.unsigned", {"error": type(error).__name__}), self.segments.now())
                )
            self._unsigned, strand.since = True, 0
            return ""
        self._unsigned = False
        lines.append(line)
        return note

    def _carry_out(self, batch: Batch) -> None:
        """Write a batch, sync it if required, and resume its waiters."""
        files, descriptor = self.segments.files, self._descriptor
        if descriptor is None:
            raise LogUnavailable("the record has no open segment")
        if batch.lines:
            files.write(descriptor, b"".join(batch.lines))
        if batch.sync and self._unsynced_since is not None:
            files.sync(descriptor)
            self._note_sync(batch.end)
        if batch.next_segment is not None:
            self._turned = True
            self._move_to(batch.next_segment)
        if batch.mark.note and self.on_checkpoint is not None:
            self.on_checkpoint(batch.mark)
        if batch.last:
            self._close_log()
        resume_waiters(batch.waiters, batch.mark)

    def _note_sync(self, end: LineEnd) -> None:
        self._synced_end, self._unsynced_since = end, None
        self._unsynced_pieces.clear()
        self._unsynced_bytes = 0

    def _move_to(self, turn: NextSegment) -> None:
        """Create the next segment and switch to it."""
        try:
            descriptor = self.segments.create(turn.opening, turn.line)
        except OSError:
            if self.segments.exists(
                turn.opening
            ):  # the file exists, but may not survive a power cut, so the log continues after it
                self._base, self._synced_end, self._turned = turn.opening, turn.end, False
            raise
        self._swap(descriptor)
        self._base, self._synced_end, self._turned = turn.opening, turn.end, False

    def _swap(self, descriptor: int | None) -> None:
        """Switch to another descriptor, and ignore errors of closing the old one: its lines are synced or lost."""
        before, self._descriptor = self._descriptor, descriptor
        if before is not None:
            with suppress(OSError):
                self.segments.files.close(before)

    # -- when it failed ------------------------------------------------------------------------------------------------

    def _mend(self, waiters: list[Waiter], problem: OSError) -> None:
        """Write all records since the last sync into a new segment, or fail their waiters."""
        now = monotonic()
        if self._down is None or now - self._last_try >= self.schedule.retry or self._ending:
            log.error("audit_segment_failed", error=str(problem))
            self._last_try = now
            left = {"why": "failure", **self._closing_facts, "error": str(problem)[:200]}
            again = self._attempt(lambda: self._begin_anew(waiters, left))
            if again is None:
                return
            problem = again
        self._give_up(waiters, problem)

    def _begin_anew(self, waiters: list[Waiter], left: dict[str, Any]) -> None:
        """Write all records since the last sync into a new segment, and add their waiters to `waiters`."""
        self._swap(None)
        strand = self.segments.next_position(self._base, self._synced_end)
        time = next((time for _, time in (*self._unsynced_pieces, *self._pieces[:1])), self.segments.now())
        line = self.segments.first_line(strand, None if self._turned else left, time)
        self._move_to(NextSegment(strand.opening, line, strand.end))
        with self._lock:
            self._down, self._position = None, strand
            if self._loss:
                self._lines = [strand.add(encode_log_record("log.lost", {"records": self._loss}), time)]
            else:
                self._lines = []
            self._pieces = self._unsynced_pieces + self._pieces
            self._queue_size += self._unsynced_bytes
            self._lines += [strand.add(*piece) for piece in self._pieces]
            waiters += self._waiters
            self._waiters = []
            self._unsynced_pieces, self._unsynced_bytes = [], 0
        batch = self._take_batch()
        waiters += batch.waiters
        batch.waiters, batch.sync = waiters, True
        self._carry_out(batch)
        self._loss = 0

    def _give_up(self, waiters: list[Waiter], problem: OSError) -> None:
        """Drop all records that cannot be written, and fail their waiters. Close the log if it was to end."""
        self._swap(None)
        with self._lock:
            self._down = problem
            waiters = [*waiters, *self._waiters]
            self._loss += len(self._unsynced_pieces) + len(self._pieces)
            self._unsynced_pieces, self._unsynced_bytes, self._unsynced_since = [], 0, None
            self._lines, self._pieces, self._waiters, self._queue_size = [], [], [], 0
            self._uncovered_since = None
            ending = self._ending
        log.error("audit_unavailable", error=str(problem), lost=self._loss)
        if ending:
            self._close_log()
        resume_waiters(waiters, problem)


def resume_waiters(waiters: list[Waiter], result: Mark | OSError) -> None:
    """Resume all waiters, each in its own event loop, with one call for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[Mark]]] = {}
    for loop, future in waiters:
        loops.setdefault(loop, []).append(future)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and its waiters are gone
            loop.call_soon_threadsafe(_set_results, futures, result)


def _set_results(futures: list[asyncio.Future[Any]], result: Mark | OSError) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(result, OSError):
            future.set_exception(LogUnavailable(str(result)))
        else:
            future.set_result(result)
