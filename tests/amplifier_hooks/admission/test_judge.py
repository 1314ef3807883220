"""The hooks of a session on record."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.testing import CollectingAudit


async def guard(event: str, data: dict[str, Any]) -> HookResult:
    """Deny."""
    return HookResult.deny("no")


async def idle(event: str, data: dict[str, Any]) -> None:
    """Continue."""


@pytest.mark.rule("AUD-1")
async def test_snapshot() -> None:
    """Each session's record begins with the hooks that can take part in it, of its own tenant and of the system."""
    registry, audit = HookRegistry(), CollectingAudit()
    registry.gate("tool:pre", guard, match="Write", priority=5)
    registry.on("tool:post", idle, name="mine", tenant="acme")
    registry.on("tool:post", idle, name="theirs", tenant="other")
    registry.on("tool:post", idle, name="off")
    registry.disable("off")
    async with (
        SessionCoordinator(registry, session_id="s1", audit=audit, tenant="acme") as session,
        session.child("helper"),
    ):
        pass
    first, second = audit.facts("registry.snapshot")
    assert audit.kinds[0] == "registry.snapshot"
    assert [hook["hook"] for hook in first["hooks"]] == ["guard", "mine", "off"]
    described = dict(first["hooks"][0])
    assert len(described.pop("version")) == 16
    assert described == {
        "hook": "guard",
        "event": "tool:pre",
        "intent": "gate",
        "priority": 5,
        "on_error": "deny",
        "tier": "built-in",
        "match": "Write",
    }
    assert first["hooks"][2]["enabled"] is False
    assert (first["hooks"], first["session"]) == (second["hooks"], "s1")


@pytest.mark.rule("AUD-1")
async def test_many_hooks() -> None:
    """Hooks beyond the size of one record are split over several, which carry page numbers."""
    registry, audit = HookRegistry(), CollectingAudit()
    for number in range(450):
        registry.on("tool:post", idle, name=f"hook-{number}")
    async with SessionCoordinator(hooks=registry, audit=audit):
        pass
    found = audit.facts("registry.snapshot")
    assert [(page["page"], page["pages"], len(page["hooks"])) for page in found] == [
        (1, 3, 200),
        (2, 3, 200),
        (3, 3, 50),
    ]


@pytest.mark.rule("AUD-1")
async def test_changes() -> None:
    """A registration, and its undoing, is on record before the first outcome it can have had a part in."""
    registry, audit = HookRegistry(), CollectingAudit()
    async with SessionCoordinator(registry, session_id="s1", audit=audit) as session:
        undo = registry.gate("tool:pre", guard)
        registry.on("tool:post", idle, tenant="other")
        assert (await session.call_tool("Write", {}, str)).denied
        undo()
    told = [(record.kind, record.facts.get("what"), record.facts.get("hook")) for record in audit.records]
    change = told.index(("registry.changed", "registered", "guard"))
    assert told[change + 1][0] == "outcome"
    assert ("registry.changed", "unregistered", "guard") in told[change:]
    assert sum(kind == "registry.changed" for kind, *_ in told) == 2


@pytest.mark.rule("AUD-1")
async def test_after_the_end() -> None:
    """A session that has ended watches no longer, and one without a record never does."""
    registry, audit = HookRegistry(), CollectingAudit()
    async with (
        SessionCoordinator(registry, session_id="s1", audit=audit),
        SessionCoordinator(registry, session_id="s2"),
    ):
        pass
    before = len(audit.records)
    registry.gate("tool:pre", guard)
    async with SessionCoordinator(registry, session_id="s3") as session:
        assert (await session.call_tool("Write", {}, str)).denied
    assert len(audit.records) == before


@pytest.mark.rule("AUD-3")
async def test_not_required() -> None:
    """If the record is not required, a call that cannot be recorded runs, and the log has the failure."""
    audit = CollectingAudit(OSError("full"))
    ran: list[Any] = []
    async with SessionCoordinator(session_id="s1", audit=audit, audit_required=False) as session:
        assert (await session.call_tool("Write", {}, ran.append)).ok
        assert (await session.child("helper").call_tool("Write", {}, ran.append)).ok
    assert len(ran) == 2
