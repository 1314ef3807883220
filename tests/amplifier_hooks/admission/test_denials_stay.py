"""Denials that one wrong condition on the path of an act would turn into a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import HookAbortError, StopInForce
from amplifier_hooks.ports import ActionFacts, Decision, RuleVerdict
from amplifier_hooks.testing import HANG, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Callable


class BusyStore(ScriptedApprover):
    """An approver that lets something else happen while it claims."""

    def __init__(self, *answers: Any, meanwhile: Callable[[], object]) -> None:
        super().__init__(*answers)
        self.meanwhile = meanwhile

    async def claim(self, request_id: str, digest: str) -> bool:
        """Claim, once the other thing has happened."""
        self.meanwhile()
        return await super().claim(request_id, digest)


class ForgetfulStore(ScriptedApprover):
    """An approver that returns an allowance when a question is withdrawn, and then gives it out."""

    def __init__(self) -> None:
        super().__init__(HANG)
        self.going, self.go = asyncio.Event(), asyncio.Event()

    async def withdraw(self, request_id: str, reason: str) -> Decision:  # type: ignore[override]
        """Return an allowance, when released."""
        await super().withdraw(request_id, reason)
        self.going.set()
        await self.go.wait()
        option = next(one.id for one in self.requests[0].options if one.allows)
        return Decision(option=option, by="Robin", channel="test")

    async def claim(self, request_id: str, digest: str) -> bool:
        """Give out everything."""
        return await super().claim(request_id, digest) or True


class Policy:
    """Rules as a function that can be replaced."""

    digest = "first"

    def __init__(self, rule: Callable[[ActionFacts], RuleVerdict | None]) -> None:
        self.rule = rule

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """Return the verdict of the function."""
        return self.rule(facts)

    def replace(self, rule: Callable[[ActionFacts], RuleVerdict | None]) -> None:
        """Put other rules in force."""
        self.rule, self.digest = rule, "second"


DENY = RuleVerdict(action="deny", rule="no", reason="off limits")


def asking() -> HookRegistry:
    """Return a registry with one gate, which asks about every tool call."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Write?", options=["Allow", "Deny"]), name="guard")
    return registry


@pytest.mark.rule("APR-6")
async def test_a_question_that_comes_up_during_the_claim() -> None:
    """A question that a gate asks while the store claims is unanswered, and denies the act."""
    registry, ran = asking(), list[Any]()

    def add_gate() -> None:
        registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?"), name="second")

    session = SessionCoordinator(registry, approvals=BusyStore("Allow", meanwhile=add_gate))
    outcome = await session.call_tool("Write", {}, ran.append)
    assert (outcome.status, outcome.cause, ran) == ("denied", "approval_unavailable", [])


@pytest.mark.rule("BCK-6", "APR-6")
async def test_rules_that_are_replaced_during_the_claim() -> None:
    """Rules that come into force while the store claims deny an act that a person has allowed."""
    policy, ran = Policy(lambda facts: None), list[Any]()
    approver = BusyStore("Allow", meanwhile=lambda: policy.replace(lambda facts: DENY))
    session = SessionCoordinator(asking(), approvals=approver, rules=policy)
    outcome = await session.call_tool("Write", {}, ran.append)
    assert (outcome.status, outcome.cause, ran) == ("denied", "denied_by_rule", [])


@pytest.mark.rule("APR-4", "COO-9")
async def test_an_allowance_that_a_cancelled_question_finds() -> None:
    """An allowance that a cancelled question finds in the store runs nothing, though a new turn has begun by then."""
    approver, ran = ForgetfulStore(), list[Any]()
    session = SessionCoordinator(asking(), approvals=approver)
    call = asyncio.create_task(session.call_tool("Write", {}, ran.append))
    await approver.asked.wait()
    await session.cancel("enough")
    await approver.going.wait()
    session.reset_turn()
    approver.go.set()
    assert ((await call).cause, ran) == ("session_cancelled", [])


@pytest.mark.rule("APR-6", "APR-14")
async def test_an_allowance_that_a_stop_leaves_unused() -> None:
    """An allowance that a stop refuses at the claim is withdrawn, where no later call can come back to its question."""

    def stop() -> None:
        raise StopInForce("stopped by Kim")

    approver, ran = BusyStore("Allow", meanwhile=stop), list[Any]()
    outcome = await SessionCoordinator(asking(), approvals=approver).call_tool("Write", {}, ran.append)
    assert (outcome.cause, ran, approver.step_names) == ("emergency_stop", [], ["request", "withdraw"])
    assert not await ScriptedApprover.claim(approver, approver.requests[0].id, approver.requests[0].digest)


@pytest.mark.rule("COO-7")
async def test_a_question_about_what_no_card_can_show() -> None:
    """A question about an operation with a field that is no JSON reaches no approver, who could not see the field."""
    registry, ran, approver = HookRegistry(), list[Any](), ScriptedApprover("Allow")
    registry.gate("memory:pre", lambda event, data: HookResult.ask("Keep it?"), name="guard")
    session = SessionCoordinator(registry, approvals=approver)
    with pytest.raises(HookAbortError):
        await session.operation("memory", {"key": "k", "content": object()}, ran.append)
    assert (approver.requests, ran) == ([], [])


@pytest.mark.rule("BCK-6")
async def test_rules_about_an_event_as_it_was_given() -> None:
    """A rule denies an event for what was given, although a hook has replaced that by then."""
    registry = HookRegistry()
    registry.on("prompt:submit", lambda event, data: HookResult.modify({"prompt": "hello"}))
    policy = Policy(lambda facts: DENY if facts.arguments["prompt"] == "rm -rf /" else None)
    outcome = await SessionCoordinator(registry, rules=policy).emit("prompt:submit", {"prompt": "rm -rf /"})
    assert (outcome.action, outcome.cause) == ("deny", "denied_by_rule")


@pytest.mark.rule("BCK-6")
async def test_an_allowing_rule_does_not_replace_the_hooks_of_an_event() -> None:
    """A rule that allows an event answers no denial of a hook there."""
    registry = HookRegistry()
    registry.gate("prompt:submit", lambda event, data: HookResult.deny("no"), name="guard")
    policy = Policy(lambda facts: RuleVerdict(action="allow", rule="fine", answers=("*",)))
    outcome = await SessionCoordinator(registry, rules=policy).emit("prompt:submit", {"prompt": "x"})
    assert (outcome.action, outcome.denied_by) == ("deny", "guard")
