"""A turn: its prompt, the effect of a denied prompt, and its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import HookAbortError
from amplifier_hooks.injection.budget import INJECTION_BUDGET_PER_TURN
from amplifier_hooks.testing import CollectingAudit, RecordingContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def never(*_args: Any) -> None:
    """Fail: this operation must not run."""
    pytest.fail("it ran")


def unstreamed(_messages: list[Any]) -> AsyncIterator[Any]:
    """Fail: this stream must not be opened."""
    pytest.fail("it was opened")


def denying(event: str, reason: str | None = "no", name: str = "guard") -> HookRegistry:
    """Return a registry with one gate that denies."""
    registry = HookRegistry()
    registry.gate(event, lambda event, data: HookResult.deny(reason), name=name)
    return registry


# -- the prompt --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("EVT-8", "COO-3")
async def test_prompt_is_replaced() -> None:
    """The prompt as a hook replaced it is the turn's prompt, also when the turn is complete."""
    registry = HookRegistry()
    registry.on("prompt:submit", lambda event, data: HookResult.modify({"prompt": data["prompt"] + ", please"}))
    told: list[str] = []
    registry.observe("prompt:complete", lambda event, data, outcome: told.append(data["prompt"]))
    async with SessionCoordinator(hooks=registry).turn("go") as turn:
        assert turn.prompt == "go, please"
    assert told == ["go, please"]


@pytest.mark.rule("EVT-8")
async def test_prompt_is_replaced_by_nonsense() -> None:
    """A prompt that a hook replaced by a value other than a text is denied."""
    registry = HookRegistry()
    registry.on("prompt:submit", lambda event, data: HookResult.modify({"prompt": None}))
    async with SessionCoordinator(hooks=registry).turn("go") as turn:
        assert turn.denied
        assert turn.prompt == "go"
        assert turn.reason == "a hook replaced the prompt by something of type NoneType"


@pytest.mark.rule("COO-3", "RES-6")
@pytest.mark.parametrize("reason", ["off hours", None])
async def test_nothing_runs_after_a_denied_prompt(reason: str | None) -> None:
    """No model, stream, tool, agent, step or operation runs in the turn, and each names the reason."""
    session = SessionCoordinator(hooks=denying("prompt:submit", reason), tools={"Read": never})
    said = "the prompt was denied by guard" + (f": {reason}" if reason else "")
    async with session.turn("go") as turn:
        assert (turn.denied, turn.reason) == (True, reason)
        model = await session.call_model(never)
        stream = session.stream_model(unstreamed)
        assert [piece async for piece in stream] == []
        tool = await session.call_tool("Read", {}, never)
        own = await session.execute_tool("Read", {})
        for outcome in (model, stream.outcome, tool, own):
            assert outcome is not None
            assert (outcome.denied, outcome.by) == (True, "session")
            assert outcome.reason == f"Operation denied by session: {said}"
        with pytest.raises(HookAbortError, match="the prompt was denied"):
            await session.invoke_agent("helper", {}, never)
        with pytest.raises(HookAbortError, match="the prompt was denied"):
            await session.operation("memory", {"content": "x"}, never)
        step = await session.run_step("flow", "one", {}, never)
        assert step.error == f"Hook aborted: {said}"
        async with session.child("helper") as child:
            assert (await child.call_tool("Read", {}, never)).denied


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize("way", ["turn", "reset_turn"])
async def test_next_turn_begins_afresh(way: str) -> None:
    """A denied prompt denies its own turn, and no other."""
    registry = denying("prompt:submit")
    session = SessionCoordinator(hooks=registry)
    async with session.turn("one"):
        assert (await session.call_tool("Read", {}, never)).denied
    registry.disable("guard")
    if way == "reset_turn":
        session.reset_turn()
        assert (await session.call_tool("Read", {}, lambda _: 1)).ok
        return
    async with session.turn("two") as turn:
        assert not turn.denied
        assert (await session.call_tool("Read", {}, lambda _: 1)).ok


@pytest.mark.rule("COO-2")
async def test_prompt_injection_is_in_the_context() -> None:
    """A hook's injection at the prompt is in the context before the model is called in that turn."""
    registry = HookRegistry()
    registry.on("prompt:submit", lambda event, data: HookResult.inject("the branch is main"), name="git")
    context = RecordingContext()
    session = SessionCoordinator(hooks=registry, context=context)
    async with session.turn("go"):
        seen = (await session.call_model(lambda messages: [message.content for message in messages])).value
    assert len(seen) == 1
    assert "the branch is main" in seen[0]


@pytest.mark.rule("INJ-3")
@pytest.mark.fault("F-INJ-08")
async def test_hook_that_injects_because_it_injected() -> None:
    """A hook that injects at every model call, and so makes the next one longer, is stopped by the turn's budget."""
    registry, audit = HookRegistry(), CollectingAudit()
    registry.on("context:assembled", lambda event, data: HookResult.inject(f"{len(data['messages'])} messages"))
    session = SessionCoordinator(hooks=registry, audit=audit)
    lengths: list[int] = []
    async with session.turn("go"):
        for _ in range(200):
            await session.call_model(lambda messages: lengths.append(len(messages)))
        assert 0 < session.tokens_this_turn <= INJECTION_BUDGET_PER_TURN
    assert 1 <= lengths[0] < lengths[-1] == lengths[-2] < 200
    assert "injection.refused" in audit.kinds


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3")
async def test_status_of_a_turn() -> None:
    """A turn reports its number, its orchestrator and its duration."""
    registry = HookRegistry()
    told: list[Any] = []
    registry.observe("orchestrator:complete", lambda event, data, outcome: told.append(data))
    session = SessionCoordinator(hooks=registry, agent="coder")
    async with session.turn("one"):
        pass
    async with session.turn("two", orchestrator="loop"):
        pass
    assert [(data["turn_count"], data["orchestrator"], data["status"]) for data in told] == [
        (1, "coder", "completed"),
        (2, "loop", "completed"),
    ]
    assert all(data["duration_ms"] >= 0 for data in told)


@pytest.mark.rule("EVT-6")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
async def test_ended_from_outside(error: BaseException) -> None:
    """A turn that the program's end interrupts was cancelled; the orchestrator did not fail."""
    registry = HookRegistry()
    told: list[tuple[str, Any]] = []
    registry.observe("*", lambda event, data, outcome: told.append((event, data.get("status"))))
    with pytest.raises(type(error)):
        async with SessionCoordinator(hooks=registry).turn("go"):
            raise error
    assert told == [("prompt:submit", None), ("orchestrator:complete", "cancelled"), ("prompt:complete", None)]


@pytest.mark.rule("EVT-6")
async def test_host_generator_is_closed() -> None:
    """A turn inside an async generator that is closed early ends like any other."""
    registry = HookRegistry()
    told: list[str] = []
    registry.observe("*", lambda event, data, outcome: told.append(event))
    session = SessionCoordinator(hooks=registry)

    async def pieces() -> AsyncIterator[int]:
        async with session.turn("go"):
            yield 1
            yield 2

    generator = pieces()
    assert await anext(generator) == 1
    await generator.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert told == ["prompt:submit", "orchestrator:complete", "prompt:complete"]


@pytest.mark.rule("EVT-6")
async def test_cancelled_twice() -> None:
    """A second cancellation during the events at a turn's end ends those, too, and is not swallowed."""
    registry = HookRegistry()
    ending = asyncio.Event()

    async def slow(event: str, data: Any) -> None:
        ending.set()
        await asyncio.Event().wait()

    registry.on("orchestrator:complete", slow)
    session = SessionCoordinator(hooks=registry)
    inside = asyncio.Event()

    async def work() -> None:
        async with session.turn("go"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    await ending.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.rule("EVT-6")
async def test_body_that_raises_something_speechless() -> None:
    """An exception that cannot be turned into text leaves the turn like any other."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    registry = HookRegistry()
    told: list[Any] = []
    registry.observe("error:orchestrator", lambda event, data, outcome: told.append(data["error"]))
    with pytest.raises(Mute):
        async with SessionCoordinator(hooks=registry).turn("go"):
            raise Mute
    assert told == [{"type": "Mute", "message": ""}]


@pytest.mark.rule("EVT-7", "RES-6")
async def test_denial_after_the_fact() -> None:
    """A denial at prompt:complete undoes nothing and fails nothing; it is on record."""
    audit = CollectingAudit()
    session = SessionCoordinator(hooks=denying("onTurnComplete"), audit=audit)
    async with session.turn("go") as turn:
        turn.response = "done"
    assert turn.status == "completed"
    assert audit.facts("outcome")[-1]["denied_by"] == "guard"


@pytest.mark.rule("RES-6", "RES-7")
@pytest.mark.parametrize("event", ["agent:stop", "SubagentStop"])
async def test_agent_may_not_stop(event: str) -> None:
    """An agent that may not stop reads the reason and the hook's injection, and goes on."""
    registry = HookRegistry()
    answer = HookResult.deny("run the tests first", context_injection="use pytest")
    registry.on(event, lambda event, data: answer, name="tests")
    context = RecordingContext()
    outcome = await SessionCoordinator(hooks=registry, context=context).emit(event, {})
    assert (outcome.denied, outcome.reason) == (True, "run the tests first")
    assert [message.role for message in context.messages] == ["user", "system"]
    assert "run the tests first" in context.texts[0]
    assert "use pytest" in context.texts[1]


@pytest.mark.rule("RES-6", "AUD-3")
async def test_agent_may_stop_without_a_record() -> None:
    """A record that cannot be written does not set an agent going that wants to stop."""
    session = SessionCoordinator(audit=CollectingAudit(OSError("full")))
    assert not (await session.emit("agent:stop", {})).denied
