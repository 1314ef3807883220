"""Approvals in a session: grants, edited arguments, events, and hooks, which cannot grant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import ApprovalTimeout, HookAbortError, InvalidLimit
from amplifier_hooks.ports import ApprovalRequest, Decision, RuleVerdict
from amplifier_hooks.testing import HANG, CollectingAudit, ManualClock, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks import ToolOutcome

LASTING = ["Allow once", "Allow always", "Deny", "Never"]


def edits(**arguments: Any) -> Callable[[ApprovalRequest], Awaitable[Decision]]:
    """Allow, with these arguments instead."""

    async def answer(request: ApprovalRequest) -> Decision:
        chosen = next(option.id for option in request.options if option.allows)
        return Decision(option=chosen, by="Robin", channel="script", arguments=arguments)

    return answer


def says(label: str, message: str) -> Callable[[ApprovalRequest], Awaitable[Decision]]:
    """Choose this, and say something."""

    async def answer(request: ApprovalRequest) -> Decision:
        chosen = next(option.id for option in request.options if option.label == label)
        return Decision(option=chosen, by="Robin", channel="script", message=message, id="d1")

    return answer


class Desk:
    """A session whose gate asks about every call, with everything around it in reach."""

    def __init__(self, *script: Any, registry: HookRegistry | None = None, **options: Any) -> None:
        self.approver, self.audit, self.clock = ScriptedApprover(*script), CollectingAudit(), ManualClock()
        self.registry, self.ran = registry or HookRegistry(), list[Any]()
        if registry is None:
            self.registry.gate("tool:pre", self.ask, name="guard")
        given: dict[str, Any] = {
            "approvals": self.approver,
            "audit": self.audit,
            "clock": self.clock,
            "tenant": "acme",
            "cwd": "/w",
        }
        self.session = SessionCoordinator(self.registry, session_id="s1", **(given | options))
        self.asks: dict[str, Any] = {"options": LASTING}

    def ask(self, event: str, data: Any) -> HookResult:
        """Ask about it."""
        return HookResult.ask("Really?", **self.asks)

    async def write(self, tool: str = "Write", **given: Any) -> ToolOutcome[Any]:
        """Call a tool, and note what it ran with."""
        return await self.session.call_tool(tool, given, self.ran.append)

    @property
    def asked(self) -> int:
        """Number of requests to the approver."""
        return len(self.approver.requests)


# -- grants ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("APR-5")
async def test_allowed_for_good() -> None:
    """An act allowed for good is not asked about again in this session; the record of the grant names the approver."""
    desk = Desk("Allow always")
    assert [(await desk.write(path=path)).ok for path in ("a", "b")] == [True, True]
    assert desk.asked == 1
    (grant,) = await desk.session.grants()
    asked, granted = desk.audit.facts("approval.decided")
    assert (granted["by"], granted["channel"], granted["grants"]) == ("Robin", "grant", [grant.id])
    assert (asked["option"], asked["option_kind"]) == ("Allow always", "allow_always")
    assert desk.approver.step_names == ["request", "claim", "settle"]
    assert (grant.by, grant.allows, grant.key.cwd, grant.key.scope) == ("Robin", True, "/w", "prompt:Really?")


@pytest.mark.rule("APR-5", "APR-7")
async def test_which_grant_it_was() -> None:
    """The record names the grant that covers the call, and no other of the session."""
    desk = Desk("Allow always", "Allow always")
    assert [(await desk.write(tool)).ok for tool in ("Read", "Write", "Write")] == [True] * 3
    read, write = await desk.session.grants()
    assert (read.key.tool, write.key.tool) == ("Read", "Write")
    assert desk.audit.facts("approval.decided")[-1]["grants"] == [write.id]


@pytest.mark.rule("APR-5")
async def test_denied_for_good() -> None:
    """An act denied for good stays denied without a question."""
    desk = Desk("Never")
    assert [(await desk.write(path=path)).reason for path in ("a", "b")] == [
        "Operation denied by guard: User denied: Really?"
    ] * 2
    assert (desk.asked, desk.ran) == (1, [])


@pytest.mark.rule("APR-5")
async def test_revoked() -> None:
    """A grant that was revoked is asked about again; revoking another one, or twice, does nothing."""
    desk = Desk("Allow always", "Deny")
    await desk.write()
    (grant,) = await desk.session.grants()
    assert [await desk.session.revoke(name) for name in ("nothing", grant.id, grant.id)] == [False, True, False]
    assert not (await desk.write()).ok
    assert [facts["revoked"] for facts in desk.audit.facts("approval.revoked")] == [False, True, False]


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-14")
@pytest.mark.parametrize(
    ("asks", "again"),
    [({"scope": "action"}, True), ({"approval_key": "k"}, False), ({}, False)],
    ids=["action", "key", "prompt"],
)
async def test_scope(asks: dict[str, Any], again: bool) -> None:
    """A grant for this very action, given for a call without arguments, does not cover one with arguments."""
    desk = Desk("Allow always", "Deny")
    desk.asks |= asks
    assert (await desk.write("Read")).ok
    assert (await desk.write("Read", path="a")).ok is not again
    assert (await desk.write("Read")).ok


@pytest.mark.rule("APR-5")
async def test_no_impact_beyond_those_named() -> None:
    """A grant covers the same question about a call only if the call has no impact beyond those its card named."""
    desk = Desk("Allow always", "Deny", "Deny")
    assert [(await desk.write(path=path)).ok for path in ("a", "b", ".git/config", "/etc/hosts", "c")] == [
        *(True, True, False, False, True)
    ]


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-15")
async def test_what_a_grant_does_not_cover() -> None:
    """Another tool, another session, a child's session and a new version of the hook are asked about anew."""
    desk = Desk("Allow always", "Deny", "Deny", "Deny", "Deny")
    assert (await desk.write()).ok
    assert not (await desk.write("Delete")).ok
    other = SessionCoordinator(desk.registry, session_id="s2", approvals=desk.approver, tenant="acme", cwd="/w")
    assert not (await other.call_tool("Write", {}, desk.ran.append)).ok
    assert not (await desk.session.child("helper").call_tool("Write", {}, desk.ran.append)).ok
    desk.registry.unregister("guard")
    desk.registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?", options=LASTING), name="guard")
    assert not (await desk.write()).ok
    assert (len(desk.ran), desk.asked) == (1, 5)


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-16")
async def test_standing_allow_and_a_denial() -> None:
    """Any denial beats a grant: of a hook that is added later, and of a rule."""
    rules: list[RuleVerdict | None] = [None]

    class Policy:
        def judge(self, facts: Any) -> RuleVerdict | None:
            return rules[0]

    desk = Desk("Allow always", rules=Policy())
    assert (await desk.write()).ok
    rules[0] = RuleVerdict(action="deny", rule="later")
    assert (await desk.write()).by == "rule:later"
    rules[0] = None
    undo = desk.registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="late", priority=9)
    assert (await desk.write()).by == "late"
    assert callable(undo)
    assert desk.asked == 1


@pytest.mark.rule("APR-5", "APR-1")
async def test_every_hook_has_to_be_covered() -> None:
    """With a second hook that asks, the grant for the first is not enough, and the request lists both questions."""
    desk = Desk("Allow always", "Deny")
    assert (await desk.write()).ok
    desk.registry.gate("tool:pre", lambda event, data: HookResult.ask("Sure?", options=LASTING), name="other")
    assert not (await desk.write()).ok
    assert [question.hook for question in desk.approver.requests[-1].questions] == ["guard", "other"]


@pytest.mark.rule("APR-5")
async def test_grants_end_with_their_session() -> None:
    """When the session is closed, nothing of it is granted any more."""
    desk = Desk("Allow always")
    async with desk.session:
        await desk.write()
        assert len(await desk.session.grants()) == 1
    assert await desk.session.grants() == []


class BrokenGrants:
    """A store of grants that is away."""

    async def _away(self, *_args: Any) -> Any:
        raise OSError("the store is away")

    standing = remember = granted = revoke_grant = end_grants = _away


@pytest.mark.rule("APR-5", "DSP-3")
async def test_grants_that_cannot_be_read() -> None:
    """When grants cannot be read a person is asked, and when they cannot be kept, asked again."""
    desk = Desk("Allow always", "Deny", grants=BrokenGrants())
    assert (await desk.write()).ok
    assert not (await desk.write()).ok
    await desk.session.close()


# -- edited arguments --------------------------------------------------------------------------------------------------


@pytest.mark.rule("APR-7", "COO-4")
@pytest.mark.fault("F-APR-12")
async def test_edited_arguments() -> None:
    """The tool runs with the approver's arguments, after the gates saw them; their digest is claimed."""
    desk = Desk(edits(path="safe"))
    seen: list[Any] = []
    desk.registry.gate("tool:pre", lambda event, data: seen.append(data["tool_input"]), name="looks")
    assert (await desk.write(path="danger")).ok
    assert (desk.ran, seen) == ([{"path": "safe"}], [{"path": "danger"}, {"path": "safe"}])
    (decided,), (running,) = desk.audit.facts("approval.decided"), desk.audit.facts("tool.running")
    assert decided["edited"] == running["digest"] != decided["digest"]
    assert desk.approver.step_names == ["request", "claim", "settle"]


@pytest.mark.rule("APR-7", "BCK-6")
@pytest.mark.fault("F-APR-12")
@pytest.mark.parametrize("by", ["guard2", "rule:r"])
async def test_edits_that_are_denied(by: str) -> None:
    """A gate or a rule that denies an agent denies the approver's arguments, too; the approval is void."""

    class Policy:
        def judge(self, facts: Any) -> RuleVerdict | None:
            bad = by == "rule:r" and facts.arguments.get("path") == "prod"
            return RuleVerdict(action="deny", rule="r") if bad else None

    desk = Desk(edits(path="prod"), rules=Policy())

    @desk.registry.gate("tool:pre", name="guard2")
    def guard2(event: str, data: Any) -> HookResult | None:
        return HookResult.deny("no") if by == "guard2" and data["tool_input"]["path"] == "prod" else None

    assert (await desk.write(path="a")).by == by
    assert desk.ran == []
    assert desk.approver.step_names == ["request", "withdraw"]


@pytest.mark.rule("APR-7")
@pytest.mark.fault("F-APR-12")
async def test_edits_that_are_asked_about() -> None:
    """A question without an answer so far is put to the approver about the edited arguments, and both are claimed."""
    desk = Desk(edits(path="prod"), "Allow once")

    @desk.registry.gate("tool:pre", name="guard2")
    def guard2(event: str, data: Any) -> HookResult | None:
        return HookResult.ask("In production?", options=LASTING) if data["tool_input"]["path"] == "prod" else None

    assert (await desk.write(path="a")).ok
    first, second = desk.approver.requests
    assert (second.arguments, second.prompt) == ({"path": "prod"}, "In production?")
    assert first.id != second.id
    assert desk.approver.step_names == ["request", "request", "claim", "claim", "settle", "settle"]


@pytest.mark.rule("APR-7", "COO-4")
@pytest.mark.fault("F-APR-13")
async def test_edits_that_a_hook_changes() -> None:
    """A hook's change of the approver's arguments is asked about again, because it is not approved."""
    desk = Desk(edits(path="a"), "Allow once")

    @desk.registry.on("tool:pre", priority=-1)
    def absolute(event: str, data: Any) -> HookResult | None:
        path = data["tool_input"]["path"]
        return None if path.startswith("/") else HookResult.modify({"tool_input": {"path": f"/{path}"}})

    assert (await desk.write(path="b")).ok
    assert [request.arguments for request in desk.approver.requests] == [{"path": "/b"}, {"path": "/a"}]
    assert desk.ran == [{"path": "/a"}]


@pytest.mark.rule("APR-7", "COO-4")
async def test_edits_that_a_hook_changes_to_what_another_asks_about() -> None:
    """A gate that looks once asks its own question about what a hook made of the approver's arguments."""
    desk = Desk(edits(path="a"), "Allow once")

    @desk.registry.on("tool:pre", priority=-2)
    def absolute(event: str, data: Any) -> HookResult | None:
        return HookResult.modify({"tool_input": {"path": "/a"}}) if data["tool_input"]["path"] == "a" else None

    @desk.registry.gate("tool:pre", name="guard2", recheck=False)
    def guard2(event: str, data: Any) -> HookResult | None:
        return HookResult.ask("In the root?", options=LASTING) if data["tool_input"]["path"] == "/a" else None

    assert (await desk.write(path="b")).ok
    asked = [[question.hook for question in request.questions] for request in desk.approver.requests]
    assert asked == [["guard"], ["guard", "guard2"]]


@pytest.mark.rule("APR-7", "COO-4")
@pytest.mark.fault("F-APR-13")
async def test_edits_that_a_hook_changes_and_nobody_asks_about() -> None:
    """Also where no gate asks any more, what a hook makes of the approver's arguments is put to the approver."""
    registry = HookRegistry()
    desk = Desk(edits(path="a"), "Deny", registry=registry)

    @registry.gate("tool:pre", name="guard")
    def guard(event: str, data: Any) -> HookResult | None:
        return HookResult.ask("Really?", options=LASTING) if data["tool_input"]["path"] == "b" else None

    @registry.on("tool:pre", priority=-1)
    def absolute(event: str, data: Any) -> HookResult | None:
        return HookResult.modify({"tool_input": {"path": "/a"}}) if data["tool_input"]["path"] == "a" else None

    assert not (await desk.write(path="b")).ok
    assert [request.arguments for request in desk.approver.requests] == [{"path": "b"}, {"path": "/a"}]
    assert [request.prompt for request in desk.approver.requests] == ["Really?"] * 2
    assert desk.ran == []


@pytest.mark.rule("APR-7")
async def test_edits_without_end() -> None:
    """After three rounds through the gates the call is denied."""
    desk = Desk(*[edits(path="a")] * 9)
    desk.registry.on(
        "tool:pre",
        lambda event, data: HookResult.modify({"tool_input": {"path": data["tool_input"]["path"] + "x"}}),
        priority=-1,
    )
    outcome = await desk.write(path="b")
    assert "edited 3 times" in (outcome.reason or "")
    assert (desk.asked, desk.ran) == (3, [])
    assert desk.approver.step_names == ["request", "withdraw"] * 3


@pytest.mark.rule("APR-7", "APR-6")
@pytest.mark.parametrize("arguments", [{"x": {1, 2}}, {"x": float("nan")}])
async def test_edits_that_are_no_json(arguments: Any) -> None:
    """Arguments that JSON cannot hold count as no answer."""
    desk = Desk(edits(**arguments))
    assert "not plain JSON" in ((await desk.write()).reason or "")
    assert desk.ran == []


@pytest.mark.rule("APR-7")
async def test_edits_elsewhere() -> None:
    """At an event that is no tool call nothing can be edited."""
    registry = HookRegistry()
    registry.gate("prompt:submit", lambda event, data: HookResult.ask("Really?"), name="guard")
    desk = Desk(edits(prompt="other"), registry=registry)
    outcome = await desk.session.emit("prompt:submit", {"prompt": "x"})
    assert outcome.denied
    assert "only acts can be changed" in (outcome.reason or "")


@pytest.mark.rule("APR-7")
async def test_an_edit_that_leaves_a_field_out() -> None:
    """An edit of an operation that leaves out one of its fields is denied, and its approval is not used up."""
    registry = HookRegistry()
    registry.gate("memory:pre", lambda event, data: HookResult.ask("Really?"), name="guard")
    desk = Desk(edits(content="other"), registry=registry)
    with pytest.raises(HookAbortError, match="leaves out a field") as denied:
        await desk.session.operation("memory", {"content": "tea", "key": "drink"}, desk.ran.append)
    assert (denied.value.cause, desk.ran) == ("approval_unavailable", [])
    assert desk.approver.step_names == ["request", "withdraw"]


# -- what is said, recorded and told -----------------------------------------------------------------------------------


@pytest.mark.rule("APR-7")
async def test_message_for_the_model() -> None:
    """The approver's message with a refusal is in the denial, escaped."""
    desk = Desk(says("Deny", "use staging\x1b[2J"))
    reason = (await desk.write()).reason or ""
    assert reason.startswith("Operation denied by guard: User denied: Really?\nRobin says: use staging")
    assert "\x1b" not in reason


@pytest.mark.rule("APR-7", "AUD-3")
async def test_what_is_recorded() -> None:
    """The record has the decider, the channel, the time, the duration, the option, and the message."""
    desk = Desk(says("Allow once", "fine"))
    request = asyncio.ensure_future(desk.write(path="a"))
    assert (await request).ok
    (facts,) = desk.audit.facts("approval.decided")
    assert {
        name: facts[name] for name in ("by", "channel", "option", "option_kind", "decision", "message", "took")
    } == {
        "by": "Robin",
        "channel": "script",
        "option": "Allow once",
        "option_kind": "allow_once",
        "decision": "d1",
        "message": "fine",
        "took": 0.0,
    }
    assert facts["request"] == desk.approver.requests[0].id
    kinds = desk.audit.kinds
    assert kinds.index("approval.requested") < kinds.index("approval.decided") < kinds.index("tool.running")


@pytest.mark.rule("APR-2", "APR-7")
async def test_how_long_it_took() -> None:
    """A clock that is set back while the approver thinks makes no duration negative."""
    taking = [12.5, -60.0]
    desk = Desk()

    async def slowly(request: ApprovalRequest) -> Decision:
        desk.clock.advance(taking.pop(0))
        return Decision(option=request.options[0].id, by="Robin", channel="x")

    desk.approver = ScriptedApprover(slowly, slowly)
    desk.session = SessionCoordinator(
        desk.registry, session_id="s1", approvals=desk.approver, audit=desk.audit, clock=desk.clock
    )
    await desk.write()
    await desk.write()
    assert [facts["took"] for facts in desk.audit.facts("approval.decided")] == [12.5, 0.0]


EVENTS = "approval:*"


@pytest.mark.rule("APR-10")
@pytest.mark.parametrize(
    ("answer", "last"),
    [
        ("Allow once", "approval:granted"),
        ("Deny", "approval:denied"),
        (ApprovalTimeout(), "approval:expired"),
        (RuntimeError("away"), "approval:denied"),
    ],
)
async def test_events(answer: Any, last: str) -> None:
    """Hooks get the question and its result, with all fields that the catalogue promises."""
    desk = Desk(answer)
    told: list[tuple[str, dict[str, Any]]] = []
    desk.registry.observe(EVENTS, lambda event, data, outcome: told.append((event, dict(data))))
    await desk.session.call_tool("Write", {"path": "a"}, desk.ran.append, call_id="c1")
    assert [event for event, _ in told] == ["approval:required", last]
    required, ended = (data for _, data in told)
    assert (required["approval_id"], required["tool_call_id"]) == (desk.approver.requests[0].id, "c1")
    assert (required["hook"], required["event"], required["tool_name"]) == ("guard", "tool:pre", "Write")
    assert (required["tool_input"], required["risk"], required["options"]) == ({"path": "a"}, "medium", LASTING)
    assert required["digest"] == ended["digest"]
    assert ended["decided_by"] == ("Robin" if isinstance(answer, str) else None)


@pytest.mark.rule("APR-10")
async def test_nobody_listens() -> None:
    """Where no hook listens, the events leave nothing on record."""
    desk = Desk("Allow once")
    await desk.write()
    events = [facts["event"] for facts in desk.audit.facts("outcome")]
    assert [event for event in events if event.startswith("approval:")] == []


@pytest.mark.rule("APR-10", "APR-9")
async def test_hook_says_no_before_anybody_is_asked() -> None:
    """A hook at approval:required may deny, and then no person is asked; it is the hook's denial."""
    desk = Desk()
    desk.registry.gate("approval:required", lambda event, data: HookResult.deny("out of hours"), name="hours")
    outcome = await desk.write()
    assert (outcome.by, outcome.reason) == ("hours", "Operation denied by hours: out of hours")
    assert (desk.asked, desk.ran) == (0, [])
    (facts,) = desk.audit.facts("approval.decided")
    assert (facts["status"], facts["by"]) == ("denied", "hours")


@pytest.mark.rule("APR-9", "APR-10")
@pytest.mark.parametrize(
    "answer",
    [
        HookResult.proceed(),
        HookResult.modify({"allowed": True, "options": ["Allow"], "digest": "x", "approval_id": "y"}),
        HookResult.ask("Shall I ask?", default="allow", timeout=0.01),
    ],
)
async def test_hook_cannot_say_yes(answer: HookResult) -> None:
    """Nothing a hook answers at approval:required allows anything, or changes what a person is asked."""
    desk = Desk("Deny")
    desk.registry.on("approval:required", lambda event, data: answer, name="eager")
    assert not (await desk.write(path="a")).ok
    (request,) = desk.approver.requests
    assert [option.label for option in request.options] == LASTING
    assert [question.prompt for question in request.questions] == ["Really?"]


# -- hooks cannot grant ------------------------------------------------------------------------------------------------

CUNNING: dict[str, Any] = {
    "approved": True,
    "approval_id": "x",
    "non_interactive": True,
    "skip_hooks": True,
    "__hook_ctx": {"approved": True},
    "approval_default": "allow",
    "rules": [{"action": "allow"}],
}


@pytest.mark.rule("APR-9")
@pytest.mark.fault("F-APR-11")
@pytest.mark.parametrize("given", [CUNNING, {"calls": [{"tool": "Write", "input": CUNNING}]}])
async def test_arguments_are_data(given: dict[str, Any]) -> None:
    """Arguments of any name are data: the call is asked about all the same, and the card shows them."""
    desk = Desk("Deny")
    assert not (await desk.write("Batch", **given)).ok
    assert desk.approver.requests[0].arguments == given


@pytest.mark.rule("APR-9")
@pytest.mark.parametrize("field", ["approval", "decision", "approved", "asks", "action", "tool_name", "session_id"])
async def test_hooks_only_ask(field: str) -> None:
    """A modification of whatever name answers no question."""
    desk = Desk("Deny")
    desk.registry.register("tool:pre", lambda event, data: HookResult.modify({field: "allow"}), priority=-1)
    assert not (await desk.write()).ok
    assert desk.ran == []


@pytest.mark.rule("APR-4", "APR-9", "TRU-1")
@pytest.mark.parametrize("who", ["plugin", "tenant", "definition", "host"])
async def test_default_of_others(who: str) -> None:
    """Silence allows only if every asking hook is the host's own; with any other hook it denies."""
    registry = HookRegistry()
    ask = lambda event, data: HookResult.ask("Really?", default="allow", timeout=0.01)  # noqa: E731
    if who == "plugin":
        registry.scope("thing").register("tool:pre", ask, name="guard")
    else:
        registry.register(
            "tool:pre",
            ask,
            name="guard",
            tenant="acme" if who == "tenant" else "",
            source="definition" if who == "definition" else "code",
        )
    desk = Desk(HANG, registry=registry)
    assert (await desk.write()).ok is (who == "host")


# -- how actions end ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("APR-8")
async def test_stopped_on_its_way() -> None:
    """A tool that was cancelled while it ran has an unknown result; one that had not begun has failed."""
    desk = Desk("Allow once", "Allow once")
    running = asyncio.Event()

    async def tool(given: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(desk.session.call_tool("Write", {}, tool))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    @desk.registry.around("tool")
    async def layer(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
        running.set()
        await asyncio.Event().wait()

    running.clear()
    task = asyncio.ensure_future(desk.session.call_tool("Write", {}, tool))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.approver.became == ["unknown", "failed"]


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-17")
async def test_same_question_twice() -> None:
    """Of two calls that are asked about in the same words only the one that was approved runs."""
    desk = Desk("Allow once", "Deny")
    outcomes = await asyncio.gather(desk.write(path="a"), desk.write(path="b"))
    assert [outcome.ok for outcome in outcomes] == [True, False]
    assert desk.ran == [{"path": "a"}]
    assert len({request.id for request in desk.approver.requests}) == 2


@pytest.mark.rule("APR-4")
@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf")])
def test_wait_that_makes_no_sense(wait: float) -> None:
    """A time to wait that is no time is refused where it is set."""
    with pytest.raises(InvalidLimit, match="approval_wait"):
        SessionCoordinator(approval_wait=wait)


@pytest.mark.rule("APR-4")
async def test_wait_without_a_durable_backend() -> None:
    """A question that no caller could come back to expires with the inline wait, and the card says so."""
    desk = Desk(HANG, approval_wait=0.01)
    outcome = await desk.write()
    assert (outcome.denied, outcome.pending) == (True, None)
    (request,) = desk.approver.requests
    assert (request.expires - request.created).total_seconds() == 0.01
    assert [facts["status"] for facts in desk.audit.facts("approval.decided")] == ["expired"]


@pytest.mark.rule("APR-4")
@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
async def test_clock_jumps_while_a_person_thinks(jump: float) -> None:
    """A clock that is set forward ends the question; one that is set back extends no wait."""
    desk = Desk()
    desk.asks = {"timeout": 0.05}

    async def jumping(request: ApprovalRequest) -> Decision:
        desk.clock.advance(jump)
        if jump < 0:
            await asyncio.Event().wait()
        return Decision(option=request.options[0].id, by="Robin", channel="x")

    approver = ScriptedApprover(jumping)
    session = SessionCoordinator(desk.registry, session_id="s1", approvals=approver, audit=desk.audit, clock=desk.clock)
    async with asyncio.timeout(60):
        assert not (await session.call_tool("Write", {}, desk.ran.append)).ok
    assert desk.ran == []
    assert desk.audit.facts("approval.decided")[0]["status"] == "expired"


@pytest.mark.rule("APR-4")
async def test_clock_put_back_before_anybody_is_asked() -> None:
    """A clock that is put back before the question is shown gives it no more than its own time."""
    desk = Desk(HANG)
    desk.asks = {"timeout": 0.05}
    desk.registry.on("approval:required", lambda event, data: desk.clock.advance(-86_400), name="jumps")
    async with asyncio.timeout(60):
        assert not (await desk.write()).ok
    assert [facts["status"] for facts in desk.audit.facts("approval.decided")] == ["expired"]
