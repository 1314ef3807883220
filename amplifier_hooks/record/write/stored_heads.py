"""Heads of logs in a database: whoever cuts or rewrites a log would have to change it there, too."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, Self

from amplifier_hooks.ports import Head, StoreMark
from amplifier_hooks.record.record_errors import HeadConflict
from amplifier_hooks.storage.database import Migrations, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.storage.database import Database, Script


HEADS: Final = Migrations(
    component="audit_heads",
    steps=(
        (
            """
            CREATE TABLE {schema}.audit_heads (
                log TEXT PRIMARY KEY, segment BIGINT NOT NULL, size BIGINT NOT NULL, head TEXT NOT NULL,
                note TEXT NOT NULL
            )
            """,
        ),
        ("CREATE TABLE {schema}.audit_store (one INTEGER PRIMARY KEY, store TEXT NOT NULL, number BIGINT NOT NULL)",),
    ),
)
"""Open the database with these: `SqliteDatabase(path, HEADS)`."""

COLUMNS: Final = "log, segment, size, head, note"


class StoredHeads:
    """A `MarkedStore` on any database of `storage`. Belongs to the event loop that opened the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def beside(cls, database: Database) -> Self:
        """In a database that is open and has other tables: kept beside what the log is about.

        Then neither can be replaced alone without being noticed. Raises `StoreUnavailable`.
        """
        await database.migrate(HEADS)
        return cls(database)

    async def latest(self, log: str) -> Head | None:
        """The latest head of a log, if there is one. Raises `StoreUnavailable`."""
        rows = await self._database.fetch(f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE log = $1", log)  # noqa: S608
        return _head(rows[0]) if rows else None

    async def put(self, head: Head) -> None:
        """Keep a head, unless a later one is kept.

        Raises `HeadConflict` and `StoreUnavailable`. Cancelling it leaves open whether it is kept.
        """
        await self._database.run(_kept(head))

    async def marked(self) -> StoreMark | None:
        """How far the store has counted. Raises `StoreUnavailable`."""
        rows = await self._database.fetch("SELECT store, number FROM {schema}.audit_store")
        return StoreMark(store=rows[0][0], number=rows[0][1]) if rows else None

    async def mark(self) -> StoreMark:
        """Count once more. Raises `StoreUnavailable`. Cancelling it leaves open whether that counted."""
        return await self._database.run(_counted(secrets.token_hex(8)))


def _kept(head: Head) -> Script[None]:
    values = (head.log, head.segment, head.size, head.head, head.note)
    yield Statement(
        f"INSERT INTO {{schema}}.audit_heads ({COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (log) DO NOTHING",  # noqa: S608
        values,
    )
    lock = f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE log = $1"  # noqa: S608
    (row,) = yield Statement(lock, (head.log,))
    kept = _head(row)
    if (kept.segment, kept.size) == (head.segment, head.size) and kept.head != head.head:
        raise HeadConflict(head.log, head.segment, head.size)
    yield Statement(
        "UPDATE {schema}.audit_heads SET segment = $2, size = $3, head = $4, note = $5 "
        "WHERE log = $1 AND (segment < $2 OR (segment = $2 AND size < $3))",
        values,
    )


def _counted(name: str) -> Script[StoreMark]:
    """Count; a store that never did is given its name."""
    ((store, number),) = yield Statement(
        "INSERT INTO {schema}.audit_store AS s (one, store, number) VALUES (1, $1, 1) "
        "ON CONFLICT (one) DO UPDATE SET number = s.number + 1 RETURNING store, number",
        (name,),
    )
    return StoreMark(store=store, number=number)


def _head(row: Sequence[Any]) -> Head:
    log, segment, size, head, note = row
    return Head(log=log, segment=segment, size=size, head=head, note=note)
