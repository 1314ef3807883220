"""The second look after a person's answer."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.testing import ScriptedApprover


@pytest.mark.rule("DSP-2", "APR-6")
async def test_change_at_the_second_look() -> None:
    """A gate that wants another input once a person has allowed this one denies the act, and nothing runs."""
    registry, ran, looks = HookRegistry(), list[Any](), list[Any]()

    @registry.gate("tool:pre")
    def guard(_event: str, data: Any) -> HookResult:
        looks.append(data["tool_input"])
        if len(looks) == 1:
            return HookResult.ask("Run it?")
        return HookResult.modify({"tool_input": {"command": "ls --safe"}})

    session = SessionCoordinator(registry, session_id="s", approvals=ScriptedApprover("Allow"))
    outcome = await session.call_tool("Bash", {"command": "ls"}, ran.append)
    assert (len(looks), ran, outcome.ok) == (2, [], False)
    assert outcome.cause == "conflict"


@pytest.mark.rule("DSP-2")
async def test_values_that_only_seem_equal_are_in_conflict() -> None:
    """A gate that wants another value than the input has denies the act, also if Python calls the two values equal."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda *_: HookResult.modify({"tool_input": {"force": False}}), name="gate", priority=1)
    registry.on("tool:pre", lambda *_: HookResult.modify({"tool_input": {"force": 0}}), name="hook", priority=2)
    outcome = await SessionCoordinator(registry).call_tool("Write", {"force": True}, lambda given: given)
    assert (outcome.denied, outcome.cause) == (True, "conflict")
