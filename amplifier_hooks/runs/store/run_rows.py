"""Runs and their events as columns and back, and the requests to a store of runs as data.

Times are whole microseconds. Values that others wrote are kept as ASCII JSON: lone surrogates and NUL are escaped, so
that every database can keep them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import frozen

from amplifier_hooks.clock import micros_of, moment_of
from amplifier_hooks.runs.run_states import RunEvent, RunRecord
from amplifier_hooks.storage.database import CorruptStore

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_hooks.runs.run_states import Holder, NewRunEvent, RunStatus
    from amplifier_hooks.storage.database import Row


RUN_FIXED: Final = "id, tenant, session, agent, parent, parent_session, depth, bare, urgent, created, parameters"
"""Columns that are set when a run is submitted, and never change."""
RUN_CHANGING: Final = (
    "hooked, blocked, stage, version, events, failures, attempt, handed, holder, held_until, stopping, "
    "ran_with, reported, result_text, result_data, error, started, ended, owes"
)
RUN_COLUMNS: Final = f"{RUN_FIXED}, {RUN_CHANGING}"

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def as_column(value: Any) -> str:
    """Return JSON for a column."""
    return _encode(value)


def fixed_values(record: RunRecord) -> tuple[Any, ...]:
    """Return the values of `RUN_FIXED`."""
    return (
        record.id,
        as_column(record.tenant),
        record.session,
        record.agent,
        record.parent,
        record.parent_session,
        record.depth,
        int(record.bare),
        int(record.urgent),
        micros_of(record.created),
        as_column(dict(record.parameters)),
    )


def changing_values(record: RunRecord) -> tuple[Any, ...]:
    """Return the values of `RUN_CHANGING`."""
    return (
        int(record.hooked),
        int(record.blocked),
        record.stage,
        record.version,
        record.events,
        record.failures,
        record.attempt,
        record.handed,
        None if record.holder is None else as_column(record.holder),
        _micros(record.held_until),
        int(record.stopping),
        None if record.ran_with is None else as_column(dict(record.ran_with)),
        int(record.reported),
        None if record.result_text is None else as_column(record.result_text),
        None if record.result_data is None else as_column(record.result_data),
        None if record.error is None else as_column(record.error),
        _micros(record.started),
        _micros(record.ended),
        int(record.owes),
    )


def load_run(row: Row) -> RunRecord:
    """Return the run in a row of `RUN_COLUMNS`. Raise `CorruptStore` for a row that is none."""
    (
        (run, tenant, session, agent, parent, parent_session, depth, bare, urgent, created, parameters),
        (hooked, blocked, stage, version, events, failures, attempt, handed, holder, held_until, stopping),
        (ran_with, reported, text, data, error, started, ended, owes),
    ) = row[:11], row[11:22], row[22:]
    try:
        return RunRecord(
            id=run,
            tenant=json.loads(tenant),
            session=session,
            agent=agent,
            parent=parent,
            parent_session=parent_session,
            depth=depth,
            bare=bool(bare),
            urgent=bool(urgent),
            created=moment_of(created),
            parameters=json.loads(parameters),
            hooked=bool(hooked),
            blocked=bool(blocked),
            stage=stage,
            version=version,
            events=events,
            failures=failures,
            attempt=attempt,
            handed=handed,
            holder=_read(holder),
            held_until=_moment(held_until),
            stopping=bool(stopping),
            ran_with=_read(ran_with),
            reported=bool(reported),
            result_text=_read(text),
            result_data=_read(data),
            error=_read(error),
            started=_moment(started),
            ended=_moment(ended),
            owes=bool(owes),
        )
    except ValueError as problem:
        raise CorruptStore(f"run {run} cannot be read: {problem}") from problem


def load_run_event(row: Row) -> RunEvent:
    """Return the event in a row of run, number, at, kind, body."""
    run, number, at, kind, body = row
    try:
        return RunEvent(run, number, moment_of(at), kind, cast("dict[str, Any]", json.loads(body)))
    except ValueError as problem:
        raise CorruptStore(f"an event of run {run} cannot be read: {problem}") from problem


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros_of(at)


def _moment(value: int | None) -> datetime | None:
    return None if value is None else moment_of(value)


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@frozen(kw_only=True)
class NewRun:
    """A run to be queued. If its id exists already, it is that run."""

    id: str
    tenant: str
    session: str
    agent: str
    parameters: dict[str, Any]
    parent: str | None = None
    parent_tenant: str | None = None
    """Tenant of the parent; None for the tenant of this run."""
    bare: bool = False
    urgent: bool = False
    hooked: bool = False
    resumes: bool = False
    """True if the session has to exist already."""


@frozen(kw_only=True)
class ClaimFilter:
    """The runs that a runner would claim.

    None for `tenant` and `agents` means all. `begin` includes runs whose start hooks have to run first. `heard` is True
    if the registry has hooks for the start of any run.
    """

    tenant: str | None = None
    agents: frozenset[str] | None = None
    begin: bool = True
    heard: bool = False


@frozen(kw_only=True)
class StartOutcome:
    """The outcome of a run's start hooks: go on with `parameters`, or `error`; `blocked` if a hook blocked the run."""

    parameters: dict[str, Any] | None = None
    error: str | None = None
    blocked: bool = False
    told: tuple[NewRunEvent, ...] = ()


@frozen
class StartConclusion:
    """The outcome of one run's start hooks, and the runner that waits for it.

    `known` is the run as it was when its start hooks were begun. If it has not changed, it need not be read again.
    """

    run: str
    by: Holder
    passed: StartOutcome
    runner: str | None = None
    known: RunRecord | None = None


@frozen(kw_only=True)
class RunFilter:
    """The runs to list. None and False match all runs."""

    tenant: str | None = None
    has_hooks: bool = False
    blocked: bool = False
    status: RunStatus | None = None
    agent: str | None = None
    parent: str | None = None
    session: str | None = None
    before: tuple[datetime, str] | None = None
    """Cursor: the creation time and the id of a run. Only runs after it in the list match."""
