"""SQLite: one file, or memory, with one connection that only one thread touches.

A commit that returned survives a power cut: `synchronous=FULL` with the rollback journal in TRUNCATE mode, whose end is
synced as well (with DELETE the removal of the journal is not, and a commit may come undone). No write-ahead log: SQLite
before 3.51.3 can damage it when two processes write at once.

A new file gets its tables under another name and is then linked into place, so there never is half a store. A
`MemoryDatabase` has no file and ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

from amplifier_hooks.storage.change_signal import ChangeSignals, Watch
from amplifier_hooks.storage.database import (
    LIMIT,
    NOT_OPEN,
    VERSIONS,
    Check,
    CorruptStore,
    Migrations,
    Openable,
    Row,
    Script,
    Statement,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    Wake,
)
from amplifier_hooks.storage.state_folder import inspect_file, inspect_folder, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


T = TypeVar("T")


class Worker:
    """A thread with a queue, which does its work in order. It ends with the process, or after `end`.

    A pool of one thread would be slower: `run_in_executor` makes two futures for each call.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._open = True
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, work: Callable[[], T], limit: float | None = None) -> T:
        """Run work in the thread; return its result, or raise its error.

        Raises `StoreBusy` after `limit` seconds. At the limit or a cancellation, work that has not begun is dropped,
        and work that has begun runs to its end.
        """
        if not self._open:
            raise StoreClosed("the store is closed")
        result: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((result, work))
        timer = None if limit is None else self._loop.call_later(limit, _fail_late, result, limit)
        try:
            return await result
        finally:
            if timer is not None:
                timer.cancel()

    def end(self) -> None:
        """End the thread after the queued work. A second call does nothing."""
        if self._open:
            self._open = False
            self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            result, work = job
            if not result.done():  # read from another thread: at worst the work runs without a waiter
                try:
                    self._deliver(result, work(), None)
                except BaseException as error:  # noqa: BLE001  # the error belongs to the waiter
                    self._deliver(result, None, error)
            del job, result, work

    def _deliver(self, result: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_set, result, value, error)
        except RuntimeError:  # the loop is closed, and its waiters are gone
            self._open = False


def _set(result: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


def _fail_late(result: asyncio.Future[Any], limit: float) -> None:
    if not result.done():
        result.set_exception(StoreBusy(f"the store did not answer within {limit:g} seconds"))


APPLICATION: Final = 0x616D7068
"""Application id in the file's header, which marks the file as a store of this program."""

SETTINGS: Final = (
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA mmap_size = 0",
    "PRAGMA secure_delete = ON",  # purged rows leave the file, too
)
NUMBERS: Final = tuple(map(str, range(1, 33)))
"""Names of values: SQLite calls the value of `$1` just 1. By position, Python 3.12 warns of numbered values."""
POLL: Final = 0.02
"""Seconds between two checks for writes of other processes; SQLite is polled only while there are waiters."""


class SqliteDatabase(Openable):
    """A database in one file, or in memory if `path` is None."""

    def __init__(
        self, path: str | Path | None, *migrations: Migrations, limit: float = LIMIT, poll: float = POLL
    ) -> None:
        self.path = None if path is None else Path(path)
        self._migrations = migrations
        self._limit = limit
        self._poll = poll
        self._signals = ChangeSignals()
        self._thread: Worker | None = None
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._version = 0
        self._poller: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Open or create the file, check it, and update its tables. A second call does nothing.

        Raises `UnsafeStore`, `CorruptStore`, `SchemaMismatch` and other kinds of `StoreUnavailable`.
        """
        if self._thread is None:
            self._process = os.getpid()
            self._thread = Worker("sqlite")
            try:
                self._connection = await self._do(self._open, limit=None)
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Wake all waiters, and close the file after the work that has begun. A second call does nothing."""
        thread, self._thread = self._thread, None
        connection, self._connection = self._connection, None
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
        self._signals.notify_all()
        if thread is None or self._process != os.getpid():
            return  # the file belongs to the process that opened it; closing it here would drop its locks
        if connection is not None:
            closing = asyncio.ensure_future(thread.run(connection.close))
            try:
                await asyncio.wait({closing})  # a cancellation does not reach it: the queued work must be done first
            finally:
                closing.add_done_callback(lambda _: thread.end())
        else:
            thread.end()

    async def migrate(self, *migrations: Migrations) -> None:
        """Create or update the tables of further components."""
        await self._do(lambda: _migrate(self._open_connection, migrations))

    async def run(self, script: Script[T]) -> T:
        """Drive a script in one transaction, without leaving the thread in between, and return its result."""
        loop = asyncio.get_running_loop()

        def check(step: Check) -> None:
            asyncio.run_coroutine_threadsafe(step.run(), loop).result(self._limit)

        result, wakes = await self._do(lambda: _drive(self._open_connection, script, check))
        for wake in wakes:
            self._signals.notify(wake.topic, wake.news)
        return result

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement, and return its rows."""
        return await self._do(lambda: _execute(self._open_connection, sql, values))

    def tell(self, *topics: str) -> None:
        """Wake the watchers of topics, after a statement; those of other processes look by themselves."""
        for topic in topics:
            self._signals.notify(topic)

    @contextmanager
    def watch(self, topic: str | None = None) -> Iterator[Watch]:
        """Watch one topic, or all. A change by another process wakes all watchers."""
        with self._signals.watch(topic) as watch:
            if self.path is not None and self._thread is not None and self._poller is None:
                self._poller = asyncio.get_running_loop().create_task(self._look())
            yield watch

    async def _look(self) -> None:
        """Wake all watchers after writes of other processes, as long as there are watchers."""
        while self._signals and self._thread is not None:
            with suppress(StoreUnavailable):
                ((version,),) = await self.fetch("PRAGMA data_version")
                if version != self._version:
                    self._version = version
                    self._signals.notify_all()
            await asyncio.sleep(self._poll)
        self._poller = None

    # -- in the thread -------------------------------------------------------------------------------------------------

    @property
    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreClosed("the store is closed")
        return self._connection

    async def _do(self, work: Callable[[], T], *, limit: float | None = 0.0) -> T:
        """Run work in the thread, and return its result. None as limit waits for ever, 0 twice the store's limit."""
        if self._thread is None:
            raise StoreClosed(NOT_OPEN)
        if self._process != os.getpid():
            raise StoreClosed("the store was opened by another process; open it anew after a fork")
        return await self._thread.run(lambda: _translate_errors(work), 2 * self._limit if limit == 0.0 else limit)

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(":memory:", new=True)
        inspect_folder(self.path.parent)
        if not inspect_file(self.path):
            self._create(self.path)
            inspect_file(self.path)
        connection = self._connect(f"file:{quote(str(self.path))}?mode=rw")
        ((self._version,),) = connection.execute("PRAGMA data_version").fetchall()
        return connection

    def _create(self, path: Path) -> None:
        draft = path.with_name(f".{path.name}.{uuid4().hex}.new")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            self._connect(f"file:{quote(str(draft))}?mode=rw", new=True).close()
            with suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
        finally:
            for left in (draft, draft.with_name(f"{draft.name}-journal")):
                left.unlink(missing_ok=True)
        sync_folder(path.parent)

    def _connect(self, address: str, *, new: bool = False) -> sqlite3.Connection:
        """Return a connection that is set up, checked and migrated. Leaves none open on an error."""
        connection = sqlite3.connect(
            address, uri=True, timeout=self._limit, isolation_level=None, check_same_thread=False
        )
        try:
            for setting in SETTINGS:
                connection.execute(setting)
            if new:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
            _check(connection, address)
            _migrate(connection, self._migrations)
        except BaseException:
            connection.close()
            raise
        return connection


def _check(connection: sqlite3.Connection, address: str) -> None:
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    if application != APPLICATION:
        raise CorruptStore(f"{address} is a database of another program")
    ((verdict,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise CorruptStore(f"{address} is damaged: {verdict}")


def _migrate(connection: sqlite3.Connection, migrations: tuple[Migrations, ...]) -> None:
    """Bring every component to its newest version, each step in its own transaction, in which no other migrates."""
    _execute(connection, VERSIONS, ())
    for migration in migrations:
        while not _drive(connection, migration.take_step(), _refuse_check)[0]:
            pass


def _refuse_check(_step: Check) -> None:
    raise AssertionError("a migration has nothing to check")


def _drive(connection: sqlite3.Connection, script: Script[T], check: Callable[[Check], None]) -> tuple[T, list[Wake]]:
    """Drive the script to its end in one transaction, and return its result and its wakes."""
    connection.execute("BEGIN IMMEDIATE")
    wakes: list[Wake] = []
    rows: Any = None
    result: Any = None
    try:
        try:
            while True:
                step = script.send(rows)
                rows = []
                if isinstance(step, Wake):
                    wakes.append(step)
                elif isinstance(step, Statement):
                    rows = _execute(connection, step.sql, step.values)
                else:
                    check(step)
        except StopIteration as stop:
            result = stop.value
        connection.execute("COMMIT")
    except BaseException:
        script.close()
        _roll_back(connection)
        raise
    return result, wakes


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # the first error is on its way to the caller already
            connection.execute("ROLLBACK")


def _execute(connection: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> list[Row]:
    names = NUMBERS if len(values) <= len(NUMBERS) else map(str, range(1, len(values) + 1))
    return connection.execute(_without_schema(sql), dict(zip(names, values, strict=False))).fetchall()


@lru_cache(maxsize=256)
def _without_schema(sql: str) -> str:
    """Return the statement without schemas, which SQLite does not have."""
    return sql.replace("{schema}.", "")


def _translate_errors(work: Callable[[], T]) -> T:
    try:
        return work()
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(f"the store is locked by another process: {problem}") from problem
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise CorruptStore(f"the store is damaged: {problem}") from problem
        raise StoreUnavailable(f"store_unavailable: {problem}") from problem
    except OSError as problem:
        raise StoreUnavailable(f"store_unavailable: {problem}") from problem


class MemoryDatabase(SqliteDatabase):
    """A SQLite database in memory, for tests and short lives. No other process can see it."""

    def __init__(self, *migrations: Migrations) -> None:
        super().__init__(None, *migrations)
