"""Runs and their events over a database. One script text for memory, SQLite and PostgreSQL; all judge with the table.

Each transaction begins by reading the run and holding it: SQLite keeps every other writer out, PostgreSQL locks the
row, and whoever looks for a run to claim steps over one that is locked. What is kept is told in the same transaction,
so that nobody hears of what may come undone.
"""

# ruff: noqa: S608  # statements are put together from constants of this package; what others wrote is a value

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import frozen
from msgspec.structs import replace

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.runs.codec import (
    RUN_CHANGING,
    RUN_COLUMNS,
    as_column,
    changing_values,
    fixed_values,
    load_run,
    load_run_event,
    micros_of,
    moment_of,
)
from amplifier_hooks.runs.errors import AgentsTooDeep, UnknownRun, UnknownSession
from amplifier_hooks.runs.events import Told, event_body
from amplifier_hooks.runs.life import (
    END_OF,
    ENDED,
    MOST_ATTEMPTS,
    Holder,
    RunEnding,
    RunRecord,
    RunRefusal,
    RunStatus,
    held,
    moved,
)
from amplifier_hooks.runs.tables import RUN_TABLES
from amplifier_hooks.storage import Script, Statement, Wake
from amplifier_hooks.storage.memory import MemoryDatabase
from amplifier_hooks.storage.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from amplifier_hooks.runs.events import RunEvent
    from amplifier_hooks.storage import Database, Row
    from amplifier_hooks.storage.bells import Watch

__all__ = [
    "RUNS_KEPT",
    "Concluded",
    "MemoryRuns",
    "NewRun",
    "Passed",
    "RunFilter",
    "RunStore",
    "RunWrite",
    "SqliteRuns",
    "Wanted",
    "concluded_as",
    "event_values",
    "next_runs",
    "setting",
    "telling",
]

RunWrite = tuple[RunRecord, RunRecord, "Sequence[Told]"]
"""A run as it was read, what it has become, and what is told of that."""

WAITING: Final = "runs"
"""Called out when there may be something to claim."""
RUNS_KEPT: Final = 7 * 86_400.0
"""Seconds a run is kept after its end."""
EPOCH: Final = moment_of(0)
CHUNK: Final = 500
ID: Final = re.compile(r"[a-z]+_[0-9a-f]{8,64}", re.ASCII)


@frozen(kw_only=True)
class NewRun:
    """A run to be queued. One whose id is there already is that run."""

    id: str
    tenant: str
    session: str
    agent: str
    parameters: dict[str, Any]
    parent: str | None = None
    bare: bool = False
    urgent: bool = False
    hooked: bool = False
    resumes: bool = False
    """The session is to be there already."""


@frozen(kw_only=True)
class Wanted:
    """What whoever claims would take.

    `tenant` and `agents` None mean all. `begin`: also runs whose start hooks have to run first; `heard`: the registry
    has hooks for the start of any run.
    """

    tenant: str | None = None
    agents: frozenset[str] | None = None
    begin: bool = True
    heard: bool = False


@frozen(kw_only=True)
class Passed:
    """What the start hooks made of a run: go on with `parameters`, or `error`; blocked if a hook said so."""

    parameters: dict[str, Any] | None = None
    error: str | None = None
    blocked: bool = False
    told: tuple[Told, ...] = ()


@frozen
class Concluded:
    """What came of the start hooks of one run, and the runner that waits for it.

    `known` is the run as it was when it was begun: if it still is, it need not be read again.
    """

    run: str
    by: Holder
    passed: Passed
    runner: str | None = None
    known: RunRecord | None = None


@frozen(kw_only=True)
class RunFilter:
    """Which runs to list. None and False mean that it does not matter."""

    tenant: str | None = None
    has_hooks: bool = False
    blocked: bool = False
    status: RunStatus | None = None
    agent: str | None = None
    parent: str | None = None
    session: str | None = None
    before: tuple[datetime, str] | None = None
    """Those after this one in the list: when it was created, and its id."""


class RunStore:
    """Runs over a database. Subclasses say how the time is told and how rows are held.

    All methods raise `StoreUnavailable` when the database cannot be used; what was under way then has happened or has
    not, and reading tells.
    """

    NOW = "NULL"
    """The database's time; NULL where it is the clock's."""
    HOLD = ""
    """What holds a row that was read until the transaction ends."""
    SKIP = ""
    """The same, stepping over rows that are held by others."""
    SAYS = False
    """Whether setting a run with events notifies other machines by itself."""

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        self.database = database
        self._clock = clock or SystemClock().now

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

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
        values: list[Any] = [limit]
        text = f"{RUNS} WHERE 1 = 1"
        for condition, value in _conditions(wanted):
            values.append(value)
            text += f" AND {condition.replace('?', f'${len(values)}')}"
        if wanted.before is not None:
            at, run = wanted.before
            values += (micros_of(at), run)
            text += f" AND (created < ${len(values) - 1} OR (created = ${len(values) - 1} AND id > ${len(values)}))"
        rows = await self.database.fetch(f"{text} ORDER BY created DESC, id LIMIT $1", *values)
        return [load_run(row) for row in rows]

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
        wanted: Wanted,
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
        wanted: Sequence[tuple[Wanted, str]],
        coordinator: str,
        leases: tuple[float, float],
    ) -> list[RunRecord | None]:
        """The same for several runners, in one transaction: for each a run, or None."""
        return await self.database.run(self._take(wanted, coordinator, leases))

    async def conclude(
        self, run: str, by: Holder, passed: Passed, *, runner: str | None = None, lease: float = 0.0
    ) -> RunRecord | RunRefusal:
        """The start hooks are done: blocked, ready for any runner, or in the hands of this one at once."""
        return (await self.conclude_all([Concluded(run, by, passed, runner)], lease))[0]

    async def conclude_all(self, concluded: Sequence[Concluded], lease: float) -> list[RunRecord | RunRefusal]:
        """The same for several runs, each of them once, in one transaction."""
        return await self.database.run(self._conclude(concluded, lease))

    async def note(self, run: str, told: Iterable[Told], *, settled: bool = False) -> RunRecord:
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

    async def hold_on(self, holder: str, finishing: Iterable[str], lease: float) -> None:
        """Renew every start hook in these hands, and the finish hooks of these runs."""
        await self.database.run(self._hold_on(holder, tuple(finishing), lease))

    async def recover(self) -> list[RunRecord]:
        """Take back what is in nobody's hands any more: each run goes to somebody else, or ends."""
        return await self.database.run(self._recover())

    async def owing(self, lease: float) -> list[RunRecord]:
        """Take hold of runs that ended and whose finish hooks nobody runs."""
        return await self.database.run(self._owing(lease))

    async def purge(self, older_than: float = RUNS_KEPT) -> int:
        """Remove runs that ended so long ago, with their events."""
        gone = 0
        while count := await self.database.run(self._purge(older_than)):
            gone += count
        return gone

    # -- the transactions ----------------------------------------------------------------------------------------------

    def _submit(self, new: NewRun, max_depth: int) -> Script[RunRecord]:
        known, now = yield from self._held(new.id)
        if known is not None:
            return known
        parent: RunRecord | None = None
        if new.parent is not None:
            rows = yield Statement(GET, (new.parent,))
            parent = load_run(rows[0]) if rows else None
            if parent is None or parent.tenant != new.tenant:
                raise UnknownRun(new.parent)
            if parent.depth + 1 > max_depth:
                chain = yield from self._chain(parent)
                raise AgentsTooDeep([*chain, new.agent], max_depth)
        if new.resumes:
            rows = yield Statement(SESSION, (new.session, as_column(new.tenant)))
            if not rows:
                raise UnknownSession(new.session)
        record = RunRecord(
            id=new.id,
            tenant=new.tenant,
            session=new.session,
            agent=new.agent,
            parameters=new.parameters,
            created=now,
            parent=new.parent,
            parent_session=parent.session if parent else None,
            depth=parent.depth + 1 if parent else 0,
            bare=new.bare,
            urgent=new.urgent,
            hooked=new.hooked,
            events=1,
        )
        rows = yield Statement(INSERT, (*fixed_values(record), *changing_values(record)))
        if not rows:  # somebody else's, at the same instant
            rows = yield Statement(GET, (new.id,))
            return load_run(rows[0])
        yield telling([(record, 1, Told("run_queued", {"agent_name": record.agent}))], now)
        yield Wake(record.id)
        yield Wake(WAITING)
        if parent is not None:
            child = Told("run_child", {"child_run_id": record.id, "agent_name": record.agent})
            held_parent, _ = yield from self._held(parent.id)
            if held_parent is not None:
                yield from self._write(
                    held_parent, replace(held_parent, version=held_parent.version + 1), (child,), now
                )
        return record

    def _chain(self, last: RunRecord) -> Script[list[str]]:
        """The agents that led here, the first one first."""
        names = [last.agent]
        above = last.parent
        while above is not None and len(names) < CHUNK:
            rows = yield Statement("SELECT agent, parent FROM {schema}.run WHERE id = $1", (above,))
            if not rows:
                break
            names.append(rows[0][0])
            above = rows[0][1]
        return names[::-1]

    def _take(
        self,
        wanted: Sequence[tuple[Wanted, str]],
        coordinator: str,
        leases: tuple[float, float],
    ) -> Script[list[RunRecord | None]]:
        for_runner, for_coordinator = leases
        places: dict[Wanted, list[int]] = {}
        for place, (one, _) in enumerate(wanted):
            places.setdefault(one, []).append(place)
        writes: dict[int, RunWrite] = {}
        now = EPOCH
        for one, those in places.items():
            where, values = next_runs(one, len(those))
            text = f"SELECT {self.NOW}, {RUN_COLUMNS} FROM {{schema}}.run {where}{self.SKIP}"
            rows = yield Statement(text, values)
            for place, row in zip(those, rows, strict=False):
                record, now = self._read(row)
                if record.id in {before.id for before, _, _ in writes.values()}:
                    continue  # another one of these was quicker
                if record.stage == "queued" and not record.bare and (record.hooked or one.heard):
                    after = held(_sure(moved(record, "begin", now)), coordinator, for_coordinator, now)
                    writes[place] = (record, after, ())
                else:
                    writes[place] = _handed(record, record, wanted[place][1], for_runner, now)
        written = yield from self._write_all(list(writes.values()), now)
        taken = dict(zip(writes, written, strict=True))
        return [taken.get(place) for place in range(len(wanted))]

    def _conclude(self, concluded: Sequence[Concluded], lease: float) -> Script[list[RunRecord | RunRefusal]]:
        places = ", ".join(f"${place}" for place in range(1, len(concluded) + 1))
        text = f"SELECT {self.NOW}, {RUN_COLUMNS} FROM {{schema}}.run WHERE id IN ({places}) ORDER BY id{self.HOLD}"
        rows = yield Statement(text, tuple(one.run for one in concluded))
        found = {record.id: (record, now) for record, now in map(self._read, rows)}
        results: dict[str, RunRecord | RunRefusal] = {}
        writes: list[RunWrite] = []
        now = EPOCH
        for one in concluded:
            if one.run not in found:
                raise UnknownRun(one.run)
            record, now = found[one.run]
            after = concluded_as(record, one, lease, now)
            if isinstance(after, RunRefusal):
                results[one.run] = after
                continue
            writes.append(after)
            if after[1].stage == "ready":
                yield Wake(WAITING)
        results.update({record.id: record for record in (yield from self._write_all(writes, now))})
        return [results[one.run] for one in concluded]

    def _note(self, run: str, told: tuple[Told, ...], *, settled: bool) -> Script[RunRecord]:
        record, now = yield from self._known(run)
        after = replace(record, version=record.version + 1)
        if any(what.type.startswith("hook_") for what in told):
            after = replace(after, hooked=True)
        if settled:
            after = replace(after, owes=False, held_until=None)
            yield Wake(run)
        return (yield from self._write(record, after, told, now))

    def _renew(self, run: str, by: Holder, lease: float) -> Script[RunRecord | RunRefusal]:
        record, now = yield from self._known(run)
        after = moved(record, "renew", now, by)
        if isinstance(after, RunRefusal):
            return after
        return (yield from self._write(record, replace(after, held_until=now + timedelta(seconds=lease)), (), now))

    def _report(self, run: str, by: Holder, text: str | None, data: Any) -> Script[RunRecord | RunRefusal]:
        record, now = yield from self._known(run)
        after = moved(record, "report", now, by)
        if isinstance(after, RunRefusal):
            return after
        after = replace(after, reported=True, result_text=text, result_data=data)
        return (yield from self._write(record, after, (Told("run_result", _result(after)),), now))

    def _end(
        self, run: str, by: Holder, ending: RunEnding, error: str | None, owed: float | None
    ) -> Script[RunRecord | RunRefusal]:
        record, now = yield from self._known(run)
        if record.stage == ending and (record.holder, record.attempt) == (by.name, by.attempt):
            return record  # said before
        after = moved(record, END_OF[ending], now, by)
        if isinstance(after, RunRefusal):
            return after
        after = replace(after, error=error)
        if owed is not None:
            after = replace(after, owes=True, held_until=now + timedelta(seconds=owed))
        return (yield from self._write(record, after, (_ended(after),), now))

    def _stop(self, run: str, reason: str) -> Script[RunRecord]:
        record, now = yield from self._known(run)
        if record.stage in ENDED:
            return record
        after = moved(record, "stop", now)
        if isinstance(after, RunRefusal):  # a runner has it
            if record.stopping:
                return record
            after = replace(record, version=record.version + 1, stopping=True, error=reason)
            return (yield from self._write(record, after, (Told("run_stopping", {"reason": reason}),), now))
        after = replace(after, error=reason, owes=record.handed > 0, holder=None)
        return (yield from self._write(record, after, (_ended(after),), now))

    def _hold_on(self, holder: str, finishing: tuple[str, ...], lease: float) -> Script[None]:
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        until = micros_of(self._at(value) + timedelta(seconds=lease))
        yield Statement(HOLD_ON, (until, as_column(holder)))
        for run in finishing:
            yield Statement(FINISH_ON, (until, run))

    def _recover(self) -> Script[list[RunRecord]]:
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        rows = yield Statement(f"{LAPSED}{self.SKIP}", (micros_of(self._at(value)), CHUNK))
        found = []
        for row in rows:
            record, now = load_run(row), self._at(value)
            after, what = _taken_back(record, now)
            found.append((yield from self._write(record, after, what, now)))
        if found:
            yield Wake(WAITING)
        return found

    def _owing(self, lease: float) -> Script[list[RunRecord]]:
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        now = self._at(value)
        rows = yield Statement(f"{OWING}{self.SKIP}", (micros_of(now), CHUNK))
        found = []
        for row in rows:
            record = load_run(row)
            until = now + timedelta(seconds=lease)
            after = replace(record, held_until=until, version=record.version + 1)
            found.append((yield from self._write(record, after, (), now)))
        return found

    def _purge(self, older_than: float) -> Script[int]:
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        rows = yield Statement(PURGE, (micros_of(self._at(value)) - round(older_than * 1e6), CHUNK))
        for (run,) in rows:
            yield Statement("DELETE FROM {schema}.run_event WHERE run = $1", (run,))
        return len(rows)

    # -- their steps ---------------------------------------------------------------------------------------------------

    def _at(self, value: int | None) -> datetime:
        return self._clock() if value is None else moment_of(value)

    def _read(self, row: Row) -> tuple[RunRecord, datetime]:
        return load_run(row[1:]), self._at(row[0])

    def _held(self, run: str) -> Script[tuple[RunRecord | None, datetime]]:
        """A run and the time, the row held; the time alone where there is no such run."""
        rows = yield Statement(f"SELECT {self.NOW}, {RUN_COLUMNS} FROM {{schema}}.run WHERE id = $1{self.HOLD}", (run,))
        if rows:
            return self._read(rows[0])
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        return None, self._at(value)

    def _known(self, run: str) -> Script[tuple[RunRecord, datetime]]:
        if not ID.fullmatch(run):
            raise UnknownRun(run)
        record, now = yield from self._held(run)
        if record is None:
            raise UnknownRun(run)
        return record, now

    def _write(self, before: RunRecord, after: RunRecord, told: Sequence[Told], now: datetime) -> Script[RunRecord]:
        """Set the row where it is still what was read, and tell what there is to tell."""
        (written,) = yield from self._write_all([(before, after, told)], now)
        return written

    def _write_all(self, writes: Sequence[RunWrite], now: datetime) -> Script[list[RunRecord]]:
        """The same for several runs."""
        if not writes:
            return []
        done: list[RunRecord] = []
        events: list[tuple[RunRecord, int, Told]] = []
        for before, after, told in writes:
            failed = sum(what.type == "hook_failed" for what in told)
            number = before.events + len(told)
            record = replace(after, events=number, failures=before.failures + failed)
            done.append(record)
            events += [(record, before.events + place, what) for place, what in enumerate(told, start=1)]
        rows = yield from self._set(writes, done, events, now)
        if len(rows) != len(writes):
            raise AssertionError(f"one of {len(writes)} runs changed while they were held")
        for run in dict.fromkeys(record.id for record, _, _ in events):
            yield Wake(run, said=self.SAYS)
        return done

    def _set(
        self,
        writes: Sequence[RunWrite],
        done: Sequence[RunRecord],
        events: Sequence[tuple[RunRecord, int, Told]],
        now: datetime,
    ) -> Script[list[Row]]:
        """Set the rows, and add the events; the rows that were still what they were."""
        rows = yield setting(writes, done)
        if events:
            yield telling(events, now)
        return rows


def next_runs(wanted: Wanted, count: int) -> tuple[str, tuple[Any, ...]]:
    """The next runs in the queue, as a condition and its values: those others wait for first, and then the oldest."""
    conditions: list[str] = ["stage IN ('queued', 'ready')"]
    values: list[Any] = []
    if not wanted.begin:
        direct = "bare = 1" if wanted.heard else "(bare = 1 OR hooked = 0)"
        conditions.append(f"(stage = 'ready' OR {direct})")
    if wanted.tenant is not None:
        values.append(as_column(wanted.tenant))
        conditions.append(f"tenant = ${len(values)}")
    if wanted.agents is not None:
        places = []
        for agent in sorted(wanted.agents):
            values.append(agent)
            places.append(f"${len(values)}")
        conditions.append(f"agent IN ({', '.join(places)})" if places else "1 = 0")
    where = " AND ".join(conditions)
    return f"WHERE {where} ORDER BY urgent DESC, created, id LIMIT {count:d}", tuple(values)


def setting(writes: Sequence[RunWrite], done: Sequence[RunRecord]) -> Statement:
    """The statement that sets the rows that are still what they were, and returns their ids."""
    if len(done) == 1:
        before = writes[0][0]
        return Statement(SET, (before.id, before.version, *changing_values(done[0])))
    values: list[Any] = []
    for (before, _, _), after in zip(writes, done, strict=True):
        values += (before.id, before.version, *changing_values(after))
    return Statement(_set_many(len(done)), tuple(values))


@cache
def _set_many(count: int) -> str:
    """The statement that sets so many rows."""
    width = len(SET_TYPES)
    lines = [
        "(" + ", ".join(f"CAST(${row * width + place} AS {kind})" for place, kind in enumerate(SET_TYPES, 1)) + ")"
        for row in range(count)
    ]
    return f"{SET_MANY} (VALUES {', '.join(lines)}) AS v {SET_WHERE}"


@cache
def _tell_many(count: int, start: int) -> str:
    """The statement that adds so many events, its values numbered after `start`."""
    lines = [
        "(" + ", ".join(f"${start + row * EVENT_WIDTH + place}" for place in range(1, EVENT_WIDTH + 1)) + ")"
        for row in range(count)
    ]
    return f"{TELL} {', '.join(lines)}"


def event_values(event: tuple[RunRecord, int, Told], now: datetime) -> tuple[Any, ...]:
    """The columns of one event."""
    record, number, what = event
    return record.id, number, micros_of(what.at or now), what.type, as_column(event_body(record, what, now))


def telling(events: Sequence[tuple[RunRecord, int, Told]], now: datetime, start: int = 0) -> Statement:
    """The statement that adds events, its values numbered after `start`."""
    values: list[Any] = []
    for event in events:
        values += event_values(event, now)
    return Statement(_tell_many(len(events), start), tuple(values))


def _handed(stored: RunRecord, record: RunRecord, runner: str, lease: float, now: datetime, *more: Told) -> RunWrite:
    """A run in a runner's hands; `stored` is what the row still says."""
    after = held(_sure(moved(record, "hand", now)), runner, lease, now)
    after = replace(after, handed=record.handed + 1, started=record.started or now)
    return stored, after, (*more, Told("run_running", {"runner": runner, "attempt": after.handed}))


def concluded_as(record: RunRecord, one: Concluded, lease: float, now: datetime) -> RunWrite | RunRefusal:
    """What becomes of a run whose start hooks are done."""
    passed = one.passed
    after = moved(record, "pass" if passed.error is None else "block", now, one.by)
    if isinstance(after, RunRefusal):
        return after
    hooked = record.hooked or bool(passed.told)
    if passed.error is not None:
        after = replace(after, hooked=hooked, error=passed.error, blocked=passed.blocked, holder=None)
        return record, after, (*passed.told, _ended(after))
    changed = passed.parameters is not None and passed.parameters != record.parameters
    if changed or hooked is not record.hooked:
        after = replace(after, hooked=hooked, ran_with=passed.parameters if changed else None)
    if one.runner is not None:
        return _handed(record, after, one.runner, lease, now, *passed.told)
    return record, after, (*passed.told, Told("run_ready", {}))


def _conditions(wanted: RunFilter) -> Iterable[tuple[str, Any]]:
    """What a filter means, as conditions with a `?` for their value."""
    found: list[tuple[bool, str, Any]] = [
        (wanted.tenant is not None, "tenant = ?", as_column(wanted.tenant)),
        (wanted.has_hooks, "hooked = ?", 1),
        (wanted.blocked, "blocked = ?", 1),
        (wanted.agent is not None, "agent = ?", wanted.agent),
        (wanted.parent is not None, "parent = ?", wanted.parent),
        (wanted.session is not None, "session = ?", wanted.session),
        (wanted.status not in (None, "starting"), "stage = ?", wanted.status),
        (wanted.status == "starting", "stage IN ('starting', ?)", "ready"),
    ]
    return [(condition, value) for applies, condition, value in found if applies]


def _result(record: RunRecord) -> dict[str, Any]:
    return {"result_text": record.result_text, "result_data": record.result_data}


def _ended(record: RunRecord) -> Told:
    """How a run ended, with everything that is known of it then."""
    fields = {"status": record.status, **_result(record), "error": record.error}
    if record.blocked:
        fields["block_reason"] = record.error
    kinds: dict[str, Any] = {"completed": "run_completed", "failed": "run_failed", "stopped": "run_stopped"}
    return Told(kinds[record.stage], fields)


def _taken_back(record: RunRecord, now: datetime) -> tuple[RunRecord, tuple[Told, ...]]:
    """What becomes of a run whose holder did not come back."""
    who = record.holder or "nobody"
    if record.stage == "starting":
        lost = Told("run_lost", {"holder": who, "error": f"{who} did not finish its start hook; it is taken up again"})
        return _sure(moved(record, "drop", now)), (lost,)
    lost = Told("run_lost", {"holder": who, "error": f"runner {who} was not heard of in time"})
    if record.stopping:
        after = _sure(moved(record, "lose", now))
        after = replace(_sure(moved(after, "stop", now)), owes=True)
        return replace(after, version=record.version + 1), (lost, _ended(after))
    if record.handed >= MOST_ATTEMPTS:
        error = f"{record.handed} runners had this run and were not heard of again"
        after = replace(_sure(moved(record, "give_up", now)), error=error, owes=True)
        return after, (lost, _ended(after))
    return _sure(moved(record, "lose", now)), (lost,)


def _sure(after: RunRecord | RunRefusal) -> RunRecord:
    if isinstance(after, RunRefusal):
        raise AssertionError(f"run {after.record.id!r} was read to be moved, and {after.reason}")  # noqa: TRY004  # not the caller's
    return after


# -- kinds of database -------------------------------------------------------------------------------------------------


class MemoryRuns(RunStore):
    """Runs that are gone with the process."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(MemoryDatabase(RUN_TABLES), clock)


class SqliteRuns(RunStore):
    """Runs in one file, for one machine. The default: it needs no server."""

    def __init__(self, path: str | Path, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(SqliteDatabase(path, RUN_TABLES), clock)


# -- statements --------------------------------------------------------------------------------------------------------

RUNS: Final = f"SELECT {RUN_COLUMNS} FROM {{schema}}.run"
GET: Final = f"{RUNS} WHERE id = $1"
CHILDREN: Final = f"{RUNS} WHERE parent = $1 ORDER BY created, id LIMIT $2"
SESSION: Final = "SELECT id FROM {schema}.run WHERE session = $1 AND tenant = $2 LIMIT 1"
LAPSED: Final = (
    f"{RUNS} WHERE held_until IS NOT NULL AND held_until <= $1 AND stage IN ('starting', 'running') "
    "ORDER BY held_until LIMIT $2"
)
OWING: Final = f"{RUNS} WHERE owes = 1 AND coalesce(held_until, 0) <= $1 ORDER BY id LIMIT $2"
HOLD_ON: Final = (
    "UPDATE {schema}.run SET held_until = $1 WHERE holder = $2 AND held_until IS NOT NULL AND stage = 'starting'"
)
FINISH_ON: Final = "UPDATE {schema}.run SET held_until = $1 WHERE id = $2 AND owes = 1"
EVENTS: Final = (
    "SELECT run, number, at, kind, body FROM {schema}.run_event WHERE run = $1 AND number > $2 ORDER BY number LIMIT $3"
)
INSERT: Final = (
    f"INSERT INTO {{schema}}.run ({RUN_COLUMNS}) "
    f"VALUES ({', '.join(f'${n}' for n in range(1, len(RUN_COLUMNS.split(',')) + 1))}) "
    "ON CONFLICT (id) DO NOTHING RETURNING id"
)
SET: Final = (
    "UPDATE {schema}.run SET "
    + ", ".join(f"{name.strip()} = ${n}" for n, name in enumerate(RUN_CHANGING.split(","), start=3))
    + " WHERE id = $1 AND version = $2 RETURNING id"
)
SET_NAMES: Final = tuple(name.strip() for name in RUN_CHANGING.split(","))
TEXTS: Final = frozenset({"stage", "holder", "ran_with", "result_text", "result_data", "error"})
SET_TYPES: Final = ("TEXT", "BIGINT", *("TEXT" if name in TEXTS else "BIGINT" for name in SET_NAMES))
SET_MANY: Final = (
    "UPDATE {schema}.run AS r SET "
    + ", ".join(f"{name} = v.column{place}" for place, name in enumerate(SET_NAMES, start=3))
    + " FROM"
)
SET_WHERE: Final = "WHERE r.id = v.column1 AND r.version = v.column2 RETURNING id"
EVENT_WIDTH: Final = 5
TELL: Final = "INSERT INTO {schema}.run_event (run, number, at, kind, body) VALUES"
PURGE: Final = (
    "DELETE FROM {schema}.run WHERE id IN (SELECT id FROM {schema}.run "
    "WHERE ended IS NOT NULL AND ended <= $1 AND owes = 0 LIMIT $2) RETURNING id"
)
