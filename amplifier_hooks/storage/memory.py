"""A database that is gone with the process: SQLite without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.storage.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from amplifier_hooks.storage.database import Migrations


class MemoryDatabase(SqliteDatabase):
    """The same statements and the same transactions, for tests and short lives. No other process can see it."""

    def __init__(self, *migrations: Migrations) -> None:
        super().__init__(None, *migrations)
