"""The record, switched on as a hook."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.library import AuditLogHook
from amplifier_hooks.library.audit_log import AuditLogSettings
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from amplifier_hooks.testing import CollectingAudit, ManualClock
from tests.logbook import pinned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("LIB-5")


async def test_recorded(tmp_path: Path) -> None:
    """Every event and every decision is in a record that verifies; before a tool runs, its call is on disk."""
    path, registry = tmp_path / "audit" / "record.jsonl", HookRegistry()
    seen: list[str] = []
    hook = AuditLogHook(AuditLogSettings(path=str(path)), clock=ManualClock())
    hook.register(registry)
    registry.gate("tool:pre", lambda event, data: HookResult.deny("not this one"), match="Bash", name="gate")

    def run(given: dict[str, Any]) -> str:
        seen.extend(kind for kind, _ in lines(path))
        return "done"

    async with SessionCoordinator(registry, session_id="s-1", tenant="acme") as session:
        assert (await session.call_tool("Read", {"file_path": "password=hunter22"}, run, call_id="c-1")).ok
        assert (await session.call_tool("Bash", {"command": "rm"}, run)).denied
    await hook.close()
    await hook.close()
    assert seen[-1] == "tool.deciding"
    key = AuditKey.open(path.with_name("audit.key"))
    assert verify({1: path}, keys=[pinned(key)]).verdict is LogVerdict.UNBROKEN
    deciding = [facts for kind, facts in lines(path) if kind == "tool.deciding"]
    assert [(facts["tool_name"], facts["session_id"], facts["tenant_id"]) for facts in deciding] == [
        ("Read", "s-1", "acme")
    ]
    assert len(deciding[0]["digest"]) == 64
    outcomes = {(facts["event"], facts["action"]) for kind, facts in lines(path) if kind == "outcome"}
    assert {("session:start", "continue"), ("tool:pre", "deny"), ("tool:post", "continue")} <= outcomes
    assert "hunter22" not in path.read_text()


def lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return kind and facts of every line."""
    return [(line["kind"], line["facts"]) for line in map(json.loads, path.read_text().splitlines())]


async def test_same_digest() -> None:
    """The digest is the one that the session's own record has for the call."""
    theirs, ours, registry = CollectingAudit(), CollectingAudit(), HookRegistry()
    AuditLogHook(sink=ours).register(registry)
    async with SessionCoordinator(hooks=registry, audit=theirs, tenant="acme") as session:
        await session.call_tool("Write", {"b": 1, "a": [None, "é"]}, str)
    assert ours.facts("tool.deciding")[0]["digest"] == theirs.facts("tool.running")[0]["digest"]
    assert ours.records[ours.kinds.index("tool.deciding")].durable


async def test_denial_is_on_disk() -> None:
    """A denial is on disk before the caller receives it; so is the end of a session."""
    sink, registry = CollectingAudit(), HookRegistry()
    AuditLogHook(sink=sink).register(registry)
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="gate")
    for event in ("tool:pre", "prompt:complete", "session:end"):
        await registry.emit(event, {"tool_name": "Read", "tool_input": {}})
    assert [record.durable for record in sink.records if record.kind == "outcome"] == [True, False, True]


async def test_cannot_be_written() -> None:
    """A call that cannot be recorded is denied unless the record is optional; events are never held up."""
    for required, denied in ((True, True), (False, False)):
        registry = HookRegistry()
        AuditLogHook(AuditLogSettings(required=required), sink=CollectingAudit(OSError("disk full"))).register(registry)
        assert (await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {}})).denied is denied
        assert not (await registry.emit("prompt:submit", {"prompt": "x"})).denied


async def test_cannot_be_opened(tmp_path: Path) -> None:
    """A record that cannot be opened denies with the reason, and is opened as soon as it can be."""
    path, registry = tmp_path / "record.jsonl", HookRegistry()
    hook = AuditLogHook(AuditLogSettings(path=str(path)))
    hook.register(registry)
    other = AuditLog.open(path)
    outcome = await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {}})
    assert outcome.denied
    assert "cannot be opened" in (outcome.reason or "") + str(outcome.failures)
    await other.close()
    assert not (await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {}})).denied
    await hook.close()


async def test_odd_input() -> None:
    """Input without a possible digest is on record as such."""
    sink, registry = CollectingAudit(), HookRegistry()
    AuditLogHook(sink=sink).register(registry)
    assert not (await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {"x": float("nan")}})).denied
    assert sink.facts("tool.deciding")[0]["digest"] is None


async def test_closed_while_opening(tmp_path: Path) -> None:
    """A record that is closed while it is being opened is closed in the end, even if the caller was cancelled."""
    path, registry = tmp_path / "record.jsonl", HookRegistry()
    hook = AuditLogHook(AuditLogSettings(path=str(path)))
    hook.register(registry)
    for gives_up in (False, True):
        deciding = asyncio.ensure_future(registry.decide("tool:pre", {"tool_name": "Read", "tool_input": {}}))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(hook.close())
        await asyncio.sleep(0)
        if gives_up:
            closing.cancel()
        outcome = await deciding
        await asyncio.wait({closing})
        await hook.close()
        kinds = [kind for kind, _ in lines(path)]
        assert kinds[-1] == "log.checkpoint"
        assert outcome.denied or "tool.deciding" in kinds
        await AuditLog.open(path).close()
