"""Runs and their events over a database: one face for memory, SQLite and PostgreSQL."""

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

    All methods raise `StoreUnavailable` when the database cannot be used; what was under way then has happened or has
    not, and reading tells.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(clock or SystemClock().now)
        self.database = database

    async def open(self) -> Self:
        """Open the database and bring its tables up to date. Twice is harmless."""
        await self.database.open()
        return self

    async def close(self) -> None:
        """Close the database; who waits is woken. Twice is harmless."""
        await self.database.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def get(self, run: str, *, tenant: str | None = None) -> RunRecord:
        """One run. Raises `UnknownRun`, also for another tenant's."""
        rows = await self.database.fetch(GET, run) if ID.fullmatch(run) else ()
        record = load_run(rows[0]) if rows else None
        if record is None or tenant not in (None, record.tenant):
            raise UnknownRun(run)
        return record

    async def select(self, wanted: RunFilter, limit: int = 100) -> list[RunRecord]:
        """Runs, newest first."""
        statement = list_statement(wanted, limit)
        return [load_run(row) for row in await self.database.fetch(statement.sql, *statement.values)]

    async def children(self, run: str, limit: int = 1_000) -> list[RunRecord]:
        """The runs it started, oldest first."""
        return [load_run(row) for row in await self.database.fetch(CHILDREN, run, limit)]

    async def events(self, run: str, *, after: int = 0, limit: int = 1_000) -> list[RunEvent]:
        """What was told of a run after the event of this number, in order."""
        return [load_run_event(row) for row in await self.database.fetch(EVENTS, run, after, limit)]

    def watch(self, run: str | None = None) -> AbstractContextManager[Watch]:
        """Be woken when this run changes; without one, when there may be something to claim."""
        return self.database.watch(WAITING if run is None else run)

    # -- changing ------------------------------------------------------------------------------------------------------

    async def submit(self, new: NewRun, max_depth: int) -> RunRecord:
        """Queue a run.

        Raises `UnknownRun` for a parent and `UnknownSession` for a session that is not this tenant's, `AgentsTooDeep`.
        """
        return await self.database.run(self._submit(new, max_depth))

    async def take(
        self,
        wanted: ClaimFilter,
        runner: str,
        coordinator: str,
        leases: tuple[float, float],
    ) -> RunRecord | None:
        """Claim one run for nobody else: handed to the runner, or in its start hooks in the coordinator's hands.

        `leases` are the seconds of a runner's and of a coordinator's hold. Of a run that is begun nothing is told here.
        """
        return (await self.take_all([(wanted, runner)], coordinator, leases))[0]

    async def take_all(
        self,
        wanted: Sequence[tuple[ClaimFilter, str]],
        coordinator: str,
        leases: tuple[float, float],
    ) -> list[RunRecord | None]:
        """The same for several runners, in one transaction: for each a run, or None."""
        return await self.database.run(self._take(wanted, coordinator, leases))

    async def conclude(
        self, run: str, by: Holder, passed: StartOutcome, *, runner: str | None = None, lease: float = 0.0
    ) -> RunRecord | RunRefusal:
        """The start hooks are done: blocked, ready for any runner, or in the hands of this one at once."""
        return (await self.conclude_all([StartConclusion(run, by, passed, runner)], lease))[0]

    async def conclude_all(self, concluded: Sequence[StartConclusion], lease: float) -> list[RunRecord | RunRefusal]:
        """The same for several runs, each of them once, in one transaction."""
        return await self.database.run(self._conclude(concluded, lease))

    async def note(self, run: str, told: Iterable[NewRunEvent], *, settled: bool = False) -> RunRecord:
        """Tell something of a run; `settled`: its finish hooks have run."""
        return await self.database.run(self._note(run, tuple(told), settled=settled))

    async def renew(self, run: str, by: Holder, lease: float) -> RunRecord | RunRefusal:
        """Hold on to a run."""
        return await self.database.run(self._renew(run, by, lease))

    async def report(self, run: str, by: Holder, text: str | None, data: Any) -> RunRecord | RunRefusal:
        """Keep the result of a run that is going on; a later one takes its place."""
        return await self.database.run(self._report(run, by, text, data))

    async def end(
        self, run: str, by: Holder, ending: RunEnding, error: str | None, *, owed: float | None = None
    ) -> RunRecord | RunRefusal:
        """Complete a run, one way or another; said twice the same way by the same holder it is the same.

        `owed`: it has finish hooks, and whoever calls will run them and has so many seconds to renew that.
        """
        return await self.database.run(self._end(run, by, ending, error, owed))

    async def stop(self, run: str, reason: str) -> RunRecord:
        """Stop a run nobody has, or tell its runner to; one that ended stays as it is."""
        return await self.database.run(self._stop(run, reason))

    async def hand_back(self, run: str, by: Holder) -> RunRecord | RunRefusal:
        """Give a run back whose runner could not be told: it is anybody's at once, and counts as nobody's loss."""
        return await self.database.run(self._hand_back(run, by))

    async def hold_on(self, holder: str, starting: Iterable[str], finishing: Iterable[str], lease: float) -> set[str]:
        """Renew the start hooks of runs in these hands, and the finish hooks of others.

        Returns which of the start hooks are still in these hands. What is not named is not renewed: of a run that was
        taken and never heard of by whoever took it, the lease ends.
        """
        return await self.database.run(self._hold_on(holder, tuple(starting), tuple(finishing), lease))

    async def let_go(self, holder: str, finishing: Iterable[str]) -> None:
        """Leave all start hooks in these hands, and the finish hooks of these runs, to whoever comes."""
        await self.database.run(self._let_go(holder, tuple(finishing)))

    async def recover(self, spared: Iterable[str] = ()) -> list[RunRecord]:
        """Take back what is in nobody's hands any more, but for those: each run goes to somebody else, or ends."""
        return await self.database.run(self._recover(frozenset(spared)))

    async def take_owing(self, lease: float) -> list[RunRecord]:
        """Take hold of runs that ended and whose finish hooks nobody runs."""
        return await self.database.run(self._take_owing(lease))

    async def purge(self, older_than: float = RUNS_KEPT) -> int:
        """Remove runs that ended so long ago, with their events."""
        gone = 0
        while count := await self.database.run(self._purge(older_than)):
            gone += count
        return gone


class MemoryRuns(RunStore):
    """Runs that are gone with the process."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(MemoryDatabase(RUN_TABLES), clock)


class SqliteRuns(RunStore):
    """Runs in one file, for one machine. The default: it needs no server."""

    def __init__(self, path: str | Path, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(SqliteDatabase(path, RUN_TABLES), clock)
