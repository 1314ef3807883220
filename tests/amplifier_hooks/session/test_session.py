"""A session among its collaborators: alone, cancelled, with children, and with results of other programs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.approvals import SessionGrants
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.errors import InjectionTooLarge, InvalidCollaborator, InvalidResult, UnknownTool
from amplifier_hooks.events import canonical
from amplifier_hooks.session.options import LIMITS, SECOND_NAMES, SessionOptions, Settings
from amplifier_hooks.testing import (
    HANG,
    CollectingAudit,
    CollectingDisplay,
    RecordingContext,
    ScriptedApprover,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    CallNext = Callable[[], Awaitable[Any]]


def never(*_args: Any) -> None:
    """Fail: this operation must not run."""
    pytest.fail("it ran")


class Slow(CollectingAudit):
    """A record that keeps its writer waiting once, at the first record of a kind."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.waiting, self.go = asyncio.Event(), asyncio.Event()

    async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
        """Wait, and append."""
        if kind == self.kind:
            self.kind = ""
            await self.wait()
        await super().write(kind, facts, durable=durable)

    async def wait(self) -> None:
        """Wait until the test lets everything go on."""
        self.waiting.set()
        await self.go.wait()


class SlowGrants(SessionGrants):
    """Grants that keep the caller waiting."""

    def __init__(self, slow: Slow) -> None:
        super().__init__(SystemClock())
        self.slow = slow

    async def match_grants(self, request: Any) -> None:
        """Wait, and know no grant."""
        await self.slow.wait()


class SlowClaim(ScriptedApprover):
    """An approver who says yes, and whose claim keeps the caller waiting."""

    slow: Slow

    async def claim(self, request_id: str, digest: str) -> bool:
        """Wait, and claim."""
        await self.slow.wait()
        return await super().claim(request_id, digest)


@pytest.mark.rule("COO-9")
@pytest.mark.parametrize("at", ["grants", "outcome", "approval.requested", "approval.decided", "tool.running", "claim"])
async def test_a_new_turn_saves_no_waiting_call(at: str) -> None:
    """A call that waits while its session is cancelled does not run, though a new turn begins before it goes on."""
    slow = Slow(at)
    approver = SlowClaim("Allow") if at == "claim" else ScriptedApprover("Allow")
    if isinstance(approver, SlowClaim):
        approver.slow = slow
    registry = HookRegistry()
    registry.gate("tool:pre", lambda *_: HookResult.ask("Really?"), name="asks")
    grants = SlowGrants(slow) if at == "grants" else None
    session = SessionCoordinator(registry, approvals=approver, audit=slow, grants=grants)
    calling = asyncio.create_task(session.call_tool("Write", {}, never))
    await slow.waiting.wait()
    await session.cancel("no more")
    session.reset_turn()
    slow.go.set()
    outcome = await calling
    assert (outcome.denied, outcome.cause) == (True, "session_cancelled")
    assert "no more" in str(outcome.reason)
    assert bool(approver.requests) is (at in {"approval.decided", "tool.running", "claim"})


@pytest.mark.rule("COO-9")
async def test_a_new_turn_saves_no_waiting_operation() -> None:
    """An unasked call, an agent and a model call do not run either once their session was cancelled."""
    for kind in ("tool.running", "agent.running", "outcome"):
        slow = Slow(kind)
        session = SessionCoordinator(HookRegistry(), audit=slow)
        ways: dict[str, Any] = {
            "tool.running": lambda: session.call_tool("Write", {}, never),  # noqa: B023  # called at once
            "agent.running": lambda: session.invoke_agent("scout", {}, never),  # noqa: B023
            "outcome": lambda: session.call_model(never, []),  # noqa: B023
        }
        calling = asyncio.create_task(ways[kind]())
        await slow.waiting.wait()
        await session.cancel("no more")
        session.reset_turn()
        slow.go.set()
        if kind == "agent.running":
            with pytest.raises(HookAbortError, match="no more"):
                await calling
        else:
            assert (await calling).denied


class Hanging:
    """A hook that hangs until it is cancelled, and notes the cancellation."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.ended = 0

    async def __call__(self, *_args: Any) -> None:
        """Hang."""
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def asking(registry: HookRegistry | None = None) -> HookRegistry:
    """Return a registry whose gate asks about every tool."""
    registry = registry or HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?", options=["Allow", "Deny"]), name="asker")
    return registry


# -- alone -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-1")
async def test_every_method_alone() -> None:
    """A coordinator without arguments supports every method."""

    async def pieces(messages: Any) -> AsyncIterator[str]:
        yield "a"

    async with SessionCoordinator() as session, session.turn("go") as turn:
        assert not turn.denied
        assert not (await session.emit("host:event", {})).denied
        assert not (await session.execute_with_hooks("PreToolUse", {"tool_name": "Read"})).denied
        assert (await session.process_hook_result(HookResult.proceed(), "tool:pre")).action == "continue"
        assert (await session.call_tool("Read", {}, lambda _: 1)).value == 1
        assert (await session.call_model(lambda messages: messages)).value == []
        stream = session.stream_model(pieces)
        assert [piece async for piece in stream] == ["a"]
        assert await session.invoke_agent("coder", {}, lambda inputs, prompt: prompt) is None
        assert (await session.run_step("flow", "one", {}, lambda inputs: 1)).result == 1
        assert await session.operation("memory", {"content": "x"}, lambda data: data) == {"content": "x"}
        assert session.tokens_this_turn == 0
        assert session.injections == ()
        session.reset_turn()
        async with session.child("reviewer") as child:
            assert (await child.call_tool("Read", {}, lambda _: 1)).ok
        await session.cancel()
    assert session.session_id != SessionCoordinator().session_id
    assert session.hooks is not SessionCoordinator().hooks


@pytest.mark.rule("COO-1", "APR-1")
async def test_asked_alone() -> None:
    """A coordinator without an approver denies a call that a hook asks about."""
    outcome = await SessionCoordinator(hooks=asking()).call_tool("Read", {}, never)
    assert "No approval system available" in (outcome.reason or "")


@pytest.mark.rule("COO-1")
async def test_the_registry_comes_first() -> None:
    """A session made of a registry alone runs its hooks, for every way to use the session."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"))
    session = SessionCoordinator(registry)
    assert session.hooks is registry
    assert (await session.emit("tool:pre", {"tool_name": "Bash"})).denied
    assert (await session.execute_with_hooks("tool:pre", {"tool_name": "Bash"})).denied
    assert (await session.call_tool("Bash", {}, never)).status == "denied"


@pytest.mark.rule("COO-1")
@pytest.mark.parametrize("value", ["s1", [], HookRegistry, HookRegistry().scope("plugin"), RecordingContext()])
def test_no_registry(value: Any) -> None:
    """A value in the registry's place is refused with a sentence that gives the right call."""
    how = (
        r"pass the HookRegistry first, and everything else by its name: SessionCoordinator\(registry, session_id='s1'\)"
    )
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    with pytest.raises(InvalidCollaborator, match=f"hooks is {kind}; {how}"):
        SessionCoordinator(value)
    with pytest.raises(InvalidCollaborator, match=how):
        SessionCoordinator().child("reviewer", hooks=value)


@pytest.mark.rule("COO-1")
def test_no_session_id() -> None:
    """A session's name is a text: any other value was meant for another argument."""
    registry: Any = HookRegistry()
    with pytest.raises(InvalidCollaborator, match="session_id is of type HookRegistry; pass the HookRegistry first"):
        SessionCoordinator(session_id=registry)


@pytest.mark.rule("COO-1")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("approvals", [ScriptedApprover()], r"approvals is of type list; .* RacingApprovals\(first, second\)"),
        ("approval_system", ScriptedApprover, "approvals is the class ScriptedApprover; pass a backend such as"),
        ("display", print, r"display is of type builtin_function_or_method; .* show_message\(message, level, source\)"),
    ],
)
def test_no_collaborator(name: str, value: Any, said: str) -> None:
    """A value that cannot ask, or cannot show a message, is refused at once, and not at the first question."""
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(InvalidCollaborator, match=said):
        SessionCoordinator(**wrong)


@pytest.mark.rule("COO-1")
async def test_original_names() -> None:
    """Approver and screen are accepted under the names of the original description, also for a child."""
    approver, screen = ScriptedApprover("Allow"), CollectingDisplay()
    session = SessionCoordinator(asking(), approval_system=approver, display_system=screen)
    assert (await session.call_tool("Read", {}, lambda _: 1)).ok
    await session.child("tester").process_hook_result(HookResult.proceed(user_message="hi"), "tool:pre", "lint")
    assert screen.messages == [("hi", "info", "hook:lint")]
    other = ScriptedApprover("Deny")
    child = session.child("reviewer", approval_system=other, display_system=CollectingDisplay())
    assert (await child.call_tool("Read", {}, never)).status == "denied"
    assert (len(approver.requests), len(other.requests)) == (1, 1)


@pytest.mark.rule("COO-1")
@pytest.mark.parametrize(
    ("one", "two", "value"),
    [("approvals", "approval_system", ScriptedApprover()), ("display", "display_system", CollectingDisplay())],
)
def test_two_names_of_one_thing(one: str, two: str, value: Any) -> None:
    """One thing under two names is refused, because one of them would be left out."""
    names: dict[str, Any] = {one: value, two: value}
    with pytest.raises(InvalidCollaborator, match=f"{one} and {two} are two names of one thing; pass one of them"):
        SessionCoordinator(**names)


@pytest.mark.rule("COO-6")
async def test_sessions_share_a_registry() -> None:
    """Two sessions of one registry run side by side, each with its own context, turn and fate."""
    registry, contexts = HookRegistry(), [RecordingContext(), RecordingContext()]

    @registry.on("prompt:submit")
    async def greet(event: str, data: Any) -> HookResult:
        await asyncio.sleep(0)
        return HookResult.inject(f"hello {data['session_id']}")

    one, two = (
        SessionCoordinator(registry, session_id=name, context=context)
        for name, context in zip("ab", contexts, strict=True)
    )

    async def turn(session: SessionCoordinator) -> None:
        async with session.turn("go"):
            pass

    await asyncio.gather(turn(one), turn(two))
    assert [len(context.texts) for context in contexts] == [1, 1]
    assert ["hello a" in contexts[0].texts[0], "hello b" in contexts[1].texts[0]] == [True, True]
    await one.cancel("enough")
    assert (await two.call_tool("Read", {}, lambda _: 1)).ok


# -- results of other programs -----------------------------------------------------------------------------------------


@pytest.mark.rule("COO-2", "RES-7")
async def test_process_deny() -> None:
    """A denial comes back with its reason; what it injects stays in it, and its message is shown."""
    context, display, audit = RecordingContext(), CollectingDisplay(), CollectingAudit()
    session = SessionCoordinator(context=context, display=display, audit=audit)
    given = HookResult.deny("no", context_injection="psst", user_message="stopped")
    left = await session.process_hook_result(given, "tool:pre", "guard")
    assert (left.action, left.reason) == ("deny", "no")
    assert [item.content for item in left.context_injections] == ["psst"]
    assert context.messages == []
    assert display.messages == [("stopped", "info", "hook:guard")]
    assert audit.facts("outcome")[0]["denied_by"] == "guard"


@pytest.mark.rule("COO-2", "INJ-1")
async def test_process_inject() -> None:
    """An injection is injected in its hook's name, and a plain continue comes back."""
    context = RecordingContext()
    left = await SessionCoordinator(context=context).process_hook_result(HookResult.inject("E501"), "tool:post", "lint")
    assert left == HookResult.proceed()
    assert "⟦hook lint" in context.texts[0]
    assert "E501" in context.texts[0]


@pytest.mark.rule("COO-2")
async def test_process_modify() -> None:
    """A modification comes back as it is; a mapping and None are results, too."""
    session = SessionCoordinator()
    left = await session.process_hook_result(HookResult.modify({"tool_input": {"a": 1}}), "tool:pre")
    assert (left.action, left.data) == ("modify", {"tool_input": {"a": 1}})
    mapping: Any = {"action": "deny", "reason": "no"}
    assert (await session.process_hook_result(mapping, "tool:pre")).action == "deny"
    nothing: Any = None
    assert (await session.process_hook_result(nothing, "tool:pre")).action == "continue"


@pytest.mark.rule("COO-2", "APR-11")
@pytest.mark.parametrize("event", ["tool:pre", "PreToolUse", "session:start"])
@pytest.mark.parametrize(("answer", "action"), [("Allow", "continue"), ("Deny", "deny")])
async def test_process_ask(event: str, answer: str, action: str) -> None:
    """A question is put to a person, for any event; the result has the person's answer."""
    approver = ScriptedApprover(answer)
    given = HookResult.ask("Really?", context_injection="psst")
    left = await SessionCoordinator(approvals=approver).process_hook_result(given, event, "asker")
    assert left.action == action
    assert approver.requests[0].prompt == "Really?"
    assert approver.requests[0].event == canonical(event)
    assert left.reason == ("User denied: Really?" if action == "deny" else None)


@pytest.mark.rule("INJ-2")
async def test_process_too_large() -> None:
    """An injection over the limit raises before anything of the result is carried out."""
    context, display, audit = RecordingContext(), CollectingDisplay(), CollectingAudit()
    session = SessionCoordinator(context=context, display=display, audit=audit)
    with pytest.raises(InjectionTooLarge):
        await session.process_hook_result(HookResult.inject("x" * 10_241, user_message="hi"), "tool:post", "chatty")
    assert (context.messages, display.messages, audit.records) == ([], [], [])


@pytest.mark.rule("COO-2")
@pytest.mark.parametrize("odd", [True, "continue", {}, {"approved": True}])
async def test_process_nonsense(odd: Any) -> None:
    """An invalid result raises InvalidResult."""
    with pytest.raises(InvalidResult):
        await SessionCoordinator().process_hook_result(odd, "tool:pre")


@pytest.mark.rule("AUD-3")
async def test_process_without_a_record() -> None:
    """A result that cannot be recorded denies an event that can be stopped."""
    session = SessionCoordinator(audit=CollectingAudit(OSError("full")))
    assert (await session.process_hook_result(HookResult.proceed(), "tool:pre")).action == "deny"
    assert (await session.process_hook_result(HookResult.proceed(), "tool:post")).action == "continue"


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-9")
async def test_cancel_withdraws_the_question() -> None:
    """Cancelling the session withdraws an open question; its call is denied as cancelled, and the task goes on."""
    approver, audit, context = ScriptedApprover(HANG), CollectingAudit(), RecordingContext()
    session = SessionCoordinator(hooks=asking(), approvals=approver, audit=audit, context=context)
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await approver.asked.wait()
    await session.cancel("user pressed stop")
    outcome = await task
    assert outcome.reason == "Operation denied by asker: user pressed stop"
    assert approver.step_names == ["request", "withdraw"]
    assert audit.facts("approval.decided")[0]["status"] == "cancelled"
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9")
@pytest.mark.parametrize("event", ["tool:pre", "prompt:submit", "agent:pre", "llm:pre"])
async def test_cancel_ends_a_hanging_hook(event: str) -> None:
    """Cancelling the session cancels the running hook, denies its act, and cancels no other task."""
    registry, hook = HookRegistry(), Hanging()
    registry.on(event, hook)
    session = SessionCoordinator(hooks=registry)

    async def work() -> str | None:
        if event == "tool:pre":
            return (await session.call_tool("Read", {}, never)).reason
        if event == "llm:pre":
            return (await session.call_model(never)).reason
        if event == "agent:pre":
            with pytest.raises(HookAbortError) as caught:
                await session.invoke_agent("coder", {}, never)
            return caught.value.reason
        async with session.turn("go") as turn:
            return turn.reason

    task = asyncio.create_task(work())
    await hook.running.wait()
    await session.cancel("enough")
    assert "enough" in (await task or "")
    assert hook.ended == 1
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9")
@pytest.mark.parametrize("concurrent", [False, True])
async def test_cancel_ends_a_hanging_observer(concurrent: bool) -> None:
    """Cancelling the session cancels observers; the act that they observe stays as it is."""
    registry, hook, begun = HookRegistry(), Hanging(), asyncio.Event()
    registry.observe("tool:*", hook, concurrent=concurrent)
    session = SessionCoordinator(hooks=registry)

    def tool(_given: Any) -> int:
        begun.set()
        return 1

    task = asyncio.create_task(session.call_tool("Read", {}, tool))
    await begun.wait()
    for ended in (1, 2):  # at tool:pre, and at tool:post
        await hook.running.wait()
        hook.running.clear()
        await session.cancel("enough")
        if ended == 1:
            await hook.running.wait()
    assert (await task).value == 1
    assert hook.ended == 2
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9", "REG-6")
async def test_cancel_ends_a_hanging_around_hook() -> None:
    """An around hook that has not called the tool yet is cancelled, and the tool does not run."""
    registry, hook, audit = HookRegistry(), Hanging(), CollectingAudit()
    registry.around("tool", hook)
    session = SessionCoordinator(hooks=registry, audit=audit)
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await hook.running.wait()
    await session.cancel("enough")
    assert (await task).reason == "Operation denied by session: enough"
    assert hook.ended == 1
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9", "REG-13")
@pytest.mark.parametrize("around", [False, True])
async def test_cancel_leaves_the_tool_alone(around: bool) -> None:
    """A tool that runs goes on, with its around hooks, and its value comes back; later calls are denied."""
    registry = HookRegistry()
    running, go = asyncio.Event(), asyncio.Event()
    if around:

        @registry.around("tool")
        async def layer(context: Any, call_next: CallNext) -> str:
            value = await call_next()
            await asyncio.sleep(0)
            return f"({value})"

    session = SessionCoordinator(hooks=registry)

    async def tool(given: Any) -> str:
        running.set()
        await go.wait()
        return "done"

    task = asyncio.create_task(session.call_tool("Wait", {}, tool))
    await running.wait()
    await session.cancel("enough")
    assert (await session.call_tool("Read", {}, never)).denied
    go.set()
    assert (await task).value == ("(done)" if around else "done")
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9")
async def test_hosts_cancellation_wins() -> None:
    """When the host cancels its task in the same moment, the task is cancelled."""
    registry, hook = HookRegistry(), Hanging()
    registry.on("tool:pre", hook)
    session = SessionCoordinator(hooks=registry)
    for host_first in (True, False):
        hook.running.clear()
        task = asyncio.create_task(session.call_tool("Read", {}, never))
        await hook.running.wait()
        if host_first:
            task.cancel()
        await session.cancel("enough")
        if not host_first:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        session.reset_turn()


@pytest.mark.rule("COO-9")
async def test_cancel_in_a_task_that_is_ending() -> None:
    """Cancelling the session in a task that cleans up after its own cancellation does not cancel the task."""
    registry, hook = HookRegistry(), Hanging()
    registry.on("tool:pre", hook)
    session = SessionCoordinator(hooks=registry)
    waiting, said = asyncio.Event(), []

    async def work() -> None:
        try:
            waiting.set()
            await asyncio.Event().wait()
        finally:
            said.append((await session.call_tool("Read", {}, never)).reason)

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()
    await hook.running.wait()
    await session.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == ["Operation denied by session: enough"]
    assert task.cancelling() == 1


@pytest.mark.rule("COO-9")
async def test_cancel_twice() -> None:
    """Cancelling again while a hook still cleans up is harmless."""
    registry = HookRegistry()
    running, cleaning, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hook(event: str, data: Any) -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go.wait()

    registry.on("tool:pre", hook)
    session = SessionCoordinator(hooks=registry)
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await running.wait()
    await session.cancel("one")
    await cleaning.wait()
    await session.cancel("two")
    go.set()
    assert (await task).denied
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9")
async def test_hook_cancels_its_session() -> None:
    """A hook may cancel its own session: its answer is recorded, and its act does not happen."""
    registry, approver = HookRegistry(), ScriptedApprover("Allow")
    session = SessionCoordinator(hooks=registry, approvals=approver)
    said: list[str] = []

    @registry.gate("tool:pre")
    async def stop(event: str, data: Any) -> HookResult:
        await session.cancel("enough")
        await asyncio.sleep(0)
        said.append("my say")
        return HookResult.ask("Really?")

    assert (await session.call_tool("Read", {}, never)).reason == "Operation denied by session: enough"
    assert approver.requests == []
    assert said == ["my say"]


@pytest.mark.rule("COO-9")
async def test_cancelled_while_the_question_is_recorded() -> None:
    """A question that is not asked yet when the session is cancelled is not asked any more."""
    approver, recording, go = ScriptedApprover(HANG), asyncio.Event(), asyncio.Event()

    class Audit(CollectingAudit):
        async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
            if kind == "approval.requested":
                recording.set()
                await go.wait()
            await super().write(kind, facts, durable=durable)

    session = SessionCoordinator(hooks=asking(), approvals=approver, audit=Audit())
    task = asyncio.create_task(session.call_tool("Read", {}, never))
    await recording.wait()
    await session.cancel("enough")
    go.set()
    assert "enough" in ((await task).reason or "")


@pytest.mark.rule("COO-9")
async def test_cancel_does_not_wait_for_hooks() -> None:
    """A hook that hangs at cancel:requested holds nothing up: everything was stopped before the event."""
    registry, hook = asking(), Hanging()
    registry.on("cancel:requested", hook)
    approver = ScriptedApprover(HANG)
    session = SessionCoordinator(hooks=registry, approvals=approver)
    call = asyncio.create_task(session.call_tool("Read", {}, never))
    await approver.asked.wait()
    cancelling = asyncio.create_task(session.cancel("enough"))
    await hook.running.wait()
    assert (await call).denied
    cancelling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelling


@pytest.mark.rule("COO-9", "EVT-6")
async def test_new_turn_after_cancel() -> None:
    """A new turn of a cancelled session begins afresh."""
    session = SessionCoordinator()
    await session.cancel("enough")
    assert (await session.call_tool("Read", {}, never)).denied
    async with session.turn("again") as turn:
        assert not turn.denied
        assert (await session.call_tool("Read", {}, lambda _: 1)).ok
    assert turn.status == "success"


@pytest.mark.rule("COO-9")
async def test_tool_inside_a_hook_is_the_hooks() -> None:
    """A tool that a hook runs, around hooks and all, is part of that hook: cancelling the session cancels it."""
    registry, tool = HookRegistry(), Hanging()

    @registry.around("tool")
    async def layer(context: Any, call_next: CallNext) -> None:
        await call_next()

    session = SessionCoordinator(hooks=registry)

    @registry.on("memory:pre", timeout=600)
    async def look(event: str, data: Any) -> None:
        await session.call_tool("Look", {}, tool)

    task = asyncio.create_task(session.operation("memory", {"content": "x"}, never))
    await tool.running.wait()
    await session.cancel("enough")
    with pytest.raises(HookAbortError, match="enough"):
        await task
    assert tool.ended == 1
    assert task.cancelling() == 0


# -- children ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-9")
async def test_child() -> None:
    """A child has a context and budget of its own, and hooks, approver, screen, tools and record of its parent."""
    registry, audit, display, approver = asking(), CollectingAudit(), CollectingDisplay(), ScriptedApprover("Allow")
    registry.on("session:fork", lambda event, data: HookResult.inject("mind the gap", user_message="hello"), name="a")
    told: list[Any] = []
    registry.observe("session:fork", lambda event, data, outcome: told.append(data))
    session = SessionCoordinator(
        registry,
        session_id="s1",
        approvals=approver,
        display=display,
        audit=audit,
        tools={"Read": lambda given: 1},
        agent="coder",
        run_id="r1",
    )
    async with session, session.child("reviewer", session_id="s2") as child:
        assert (await child.execute_tool("Read", {})).value == 1
        assert child.context is not session.context
        assert len(child.context.get_messages()) == 1
        assert session.context.get_messages() == []
    assert approver.requests[0].agent == "coder › reviewer"
    assert approver.requests[0].session == "s2"
    assert display.messages == [("hello", "info", "hook:a")]
    assert {record.facts["session"] for record in audit.records} == {"s1", "s2"}
    assert [(data["parent_id"], data["parent"], data["run_id"]) for data in told] == [("s1", "s1", "r1")]


@pytest.mark.rule("COO-9")
async def test_child_with_options() -> None:
    """A child may have collaborators that its parent has not, such as tools and a context of its own."""
    context = RecordingContext()
    child = SessionCoordinator().child("helper", tools={"Own": lambda given: 2}, context=context, tenant="acme")
    assert (await child.execute_tool("Own", {})).value == 2
    assert child.context is context


@pytest.mark.rule("COO-9")
async def test_child_without_its_parents_approver() -> None:
    """A child whose approver is None has none, and its questions are denied."""
    approver = ScriptedApprover("Allow")
    session = SessionCoordinator(asking(), approvals=approver, tools={"Read": lambda given: 1})
    child = session.child("reviewer", approvals=None, tools=None)
    assert (await child.call_tool("Read", {}, never)).denied
    assert (await session.child("tester", approval_system=None).call_tool("Read", {}, lambda _: 1)).ok
    with pytest.raises(UnknownTool):
        await child.execute_tool("Read", {})


@pytest.mark.rule("PKG-4")
def test_options_are_those_of_the_settings() -> None:
    """Type checkers read the options of a session from a table: each is a setting, another name or a part of one."""
    options = dict.fromkeys(SessionOptions.__annotations__)
    first = {SECOND_NAMES.get(option, option) for option in options} - set(LIMITS)
    assert first | {"hooks", "agent"} == set(Settings.__struct_fields__)
    bogus: Any = {"bogus": 1}
    for refused in (SessionCoordinator, partial(SessionCoordinator().child, "reviewer")):
        with pytest.raises(TypeError, match="bogus"):
            refused(**bogus)


@pytest.mark.rule("COO-9")
async def test_cancel_reaches_the_children() -> None:
    """Cancelling a session withdraws its children's questions, and cancels and notifies their hooks."""
    registry, approver, hook = asking(), ScriptedApprover(HANG), Hanging()
    registry.on("llm:pre", hook)
    told: list[tuple[str, str]] = []
    registry.observe("cancel:*", lambda event, data, outcome: told.append((event, data["session_id"])))
    session = SessionCoordinator(registry, session_id="s1", approvals=approver)
    child = session.child("a", session_id="s2")
    grandchild = child.child("b", session_id="s3")
    asked = asyncio.create_task(child.call_tool("Read", {}, never))
    waiting = asyncio.create_task(grandchild.call_model(never))
    await approver.asked.wait()
    await hook.running.wait()
    await session.cancel("enough")
    assert (await asked).denied
    assert (await waiting).denied
    assert (await child.call_tool("Read", {}, never)).denied
    assert told == [
        ("cancel:requested", "s1"),
        ("cancel:requested", "s2"),
        ("cancel:requested", "s3"),
        ("cancel:completed", "s3"),
        ("cancel:completed", "s2"),
        ("cancel:completed", "s1"),
    ]


@pytest.mark.rule("COO-9")
async def test_child_does_not_outrun_its_parent() -> None:
    """Neither a new turn of a child nor a child made afterwards runs anything in a turn that was cancelled."""
    session = SessionCoordinator()
    old = session.child("old")
    await session.cancel("enough")
    for child in (old, session.child("new")):
        async with child.turn("go"):
            assert (await child.call_tool("Read", {}, never)).reason == "Operation denied by session: enough"
    async with session.turn("again"), old.turn("go"):
        assert (await old.call_tool("Read", {}, lambda _: 1)).ok


@pytest.mark.rule("COO-9")
async def test_cancelled_child_leaves_its_parent_alone() -> None:
    """Cancelling a child stops nothing in its parent, not even the hook that waits for the child."""
    registry, hook = HookRegistry(), Hanging()
    registry.on("llm:pre", hook)
    session = SessionCoordinator(hooks=registry)
    child = session.child("reviewer")

    @registry.gate("tool:pre")
    async def review(event: str, data: Any) -> HookResult | None:
        return None if (await child.call_model(never)).denied else HookResult.deny("hm")

    task = asyncio.create_task(session.call_tool("Write", {}, lambda _: 1))
    await hook.running.wait()
    await child.cancel("enough")
    assert (await task).value == 1
    assert task.cancelling() == 0


@pytest.mark.rule("COO-9")
async def test_parent_of_a_child_in_its_hook() -> None:
    """Cancelling a session whose hook waits for a child's hook ends both, and the task stays as it was."""
    registry, hook = HookRegistry(), Hanging()
    registry.on("llm:pre", hook)
    session = SessionCoordinator(hooks=registry)
    child = session.child("reviewer")

    @registry.on("tool:pre")
    async def ask_model(event: str, data: Any) -> None:
        await child.call_model(never)

    task = asyncio.create_task(session.call_tool("Write", {}, never))
    await hook.running.wait()
    await session.cancel("enough")
    assert (await task).reason == "Operation denied by session: enough"
    assert hook.ended == 1
    assert task.cancelling() == 0


# -- events of the host ------------------------------------------------------------------------------------------------


@pytest.mark.rule("EVT-5", "RES-6", "RES-7")
@pytest.mark.parametrize("declared", [True, False, None])
async def test_declared_event(declared: bool | None) -> None:
    """A declared event can be stopped if it was declared as a gate; an undeclared one can be stopped, too."""
    registry, context = HookRegistry(), RecordingContext()
    audit = CollectingAudit(OSError("disk full"), only="outcome")
    if declared is not None:
        registry.declare("host:event", gate=declared)
    registry.on("host:event", lambda event, data: HookResult.inject("look"), name="looks")
    registry.on("host:event", lambda event, data: HookResult.ask(), name="asks")
    session = SessionCoordinator(hooks=registry, context=context, audit=audit)
    stopped = declared is not False
    outcome = await session.emit("host:event", {})
    assert (outcome.denied, outcome.cause) == (stopped, "audit_unavailable" if stopped else None)
    assert context.texts == ([] if stopped else ["⟦hook looks · mark⟧\nlook"])
    audit.error = None
    assert (await session.emit("host:event", {})).denied is stopped  # there is no approver to ask
    await session.close()
    assert (await session.emit("host:event", {})).cause == ("session_cancelled" if stopped else None)


@pytest.mark.rule("EVT-2")
async def test_ids() -> None:
    """Every event and every call has an id of its own, also in sessions of the same name."""
    registry, told = HookRegistry(), list[str]()
    registry.observe("*", lambda event, data, outcome: told.append(data["event_id"]))
    registry.observe("tool:pre", lambda event, data, outcome: told.append(data["tool_call_id"]))
    for session in (SessionCoordinator(registry, session_id="same"), SessionCoordinator(registry, session_id="same")):
        for _ in range(3):
            await session.call_tool("Read", {}, lambda _: 1)
    assert len(told) == len(set(told)) == 2 * 3 * 3


# -- trust -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("INJ-1", "TRU-1")
@pytest.mark.fault("F-INJ-06")
@pytest.mark.parametrize(
    ("event", "name", "heard"),
    [
        ("tool:post", "ours", True),
        ("tool:post", "theirs", True),
        ("llm:post", "ours", True),
        ("llm:post", "theirs", False),
        ("llm:post", "theirs for acme", False),
        ("session:end", "ours", False),
        ("host:event", "theirs", True),
    ],
)
async def test_who_is_heard(event: str, name: str, heard: bool) -> None:
    """A text is injected only at an event that accepts texts from that hook; the rest of the answer counts always."""
    registry, context = HookRegistry(), RecordingContext()
    audit, display = CollectingAudit(), CollectingDisplay()
    registry.on("tool:pre", lambda event, data: None, name="ours")
    registry.scope("them").on("tool:pre", lambda event, data: None, name="theirs")
    registry.scope("them", tenant="acme").on("tool:pre", lambda event, data: None, name="theirs for acme")
    session = SessionCoordinator(hooks=registry, context=context, audit=audit, display=display)
    answer = HookResult.modify({"response": 1}, context_injection="look", user_message="told")
    assert (await session.process_hook_result(answer, event, name)).data == {"response": 1}
    assert ("told", "info", f"hook:{name}") in display.messages
    assert len(context.texts) == len(audit.facts("injection")) == heard
    assert len(audit.facts("injection.refused")) == (not heard)


@pytest.mark.rule("INJ-1", "INJ-6")
async def test_whose_voice_it_is() -> None:
    """The least trusted attribute of a hook sets its trust level; hooks that share a name have the lowest level."""
    registry = HookRegistry()
    standings = dict.fromkeys(["ours", "granted", "plugin", "tenant", "data", "far", "shared"], "")

    class Far:
        origin = "https://hooks.example/"

        async def __call__(self, event: str, data: Any) -> None: ...

    def quiet(event: str, data: Any) -> None: ...

    registry.on("tool:pre", quiet, name="ours")
    registry.scope("p", permissions={"privileged_hooks"}).on("tool:pre", quiet, name="granted")
    registry.scope("p").on("tool:pre", quiet, name="plugin")
    registry.on("tool:pre", quiet, name="tenant", tenant="acme")
    registry.on("tool:pre", quiet, name="data", source="definition")
    registry.on("tool:pre", Far(), name="far", tenant="acme")
    registry.on("tool:pre", quiet, name="shared")
    registry.on("tool:post", quiet, name="shared", tenant="acme")
    for name in standings:
        voice = registry.source_trust(name, "tool:pre")
        standings[name] = voice.trust_level
        assert voice.instructs == registry.may_instruct(name) == (name == "ours")
        assert voice.origin == ("https://hooks.example/" if name == "far" else "")
    assert list(standings.values()) == [
        "built-in", "trusted", "plugin", "tenant", "definition", "external", "tenant",
    ]  # fmt: skip
    assert registry.source_trust("unknown", "tool:pre").trust_level == "built-in"
