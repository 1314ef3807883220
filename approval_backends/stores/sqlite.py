"""Approvals in one file, for one machine. The default: it needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.storage.database import LIMIT, Migrations
from amplifier_hooks.storage.sqlite import SqliteDatabase
from approval_backends.stores.approval_rows import APPROVAL_TABLES
from approval_backends.stores.approval_store import ClockReading, system_reading
from approval_backends.stores.transactions import DatabaseStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from approval_backends.stores.approval_store import OpenRequestLimits


SQLITE_TABLES = Migrations(component="approvals", steps=(APPROVAL_TABLES,))


class SqliteStore(DatabaseStore):
    """Approvals in a SQLite file that only its owner can read; several processes of one machine may share it.

    Args:
        limit: Seconds after which a file that stays locked counts as unavailable.
    """

    def __init__(
        self,
        path: str | Path,
        limits: OpenRequestLimits | None = None,
        clock: Callable[[], ClockReading] = system_reading,
        *,
        limit: float = LIMIT,
    ) -> None:
        super().__init__(SqliteDatabase(path, SQLITE_TABLES, limit=limit), limits)
        self._clock = clock

    def _reading(self, wall: int) -> ClockReading:  # noqa: ARG002  # the base's
        return self._clock()
