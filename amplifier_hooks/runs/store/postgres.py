"""Runs in PostgreSQL, for many coordinators. Round trips take most of the time, so the common path has two of them.

A claim that begins start hooks, and one that hands a run on after them, are one statement each. In the common case they
make the changes of the scripts; in any other case they change nothing, and the script runs.
"""

# ruff: noqa: S608  # statements are put together from constants of this package; what others wrote is a value

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from amplifier_hooks.clock import moment_of
from amplifier_hooks.runs.run_states import RunRecord, RunRefusal, conclude_run
from amplifier_hooks.runs.store.run_rows import RUN_COLUMNS, as_column, load_run
from amplifier_hooks.runs.store.run_store import RunStore
from amplifier_hooks.runs.store.run_transactions import numbered
from amplifier_hooks.runs.store.statements import RUN_TABLES, event_statement, event_values, next_runs, update_statement
from amplifier_hooks.storage.database import Statement
from amplifier_hooks.storage.postgres import PostgresDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from amplifier_hooks.runs.run_states import NewRunEvent, RunWrite
    from amplifier_hooks.runs.store.run_rows import ClaimFilter, StartConclusion
    from amplifier_hooks.storage.database import Database, Row, Script


def runs_in(database: Database) -> RunStore:
    """Return runs in a database that has `RUN_TABLES` among its tables.

    Opening and closing the runs does so to the database.
    """
    return PostgresRuns(database) if isinstance(database, PostgresDatabase) else RunStore(database)


class PostgresRuns(RunStore):
    """Runs in their own schema of a PostgreSQL database. The database's clock counts."""

    NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
    HOLD = " FOR UPDATE"
    SKIP = " FOR UPDATE SKIP LOCKED"
    SAYS = True

    def __init__(self, dsn: str | PostgresDatabase, **options: Any) -> None:
        self._postgres = PostgresDatabase(dsn, RUN_TABLES, **options) if isinstance(dsn, str) else dsn
        super().__init__(self._postgres)
        self._zero: float | None = None  # start of our monotonic clock in the database's time; None until known

    async def take_all(
        self, wanted: Sequence[tuple[ClaimFilter, str]], coordinator: str, leases: tuple[float, float]
    ) -> list[RunRecord | None]:
        """Begin the start hooks of the next runs in one statement if possible; run the script for all other runners."""
        first = wanted[0][0]
        taken: list[RunRecord | None] = []
        if first.begin and all(one == first for one, _ in wanted):
            where, values = next_runs(first, len(wanted))
            count = len(values)
            text = (
                f"WITH next AS (SELECT id FROM {{schema}}.run {where}{self.SKIP}) "
                "UPDATE {schema}.run AS r SET stage = 'starting', version = version + 1, attempt = attempt + 1, "
                f"holder = ${count + 1}, held_until = {self.NOW} + ${count + 2} FROM next WHERE r.id = next.id "
                f"AND stage = 'queued' AND bare = 0 {'' if first.heard else 'AND hooked = 1'} "
                f"RETURNING {self.NOW}, {', '.join(f'r.{name.strip()}' for name in RUN_COLUMNS.split(','))}"
            )
            seconds = round(leases[1] * 1e6)
            rows = await self.database.fetch(text, *values, as_column(coordinator), seconds)
            taken += [load_run(row[1:]) for row in rows]
            if rows:
                self._zero = rows[0][0] / 1e6 - monotonic()
        if len(taken) < len(wanted):
            taken += await super().take_all(wanted[len(taken) :], coordinator, leases)
        return taken

    async def conclude_all(self, concluded: Sequence[StartConclusion], lease: float) -> list[RunRecord | RunRefusal]:
        """Hand on runs that have not changed since they were begun in one statement, and other runs by the script."""
        if self._zero is None:
            return await super().conclude_all(concluded, lease)
        now = moment_of(round((self._zero + monotonic()) * 1e6))
        writes: dict[str, RunWrite] = {}
        for one in concluded:
            if one.known is not None and one.runner is not None and one.passed.error is None:
                written = conclude_run(one.known, one, lease, now)
                if not isinstance(written, RunRefusal):
                    writes[one.run] = written
        done = await self._hand_on(list(writes.values()), now) if writes else {}
        rest = [one for one in concluded if one.run not in done]
        slow = await super().conclude_all(rest, lease) if rest else []
        found = {**done, **{one.run: after for one, after in zip(rest, slow, strict=True)}}
        return [found[one.run] for one in concluded]

    async def _hand_on(self, writes: list[RunWrite], now: datetime) -> dict[str, RunRecord | RunRefusal]:
        """Update the rows that are still as they were known, and add the events of those rows alone."""
        done, events = numbered(writes)
        first = update_statement(writes, done)
        count = len(first.values)
        columns = zip(*(event_values(event, now) for event in events), strict=True)
        values = (*first.values, self._postgres.schema, *(list(column) for column in columns))
        kinds = ("text", "bigint", "bigint", "text", "text")
        lists = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(kinds, start=count + 2))
        text = (
            f"WITH changed AS ({first.sql}, pg_notify(${count + 1}, id)), "
            "told AS (INSERT INTO {schema}.run_event (run, number, at, kind, body) "
            f"SELECT * FROM unnest({lists}) AS e (run, number, at, kind, body) "
            "WHERE e.run IN (SELECT id FROM changed)) SELECT id FROM changed"
        )
        changed = {row[0] for row in await self.database.fetch(text, *values)}
        for run in changed:
            self._postgres.notify(run)
        return {record.id: record for record in done if record.id in changed}

    def _set(
        self,
        writes: Sequence[RunWrite],
        done: Sequence[RunRecord],
        events: Sequence[tuple[RunRecord, int, NewRunEvent]],
        now: datetime,
    ) -> Script[list[Row]]:
        """Update the rows, add the events and notify in one statement."""
        first = update_statement(writes, done)
        if not events:
            return (yield first)
        lines = event_statement(events, now, start=len(first.values))
        values = (*first.values, *lines.values, self._postgres.schema)
        return (yield Statement(f"WITH told AS ({lines.sql}) {first.sql}, pg_notify(${len(values)}, id)", values))
