"""Denials that one wrong condition on the path of an act would turn into a run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.act import Act, Call
from amplifier_hooks.admission.approval_request import request_id
from amplifier_hooks.errors import HookAbortError, StopInForce
from amplifier_hooks.ports import ActionFacts, Decision, Question, RuleVerdict, Stop
from amplifier_hooks.testing import HANG, CollectingAudit, ScriptedApprover
from approval_backends import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from amplifier_hooks import ToolOutcome


class BusyStore(ScriptedApprover):
    """An approver that lets something else happen while it claims."""

    def __init__(self, *answers: Any, meanwhile: Callable[[], object]) -> None:
        super().__init__(*answers)
        self.meanwhile = meanwhile

    async def claim(self, request_id: str, digest: str) -> bool:
        """Claim, once the other thing has happened."""
        self.meanwhile()
        return await super().claim(request_id, digest)


class Restless:
    """A gate that puts a hook more in force at each look, from `begin` on."""

    hook_version = "1"

    def __init__(self, hooks: HookRegistry, answer: HookResult | None, *, begun: bool) -> None:
        self.hooks, self.answer, self.begun, self.looks = hooks, answer, begun, 0

    def __call__(self, event: str, data: Any) -> HookResult | None:
        """Answer, and register a hook; far beyond any bound it stops."""
        self.looks += 1
        if self.begun and self.looks < 100:
            self.hooks.on("tool:pre", lambda event, data: None, name=f"further {self.looks}")
        return self.answer

    def begin(self) -> None:
        """Begin, with a hook of its own."""
        self.begun = True
        self.hooks.on("tool:pre", lambda event, data: None, name="first")


class ForgetfulStore(ScriptedApprover):
    """An approver that returns an allowance when a question is withdrawn, and then gives it out."""

    def __init__(self) -> None:
        super().__init__(HANG)
        self.going, self.go = asyncio.Event(), asyncio.Event()

    async def withdraw(self, request_id: str, reason: str) -> Decision:  # type: ignore[override]  # the fake above it returns nothing
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


ROBIN = Decider(name="Robin", channel="test")
DENY = RuleVerdict(action="deny", rule="no", reason="off limits")
ALLOW = RuleVerdict(action="allow", rule="fine", answers=("*",))


def ask() -> HookResult:
    """Return a question."""
    return HookResult.ask("Write?", options=["Allow", "Deny"])


def asking() -> HookRegistry:
    """Return a registry with one gate, which asks about every tool call."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: ask(), name="guard")
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


@pytest.mark.rule("COO-9", "APR-6")
@pytest.mark.parametrize("event", ["tool:pre", "prompt:submit"])
async def test_a_session_that_is_cancelled_during_the_claim(event: str) -> None:
    """A session that is cancelled while the store claims denies an act or event that a person has allowed."""

    class CancellingStore(ScriptedApprover):
        async def claim(self, request_id: str, digest: str) -> bool:
            await session.cancel("enough")
            return await super().claim(request_id, digest)

    registry = HookRegistry()
    registry.gate(event, lambda event, data: ask(), name="guard")
    session = SessionCoordinator(registry, approvals=CancellingStore("Allow"))
    outcome = await session.emit(event, {"tool_name": "Write", "tool_input": {}, "prompt": "Go"})
    assert (outcome.denied, outcome.cause) == (True, "session_cancelled")


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
    policy = Policy(lambda facts: DENY if facts.arguments.get("prompt") == "rm -rf /" else None)
    given = {"prompt": "rm -rf /", "tool_input": {}}
    outcome = await SessionCoordinator(registry, rules=policy).emit("prompt:submit", given)
    assert (outcome.action, outcome.cause) == ("deny", "denied_by_rule")


@pytest.mark.rule("BCK-6")
async def test_an_allowing_rule_does_not_replace_the_hooks_of_an_event() -> None:
    """A rule that allows an event answers no denial of a hook there."""
    registry = HookRegistry()
    registry.gate("prompt:submit", lambda event, data: HookResult.deny("no"), name="guard")
    policy = Policy(lambda facts: ALLOW)
    outcome = await SessionCoordinator(registry, rules=policy).emit("prompt:submit", {"prompt": "x"})
    assert (outcome.action, outcome.denied_by) == ("deny", "guard")


class Desk:
    """A durable store, a session that asks there, and the person who answers."""

    session: SessionCoordinator

    def __init__(self, path: Path) -> None:
        self.approvals, self.ran = DeferredApprovals(SqliteStore(path / "approvals.db")), list[Any]()

    def begin(self, registry: HookRegistry, **options: Any) -> None:
        """Begin the session."""
        self.session = SessionCoordinator(
            registry, session_id="s1", approvals=self.approvals, approval_wait=0.0, **options
        )

    async def call(self) -> ToolOutcome[Any]:
        """Make the call, or make it again."""
        return await self.session.call_tool("Write", {"n": 1}, self.ran.append, call_id="c1")

    async def answer(self, label: str) -> None:
        """Answer the open request."""
        (record,) = await self.approvals.broker.pending(ROBIN)
        option = next(one.id for one in record.request.options if one.label == label)
        result = await self.approvals.broker.decide(record.id, record.digest, option, ROBIN)
        assert result.accepted


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Return the desk."""
    desk = Desk(tmp_path)
    async with desk.approvals:
        yield desk


@pytest.mark.rule("APR-12", "COO-4")
@pytest.mark.parametrize("now", [2, 3], ids=["as it was stored", "as hooks change it now"])
async def test_every_hook_looks_at_the_stored_act(desk: Desk, now: int) -> None:
    """A gate that looks once denies the stored act of a call that is made again, as stored and as hooks change it."""
    registry, denied = HookRegistry(), list[int]()
    registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"n": data["tool_input"]["n"] + 1}}))

    @registry.gate("tool:pre", recheck=False)
    def guard(_event: str, data: Any) -> HookResult:
        return HookResult.deny("no") if data["tool_input"]["n"] in denied else ask()

    desk.begin(registry)
    assert (await desk.call()).status == "pending"
    await desk.answer("Allow")
    denied.append(now)
    assert ((await desk.call()).by, desk.ran) == ("guard", [])


@pytest.mark.rule("APR-12", "BCK-6")
async def test_a_rule_looks_at_the_stored_act_as_hooks_change_it_now(desk: Desk) -> None:
    """A rule that denies what hooks now make of a stored act denies the call that is made again."""
    registry, policy = asking(), Policy(lambda facts: None)
    registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"n": data["tool_input"]["n"] + 1}}))
    desk.begin(registry, rules=policy)
    assert (await desk.call()).status == "pending"
    await desk.answer("Allow")
    policy.replace(lambda facts: DENY if facts.arguments["n"] == 3 else None)
    assert ((await desk.call()).cause, desk.ran) == ("denied_by_rule", [])


@pytest.mark.rule("APR-12", "APR-4")
async def test_a_denial_where_a_rule_allows_by_now(desk: Desk) -> None:
    """A denial by a person holds, although a rule would answer the question when the call is made again."""
    policy = Policy(lambda facts: None)
    desk.begin(asking(), rules=policy)
    assert (await desk.call()).status == "pending"
    await desk.answer("Deny")
    policy.replace(lambda facts: ALLOW)
    assert ((await desk.call()).cause, desk.ran) == ("denied_by_person", [])


@pytest.mark.rule("APR-6")
async def test_a_denial_of_a_question_whose_hook_was_changed() -> None:
    """A denial by a person holds, although the hook that asked was replaced meanwhile by one that asks nothing."""
    registry, ran = HookRegistry(), list[Any]()
    first = registry.gate("tool:pre", lambda event, data: ask(), name="guard")

    async def deny(request: Any) -> Decision:
        first()
        registry.gate("tool:pre", lambda event, data: None, name="guard")
        return Decision(option=next(one.id for one in request.options if not one.allows), by="Robin", channel="test")

    session = SessionCoordinator(registry, approvals=ScriptedApprover(deny))
    assert ((await session.call_tool("Write", {}, ran.append)).cause, ran) == ("denied_by_person", [])


@pytest.mark.rule("APR-6", "APR-12")
@pytest.mark.parametrize("answered", [True, False])
async def test_a_refused_call_leaves_no_question(desk: Desk, answered: bool) -> None:
    """A question of a call that is refused is withdrawn, answered or not, and the call made again asks anew."""
    registry = asking()
    desk.begin(registry)
    assert (await desk.call()).status == "pending"
    if answered:
        await desk.answer("Allow")
    objection = registry.gate("tool:pre", lambda event, data: HookResult.deny("not now"), name="objection")
    assert (await desk.call()).by == "objection"
    assert await desk.approvals.broker.pending(ROBIN) == []
    objection()
    assert ((await desk.call()).status == "ok", desk.ran) == (False, [])


@pytest.mark.rule("BCK-6")
@pytest.mark.parametrize("looks", [1, 2])
async def test_a_rules_question_beside_a_denial(looks: int) -> None:
    """A question of a rule takes no denial of a gate back, neither at the first look nor at the second."""
    registry, seen, ran = HookRegistry(), list[Any](), list[Any]()

    @registry.gate("tool:pre")
    def guard(_event: str, data: Any) -> HookResult:
        seen.append(data)
        return HookResult.deny("no") if len(seen) == looks else ask()

    policy = Policy(lambda facts: RuleVerdict(action="ask", rule="careful", reason="Sure?"))
    session = SessionCoordinator(registry, approvals=ScriptedApprover("Allow", "Allow once"), rules=policy)
    outcome = await session.call_tool("Write", {}, ran.append)
    assert (outcome.by, len(seen), ran) == ("guard", looks, [])


class ChangingAudit(CollectingAudit):
    """A record that lets something happen when an act is about to run."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Record, and let it happen."""
        await super().write(kind, facts, durable=durable)
        if kind == "memory.running":
            self.meanwhile()


@pytest.mark.rule("COO-7", "BCK-6")
@pytest.mark.parametrize("look", ["first", "second"])
async def test_middleware_after_a_rule_allowed(look: str) -> None:
    """Middleware cannot change an operation that a rule allowed, whichever look the rule answered the question at."""
    registry, ran = HookRegistry(), list[Any]()

    def add(result: HookResult | None, name: str) -> None:
        registry.gate("memory:pre", lambda event, data: result, name=name, recheck=False)

    @registry.around("memory")
    async def layer(context: Any, call_next: Any) -> Any:
        context.content = "other"
        return await call_next()

    add(ask() if look == "first" else None, "guard")
    audit = ChangingAudit(lambda: add(None if look == "first" else ask(), "late"))
    session = SessionCoordinator(registry, audit=audit, rules=Policy(lambda facts: ALLOW))
    with pytest.raises(HookAbortError) as error:
        await session.operation("memory", {"content": "x", "key": "k"}, ran.append)
    assert (error.value.cause, ran) == ("approval_mismatch", [])


@pytest.mark.rule("BCK-6")
async def test_a_rules_question_beside_a_denial_of_an_event() -> None:
    """A question of a rule takes no denial of a gate back at an event that is no act."""
    registry, approver = HookRegistry(), ScriptedApprover("Allow once")
    registry.gate("prompt:submit", lambda event, data: HookResult.deny("no"), name="guard")
    policy = Policy(lambda facts: RuleVerdict(action="ask", rule="careful", reason="Sure?"))
    session = SessionCoordinator(registry, approvals=approver, rules=policy)
    outcome = await session.emit("prompt:submit", {"prompt": "x"})
    assert (outcome.action, outcome.denied_by, approver.requests) == ("deny", "guard", [])


@pytest.mark.rule("COO-9")
async def test_cancelling_withdraws_a_question_that_waits(desk: Desk) -> None:
    """A question that waits in the store is withdrawn when the session is cancelled."""
    desk.begin(asking())
    assert (await desk.call()).status == "pending"
    await desk.session.cancel("enough")
    assert await desk.approvals.broker.pending(ROBIN) == []


@pytest.mark.rule("APR-12")
async def test_a_question_of_the_program_before(desk: Desk) -> None:
    """A question that another program left open holds its call, although the hook asks nothing any more."""
    registry = HookRegistry()
    results = [ask()]
    registry.gate("tool:pre", lambda event, data: results[0] if results else None, name="guard")
    desk.begin(registry)
    assert (await desk.call()).status == "pending"
    results.clear()
    desk.begin(registry)
    assert ((await desk.call()).status, desk.ran) == ("pending", [])


@pytest.mark.rule("APR-6", "APR-10")
async def test_a_denial_at_approval_required(desk: Desk) -> None:
    """A question that waits is withdrawn when a hook at `approval:required` denies its call."""
    registry = asking()
    desk.begin(registry)
    assert (await desk.call()).status == "pending"
    registry.gate("approval:required", lambda event, data: HookResult.deny("no"), name="objection")
    assert (await desk.call()).by == "objection"
    assert await desk.approvals.broker.pending(ROBIN) == []


class StopReader(ScriptedApprover):
    """An approver that reads one stop, and fails afterwards."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.found = [stop]

    async def stops(self) -> list[Stop]:
        """Return the stop, or fail."""
        return [self.found.pop()]


@pytest.mark.rule("APR-14")
async def test_a_stop_that_cannot_be_read_again() -> None:
    """A stop that was read holds while the stops cannot be read."""
    ran = list[Any]()
    stop = Stop(id="1", tenant="", session="", why="look first", by="Kim", at=datetime(2026, 1, 1, tzinfo=UTC))
    session = SessionCoordinator(HookRegistry(), approvals=StopReader(stop))
    for _ in range(2):
        assert (await session.call_tool("Write", {}, ran.append)).cause == "emergency_stop"
    assert ran == []


@pytest.mark.rule("COO-9")
async def test_a_denied_prompt_holds_for_child_sessions() -> None:
    """A denied prompt denies the tool calls of a child session, too."""
    registry, ran = HookRegistry(), list[Any]()
    registry.gate("prompt:submit", lambda event, data: HookResult.deny("no"), name="guard")
    session = SessionCoordinator(registry)
    async with session.turn("x"):
        assert (await session.child("helper").call_tool("Write", {}, ran.append)).denied
    assert ran == []


@pytest.mark.rule("COO-4")
async def test_pairs_are_no_object() -> None:
    """A list of pairs is no tool input, although Python makes an object of it."""
    ran = list[Any]()
    pairs: Any = [["a", 1]]
    outcome = await SessionCoordinator().call_tool("Write", pairs, ran.append)
    assert (outcome.by, ran) == ("InputNotFreezable", [])


@pytest.mark.rule("COO-7")
@pytest.mark.parametrize("answer", [HookResult.ask("Really?"), HookResult.deny("not that")], ids=["ask", "deny"])
async def test_middleware_that_changes_to_what_a_gate_stops(answer: HookResult) -> None:
    """Middleware cannot change an operation to one that a gate asks about or denies: the change is denied."""
    registry, ran = HookRegistry(), list[Any]()
    registry.gate("memory:pre", lambda event, data: answer if data["content"] == "other" else None, name="guard")

    @registry.around("memory")
    async def layer(context: Any, call_next: Any) -> Any:
        context.content = "other"
        return await call_next()

    session = SessionCoordinator(registry, approvals=ScriptedApprover("Allow"))
    with pytest.raises(HookAbortError):
        await session.operation("memory", {"content": "x", "key": "k"}, ran.append)
    assert ran == []


@pytest.mark.rule("APR-5")
async def test_a_grant_that_the_store_has_revoked(desk: Desk) -> None:
    """An "always" that was revoked in the store allows no later call of a session that goes on."""
    words = HookResult.ask("Write?", options=["Allow", "Allow always", "Deny"])
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: words, name="guard")
    desk.begin(registry)
    assert (await desk.call()).status == "pending"
    await desk.answer("Allow always")
    assert (await desk.call()).ok
    (grant,) = await desk.approvals.list_grants("", "s1")
    assert await desk.approvals.revoke_grant(grant.id, "", "s1")
    assert ((await desk.session.call_tool("Write", {"n": 1}, desk.ran.append, call_id="c2")).status) == "pending"
    assert desk.ran == [{"n": 1}]


@pytest.mark.rule("COO-9", "APR-6")
async def test_a_call_cancelled_while_hooks_hear_of_its_approval() -> None:
    """A call that is cancelled while a hook hears that it was allowed withdraws the allowance, and runs nothing."""
    registry, ran, heard = asking(), list[Any](), asyncio.Event()

    @registry.on("approval:granted")
    async def listener(_event: str, _data: Any) -> None:
        heard.set()
        await asyncio.Event().wait()

    approver = ScriptedApprover("Allow")
    call = asyncio.create_task(SessionCoordinator(registry, approvals=approver).call_tool("Write", {}, ran.append))
    await heard.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (approver.step_names, ran) == (["request", "withdraw"], [])


@pytest.mark.rule("APR-12")
def test_no_two_questions_have_one_spelling() -> None:
    """A question has an id of its own, although its parts in a row read like those of another."""
    act = Act("", "s1", "tool:pre", "Write", "", b"{}")
    asked = (Call(id="c1"), "0", "a", "bc"), (Call(id="c"), "10", "a", "bc"), (Call(id="c1"), "0", "ab", "c")
    ids = {
        request_id(act, call, attempt, (Question(hook=hook, prompt="Write?", version=version),))
        for call, attempt, hook, version in asked
    }
    assert len(ids) == len(asked)


@pytest.mark.rule("APR-13", "BCK-6")
async def test_a_hook_that_asks_nothing_lowers_no_risk() -> None:
    """An act is no less risky for the rules because a hook that asks nothing calls the act harmless."""
    registry, ran = HookRegistry(), list[Any]()
    registry.on("tool:pre", lambda event, data: HookResult(risk="low"), name="harmless")
    looks = list[str]()

    def rule(facts: ActionFacts) -> RuleVerdict | None:
        looks.append(facts.risk)
        return DENY if len(looks) > 1 and facts.risk != "low" else None

    outcome = await SessionCoordinator(registry, rules=Policy(rule)).call_tool("Write", {}, ran.append)
    assert (outcome.cause, looks, ran) == ("denied_by_rule", ["medium", "medium"], [])


@pytest.mark.rule("COO-4")
async def test_a_gate_sees_the_folder_of_the_call(tmp_path: Path) -> None:
    """A gate that denies a folder sees the folder of the call, and not the session's root."""
    registry, ran = HookRegistry(), list[Any]()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no") if data["cwd"] == "/" else None, name="guard")
    outcome = await SessionCoordinator(registry, cwd=str(tmp_path)).call_tool("Write", {}, ran.append, cwd="/")
    assert (outcome.by, ran) == ("guard", [])


@pytest.mark.rule("APR-12")
async def test_the_end_of_a_session_withdraws_a_question_that_waits(desk: Desk) -> None:
    """A question that waits in the store is withdrawn when its session ends for good."""
    desk.begin(asking())
    assert (await desk.call()).status == "pending"
    await desk.session.end()
    assert await desk.approvals.broker.pending(ROBIN) == []


@pytest.mark.rule("COO-4")
@pytest.mark.parametrize("claimed", [False, True])
async def test_hooks_that_change_at_every_look_deny(*, claimed: bool) -> None:
    """The looks at an act are bounded, before and after the claim: if hooks change at every one, the act is denied."""
    hooks = HookRegistry()
    answer = HookResult.ask("Really?", options=["Allow", "Deny"]) if claimed else None
    gate = Restless(hooks, answer, begun=not claimed)
    hooks.gate("tool:pre", gate, name="restless")
    approver = BusyStore("Allow", meanwhile=gate.begin)
    async with SessionCoordinator(hooks, approvals=approver) as session:
        outcome = await session.call_tool("write", {}, lambda given: "ran")
    assert (outcome.status, outcome.by, outcome.cause) == ("denied", "session", "approval_unavailable")
    assert gate.looks < 20
