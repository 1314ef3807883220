"""The risk of a question: hooks, rules and the host give one, and the highest counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.admission import approval_request
from amplifier_hooks.approvals import act_of
from amplifier_hooks.errors import HookAbortError, InvalidRegistration
from amplifier_hooks.ports import Decision, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ActionFacts, ApprovalRequest
    from amplifier_hooks.result import Risk

LASTING = ["Allow once", "Allow always", "Deny"]


class Policy:
    """Rules that say the same to every call; keeps what it was asked about."""

    def __init__(self, verdict: RuleVerdict | None) -> None:
        self.verdict = verdict
        self.judged: list[ActionFacts] = []

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """The verdict."""
        self.judged.append(facts)
        return self.verdict


class Desk:
    """A session with gates that give scripted answers, and its requests."""

    def __init__(self, *script: Any, verdict: RuleVerdict | None = None, **options: Any) -> None:
        self.approver, self.audit, self.policy = ScriptedApprover(*script), CollectingAudit(), Policy(verdict)
        self.registry, self.ran = HookRegistry(), list[Any]()
        self.session = SessionCoordinator(
            self.registry,
            session_id="s1",
            approvals=self.approver,
            audit=self.audit,
            rules=self.policy,
            cwd="/w",
            **options,
        )

    def gate(self, name: str, answer: HookResult, **options: Any) -> None:
        """Register a gate that always gives this answer."""
        self.registry.gate("tool:pre", lambda event, data: answer, name=name, **options)

    async def write(self, **given: Any) -> bool:
        """Call the tool; True if it ran."""
        return (await self.session.call_tool("Write", given, self.ran.append)).ok

    @property
    def request(self) -> ApprovalRequest:
        """The last request."""
        return self.approver.requests[-1]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """The reasons for the risk of the last request."""
        return [(one.by, one.reason) for one in self.request.risk_reasons]


ASK = HookResult.ask("Really?", options=LASTING)


@pytest.mark.rule("APR-13", "RES-9", "RES-4")
async def test_the_highest_counts() -> None:
    """Of all that hooks and rules say the highest risk counts, with every reason for it; the record has the rest."""
    desk = Desk("Deny", verdict=RuleVerdict(action="ask", rule="r", risk="high", risk_reason="it cannot be undone"))
    desk.gate("a", HookResult.ask("Send it?", risk="high", risk_reason="a new host"))
    desk.gate("b", HookResult.proceed(risk="medium", risk_reason="a large file"))
    desk.gate("c", HookResult.ask("Sure?", risk="high"))
    desk.gate("d", HookResult.inject("careful", risk="high", risk_reason="it holds a secret"))
    assert not await desk.write(path="a")
    assert desk.request.risk == "high"
    assert desk.reasons == [("a", "a new host"), ("d", "it holds a secret"), ("rule:r", "it cannot be undone")]
    (requested,) = desk.audit.facts("approval.requested")
    assert {(one["by"], one["risk"], one["reason"]) for one in requested["assessments"]} == {
        ("a", "high", "a new host"),
        ("b", "medium", "a large file"),
        ("c", "high", ""),
        ("d", "high", "it holds a secret"),
        ("rule:r", "high", "it cannot be undone"),
    }
    outcome = next(facts for facts in desk.audit.facts("outcome") if facts["event"] == "tool:pre")
    assert outcome["answers"][1]["assessments"] == [{"risk": "medium", "reason": "a large file"}]


@pytest.mark.rule("APR-13")
@pytest.mark.fault("F-APR-25")
@pytest.mark.parametrize(
    ("host", "asking", "another", "risk"),
    [
        (None, None, None, "medium"),
        (None, "low", None, "low"),
        (None, "high", "low", "high"),
        (None, None, "low", "medium"),  # it cannot call the question of another harmless
        (None, "low", "high", "high"),
        ("low", None, None, "low"),
        ("low", None, "medium", "medium"),
        ("high", "low", "low", "high"),
    ],
)
async def test_who_says_nothing(host: Risk | None, asking: Risk | None, another: Risk | None, risk: Risk) -> None:
    """A question without a risk is medium where the host gives none, and no other hook makes it less."""
    desk = Desk("Deny", risk=None if host is None else lambda tool, arguments: host)
    desk.gate("guard", HookResult.ask("Really?", risk=asking))
    desk.gate("plugin", HookResult.proceed(risk=another))
    assert not await desk.write(path="a")
    assert desk.request.risk == risk


@pytest.mark.rule("APR-13")
@pytest.mark.parametrize("answer", ["severe", None, 3, ["high"], ValueError("no idea")])
async def test_a_host_that_cannot_say(answer: Any) -> None:
    """Where the host's function raises, or returns what is no risk, the risk is high, and the reason says so."""

    def risk(tool: str, arguments: Mapping[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    desk = Desk("Deny", risk=risk)
    desk.gate("guard", ASK)
    assert not await desk.write(path="a")
    assert desk.request.risk == "high"
    ((by, reason),) = desk.reasons
    assert (by, reason.partition(":")[0]) == ("host", "The host could not say how high the risk is")


@pytest.mark.rule("APR-13", "RES-9")
async def test_a_risk_by_registration() -> None:
    """A registration gives the risk of what its hook asks, and of nothing else; the hook's answer can only raise it."""
    desk = Desk(*["Deny"] * 3)
    desk.gate("egress", HookResult.ask("Send?", risk="low", risk_reason="ours"), risk="high", risk_reason="it leaves")
    desk.gate("quiet", HookResult.proceed(), risk="high", risk_reason="it never asks")
    await desk.write(path="a")
    assert (desk.request.risk, desk.reasons) == ("high", [("egress", "it leaves")])
    desk.registry.unregister("egress")
    desk.gate("egress", HookResult.ask("Send?", risk="high", risk_reason="a new host"), risk="high", risk_reason="out")
    await desk.write(path="b")
    assert desk.reasons == [("egress", "out"), ("egress", "a new host")]
    desk.registry.unregister("egress")
    desk.gate("egress", ASK, risk="low")
    await desk.write(path="c")
    assert (desk.request.risk, desk.reasons) == ("low", [])


@pytest.mark.rule("REG-1", "RES-9")
@pytest.mark.parametrize(
    ("intent", "options", "said"),
    [
        ("gate", {"risk": "hihg"}, "guard: risk 'hihg': did you mean 'high'?"),
        ("gate", {"risk_reason": "why"}, "guard: risk_reason without risk: name the risk it is for"),
        ("on", {"risk": "high", "risk_reason": 7}, "guard: risk_reason 7: pass a str"),
        ("on", {"risk": "high", "risk_reason": "x" * 2_049}, "guard: risk_reason of 2,049 bytes: say it in 2,048"),
        ("observe", {"risk": "high"}, "guard: risk is that of a question, and observe asks none; use gate or on"),
        ("around", {"risk": "high"}, "guard: risk is that of a question, and around asks none; use gate or on"),
    ],
)
def test_a_registration_that_makes_no_sense(intent: str, options: dict[str, Any], said: str) -> None:
    """A risk that is none, or whose hook cannot ask, is refused when the hook is registered."""

    async def handler(*arguments: Any) -> None:
        """Never called."""

    event = "tool" if intent == "around" else "tool:pre"
    with pytest.raises(InvalidRegistration) as refused:
        getattr(HookRegistry(), intent)(event, handler, name="guard", **options)
    assert str(refused.value).startswith(said)


@pytest.mark.rule("DSP-2", "APR-13")
async def test_a_second_look() -> None:
    """A gate that looks again at changed input may raise the risk without asking."""
    desk = Desk("Deny")

    def grade(event: str, data: Mapping[str, Any]) -> HookResult:
        new = data["tool_input"]["path"] == "b"
        return HookResult.proceed(risk="high", risk_reason="b") if new else HookResult.proceed(risk="low")

    desk.registry.gate("tool:pre", grade, name="grade", priority=-1)
    desk.registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"path": "b"}}), name="change")
    desk.gate("guard", ASK, priority=1)
    assert not await desk.write(path="a")
    assert (desk.request.risk, desk.reasons) == ("high", [("grade", "b")])


@pytest.mark.rule("APR-13", "BCK-6")
async def test_what_rules_judge_by() -> None:
    """Rules judge by the host's risk before the hooks, and by the highest of the host's and theirs after them."""
    desk = Desk("Deny", risk=lambda tool, arguments: "low")
    desk.gate("guard", HookResult.ask("Really?", risk="high"))
    await desk.write(path="a")
    assert [facts.risk for facts in desk.policy.judged] == ["low", "high"]


@pytest.mark.rule("APR-13", "BCK-6")
async def test_a_verdict_without_such_a_risk() -> None:
    """A verdict with a risk that there is not denies, like every other that is none."""
    desk = Desk(verdict=RuleVerdict(action="ask", rule="r", risk="severe"))  # type: ignore[arg-type]
    assert not await desk.write(path="a")
    assert (desk.approver.requests, desk.ran) == ([], [])


@pytest.mark.rule("APR-13", "APR-5")
@pytest.mark.fault("F-APR-26")
async def test_no_grant_allows_high_risk() -> None:
    """An "always" given when less was at stake does not answer a question of high risk; it goes on answering others."""
    desk = Desk("Allow always", "Deny", "Allow once", "Deny")

    def guard(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.ask("Write it?", options=LASTING, risk=data["tool_input"]["risk"])

    desk.registry.gate("tool:pre", guard, name="guard")
    ran = [await desk.write(risk=risk) for risk in ("medium", "high", "low", "high", "high")]
    assert ran == [True, False, True, True, False]
    assert [request.risk for request in desk.approver.requests] == ["medium", "high", "high", "high"]


@pytest.mark.rule("APR-13", "APR-10")
async def test_events_have_the_reasons() -> None:
    """Hooks at the approval events are told the risk and every reason for it."""
    desk = Desk("Deny")
    desk.gate("guard", HookResult.ask("Really?", risk="high", risk_reason="a new host"))
    told: list[Any] = []
    desk.registry.observe("approval:*", lambda event, data, outcome: told.append((data["risk"], data["risk_reasons"])))
    await desk.write(path="a")
    assert told == [("high", [{"by": "guard", "reason": "a new host"}])] * 2


@pytest.mark.rule("APR-2", "IMP-1")
@pytest.mark.parametrize(
    ("tool", "given", "impacts"),
    [
        ("Write", {"file_path": "a/../b.txt"}, [("writes_tree", "/w/b.txt")]),
        ("Bash", {"command": "cat x && git push origin main"}, [("reads", "/w/x"), ("git_publishes", "origin main")]),
        ("Bash", {}, [("unreadable", "")]),
    ],
)
async def test_a_request_has_the_impacts(tool: str, given: dict[str, Any], impacts: list[tuple[str, str]]) -> None:
    """A request, its events and its record have everything that the call would do; its digest is that of the act."""
    desk = Desk("Deny")
    desk.gate("a", ASK)
    told: list[Any] = []
    desk.registry.observe("approval:required", lambda event, data, outcome: told.extend(data["impacts"]))
    await desk.session.call_tool(tool, given, desk.ran.append)
    assert [(one.kind, one.place) for one in desk.request.impacts] == impacts
    assert [(one["kind"], one["place"]) for one in told] == impacts
    assert desk.audit.facts("approval.requested")[0]["impacts"] == told
    assert desk.request.digest == act_of(desk.request).digest


@pytest.mark.rule("APR-2")
@pytest.mark.parametrize(
    ("folder", "path", "impact"),
    [
        ("/w/sub", "a.py", ("writes_tree", "/w/sub/a.py")),
        ("/w/sub", "../../a.py", ("writes_outside", "/a.py")),
        ("/opt", "a.py", ("writes_outside", "/opt/a.py")),
    ],
)
async def test_impacts_are_those_in_the_folder_of_the_call(folder: str, path: str, impact: tuple[str, str]) -> None:
    """Paths of a call are resolved in its own folder, and the session's root says which of them are the project's."""
    desk = Desk("Deny")
    desk.gate("guard", ASK)
    await desk.session.call_tool("Write", {"file_path": path, "content": ""}, desk.ran.append, cwd=folder)
    assert [(one.kind, one.place) for one in desk.request.impacts] == [impact]


@pytest.mark.rule("APR-2")
async def test_an_analysis_that_takes_too_long_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose analysis does not end in time is asked about as one that cannot be read."""
    monkeypatch.setattr(approval_request, "ANALYSIS_TIMEOUT", 0)
    desk = Desk("Allow once")
    desk.gate("a", ASK)
    assert await desk.write(file_path="b.txt")
    assert [(one.kind, one.reason) for one in desk.request.impacts] == [
        ("unreadable", "the file system does not answer")
    ]


@pytest.mark.rule("APR-2")
async def test_an_operation_has_no_impact() -> None:
    """A question about an act that is no tool call has no impacts."""
    desk = Desk("Deny")
    desk.registry.gate("memory:pre", lambda event, data: ASK, name="a")
    with pytest.raises(HookAbortError):
        await desk.session.operation("memory", {"content": "x"}, desk.ran.append)
    assert desk.request.impacts == ()


@pytest.mark.rule("APR-13", "APR-7")
async def test_an_edit_that_is_asked_about_keeps_the_risk() -> None:
    """Where an edit is put to the approver once more, with the question of before, the risk is not less than it was."""

    async def edits(request: ApprovalRequest) -> Decision:
        allow = next(option.id for option in request.options if option.allows)
        return Decision(option=allow, by="Robin", channel="script", arguments={"path": "c"})

    desk = Desk(edits, "Deny")

    def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        asks = data["tool_input"]["path"] == "b"
        return HookResult.ask("Really?", risk="high", risk_reason="b is new") if asks else None

    def absolute(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.modify({"tool_input": {"path": "/c"}}) if data["tool_input"]["path"] == "c" else None

    desk.registry.gate("tool:pre", guard, name="guard")
    desk.registry.on("tool:pre", absolute, name="absolute", priority=-1)
    assert not await desk.write(path="b")
    assert [(one.arguments, one.risk) for one in desk.approver.requests] == [
        ({"path": "b"}, "high"),
        ({"path": "/c"}, "high"),
    ]
