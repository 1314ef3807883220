"""Rules from a file in front of a session's tool calls, beside hooks, grants and approvers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from pathlib import Path

ALLOW = "version: 1\nrules:\n- {id: reads, effect: allow, tool: Bash, command: git status, hooks: [shell]}\n"
DENY = ALLOW + "- {id: frozen, effect: deny, tool: Bash, command: git, reason: no git today}\n"


OTHERWISE = b"version: 1\notherwise: ask\nrules:\n- {id: here, effect: allow, tool: Bash, command: pwd, hooks: '*'}\n"


@pytest.mark.rule("BCK-9", "APR-5")
@pytest.mark.fault("F-APR-23")
async def test_always_where_no_rule_allows() -> None:
    """With `otherwise: ask`, an "always" on one command lets no other command run, however alike the questions are."""
    approver, ran = ScriptedApprover("Allow always", "Deny", "Deny"), list[object]()
    async with SessionCoordinator(
        HookRegistry(), session_id="s1", approvals=approver, rules=Rules(OTHERWISE), cwd="/w"
    ) as session:
        for command in ("ls | head", "ls | head", "rm -rf ~", "ls | head; rm -rf ~"):
            await session.call_tool("Bash", {"command": command}, ran.append)
    assert ran == [{"command": "ls | head"}] * 2
    assert [request.prompt for request in approver.requests] == ["No rule allows this."] * 3


@pytest.mark.rule("BCK-6", "BCK-9", "APR-5")
@pytest.mark.fault("F-APR-16")
async def test_a_deny_rule_added_later(tmp_path: Path) -> None:
    """An "allow always" answers until a file that is read again forbids it; both decisions are on record."""
    path = tmp_path / "rules.yaml"
    path.write_text(ALLOW)
    rules, audit, approver = Rules.load(path), CollectingAudit(), ScriptedApprover("Allow always")
    registry = HookRegistry()
    registry.gate(
        "tool:pre",
        lambda event, data: HookResult.ask("Run it?", options=["Allow once", "Allow always", "Deny"]),
        name="shell",
    )
    session = SessionCoordinator(registry, session_id="s1", approvals=approver, audit=audit, rules=rules, cwd=tmp_path)
    ran: list[object] = []
    async with session:
        assert (await session.call_tool("Bash", {"command": "git status"}, ran.append)).ok
        assert approver.requests == []  # the rule answered
        for _ in range(2):
            assert (await session.call_tool("Bash", {"command": "git push"}, ran.append)).ok
        assert len(approver.requests) == 1  # a person answered once, and the grant after that
        path.write_text(DENY)
        assert rules.reload()
        for command in ("git push", "git status"):
            outcome = await session.call_tool("Bash", {"command": command}, ran.append)
            assert outcome.reason == "Operation denied by rule:frozen: no git today"
    assert len(ran) == 3
    assert len(approver.requests) == 1
    decided = [(facts["by"], facts["status"]) for facts in audit.facts("approval.decided")]
    assert decided[0] == ("rule:reads", "approved")
    assert decided[-2:] == [("rule:frozen", "denied")] * 2
