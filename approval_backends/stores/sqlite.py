"""Approvals in one file, for one machine. The default: it needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.storage.database import LIMIT, Migrations
from amplifier_hooks.storage.sqlite import SqliteDatabase
from approval_backends.lifecycle import Moment
from approval_backends.stores.approval_store import system_moment
from approval_backends.stores.tables import APPROVAL_TABLES
from approval_backends.stores.transactions import DatabaseStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from approval_backends.lifecycle import RequestRecord
    from approval_backends.stores.approval_store import OpenRequestLimits
    from approval_backends.stores.transactions import Steps


SQLITE_TABLES = Migrations(component="approvals", steps=(APPROVAL_TABLES,))


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

    def _lock_stops(self) -> Steps[None]:
        """Do nothing: a transaction here has the whole file to itself."""
        yield from ()

    def _lock_tenant(self, tenant: str) -> Steps[None]:  # noqa: ARG002  # the base's
        """Do nothing: a transaction here has the whole file to itself."""
        yield from ()
