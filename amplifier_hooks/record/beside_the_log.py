"""Tables and lines that a log keeps beside itself: heads, and marks.

`StoredHeads` keeps the head of each log in a database, so that an attacker who cuts or rewrites a log would have to
change the database, too. The database counts marks, and the log holds the last one: `last_mark` shows a replaced store.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Any, Final, Self

from amplifier_hooks.ports import Head, StoreMark
from amplifier_hooks.record.line import read, unseal
from amplifier_hooks.record.log_files import file_of, numbers_of
from amplifier_hooks.record.read_segment import open_segment
from amplifier_hooks.record.record_errors import HeadConflict, MalformedLine
from amplifier_hooks.storage.database import Migrations, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from amplifier_hooks.storage.database import Database, Script


HEADS: Final = Migrations(
    component="audit_heads",
    steps=(
        (
            """
            CREATE TABLE {schema}.audit_heads (
                log TEXT PRIMARY KEY, segment BIGINT NOT NULL, size BIGINT NOT NULL, head TEXT NOT NULL,
                note TEXT NOT NULL, place TEXT NOT NULL
            )
            """,
            "CREATE TABLE {schema}.audit_store (one INTEGER PRIMARY KEY, store TEXT NOT NULL, number BIGINT NOT NULL)",
        ),
    ),
)
"""Tables of heads and marks, for the database to open with: `SqliteDatabase(path, HEADS)`."""

COLUMNS: Final = "log, segment, size, head, note, place"


class StoredHeads:
    """A `MarkedStore` on any database of `storage`. It belongs to the event loop that opened the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def beside(cls, database: Database) -> Self:
        """Return a head store in an open database that also holds the data that the log is about.

        The log then notices if one of the two is replaced without the other. Raises `StoreUnavailable`.
        """
        await database.migrate(HEADS)
        return cls(database)

    async def latest(self, log: str) -> Head | None:
        """Return the latest head of a log, or None. Raises `StoreUnavailable`."""
        rows = await self._database.fetch(f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE log = $1", log)  # noqa: S608
        return _head(rows[0]) if rows else None

    async def at(self, place: str) -> Head | None:
        """Return the latest head of the log that was last written at a place, or None. Raises `StoreUnavailable`."""
        query = f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE place = $1"  # noqa: S608
        rows = await self._database.fetch(query, place)
        return _head(rows[0]) if rows else None

    async def put(self, head: Head) -> None:
        """Store a head, unless a later one is stored.

        Raises `HeadConflict` and `StoreUnavailable`. After a cancellation the head may or may not be stored.
        """
        await self._database.run(_write_head(head))

    async def latest_mark(self) -> StoreMark | None:
        """Return the store's latest mark, or None. Raises `StoreUnavailable`."""
        rows = await self._database.fetch("SELECT store, number FROM {schema}.audit_store")
        return StoreMark(store=rows[0][0], number=rows[0][1]) if rows else None

    async def mark(self) -> StoreMark:
        """Count one mark further and return it. Raises `StoreUnavailable`.

        After a cancellation the store may or may not have counted.
        """
        return await self._database.run(_count_mark(secrets.token_hex(8)))


def _write_head(head: Head) -> Script[None]:
    values = (head.log, head.segment, head.size, head.head, head.note, head.place)
    yield Statement(
        f"INSERT INTO {{schema}}.audit_heads ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (log) DO NOTHING",  # noqa: S608
        values,
    )
    lock = f"SELECT {COLUMNS} FROM {{schema}}.audit_heads WHERE log = $1"  # noqa: S608
    (row,) = yield Statement(lock, (head.log,))
    kept = _head(row)
    if (kept.segment, kept.size) == (head.segment, head.size) and kept.head != head.head:
        raise HeadConflict(head.log, head.segment, head.size)
    yield Statement(
        "UPDATE {schema}.audit_heads SET segment = $2, size = $3, head = $4, note = $5, place = $6 "
        "WHERE log = $1 AND (segment < $2 OR (segment = $2 AND size < $3))",
        values,
    )
    yield Statement("UPDATE {schema}.audit_heads SET place = '' WHERE place = $1 AND log <> $2", (head.place, head.log))


def _count_mark(name: str) -> Script[StoreMark]:
    """Count one mark further. A store that has never counted gets its name."""
    ((store, number),) = yield Statement(
        "INSERT INTO {schema}.audit_store AS s (one, store, number) VALUES (1, $1, 1) "
        "ON CONFLICT (one) DO UPDATE SET number = s.number + 1 RETURNING store, number",
        (name,),
    )
    return StoreMark(store=store, number=number)


def _head(row: Sequence[Any]) -> Head:
    log, segment, size, head, note, place = row
    return Head(log=log, segment=segment, size=size, head=head, note=note, place=place)


def place_of(path: Path) -> str:
    """Return the name of a log's place: the host, and the path of the first file."""
    return f"{socket.gethostname()}:{os.path.realpath(path)}"


MARKED: Final = "store.marked"
"""Kind of the line that holds a mark."""

_KIND: Final = f'"kind":"{MARKED}"'.encode("ascii")
_NEAR: Final = 100
"""Bytes at the start of a line that include its kind."""


def last_mark(path: Path) -> StoreMark | None:
    """Return the last mark in a log, or None. Reads segments from the last one backwards until one has a mark.

    Raises `OSError` if a segment cannot be read.
    """
    for number in reversed(numbers_of(path)):
        found = None
        with open_segment(file_of(path, number)) as pages:
            for line in pages.lines():
                if _KIND in line[:_NEAR]:
                    found = _mark_in(line) or found
        if found is not None:
            return found
    return None


def _mark_in(line: bytes) -> StoreMark | None:
    try:
        facts = read(unseal(line)[0]).facts
    except MalformedLine:
        return None
    store, number = facts.get("store"), facts.get("number")
    return StoreMark(store=store, number=number) if isinstance(store, str) and isinstance(number, int) else None
