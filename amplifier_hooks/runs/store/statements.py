"""The tables of runs and the statements over them: one text for every kind of database, with a number for each value.

Numbers are as wide as a time in microseconds needs.
"""

# ruff: noqa: S608  # statements are put together from constants of this package; what others wrote is a value
from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.clock import micros_of
from amplifier_hooks.runs.run_states import event_body
from amplifier_hooks.runs.store.run_rows import RUN_CHANGING, RUN_COLUMNS, as_column, changing_values
from amplifier_hooks.storage.database import Migrations, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from amplifier_hooks.runs.run_states import NewRunEvent, RunRecord, RunWrite
    from amplifier_hooks.runs.store.run_rows import ClaimFilter, RunFilter


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
    "UPDATE {schema}.run SET held_until = $1 WHERE id = $2 AND holder = $3 AND stage = 'starting' RETURNING id"
)
HELD_BY: Final = f"{RUNS} WHERE holder = $1 AND stage = 'starting'"
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


def next_runs(wanted: ClaimFilter, count: int) -> tuple[str, tuple[Any, ...]]:
    """Return the next runs in the queue, as a condition and its values: urgent runs first, and then the oldest."""
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


def update_statement(writes: Sequence[RunWrite], done: Sequence[RunRecord]) -> Statement:
    """Return the statement that updates the rows that are still as they were read, and returns their ids."""
    if len(done) == 1:
        before = writes[0][0]
        return Statement(SET, (before.id, before.version, *changing_values(done[0])))
    values: list[Any] = []
    for (before, _, _), after in zip(writes, done, strict=True):
        values += (before.id, before.version, *changing_values(after))
    return Statement(_set_many(len(done)), tuple(values))


@cache
def _set_many(count: int) -> str:
    """Return the statement that updates so many rows."""
    width = len(SET_TYPES)
    lines = [
        "(" + ", ".join(f"CAST(${row * width + place} AS {kind})" for place, kind in enumerate(SET_TYPES, 1)) + ")"
        for row in range(count)
    ]
    return f"{SET_MANY} (VALUES {', '.join(lines)}) AS v {SET_WHERE}"


@cache
def _tell_many(count: int, start: int) -> str:
    """Return the statement that adds so many events, its values numbered after `start`."""
    lines = [
        "(" + ", ".join(f"${start + row * EVENT_WIDTH + place}" for place in range(1, EVENT_WIDTH + 1)) + ")"
        for row in range(count)
    ]
    return f"{TELL} {', '.join(lines)}"


def event_values(event: tuple[RunRecord, int, NewRunEvent], now: datetime) -> tuple[Any, ...]:
    """Return the columns of one event."""
    record, number, what = event
    return record.id, number, micros_of(what.at or now), what.type, as_column(event_body(record, what, now))


def event_statement(events: Sequence[tuple[RunRecord, int, NewRunEvent]], now: datetime, start: int = 0) -> Statement:
    """Return the statement that adds events, its values numbered after `start`."""
    values: list[Any] = []
    for event in events:
        values += event_values(event, now)
    return Statement(_tell_many(len(events), start), tuple(values))


def list_statement(wanted: RunFilter, limit: int) -> Statement:
    """Return the statement that lists runs, newest first."""
    values: list[Any] = [limit]
    text = f"{RUNS} WHERE 1 = 1"
    for condition, value in _conditions(wanted):
        values.append(value)
        text += f" AND {condition.replace('?', f'${len(values)}')}"
    if wanted.before is not None:
        at, run = wanted.before
        values += (micros_of(at), run)
        text += f" AND (created < ${len(values) - 1} OR (created = ${len(values) - 1} AND id > ${len(values)}))"
    return Statement(f"{text} ORDER BY created DESC, id LIMIT $1", tuple(values))


def _conditions(wanted: RunFilter) -> Iterable[tuple[str, Any]]:
    """Return the conditions of a filter, each with a `?` for its value."""
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


RUN: Final = """CREATE TABLE {schema}.run (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    agent TEXT NOT NULL,
    parent TEXT,
    parent_session TEXT,
    depth BIGINT NOT NULL,
    bare BIGINT NOT NULL,
    urgent BIGINT NOT NULL,
    created BIGINT NOT NULL,
    parameters TEXT NOT NULL,
    hooked BIGINT NOT NULL,
    blocked BIGINT NOT NULL,
    stage TEXT NOT NULL,
    version BIGINT NOT NULL,
    events BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    handed BIGINT NOT NULL,
    holder TEXT,
    held_until BIGINT,
    stopping BIGINT NOT NULL,
    ran_with TEXT,
    reported BIGINT NOT NULL,
    result_text TEXT,
    result_data TEXT,
    error TEXT,
    started BIGINT,
    ended BIGINT,
    owes BIGINT NOT NULL
)"""
EVENT: Final = """CREATE TABLE {schema}.run_event (
    run TEXT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run, number)
)"""
RUN_TABLES: Final = Migrations(
    component="runs",
    steps=(
        (
            RUN,
            EVENT,
            "CREATE INDEX run_waiting ON {schema}.run (urgent DESC, created, id) WHERE stage IN ('queued', 'ready')",
            "CREATE INDEX run_held ON {schema}.run (held_until) WHERE held_until IS NOT NULL",
            "CREATE INDEX run_listed ON {schema}.run (tenant, created DESC, id)",
            "CREATE INDEX run_session ON {schema}.run (session)",
            "CREATE INDEX run_children ON {schema}.run (parent, created) WHERE parent IS NOT NULL",
            "CREATE INDEX run_owing ON {schema}.run (id) WHERE owes = 1",
        ),
    ),
)
