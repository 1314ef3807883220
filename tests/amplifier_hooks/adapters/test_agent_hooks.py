"""AGENT-HOOKS beyond its kit and the story: several sessions, questions, and hosts that break the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agent_hooks import AgentContextBuilder, Decision, InterceptionBlocked, InterceptionEmitter, Transform, Verdict

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.agent_hooks import AgentHooksHost, SessionInterceptor, SessionResolver
from amplifier_hooks.errors import HookAbortError
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_hooks import AgentContext

pytestmark = pytest.mark.rule("DIA-3")

GIVEN = {"path": "notes"}


class Saying:
    """An interceptor that gives a verdict at one point."""

    def __init__(self, point: str, said: Callable[[], Verdict]) -> None:
        self.point = point
        self.said = said
        self.seen: list[str] = []

    def intercept(self, context: AgentContext, /) -> Verdict:
        """Give the verdict at its point, and allow the rest."""
        self.seen.append(context["interception_point"])
        return self.said() if context["interception_point"] == self.point else Verdict.allow()


def contexts() -> AgentContextBuilder:
    """The contexts that a host of AGENT-HOOKS sends."""
    return AgentContextBuilder(agent_id="a", framework="theirs", session_id="theirs")


async def test_interceptors_are_for_their_session() -> None:
    """Sessions with one registry have interceptors of their own, and leave no gates behind."""
    hooks = HookRegistry()
    first, second = SessionCoordinator(hooks=hooks), SessionCoordinator(hooks=hooks)
    saying = Saying("pre_tool_call", lambda: Verdict.deny(reason="not_today"))
    AgentHooksHost(first, InterceptionEmitter().register(saying))
    async with first, second:
        assert (await first.call_tool("write", GIVEN, lambda _: "wrote")).denied
        assert (await second.call_tool("write", GIVEN, lambda _: "wrote")).ok
    assert saying.seen == ["agent_startup", "pre_tool_call", "agent_shutdown"]
    async with SessionCoordinator(hooks=hooks) as third:
        assert (await third.call_tool("write", GIVEN, lambda _: "wrote")).ok
    assert len(saying.seen) == 3


async def test_a_change_to_an_equal_value_is_a_change() -> None:
    """A tool runs with the very values that an interceptor decided about, also where Python calls others equal."""
    session, ran = SessionCoordinator(), list[str]()
    change = Verdict(Decision.TRANSFORM, transform=Transform("$target", {"force": False, "times": 1}))
    AgentHooksHost(session, InterceptionEmitter().register(Saying("pre_tool_call", lambda: change)))
    async with session:
        await session.call_tool("write", {"force": 0, "times": 1.0}, lambda given: ran.append(repr(given)))
    assert ran == ["{'force': False, 'times': 1}"]


async def test_a_start_that_is_denied_denies_every_prompt() -> None:
    """A session whose start was denied denies every prompt."""
    session = SessionCoordinator()
    saying = Saying("agent_startup", lambda: Verdict.deny(reason="not_today"))
    AgentHooksHost(session, InterceptionEmitter().register(saying))
    async with session, session.turn("go") as turn:
        assert turn.denied
        assert "not_today" in (turn.reason or "")
        assert (await session.call_tool("write", GIVEN, lambda _: "wrote")).denied


@pytest.mark.parametrize("answer", ["Allow", "Deny"])
async def test_what_an_interceptor_wants_approved_is_asked(answer: str) -> None:
    """A denial that can be lifted is a question to the session's approver, with the context of the interceptor."""
    approver = ScriptedApprover(answer)
    session = SessionCoordinator(approvals=approver)
    saying = Saying("pre_tool_call", lambda: Verdict.escalate(message="Write to production?"))
    AgentHooksHost(session, InterceptionEmitter(resolver=SessionResolver(session)).register(saying))
    async with session:
        outcome = await session.call_tool("write", GIVEN, lambda _: "wrote")
    assert outcome.ok is (answer == "Allow")
    (request,) = approver.requests
    assert request.prompt == "Write to production?"
    assert dict(request.arguments)["target"] == GIVEN


async def test_a_failing_tool_is_told_to_interceptors() -> None:
    """The error of a tool reaches the interceptors, which can withhold its text from the model."""
    session = SessionCoordinator()
    saying = Saying("post_tool_call", lambda: Verdict.deny(reason="too_late"))
    AgentHooksHost(session, InterceptionEmitter().register(saying))

    async def broken(_given: Any) -> None:
        raise OSError("the disk is full")

    async with session:
        outcome = await session.call_tool("write", GIVEN, broken)
    assert isinstance(outcome.error, OSError)
    assert outcome.reason == "The error was withheld: too_late"
    assert "post_tool_call" in saying.seen


async def test_an_answer_can_be_denied_and_changed() -> None:
    """The interceptors see, deny and change the answer of the agent."""
    session = SessionCoordinator()
    host = AgentHooksHost(
        session, InterceptionEmitter().register(Saying("output", lambda: Verdict.deny(reason="secret")))
    )
    async with session:
        with pytest.raises(HookAbortError, match="secret"):
            await host.output("the key is 1234")


async def test_a_host_that_runs_something_else_is_told_so() -> None:
    """A report about a call that was not admitted, or is another one, is denied, and on record as a mismatch."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        emitter, told = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        with pytest.raises(InterceptionBlocked):
            await emitter.emit(told.post_tool_call(call_id="1", name="write", args=GIVEN, value="wrote"))
        with pytest.raises(InterceptionBlocked):
            await emitter.emit(told.post_model_call(model_id="m", content="", tool_calls=[], finish_reason="stop"))
        await emitter.emit(told.pre_tool_call(call_id="2", name="write", args=GIVEN))
        with pytest.raises(InterceptionBlocked):
            await emitter.emit(told.post_tool_call(call_id="2", name="write", args={"path": "x"}, value="wrote"))
        await emitter.emit(told.pre_tool_call(call_id="3", name="write", args=GIVEN))
        with pytest.raises(InterceptionBlocked):
            await emitter.emit(told.post_tool_call(call_id="3", name="read", args=GIVEN, value="wrote"))
    assert audit.kinds.count("tool.mismatch") == 2


async def test_what_another_interceptor_denied_is_on_record() -> None:
    """A call that was admitted here and denied by the next interceptor is on record as cancelled."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        emitter, told = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        emitter.register(Saying("pre_tool_call", lambda: Verdict.deny(reason="not_today")))
        with pytest.raises(InterceptionBlocked):
            await emitter.emit(told.pre_tool_call(call_id="1", name="write", args=GIVEN))
        await emitter.emit(told.agent_shutdown(reason="completed"))
        assert audit.kinds.count("tool.cancelled") == 1


async def test_a_model_call_passes_the_hooks_of_a_session() -> None:
    """Messages and answer of a host's model call are as the hooks left them."""
    hooks = HookRegistry()
    hooks.gate("llm:pre", name="pre")(lambda event, data: HookResult.modify({"messages": data["messages"][:1]}))
    masked = {"content": "masked", "tool_calls": [], "finish_reason": "stop"}
    hooks.gate("llm:post", name="post")(lambda event, data: HookResult.modify({"response": masked}))
    async with SessionCoordinator(hooks=hooks) as session:
        emitter, told = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        before = await emitter.emit(told.pre_model_call(model_id="m", messages=messages))
        assert before.target == messages[:1]
        after = await emitter.emit(
            told.post_model_call(model_id="m", content="secret", tool_calls=[], finish_reason="stop")
        )
        assert after.target == masked


@pytest.mark.rule("DIA-10")
async def test_what_a_host_leaves_is_over() -> None:
    """A call whose id comes again, and one that is never reported, end on record as cancelled."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        emitter, told = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        await emitter.emit(told.pre_tool_call(call_id="1", name="write", args=GIVEN))
        await emitter.emit(told.pre_tool_call(call_id="1", name="write", args={"path": "other"}))
        assert audit.kinds.count("tool.cancelled") == 1
    assert audit.kinds.count("tool.cancelled") == 2


async def test_a_change_that_python_takes_for_none_is_one() -> None:
    """A hook that makes true of 1 has changed the input, and the host is told so."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.modify({"tool_input": {"on": True}}))
    async with SessionCoordinator(hooks=hooks) as session:
        emitter, told = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        record = await emitter.emit(told.pre_tool_call(call_id="1", name="write", args={"on": 1}))
        assert record.target["on"] is True


@pytest.mark.parametrize("event", ["prompt:submit", "llm:pre", "llm:post", "tool:pre"])
async def test_a_denial_is_the_hosts_verdict(event: str) -> None:
    """A denial at each point denies the host's step there, and no earlier one, with hook and reason."""
    hooks = HookRegistry()
    hooks.gate(event, name="guard")(lambda event, data: HookResult.deny("not today"))
    reached: list[Any] = []
    async with SessionCoordinator(hooks=hooks) as session:
        emitter, host = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        steps = {
            "prompt:submit": host.input(content="go"),
            "llm:pre": host.pre_model_call(model_id="m", messages=[{"role": "user", "content": "go"}]),
            "llm:post": host.post_model_call(model_id="m", content="yes", tool_calls=[], finish_reason="stop"),
            "tool:pre": host.pre_tool_call(call_id="1", name="write", args=GIVEN),
        }
        for name, context in steps.items():
            reached.append((name, await emitter.emit_unchecked(context)))
            if not reached[-1][1].proceeds:
                break
    name, record = reached[-1]
    assert (record.proceeds, name, record.verdict.reason) == (False, event, "denied:guard")
    assert "not today" in str(record.verdict.message)


@pytest.mark.rule("APR-12")
async def test_a_call_that_ran_is_refused_with_its_result(tmp_path: Path) -> None:
    """A call that was approved and has run does not run again under its id, and the host reads its result."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write it?", timeout=3600))
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=hooks, approvals=approvals, approval_wait=0.0) as session,
    ):
        emitter = InterceptionEmitter().register(SessionInterceptor(session))
        about: Any = {"call_id": "one", "name": "write", "args": GIVEN}
        with pytest.raises(InterceptionBlocked):
            await emitter.emit(contexts().pre_tool_call(**about))
        robin = Decider(name="Robin", channel="test")
        (waiting,) = await approvals.broker.pending(robin)
        yes = next(one for one in waiting.request.options if one.allows)
        await approvals.broker.decide(waiting.request.id, waiting.request.digest, yes.id, robin)
        await emitter.emit(contexts().pre_tool_call(**about))
        await emitter.emit(contexts().post_tool_call(**about, value="wrote notes"))
        with pytest.raises(InterceptionBlocked) as refused:
            await emitter.emit(contexts().pre_tool_call(**about))
    message = refused.value.result.verdict.message or ""
    assert message.startswith("This call has run already")
    assert message.endswith("wrote notes")


async def test_a_report_of_a_failure_is_no_result() -> None:
    """A tool that failed at the host is on record as failed, and not as done."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        emitter, host = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        about: dict[str, Any] = {"call_id": "1", "name": "write", "args": GIVEN}
        await emitter.emit(host.pre_tool_call(**about))
        await emitter.emit(host.post_tool_call(**about, value="the disk is full", is_error=True))
    assert [kind for kind in audit.kinds if kind in ("tool.failed", "tool.done")] == ["tool.failed"]


async def test_the_host_gets_the_input_that_was_decided_about() -> None:
    """A verdict holds the decided input also where no hook changed it: a host's own object may change meanwhile."""
    hooks, given = HookRegistry(), {"path": "notes"}
    hooks.gate("tool:pre", name="guard")(lambda event, data: given.update(path="elsewhere"))
    async with SessionCoordinator(hooks=hooks) as session:
        emitter, host = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        emitted = await emitter.emit(host.pre_tool_call(call_id="1", name="write", args=given))
    assert (given, emitted.target) == ({"path": "elsewhere"}, GIVEN)


async def test_a_response_that_cannot_be_read_is_denied() -> None:
    """A gate of the interceptors that fails denies: here no `read` makes a mapping of the response."""
    session = SessionCoordinator()
    AgentHooksHost(session, InterceptionEmitter().register(Saying("post_model_call", Verdict.allow)))
    async with session:
        outcome = await session.call_model(lambda _messages: "yes")
    assert (outcome.denied, outcome.value) == (True, None)


async def test_a_changed_prompt_and_a_changed_result_reach_the_host() -> None:
    """The host goes on with prompt and result as the hooks left them."""
    hooks = HookRegistry()
    hooks.on("prompt:submit", lambda event, data: HookResult.modify({"prompt": "masked"}), name="prompt")
    hooks.on("tool:post", lambda event, data: HookResult.modify({"result": "masked"}), name="result")
    async with SessionCoordinator(hooks=hooks) as session:
        emitter, told = InterceptionEmitter().register(SessionInterceptor(session)), contexts()
        assert (await emitter.emit(told.input(content="secret"))).target["content"] == "masked"
        await emitter.emit(told.pre_tool_call(call_id="1", name="write", args=GIVEN))
        record = await emitter.emit(told.post_tool_call(call_id="1", name="write", args=GIVEN, value="secret"))
        assert record.target == "masked"
