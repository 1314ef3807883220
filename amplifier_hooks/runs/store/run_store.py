"""Runs and their events over a database: one interface for memory, SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.runs.run_errors import UnknownRun
from amplifier_hooks.runs.store.run_rows import StartConclusion, load_run, load_run_event
from amplifier_hooks.runs.store.run_transactions import ID, WAITING, RunScripts
from amplifier_hooks.runs.store.statements import CHILDREN, EVENTS, GET, RUN_TABLES, list_statement
from amplifier_hooks.storage.database import Openable
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from amplifier_hooks.runs.run_states import Holder, NewRunEvent, RunEnding, RunEvent, RunRecord, RunRefusal
    from amplifier_hooks.runs.store.run_rows import ClaimFilter, NewRun, RunFilter, StartOutcome
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
        super().__init__(clock or SystemClock().now)
        self.database = database

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

    async def submit(self, new: NewRun, max_depth: int) -> RunRecord:
        """Queue a run.

        Raise `UnknownRun` for a parent and `UnknownSession` for a session that is not this tenant's, and
        `AgentsTooDeep`.
        """
        return await self.database.run(self._submit(new, max_depth))

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

    async def take_all(
        self,
        wanted: Sequence[tuple[ClaimFilter, str]],
        coordinator: str,
        leases: tuple[float, float],
    ) -> list[RunRecord | None]:
        """Claim runs for several runners, in one transaction. Return a run or None for each."""
        return await self.database.run(self._take(wanted, coordinator, leases))

    async def conclude(
        self, run: str, by: Holder, passed: StartOutcome, *, runner: str | None = None, lease: float = 0.0
    ) -> RunRecord | RunRefusal:
        """Store the outcome of start hooks: the run is blocked, ready for any runner, or handed to this one at once."""
        return (await self.conclude_all([StartConclusion(run, by, passed, runner)], lease))[0]

    async def conclude_all(self, concluded: Sequence[StartConclusion], lease: float) -> list[RunRecord | RunRefusal]:
        """Store the outcomes of the start hooks of several runs, each of them once, in one transaction."""
        return await self.database.run(self._conclude(concluded, lease))

    async def note(self, run: str, told: Iterable[NewRunEvent], *, settled: bool = False) -> RunRecord:
        """Store events of a run. `settled` means that its finish hooks have run."""
        return await self.database.run(self._note(run, tuple(told), settled=settled))

    async def renew(self, run: str, by: Holder, lease: float) -> RunRecord | RunRefusal:
        """Extend the hold of a run."""
        return await self.database.run(self._renew(run, by, lease))

    async def report(self, run: str, by: Holder, text: str | None, data: Any) -> RunRecord | RunRefusal:
        """Store the result of a run that is going on; a later result replaces it."""
        return await self.database.run(self._report(run, by, text, data))

    async def end(
        self, run: str, by: Holder, ending: RunEnding, error: str | None, *, owed: float | None = None
    ) -> RunRecord | RunRefusal:
        """End a run. Repeating the same ending by the same holder changes nothing.

        With `owed`, the run has finish hooks; the caller will run them, and has so many seconds to renew that.
        """
        return await self.database.run(self._end(run, by, ending, error, owed))

    async def stop(self, run: str, reason: str) -> RunRecord:
        """Stop a run that no runner has, or ask its runner to stop it. A run that has ended stays as it is."""
        return await self.database.run(self._stop(run, reason))

    async def hand_back(self, run: str, by: Holder) -> RunRecord | RunRefusal:
        """Give back a run whose runner did not receive it. It can be claimed at once, and does not count as lost."""
        return await self.database.run(self._hand_back(run, by))

    async def hold_on(self, holder: str, starting: Iterable[str], finishing: Iterable[str], lease: float) -> set[str]:
        """Renew a holder's start hooks, and the finish hooks of other runs.

        Return the runs whose start hooks the holder still holds. Runs that are not named are not renewed: the lease of
        a run that was claimed, and whose claimer never heard of it, ends.
        """
        return await self.database.run(self._hold_on(holder, tuple(starting), tuple(finishing), lease))

    async def let_go(self, holder: str, finishing: Iterable[str]) -> None:
        """Release all start hooks of a holder, and the finish hooks of these runs, for other coordinators."""
        await self.database.run(self._let_go(holder, tuple(finishing)))

    async def recover(self, spared: Iterable[str] = ()) -> list[RunRecord]:
        """Take back runs whose holds have expired, except `spared`: each goes to another holder, or ends."""
        return await self.database.run(self._recover(frozenset(spared)))

    async def take_owing(self, lease: float) -> list[RunRecord]:
        """Take hold of ended runs whose finish hooks have no coordinator."""
        return await self.database.run(self._take_owing(lease))

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
