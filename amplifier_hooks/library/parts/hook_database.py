"""A database that a hook keeps its own facts in: opened when it is first needed, left alone for a while when it fails.

Where it is, is one text: a file's path, `:memory:`, or `postgresql://…`; empty is a file in this user's state folder.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import AfterValidator

from amplifier_hooks.logs import get_logger
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.state_folder import make_state_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.storage.database import Database, Migrations, Row, Script


T = TypeVar("T")

SERVERS: Final = ("postgresql://", "postgres://")


def _check_address(place: str) -> str:
    if "://" in place and not place.startswith(SERVERS):
        raise ValueError("write a file's path, ':memory:' or 'postgresql://…'; there is no other kind of store")
    return place


StoreAddress = Annotated[str, AfterValidator(_check_address)]
"""A setting that says where a hook keeps its facts."""

STORE_TIMEOUT: Final = 2.0
"""Seconds a database may take: somebody waits for the hook that waits for it."""

AGAIN: Final = 10.0
"""Seconds after a failure in which it is not tried again, so that not every call waits for a database that is gone."""

log = get_logger(__name__)


class HookDatabase:
    """One hook's tables in one database.

    `open_with` makes the database; it is opened when it is first used, and again in another event loop. Every use
    raises `StoreUnavailable` while it cannot be used. Close it when the hook is not needed any more.
    """

    def __init__(
        self,
        hook: str,
        tables: Migrations,
        open_with: Callable[[Migrations], Database],
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._hook = hook
        self._tables = tables
        self._open_with = open_with
        self._now = now
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._failed: tuple[float, StoreUnavailable] | None = None

    async def run(self, script: Callable[[], Script[T]]) -> T:
        """Drive a script to its end in one transaction."""
        database = await self._open_database()
        try:
            return await database.run(script())
        except StoreUnavailable as error:
            self._note(error)
            raise

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """The rows of one statement."""
        database = await self._open_database()
        try:
            return await database.fetch(sql, *values)
        except StoreUnavailable as error:
            self._note(error)
            raise

    async def close(self) -> None:
        """Let go of the database. Using the book again opens it again; twice is harmless."""
        database, self._database = self._database, None
        if database is not None and self._loop is asyncio.get_running_loop():
            await database.close()

    async def _open_database(self) -> Database:
        if self._failed is not None:
            since, error = self._failed
            if self._now() - since < AGAIN:
                raise error
            self._failed = None
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._opening, self._database = loop, asyncio.Lock(), None
        async with self._opening:
            if self._database is None:
                try:
                    database = self._open_with(self._tables)
                    await database.open()
                except OSError as problem:
                    error = StoreUnavailable(f"store_unavailable: {problem}")
                    self._note(error)
                    raise error from problem
                except StoreUnavailable as error:
                    self._note(error)
                    raise
                self._database = database
            return self._database

    def _note(self, error: StoreUnavailable) -> None:
        log.warning("hook_store_unavailable", hook=self._hook, error=str(error))
        self._failed = (self._now(), error)


def database_opener(place: str, name: str) -> Callable[[Migrations], Database]:
    """How to open the database at this place; `name` is that of the file where it is not given."""

    def open_with_tables(tables: Migrations) -> Database:
        if place == ":memory:":
            from amplifier_hooks.storage.sqlite import MemoryDatabase

            return MemoryDatabase(tables)
        if place.startswith(SERVERS):
            from amplifier_hooks.storage.postgres import PostgresDatabase

            return PostgresDatabase(place, tables, limit=STORE_TIMEOUT, connections=2)
        from amplifier_hooks.storage.sqlite import SqliteDatabase

        path = Path(place).expanduser() if place else make_state_folder() / name
        return SqliteDatabase(path, tables, limit=STORE_TIMEOUT)

    return open_with_tables
