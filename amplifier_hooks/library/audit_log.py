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

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.admission.judge import outcome_facts
from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.errors import HookUnavailable, InputNotFreezable
from amplifier_hooks.events import SESSION_END, TOOL_PRE
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.result import CONTINUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.result import HookResult, Outcome


LAST: Final = 499
"""Priority of the last hook that takes part: it sees the input as the others left it."""

WATCHING: Final = 510

TOLD: Final = ("session_id", "tenant_id", "turn", "agent", "event_id", "tool_name", "tool_call_id")
"""Fields of a payload that are recorded."""


class AuditLogSettings(HookSettings):
    """Settings of the record: its file, and its signature."""

    path: str = Field(
        default="audit/record.jsonl", min_length=1, description="its file; its folder is made for its owner alone"
    )
    required: bool = Field(default=True, description="whether a tool call that cannot be recorded is denied")
    signed: bool = Field(default=True, description="whether it is signed, with a key beside it")


class AuditLogHook(ReadyMade[AuditLogSettings]):
    """Keeps a signed record of every event and every decision; a tool call that cannot be recorded is denied."""

    name = "audit_log"
    Settings = AuditLogSettings

    def __init__(
        self, settings: AuditLogSettings | None = None, *, sink: AuditSink | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(settings)
        self._caller_sink = sink
        self._log: AuditLog | None = None
        self._clock = SystemClock() if clock is None else clock
        self._opening: asyncio.Future[AuditLog] | None = None
        self._closing: asyncio.Future[None] | None = None

    def points(self) -> tuple[Point, ...]:
        """Return a gate before tools, after all others, and an observer of every event."""
        gate = Point(event=TOOL_PRE, call=self.before, intent="gate", priority=LAST)
        watch = Point(event="*", call=self.watch, intent="observe", priority=WATCHING)
        return (gate, watch) if self.settings.required else (watch,)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Record that the call is being decided, before it can run."""
        sink = await self._open()
        await sink.write("tool.deciding", {**self._facts(event, data), **_digest(event, data)}, durable=True)
        return CONTINUE

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Record the outcome of the hooks."""
        sink = await self._open()
        facts = {**self._facts(event, data), **outcome_facts(outcome)}
        await sink.write("outcome", facts, durable=event == SESSION_END or outcome.action == "deny")

    async def close(self) -> None:
        """Finish the record, also one that is just being opened.

        A second call does nothing; the next event opens it again.

        A record that was passed as `sink` stays open. Raise `LogUnavailable` if the end cannot be written. Cancelling
        the call does not stop it.
        """
        if self._closing is None or self._closing.done():
            found, opening = self._log, self._opening
            self._log = self._opening = None
            self._closing = asyncio.ensure_future(self._close_sink(found, opening))
        await asyncio.shield(self._closing)

    async def _close_sink(self, sink: AuditLog | None, opening: asyncio.Future[AuditLog] | None) -> None:
        if sink is None and opening is not None:
            await asyncio.wait({opening})  # the thread that opens it cannot be stopped
            sink = opening.result() if opening.exception() is None else None
        if sink is not None:
            await sink.close()

    async def _open(self) -> AuditSink:
        """Return the record, opened on first use. Raise `HookUnavailable`; the next event tries again."""
        if self._caller_sink is not None:
            return self._caller_sink
        if self._log is not None:
            return self._log
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_log))
        opening = self._opening
        try:
            opened = await asyncio.shield(opening)
        except OSError as error:
            raise HookUnavailable(f"the record {self.settings.path!r:.200} cannot be opened: {error}") from error
        if self._opening is not opening:
            raise HookUnavailable(f"the record {self.settings.path!r:.200} was closed while it was being opened")
        self._log = opened
        return opened

    def _open_log(self) -> AuditLog:
        path = Path(self.settings.path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return AuditLog.open(path, signed=self.settings.signed, clock=self._clock)

    def _facts(self, event: str, data: Mapping[str, Any]) -> dict[str, Any]:
        told = {name: data[name] for name in TOLD if data.get(name) is not None}
        return {"time": stamp(self._clock), "event": event, **told}


def _digest(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digest that a session would have for the call."""
    tenant, session, tool, cwd = (str(data.get(name) or "") for name in ("tenant_id", "session_id", "tool_name", "cwd"))
    try:
        act = Act(tenant, session, event, tool, cwd, freeze(data.get("tool_input")))
    except InputNotFreezable as problem:
        return {"digest": None, "problem": str(problem)}
    return {"digest": act.digest}
