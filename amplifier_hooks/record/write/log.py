"""The record as files: lines that are chained and signed, appended by one writer, readable by their owner only."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import Head, MarkedStore
from amplifier_hooks.record.format.encode_facts import Encoder, Heavy, Redactor
from amplifier_hooks.record.record_errors import LogCut, LogHangs, LogUnavailable, StoreReplaced
from amplifier_hooks.record.write.beside_the_log import MARKED, last_mark
from amplifier_hooks.record.write.log_files import AuditKey, Files
from amplifier_hooks.record.write.segments import Segments, hash_at
from amplifier_hooks.record.write.writer import LogWriter, Mark, WriteSchedule
from amplifier_hooks.text.escape import clip, for_log
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from amplifier_hooks.ports import Clock, HeadStore, StoreMark
    from amplifier_hooks.record.format.checkpoint import Signer


log = get_logger(__name__)

DISK_TIMEOUT: Final = 4.0
"""Seconds a record may wait for the disk."""

LOOKS: Final = 8
"""Times that whoever waits is looked after meanwhile."""

LONGEST_NAME: Final = 256

ACCEPT: Final = "amplifier-hooks audit accept"
"""The command that does what the arguments do."""

Waiting = deque[tuple[float, asyncio.Future[Mark]]]
"""Until when somebody waits for the disk, the first one first."""


class AuditLog:
    """A log that shows whether somebody changed it. One process writes to it, for any number of sessions.

    A record is on disk within a second; with `durable`, when `write` returns. What is not written raises, and what
    was to follow is denied. Sessions never close it: close it behind the last one, or use it as an async context
    manager around them.
    """

    def __init__(
        self,
        writer: LogWriter,
        encoder: Encoder,
        path: Path,
        *,
        patience: float = DISK_TIMEOUT,
        heads: HeadStore | None = None,
        anchor: Callable[[str], Awaitable[None] | None] | None = None,
        accept_cut: bool = False,
        accept_store: bool = False,
    ) -> None:
        self.path = path
        self._writer = writer
        self._encode = encoder.encode
        self._timeout = patience
        self._heads = heads
        self._anchor = anchor
        self._marks = heads if isinstance(heads, MarkedStore) else None
        self._accept_cut = accept_cut
        self._accept_store = accept_store
        self._pool = DaemonPool(1, "audit-encoding")
        self._elsewhere = heads is not None or anchor is not None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[asyncio.AbstractEventLoop, Waiting] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._compared: asyncio.Task[None] | None = None
        self._unmarked = False
        self._closed = False
        writer.on_checkpoint = self._tell

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        key: Signer | str | Path | None = None,
        signed: bool = True,
        tenant: str = "",
        session: str = "",
        redact: bool = True,
        known: Iterable[str] = (),
        heads: HeadStore | None = None,
        anchor: Callable[[str], Awaitable[None] | None] | None = None,
        accept_cut: bool = False,
        accept_store: bool = False,
        patience: float = DISK_TIMEOUT,
        pace: WriteSchedule | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> AuditLog:
        """Go on with a log, made if it is not there; how the last writer ended is put right, and said in it.

        Args:
            path: The log's first file. Its folder has to be one in which only its owner can put files.
            key: What signs it, or the file of an `AuditKey`: `audit.key` in the same folder, made if it is not there.
            signed: Whether it is signed at all.
            tenant: Whose log it is, if it is the log of one tenant.
            session: The same for one session.
            redact: Whether secrets are hidden; see `Redactor`.
            known: Secrets to hide, by their value.
            heads: Where the head of the chain is kept as well. A log that lacks what is known there is not written. A
                `MarkedStore` is known to the log in turn: beside an older copy of it the log is not written either.
            anchor: Called with every signed note that is on disk.
            accept_cut: Go on with a log that lacks what `heads` knows, in a new segment that says so.
            accept_store: Go on beside a store that is not the one, or not as far as, the log knows; the log says so.
            patience: Seconds a record may wait for the disk.
            pace: How often it is signed and synced, and when the next segment begins.
            clock: The time of day.
            files: The file system.

        Raises `LogInUse`, `UnsafeLog`, and `OSError` when it cannot be opened or made. Reads the last segment, so it
        takes a moment for a large one.
        """
        path, files = Path(path), Files() if files is None else files
        descriptor = files.lock(path.with_name(f".{path.name}.lock"))
        try:
            signer = None if not signed else _signer(path, key)
            segments = Segments(files, path, clock or SystemClock(), signer, _name(tenant), _name(session), _version())
        except BaseException:
            files.close(descriptor)
            raise
        writer = LogWriter(segments, pace or WriteSchedule(), descriptor, held=heads is not None)
        writer.start()
        hiding = _hash_key(signer, writer.position.opening.log)
        encoder = Encoder(Redactor(hiding, known=known) if redact else None)
        return cls(
            writer,
            encoder,
            path,
            patience=patience,
            heads=heads,
            anchor=anchor,
            accept_cut=accept_cut,
            accept_store=accept_store,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record; with `durable`, return when it would survive a power cut.

        Any value is taken: what JSON cannot hold is replaced by what it is. Do not change the facts meanwhile.

        Raises `LogUnavailable`. Cancelling it may leave the record written, or not.
        """
        try:
            piece = self._encode(kind, facts)
        except Heavy:
            piece = await self._pool.run(self._encode, kind, facts, patient=True)
        if self._elsewhere:
            self._loop = asyncio.get_running_loop()
            await self._compare_once()
            self._unmarked = True
        if durable or self._writer.down:
            await self._begin_write(self._writer.append, piece)
        else:
            self._writer.append(piece)

    async def check(self) -> None:
        """Return if a durable record could be written now: the log is open, fits the store, and the disk answers.

        Raises `LogClosed`, `LogCut`, `StoreReplaced`, `LogHangs`, and other kinds of `LogUnavailable`, as long as
        records are refused.
        """
        await self._compare_once()
        await self._begin_write(self._writer.flush)

    async def close(self) -> None:
        """Write what is there, sign it, say that the log is closed, and let go of it. Twice is harmless.

        Raises `LogUnavailable` when that cannot be written. Cancelling it does not stop it.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._compare_once()
        except LogUnavailable:
            await self._begin_write(self._writer.abandon)
            raise
        if self._unmarked and self._marks is not None:
            await asyncio.wait({asyncio.ensure_future(self._mark(self._marks))}, timeout=self._timeout)
        await self._begin_write(self._writer.end)
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=self._timeout)

    def _begin_write(self, begin: Callable[..., None], *given: Any) -> asyncio.Future[Mark]:
        """Begin something, and what to wait on until the disk has it; that raises `LogHangs` when it takes too long."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Mark] = loop.create_future()
        begin(*given, (loop, future))
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = deque()
            loop.call_later(self._timeout / LOOKS, self._check_deadlines, loop, waiting)
        while waiting and waiting[0][1].done():
            waiting.popleft()
        waiting.append((loop.time() + self._timeout, future))
        return future

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop, waiting: Waiting) -> None:
        """One look for all who wait in a loop, instead of a timer for each."""
        while waiting and (waiting[0][1].done() or waiting[0][0] <= loop.time()):
            _, future = waiting.popleft()
            if not future.done():
                future.set_exception(LogHangs(f"the disk did not take it within {self._timeout:g} s"))
        if waiting:
            loop.call_later(self._timeout / LOOKS, self._check_deadlines, loop, waiting)
        else:
            del self._waiting[loop]

    # -- elsewhere -----------------------------------------------------------------------------------------------------

    def _tell(self, mark: Mark) -> None:
        """In the writer's thread: a checkpoint is on disk."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._publish, mark)

    def _publish(self, mark: Mark) -> None:
        task = asyncio.ensure_future(self._store_head(mark))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _store_head(self, mark: Mark) -> None:
        try:
            if self._heads is not None:
                await self._heads.put(Head(**mark._asdict()))
            if self._anchor is not None:
                told = self._anchor(mark.note)
                if inspect.isawaitable(told):
                    await told
            if self._marks is not None and self._unmarked and not self._closed:
                await self._mark(self._marks)
        except Exception as error:  # noqa: BLE001  # the line is on disk; the next head says all this one does
            log.error("audit_head_not_kept", size=mark.size, error=f"{type(error).__name__}: {error}")  # noqa: TRY400

    async def _mark(self, store: MarkedStore) -> None:
        """Let the store count, and keep how far it has. Only for what was written since: a mark is no news itself."""
        self._unmarked = False
        try:
            mark = await store.mark()
            self._writer.append(self._encode(MARKED, attrs.asdict(mark)))
        except Exception as error:  # noqa: BLE001  # the next mark says all this one does
            self._unmarked = True
            log.error("audit_store_not_marked", error=f"{type(error).__name__}: {error}")  # noqa: TRY400

    async def _compare_once(self) -> None:
        """Before anything is written: compare the files with what is kept elsewhere.

        Raises `LogCut`, `StoreReplaced`; and `LogUnavailable` when that cannot be read, to be tried again with the next
        record.
        """
        if self._heads is None:
            return
        if self._compared is None or (self._compared.done() and self._compared.exception() is not None):
            self._compared = asyncio.ensure_future(self._compare(self._heads))
        await asyncio.shield(self._compared)

    async def _compare(self, heads: HeadStore) -> None:
        try:
            head = await heads.latest(self._writer.position.opening.log)
            mark = None if self._marks is None else await self._marks.latest_mark()
        except Exception as error:
            raise LogUnavailable(f"the head of the record cannot be read: {error}") from error
        known = None if self._marks is None else await self._pool.run(last_mark, self.path)
        replaced = known is not None and (mark is None or mark.store != known.store or mark.number < known.number)
        if known is not None and replaced and not self._accept_store:
            raise StoreReplaced(
                f"{self.path} was written beside {_mark_text(known)}, and the store that is there is {_mark_text(mark)}; "
                f"put the right one back, or find out why and go on beside this one: {ACCEPT}, or accept_store=True"
            )
        if head is not None and await self._pool.run(hash_at, self.path, head.segment, head.size) != head.head:
            await self._record_cut(head)
        self._writer.release()
        if known is not None and replaced:
            log.error("audit_store_accepted", path=str(self.path), known=_mark_text(known), found=_mark_text(mark))
            facts = {"known": attrs.asdict(known), "found": mark and attrs.asdict(mark)}
            await self._begin_write(self._writer.append, self._encode("store.accepted", facts))
            self._unmarked = True

    async def _record_cut(self, head: Head) -> None:
        """The log lacks what the store knows. Raises `LogCut`, unless that was accepted."""
        known = f"line {head.size} of segment {head.segment}"
        if not self._accept_cut:
            raise LogCut(
                f"{self.path} has not got {known} as it was; keep what is there, find out why, and go on in a new "
                f"segment: {ACCEPT}, or accept_cut=True"
            )
        log.error("audit_cut_accepted", path=str(self.path), size=head.size)
        await self._begin_write(self._writer.leave, "cut")


def _mark_text(mark: StoreMark | None) -> str:
    return "one that was never marked" if mark is None else f"the store {clip(mark.store, 8)} at mark {mark.number}"


def _signer(path: Path, key: Signer | str | Path | None) -> Signer:
    if key is None:
        return AuditKey.open(path.with_name("audit.key"))
    return AuditKey.open(key) if isinstance(key, str | Path) else key


def _hash_key(signer: Signer | None, log_id: str) -> bytes:
    """The key that secrets are hashed under. Of a foreign signer there is none: then equal ones look equal for now."""
    return signer.hash_key(log_id) if isinstance(signer, AuditKey) else secrets.token_bytes(32)


def _name(text: str) -> str:
    return clip(for_log(text), LONGEST_NAME)


def _version() -> str:
    from importlib.metadata import version  # as slow to import as all the rest

    return version("amplifier-hooks")
