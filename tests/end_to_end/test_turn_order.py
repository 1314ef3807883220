"""The events of a whole turn, in their order, as an observer of all events sees them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL_CALL = ["context:assembled", "llm:pre", "llm:post"]
END = ["orchestrator:complete", "prompt:complete"]
END_AND_NOTIFY = ["orchestrator:complete", "user:notification", "prompt:complete"]


class Watched:
    """A session with all its events, in order."""

    def __init__(self, **options: Any) -> None:
        self.registry = HookRegistry()
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.registry.observe("*", lambda event, data, outcome: self.told.append((event, data)))
        self.session = SessionCoordinator(self.registry, session_id="s1", **options)

    @property
    def events(self) -> list[str]:
        """Names of the events."""
        return [event for event, _ in self.told]

    def data(self, event: str) -> Mapping[str, Any]:
        """Return the last payload of this event."""
        return [data for name, data in self.told if name == event][-1]

    async def asks_the_model(self, *tools: str) -> Any:
        """Make one model call, whose answer calls these tools."""
        return await self.session.call_model(
            lambda messages: {"tools": list(tools)}, tool_calls=lambda response: response["tools"]
        )

    async def uses(self, tool: str, error: Exception | None = None) -> Any:
        """Make one tool call that returns or raises."""

        async def call(given: Any) -> str:
            await asyncio.sleep(0)
            if error is not None:
                raise error
            return "done"

        return await self.session.call_tool(tool, {}, call)


@pytest.mark.rule("EVT-6", "EVT-7")
async def test_a_complete_turn() -> None:
    """Prompt, model, tools, model, the orchestrator's end, and last of all that the prompt is complete."""
    watched = Watched()
    async with watched.session as session, session.turn("go") as turn:
        await watched.asks_the_model("Read", "Write")
        await watched.uses("Read")
        await watched.uses("Write")
        await watched.asks_the_model()
        turn.response = "all done"
    tool = ["tool:pre", "tool:post"]
    assert watched.events == [
        "session:start",
        "prompt:submit",
        *[*MODEL_CALL, "decision:tool_resolution", *tool, *tool],
        *MODEL_CALL,
        *END,
        "session:end",
    ]
    assert watched.data("decision:tool_resolution")["tool_calls"] == ["Read", "Write"]
    assert watched.data("prompt:complete")["response"] == "all done"


@pytest.mark.rule("EVT-6", "COO-3")
async def test_tool_that_returns_at_once() -> None:
    """The start of a tool that never waits is emitted before its result, and before any event of the tool itself."""
    watched = Watched()

    async def call(given: Any) -> None:
        await watched.session.emit("host:inside", {})

    await watched.session.call_tool("Read", {}, call)
    assert watched.events == ["tool:pre", "host:inside", "tool:post"]


@pytest.mark.rule("EVT-6")
async def test_a_tool_error() -> None:
    """A tool that raises emits tool:error in place of tool:post, and error:tool."""
    watched = Watched()
    async with watched.session.turn("go"):
        await watched.asks_the_model("Write")
        await watched.uses("Write", ValueError("disk full"))
        await watched.asks_the_model()
    tool = ["tool:pre", "tool:error", "error:tool"]
    assert watched.events == [
        "prompt:submit", *MODEL_CALL, "decision:tool_resolution", *tool, *MODEL_CALL, *END,
    ]  # fmt: skip
    for event in ("tool:error", "error:tool"):
        assert watched.data(event)["error"] == {"type": "ValueError", "message": "disk full"}
        assert watched.data(event)["tool_name"] == "Write"


@pytest.mark.rule("EVT-6")
async def test_a_provider_error() -> None:
    """A provider that raises emits error:provider in place of llm:post, and the turn goes on."""
    watched = Watched()

    def broken(messages: list[Any]) -> None:
        raise ConnectionError("503")

    async with watched.session.turn("go"):
        outcome = await watched.session.call_model(broken)
    assert isinstance(outcome.error, ConnectionError)
    assert watched.events == ["prompt:submit", "context:assembled", "llm:pre", "error:provider", *END]
    assert watched.data("error:provider")["error"] == {"type": "ConnectionError", "message": "503"}


@pytest.mark.rule("EVT-6")
async def test_an_orchestrator_error() -> None:
    """An exception of the turn's body emits error:orchestrator, ends the turn as an error, and notifies the user."""
    watched = Watched()
    with pytest.raises(LookupError):
        async with watched.session.turn("go"):
            raise LookupError("no such plan")
    assert watched.events == ["prompt:submit", "error:orchestrator", *END_AND_NOTIFY]
    assert watched.data("error:orchestrator")["error"] == {"type": "LookupError", "message": "no such plan"}
    assert watched.data("orchestrator:complete")["status"] == "error"


@pytest.mark.rule("EVT-6")
async def test_a_denied_prompt() -> None:
    """Of a denied prompt nothing runs, the turn still ends in order, and the user is notified."""
    watched = Watched()
    watched.registry.gate("prompt:submit", lambda event, data: HookResult.deny("off hours"), name="clock")
    async with watched.session.turn("go") as turn:
        assert turn.denied
        assert (await watched.asks_the_model()).denied
        assert (await watched.uses("Read")).denied
        with pytest.raises(HookAbortError):
            await watched.session.invoke_agent("helper", {}, lambda inputs, prompt: None)
    assert watched.events == ["prompt:submit", *END_AND_NOTIFY]
    assert watched.data("orchestrator:complete")["status"] == "denied"
    assert "off hours" in watched.data("user:notification")["message"]


@pytest.mark.rule("EVT-6", "COO-9")
async def test_a_cancelled_session() -> None:
    """A turn that its session cancelled ends in order, without a notification of the user."""
    watched = Watched()
    async with watched.session.turn("go"):
        await watched.asks_the_model("Read")
        await watched.session.cancel("enough")
        await watched.uses("Read")
    assert watched.events == [
        "prompt:submit",
        *[*MODEL_CALL, "decision:tool_resolution"],
        *["cancel:requested", "cancel:completed"],
        *END,
    ]
    assert watched.data("orchestrator:complete")["status"] == "cancelled"
    assert watched.data("cancel:requested")["reason"] == "enough"


@pytest.mark.rule("EVT-6")
async def test_a_cancelled_task() -> None:
    """When the host's task is cancelled inside a turn, the turn's end is emitted before the cancellation goes on."""
    watched = Watched()
    inside = asyncio.Event()

    async def work() -> None:
        async with watched.session.turn("go"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert watched.events == ["prompt:submit", *END]
    assert watched.data("orchestrator:complete")["status"] == "cancelled"


@pytest.mark.rule("EVT-6", "COO-9")
async def test_a_sub_agent() -> None:
    """A sub-agent's turn stands inside the tool call that started it, and names its agent."""
    watched = Watched()

    async def agent(given: Any) -> str:
        async with watched.session.child("reviewer") as reviewer, reviewer.turn("review"):
            await reviewer.call_tool("Read", {}, lambda _: "text")
        return "fine"

    await watched.session.call_tool("Task", {}, agent)
    assert watched.events == [
        "tool:pre",
        *["session:fork", "prompt:submit", "tool:pre", "tool:post", *END, "session:end"],
        "tool:post",
    ]
    assert [data.get("parent_id") for _, data in watched.told] == [None, *["s1"] * 7, None]


@pytest.mark.rule("EVT-2", "EVT-8")
async def test_every_payload() -> None:
    """Every event of a turn says where and when, and holds what the catalogue promises for it."""
    watched = Watched(tenant="acme", agent="coder", run_id="r1")
    watched.registry.on("prompt:submit", lambda event, data: None)

    async def turn() -> None:
        async with session.turn("go"):
            await watched.asks_the_model("Read")
            await watched.uses("Read")
            await watched.uses("Read", ValueError("x"))
            await session.invoke_agent("helper", {"task": "x"}, lambda inputs, prompt: "ok")
            await session.run_step("flow", "one", {}, lambda inputs: "ok", state={"n": 1})
            await session.operation("memory", {"content": "x", "key": "k"}, lambda data: "ok")
            await session.cancel("enough")
            raise LookupError

    async with watched.session as session:
        with pytest.raises(LookupError):
            await turn()
        async with session.child("reviewer"):
            pass
    assert len(set(watched.events)) >= 20
    for event, data in watched.told:
        watched.registry.payload_model(event).model_validate(dict(data))
        assert data["tenant_id"] == "acme"
        assert data["run_id"] == "r1"
        assert datetime.fromisoformat(data["timestamp"]).utcoffset() == timedelta(0)
        mine = data["session_id"] == "s1"
        assert data["agent"] == ("coder" if mine else "coder › reviewer")
        assert data.get("parent_id") == (None if mine else "s1")
        assert data["turn"] == (0 if not mine or event == "session:start" else 1)
    assert len({data["event_id"] for _, data in watched.told}) == len(watched.told)


@pytest.mark.rule("EVT-2")
async def test_who_and_where_cannot_be_made_up() -> None:
    """A host cannot set the session or the tenant of an event that it emits."""
    watched = Watched(tenant="acme")
    await watched.session.emit("host:event", {"session_id": "other", "tenant_id": "evil", "parent_id": "x", "own": 1})
    data = watched.data("host:event")
    assert (data["session_id"], data["tenant_id"], data["own"]) == ("s1", "acme", 1)
