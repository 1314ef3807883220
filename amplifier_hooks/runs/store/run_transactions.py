"""The transactions of a store of runs, each a script of statements.

Each transaction reads the run first and holds its row: SQLite keeps every other writer out, PostgreSQL locks the row,
and a claim steps over locked rows. Events are stored in the same transaction as the change, so that a reader never sees
an event of a change that is undone.
"""

# ruff: noqa: S608  # statements are put together from constants of this package; what others wrote is a value

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from amplifier_hooks.clock import EPOCH, micros_of, moment_of
from amplifier_hooks.runs.run_errors import AgentsTooDeep, UnknownRun, UnknownSession
from amplifier_hooks.runs.run_states import (
    END_OF,
    ENDED,
    Holder,
    NewRunEvent,
    RunEnding,
    RunRecord,
    RunRefusal,
    conclude_run,
    end_event,
    expect_record,
    hand_back_run,
    hand_to_runner,
    hold_run,
    move_run,
    result_fields,
    take_back_run,
)
from amplifier_hooks.runs.store.run_rows import (
    RUN_COLUMNS,
    as_column,
    changing_values,
    fixed_values,
    load_run,
)
from amplifier_hooks.runs.store.statements import (
    FINISH_ON,
    GET,
    HELD_BY,
    HOLD_ON,
    INSERT,
    LAPSED,
    OWING,
    PURGE,
    SESSION,
    event_statement,
    next_runs,
    update_statement,
)
from amplifier_hooks.storage.database import Script, Statement, Wake, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from amplifier_hooks.runs.run_states import RunWrite
    from amplifier_hooks.runs.store.run_rows import ClaimFilter, NewRun, StartConclusion
    from amplifier_hooks.storage.database import Database, Row


WAITING: Final = "runs"
"""Topic that wakes waiting claims when there may be a run to claim."""
CHUNK: Final = 500
ID: Final = re.compile(r"[a-z]+_[0-9a-f]{8,64}", re.ASCII)


class RunScripts:
    """The transactions. Subclasses define the clock and the lock of rows.

    A caller leaves a collection that it passes unchanged until the call returns: another thread may read it.
    """

    NOW = "NULL"
    """The database's time, or NULL if `clock` gives the time."""
    HOLD = ""
    """SQL that locks the rows of a query until the transaction ends."""
    SKIP = ""
    """SQL that locks the rows of a query, and steps over rows that others have locked."""
    SAYS = False
    """True if an update of a run with events notifies other machines by itself."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self.database = database
        self._clock = clock

    @transaction
    def submit(self, new: NewRun, max_depth: int) -> Script[RunRecord]:
        """Queue a run.

        Raise `UnknownRun` for a parent of another tenant than stated, `UnknownSession` for a session that is not this
        tenant's, and `AgentsTooDeep`.
        """
        known, now = yield from self._hold_row(new.id)
        if known is not None:
            return known
        parent: RunRecord | None = None
        if new.parent is not None:
            rows = (yield Statement(GET, (new.parent,))) if ID.fullmatch(new.parent) else []
            parent = load_run(rows[0]) if rows else None
            if parent is None or parent.tenant != (new.tenant if new.parent_tenant is None else new.parent_tenant):
                raise UnknownRun(new.parent)
            if parent.depth + 1 > max_depth:
                chain = yield from self._chain(parent)
                raise AgentsTooDeep([*chain, new.agent], max_depth)
        if new.resumes:
            known_session = ID.fullmatch(new.session)
            rows = (yield Statement(SESSION, (new.session, as_column(new.tenant)))) if known_session else []
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
        if not rows:  # inserted by another caller at the same instant
            rows = yield Statement(GET, (new.id,))
            return load_run(rows[0])
        yield event_statement([(record, 1, NewRunEvent("run_queued", {"agent_name": record.agent}))], now)
        yield Wake(record.id)
        yield Wake(WAITING)
        if parent is not None:
            child = NewRunEvent("run_child", {"child_run_id": record.id, "agent_name": record.agent})
            held_parent, _ = yield from self._hold_row(parent.id)
            if held_parent is not None:
                yield from self._write(
                    held_parent, replace(held_parent, version=held_parent.version + 1), (child,), now
                )
        return record

    def _chain(self, last: RunRecord) -> Script[list[str]]:
        """Return the agents from the first run of the chain down to this one."""
        names = [last.agent]
        above = last.parent
        while above is not None and len(names) < CHUNK:
            rows = yield Statement("SELECT agent, parent FROM {schema}.run WHERE id = $1", (above,))
            if not rows:
                break
            names.append(rows[0][0])
            above = rows[0][1]
        return names[::-1]

    @transaction
    def take_all(
        self,
        wanted: Sequence[tuple[ClaimFilter, str]],
        coordinator: str,
        leases: tuple[float, float],
    ) -> Script[list[RunRecord | None]]:
        """Claim runs for several runners, in one transaction. Return a run or None for each."""
        for_runner, for_coordinator = leases
        places: dict[ClaimFilter, list[int]] = {}
        for place, (one, _) in enumerate(wanted):
            places.setdefault(one, []).append(place)
        writes: dict[int, RunWrite] = {}
        taken_ids: set[str] = set()
        now = EPOCH
        for one, those in places.items():
            where, values = next_runs(one, len(those) + len(taken_ids))  # the runs taken before may be among them
            text = f"SELECT {self.NOW}, {RUN_COLUMNS} FROM {{schema}}.run {where}{self.SKIP}"
            rows = yield Statement(text, values)
            left = [found for found in map(self._read, rows) if found[0].id not in taken_ids]
            for place, (record, now) in zip(those, left, strict=False):
                taken_ids.add(record.id)
                if record.stage == "queued" and not record.bare and (record.hooked or one.heard):
                    after = hold_run(expect_record(move_run(record, "begin", now)), coordinator, for_coordinator, now)
                    writes[place] = (record, after, ())
                else:
                    writes[place] = hand_to_runner(record, record, wanted[place][1], for_runner, now)
        written = yield from self._write_all(list(writes.values()), now)
        taken = dict(zip(writes, written, strict=True))
        return [taken.get(place) for place in range(len(wanted))]

    @transaction
    def conclude_all(self, concluded: Sequence[StartConclusion], lease: float) -> Script[list[RunRecord | RunRefusal]]:
        """Store the outcomes of the start hooks of several runs, each of them once, in one transaction."""
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
            after = conclude_run(record, one, lease, now)
            if isinstance(after, RunRefusal):
                results[one.run] = after
                continue
            writes.append(after)
            if after[1].stage == "ready":
                yield Wake(WAITING)
        results.update({record.id: record for record in (yield from self._write_all(writes, now))})
        return [results[one.run] for one in concluded]

    @transaction
    def note(self, run: str, told: Sequence[NewRunEvent], *, settled: bool = False) -> Script[RunRecord]:
        """Store events of a run. `settled` means that its finish hooks have run."""
        record, now = yield from self._require_run(run)
        after = replace(record, version=record.version + 1)
        if any(what.type.startswith("hook_") for what in told):
            after = replace(after, hooked=True)
        if settled:
            after = replace(after, owes=False, held_until=None)
            yield Wake(run)
        return (yield from self._write(record, after, told, now))

    @transaction
    def renew(self, run: str, by: Holder, lease: float) -> Script[RunRecord | RunRefusal]:
        """Extend the hold of a run."""
        record, now = yield from self._require_run(run)
        after = move_run(record, "renew", now, by)
        if isinstance(after, RunRefusal):
            return after
        return (yield from self._write(record, replace(after, held_until=now + timedelta(seconds=lease)), (), now))

    @transaction
    def report(self, run: str, by: Holder, text: str | None, data: Any) -> Script[RunRecord | RunRefusal]:
        """Store the result of a run that is going on; a later result replaces it."""
        record, now = yield from self._require_run(run)
        after = move_run(record, "report", now, by)
        if isinstance(after, RunRefusal):
            return after
        after = replace(after, reported=True, result_text=text, result_data=data)
        return (yield from self._write(record, after, (NewRunEvent("run_result", result_fields(after)),), now))

    @transaction
    def end(
        self, run: str, by: Holder, ending: RunEnding, error: str | None, *, owed: float | None = None
    ) -> Script[RunRecord | RunRefusal]:
        """End a run. Repeating the same ending by the same holder changes nothing.

        With `owed`, the run has finish hooks; the caller will run them, and has so many seconds to renew that.
        """
        record, now = yield from self._require_run(run)
        if record.stage == ending and (record.holder, record.attempt) == (by.name, by.attempt):
            return record  # reported before
        after = move_run(record, END_OF[ending], now, by)
        if isinstance(after, RunRefusal):
            return after
        after = replace(after, error=error)
        if owed is not None:
            after = replace(after, owes=True, held_until=now + timedelta(seconds=owed))
        return (yield from self._write(record, after, (end_event(after),), now))

    @transaction
    def stop(self, run: str, reason: str) -> Script[RunRecord]:
        """Stop a run that no runner has, or ask its runner to stop it. A run that has ended stays as it is."""
        record, now = yield from self._require_run(run)
        if record.stage in ENDED:
            return record
        after = move_run(record, "stop", now)
        if isinstance(after, RunRefusal):  # a runner has it
            if record.stopping:
                return record
            after = replace(record, version=record.version + 1, stopping=True, error=reason)
            return (yield from self._write(record, after, (NewRunEvent("run_stopping", {"reason": reason}),), now))
        after = replace(after, error=reason, owes=record.handed > 0, holder=None)
        return (yield from self._write(record, after, (end_event(after),), now))

    @transaction
    def hand_back(self, run: str, by: Holder) -> Script[RunRecord | RunRefusal]:
        """Give back a run whose runner did not receive it. It can be claimed at once, and does not count as lost."""
        record, now = yield from self._require_run(run)
        after = hand_back_run(record, now, by)
        if isinstance(after, RunRefusal):
            return after
        yield Wake(WAITING)
        return (yield from self._write(*after, now))

    @transaction
    def hold_on(
        self, holder: str, starting: Collection[str], finishing: Collection[str], lease: float
    ) -> Script[set[str]]:
        """Renew a holder's start hooks, and the finish hooks of other runs.

        Return the runs whose start hooks the holder still holds. Runs that are not named are not renewed: the lease of
        a run that was claimed, and whose claimer never heard of it, ends.
        """
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        until = micros_of(self._at(value) + timedelta(seconds=lease))
        ours: set[str] = set()
        for run in starting:
            rows = yield Statement(HOLD_ON, (until, run, as_column(holder)))
            ours |= {row[0] for row in rows}
        for run in finishing:
            yield Statement(FINISH_ON, (until, run))
        return ours

    @transaction
    def let_go(self, holder: str, finishing: Collection[str]) -> Script[None]:
        """Release all start hooks of a holder, and the finish hooks of these runs, for other coordinators."""
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        now = self._at(value)
        rows = yield Statement(f"{HELD_BY}{self.HOLD}", (as_column(holder),))
        for row in rows:
            record = load_run(row)
            lost = NewRunEvent(
                "run_lost", {"holder": holder, "error": f"{holder} closed; its start hook is taken up again"}
            )
            after = expect_record(move_run(replace(record, held_until=now), "drop", now))
            yield from self._write(record, after, (lost,), now)
        for run in finishing:
            yield Statement(FINISH_ON, (micros_of(now), run))
        yield Wake(WAITING)

    @transaction
    def recover(self, spared: Collection[str] = ()) -> Script[list[RunRecord]]:
        """Take back runs whose holds have expired, except `spared`: each goes to another holder, or ends."""
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        rows = yield Statement(f"{LAPSED}{self.SKIP}", (micros_of(self._at(value)), CHUNK))
        found = []
        for row in rows:
            record, now = load_run(row), self._at(value)
            if record.id in spared:
                continue
            after, what = take_back_run(record, now)
            found.append((yield from self._write(record, after, what, now)))
        if found:
            yield Wake(WAITING)
        return found

    @transaction
    def take_owing(self, lease: float) -> Script[list[RunRecord]]:
        """Take hold of ended runs whose finish hooks have no coordinator."""
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

    def _hold_row(self, run: str) -> Script[tuple[RunRecord | None, datetime]]:
        """Lock the row of a run. Return the run and the time, or None and the time if there is no such run."""
        rows = yield Statement(f"SELECT {self.NOW}, {RUN_COLUMNS} FROM {{schema}}.run WHERE id = $1{self.HOLD}", (run,))
        if rows:
            return self._read(rows[0])
        ((value,),) = yield Statement(f"SELECT {self.NOW}")
        return None, self._at(value)

    def _require_run(self, run: str) -> Script[tuple[RunRecord, datetime]]:
        if not ID.fullmatch(run):
            raise UnknownRun(run)
        record, now = yield from self._hold_row(run)
        if record is None:
            raise UnknownRun(run)
        return record, now

    def _write(
        self, before: RunRecord, after: RunRecord, told: Sequence[NewRunEvent], now: datetime
    ) -> Script[RunRecord]:
        """Update the row if it is still as it was read, and add the events."""
        (written,) = yield from self._write_all([(before, after, told)], now)
        return written

    def _write_all(self, writes: Sequence[RunWrite], now: datetime) -> Script[list[RunRecord]]:
        """Update the rows that are still as they were read, and add the events."""
        if not writes:
            return []
        done, events = numbered(writes)
        rows = yield from self._set(writes, done, events, now)
        if len(rows) != len(writes):
            raise AssertionError(f"one of {len(writes)} runs changed while they were held")
        for run in dict.fromkeys(record.id for record, _, _ in events):
            yield Wake(run, notified=self.SAYS)
        return done

    def _set(
        self,
        writes: Sequence[RunWrite],
        done: Sequence[RunRecord],
        events: Sequence[tuple[RunRecord, int, NewRunEvent]],
        now: datetime,
    ) -> Script[list[Row]]:
        """Update the rows, and add the events. Return the rows that were still as they were read."""
        rows = yield update_statement(writes, done)
        if events:
            yield event_statement(events, now)
        return rows


def numbered(writes: Sequence[RunWrite]) -> tuple[list[RunRecord], list[tuple[RunRecord, int, NewRunEvent]]]:
    """Return the records that these writes make, with their counts of events and failures, and the numbered events."""
    done: list[RunRecord] = []
    events: list[tuple[RunRecord, int, NewRunEvent]] = []
    for before, after, told in writes:
        failed = sum(what.type == "hook_failed" for what in told)
        record = replace(after, events=before.events + len(told), failures=before.failures + failed)
        done.append(record)
        events += [(record, before.events + place, what) for place, what in enumerate(told, start=1)]
    return done, events
