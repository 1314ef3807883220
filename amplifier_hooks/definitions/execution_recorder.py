"""Keeps the execution log: watches every event, and writes down in the background what the hooks did.

Whoever emits waits for none of it: an entry is put into a queue of bounded length, and what does not fit is counted
and let go.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.execution_log import HookExecutionLog, HookRun, new_log_id
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.format.json_values import Tamer, TooMuch
from amplifier_hooks.record.format.redact import Redactor
from amplifier_hooks.storage.store_errors import StoreUnavailable
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from amplifier_hooks.definitions.execution_log import ExecutionStore
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.registry.decorators import Undo
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Answer, Outcome


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
"""Fields of a payload that say what an event belongs to; the first that is there counts."""


class Seen(NamedTuple):
    """What is kept of an event until it is written."""

    at: datetime
    tenant: str
    request: str
    outcome: Outcome


class ExecutionRecorder:
    """Writes the execution log of a registry. Use it as an async context manager; what waits is written at its end.

    Args:
        store: Where to.
        retention: How long an entry is kept.
        room: How many events may wait to be written. `lost` counts those that did not fit.
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
        self._waiting: deque[Seen] = deque()
        self._wake = asyncio.Event()
        self._redactor = Redactor(secrets.token_bytes(32))
        self._tenants: set[str] = set()
        self._cleaned: datetime | None = None
        self._writer: asyncio.Task[None] | None = None
        self._undo: list[Undo] = []

    def watch(self, registry: HookRegistry) -> None:
        """Watch every event of a registry from now on."""
        self._undo.append(registry.observe("*", self.see, name="execution-log"))

    def see(self, _event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Note what the hooks did. An observer; events without hooks leave nothing."""
        if not outcome.ran:
            return
        if len(self._waiting) >= self._room:
            self.lost += 1
            return
        tenant, request = data.get("tenant_id"), next((data[name] for name in WHOSE if data.get(name)), "")
        whose, about = (for_log(one) if isinstance(one, str) else "" for one in (tenant, request))
        self._waiting.append(Seen(self._clock.now(), whose, clip(about, 200), outcome))
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
        """Write what waits. What cannot be written is lost, counted and logged."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            entries = []
            for seen in batch:
                entries.append(self._entry(seen))
                await asyncio.sleep(0)  # whoever decides comes first
            try:
                await self._store.add(entries)
                self._tenants.update(entry.tenant_id for entry in entries)
            except StoreUnavailable as problem:
                self.lost += len(batch)
                log.warning("execution_log_unavailable", lost=len(batch), error=str(problem))

    async def clean(self) -> None:
        """Remove what is older than the retention, and what is more than a tenant may have."""
        now = self._clock.now()
        if self._cleaned is not None and self._cleaned <= now < self._cleaned + CLEANING:
            return
        self._cleaned = now
        tenants, self._tenants = self._tenants, set()
        with suppress(StoreUnavailable):  # the next time, then
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

    def _entry(self, seen: Seen) -> HookExecutionLog:
        outcome = seen.outcome
        return HookExecutionLog(
            log_id=new_log_id(),
            event_type=for_log(outcome.event),
            tenant_id=seen.tenant,
            hook_results=[run_of(answer, self._redactor) for answer in outcome.hook_results],
            aborted=outcome.aborted,
            abort_reason=_text(outcome.abort_reason, self._redactor),
            total_duration_ms=outcome.total_duration_ms,
            timestamp=seen.at,
            request_id=seen.request,
        )


def run_of(answer: Answer, redactor: Redactor) -> HookRun:
    """What one hook did, as it may be looked at: without secrets, and not larger than it is worth."""
    data = None
    if answer.data is not None:
        tamer = Tamer(redactor, LONGEST_TEXT, LARGEST_DATA, MOST_VALUES)
        try:
            tamed = tamer.tamed(answer.data)
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
        said=_text(answer.said.reason or answer.said.approval_prompt, redactor),
        error=_text(answer.error, redactor),
        duration_ms=answer.duration_ms,
    )


def _text(text: str | None, redactor: Redactor) -> str | None:
    if text is None:
        return None
    return clip(redactor.without(text.encode("utf-8", "backslashreplace").decode()), LONGEST_TEXT)
