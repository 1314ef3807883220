"""The one thread that writes a log: whatever has come in since the last time, in one go.

Callers make their lines themselves, in the order in which they come, under a lock that is never held while the disk is
awaited. The thread joins what is there, writes it, syncs it when somebody waits for that, and tells them all at once.

A descriptor that failed once is never used again: after a failed sync the system may have dropped what was to be
written, and say that all is well the next time. Everything since the last sync that worked then goes into a new
segment, which says what of the old one counts. If that fails too, whoever waits is told, and so is everybody after
them until a new segment can be made.
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
"""Seconds the thread lets records come together when nobody waits for them."""

MOST_QUEUED: Final = 8 << 20
"""Bytes that may wait for the disk."""

MOST_UNSYNCED: Final = 4 << 20
"""Bytes after which a sync is due at once: they are kept until then, to be written again if it fails."""


@frozen(kw_only=True)
class WriteSchedule:
    """How often things happen."""

    lines: int = 256
    """Lines between two checkpoints at most …"""
    seconds: float = 5.0
    """… and how long the first of them waits for one."""
    sync: float = 0.5
    """Seconds until what nobody waits for is synced."""
    segment: int = 64 << 20
    """Bytes after which a segment is closed."""
    retry: float = 1.0
    """Seconds between two attempts to go on after a failure."""


class Mark(NamedTuple):
    """How far a log is on disk; with a note if that is a checkpoint."""

    log: str
    segment: int
    size: int
    head: str
    note: str = ""


if TYPE_CHECKING:
    Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[Mark]]
    """Somebody who goes on when their record is on disk."""

Piece = tuple[bytes, str]
"""Kind and facts of a record, encoded, and its time."""


@define
class Batch:
    """What is written in one go."""

    lines: list[bytes]
    waiters: list[Waiter]
    end: LineEnd
    """Where the segment ends with it."""
    mark: Mark
    sync: bool
    next_segment: NextSegment | None = None
    last: bool = False
    """Whether it closes the log."""


@frozen
class NextSegment:
    """The segment that begins behind a batch: its first line, and where that ends."""

    opening: Opening
    line: bytes
    end: LineEnd


@define(eq=False)
class LogWriter:
    """Writes the segments of one log. `told` hears of every checkpoint that is on disk, in the thread.

    While it is held, nothing is signed.
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
    _queued: int = field(init=False, default=0)
    _ending: bool = field(init=False, default=False)
    _abandoned: bool = field(init=False, default=False)
    _leaving: str = field(init=False, default="")
    _over: bool = field(init=False, default=False)
    _down: OSError | None = field(init=False, default=None)
    # in the thread
    _descriptor: int | None = field(init=False, default=None)
    _base: Opening = field(init=False)
    """The segment that is written."""
    _synced: LineEnd = field(init=False)
    _unsynced: list[Piece] = field(init=False, factory=list)
    _unsynced_bytes: int = field(init=False, default=0)
    _unsynced_since: float | None = field(init=False, default=None)
    _uncovered_since: float | None = field(init=False, default=None)
    _turned: bool = field(init=False, default=False)
    """Whether what is synced ends in `segment.closed`."""
    _tried: float = field(init=False, default=0.0)
    _lost: int = field(init=False, default=0)
    _unsigned: bool = field(init=False, default=False)

    def start(self) -> None:
        """Open the log, say how it goes on, and begin to write. Raises `OSError`, and nothing is left open then."""
        try:
            begun = self.segments.start()
            self._position, self._base = begun.position, begun.position.opening
            self._descriptor, self._synced = begun.descriptor, begun.position.end
            self._uncovered_since = None if self.segments.signer is None else monotonic()
            for piece in begun.pieces:
                self._add(piece)
            if begun.finish or len(begun.pieces) > self.held:  # held, the log is only resumed when it is written
                self._carry_out(self._take_batch(finish=begun.finish))
        except BaseException:
            self._close_log()
            raise
        threading.Thread(target=self._work, name="audit", daemon=True).start()

    # -- for everybody -------------------------------------------------------------------------------------------------

    @property
    def down(self) -> bool:
        """Whether the last attempt to write failed."""
        return self._down is not None

    @property
    def position(self) -> ChainPosition:
        """The segment that records go to now."""
        return self._position

    def append(self, piece: bytes, waiter: Waiter | None = None) -> None:
        """Put a record in its place; the waiter is told when it is on disk.

        Raises `LogForked`, `LogClosed`, and `LogUnavailable` when too much waits for the disk already.
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
        """Tell the waiter when all records so far are on disk. Raises as `append` does."""
        self.check()
        with self._lock:
            self._admit()
            self._waiters.append(waiter)
        self._wake()

    def _admit(self) -> None:
        """With the lock: raise `LogClosed` or `LogUnavailable` while no record is taken."""
        if self._ending:
            raise LogClosed("the record is closed")
        if self._queued > MOST_QUEUED:
            raise LogUnavailable(f"{self._queued:,} bytes wait for the disk; no record is taken until it has them")

    def end(self, waiter: Waiter) -> None:
        """Write what is there, close the log, and tell the waiter. Once."""
        self.check()
        with self._lock:
            self._ending = True
            self._waiters.append(waiter)
        self._wake()

    def abandon(self, waiter: Waiter) -> None:
        """Let go of the log without another word, and tell the waiter. Once, and nothing may have been written."""
        with self._lock:
            self._ending = self._abandoned = True
            self._waiters = [waiter]
        self._wake()

    def leave(self, why: str, waiter: Waiter) -> None:
        """Go on in a new segment, which says why."""
        with self._lock:
            self._leaving = why
            self._waiters.append(waiter)
        self._wake()

    def release(self) -> None:
        """Sign, from now on."""
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
        self._queued += len(piece)
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
            except Exception as error:  # noqa: BLE001  # the thread has to go on, or everybody waits for ever
                self._give_up([], OSError(f"{type(error).__name__}: {error}"))

    def _seconds_until_due(self) -> float | None:
        """Seconds until something is due although nobody asks."""
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
        """Write what is there."""
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
        """The last thing before whoever waits for the end is told."""
        self._swap(None)
        with suppress(OSError):
            self.segments.files.close(self.lock_descriptor)
        self._over = True

    @property
    def _closing_facts(self) -> dict[str, Any]:
        return {"bytes": self._synced.length}

    def _attempt(self, step: Callable[[], None]) -> OSError | None:
        """What went wrong, if anything."""
        try:
            step()
        except OSError as error:
            return error
        except Exception as error:  # noqa: BLE001  # a defect must not look like a record that was written
            return OSError(f"{type(error).__name__}: {error}")
        return None

    def _take_batch(self, *, finish: bool = False) -> Batch:
        """Everything that came in, as a batch; from here on records go behind it."""
        now = monotonic()
        with self._lock:
            lines, self._lines = self._lines, []
            self._unsynced += self._pieces
            self._unsynced_bytes += self._queued
            waiters, self._waiters = self._waiters, []
            self._pieces, self._queued = [], 0
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
        """Add a checkpoint if one is due; its note, or nothing."""
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
        except Exception as error:  # noqa: BLE001  # a signer may be anybody's
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
        """Write a batch, sync it if it is to be, and tell whoever waits for it."""
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

    def _note_sync(self, place: LineEnd) -> None:
        self._synced, self._unsynced_since = place, None
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _move_to(self, turn: NextSegment) -> None:
        """Go on in a new segment."""
        try:
            descriptor = self.segments.create(turn.opening, turn.line)
        except OSError:
            if self.segments.exists(
                turn.opening
            ):  # it is there, and may not survive a power cut: it has to be gone past
                self._base, self._synced, self._turned = turn.opening, turn.end, False
            raise
        self._swap(descriptor)
        self._base, self._synced, self._turned = turn.opening, turn.end, False

    def _swap(self, descriptor: int | None) -> None:
        """Use another descriptor; what the old one says to its end is of no interest, it was synced or is lost."""
        before, self._descriptor = self._descriptor, descriptor
        if before is not None:
            with suppress(OSError):
                self.segments.files.close(before)

    # -- when it failed ------------------------------------------------------------------------------------------------

    def _mend(self, waiters: list[Waiter], problem: OSError) -> None:
        """Write everything since the last sync into a new segment, or say that it cannot be written."""
        now = monotonic()
        if self._down is None or now - self._tried >= self.schedule.retry or self._ending:
            log.error("audit_segment_failed", error=str(problem))
            self._tried = now
            left = {"why": "failure", **self._closing_facts, "error": str(problem)[:200]}
            again = self._attempt(lambda: self._begin_anew(waiters, left))
            if again is None:
                return
            problem = again
        self._give_up(waiters, problem)

    def _begin_anew(self, waiters: list[Waiter], left: dict[str, Any]) -> None:
        """Write everything since the last sync into a new segment; `waiters` are then all who wait for it."""
        self._swap(None)
        strand = self.segments.next_position(self._base, self._synced)
        time = next((time for _, time in (*self._unsynced, *self._pieces[:1])), self.segments.now())
        line = self.segments.first_line(strand, None if self._turned else left, time)
        self._move_to(NextSegment(strand.opening, line, strand.end))
        with self._lock:
            self._down, self._position = None, strand
            if self._lost:
                self._lines = [strand.add(encode_log_record("log.lost", {"records": self._lost}), time)]
            else:
                self._lines = []
            self._pieces = self._unsynced + self._pieces
            self._queued += self._unsynced_bytes
            self._lines += [strand.add(*piece) for piece in self._pieces]
            waiters += self._waiters
            self._waiters = []
            self._unsynced, self._unsynced_bytes = [], 0
        batch = self._take_batch()
        waiters += batch.waiters
        batch.waiters, batch.sync = waiters, True
        self._carry_out(batch)
        self._lost = 0

    def _give_up(self, waiters: list[Waiter], problem: OSError) -> None:
        """Nothing can be written: say so to everybody who waits. If the log was to end, that was it."""
        self._swap(None)
        with self._lock:
            self._down = problem
            waiters = [*waiters, *self._waiters]
            self._lost += len(self._unsynced) + len(self._pieces)
            self._unsynced, self._unsynced_bytes, self._unsynced_since = [], 0, None
            self._lines, self._pieces, self._waiters, self._queued = [], [], [], 0
            self._uncovered_since = None
            ending = self._ending
        log.error("audit_unavailable", error=str(problem), lost=self._lost)
        if ending:
            self._close_log()
        resume_waiters(waiters, problem)


def resume_waiters(waiters: list[Waiter], result: Mark | OSError) -> None:
    """Let everybody go on who waited, each in their own event loop; one call for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[Mark]]] = {}
    for loop, future in waiters:
        loops.setdefault(loop, []).append(future)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(_set_results, futures, result)


def _set_results(futures: list[asyncio.Future[Any]], result: Mark | OSError) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(result, OSError):
            future.set_exception(LogUnavailable(str(result)))
        else:
            future.set_result(result)
