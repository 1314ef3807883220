"""Report-only hooks: their answers are on record, and have no effect."""

from __future__ import annotations

from time import sleep
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover

pytestmark = pytest.mark.rule("DSP-11")

DATA = {"tool_name": "Bash", "tool_input": {"command": "ls"}}


def deny(event: str, data: dict[str, Any]) -> HookResult:
    """Deny."""
    return HookResult.deny("never")


async def test_the_answer_is_kept_and_has_no_effect() -> None:
    """The outcome goes on, and the answer of the hook names the action it would have taken, with the reason."""
    registry = HookRegistry()
    registry.gate("tool:pre", deny, name="guard", report_only=True)
    outcome = await registry.emit("tool:pre", DATA)
    [answer] = outcome.answers
    assert (outcome.action, answer.action, answer.result.action) == ("continue", "continue", "continue")
    assert answer.would is not None
    assert (answer.would.action, answer.would.reason) == ("deny", "never")


async def test_a_failure_would_have_denied() -> None:
    """The failure of a report-only gate is on record as a denial that had no effect, and stays a failure."""
    registry = HookRegistry()

    @registry.gate("tool:pre", name="guard", report_only=True)
    def guard(event: str, data: dict[str, Any]) -> None:
        raise ValueError("broken")

    [answer] = (await registry.emit("tool:pre", DATA)).answers
    assert (answer.status, answer.denies) == ("error", False)
    assert answer.would is not None
    assert (answer.would.action, answer.would.reason) == ("deny", "ValueError: broken")


async def test_it_looks_again_at_changed_data() -> None:
    """A report-only gate looks at data that a later hook changed, and wants nothing of it."""
    registry = HookRegistry()

    @registry.gate("tool:pre", name="guard", priority=1, report_only=True)
    def guard(event: str, data: dict[str, Any]) -> HookResult | None:
        return HookResult.deny("secret") if "id_rsa" in data["tool_input"]["command"] else None

    change = HookResult.modify({"tool_input": {"command": "cat id_rsa"}})
    registry.on("tool:pre", lambda event, data: change, name="change", priority=2)
    outcome = await registry.emit("tool:pre", DATA)
    assert (outcome.action, outcome.data["tool_input"]) == ("modify", {"command": "cat id_rsa"})
    assert [one.would.action for one in outcome.answers if one.would] == ["deny"]


async def test_its_time_is_its_own() -> None:
    """The time of a report-only definition leaves the other definitions of the chain their whole budget."""
    registry = HookRegistry()
    options: dict[str, Any] = {"source": "definition", "budget": 0.05}
    registry.gate("tool:pre", lambda event, data: sleep(0.06), name="slow", priority=1, report_only=True, **options)
    registry.gate("tool:pre", deny, name="guard", priority=2, **options)
    outcome = await registry.emit("tool:pre", DATA)
    assert (outcome.denied_by, outcome.cause) == ("guard", "denied_by_hook")


async def test_no_person_is_asked_and_the_record_has_it() -> None:
    """A question of a report-only gate reaches no approver; the record has it, and marks the hook as report-only."""
    registry, approver, audit = HookRegistry(), ScriptedApprover(), CollectingAudit()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Push?"), name="guard", report_only=True)
    async with SessionCoordinator(registry, session_id="s", approvals=approver, audit=audit) as session:
        outcome = await session.call_tool("Bash", {"command": "git push"}, lambda given: "done")
    assert (outcome.ok, approver.requests) == (True, [])
    [facts] = [one for one in audit.facts("outcome") if one["event"] == "tool:pre"]
    assert facts["tool"] == "Bash"
    assert facts["answers"][0]["would"] == {"action": "ask_user", "reason": "Push?"}
    [snapshot] = audit.facts("registry.snapshot")
    assert snapshot["hooks"][0]["report_only"] is True


async def test_its_hook_events_say_what_it_would_do() -> None:
    """The event of a report-only hook's end has the action it would have taken."""
    registry, seen = HookRegistry(), []
    registry.gate("tool:pre", deny, name="guard", report_only=True)
    registry.observe("hook:complete", lambda event, data, outcome: seen.append((data["action"], data["would"])))
    await registry.emit("tool:pre", DATA)
    assert seen == [("continue", "deny")]


async def test_a_required_gate_has_to_be_in_force() -> None:
    """Where a gate is required, a report-only one does not do, and the explanation says that it stops nothing."""
    registry = HookRegistry()
    registry.require("tool:pre")
    registry.gate("tool:pre", lambda event, data: None, name="guard", report_only=True)
    explained = registry.explain("tool:pre", DATA)
    assert explained.refusal == "no_policy"
    assert "report-only: it stops nothing" in str(explained)
    assert explained.hooks[0].on_failure == "that is only on record"
    assert (await registry.emit("tool:pre", DATA)).cause == "no_policy"


async def test_no_record_waits_for_the_disk() -> None:
    """An act at which only report-only gates look is recorded without waiting for the disk."""
    registry, audit = HookRegistry(), CollectingAudit()
    registry.gate("tool:pre", lambda event, data: None, name="guard", report_only=True)
    async with SessionCoordinator(registry, session_id="s", audit=audit) as session:
        await session.call_tool("Bash", {"command": "ls"}, lambda given: "done")
    assert [one.durable for one in audit.records if one.kind == "tool.running"] == [False]


@pytest.mark.parametrize(("intent", "event"), [("observe", "tool:pre"), ("around", "tool")])
def test_hooks_without_an_answer_are_refused(intent: str, event: str) -> None:
    """An observer and an around hook cannot be report-only."""

    async def around(context: object, call_next: Any) -> None:
        await call_next()

    with pytest.raises(InvalidRegistration, match="report_only"):
        getattr(HookRegistry(), intent)(event, around if intent == "around" else lambda e, d, o: None, report_only=True)


def test_a_wrong_value_is_refused() -> None:
    """A value of report_only that is no bool is refused."""
    with pytest.raises(InvalidRegistration, match="neither True nor False"):
        HookRegistry().gate("tool:pre", deny, report_only="yes")  # type: ignore[call-overload]  # the mistake
