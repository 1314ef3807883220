"""PostgreSQL: transactions, migrations by many at once, and waking up whatever happens to the connection."""

from __future__ import annotations

import asyncio
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
from amplifier_hooks.storage.postgres import PostgresDatabase
from tests.stores import DSN, schema, server, turns

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
    """A schema of our own."""
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
    """What is in it."""
    return [text for (text,) in await database.fetch("SELECT text FROM {schema}.note ORDER BY id")]


async def cut(name: str) -> None:
    """End every other connection that has to do with this schema, from the server's side."""
    import asyncpg

    connection = await asyncpg.connect(DSN)
    await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE $1 AND pid <> pg_backend_pid()",
        f"%{name}%",
    )
    await connection.close()


@pytest.mark.rule("BCK-8")
async def test_transactions(name: str) -> None:
    """A script is one transaction: what it returns has happened, and when it raises nothing has."""
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
    """Many at once migrate once; a step that fails leaves the old tables; newer ones are refused."""
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
async def test_wakes(wakeup: Any, name: str) -> None:
    """What one program writes wakes who watches in another: by a notification, or by looking again and again."""
    one = PostgresDatabase(DSN, NOTES, schema=name, wakeup=wakeup, poll=0.02, recheck=30)
    two = PostgresDatabase(DSN, NOTES, schema=name, wakeup=wakeup)
    async with one, two:
        with one.watch("a") as a, one.watch() as every, one.watch("b") as b:
            while not await b.wait(0.05):
                await two.run(adding("b"))  # until it listens
            for watch in (a, every):
                await watch.wait(0)
            await two.run(adding("a"))
            assert all(await asyncio.gather(a.wait(10), every.wait(10)))
            await one.run(adding("a"))
            assert await a.wait(10)


@pytest.mark.rule("BCK-8")
async def test_wakes_now_and_then_anyway(name: str) -> None:
    """Who watches is woken every few seconds, notified or not, so a lost notification costs no more than that."""
    async with PostgresDatabase(DSN, NOTES, schema=name, recheck=0.02) as database:
        with database.watch("never called out") as watch:
            assert [await watch.wait(10) for _ in range(3)] == [True, True, True]


@pytest.mark.rule("BCK-8")
async def test_connections_are_cut(name: str) -> None:
    """When the server ends every connection, statements work again at once, and the listener listens again."""
    one = PostgresDatabase(DSN, NOTES, schema=name, recheck=30)
    async with one, PostgresDatabase(DSN, NOTES, schema=name) as two:
        with one.watch("a") as watch:
            while not await watch.wait(0.05):
                await two.run(adding("a"))  # until it listens
            await cut(name)
            assert await watch.wait(10)  # it was lost, and wakes everybody when it is back
            for _ in range(20):
                try:
                    before = await texts(one)
                    await two.run(adding("b"))
                    break
                except StoreUnavailable:  # a connection of the pool that was cut is noticed by using it
                    await turns(1)
            else:
                pytest.fail("the pool did not recover")
            assert await texts(one) == [*before, "b"]
        with one.watch("c") as watch:
            while not await watch.wait(0.05):
                await two.run(adding("c"))


@pytest.mark.fault("F-ST-04")
async def test_locked(name: str) -> None:
    """While somebody else locks the table, a statement fails at its limit, and works afterwards."""
    async with PostgresDatabase(DSN, NOTES, schema=name, limit=0.2) as database:
        async with database._connection() as other, other.transaction():
            await other.execute(f'LOCK TABLE "{name}".note')
            with pytest.raises(StoreBusy):
                await texts(database)
        assert await texts(database) == []


@pytest.mark.fault("F-ST-05")
async def test_no_server() -> None:
    """A server that does not answer is a typed error, and nothing is left open."""
    with pytest.raises(StoreUnavailable):
        await PostgresDatabase("postgresql://nobody@127.0.0.1:9/none", NOTES).open()


@pytest.mark.rule("BCK-8")
async def test_loose_commits_are_refused(name: str) -> None:
    """A server that acknowledges what it may lose is not used."""
    options = "?options=-c%20synchronous_commit%3Doff"
    with pytest.raises(UnsafeStore):
        await PostgresDatabase(DSN + options, NOTES, schema=name).open()


async def test_cancelled(name: str) -> None:
    """A statement that is cancelled leaves the pool as good as new."""
    async with PostgresDatabase(DSN, NOTES, schema=name, connections=1) as database:
        waiting = asyncio.ensure_future(database.fetch("SELECT pg_sleep(30)"))
        await turns(20)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert await texts(database) == []
