"""The record as files: one writer appends chained and signed lines, and only the files' owner can read them.

`StoredHeads` keeps the head of each log in a database, so that an attacker who cuts or rewrites a log would have to
change the database, too. The database counts marks, and the log holds the last one: `last_mark` shows a replaced store.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import define, field
from msgspec.structs import asdict, replace

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import Head, MarkedStore, StoreMark
from amplifier_hooks.record.encode_facts import Encoder, Heavy, Redactor
from amplifier_hooks.record.line import read, unseal
from amplifier_hooks.record.log_files import AuditKey, Files, Segments, file_of, hash_at, inspect_folder, numbers_of
from amplifier_hooks.record.read_segment import open_segment
from amplifier_hooks.record.record_errors import (
    HeadConflict,
    LogCut,
    LogHangs,
    LogUnavailable,
    MalformedLine,
    StoreReplaced,
    problem_text,
)
from amplifier_hooks.record.writer import LogWriter, WriteSchedule
from amplifier_hooks.storage.database import Migrations, Statement
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from amplifier_hooks.ports import Clock, HeadStore
    from amplifier_hooks.record.line import Signer
    from amplifier_hooks.storage.database import Database, Script


log = get_logger(__name__)

DISK_TIMEOUT: Final = 4.0
"""Timeout, in seconds, of a record that waits for the disk."""

LOOKS: Final = 8
"""Number of times that deadlines are checked within one timeout."""

LONGEST_NAME: Final = 256

ACCEPT: Final = "amplifier-hooks audit accept"
"""Command line that does the same as `accept_cut` and `accept_store`."""

MARKED: Final = "store.marked"
"""Kind of the line that holds a mark."""

_KIND: Final = f'"kind":"{MARKED}"'.encode("ascii")
_NEAR: Final = 100
"""Bytes at the start of a line that include its kind."""


@define(eq=False, slots=False)
class AuditLog:
    """A tamper-evident log. One process writes to it, for any number of sessions.

    A record is on disk within a second; with `durable`, when `write` returns. `write` raises if a record cannot be
    written, and the session denies the act that was to follow. Sessions never close the log: close it after the last
    session, or use it as an async context manager around them.
    """

    _writer: LogWriter
    """Writes the lines of the log; `open` makes it."""
    _encoder: Encoder
    """Turns records into lines; `open` makes it."""
    path: Path
    """The log's first file."""
    _timeout: float
    """Seconds that a record may wait for the disk."""
    _heads: HeadStore | None
    """A second store of the chain's head; None for a log without one."""
    _anchor: Callable[[str], Awaitable[None] | None] | None
    """A function that receives every signed note that is on disk."""
    _accept_cut: bool
    """True to resume a log that lacks lines that `heads` knows."""
    _accept_store: bool
    """True to resume beside another store than the log knows, or an older copy of it."""
    _pool: DaemonPool = field(init=False, factory=partial(DaemonPool, 1, "audit-encoding"))
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _watched: set[asyncio.AbstractEventLoop] = field(init=False, factory=set)
    """Loops with a timer that looks for callers who wait too long."""
    _publishing: set[asyncio.Task[None]] = field(init=False, factory=set)
    _comparison: asyncio.Task[None] | None = field(init=False, default=None)
    _unmarked: bool = field(init=False, default=False)
    _closed: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._encode = self._encoder.encode
        self._marks = self._heads if isinstance(self._heads, MarkedStore) else None
        self._elsewhere = self._heads is not None or self._anchor is not None
        self._writer.on_checkpoint = self._tell

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        key: Signer | str | Path | None = None,
        tenant: str = "",
        session: str = "",
        redact: bool = True,
        secrets: Iterable[str] = (),
        heads: HeadStore | None = None,
        anchor: Callable[[str], Awaitable[None] | None] | None = None,
        accept_cut: bool = False,
        accept_store: bool = False,
        timeout: float = DISK_TIMEOUT,
        pace: WriteSchedule | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> AuditLog:
        """Resume a log, or create it. Repairs and records an unclean end that the last writer left.

        Args:
            path: The log's first file. Only its owner may be able to put files into its folder.
            key: The signer, or the file of an `AuditKey`. The default is `audit.key` in the log's folder, created if
                it is missing.
            tenant: The tenant, if the log belongs to one tenant.
            session: The session, if the log belongs to one session.
            redact: True to hide secrets; see `Redactor`.
            secrets: Secrets to hide, by their value.
            heads: A second store of the chain's head. A log that lacks lines that `heads` knows is not written. A log
                beside a `MarkedStore` also remembers the store's marks, and is not written beside an older copy of it.
            anchor: A function that receives every signed note that is on disk.
            accept_cut: True to resume a log that lacks lines that `heads` knows, in a new segment that says so.
            accept_store: True to resume beside another store than the log knows, or an older copy of it; the log says
                so.
            timeout: Timeout, in seconds, of a record that waits for the disk.
            pace: The schedule of checkpoints, syncs and segments.
            clock: The time of day.
            files: The file system.

        Raises `LogInUse`, `UnsafeLog`, and `OSError` if the log cannot be opened or created. Reads the last segment,
        so a large segment takes a moment.
        """
        path, files = Path(path), Files() if files is None else files
        inspect_folder(path.parent)
        signer = _signer(path, key)
        segments = Segments(files, path, clock or SystemClock(), signer, _name(tenant), _name(session), _version())
        writer = LogWriter(segments, pace or WriteSchedule(), held=heads is not None)
        writer.start()
        hiding = _hash_key(signer, writer.log_id)
        encoder = Encoder(Redactor(hiding, secrets=secrets) if redact else None)
        return cls(writer, encoder, path, timeout, heads, anchor, accept_cut, accept_store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record; with `durable`, return when it would survive a power cut.

        Accepts any value, and describes values that JSON cannot hold. The caller must not change the facts meanwhile.

        Raises `LogUnavailable`. After a cancellation the record may or may not be written.
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
        """Check that a durable record could be written now: the log is open, fits the store, and the disk answers.

        Raises `LogClosed`, `LogCut`, `StoreReplaced`, `LogHangs`, and other kinds of `LogUnavailable`, as long as the
        log refuses records.
        """
        await self._compare_once()
        await self._begin_write(self._writer.append, None)

    async def close(self) -> None:
        """Write and sign all records, record that the log is closed, and release the files. A second call does nothing.

        Raises `LogUnavailable` if the end cannot be written. Cancelling the call does not stop the closing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._compare_once()
        except LogUnavailable:
            await self._begin_write(partial(self._writer.end, abandon=True))
            raise
        if self._unmarked and self._marks is not None:
            await asyncio.wait({asyncio.ensure_future(self._mark(self._marks))}, timeout=self._timeout)
        await self._begin_write(self._writer.end)
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=self._timeout)

    def _begin_write(self, begin: Callable[..., None], *arguments: Any) -> asyncio.Future[None]:
        """Call `begin` and return a future that ends when the disk is done, or raises `LogHangs` at the timeout."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        begin(*arguments, (loop, future, loop.time()))
        if loop not in self._watched:
            self._watched.add(loop)
            loop.call_later(self._timeout / LOOKS, self._check_deadlines, loop)
        return future

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the deadlines of all callers of a loop at once, instead of with a timer for each."""
        late = loop.time() - self._timeout
        waiting = [one for one in self._writer.waiting() if one[0] is loop and not one[1].done()]
        for _, future, since in waiting:
            if since <= late:
                future.set_exception(LogHangs(f"the disk did not take it within {self._timeout:g} s"))
        if waiting:
            loop.call_later(self._timeout / LOOKS, self._check_deadlines, loop)
        else:
            self._watched.discard(loop)

    # -- stores of heads -----------------------------------------------------------------------------------------------

    def _tell(self, head: Head) -> None:
        """Publish a checkpoint that is on disk. The writer's thread calls this."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._publish, head)

    def _publish(self, head: Head) -> None:
        task = asyncio.ensure_future(self._store_head(head))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _store_head(self, head: Head) -> None:
        try:
            if self._heads is not None:
                await self._heads.put(replace(head, place=place_of(self.path)))
            if self._anchor is not None:
                told = self._anchor(head.note)
                if inspect.isawaitable(told):
                    await told
            if self._marks is not None and self._unmarked and not self._closed:
                await self._mark(self._marks)
        except Exception as error:  # noqa: BLE001  # the line is on disk; the next head covers this one
            log.error("audit_head_not_kept", size=head.size, error=problem_text(error))  # noqa: TRY400

    async def _mark(self, store: MarkedStore) -> None:
        """Let the store count, and append its mark to the log. The mark itself does not ask for another mark."""
        self._unmarked = False
        try:
            mark = await store.mark()
            self._writer.append(self._encode(MARKED, asdict(mark)))
        except Exception as error:  # noqa: BLE001  # the next mark covers this one
            self._unmarked = True
            log.error("audit_store_not_marked", error=problem_text(error))  # noqa: TRY400

    async def _compare_once(self) -> None:
        """Compare the files with the store, before the first record is written.

        Raises `LogCut` and `StoreReplaced`. Raises `LogUnavailable` if the store cannot be read; the next record then
        tries again.
        """
        if self._heads is None:
            return
        if self._comparison is None or (self._comparison.done() and self._comparison.exception() is not None):
            self._comparison = asyncio.ensure_future(self._compare(self._heads))
        await asyncio.shield(self._comparison)

    async def _compare(self, heads: HeadStore) -> None:
        try:
            head = await heads.latest(self._writer.log_id)
            mark = None if self._marks is None else await self._marks.latest_mark()
            if head is None and self._marks is not None:
                head = await self._marks.at(place_of(self.path))
        except Exception as error:
            raise LogUnavailable(f"the head of the record cannot be read: {problem_text(error)}") from error
        known = None if self._marks is None else await self._pool.run(last_mark, self.path)
        replaced = known is not None and (mark is None or mark.store != known.store or mark.number < known.number)
        if known is not None and replaced and not self._accept_store:
            raise StoreReplaced(
                f"{self.path} was written beside {_mark_text(known)}, and the store that is there is "
                f"{_mark_text(mark)}; put the right one back, name another record, or find out why and go on beside "
                f"this one: {ACCEPT}, or accept_store=True"
            )
        if head is not None and not await self._pool.run(self._reaches, head):
            await self._record_cut(head)
        self._writer.release()
        if known is not None and replaced:
            log.error("audit_store_accepted", path=str(self.path), known=_mark_text(known), found=_mark_text(mark))
            facts = {"known": asdict(known), "found": mark and asdict(mark)}
            await self._begin_write(self._writer.append, self._encode("store.accepted", facts))
            self._unmarked = True

    def _reaches(self, head: Head) -> bool:
        """Return True if the log has the line of a head, with the same hash."""
        return head.log == self._writer.log_id and hash_at(self.path, head.segment, head.size) == head.head

    async def _record_cut(self, head: Head) -> None:
        """Begin a new segment, because the log lacks lines of the store. Raises `LogCut` unless `accept_cut`."""
        known = f"line {head.size} of segment {head.segment} of the log {clip(for_log(head.log), 40)}"
        if not self._accept_cut:
            raise LogCut(
                f"{self.path} has not got {known} as it was; keep what is there, find out why, and go on in a new "
                f"segment: {ACCEPT}, or accept_cut=True"
            )
        log.error("audit_cut_accepted", path=str(self.path), size=head.size)
        await self._begin_write(self._writer.leave, "cut")


def _mark_text(mark: StoreMark | None) -> str:
    return "one that was never marked" if mark is None else f"the store {mark.store[:8]} at mark {mark.number}"


def _signer(path: Path, key: Signer | str | Path | None) -> Signer:
    if key is None:
        return AuditKey.open(path.with_name("audit.key"))
    return AuditKey.open(key) if isinstance(key, str | Path) else key


def _hash_key(signer: Signer, log_id: str) -> bytes:
    """Return the key that hashes secrets. With a foreign signer it is random, and new each time the log is opened."""
    return signer.hash_key(log_id) if isinstance(signer, AuditKey) else secrets.token_bytes(32)


def _name(text: str) -> str:
    return clip(for_log(text), LONGEST_NAME)


def _version() -> str:
    from importlib.metadata import version  # as slow to import as all the rest

    return version("amplifier-hooks")


# -- heads and marks in a database -------------------------------------------------------------------------------------


HEADS: Final = Migrations(
    component="audit_heads",
    steps=(
        (
            """
            CREATE TABLE {schema}.audit_heads (
                log TEXT PRIMARY KEY, segment BIGINT NOT NULL, size BIGINT NOT NULL, head TEXT NOT NULL,
                note TEXT NOT NULL, place TEXT NOT NULL
            )
            """,
            "CREATE TABLE {schema}.audit_store (one INTEGER PRIMARY KEY, store TEXT NOT NULL, number BIGINT NOT NULL)",
        ),
    ),
)
"""Tables of heads and marks, for the database to open with: `SqliteDatabase(path, HEADS)`."""

COLUMNS: Final = "log, segment, size, head, note, place"


class StoredHeads:
    """A `MarkedStore` on any database of `storage`. It belongs to the event loop that opened the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def beside(cls, database: Database) -> Self:
        """Return a head store in an open database that also holds the data that the log is about.

        The log then notices if one of the two is replaced without the other. Raises `StoreUnavailable`.
        """
        await database.migrate(HEADS)
        return cls(database)

    async def latest(self, log: str) -> Head | None:
        """Return the latest head of a log, or None. Raises `StoreUnavailable`."""
        return await self._find("log", log)

    async def at(self, place: str) -> Head | None:
        """Return the latest head of the log that was last written at a place, or None. Raises `StoreUnavailable`."""
        return await self._find("place", place)

    async def _find(self, column: str, value: str) -> Head | None:
        query = f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE {column} = $1"  # noqa: S608
        rows = await self._database.fetch(query, value)
        return _head(rows[0]) if rows else None

    async def put(self, head: Head) -> None:
        """Store a head, unless a later one is stored.

        Raises `HeadConflict` and `StoreUnavailable`. After a cancellation the head may or may not be stored.
        """
        await self._database.run(_write_head(head))

    async def latest_mark(self) -> StoreMark | None:
        """Return the store's latest mark, or None. Raises `StoreUnavailable`."""
        rows = await self._database.fetch("SELECT store, number FROM {schema}.audit_store")
        return StoreMark(store=rows[0][0], number=rows[0][1]) if rows else None

    async def mark(self) -> StoreMark:
        """Count one mark further and return it. Raises `StoreUnavailable`.

        After a cancellation the store may or may not have counted.
        """
        return await self._database.run(_count_mark(secrets.token_hex(8)))


def _write_head(head: Head) -> Script[None]:
    values = (head.log, head.segment, head.size, head.head, head.note, head.place)
    yield Statement(
        f"INSERT INTO {{schema}}.audit_heads ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (log) DO NOTHING",  # noqa: S608
        values,
    )
    lock = f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE log = $1"  # noqa: S608
    (row,) = yield Statement(lock, (head.log,))
    kept = _head(row)
    if (kept.segment, kept.size) == (head.segment, head.size) and kept.head != head.head:
        raise HeadConflict(head.log, head.segment, head.size)
    yield Statement(
        "UPDATE {schema}.audit_heads SET segment = $2, size = $3, head = $4, note = $5, place = $6 "
        "WHERE log = $1 AND (segment < $2 OR (segment = $2 AND size < $3))",
        values,
    )
    yield Statement("UPDATE {schema}.audit_heads SET place = '' WHERE place = $1 AND log <> $2", (head.place, head.log))


def _count_mark(name: str) -> Script[StoreMark]:
    """Count one mark further. A store that has never counted gets its name."""
    ((store, number),) = yield Statement(
        "INSERT INTO {schema}.audit_store AS s (one, store, number) VALUES (1, $1, 1) "
        "ON CONFLICT (one) DO UPDATE SET number = s.number + 1 RETURNING store, number",
        (name,),
    )
    return StoreMark(store=store, number=number)


def _head(row: Sequence[Any]) -> Head:
    log, segment, size, head, note, place = row
    return Head(log=log, segment=segment, size=size, head=head, note=note, place=place)


def place_of(path: Path) -> str:
    """Return the name of a log's place: the host, and the path of the first file."""
    return f"{socket.gethostname()}:{os.path.realpath(path)}"


def last_mark(path: Path) -> StoreMark | None:
    """Return the last mark in a log, or None. Reads segments from the last one backwards until one has a mark.

    Raises `OSError` if a segment cannot be read.
    """
    for number in reversed(numbers_of(path)):
        found = None
        with open_segment(file_of(path, number)) as pages:
            for line in pages.lines():
                if _KIND in line[:_NEAR]:
                    found = _mark_in(line) or found
        if found is not None:
            return found
    return None


def _mark_in(line: bytes) -> StoreMark | None:
    try:
        facts = read(unseal(line)[0]).facts
    except MalformedLine:
        return None
    store, number = facts.get("store"), facts.get("number")
    return StoreMark(store=store, number=number) if isinstance(store, str) and isinstance(number, int) else None
