"""Agents, steps and other operations: changes by hooks, and ways to stop them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.session.operations import StepOutcome
from amplifier_hooks.testing import CollectingAudit, RecordingContext, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    CallNext = Callable[[], Awaitable[Any]]


def never(*_args: Any) -> None:
    """Fail: this operation must not run."""
    pytest.fail("it ran")


def both(inputs: Any, prompt: str | None = None) -> tuple[Any, str | None]:
    """Return the agent's inputs and system prompt."""
    return inputs, prompt


def stopping(operation: str, event: str, way: str) -> HookRegistry:
    """Return a registry that stops an operation in one of the possible ways."""
    registry = HookRegistry()

    async def around(context: Any, call_next: CallNext) -> None:
        if way == "raises":
            raise HookAbortError("used up")
        context.abort, context.abort_reason = True, "used up"

    if way == "denies":
        registry.gate(event, lambda event, data: HookResult.deny("used up"), name="quota")
    else:
        registry.around(operation, around, name="quota")
    return registry


WAYS = pytest.mark.parametrize("way", ["denies", "raises", "flags"])


# -- agents ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-7", "EVT-8")
async def test_agent() -> None:
    """An agent gets its inputs and system prompt, and hooks see all facts before and after."""
    registry = HookRegistry()
    told: list[Any] = []
    registry.observe("agent:*", lambda event, data, outcome: told.append(data))
    session = SessionCoordinator(hooks=registry)

    async def call(inputs: Any, prompt: str | None) -> str:
        return f"{prompt} {inputs['task']}"

    result = await session.invoke_agent(
        "coder", {"task": "x"}, call, system_prompt="do", model="m", definition={"a": 1}
    )
    assert result == "do x"
    for data in told:
        assert (data["agent_name"], data["inputs"], data["system_prompt"]) == ("coder", {"task": "x"}, "do")
        assert (data["model"], data["agent_definition"]) == ("m", {"a": 1})
    assert told[1]["result"] == "do x"
    assert told[1]["duration_ms"] >= 0


@pytest.mark.rule("COO-7", "REG-12")
async def test_agent_is_changed_by_hooks() -> None:
    """Inputs and system prompt are those that the pre event left, and then the around hooks."""
    registry = HookRegistry()
    registry.on("agent:pre", lambda event, data: HookResult.modify({"inputs": {"n": 2}, "system_prompt": "pre"}))
    seen: list[Any] = []

    @registry.around("agent")
    async def layer(context: Any, call_next: CallNext) -> None:
        seen.append((context.agent_name, context.inputs, context.system_prompt, context.model))
        context.inputs, context.system_prompt = {"n": 3}, "around"
        await call_next()

    session = SessionCoordinator(hooks=registry)
    mine = {"n": 1}
    assert await session.invoke_agent("coder", mine, both) == ({"n": 3}, "around")
    assert seen == [("coder", {"n": 2}, "pre", None)]
    assert mine == {"n": 1}


@pytest.mark.rule("COO-7", "REG-12")
async def test_what_an_agent_is_cannot_be_changed() -> None:
    """Name, definition and model are not for hooks to change, before it or around it."""
    registry = HookRegistry()
    registry.on("agent:pre", lambda event, data: HookResult.modify({"model": "bigger"}))

    @registry.around("agent")
    async def layer(context: Any, call_next: CallNext) -> None:
        with pytest.raises(AttributeError):
            context.agent_name = "other"
        await call_next()

    told: list[Any] = []
    registry.observe("agent:post", lambda event, data, outcome: told.append((data["agent_name"], data["model"])))
    await SessionCoordinator(hooks=registry).invoke_agent("coder", {}, both, model="small")
    assert told == [("coder", "small")]


@pytest.mark.rule("COO-7")
@pytest.mark.parametrize("operation", ["agent", "workflow"])
async def test_inputs_are_replaced_by_nonsense(operation: str) -> None:
    """A hook that replaces the inputs by a value other than a mapping stops the operation."""
    registry = HookRegistry()
    registry.on(f"{operation}:pre", lambda event, data: HookResult.modify({"inputs": [1]}))
    session = SessionCoordinator(hooks=registry)
    if operation == "agent":
        with pytest.raises(HookAbortError, match="inputs was an object, and a hook replaced it by a list"):
            await session.invoke_agent("coder", {}, never)
    else:
        assert (await session.run_step("flow", "one", {}, never)).status == "failed"


@pytest.mark.rule("COO-7", "REG-6")
@WAYS
async def test_agent_is_stopped(way: str) -> None:
    """An agent that a hook stops, in any way, raises HookAbortError with hook and reason, and is on record."""
    audit, told = CollectingAudit(), []
    registry = stopping("agent", "agent:pre", way)
    registry.observe("agent:post", lambda event, data, outcome: told.append(event))
    session = SessionCoordinator(hooks=registry, audit=audit)
    with pytest.raises(HookAbortError) as caught:
        await session.invoke_agent("coder", {}, never)
    assert (caught.value.reason, caught.value.hook) == ("used up", "quota")
    assert [(facts["by"], facts["reason"]) for facts in audit.facts("agent.denied")] == [("quota", "used up")]
    assert told == []


@pytest.mark.rule("COO-7", "RES-7")
async def test_denied_agent_injects_nothing() -> None:
    """An injection into an invocation that is denied does not reach the context."""
    registry, context = HookRegistry(), RecordingContext()
    registry.gate("agent:pre", lambda event, data: HookResult.deny("no", context_injection="psst"))
    with pytest.raises(HookAbortError):
        await SessionCoordinator(hooks=registry, context=context).invoke_agent("coder", {}, never)
    assert context.messages == []


@pytest.mark.rule("COO-7")
@pytest.mark.parametrize(("answer", "runs"), [("Allow", True), ("Deny", False)])
async def test_agent_is_asked_about(answer: str, runs: bool) -> None:
    """An agent that a hook asks about runs if an approver allows it."""
    registry, approver = HookRegistry(), ScriptedApprover(answer)
    registry.gate("agent:pre", lambda event, data: HookResult.ask("Start it?"), name="asker")
    session = SessionCoordinator(hooks=registry, approvals=approver)
    if runs:
        assert await session.invoke_agent("coder", {"n": 1}, both) == ({"n": 1}, None)
    else:
        with pytest.raises(HookAbortError, match="User denied: Start it"):
            await session.invoke_agent("coder", {"n": 1}, never)
    assert approver.requests[0].arguments["inputs"] == {"n": 1}


@pytest.mark.rule("COO-7")
async def test_post_observes() -> None:
    """At the post event hooks see the result and cannot change it; a denial there undoes nothing."""
    registry = HookRegistry()
    registry.on("agent:post", lambda event, data: HookResult.modify({"result": "mine"}))
    registry.on("agent:post", lambda event, data: HookResult.deny("too late"))
    assert await SessionCoordinator(hooks=registry).invoke_agent("coder", {}, lambda *_: "its own") == "its own"


@pytest.mark.rule("COO-7")
@pytest.mark.parametrize("operation", ["agent", "workflow", "memory"])
async def test_call_raises(operation: str) -> None:
    """The operation's own exception is raised unchanged, after its post event has reported the failure."""
    registry, told, error = HookRegistry(), list[Any](), LookupError("x")
    registry.observe("*", lambda event, data, outcome: told.append((event, data)))
    session = SessionCoordinator(hooks=registry)

    def broken(*_args: Any) -> None:
        raise error

    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "agent": lambda: session.invoke_agent("coder", {}, broken),
        "workflow": lambda: session.run_step("flow", "one", {}, broken),
        "memory": lambda: session.operation("memory", {"content": "x"}, broken),
    }
    with pytest.raises(LookupError) as caught:
        await ways[operation]()
    assert caught.value is error
    assert [event for event, _ in told] == [f"{operation}:pre", f"{operation}:post"]
    _, data = told[1]
    assert (data["status"], data["result"]) == ("failed", None)
    assert data["error"] == {"type": "LookupError", "message": "x"}
    assert data["duration_ms"] > 0


@pytest.mark.rule("RES-7")
@pytest.mark.parametrize("operation", ["agent", "workflow"])
async def test_injection_of_what_is_denied(operation: str) -> None:
    """An injection into a denied operation stands in the denial, and nowhere else."""
    registry, context = HookRegistry(), RecordingContext()
    registry.gate(f"{operation}:pre", lambda event, data: HookResult.deny("no", context_injection="ask Robin"))
    session = SessionCoordinator(hooks=registry, context=context)
    if operation == "agent":
        with pytest.raises(HookAbortError) as caught:
            await session.invoke_agent("coder", {}, never)
        reason = caught.value.reason
    else:
        step = await session.run_step("flow", "one", {}, never)
        reason = (step.error or "").removeprefix("Hook aborted: ")
    assert reason.startswith("no\n\n⟦hook ")
    assert reason.endswith("⟧\nask Robin")
    assert context.texts == []


@pytest.mark.rule("COO-7")
async def test_cancelled() -> None:
    """Cancelling an invocation cancels the agent, and emits no post event."""
    running, ended = asyncio.Event(), []

    async def call(inputs: Any, prompt: str | None) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("agent")

    task = asyncio.create_task(SessionCoordinator().invoke_agent("coder", {}, call))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["agent"]


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-7", "REG-12")
async def test_step() -> None:
    """A step runs with the inputs the hooks left, once for all its retries, and completes with its result."""
    registry = HookRegistry()
    told: list[str] = []
    registry.observe("workflow:*", lambda event, data, outcome: told.append(event))
    registry.on("workflow:pre", lambda event, data: HookResult.modify({"inputs": {"n": 2}}))

    @registry.around("workflow")
    async def layer(context: Any, call_next: CallNext) -> None:
        assert (context.workflow_name, context.step_id, context.step_action) == ("flow", "one", "build")
        context.inputs = {"n": context.inputs["n"] + 1}
        await call_next()

    async def retrying(inputs: Any) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return int(inputs["n"])

    session = SessionCoordinator(hooks=registry)
    outcome = await session.run_step("flow", "one", {"n": 1}, retrying, action="build")
    assert outcome == StepOutcome(status="completed", result=3)
    assert told == ["workflow:pre", "workflow:post"]


@pytest.mark.rule("COO-7")
@WAYS
async def test_step_is_stopped(way: str) -> None:
    """A step that a hook stops has failed, with the hook's words as its error."""
    session = SessionCoordinator(hooks=stopping("workflow", "workflow:pre", way))
    outcome = await session.run_step("flow", "one", {}, never)
    assert outcome == StepOutcome(status="failed", error="Hook aborted: used up")


@pytest.mark.rule("COO-7")
async def test_denied_without_a_reason() -> None:
    """The error of a step that is denied without a reason names the hook."""
    registry = HookRegistry()
    registry.gate("workflow:pre", lambda event, data: HookResult.deny(), name="guard")
    outcome = await SessionCoordinator(hooks=registry).run_step("flow", "one", {}, never)
    assert outcome.error == "Hook aborted: denied by guard"


@pytest.mark.rule("COO-7", "REG-12")
async def test_state_is_a_snapshot() -> None:
    """Hooks see the state as it was when the step began, and cannot change the host's through it."""
    registry = HookRegistry()
    state: dict[str, Any] = {"done": ["a"]}
    seen: list[Any] = []

    def reach_in(event: str, data: Any) -> None:
        data["state"]["done"].append("b")

    registry.on("workflow:pre", reach_in)

    @registry.around("workflow")
    async def layer(context: Any, call_next: CallNext) -> None:
        await call_next()
        seen.append(context.state["done"])

    session = SessionCoordinator(hooks=registry)
    await session.run_step("flow", "one", {}, lambda inputs: state["done"].append("mine"), state=state)
    assert state == {"done": ["a", "mine"]}
    assert "mine" not in seen[0]


@pytest.mark.rule("REG-12")
async def test_state_that_cannot_be_copied() -> None:
    """A state that cannot be copied is shown as it is, and stops nothing."""
    outcome = await SessionCoordinator().run_step("flow", "one", {}, lambda inputs: 1, state={"lock": Lock()})
    assert outcome.status == "completed"


@pytest.mark.rule("COO-7")
async def test_step_that_runs_an_agent() -> None:
    """A step that runs an agent passes the hooks of both, the agent's inside the step's."""
    registry = HookRegistry()
    told: list[str] = []
    registry.observe("*", lambda event, data, outcome: told.append(event))
    session = SessionCoordinator(hooks=registry)

    async def step(inputs: Any) -> Any:
        return await session.invoke_agent("coder", inputs, both)

    outcome = await session.run_step("flow", "one", {"n": 1}, step)
    assert outcome.result == ({"n": 1}, None)
    assert told == ["workflow:pre", "agent:pre", "agent:post", "workflow:post"]


@pytest.mark.rule("COO-7")
async def test_step_whose_agent_is_stopped() -> None:
    """A step whose agent a hook stops has failed like a step that a hook stops."""
    session = SessionCoordinator(hooks=stopping("agent", "agent:pre", "denies"))

    async def step(inputs: Any) -> Any:
        return await session.invoke_agent("coder", inputs, never)

    outcome = await session.run_step("flow", "one", {}, step)
    assert outcome == StepOutcome(status="failed", error="Hook aborted: used up")


# -- anything else -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-7", "REG-12")
async def test_memory() -> None:
    """Storing something passes its hooks: content may be replaced, the key may not."""
    registry = HookRegistry()
    registry.on("memory:pre", lambda event, data: HookResult.modify({"content": data["content"].strip()}))

    @registry.around("memory")
    async def layer(context: Any, call_next: CallNext) -> None:
        assert context.key == "k"
        context.content = context.content.upper()
        await call_next()

    stored: dict[str, Any] = {}
    told: list[Any] = []
    registry.observe("memory:post", lambda event, data, outcome: told.append(data["result"]))
    session = SessionCoordinator(hooks=registry)

    def store(data: Any) -> str:
        stored[data["key"]] = data["content"]
        return "ok"

    assert await session.operation("memory.store.pre", {"content": " x ", "key": "k"}, store) == "ok"
    assert stored == {"k": "X"}
    assert told == ["ok"]


@pytest.mark.rule("COO-7")
async def test_data_named_like_what_layers_share() -> None:
    """Data with the name of a field that the layers share stays data: it stops nothing and passes unchanged."""
    registry = HookRegistry()

    @registry.around("memory")
    async def layer(context: Any, call_next: CallNext) -> None:
        assert (context.abort, context.metadata, context.result) == (False, {}, None)
        await call_next()

    given = {"content": "x", "metadata": {"who": "me"}, "abort": True, "result": 7, "event_type": "odd", "own": 1}
    assert await SessionCoordinator(hooks=registry).operation("memory", given, lambda data: data) == given


@pytest.mark.rule("COO-7")
@WAYS
async def test_memory_is_stopped(way: str) -> None:
    """Any other operation that a hook stops raises HookAbortError."""
    session = SessionCoordinator(hooks=stopping("memory", "memory:pre", way))
    with pytest.raises(HookAbortError, match="used up"):
        await session.operation("memory", {"content": "x"}, never)


@pytest.mark.rule("COO-7", "COO-4")
@pytest.mark.parametrize(
    ("kind", "remedy"), [("tool", "call_tool"), ("llm:pre", "call_model"), ("nap", "nothing runs")]
)
async def test_not_an_operation(kind: str, remedy: str) -> None:
    """A kind without around hooks is refused, and so are tool and model calls, which have more steps."""
    with pytest.raises(InvalidRegistration, match=remedy):
        await SessionCoordinator().operation(kind, {}, never)


@pytest.mark.rule("COO-9")
async def test_session_is_cancelled_by_a_hook() -> None:
    """A hook that cancels its session and lets the operation pass does not let it run."""
    registry = HookRegistry()
    session = SessionCoordinator(hooks=registry)
    registry.on("memory:pre", lambda event, data: session.cancel("enough"))
    with pytest.raises(HookAbortError, match="enough"):
        await session.operation("memory", {"content": "x"}, never)


OPERATED: dict[str, Callable[[SessionCoordinator, Callable[..., Any]], Awaitable[Any]]] = {
    "tool": lambda session, call: session.call_tool("Write", {}, call),
    "agent": lambda session, call: session.invoke_agent("coder", {}, call),
    "workflow": lambda session, call: session.run_step("build", "one", {}, call),
    "llm": lambda session, call: session.call_model(call, []),
}


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize("kind", OPERATED)
@pytest.mark.parametrize("fails", [False, True])
async def test_notes_of_the_first_event_are_at_the_last(kind: str, fails: bool) -> None:
    """A field that a hook sets before an operation is there after it, also after a question and after a failure."""
    registry, seen = HookRegistry(), list[Any]()
    registry.on(f"{kind}:pre", lambda event, data: HookResult.modify({"started": 5, "result": "forged"}), name="clock")
    registry.gate(f"{kind}:pre", lambda event, data: HookResult.ask("Really?"), name="guard")
    for last in (f"{kind}:post", "tool:error"):
        registry.observe(last, lambda event, data, outcome: seen.append((data["started"], data.get("result"))))

    def call(*_given: Any) -> str:
        if fails:
            raise OSError("broken")
        return "done"

    async with SessionCoordinator(registry, approvals=ScriptedApprover("Allow")) as session:
        with suppress(OSError):
            await OPERATED[kind](session, call)
    if kind == "llm" and fails:
        assert seen == []  # no event follows a model call that failed
    else:
        assert [one[0] for one in seen] == [5]
        assert seen[0][1] in ("done", None, *(["forged"] if kind == "llm" else []))


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize("kind", OPERATED)
@pytest.mark.parametrize("around", [False, True])
async def test_no_metadata_where_no_hook_set_any(kind: str, around: bool) -> None:
    """The last event of an operation has no `metadata` where no hook wrote in it."""
    registry, seen = HookRegistry(), list[bool]()
    if around:

        @registry.around(f"{kind}:pre")
        async def between(context: Any, call_next: Any) -> Any:
            return await call_next()

    registry.observe(f"{kind}:post", lambda event, data, outcome: seen.append("metadata" in data))
    async with SessionCoordinator(registry) as session:
        await OPERATED[kind](session, lambda *_given: "done")
    assert seen == [False]


@pytest.mark.rule("EVT-8", "REG-12")
@pytest.mark.parametrize("kind", OPERATED)
async def test_metadata_is_shared_from_the_first_event_to_the_last(kind: str) -> None:
    """`metadata` of a hook at the first event is that of the layers around, and the last event has what they add."""
    registry, seen = HookRegistry(), list[Any]()
    registry.on(f"{kind}:pre", lambda event, data: HookResult.modify({"metadata": {"a": 1}}), name="first")

    @registry.around(f"{kind}:pre")
    async def between(context: Any, call_next: Any) -> Any:
        seen.append(dict(context.metadata))
        context.metadata["b"] = 2
        return await call_next()

    registry.observe(f"{kind}:post", lambda event, data, outcome: seen.append(data["metadata"]))
    async with SessionCoordinator(registry) as session:
        await OPERATED[kind](session, lambda *_given: "done")
        await OPERATED[kind](session, lambda *_given: "done")
    assert seen == [{"a": 1}, {"a": 1, "b": 2}] * 2
