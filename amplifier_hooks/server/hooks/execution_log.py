"""The execution log: events of a registry come in; entries and statistics go out, as views of the journal.

An entry is one event with every hook that ran. An emit does not wait for the log: events pass a queue of bounded length
to a background writer, and an event that does not fit is counted and dropped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import AwareDatetime, BaseModel, Field

from amplifier_hooks.clock import micros_of
from amplifier_hooks.record.journal import Fact, FactValues, name_in_facts
from amplifier_hooks.result import Action, Status
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.record.journal import Journal
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Answer, Outcome


MOST_ENTRIES: Final = 10_000
"""Entries of one tenant, at most; each tenant's oldest entries are removed first."""
ROOM: Final = 1_000
"""Events that may wait to be written."""
BATCH: Final = 100
"""Events in one transaction, at most."""
PAUSE: Final = 0.2
"""Seconds in which entries gather before they are written together."""
CLEANING: Final = 60.0
"""Seconds without an event after which old entries are removed all the same."""
LONGEST_ID: Final = 1_000
WHOSE: Final = ("request_id", "run_id", "event_id")
"""Fields of a payload with the id that an event belongs to; the first one present counts."""


class HookRun(BaseModel):
    """One run of a hook at an event."""

    hook_name: str
    success: bool = Field(description="True if the hook gave an answer, of any kind.")
    status: Status = Field(description="ok, or the reason why there is no answer.")
    action: Action = Field(description="Effect of the hook's answer or failure.")
    would: Action | None = Field(None, description="Effect of a report-only hook, if it were in force; it had none.")
    data: Any = Field(None, description="Data of the answer, without secrets.")
    said: str | None = Field(None, description="Reason of a denial, or text of a question.")
    error: str | None = None
    duration_ms: float | None = Field(None, description="null if its time was not measured.")


class HookExecutionLog(BaseModel):
    """One event with the runs of its hooks."""

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

    hook_name: str
    event_type: str
    runs: int
    failures: int = Field(description="Runs without an answer, including timeouts.")
    timeouts: int
    aborts: int = Field(description="Runs that denied.")
    mean_ms: float | None = Field(description="null if no time was measured.")
    p95_ms: float | None


Waiting = tuple["datetime", str, str, "Outcome"]
"""Time, tenant, request and outcome of an event that waits to be written."""


class ExecutionRecorder:
    """Writer of the execution log of a registry, for the duration of `running`.

    `lost` of the journal counts the events that did not fit or could not be written.
    """

    def __init__(self, journal: Journal, clock: Clock, *, room: int = ROOM, pause: float = PAUSE) -> None:
        self._journal = journal
        self._clock = clock
        self._room = room
        self._pause = pause
        self._waiting: deque[Waiting] = deque()
        self._wake = asyncio.Event()
        self._values = FactValues()

    @asynccontextmanager
    async def running(self, registry: HookRegistry) -> AsyncIterator[None]:
        """Write every event of a registry from now on; the end writes the waiting ones."""
        undo = registry.observe("*", self.note_event, name="execution-log")
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            yield
        finally:
            undo()
            writer.cancel()
            await asyncio.wait({writer})
            await self.flush()

    def note_event(self, _event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Queue an event and its hooks' answers, as an observer; an event at which no hook ran is left out."""
        if not outcome.ran:
            return
        if len(self._waiting) >= self._room:
            self._journal.lost += 1
            return
        whose = (data.get("tenant_id"), next((data[name] for name in WHOSE if data.get(name)), ""))
        tenant, request = (one if isinstance(one, str) else "" for one in whose)
        self._waiting.append((self._clock.now(), tenant, request[:LONGEST_ID], outcome))
        self._wake.set()

    async def flush(self) -> None:
        """Write the waiting events, and remove old entries. Events that cannot be written are lost and counted."""
        for _ in range(0, len(self._waiting) + 1, BATCH):
            facts: list[Fact] = []
            for _ in range(min(BATCH, len(self._waiting))):
                facts += _facts(*self._waiting.popleft(), self._values)
                await asyncio.sleep(0)  # decisions come first
            await self._journal.write(facts)

    async def _write(self) -> None:
        while True:
            await self.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEANING):  # `wait_for` of Python 3.11 may lose a cancellation
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(self._pause)


def _facts(time: datetime, whose: str, request: str, outcome: Outcome, values: FactValues) -> list[Fact]:
    """Return the facts of an event: its entry, and the run of each hook."""
    tenant = name_in_facts(whose)
    entry = HookExecutionLog(
        log_id=f"log_{secrets.token_hex(12)}",
        event_type=name_in_facts(outcome.event),
        tenant_id=tenant,
        hook_results=[hook_run_of(answer, values) for answer in outcome.hook_results],
        aborted=outcome.aborted,
        abort_reason=values.text(outcome.abort_reason),
        total_duration_ms=outcome.total_duration_ms,
        timestamp=time,
        request_id=values.name(request),
    )
    body, at = entry.model_dump_json(), micros_of(time)
    event = Fact("event", entry.log_id, tenant, event=entry.event_type, at=at, denied=int(entry.aborted), body=body)
    hook = event._replace(kind="hook", body="")
    return [event] + [
        hook._replace(
            part=part, name=run.hook_name, status=run.status, denied=int(run.action == "deny"), duration=run.duration_ms
        )
        for part, run in enumerate(entry.hook_results, 1)
    ]


def hook_run_of(answer: Answer, values: FactValues) -> HookRun:
    """Return one hook's answer for the log: escaped, without secrets, and limited in size."""
    return HookRun(
        hook_name=values.name(answer.hook_name),
        success=answer.success,
        status=answer.status,
        action=answer.action,
        would=None if answer.would is None else cast("Action", answer.would.action),
        data=None if answer.data is None else _escape(values.value(answer.data)),
        said=values.text(
            answer.would.reason
            if answer.would is not None
            else answer.effective_result.reason or answer.effective_result.approval_prompt
        ),
        error=values.text(answer.error),
        duration_ms=answer.duration_ms,
    )


def _escape(value: Any) -> Any:
    """Return a value of JSON with each of its texts escaped."""
    if isinstance(value, dict):
        return {for_log(name): _escape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    return for_log(value) if isinstance(value, str) else value
