"""A database in which a hook keeps its own facts. It opens on first use, and rests for a while after a failure.

One text is its address: a file's path, `:memory:`, or `postgresql://…`; empty is a file in the user's state folder.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import AfterValidator

from amplifier_hooks.logs import get_logger
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.storage.database import Database, Migrations, Row, Script


T = TypeVar("T")

SERVERS: Final = ("postgresql://", "postgres://")


def _check_address(address: str) -> str:
    if "://" in address and not address.startswith(SERVERS):
        raise ValueError("write a file's path, ':memory:' or 'postgresql://…'; there is no other kind of store")
    return address


StoreAddress = Annotated[str, AfterValidator(_check_address)]
"""A setting with the address of a hook's facts."""

STORE_TIMEOUT: Final = 2.0
"""Seconds that a database may take, because a caller waits for the hook."""

AGAIN: Final = 10.0
"""Seconds of rest after a failure, so that not every call waits for a database that is gone."""

log = get_logger(__name__)


class HookDatabase:
    """One hook's tables in one database.

    `open_with` creates the database. It is opened on first use, and again in another event loop. Every use raises
    `StoreUnavailable` while the database cannot be used. Close it when the hook is no longer needed.
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
        self._failure: tuple[float, StoreUnavailable | None] = (0.0, None)

    async def run(self, script: Script[T]) -> T:
        """Run a script to its end in one transaction."""
        return await self._use(lambda database: database.run(script))

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Return the rows of one statement."""
        return await self._use(lambda database: database.fetch(sql, *values))

    async def close(self) -> None:
        """Close the database. A second call does nothing; the next use opens it again."""
        database, self._database = self._database, None
        if database is not None and self._loop is asyncio.get_running_loop():
            await database.close()

    async def _use(self, work: Callable[[Database], Awaitable[T]]) -> T:
        """Return the result of work with the open database. After a failure, raise it again for a while."""
        since, known = self._failure
        if known is not None and self._now() - since < AGAIN:
            raise known
        try:
            return await work(await self._open_database())
        except StoreUnavailable as error:
            log.warning("hook_store_unavailable", hook=self._hook, error=str(error))
            self._failure = (self._now(), error)
            raise

    async def _open_database(self) -> Database:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._opening, self._database = loop, asyncio.Lock(), None
        async with self._opening:
            if self._database is None:
                try:
                    database = await self._open_with(self._tables).open()
                except OSError as problem:
                    raise StoreUnavailable(f"store_unavailable: {problem}") from problem
                self._database = database
            return self._database


def database_opener(address: str, default: Path) -> Callable[[Migrations], Database]:
    """Return a function that opens the database at this address. `default` is its file if the address is empty."""

    def open_with_tables(tables: Migrations) -> Database:
        if address == ":memory:":
            from amplifier_hooks.storage.sqlite import MemoryDatabase

            return MemoryDatabase(tables)
        if address.startswith(SERVERS):
            from amplifier_hooks.storage.postgres import PostgresDatabase

            return PostgresDatabase(address, tables, limit=STORE_TIMEOUT, connections=2)
        from amplifier_hooks.storage.sqlite import SqliteDatabase

        if not address:
            StateFolder().make()
        return SqliteDatabase(Path(address or default).expanduser(), tables, limit=STORE_TIMEOUT)

    return open_with_tables
