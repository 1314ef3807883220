"""Approvals in PostgreSQL, for many machines. Its clock is the one that counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_hooks.storage import Migrations, Statement
from amplifier_hooks.storage.postgres import PostgresDatabase
from approval_backends.lifecycle import Moment
from approval_backends.stores.script import DatabaseStore

if TYPE_CHECKING:
    from approval_backends.stores.base import Limits
    from approval_backends.stores.script import Steps

__all__ = ["POSTGRES_TABLES", "PostgresStore"]

POSTGRES_TABLES = Migrations(
    component="approvals",
    steps=(
        (
            """CREATE FUNCTION {schema}.approval_now() RETURNS BIGINT LANGUAGE SQL VOLATILE AS
                'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT'""",
            """CREATE TABLE {schema}.approval_request (
                id TEXT PRIMARY KEY,
                tenant TEXT NOT NULL,
                session TEXT NOT NULL,
                expires BIGINT NOT NULL,
                request TEXT NOT NULL,
                created BIGINT NOT NULL,
                boot TEXT NOT NULL,
                reading BIGINT NOT NULL,
                lifetime BIGINT NOT NULL,
                digest TEXT NOT NULL,
                status TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                version INTEGER NOT NULL,
                decision TEXT,
                decided BIGINT,
                decided_boot TEXT,
                decided_reading BIGINT,
                reason TEXT NOT NULL,
                ended BIGINT
            )""",
            "CREATE INDEX approval_open ON {schema}.approval_request (tenant, session) WHERE ended IS NULL",
            """CREATE TABLE {schema}.approval_event (
                number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                request TEXT NOT NULL,
                kind TEXT NOT NULL,
                at BIGINT NOT NULL,
                version INTEGER NOT NULL,
                by_whom TEXT NOT NULL,
                channel TEXT NOT NULL,
                note TEXT NOT NULL,
                recorded INTEGER NOT NULL DEFAULT 0
            )""",
            "CREATE INDEX approval_event_request ON {schema}.approval_event (request)",
            "CREATE INDEX approval_event_unrecorded ON {schema}.approval_event (number) WHERE recorded = 0",
            """CREATE TABLE {schema}.approval_grant (
                id TEXT PRIMARY KEY,
                tenant TEXT NOT NULL,
                session TEXT NOT NULL,
                agent TEXT NOT NULL,
                hook TEXT NOT NULL,
                version TEXT NOT NULL,
                tool TEXT NOT NULL,
                cwd TEXT NOT NULL,
                scope TEXT NOT NULL,
                allows INTEGER NOT NULL,
                by_whom TEXT NOT NULL,
                channel TEXT NOT NULL,
                request TEXT NOT NULL,
                created BIGINT NOT NULL,
                expires BIGINT,
                revoked BIGINT
            )""",
            "CREATE INDEX approval_grant_session ON {schema}.approval_grant (tenant, session) WHERE revoked IS NULL",
            """CREATE TABLE {schema}.approval_session (
                tenant TEXT NOT NULL,
                session TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                PRIMARY KEY (tenant, session)
            )""",
        ),
    ),
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgresStore(DatabaseStore):
    """Approvals in a schema of their own, in a PostgreSQL database that any number of machines share."""

    HOLD = " FOR UPDATE"

    def __init__(self, dsn: str, limits: Limits | None = None, **options: Any) -> None:
        super().__init__(PostgresDatabase(dsn, POSTGRES_TABLES, **options), limits)

    async def now(self) -> Moment:
        """The database's time."""
        ((now,),) = await self.database.fetch("SELECT {schema}.approval_now()")
        return _moment(now)

    def _now(self) -> Steps[Moment]:
        ((now,),) = yield Statement("SELECT {schema}.approval_now()")
        return _moment(now)

    def _alone(self, tenant: str) -> Steps[None]:
        yield Statement("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"approvals of {tenant}",))


def _moment(now: int) -> Moment:
    return Moment(EPOCH + timedelta(microseconds=now))
