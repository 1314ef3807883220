"""The execution log: events of a registry come in; entries with the answers of every hook go to a database for a day.

An entry is one event with every hook that ran. The log is for people to look at; proof is in the record. An emit does
not wait for the log: entries pass a queue of bounded length to a background writer, and an entry that does not fit is
counted and dropped.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from attrs import frozen
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from amplifier_hooks.clock import SystemClock, micros_of
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.encode_facts import Redactor, TooMuch, ValueSimplifier
from amplifier_hooks.result import Action, Status
from amplifier_hooks.storage.database import Migrations, Script, Statement, StoreUnavailable, transaction
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import TracebackType

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.registry.decorators import Undo
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Answer, Outcome
    from amplifier_hooks.storage.database import Database, Row


MOST_ENTRIES: Final = 10_000
"""Entries of one tenant, at most; each tenant's oldest entries are removed first."""

EXECUTION_TABLES: Final = Migrations(
    component="executions",
    steps=(
        (
            """CREATE TABLE {schema}.hook_execution (
                log_id TEXT PRIMARY KEY,
                tenant TEXT NOT NULL,
                event TEXT NOT NULL,
                at BIGINT NOT NULL,
                aborted INTEGER NOT NULL,
                entry TEXT NOT NULL
            )""",
            "CREATE INDEX hook_execution_of ON {schema}.hook_execution (tenant, at)",
            "CREATE INDEX hook_execution_at ON {schema}.hook_execution (at)",
            """CREATE TABLE {schema}.hook_run (
                log_id TEXT NOT NULL,
                number INTEGER NOT NULL,
                tenant TEXT NOT NULL,
                hook TEXT NOT NULL,
                event TEXT NOT NULL,
                at BIGINT NOT NULL,
                status TEXT NOT NULL,
                aborted INTEGER NOT NULL,
                duration BIGINT,
                PRIMARY KEY (log_id, number)
            )""",
            "CREATE INDEX hook_run_of ON {schema}.hook_run (tenant, at)",
            "CREATE INDEX hook_run_at ON {schema}.hook_run (at)",
        ),
    ),
)


def new_log_id() -> str:
    """Return a new, unused id of an entry."""
    return f"log_{secrets.token_hex(12)}"


class HookRun(BaseModel):
    """One run of a hook at an event."""

    model_config = ConfigDict(frozen=True)

    hook_name: str
    success: bool = Field(description="True if the hook gave an answer, of any kind.")
    status: Status = Field(description="ok, or the reason why there is no answer.")
    action: Action = Field(description="Effect of the hook's answer or failure.")
    data: dict[str, Any] | None = Field(None, description="Data of the answer, without secrets.")
    said: str | None = Field(None, description="Reason of a denial, or text of a question.")
    error: str | None = None
    duration_ms: float | None = Field(None, description="null if its time was not measured.")


class HookExecutionLog(BaseModel):
    """One event with the runs of its hooks."""

    model_config = ConfigDict(frozen=True)

    log_id: str
    event_type: str
    tenant_id: str
    hook_results: list[HookRun]
    aborted: bool
    abort_reason: str | None = None
    total_duration_ms: float
    timestamp: AwareDatetime
    request_id: str = Field("", description="Id of the request, run or event that the entry belongs to.")


class HookStatistics(BaseModel):
    """Statistics of one hook at one event."""

    model_config = ConfigDict(frozen=True)

    hook_name: str
    event_type: str
    runs: int
    failures: int = Field(description="Runs without an answer, including timeouts.")
    timeouts: int
    aborts: int = Field(description="Runs that denied.")
    mean_ms: float | None = Field(description="null if no time was measured.")
    p95_ms: float | None


@frozen
class LogCursor:
    """End of a page of the log: the next page begins with the next older entry."""

    at: int
    log_id: str

    @classmethod
    def of(cls, entry: HookExecutionLog) -> LogCursor:
        """Return the cursor of an entry."""
        return cls(micros_of(entry.timestamp), entry.log_id)


class ExecutionStore:
    """The execution log of a database. All methods raise `StoreUnavailable` when the database cannot be used."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, log_id: str, tenant: str | None = None) -> HookExecutionLog | None:
        """Return an entry, of this tenant or of any; None if there is none."""
        rows = await self.database.fetch(GET, log_id, tenant)
        return _entry(rows[0]) if rows else None

    async def find(
        self,
        *,
        tenant: str | None = None,
        event: str | None = None,
        aborted: bool | None = None,
        hook: str | None = None,
        after: LogCursor | None = None,
        limit: int = 100,
    ) -> list[HookExecutionLog]:
        """Return entries, newest first, filtered by tenant, event, hook, and by denied (`aborted`) or not."""
        stopped = None if aborted is None else int(aborted)
        start = (None, None) if after is None else (after.at, after.log_id)
        rows = await self.database.fetch(FIND, tenant, event, stopped, hook, *start, limit)
        return [_entry(row) for row in rows]

    async def statistics(
        self, *, tenant: str | None = None, hook: str | None = None, event: str | None = None
    ) -> list[HookStatistics]:
        """Return the statistics of each hook at each event, over all stored entries."""
        rows = await self.database.fetch(STATISTICS, tenant, hook, event)
        return [
            HookStatistics(
                hook_name=name,
                event_type=of,
                runs=runs,
                failures=failures,
                timeouts=timeouts,
                aborts=aborts,
                mean_ms=None if mean is None else float(mean) / 1e3,
                p95_ms=None if p95 is None else p95 / 1e3,
            )
            for name, of, runs, failures, timeouts, aborts, mean, p95 in rows
        ]

    @transaction
    def add(self, entries: Sequence[HookExecutionLog]) -> Script[None]:
        """Store entries, all of them or none."""
        for entry in entries:
            at = micros_of(entry.timestamp)
            values = (entry.log_id, entry.tenant_id, entry.event_type, at, int(entry.aborted))
            yield Statement(ADD, (*values, entry.model_dump_json()))
            for number, run in enumerate(entry.hook_results):
                spent = None if run.duration_ms is None else round(run.duration_ms * 1e3)
                facts = (run.status, int(run.action == "deny"), spent)
                yield Statement(
                    ADD_RUN, (entry.log_id, number, entry.tenant_id, run.hook_name, entry.event_type, at, *facts)
                )

    @transaction
    def purge(self, before: datetime, tenants: Collection[str] = (), *, most: int = MOST_ENTRIES) -> Script[None]:
        """Remove older entries, and all but the `most` newest entries of each of these tenants."""
        for table in ("hook_execution", "hook_run"):
            yield Statement(f"DELETE FROM {{schema}}.{table} WHERE at < $1", (micros_of(before),))  # noqa: S608  # constants
        for tenant in tenants:
            rows = yield Statement(BEYOND, (tenant, most))
            for table in ("hook_execution", "hook_run") if rows else ():
                yield Statement(
                    f"DELETE FROM {{schema}}.{table} WHERE tenant = $1 AND at <= $2",  # noqa: S608  # the same
                    (tenant, rows[0][0]),
                )


def _entry(row: Row) -> HookExecutionLog:
    return HookExecutionLog.model_validate_json(row[0])


ADD: Final = (
    "INSERT INTO {schema}.hook_execution (log_id, tenant, event, at, aborted, entry) VALUES ($1, $2, $3, $4, $5, $6)"
)
ADD_RUN: Final = (
    "INSERT INTO {schema}.hook_run (log_id, number, tenant, hook, event, at, status, aborted, duration) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
)
GET: Final = "SELECT entry FROM {schema}.hook_execution WHERE log_id = $1 AND (CAST($2 AS TEXT) IS NULL OR tenant = $2)"
FIND: Final = (
    "SELECT e.entry FROM {schema}.hook_execution e "
    "WHERE (CAST($1 AS TEXT) IS NULL OR e.tenant = $1) AND (CAST($2 AS TEXT) IS NULL OR e.event = $2) "
    "AND (CAST($3 AS INTEGER) IS NULL OR e.aborted = $3) "
    "AND (CAST($4 AS TEXT) IS NULL OR EXISTS "
    "(SELECT 1 FROM {schema}.hook_run r WHERE r.log_id = e.log_id AND r.hook = $4)) "
    "AND (CAST($5 AS BIGINT) IS NULL OR e.at < $5 OR (e.at = $5 AND e.log_id < CAST($6 AS TEXT))) "
    "ORDER BY e.at DESC, e.log_id DESC LIMIT CAST($7 AS INTEGER)"
)
BEYOND: Final = (
    "SELECT at FROM {schema}.hook_execution WHERE tenant = $1 ORDER BY at DESC LIMIT 1 OFFSET CAST($2 AS INTEGER)"
)
STATISTICS: Final = (
    "SELECT hook, event, count(*), sum(CASE WHEN status <> 'ok' THEN 1 ELSE 0 END), "
    "sum(CASE WHEN status = 'timeout' THEN 1 ELSE 0 END), sum(aborted), avg(duration), "
    "min(CASE WHEN duration IS NOT NULL AND place * 100 >= timed * 95 THEN duration END) "
    "FROM (SELECT hook, event, status, aborted, duration, "
    "row_number() OVER (PARTITION BY hook, event, (duration IS NULL) ORDER BY duration) AS place, "
    "count(duration) OVER (PARTITION BY hook, event) AS timed FROM {schema}.hook_run "
    "WHERE (CAST($1 AS TEXT) IS NULL OR tenant = $1) AND (CAST($2 AS TEXT) IS NULL OR hook = $2) "
    "AND (CAST($3 AS TEXT) IS NULL OR event = $3)) ranked GROUP BY hook, event ORDER BY hook, event"
)


log = get_logger(__name__)

RETENTION: Final = timedelta(hours=24)
ROOM: Final = 1_000
"""Events that may wait to be written."""
BATCH: Final = 100
PAUSE: Final = 0.2
"""Seconds in which entries gather before they are written together."""
CLEANING: Final = timedelta(minutes=1)
LARGEST_DATA: Final = 4 * 1024
LONGEST_TEXT: Final = 1_024
MOST_VALUES: Final = 256
WHOSE: Final = ("request_id", "run_id", "event_id")
"""Fields of a payload with the id that an event belongs to; the first one present counts."""


class LoggedEvent(NamedTuple):
    """The parts of an event that wait to be written."""

    at: datetime
    tenant: str
    request: str
    outcome: Outcome


class ExecutionRecorder:
    """Writer of the execution log of a registry. An async context manager; its end writes the waiting entries.

    Args:
        store: The store that keeps the entries.
        retention: Time for which an entry is kept.
        room: Events that may wait to be written, at most. `lost` counts the events that did not fit.
    """

    def __init__(
        self,
        store: ExecutionStore,
        *,
        retention: timedelta = RETENTION,
        room: int = ROOM,
        pause: float = PAUSE,
        clock: Clock | None = None,
    ) -> None:
        self.lost = 0
        self._store = store
        self._retention = retention
        self._room = room
        self._pause = pause
        self._clock = clock or SystemClock()
        self._waiting: deque[LoggedEvent] = deque()
        self._wake = asyncio.Event()
        self._redactor = Redactor(secrets.token_bytes(32))
        self._tenants: set[str] = set()
        self._cleaned: datetime | None = None
        self._writer: asyncio.Task[None] | None = None
        self._undo: list[Undo] = []

    def watch(self, registry: HookRegistry) -> None:
        """Watch every event of a registry from now on."""
        self._undo.append(registry.observe("*", self.note_event, name="execution-log"))

    def note_event(self, _event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Queue an event and its hooks' answers, as an observer; an event at which no hook ran is left out."""
        if not outcome.ran:
            return
        if len(self._waiting) >= self._room:
            self.lost += 1
            return
        tenant, request = data.get("tenant_id"), next((data[name] for name in WHOSE if data.get(name)), "")
        whose, about = (for_log(one) if isinstance(one, str) else "" for one in (tenant, request))
        self._waiting.append(LoggedEvent(self._clock.now(), whose, clip(about, 200), outcome))
        self._wake.set()

    async def __aenter__(self) -> Self:
        self._writer = asyncio.get_running_loop().create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cancel()
            await asyncio.wait({writer})
        await self.flush()

    async def flush(self) -> None:
        """Write the waiting entries. Entries that cannot be written are lost, counted and logged."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            entries = []
            for seen in batch:
                entries.append(self._entry(seen))
                await asyncio.sleep(0)  # decisions come first
            try:
                await self._store.add(entries)
                self._tenants.update(entry.tenant_id for entry in entries)
            except StoreUnavailable as problem:
                self.lost += len(batch)
                log.warning("execution_log_unavailable", lost=len(batch), error=str(problem))

    async def clean(self) -> None:
        """Remove entries older than the retention, and entries beyond the limit of a tenant."""
        now = self._clock.now()
        if self._cleaned is not None and self._cleaned <= now < self._cleaned + CLEANING:
            return
        self._cleaned = now
        tenants, self._tenants = self._tenants, set()
        with suppress(StoreUnavailable):  # the next cleaning tries again
            await self._store.purge(now - self._retention, tenants)

    async def _write(self) -> None:
        while True:
            await self.clean()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEANING.total_seconds()):
                    await self._wake.wait()
            await asyncio.sleep(self._pause)
            self._wake.clear()
            await self.flush()

    def _entry(self, seen: LoggedEvent) -> HookExecutionLog:
        outcome = seen.outcome
        return HookExecutionLog(
            log_id=new_log_id(),
            event_type=for_log(outcome.event),
            tenant_id=seen.tenant,
            hook_results=[hook_run_of(answer, self._redactor) for answer in outcome.hook_results],
            aborted=outcome.aborted,
            abort_reason=_text(outcome.abort_reason, self._redactor),
            total_duration_ms=outcome.total_duration_ms,
            timestamp=seen.at,
            request_id=seen.request,
        )


def hook_run_of(answer: Answer, redactor: Redactor) -> HookRun:
    """Return one hook's answer for the log: without secrets, and limited in size."""
    data = None
    if answer.data is not None:
        tamer = ValueSimplifier(redactor, LONGEST_TEXT, LARGEST_DATA, MOST_VALUES)
        try:
            tamed = tamer.simplify(answer.data)
            data = tamed if len(json.dumps(tamed)) <= LARGEST_DATA else None
        except TooMuch:
            data = None
        if data is None:
            data = {"$omitted": "size"}
    return HookRun(
        hook_name=for_log(answer.hook_name),
        success=answer.success,
        status=answer.status,
        action=answer.action,
        data=data,
        said=_text(answer.effective_result.reason or answer.effective_result.approval_prompt, redactor),
        error=_text(answer.error, redactor),
        duration_ms=answer.duration_ms,
    )


def _text(text: str | None, redactor: Redactor) -> str | None:
    if text is None:
        return None
    return clip(redactor.redact(text.encode("utf-8", "backslashreplace").decode()), LONGEST_TEXT)
