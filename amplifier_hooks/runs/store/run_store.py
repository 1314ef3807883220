"""Runs and their events over a database: one interface for memory, SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.runs.run_errors import UnknownRun
from amplifier_hooks.runs.store.run_rows import StartConclusion, load_run, load_run_event
from amplifier_hooks.runs.store.run_transactions import ID, WAITING, RunScripts
from amplifier_hooks.runs.store.statements import CHILDREN, EVENTS, GET, RUN_TABLES, list_statement
from amplifier_hooks.storage.database import Openable
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from amplifier_hooks.runs.run_states import Holder, RunEvent, RunRecord, RunRefusal
    from amplifier_hooks.runs.store.run_rows import ClaimFilter, RunFilter, StartOutcome
    from amplifier_hooks.storage.change_signal import Watch
    from amplifier_hooks.storage.database import Database


RUNS_KEPT: Final = 7 * 86_400.0
"""Seconds a run is kept after its end."""


class RunStore(Openable, RunScripts):
    """Runs over a database.

    All methods raise `StoreUnavailable` if the database cannot be used. The change that was under way may then have
    happened or not; reading shows which.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(database, clock or SystemClock().now)

    async def open(self) -> Self:
        """Open the database and bring its tables up to date. A second call does nothing."""
        await self.database.open()
        return self

    async def close(self) -> None:
        """Close the database, and wake all waiting callers. A second call does nothing."""
        await self.database.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def get(self, run: str, *, tenant: str | None = None) -> RunRecord:
        """Return one run. Raise `UnknownRun`, also for a run of another tenant."""
        rows = await self.database.fetch(GET, run) if ID.fullmatch(run) else ()
        record = load_run(rows[0]) if rows else None
        if record is None or tenant not in (None, record.tenant):
            raise UnknownRun(run)
        return record

    async def select(self, wanted: RunFilter, limit: int = 100) -> list[RunRecord]:
        """Return runs, newest first."""
        statement = list_statement(wanted, limit)
        return [load_run(row) for row in await self.database.fetch(statement.sql, *statement.values)]

    async def children(self, run: str, limit: int = 1_000) -> list[RunRecord]:
        """Return the runs that a run started, oldest first."""
        return [load_run(row) for row in await self.database.fetch(CHILDREN, run, limit)]

    async def events(self, run: str, *, after: int = 0, limit: int = 1_000) -> list[RunEvent]:
        """Return the events of a run after this number, in order."""
        return [load_run_event(row) for row in await self.database.fetch(EVENTS, run, after, limit)]

    def watch(self, run: str | None = None) -> AbstractContextManager[Watch]:
        """Watch a run for changes; without a run, watch for runs to claim."""
        return self.database.watch(WAITING if run is None else run)

    # -- changing ------------------------------------------------------------------------------------------------------

    async def take(
        self,
        wanted: ClaimFilter,
        runner: str,
        coordinator: str,
        leases: tuple[float, float],
    ) -> RunRecord | None:
        """Claim one run exclusively: handed to the runner, or held by the coordinator for its start hooks.

        `leases` are the seconds of a runner's and of a coordinator's hold. Beginning the start hooks stores no event
        here.
        """
        return (await self.take_all([(wanted, runner)], coordinator, leases))[0]

    async def conclude(
        self, run: str, by: Holder, passed: StartOutcome, *, runner: str | None = None, lease: float = 0.0
    ) -> RunRecord | RunRefusal:
        """Store the outcome of start hooks: the run is blocked, ready for any runner, or handed to this one at once."""
        return (await self.conclude_all([StartConclusion(run, by, passed, runner)], lease))[0]

    async def purge(self, older_than: float = RUNS_KEPT) -> int:
        """Remove runs that ended so long ago, with their events. Return their number."""
        gone = 0
        while count := await self.database.run(self._purge(older_than)):
            gone += count
        return gone


class MemoryRuns(RunStore):
    """Runs that are lost at the end of the process."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(MemoryDatabase(RUN_TABLES), clock)


class SqliteRuns(RunStore):
    """Runs in one file, for one machine. The default: it needs no server."""

    def __init__(self, path: str | Path, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(SqliteDatabase(path, RUN_TABLES), clock)
