"""Heads of logs in a database: whoever cuts or rewrites a log would have to change it there, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.effects.audit.errors import HeadConflict
from amplifier_hooks.ports import Head
from amplifier_hooks.storage import Migrations, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.storage import Database, Script

__all__ = ["HEADS", "StoredHeads"]

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
    ),
)
"""Open the database with these: `SqliteDatabase(path, HEADS)`."""

COLUMNS: Final = "log, segment, size, head, note"


class StoredHeads:
    """A `HeadStore` on any database of `storage`. Belongs to the event loop that opened the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(self, log: str) -> Head | None:
        """The latest head of a log, if there is one. Raises `StoreUnavailable`."""
        rows = await self._database.fetch(f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE log = $1", log)  # noqa: S608
        return _head(rows[0]) if rows else None

    async def put(self, head: Head) -> None:
        """Keep a head, unless a later one is kept.

        Raises `HeadConflict` and `StoreUnavailable`. Cancelling it leaves open whether it is kept.
        """
        await self._database.run(_kept(head))


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


def _head(row: Sequence[Any]) -> Head:
    log, segment, size, head, note = row
    return Head(log=log, segment=segment, size=size, head=head, note=note)
