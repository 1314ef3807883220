"""The host's rules at a tool call, and self-protection: denials, questions and answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SelfProtection, SessionCoordinator
from amplifier_hooks.admission import rules as rules_module
from amplifier_hooks.errors import HookAbortError
from amplifier_hooks.ports import ActionFacts, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    assert all(facts.cwd == facts.root for facts in desk.policy.judged)


@pytest.mark.rule("BCK-6")
async def test_the_name_of_an_operation() -> None:
    """At an operation the tool is the name of the agent or step: a rule about one of them denies no other."""
    desk = Desk(lambda facts: DENY if facts.tool in ("deploy/prod", "ops") else None, asks=())
    assert (await desk.session.run_step("deploy", "prod", {}, desk.ran.append)).status == "failed"
    with pytest.raises(HookAbortError):
        await desk.session.invoke_agent("ops", {}, lambda inputs, _prompt: desk.ran.append(inputs))
    assert desk.ran == []
    assert (await desk.session.run_step("deploy", "test", {}, desk.ran.append)).status == "completed"


@pytest.mark.rule("BCK-6")
async def test_a_field_that_a_hook_adds() -> None:
    """The rules look at an event as hooks left it, with the fields that hooks have added to it."""
    desk = Desk(lambda facts: DENY if "file" in facts.arguments else None)
    assert not (await desk.session.emit("prompt:submit", {"prompt": "x"})).denied
    desk.registry.on("prompt:submit", lambda event, data: HookResult.modify({"file": ".env"}), name="adds")
    assert (await desk.session.emit("prompt:submit", {"prompt": "x"})).denied


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


class AllowAll:
    """Rules that allow everything."""

    digest = "all"
    report_only = False

    def judge(self, facts: ActionFacts) -> RuleVerdict:
        """Allow."""
        return RuleVerdict(action="allow", rule="all", answers=("*",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a file of hooks and a folder below it."""
    (tmp_path / "amplifier-hooks.yaml").write_text("version: 1\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


async def call(session: SessionCoordinator, tool: str, given: dict[str, Any], **options: Any) -> Any:
    """Call a tool."""
    return await session.call_tool(tool, given, lambda given: "RAN", **options)


@pytest.mark.rule("SLF-1")
@pytest.mark.parametrize("folder", [".", "sub"])
async def test_the_file_of_hooks_is_denied_from_every_folder(project: Path, folder: str) -> None:
    """A write to the file of hooks is denied wherever the session runs, and the denial names file and reason."""
    path = project / "amplifier-hooks.yaml"
    async with SessionCoordinator(cwd=project / folder, self_protection=SelfProtection()) as session:
        outcome = await call(session, "Write", {"file_path": str(path), "content": ""})
        assert (outcome.status, outcome.by, outcome.cause) == ("denied", "rule:self-protection", "denied_by_rule")
        assert str(path) in outcome.reason
        assert "an operator does that" in outcome.reason
        assert (await call(session, "Read", {"file_path": str(path)})).status == "ok"


@pytest.mark.rule("SLF-1")
async def test_neither_a_rule_nor_a_person_allows_it(project: Path) -> None:
    """No rule and no person allows a protected call, and no person is asked about it."""
    registry, person = HookRegistry(), ScriptedApprover("Allow")
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?"))
    async with SessionCoordinator(
        registry, cwd=project, approvals=person, rules=AllowAll(), self_protection=SelfProtection()
    ) as session:
        outcome = await call(session, "Bash", {"command": "amplifier-hooks validate --trust"})
    assert (outcome.status, person.requests) == ("denied", [])


@pytest.mark.rule("SLF-1")
async def test_report_only_rules_leave_it_in_force(project: Path) -> None:
    """Rules that stop nothing do not make the self-protection beside them stop nothing."""
    rules = AllowAll()
    rules.report_only = True
    async with SessionCoordinator(cwd=project, rules=rules, self_protection=SelfProtection()) as session:
        assert (await call(session, "Write", {"file_path": "amplifier-hooks.yaml"})).denied


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("protection", [None, SelfProtection()])
@pytest.mark.parametrize("event", ["tool:pre", "prompt:submit"])
async def test_report_only_rules_report_beside_others(event: str, protection: SelfProtection | None) -> None:
    """Report-only rules have their verdict on record at every event, also while other rules are in force."""
    policy, audit = Policy(lambda facts: DENY), CollectingAudit()
    policy.report_only = True  # type: ignore[attr-defined]  # as any policy may have it
    async with SessionCoordinator(rules=policy, self_protection=protection, audit=audit) as session:
        outcome = await session.emit(event, {"tool_name": "Write", "tool_input": {"path": "a"}, "prompt": "Go"})
    assert not outcome.denied
    told = [facts for facts in audit.facts("rules.reported") if facts["event"] == event]
    assert [facts["hook"] for facts in told] == ["rule:no-prod"]


@pytest.mark.rule("SLF-1")
async def test_paths_of_the_embedder(project: Path) -> None:
    """An embedder protects paths of its own, also those that are named later, and links to them."""
    (project / "rules").mkdir()
    (project / "link").symlink_to(project / "rules")
    later: list[Path] = []
    protection = SelfProtection(paths=(project / "link",), more=lambda: later)
    async with SessionCoordinator(cwd=project, self_protection=protection) as session:
        assert (await call(session, "Write", {"file_path": "rules/a.py"})).denied
        assert (await call(session, "Write", {"file_path": "sub/guard.py"})).status == "ok"
        later.append(project / "sub" / "guard.py")
        assert (await call(session, "Write", {"file_path": "sub/guard.py"})).denied
        assert (await call(session, "Write", {"file_path": "guard.py"}, cwd=project / "sub")).denied
        assert (await call(session, "Bash", {"command": "touch *"}, cwd=project / "sub")).denied
    given = {"file_path": "rules/a.py"}  # of a call without a folder
    facts = ActionFacts(tool="Write", arguments=given, event="tool:pre", session="s", tenant="", root=str(project))
    assert protection.judge(facts) is not None


@pytest.mark.rule("SLF-1")
async def test_an_event_that_the_host_emits_is_protected(project: Path) -> None:
    """A host that emits `tool:pre` itself gets the denial as the outcome."""
    async with SessionCoordinator(cwd=project, self_protection=SelfProtection()) as session:
        given = {"tool_name": "Write", "tool_input": {"file_path": ".claude/settings.json"}}
        assert (await session.emit("tool:pre", given)).denied


@pytest.mark.rule("SLF-1")
async def test_middleware_cannot_turn_to_a_protected_path(project: Path) -> None:
    """A change that middleware makes after the permit is looked at again."""
    registry = HookRegistry()
    ran: list[Any] = []

    async def layer(context: Any, call_next: Any) -> Any:
        context.arguments = {"file_path": "amplifier-hooks.yaml"}
        return await call_next()

    registry.around("tool", layer)
    async with SessionCoordinator(registry, cwd=project, self_protection=SelfProtection()) as session:
        await session.call_tool("Write", {"file_path": "a"}, ran.append)
    assert {"file_path": "amplifier-hooks.yaml"} not in ran


@pytest.mark.rule("SLF-2")
async def test_off_by_default_in_the_library(project: Path) -> None:
    """A session without the option denies nothing for it, and consults no rules."""
    audit = CollectingAudit()
    async with SessionCoordinator(cwd=project, audit=audit) as session:
        assert (await call(session, "Write", {"file_path": "amplifier-hooks.yaml"})).status == "ok"
        assert session._session.rules is None
    assert "self_protection.off" not in audit.kinds


@pytest.mark.rule("SLF-2")
async def test_switching_it_off_is_on_record(project: Path) -> None:
    """A session whose operator switched it off says so on its record, and so does a child that leaves it out."""
    audit = CollectingAudit()
    off = SelfProtection(off="--no-self-protection")
    async with SessionCoordinator(cwd=project, audit=audit, self_protection=off) as session:
        assert (await call(session, "Write", {"file_path": "amplifier-hooks.yaml"})).status == "ok"
    assert [one["reason"] for one in audit.facts("self_protection.off")] == ["--no-self-protection"]
    audit = CollectingAudit()
    async with SessionCoordinator(cwd=project, audit=audit, self_protection=SelfProtection()) as session:
        async with session.child("helper") as child:
            assert (await call(child, "Write", {"file_path": "amplifier-hooks.yaml"})).denied
        async with session.child("helper", self_protection=None) as child:
            assert (await call(child, "Write", {"file_path": "amplifier-hooks.yaml"})).status == "ok"
    assert [one["reason"] for one in audit.facts("self_protection.off")] == ["its parent left it out"]
