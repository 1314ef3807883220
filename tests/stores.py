"""Stores to test with: each kind open, empty, with a clock that can be moved; PostgreSQL in a schema of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.postgres import PostgresStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import MovableClock, StoreSubject
from tests.conftest import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from amplifier_hooks.storage.database import Database, Migrations

DSN: Final = os.environ.get("AMPLIFIER_TEST_POSTGRES") or "postgresql://postgres@127.0.0.1:5432/postgres"

KINDS: Final = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
FILES: Final = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))

MOVED: Final = """CREATE OR REPLACE FUNCTION {schema}.approval_now() RETURNS BIGINT LANGUAGE SQL VOLATILE AS
    'SELECT 1767268800000000 + moved FROM {schema}.moved'"""
"""SQL of a clock that stands still; a table moves it."""


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # there is no event for it, and a turn costs nothing
            await asyncio.sleep(0)  # there is no event for it; a turn costs nothing


async def turns(count: int) -> None:
    """Let the loop turn this many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def server() -> str:
    """Return the DSN of a PostgreSQL server that answers; skip, or fail where one is required."""
    import asyncpg

    try:
        connection = await asyncpg.connect(DSN, timeout=5)
    except (OSError, asyncpg.PostgresError) as problem:
        require("postgres", f"no PostgreSQL server answers at AMPLIFIER_TEST_POSTGRES: {problem}")
    await connection.close()
    return DSN


@asynccontextmanager
async def address(kind: str, folder: Path) -> AsyncIterator[str]:
    """Yield an address at which several processes find one store."""
    if kind == "sqlite":
        yield str(folder / "approvals.db")
    else:
        await server()
        async with schema() as name:
            yield f"{DSN}#{name}"


@asynccontextmanager
async def schema() -> AsyncIterator[str]:
    """Yield the name of a schema, and drop the schema afterwards."""
    import asyncpg

    name = f"test_{uuid4().hex}"
    try:
        yield name
    finally:
        connection = await asyncpg.connect(DSN)
        await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        await connection.close()


@asynccontextmanager
async def opened(kind: str, folder: Path, **options: Any) -> AsyncIterator[StoreSubject]:
    """Open a store of this kind, and yield it with its clock."""
    clock = MovableClock()
    if kind == "memory":
        yield StoreSubject(MemoryStore(clock=clock, **options), clock.advance, clock.reboot)
    elif kind == "sqlite":
        async with SqliteStore(folder / "approvals.db", clock=clock, **options) as file:
            yield StoreSubject(file, clock.advance, clock.reboot)
    else:
        await server()
        async with schema() as name, PostgresStore(DSN, schema=name, **options) as store:
            fetch = store.database.fetch
            await fetch("CREATE TABLE {schema}.moved AS SELECT 0::BIGINT AS moved")
            await fetch(MOVED)

            async def advance(seconds: float) -> None:
                await fetch("UPDATE {schema}.moved SET moved = moved + $1", round(seconds * 1e6))

            async def set_back(seconds: float) -> None:
                await advance(-seconds)

            yield StoreSubject(store, advance, set_back)


@asynccontextmanager
async def database(kind: str, folder: Path, *migrations: Migrations) -> AsyncIterator[Database]:
    """Open an empty database of this kind, with these tables."""
    if kind == "memory":
        async with MemoryDatabase(*migrations) as memory:
            yield memory
    elif kind == "sqlite":
        async with SqliteDatabase(folder / "hooks.db", *migrations) as file:
            yield file
    else:
        await server()
        async with schema() as name, PostgresDatabase(DSN, *migrations, schema=name) as shared:
            yield shared
