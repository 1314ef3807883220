"""Tables and lines that a log keeps beside itself: heads, marks, and arguments of tool calls.

`StoredHeads` keeps the head of each log in a database, so that an attacker who cuts or rewrites a log would have to
change the database, too. The database counts marks, and the log holds the last one: `last_mark` shows a replaced store.
`StoredArguments` keeps the arguments of tool calls for a limited time. The record holds only their digests, so a purge
does not break the chain, and the digest proves that given arguments are the recorded ones.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.ports import Head, StoreMark
from amplifier_hooks.record.line import read, unseal
from amplifier_hooks.record.log_files import file_of, numbers_of
from amplifier_hooks.record.read_segment import open_segment
from amplifier_hooks.record.record_errors import HeadConflict, MalformedLine
from amplifier_hooks.storage.database import Migrations, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from amplifier_hooks.ports import AuditSink, Clock
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


RETENTION: Final = timedelta(days=30)
LARGEST: Final = 1 << 20
"""Most bytes of one call's arguments; larger arguments are not stored."""

ARGUMENTS: Final = Migrations(
    component="audit_arguments",
    steps=(
        (
            """
            CREATE TABLE {schema}.audit_arguments (
                digest TEXT NOT NULL, tenant TEXT NOT NULL, arguments TEXT NOT NULL, expires BIGINT NOT NULL,
                PRIMARY KEY (tenant, digest)
            )
            """,
            "CREATE INDEX audit_arguments_expire ON {schema}.audit_arguments (expires)",
        ),
    ),
)
"""Tables of arguments, for the database to open with: `SqliteDatabase(path, ARGUMENTS)`."""


class StoredArguments:
    """Arguments of tool calls, stored in any database of `storage` until they expire, unchanged and with secrets."""

    def __init__(self, database: Database, clock: Clock, *, retention: timedelta = RETENTION) -> None:
        if retention <= timedelta(0):
            raise InvalidLimit("retention", retention, "a time above 0")
        self._database = database
        self._clock = clock
        self._retention = retention

    async def keep(self, digest: str, tenant: str, arguments: bytes) -> None:
        """Store the canonical bytes of a call's arguments. Storing them again postpones their expiry.

        Raises `StoreUnavailable`. After a cancellation the arguments may or may not be stored.
        """
        if len(arguments) <= LARGEST:
            expires = _milliseconds(self._clock.now() + self._retention)
            await self._database.run(_write_arguments(digest, tenant, arguments.decode("ascii"), expires))

    async def find(self, digest: str, tenant: str = "") -> bytes | None:
        """Return the arguments with this digest, or None if they were never stored or have expired.

        Raises `StoreUnavailable`.
        """
        rows = await self._database.fetch(
            "SELECT arguments FROM {schema}.audit_arguments WHERE digest = $1 AND tenant = $2 AND expires > $3",
            digest,
            tenant,
            _milliseconds(self._clock.now()),
        )
        return rows[0][0].encode("ascii") if rows else None

    async def purge(self, audit: AuditSink | None = None, *, tenant: str | None = None) -> int:
        """Delete expired arguments or, with a tenant, all arguments of this tenant. Return and record their number.

        Raises `StoreUnavailable`, and the errors of the record.
        """
        gone = await self._database.run(_purge_rows(_milliseconds(self._clock.now()), tenant))
        if audit is not None:
            about = {} if tenant is None else {"tenant": tenant}
            await audit.write("arguments.purged", {"number": gone, **about}, durable=True)
        return gone


def _write_arguments(digest: str, tenant: str, arguments: str, expires: int) -> Script[None]:
    yield Statement(
        "INSERT INTO {schema}.audit_arguments (digest, tenant, arguments, expires) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (tenant, digest) DO UPDATE SET expires = excluded.expires",
        (digest, tenant, arguments, expires),
    )


def _purge_rows(now: int, tenant: str | None) -> Script[int]:
    which, value = ("expires <= $1", now) if tenant is None else ("tenant = $1", tenant)
    found = yield Statement(f"SELECT count(*) FROM {{schema}}.audit_arguments WHERE {which}", (value,))  # noqa: S608
    yield Statement(f"DELETE FROM {{schema}}.audit_arguments WHERE {which}", (value,))  # noqa: S608
    return int(found[0][0])


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1_000)
