"""Approvals in one file, for one machine. The default: it needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.storage.database import LIMIT, Migrations
from amplifier_hooks.storage.sqlite import SqliteDatabase
from approval_backends.lifecycle import Moment
from approval_backends.stores.approval_store import system_moment
from approval_backends.stores.transactions import DatabaseStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from approval_backends.lifecycle import RequestRecord
    from approval_backends.stores.approval_store import OpenRequestLimits
    from approval_backends.stores.transactions import Steps


SQLITE_TABLES = Migrations(
    component="approvals",
    steps=(
        (
            """CREATE TABLE {schema}.approval_request (
                id TEXT PRIMARY KEY,
                tenant TEXT NOT NULL,
                session TEXT NOT NULL,
                expires INTEGER NOT NULL,
                request TEXT NOT NULL,
                created INTEGER NOT NULL,
                boot TEXT NOT NULL,
                reading INTEGER NOT NULL,
                lifetime INTEGER NOT NULL,
                digest TEXT NOT NULL,
                status TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                version INTEGER NOT NULL,
                decision TEXT,
                decided INTEGER,
                decided_boot TEXT,
                decided_reading INTEGER,
                reason TEXT NOT NULL,
                ended INTEGER
            )""",
            "CREATE INDEX approval_open ON approval_request (tenant, session) WHERE ended IS NULL",
            """CREATE TABLE {schema}.approval_event (
                request TEXT NOT NULL,
                number INTEGER NOT NULL,
                kind TEXT NOT NULL,
                at INTEGER NOT NULL,
                version INTEGER NOT NULL,
                by_whom TEXT NOT NULL,
                channel TEXT NOT NULL,
                note TEXT NOT NULL,
                recorded INTEGER NOT NULL DEFAULT 0,
                PRIMARY KEY (request, number)
            ) WITHOUT ROWID""",
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
                created INTEGER NOT NULL,
                expires INTEGER,
                revoked INTEGER
            )""",
            "CREATE INDEX approval_grant_session ON approval_grant (tenant, session) WHERE revoked IS NULL",
            """CREATE TABLE {schema}.approval_session (
                tenant TEXT NOT NULL,
                session TEXT NOT NULL,
                epoch INTEGER NOT NULL,
                PRIMARY KEY (tenant, session)
            )""",
        ),
    ),
)


class SqliteStore(DatabaseStore):
    """Approvals in a SQLite file that only its owner can read; several processes of one machine may share it."""

    def __init__(
        self,
        path: str | Path,
        limits: OpenRequestLimits | None = None,
        clock: Callable[[], Moment] = system_moment,
        *,
        limit: float = LIMIT,
    ) -> None:
        super().__init__(SqliteDatabase(path, SQLITE_TABLES, limit=limit), limits)
        self._clock = clock

    async def now(self) -> Moment:
        """Return the clock's time; the file is not read for it."""
        return self._clock()

    async def look(self, request_id: str) -> tuple[RequestRecord | None, Moment]:
        """Return the record, or None, and the time."""
        return await self.get(request_id), self._clock()

    def _now(self) -> Steps[Moment]:
        """Return the time as the file can keep it, so that a record is equal before and after it is stored."""
        yield from ()
        now = self._clock()
        return Moment(now.wall, now.boot, round(now.reading * 1e6) / 1e6)

    def _lock_tenant(self, tenant: str) -> Steps[None]:  # noqa: ARG002  # the base's
        """Do nothing: a transaction here has the whole file to itself."""
        yield from ()
