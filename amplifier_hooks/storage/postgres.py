"""PostgreSQL: a pool of connections, and one that listens.

A notification only wakes. A listener that loses its connection connects again and wakes all waiters, which it also does
every few seconds. A pooler that hands out connections for a transaction does not pass notifications on: use
`wakeup="poll"` there, or a `listen_dsn` that leads around the pooler.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.storage.change_signal import ChangeSignals, Watch
from amplifier_hooks.storage.database import (
    LIMIT,
    NOT_OPEN,
    VERSIONS,
    Check,
    Migrations,
    Openable,
    Row,
    Script,
    Statement,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    UnsafeStore,
    Wake,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractContextManager

    import asyncpg


T = TypeVar("T")

RECHECK: Final = 5.0
"""Seconds after which waiters are woken without a notification."""
POLL: Final = 0.25
"""Seconds between two wakes with `wakeup="poll"`."""
AGAIN: Final = 0.25
"""Seconds before a lost listener connects again; twice as many after each failure, and by chance up to half less."""
GATHER: Final = 0.005
"""Seconds for which notifications are gathered that no watcher on another machine waits for in particular."""
DSN_PARTS: Final = re.compile(r"(\w+://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)
NOTIFY: Final = "SELECT pg_notify($1, topic) FROM unnest($2::text[]) AS topic"
ALONE: Final = "SELECT pg_advisory_xact_lock($1)"
LOCK: Final = 0x616D7068
"""Number of the advisory lock for migrations."""
CHANCE: Final = SystemRandom()
"""Chance of its own: a host, or a test, may have seeded the common one, and count on it."""


class PostgresDatabase(Openable):
    """A database that many machines share. Its tables live in their own schema, written `{schema}` in statements."""

    def __init__(
        self,
        dsn: str,
        *migrations: Migrations,
        schema: str = "amplifier_hooks",
        wakeup: Literal["listen", "poll"] = "listen",
        listen_dsn: str | None = None,
        connections: int = 8,
        limit: float = LIMIT,
        recheck: float = RECHECK,
        poll: float = POLL,
        chance: Callable[[float, float], float] = CHANCE.uniform,
    ) -> None:
        self.schema = schema
        self._hosts = host_dsns(dsn)
        self._listen_hosts = self._hosts if listen_dsn in (None, dsn) else host_dsns(listen_dsn)
        self._migrations = migrations
        self._wakeup = wakeup
        self._connections = connections
        self._limit = limit
        self._recheck = recheck if wakeup == "listen" else poll
        self._signals = ChangeSignals()
        self._quoted_schema = '"' + schema.replace('"', '""') + '"'
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._untold: dict[str, None] = {}
        """Topics that other machines are not notified of yet."""
        self._stir: Callable[[], None] = _stay
        """Wakes the listener, which notifies other machines."""
        self._gathering = False
        self._chance = chance
        self._pause = AGAIN
        self._ear: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Connect, create or migrate the tables, and listen. A second call does nothing.

        Raises `UnsafeStore` if a commit may come undone, `SchemaMismatch`, other kinds of `StoreUnavailable`, and
        `MissingExtra`.
        """
        if self._pool is None:
            # The import would hold up the event loop.
            await asyncio.to_thread(MissingExtra.load, "asyncpg", "PostgreSQL", "postgres")
            import asyncpg

            async with translate_errors():
                self._pool = await asyncpg.create_pool(
                    connect=self._connect,
                    min_size=1,
                    max_size=self._connections,
                    reset=_do_nothing,  # a connection has no settings, cursors or locks to reset; transactions end
                    # Behind a pooler the next statement may reach another connection without the prepared statement.
                    statement_cache_size=100 if self._wakeup == "listen" else 0,
                )
            try:
                await self.run(self._prepare())
                await self.migrate(*self._migrations)
            except BaseException:
                await self.close()
                raise
            self._ear = asyncio.get_running_loop().create_task(self._listen())
        return self

    async def close(self) -> None:
        """Close all connections, and wake all waiters. A second call does nothing."""
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.cancel()
            await asyncio.wait({ear})
            await self._tell_others()
        self._gathering = False
        pool, self._pool = self._pool, None
        self._signals.notify_all()
        if pool is not None:
            with suppress(Exception):  # the server may be gone; there is nothing left to lose
                await asyncio.wait_for(pool.close(), self._limit)

    async def migrate(self, *migrations: Migrations) -> None:
        """Create or update the tables of further components."""
        for migration in migrations:
            while not await self.run(_take_step(migration)):
                pass

    async def run(self, script: Script[T]) -> T:
        """Drive a script in one transaction, and return its result. Notifications go out after its commit."""
        wakes: list[Wake] = []

        async def drive(connection: Any) -> T:
            async with connection.transaction():
                return await self._run_script(connection, script, wakes)

        try:
            result = await self._use_connection(drive)
        finally:
            script.close()
        for wake in wakes:
            self.tell(wake.topic, news=wake.news)
        return result

    async def _run_script(self, connection: Any, script: Script[T], wakes: list[Wake]) -> T:
        """Drive the script to its end, and return its result. Adds its wakes to `wakes`."""
        rows: Any = None
        try:
            while True:
                step = script.send(rows)
                rows = []
                if isinstance(step, Wake):
                    wakes.append(step)
                elif isinstance(step, Check):
                    await step.run()
                else:
                    rows = await connection.fetch(self._sql(step.sql), *step.values)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement, and return its rows."""
        rows: list[Row] = await self._use_connection(lambda connection: connection.fetch(self._sql(sql), *values))
        return rows

    def tell(self, *topics: str, news: Any = None, late: bool = False) -> None:
        """Wake the watchers of topics, after a commit: in this process at once, and on other machines soon.

        Other machines learn of a topic that is watched here `GATHER` seconds later, because its usual waiter is here. A
        transaction that notifies by itself would be slower: the server commits those one by one.

        Args:
            topics: Topics that changed.
            news: State that was committed; the watchers in this process then need not read it again.
            late: True if the topics have no watcher of their own on any machine.
        """
        prompt = False
        for topic in topics:
            watched = self._signals.notify(topic, news)
            prompt = prompt or not (watched or late)
            self._untold[topic] = None
        if prompt:
            self._stir()
        elif not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_later(GATHER, self._end_gathering)

    def _end_gathering(self) -> None:
        self._gathering = False
        if self._untold:
            self._stir()

    def watch(self, topic: str | None = None) -> AbstractContextManager[Watch]:
        """Watch one topic, or all."""
        return self._signals.watch(topic)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _sql(self, text: str) -> str:
        return text.replace("{schema}", self._quoted_schema)

    async def _use_connection(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do work with a connection of the pool. Context managers would cost as much as the pool itself."""
        pool = self._pool
        if pool is None:
            raise StoreClosed(NOT_OPEN)
        try:
            # A timeout costs a task of its own, and a connection that is idle is there at once.
            connection = await pool.acquire(timeout=None if pool.get_idle_size() else self._limit)
            try:
                return await work(connection)
            finally:
                await pool.release(connection, timeout=self._limit)
        except Exception as problem:
            if (meant := store_error(problem)) is None:
                raise
            raise meant from problem

    async def _connect(self, *_dsn: object, **options: Any) -> Any:
        return await connect_first(self._hosts, self._limit, **options)

    def _prepare(self) -> Script[None]:
        """Check the server, and create the schema if it is missing."""
        ((commit,),) = yield Statement("SHOW synchronous_commit")
        if commit == "off":
            raise UnsafeStore("synchronous_commit is off, so a decision that was acknowledged could be lost")
        yield Statement(ALONE, (LOCK,))
        if not (yield Statement("SELECT 1 FROM pg_namespace WHERE nspname = $1", (self.schema,))):
            yield Statement("CREATE SCHEMA {schema}")
        yield Statement(VERSIONS)

    # -- waking --------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Wake watchers after writes of other machines, until the close. The next wake makes up for a lost one."""
        while True:
            pause = self._recheck
            if self._wakeup == "listen":
                with suppress(StoreUnavailable):
                    async with translate_errors():
                        await self._hear()
                if self._ear is None:  # the driver may answer a cancellation with an error of its own
                    return
                pause = self._pause * self._chance(0.5, 1.0)
                self._pause = min(2 * self._pause, self._recheck)
            await asyncio.sleep(pause)
            self._signals.notify_all()
            await self._tell_others()

    async def _hear(self) -> None:
        """Listen, and notify, until the connection is lost. A regular query notices a server that vanished silently."""
        connection = await connect_first(self._listen_hosts, self._limit)
        loop, stirred = asyncio.get_running_loop(), asyncio.Event()
        connection.add_termination_listener(lambda _: stirred.set())
        own = connection.get_server_pid()

        def on_notification(_connection: object, process: object, _channel: object, topic: object) -> None:
            if process != own:  # writes of this process have woken its watchers already
                self._signals.notify(str(topic))

        def look() -> None:
            if not connection.is_closed():
                self._signals.notify_all()
                stirred.set()
                loop.call_later(self._recheck, look)

        try:
            await connection.add_listener(self.schema, on_notification)
            look()  # a change may have come while nothing listened
            self._pause, self._stir = AGAIN, stirred.set
            while not connection.is_closed():
                await self._notify(connection.execute)
                await stirred.wait()
                stirred.clear()
        finally:
            self._stir = _stay
            connection.terminate()

    async def _tell_others(self) -> None:
        """Notify other machines without the listener's connection. Their watchers look by themselves if this fails."""
        if self._untold:
            with suppress(StoreUnavailable):
                await self._notify(self.fetch)

    async def _notify(self, execute: Callable[..., Awaitable[object]]) -> None:
        """Notify other machines of all topics at once; those of a failed attempt wait for the next one."""
        topics, self._untold = self._untold, {}
        try:
            await execute(NOTIFY, self.schema, [*topics])
        except BaseException:
            self._untold |= topics
            raise


def host_dsns(dsn: str) -> list[str]:
    """Return the DSN of each host that a DSN names before its path."""
    parts = DSN_PARTS.fullmatch(dsn)
    return [f"{parts[1]}{host}{parts[3]}" for host in parts[2].split(",")] if parts else [dsn]


async def connect_first(dsns: list[str], limit: float, **options: Any) -> Any:
    """Connect to the first host that accepts, and move its DSN to the front. Each host gets its part of the limit.

    Raises the last host's error if none accepts.
    """
    import asyncpg

    problem: Exception = StoreUnavailable("store_unavailable: no host is named")
    for dsn in tuple(dsns):
        try:
            connection = await asyncpg.connect(dsn, timeout=limit / len(dsns), command_timeout=limit, **options)
        except Exception as error:
            if store_error(error) is None:
                raise
            problem = error
        else:
            dsns.remove(dsn)
            dsns.insert(0, dsn)
            return connection
    raise problem


def _take_step(migration: Migrations) -> Script[bool]:
    yield Statement(ALONE, (LOCK,))  # from here on no other process migrates
    return (yield from migration.take_step())


def _stay() -> None:
    pass


async def _do_nothing(_connection: object) -> None:
    pass


@asynccontextmanager
async def translate_errors() -> AsyncIterator[None]:
    """Translate errors of the driver, the network and the server into `StoreUnavailable`."""
    try:
        yield
    except Exception as problem:
        if (meant := store_error(problem)) is None:
            raise
        raise meant from problem


def store_error(problem: Exception) -> StoreUnavailable | None:
    """Return the store's error for one of the driver, the network or the server, or None for any other error."""
    import asyncpg

    if isinstance(problem, TimeoutError):
        return StoreBusy("the database did not answer in time")
    if isinstance(problem, asyncpg.exceptions.QueryCanceledError):
        return StoreBusy(f"the database gave up: {problem}")
    # The driver raises its own internal error if the server vanishes between two of its steps.
    if isinstance(problem, OSError | asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return StoreUnavailable(f"store_unavailable: {problem or type(problem).__name__}")
    return None
