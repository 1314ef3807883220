"""PostgreSQL: transactions, concurrent migrations, and wakes that survive lost connections."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.storage.database import (
    Migrations,
    SchemaMismatch,
    Statement,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    UnsafeStore,
    Wake,
)
from amplifier_hooks.storage.postgres import PostgresDatabase, host_dsns
from tests.stores import DSN, schema, server, turns, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_hooks.storage.database import Script

pytestmark = pytest.mark.postgres

NOTES = Migrations(
    component="notes", steps=(("CREATE TABLE {schema}.note (id INTEGER GENERATED ALWAYS AS IDENTITY, text TEXT)",),)
)
MORE = Migrations(component="notes", steps=(*NOTES.steps, ("ALTER TABLE {schema}.note ADD COLUMN by_whom TEXT",)))
BROKEN = Migrations(component="notes", steps=(*NOTES.steps, ("CREATE TABLE {schema}.other (id INTEGER)", "NONSENSE")))


@pytest.fixture
async def name() -> AsyncIterator[str]:
    """Yield the name of a schema for one test."""
    await server()
    async with schema() as one:
        yield one


def adding(*texts: str) -> Script[list[int]]:
    """Add notes in one transaction."""
    made = []
    for text in texts:
        ((number,),) = yield Statement("INSERT INTO {schema}.note (text) VALUES ($1) RETURNING id", (text,))
        made.append(number)
        yield Wake(text)
    return made


async def texts(database: Any) -> list[str]:
    """Return the notes in the store."""
    return [text for (text,) in await database.fetch("SELECT text FROM {schema}.note ORDER BY id")]


async def cut(name: str) -> None:
    """End all other connections that use this schema, from the server's side."""
    import asyncpg

    connection = await asyncpg.connect(DSN)
    await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE $1 AND pid <> pg_backend_pid()",
        f"%{name}%",
    )
    await connection.close()


async def listening(listener: PostgresDatabase, writer: PostgresDatabase) -> None:
    """Wait until a store hears of another's changes, and of none that came before."""
    with listener.watch("test") as watch:
        while not await watch.wait(0.05):
            await writer.run(adding("test"))


@pytest.mark.rule("BCK-8")
async def test_transactions(name: str) -> None:
    """A script is one transaction: it writes everything or, if it raises, nothing."""
    async with PostgresDatabase(DSN, NOTES, schema=name) as database:
        assert await database.run(adding("a", "b")) == [1, 2]

        def failing(step: Any) -> Script[None]:
            yield from adding("c")
            yield step()

        def no() -> Statement:
            raise LookupError("no")

        with pytest.raises(LookupError):
            await database.run(failing(no))
        with pytest.raises(StoreUnavailable):
            await database.run(failing(lambda: Statement("NONSENSE")))
        assert await texts(database) == ["a", "b"]
        assert await database.open() is database
    await database.close()
    with pytest.raises(StoreClosed):
        await texts(database)


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-06", "F-ST-07")
async def test_migrations(name: str) -> None:
    """Concurrent openers migrate once; a step that fails leaves the old tables; newer tables are refused."""
    many = [PostgresDatabase(DSN, NOTES, schema=name, connections=1) for _ in range(8)]
    await asyncio.gather(*(one.open() for one in many))
    await many[0].run(adding("a"))
    await asyncio.gather(*(one.close() for one in many))
    with pytest.raises(StoreUnavailable):
        await PostgresDatabase(DSN, BROKEN, schema=name).open()
    async with PostgresDatabase(DSN, NOTES, schema=name) as database:
        tables = await database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", name)
        assert [row[0] for row in tables] == ["note", "schema_version"]
    async with PostgresDatabase(DSN, MORE, schema=name) as database:
        assert [tuple(row) for row in await database.fetch("SELECT text, by_whom FROM {schema}.note")] == [("a", None)]
    with pytest.raises(SchemaMismatch, match="upgrade it"):
        await PostgresDatabase(DSN, NOTES, schema=name).open()


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("wakeup", ["listen", "poll"])
async def test_wakes_after_a_statement(wakeup: Any, name: str) -> None:
    """A store that closes notifies other machines first, also of changes that came before it was open."""
    one = PostgresDatabase(DSN, NOTES, schema=name, wakeup=wakeup)
    other = PostgresDatabase(DSN, NOTES, schema=name, recheck=300)
    async with other, PostgresDatabase(DSN, NOTES, schema=name) as third:
        await listening(other, third)
        with other.watch("a") as a, other.watch("b") as b:
            one.tell("a")  # it is not open
            await one.open()
            one.tell("b", late=True)
            await one.close()
            assert await a.wait(60)
            assert await b.wait(60)


@pytest.mark.rule("BCK-8")
async def test_gathered_notifications(name: str) -> None:
    """A topic that is watched where it changed, or that is told late, reaches other machines with the next one."""
    one = PostgresDatabase(DSN, NOTES, schema=name, recheck=300)
    async with one, PostgresDatabase(DSN, NOTES, schema=name, recheck=300) as two:
        await listening(two, one)
        await listening(one, two)
        with one.watch("own") as own, two.watch("own") as elsewhere, two.watch("late") as late:
            one.tell("own", news="news")
            assert await own.wait(60)
            assert own.news() == "news"
            one.tell("late", late=True)
            assert await elsewhere.wait(60)
            assert await late.wait(60)


class Failing(PostgresDatabase):
    """A database whose first notification fails."""

    failed = False

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        """Fail, if it is the first notification."""
        if "pg_notify" in sql and not self.failed:
            self.failed = True
            raise StoreUnavailable("the server went away")
        return await super().fetch(sql, *values)


@pytest.mark.rule("BCK-8")
async def test_failed_notification(name: str) -> None:
    """The topics of a notification that failed go out with the next one."""
    one = Failing(DSN, NOTES, schema=name, wakeup="poll", poll=0.02)
    async with one, PostgresDatabase(DSN, NOTES, schema=name, recheck=300) as two:
        with two.watch() as watch:
            while not await watch.wait(0.05):
                await two.fetch("SELECT pg_notify($1, 'x')", name)  # until it listens
        with two.watch("a") as a:
            one.tell("a")
            assert await a.wait(60)
        assert one.failed


class Stubborn(PostgresDatabase):
    """A database whose driver answers the cancellation of a notification with an error."""

    async def _hear(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreBusy("the database did not answer in time") from None


@pytest.mark.rule("BCK-8")
async def test_close_while_a_notification_waits(name: str) -> None:
    """A store closes in time, also if the driver swallows the cancellation of its listener."""
    database = await Stubborn(DSN, NOTES, schema=name).open()
    await turns(5)
    async with asyncio.timeout(20):
        await database.close()


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("wakeup", ["listen", "poll"])
async def test_wakes(wakeup: Any, name: str) -> None:
    """A write by one program wakes a watcher in another: by a notification, or by polling."""
    one = PostgresDatabase(DSN, NOTES, schema=name, wakeup=wakeup, poll=0.02, recheck=30)
    two = PostgresDatabase(DSN, NOTES, schema=name, wakeup=wakeup)
    async with one, two:
        with one.watch("a") as a, one.watch() as every, one.watch("b") as b:
            while not await b.wait(0.05):
                await two.run(adding("b"))  # until it listens
            for watch in (a, every):
                await watch.wait(0)
            await two.run(adding("a"))
            assert all(await asyncio.gather(a.wait(60), every.wait(60)))
            await one.run(adding("a"))
            assert await a.wait(60)


@pytest.mark.rule("BCK-8")
async def test_wakes_now_and_then_anyway(name: str) -> None:
    """Watchers are woken every few seconds without a notification, so a lost notification costs only that delay."""
    async with PostgresDatabase(DSN, NOTES, schema=name, recheck=0.02) as database:
        with database.watch("never called out") as watch:
            assert [await watch.wait(60) for _ in range(3)] == [True, True, True]


@pytest.mark.rule("BCK-8")
async def test_connections_are_cut(name: str) -> None:
    """When the server ends all connections, statements work again at once, and the listener listens again."""
    one = PostgresDatabase(DSN, NOTES, schema=name, recheck=30)
    async with one, PostgresDatabase(DSN, NOTES, schema=name) as two:
        with one.watch("a") as watch:
            while not await watch.wait(0.05):
                await two.run(adding("a"))  # until it listens
            await cut(name)
            assert await watch.wait(60)  # the listener was lost, and wakes all watchers when it is back
            before = await texts(one)
            await two.run(adding("b"))
            assert await texts(one) == [*before, "b"]
        with one.watch("c") as watch:
            while not await watch.wait(0.05):
                await two.run(adding("c"))


@pytest.mark.rule("BCK-8")
async def test_idle_connections_are_cut(name: str) -> None:
    """An idle connection that the server has closed costs no operation: the pool replaces it."""
    async with PostgresDatabase(DSN, NOTES, schema=name, wakeup="poll") as database:
        sleeping = f"SELECT pg_sleep(0.05) -- {name}"
        await asyncio.gather(*(database.fetch(sleeping) for _ in range(8)))
        assert database._pool is not None
        held = [holder._con for holder in database._pool._holders]
        await cut(name)
        await until(lambda: all(one is None or one.is_closed() for one in held))
        assert [await texts(database) for _ in range(10)] == [[]] * 10


@pytest.mark.rule("BCK-8")
async def test_silent_host(name: str) -> None:
    """A host that accepts and says nothing is passed over, and is tried last from then on."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        before, _, host = DSN.rpartition("@")
        two = f"{before}@{place},{host}" if before else DSN.replace("://", f"://{place},")
        async with PostgresDatabase(two, NOTES, schema=name, limit=3.0) as database:
            await asyncio.gather(*(database.fetch("SELECT pg_sleep(0.05)") for _ in range(8)))
            assert place in database._hosts[-1]
    assert host_dsns("postgresql://u@[::1]:1,b:2/d?x=a,b") == [
        "postgresql://u@[::1]:1/d?x=a,b",
        "postgresql://u@b:2/d?x=a,b",
    ]


@pytest.mark.rule("BCK-8")
async def test_pauses_of_a_lost_listener(name: str) -> None:
    """A listener that cannot connect waits twice as long after each failure, less a part by chance."""
    pauses: list[tuple[float, float]] = []

    def chance(low: float, high: float) -> float:
        pauses.append((low, high))
        return 0.0

    nowhere = "postgresql://user@127.0.0.1:9/none"
    async with PostgresDatabase(DSN, NOTES, schema=name, listen_dsn=nowhere, chance=chance) as database:
        with database.watch("a") as watch:
            assert await watch.wait(60)
        await until(lambda: database._pause == 5.0)
    assert set(pauses) == {(0.5, 1.0)}


@pytest.mark.fault("F-ST-04")
async def test_locked(name: str) -> None:
    """While another session locks the table, a statement fails at its timeout, and works afterwards."""
    import asyncpg

    async with PostgresDatabase(DSN, NOTES, schema=name):
        pass  # a busy server takes its time for tables
    async with PostgresDatabase(DSN, NOTES, schema=name, limit=3.0) as database:
        other = await asyncpg.connect(DSN)
        async with other.transaction():
            await other.execute(f'LOCK TABLE "{name}".note')
            with pytest.raises(StoreBusy):
                await texts(database)
        await other.close()
        assert await texts(database) == []


@pytest.mark.fault("F-ST-05")
async def test_no_server() -> None:
    """A server that does not answer is a typed error, and no connection stays open."""
    with pytest.raises(StoreUnavailable):
        await PostgresDatabase("postgresql://user@127.0.0.1:9/none", NOTES).open()


@pytest.mark.rule("BCK-8")
async def test_loose_commits_are_refused(name: str) -> None:
    """A server that may lose acknowledged commits is refused."""
    options = "?options=-c%20synchronous_commit%3Doff"
    with pytest.raises(UnsafeStore):
        await PostgresDatabase(DSN + options, NOTES, schema=name).open()


async def test_cancelled(name: str) -> None:
    """A cancelled statement leaves the pool usable."""
    async with PostgresDatabase(DSN, NOTES, schema=name, connections=1) as database:
        waiting = asyncio.ensure_future(database.fetch("SELECT pg_sleep(30)"))
        await turns(20)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert await texts(database) == []
