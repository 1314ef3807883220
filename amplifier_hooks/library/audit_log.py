"""The record, switched on as a hook: for loops of your own, which have a registry and no session.

A session has a record of its own (`SessionCoordinator(audit=…)`), which holds more: approvals, grants, and the outcome
of injections. The hook records the view of a registry: before every tool call a line with the digest of its input,
which is on disk before the tool runs, and for every event the outcome of its hooks. The record never holds arguments or
results, and secrets are taken out. A call that cannot be recorded is denied; everything else fails open.

```python
import json
from pathlib import Path
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import AuditLogHook

registry, record = HookRegistry(), AuditLogHook.from_config({"path": "audit/record.jsonl"})
record.register(registry)
await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {"file_path": "notes.md"}})
await record.close()
print(*(json.loads(line)["kind"] for line in Path("audit/record.jsonl").read_text().splitlines()))
```

```output
segment.opened tool.deciding outcome log.closed log.checkpoint
```
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.admission.judge import outcome_facts
from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.events import SESSION_END, TOOL_PRE
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade
from amplifier_hooks.record.journal import digest_of_call
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.result import CONTINUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.result import HookResult, Outcome


LAST: Final = 499
"""Priority of the last hook that takes part: it sees the input as the others left it."""

WATCHING: Final = 510

RECORDED: Final = ("session_id", "tenant_id", "turn", "agent", "event_id", "tool_name", "tool_call_id")
"""Fields of a payload that are recorded."""


class AuditLogSettings(HookSettings):
    """Settings of the record: its file, and whether calls need it."""

    path: str = Field(
        default="audit/record.jsonl", min_length=1, description="its file; its folder is made for its owner alone"
    )
    required: bool = Field(default=True, description="whether a tool call that cannot be recorded is denied")


class AuditLogHook(ReadyMade[AuditLogSettings]):
    """Keeps a signed record of every event and every decision; a tool call that cannot be recorded is denied.

    Args:
        sink: Sink of the record; if None, a log in the file that the settings name.
    """

    name = "audit_log"
    Settings = AuditLogSettings

    def __init__(
        self, settings: AuditLogSettings | None = None, *, sink: AuditSink | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(settings)
        self._sink = sink
        self._clock = clock or SystemClock()
        self._opening: asyncio.Task[AuditLog] | None = None
        self._closing: asyncio.Task[None] | None = None

    def points(self) -> tuple[Point, ...]:
        """Return a gate before tools, after all others, and an observer of every event."""
        gate = Point(event=TOOL_PRE, call=self.before, intent="gate", priority=LAST)
        watch = Point(event="*", call=self.watch, intent="observe", priority=WATCHING)
        return (gate, watch) if self.settings.required else (watch,)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Record that the call is being decided, before it can run."""
        await self._write("tool.deciding", event, data, {"digest": digest_of_call(data) or None}, durable=True)
        return CONTINUE

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Record the outcome of the hooks."""
        durable = event == SESSION_END or outcome.action == "deny"
        await self._write("outcome", event, data, outcome_facts(outcome), durable=durable)

    async def close(self) -> None:
        """Finish the record, also one that is just being opened; the next event opens it again.

        A record that was passed as `sink` stays open. Raise `LogUnavailable` if the end cannot be written. Cancelling
        the call does not stop it; a second call waits for the end, too.
        """
        if self._opening is not None:
            self._closing, self._opening = asyncio.create_task(_close(self._opening)), None
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _write(
        self, kind: str, event: str, data: Mapping[str, Any], facts: Mapping[str, Any], *, durable: bool
    ) -> None:
        """Write a line; open the record first if it is closed. Raise `HookUnavailable` if it cannot be opened."""
        sink = self._sink
        try:
            if sink is None:
                if self._opening is None or (self._opening.done() and self._opening.exception()):
                    self._opening = asyncio.create_task(asyncio.to_thread(self._open))
                sink = await asyncio.shield(self._opening)
        except OSError as error:
            raise HookUnavailable(f"the record {self.settings.path!r:.200} cannot be opened: {error}") from error
        known = {name: data[name] for name in RECORDED if data.get(name) is not None}
        await sink.write(kind, {"time": stamp(self._clock), "event": event, **known, **facts}, durable=durable)

    def _open(self) -> AuditLog:
        path = Path(self.settings.path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return AuditLog.open(path, clock=self._clock)


async def _close(opening: asyncio.Task[AuditLog]) -> None:
    await asyncio.wait({opening})  # the thread that opens it cannot be stopped
    if opening.exception() is None:
        await opening.result().close()
