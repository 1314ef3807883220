"""Arguments of tool calls beside the record, for a limited time: the record itself has only their digests.

So what must not stay can go, and the chain does not notice. Whoever has the arguments can show that they are those on
record, because the digest there was made of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.storage.database import Migrations, Statement

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.storage.database import Database, Script


RETENTION: Final = timedelta(days=30)
LARGEST: Final = 1 << 20
"""Bytes of one call's arguments; larger ones are not kept."""

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
"""Open the database with these: `SqliteDatabase(path, ARGUMENTS)`."""


class StoredArguments:
    """Arguments in any database of `storage`, until their time is over. They are kept as they are, secrets included."""

    def __init__(self, database: Database, clock: Clock, *, retention: timedelta = RETENTION) -> None:
        if retention <= timedelta(0):
            raise InvalidLimit("retention", retention, "a time above 0")
        self._database = database
        self._clock = clock
        self._retention = retention

    async def keep(self, digest: str, tenant: str, arguments: bytes) -> None:
        """Keep the canonical bytes of a call's arguments. The same once more makes them stay longer.

        Raises `StoreUnavailable`. Cancelling it leaves open whether they are kept.
        """
        if len(arguments) <= LARGEST:
            expires = _milliseconds(self._clock.now() + self._retention)
            await self._database.run(_kept(digest, tenant, arguments.decode("ascii"), expires))

    async def find(self, digest: str, tenant: str = "") -> bytes | None:
        """The arguments with this digest; nothing when they were never kept, or their time is over.

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
        """Forget what is over; with a tenant, everything of this tenant. How many were forgotten is put on record.

        Raises `StoreUnavailable`, and what the record raises.
        """
        gone = await self._database.run(_purged(_milliseconds(self._clock.now()), tenant))
        if audit is not None:
            about = {} if tenant is None else {"tenant": tenant}
            await audit.write("arguments.purged", {"number": gone, **about}, durable=True)
        return gone


def _kept(digest: str, tenant: str, arguments: str, expires: int) -> Script[None]:
    yield Statement(
        "INSERT INTO {schema}.audit_arguments (digest, tenant, arguments, expires) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (tenant, digest) DO UPDATE SET expires = excluded.expires",
        (digest, tenant, arguments, expires),
    )


def _purged(now: int, tenant: str | None) -> Script[int]:
    which, value = ("expires <= $1", now) if tenant is None else ("tenant = $1", tenant)
    found = yield Statement(f"SELECT count(*) FROM {{schema}}.audit_arguments WHERE {which}", (value,))  # noqa: S608
    yield Statement(f"DELETE FROM {{schema}}.audit_arguments WHERE {which}", (value,))  # noqa: S608
    return int(found[0][0])


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1_000)
