"""The host's rules at a tool call: denials, questions and answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.admission import apply_rules as rules_module
from amplifier_hooks.ports import ActionFacts, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks import ToolOutcome


class Policy:
    """Rules as a function of the facts; keeps the facts it was called with."""

    def __init__(self, rule: Callable[[ActionFacts], Any]) -> None:
        self.rule = rule
        self.judged: list[ActionFacts] = []

    def judge(self, facts: ActionFacts) -> Any:
        """Return the function's verdict."""
        self.judged.append(facts)
        return self.rule(facts)


ALLOW_ALL = RuleVerdict(action="allow", rule="fine", answers=("*",))
DENY = RuleVerdict(action="deny", rule="no-prod", reason="production is off limits")


class Desk:
    """A session under rules, with two gates that ask, and everything it says and does in reach."""

    def __init__(self, rule: Callable[[ActionFacts], Any], *script: Any, asks: tuple[str, ...] = ("a", "b")) -> None:
        self.policy, self.audit, self.approver = Policy(rule), CollectingAudit(), ScriptedApprover(*script)
        self.registry, self.ran = HookRegistry(), list[Any]()
        for name in asks:
            self.registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?"), name=name)
        self.session = SessionCoordinator(
            self.registry,
            session_id="s1",
            approvals=self.approver,
            audit=self.audit,
            rules=self.policy,
            tenant="acme",
            cwd="/w",
        )

    async def write(self, **given: Any) -> ToolOutcome[Any]:
        """Call a tool, and note what it ran with."""
        return await self.session.call_tool("Write", given, self.ran.append)


@pytest.mark.rule("BCK-6")
async def test_what_rules_see() -> None:
    """Rules are asked about the input as the agent wrote it and as the hooks left it, with who, where and how risky."""
    desk = Desk(lambda facts: None, asks=())
    desk.registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"path": "b"}}))
    assert (await desk.write(path="a")).ok
    first, second = desk.policy.judged
    assert (first.arguments, second.arguments) == ({"path": "a"}, {"path": "b"})
    assert (first.tool, first.event, first.session, first.tenant) == ("Write", "tool:pre", "s1", "acme")
    assert (first.agent, first.cwd, first.risk) == ("agent", "/w", "medium")


@pytest.mark.rule("BCK-6")
@pytest.mark.fault("F-HD-04")
@pytest.mark.parametrize("forbidden", ["a", "b"])
async def test_deny_rule(forbidden: str) -> None:
    """A deny rule that fits the input before or after the hooks denies it, without a question."""
    desk = Desk(lambda facts: DENY if facts.arguments["path"] == forbidden else ALLOW_ALL)
    desk.registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"path": "b"}}))
    outcome = await desk.write(path="a")
    assert (outcome.denied, outcome.by) == (True, "rule:no-prod")
    assert outcome.reason == "Operation denied by rule:no-prod: production is off limits"
    assert desk.ran == desk.approver.requests == []
    (facts,) = desk.audit.facts("approval.decided")
    assert (facts["status"], facts["rule"], facts["channel"]) == ("denied", "no-prod", "rules")


@pytest.mark.rule("BCK-6")
@pytest.mark.parametrize(("answers", "left"), [(("*",), []), (("a",), ["b"]), (("a", "b"), []), ((), ["a", "b"])])
async def test_allow_rule(answers: tuple[str, ...], left: list[str]) -> None:
    """An allow rule answers the questions of the hooks it names, which is on record with the rule; others are asked."""
    desk = Desk(lambda facts: RuleVerdict(action="allow", rule="r1", answers=answers), "Allow")
    assert (await desk.write(path="a")).ok
    assert [[one.hook for one in request.questions] for request in desk.approver.requests] == ([left] if left else [])
    by_rule = [facts for facts in desk.audit.facts("approval.decided") if facts["channel"] == "rules"]
    assert [(facts["rule"], facts["by"], facts["hooks"]) for facts in by_rule] == (
        [("r1", "rule:r1", [name for name in ("a", "b") if name not in left])] if len(left) < 2 else []
    )
    assert desk.ran == [{"path": "a"}]


@pytest.mark.rule("BCK-6", "APR-9")
async def test_allow_rule_and_a_denial() -> None:
    """An allow rule answers no denial."""
    desk = Desk(lambda facts: ALLOW_ALL)
    desk.registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="guard", priority=9)
    assert (await desk.write(path="a")).by == "guard"
    assert not desk.ran


@pytest.mark.rule("BCK-6", "APR-1")
@pytest.mark.parametrize(("answer", "ok"), [("Allow once", True), ("Deny", False)])
async def test_ask_rule(answer: str, ok: bool) -> None:
    """A rule that asks has its question put to a person, although no hook asks."""
    desk = Desk(lambda facts: RuleVerdict(action="ask", rule="r2", reason="Touch it?"), answer, asks=())
    assert (await desk.write(path="a")).ok is ok
    (question,) = desk.approver.requests[0].questions
    assert (question.hook, question.prompt) == ("rule:r2", "Touch it?")


@pytest.mark.rule("BCK-6", "APR-5")
@pytest.mark.fault("F-APR-23")
@pytest.mark.parametrize("reason", ["Touch it?", ""])
async def test_always_for_a_rule(reason: str) -> None:
    """An "always" to the question of a rule covers exactly that call; every other one is asked about."""
    ask = RuleVerdict(action="ask", rule="r2", reason=reason)
    desk = Desk(lambda facts: ask, "Allow always", "Deny", "Allow always", asks=())
    assert [(await desk.write(path=path)).ok for path in ("a", "b", "a", "c", "c", "a")] == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]
    assert [request.arguments["path"] for request in desk.approver.requests] == ["a", "b", "c"]
    assert all(grant.key.scope.startswith("action:") for grant in await desk.session.grants())


@pytest.mark.rule("BCK-6", "DSP-3")
@pytest.mark.parametrize("verdict", [True, "allow", RuleVerdict(action="maybe", rule="x")])  # type: ignore[arg-type]
async def test_what_is_no_verdict(verdict: Any) -> None:
    """An invalid verdict denies."""
    desk = Desk(lambda facts: verdict)
    assert "rules could not judge" in ((await desk.write(path="a")).reason or "")
    assert not desk.ran


@pytest.mark.rule("BCK-6", "DSP-3")
async def test_rules_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that raise or hang deny; async rules count like plain ones."""
    monkeypatch.setattr(rules_module, "RULES_TIMEOUT", 0.01)

    def broken(facts: ActionFacts) -> None:
        raise OSError("the file is gone")

    async def hanging(facts: ActionFacts) -> None:
        await asyncio.Event().wait()

    async def fine(facts: ActionFacts) -> RuleVerdict:
        return ALLOW_ALL

    assert "the file is gone" in ((await Desk(broken).write(path="a")).reason or "")
    assert (await Desk(hanging).write(path="a")).denied
    assert (await Desk(fine).write(path="a")).ok


@pytest.mark.rule("BCK-6", "AUD-3")
async def test_rule_that_cannot_be_recorded() -> None:
    """An act that a rule allows without a record does not run."""
    desk = Desk(lambda facts: ALLOW_ALL)
    desk.audit.error, desk.audit.only = OSError("full"), "approval.decided"
    assert (await desk.write(path="a")).by == "record"
    assert not desk.ran


@pytest.mark.rule("BCK-6")
async def test_event_of_a_host() -> None:
    """A host that emits `tool:pre` itself is under the same rules, and so are its own events and child sessions."""
    desk = Desk(lambda facts: DENY)
    assert (await desk.session.emit("PreToolUse", {"tool_name": "Write", "tool_input": {}})).denied
    assert (await desk.session.emit("my:own", {"x": 1})).denied
    assert (await desk.session.child("helper").call_tool("Write", {}, desk.ran.append)).by == "rule:no-prod"


@pytest.mark.rule("BCK-6")
async def test_events_under_rules() -> None:
    """Rules see every event that can be stopped but `approval:required`, with its payload and no identity fields."""
    desk = Desk(lambda facts: None, "Allow")
    desk.registry.on("approval:required", lambda event, data: HookResult(), name="watch")
    handle = object()
    await desk.session.emit("prompt:submit", {"prompt": "x", "handle": handle})
    await desk.session.emit("provider:request", {"tool_name": "Write", "model": "m"})
    for event in ("prompt:complete", "agent:stop", "tool:error"):
        await desk.session.emit(event, {})
    await desk.write(path="a")
    first, _, second, _, *others = desk.policy.judged
    assert (first.event, first.tool, dict(first.arguments)) == ("prompt:submit", "", {"prompt": "x", "handle": handle})
    assert (second.event, second.tool, dict(second.arguments)) == ("provider:request", "Write", {"model": "m"})
    assert [facts.event for facts in others] == ["tool:pre"] * 3  # as given, as left by the hooks, after the answer
    assert len(desk.approver.requests) == 1


@pytest.mark.rule("BCK-6")
async def test_input_that_is_no_object() -> None:
    """Rules see the input of a tool call that is no object, under its own name."""
    desk = Desk(lambda facts: None, asks=())
    await desk.session.emit("tool:pre", {"tool_name": "Write", "tool_input": "cat .env"})
    assert dict(desk.policy.judged[0].arguments) == {"tool_input": "cat .env"}


@pytest.mark.rule("BCK-6")
async def test_ask_where_no_question_can_be_asked() -> None:
    """An ask of the rules denies an event at which no question can be asked."""
    desk = Desk(lambda facts: RuleVerdict(action="ask", rule="r2"), "Allow", asks=())
    outcome = await desk.session.emit("context:pre_compact", {})
    assert (outcome.denied_by, desk.approver.requests) == ("rule:r2", [])


@pytest.mark.rule("APR-2", "BCK-6")
@pytest.mark.parametrize(("risk", "seen"), [(lambda *_: "low", "low"), (lambda *_: "none", "high"), (None, "medium")])
async def test_risk(risk: Any, seen: str) -> None:
    """The host's function gives the risk; an invalid value counts as high."""
    policy = Policy(lambda facts: None)
    await SessionCoordinator(rules=policy, risk=risk).call_tool("Write", {}, lambda _: None)
    assert {facts.risk for facts in policy.judged} == {seen}


@pytest.mark.rule("APR-2")
async def test_risk_that_fails() -> None:
    """A failure of the host's risk function makes the risk high."""
    policy = Policy(lambda facts: None)

    def broken(tool: str, arguments: Any) -> Any:
        raise KeyError(tool)

    await SessionCoordinator(rules=policy, risk=broken).call_tool("Write", {}, lambda _: None)
    assert policy.judged[0].risk == "high"


@pytest.mark.rule("BCK-6", "BCK-9", "DSP-11")
@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("report_only", [False, True])
async def test_rules_that_end_the_process(*, kind: type[BaseException], waits: bool, report_only: bool) -> None:
    """Rules that raise an exit or a cancellation have failed: the call is denied, and runs if they only report."""

    def end(facts: ActionFacts) -> Any:
        raise kind

    async def end_later(facts: ActionFacts) -> Any:
        raise kind

    desk = Desk(end_later if waits else end, asks=())
    desk.policy.report_only = report_only  # type: ignore[attr-defined]  # as any policy may have it
    assert ((await desk.write(path="a")).denied, len(desk.ran)) == (not report_only, int(report_only))
