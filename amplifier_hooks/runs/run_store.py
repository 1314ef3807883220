"""Runs and their events over a database: one row for each run, in memory, SQLite and PostgreSQL.

A change reads the row, computes the run after the change, and writes the row if it has not changed meanwhile; otherwise
the change begins again. The events of a change are in the same row and are written by the same statement, so a reader
never sees an event of a change that did not happen. The other columns are for the conditions of queries; `body` is the
whole run. Values that others wrote are kept as ASCII JSON: lone surrogates and NUL are escaped, so that every database
can keep them.
"""

# ruff: noqa: S608  # statements are put together from constants of this module; what others wrote is a value
from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec.structs import replace

from amplifier_hooks.clock import SystemClock, micros_of, moment_of
from amplifier_hooks.runs.blueprint import HookOverride
from amplifier_hooks.runs.run_states import AgentsTooDeep, RunRecord, UnknownRun, UnknownSession
from amplifier_hooks.storage.database import CorruptStore, Migrations, Openable
from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from amplifier_hooks.runs.run_states import Decide, RunEvent
    from amplifier_hooks.storage.change_signal import Watch
    from amplifier_hooks.storage.database import Database

WAITING: Final = "runs"
"""Topic that wakes waiting claims when there may be a run to claim."""
CHUNK: Final = 500
MOST_CHILDREN: Final = 1_000
NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
"""The time of PostgreSQL in microseconds."""
ID: Final = re.compile(r"[a-z]+_[0-9a-f]{8,64}", re.ASCII)

COLUMNS: Final = (
    "id TEXT PRIMARY KEY, version BIGINT NOT NULL, stage TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, "
    "agent TEXT NOT NULL, parent TEXT, created BIGINT NOT NULL, ended BIGINT, bare BIGINT NOT NULL, "
    "urgent BIGINT NOT NULL, hooked BIGINT NOT NULL, blocked BIGINT NOT NULL, owes BIGINT NOT NULL, holder TEXT, "
    "held_until BIGINT"
)
OVERRIDE_COLUMNS: Final = "agent TEXT NOT NULL, point TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (agent, point)"
NAMES: Final = tuple(column.split()[0] for column in COLUMNS.split(", "))
"""Columns that repeat a field of the run, as it is or as JSON."""
PLAIN: Final = frozenset({"id", "stage"})
RUN_TABLES: Final = Migrations(
    component="runs",
    steps=(
        (
            f"CREATE TABLE {{schema}}.run ({COLUMNS}, body TEXT NOT NULL, told TEXT NOT NULL)",
            "CREATE INDEX run_waiting ON {schema}.run (urgent DESC, created, id) WHERE stage IN ('queued', 'ready')",
            "CREATE INDEX run_held ON {schema}.run (held_until) WHERE held_until IS NOT NULL",
            "CREATE INDEX run_listed ON {schema}.run (tenant, created DESC, id)",
            "CREATE INDEX run_session ON {schema}.run (session)",
            "CREATE INDEX run_children ON {schema}.run (parent, created) WHERE parent IS NOT NULL",
            "CREATE INDEX run_owing ON {schema}.run (id) WHERE owes = 1",
            f"CREATE TABLE {{schema}}.hook_override ({OVERRIDE_COLUMNS})",
        ),
    ),
)
PLACES: Final = ", ".join(f"${place}" for place in range(1, len(NAMES) + 3))
INSERT: Final = (
    f"INSERT INTO {{schema}}.run ({', '.join(NAMES)}, body, told) VALUES ({PLACES}) "
    "ON CONFLICT (id) DO NOTHING RETURNING id"
)
UPDATE: Final = (
    f"UPDATE {{schema}}.run SET ({', '.join(NAMES)}, body, told) = "
    f"({PLACES.rpartition(', ')[0]}, told || ${len(NAMES) + 2}) "
    f"WHERE id = $1 AND version = ${len(NAMES) + 3} RETURNING id"
)
REPLACE: Final = (
    "INSERT INTO {schema}.hook_override AS known (agent, point, body) VALUES ($1, $2, $4) "
    "ON CONFLICT (agent, point) DO UPDATE SET body = $4 WHERE known.body = $3 RETURNING agent"
)
"""Replaces the body $3 by the body $4; an empty body stands for no override."""
encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class RunStore(Openable):
    """Runs over a database that has `RUN_TABLES` among its tables. Opening and closing them does so to the database.

    All methods raise `StoreUnavailable` if the database cannot be used. The change that was under way may then have
    happened or not; reading shows which. Cancelling a change has the same effect.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        self.database = database
        now = clock or SystemClock().now
        self.now: Callable[[], str] = lambda: NOW if isinstance(database, PostgresDatabase) else str(micros_of(now()))
        """Function that returns the time in microseconds, in SQL: that of PostgreSQL, or of the clock."""
        self._claims = asyncio.Lock()

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
        return (await self._read(run, tenant))[0]

    async def select(
        self, limit: int = 100, *, before: tuple[int, str] | None = None, **wanted: Any
    ) -> list[RunRecord]:
        """Return runs, newest first. `wanted` are fields of the runs, or `status`; None matches all runs.

        `before` is a cursor, the microseconds and the id of a run: only runs after it in the list are returned.
        """
        status = wanted.pop("status", None)
        conditions, values = _where({**wanted, "stage": ("starting", "ready") if status == "starting" else status})
        if before is not None:
            values += before
            at, run = len(values) - 1, len(values)
            conditions.append(f"(created < ${at} OR (created = ${at} AND id > ${run}))")
        where = " AND ".join(conditions) or "1 = 1"
        return [one for one, _ in await self._find(f"{where} ORDER BY created DESC, id LIMIT {limit:d}", *values)]

    async def children(self, run: str, *, tenant: str | None = None) -> list[RunRecord]:
        """Return the runs that a run started, oldest first; with a tenant, only those of it."""
        return (await self.select(MOST_CHILDREN, parent=run, tenant=tenant))[::-1]

    async def events(self, run: str, *, after: int = 0) -> list[RunEvent]:
        """Return the events of a run after this number, in order. Raise `CorruptStore` for a row that was damaged."""
        rows = await self.database.fetch("SELECT told FROM {schema}.run WHERE id = $1", run)
        lines = rows[0][0].splitlines() if rows else []
        try:
            return [msgspec.convert(json.loads(line), dict[str, Any]) for line in lines[after:]]
        except (ValueError, msgspec.ValidationError) as problem:
            raise CorruptStore(f"the events of run {run} cannot be read: {problem}") from problem

    def watch(self, run: str | None = None) -> AbstractContextManager[Watch]:
        """Watch a run for changes; without a run, watch for runs to claim."""
        return self.database.watch(WAITING if run is None else run)

    # -- the queue -----------------------------------------------------------------------------------------------------

    async def submit(
        self, new: RunRecord, max_depth: int, *, parent_tenant: str | None = None, resumes: bool = False
    ) -> RunRecord:
        """Queue a run. If its id exists already, return that run.

        `parent_tenant` is the tenant of the parent, by default that of the run; `resumes` means that the session has to
        exist. Raise `UnknownRun` for a parent of another tenant, `UnknownSession`, and `AgentsTooDeep`.

        Args:
            new: Run to queue.
        """
        parent: RunRecord | None = None
        if new.parent is not None:
            parent = await self.get(new.parent, tenant=new.tenant if parent_tenant is None else parent_tenant)
            if parent.depth + 1 > max_depth:
                raise AgentsTooDeep(
                    f"agents start agents more than {max_depth} deep: {new.agent!r} below run {parent.id} of "
                    f"{parent.agent!r}; break the cycle, or raise max_depth of the coordinator"
                )
            new = replace(new, parent_session=parent.session, depth=parent.depth + 1)
        if resumes and not await self.select(1, session=new.session, tenant=new.tenant):
            raise UnknownSession(f"there is no session {new.session!r:.80}; leave it out to begin a new one")
        ((now,),) = await self.database.fetch(f"SELECT {self.now()}")
        new = replace(new, created=moment_of(now))
        record = await self._write(INSERT, new, (new.event(new.created, "run_queued", agent_name=new.agent),))
        if record is None:  # an earlier call has queued it
            return await self.get(new.id)
        if parent is not None:
            told = parent.event(new.created, "run_child", child_run_id=new.id, agent_name=new.agent)
            await self.change(parent.id, partial(RunRecord.note, told=(told,)))
        return record

    async def take(
        self,
        holders: tuple[str, str],
        leases: tuple[float, float],
        *,
        tenant: str | None = None,
        agents: Iterable[str] | None = None,
        begin: bool = True,
    ) -> RunRecord | None:
        """Claim one run exclusively: handed to the runner, or held by the coordinator for its start hooks.

        Urgent runs come first, and then the oldest.

        Args:
            agents: Names of the agents whose runs may be claimed; None stands for all.
            holders: Names of the runner and of the coordinator.
            leases: Seconds of a runner's and of a coordinator's hold.
            begin: True if runs may be claimed whose start hooks have to run first.
        """
        conditions, values = _where({"tenant": tenant, "agent": None if agents is None else tuple(sorted(agents))})
        conditions.append("stage IN ('queued', 'ready')")  # as in the index
        if not begin:
            conditions.append("(stage = 'ready' OR bare = 1)")
        text = f"{' AND '.join(conditions)} ORDER BY urgent DESC, created, id LIMIT 1"
        async with self._claims:  # claims of one process would find the same run
            while found := await self._find(text, *values):
                ((record, now),) = found
                change = record.take(now, holders, leases)
                if (after := await self._write(UPDATE, *change)) is not None:
                    return after
        return None

    async def change(self, run: str, decide: Decide, tenant: str | None = None) -> RunRecord:
        """Change a run as `decide` says, which is asked again if the run has changed meanwhile.

        Raise `UnknownRun`, also for a run of another tenant, and the errors of `decide`.

        Args:
            decide: Function that returns the run after the change, such as the methods of `RunRecord`.
        """
        while True:
            record, now = await self._read(run, tenant)
            after, told = decide(record, now)
            if after is record and not told:
                return record
            if (written := await self._write(UPDATE, after, told)) is not None:
                return written

    # -- runs without a holder -----------------------------------------------------------------------------------------

    async def let_go(self, holder: str) -> None:
        """Release all start hooks of a holder for other coordinators.

        Args:
            holder: Name of the holder.
        """
        found = await self._find("holder = $1 AND stage = 'starting'", encode(holder))
        await self._change_all(found, lambda record, now: replace(record, held_until=now).take_back(now))

    async def recover(self) -> list[RunRecord]:
        """Take back runs whose holds have expired: each goes to another holder, or ends."""
        lapsed = f"held_until <= {self.now()} AND stage IN ('starting', 'running') ORDER BY held_until LIMIT {CHUNK}"
        return await self._change_all(await self._find(lapsed), RunRecord.take_back)

    async def take_owing(self, lease: float) -> list[RunRecord]:
        """Take hold of ended runs whose finish hooks have no coordinator."""
        owing = f"owes = 1 AND coalesce(held_until, 0) <= {self.now()} ORDER BY id LIMIT {CHUNK}"
        return await self._change_all(await self._find(owing), partial(RunRecord.owe, seconds=lease))

    async def purge(self, older_than: float) -> int:
        """Remove runs that ended so many seconds ago, unless their finish hooks are still owed. Return their number."""
        text = f"DELETE FROM {{schema}}.run WHERE ended <= {self.now()} - $1 AND owes = 0 RETURNING id"
        return len(await self.database.fetch(text, round(older_than * 1e6)))

    # -- overrides of hooks --------------------------------------------------------------------------------------------

    async def overrides(self, agent: str) -> tuple[HookOverride, ...]:
        """Return an agent's overrides, at most one a point. Raise `CorruptStore` for one that was damaged."""
        text = "SELECT body FROM {schema}.hook_override WHERE agent = $1 AND body <> '' ORDER BY point"
        rows = await self.database.fetch(text, agent)
        try:
            return tuple(HookOverride.model_validate_json(body) for (body,) in rows)
        except ValueError as problem:
            raise CorruptStore(f"an override of {agent!r} cannot be read: {problem}") from problem

    async def replace_override(self, before: HookOverride | None, after: HookOverride | None) -> bool:
        """Replace an override of a hook; None is no override. Return False if there is not `before` any more."""
        about = after or before
        if about is None:
            return True
        old, new = ("" if one is None else one.model_dump_json() for one in (before, after))
        return bool(await self.database.fetch(REPLACE, about.agent, about.point, old, new))

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _find(self, condition: str, *values: Any) -> list[tuple[RunRecord, datetime]]:
        """Return the runs that match, each with the time of reading."""
        rows = await self.database.fetch(f"SELECT {self.now()}, body FROM {{schema}}.run WHERE {condition}", *values)
        return [(_load(body), moment_of(now)) for now, body in rows]

    async def _read(self, run: str, tenant: str | None) -> tuple[RunRecord, datetime]:
        """Return one run, with the time of reading. Raise `UnknownRun`, also for a run of another tenant."""
        found = await self._find("id = $1", run) if ID.fullmatch(run) else []
        if not found or tenant not in (None, found[0][0].tenant):
            raise UnknownRun(run)
        return found[0]

    async def _change_all(self, found: Sequence[tuple[RunRecord, datetime]], decide: Decide) -> list[RunRecord]:
        """Change runs as they were found, and return those that have not changed meanwhile."""
        written = [await self._write(UPDATE, *decide(record, now)) for record, now in found]
        return [record for record in written if record is not None]

    async def _write(self, sql: str, after: RunRecord, told: Sequence[RunEvent]) -> RunRecord | None:
        """Write a run and its events, and return the run; return None if it has changed meanwhile."""
        kinds = [event["event_type"] for event in told]
        done = replace(
            after,
            version=after.version + 1,
            events=after.events + len(kinds),
            failures=after.failures + kinds.count("hook_failed"),
            hooked=after.hooked or any(kind.startswith("hook_") for kind in kinds),
        )
        values = [_column(name, getattr(done, name)) for name in NAMES]
        values += [encode(msgspec.to_builtins(done)), "".join(f"{encode(event)}\n" for event in told)]
        values += [after.version] if sql is UPDATE else []
        topics = (done.id, WAITING) if done.stage in ("queued", "ready") else (done.id,)
        if not await self.database.fetch(sql, *values):  # a transaction around it would be two more round trips
            return None
        self.database.tell(*topics)
        return done


class MemoryRuns(RunStore):
    """Runs that are lost at the end of the process."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(MemoryDatabase(RUN_TABLES), clock)


class SqliteRuns(RunStore):
    """Runs in one file, for one machine. The default: it needs no server."""

    def __init__(self, path: str | Path, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(SqliteDatabase(path, RUN_TABLES), clock)


class PostgresRuns(RunStore):
    """Runs in their own schema of a PostgreSQL database, for many coordinators. The database's clock counts.

    Args:
        dsn: Address of the database.
        options: Options of the database, such as `schema` and `connections`.
    """

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(PostgresDatabase(dsn, RUN_TABLES, **options))


def _where(wanted: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Return the conditions that fields have these values, and the values.

    A tuple stands for any of its items, None for every value.
    """
    conditions: list[str] = []
    values: list[Any] = []
    for name, value in wanted.items():
        if value is not None:
            items = value if isinstance(value, tuple) else (value,)
            places = [f"${place}" for place in range(len(values) + 1, len(values) + len(items) + 1)]
            values += [_column(name, item) for item in items]
            conditions.append(f"{name} IN ({', '.join(places)})" if places else "1 = 0")
    return conditions, values


def _column(name: str, value: Any) -> Any:
    """Return a field of a run as the value of its column."""
    if isinstance(value, datetime):
        return micros_of(value)
    if isinstance(value, str) and name not in PLAIN:
        return encode(value)
    return int(value) if isinstance(value, bool) else value


def _load(body: str) -> RunRecord:
    """Return the run in a row. Raise `CorruptStore` for a text that is none."""
    try:
        return msgspec.convert(json.loads(body), RunRecord)
    except (ValueError, msgspec.ValidationError) as problem:
        raise CorruptStore(f"a run cannot be read: {problem}") from problem
