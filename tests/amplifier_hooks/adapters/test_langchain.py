"""LangChain beyond the story: further features of its agents."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import ConfigDict

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters import langchain as adapter
from amplifier_hooks.adapters.langchain import SessionMiddleware
from amplifier_hooks.errors import HookAbortError, HookUsageError
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from amplifier_hooks.result import Role

pytestmark = [pytest.mark.slow, pytest.mark.rule("DIA-3")]

ROBIN = Decider(name="Robin", channel="test")
THREAD: RunnableConfig = {"configurable": {"thread_id": "one"}}
GO: Any = {"messages": [HumanMessage("go")]}
ON: Any = Command(resume={"type": "approve"})


class Model(BaseChatModel):
    """A model that answers with these messages, one after the other, and keeps its input."""

    says: list[Any]
    read: list[str]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
        """Return the model, which knows the tools already."""
        return self

    def _generate(self, messages: list[BaseMessage], *_arguments: Any, **_options: Any) -> ChatResult:
        self.read.append(json.dumps([one.model_dump(mode="json") for one in messages]))
        said = self.says[len(self.read) - 1]
        calls = [{"name": "write", "args": {"path": path}, "id": f"call-{path}"} for path in said]
        message = AIMessage("", tool_calls=calls) if calls else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])


def saying(*says: Any) -> Model:
    """Return messages that write to these paths, and end at None."""
    return Model(says=list(says), read=[])


def a_tool(ran: list[str], **options: Any) -> StructuredTool:
    """Return a tool that keeps its arguments."""

    def write(path: str) -> str:
        """Write a file."""
        ran.append(path)
        return f"wrote {path}"

    return StructuredTool.from_function(write, **options)


def asking(*paths: str) -> HookRegistry:
    """Return a registry that asks about these tools."""
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.ask("Write it?", timeout=3600) if data["tool_input"]["path"] in paths else None

    return hooks


async def allow(approvals: DeferredApprovals) -> None:
    """Allow the one question that is open."""
    (waiting,) = await approvals.broker.pending(ROBIN)
    request = waiting.request
    await approvals.broker.decide(request.id, request.digest, request.options[0].id, ROBIN)


async def test_an_interruption_that_nobody_has_decided_about_comes_again(tmp_path: Path) -> None:
    """Resumed too early, the run is interrupted again, as often as need be; then the call runs, once."""
    ran: list[str] = []
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a"), approvals=approvals, approval_wait=0.01) as session,
    ):
        agent: Any = create_agent(
            saying(["a"], []), [a_tool(ran)], middleware=[SessionMiddleware(session)], checkpointer=InMemorySaver()
        )
        for given in (GO, ON, ON):
            result = await agent.ainvoke(given, THREAD)
            (interrupted,) = result["__interrupt__"]
            assert interrupted.value == {
                "type": "tool_approval",
                "tool_call_id": "call-a",
                "name": "write",
                "args": {"path": "a"},
                "description": "write waits for an approval",
                "request": (await approvals.broker.pending(ROBIN))[0].request.id,
            }
        await allow(approvals)
        result = await agent.ainvoke(ON, THREAD)
    assert ran == ["a"]
    assert result["messages"][-1].text == "done"


async def test_what_the_host_rejects_does_not_run(tmp_path: Path) -> None:
    """A rejection of the interruption ends the call, even if the session's approver has allowed it."""
    ran: list[str] = []
    model = saying(["a"], [])
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a"), approvals=approvals, approval_wait=0.01) as session,
    ):
        agent: Any = create_agent(
            model, [a_tool(ran)], middleware=[SessionMiddleware(session)], checkpointer=InMemorySaver()
        )
        await agent.ainvoke(GO, THREAD)
        await allow(approvals)
        result = await agent.ainvoke(Command(resume={"type": "reject", "message": "not now"}), THREAD)
    assert ran == []
    assert "not now" in model.read[1]
    (answer,) = [one for one in result["messages"] if one.type == "tool"]
    assert (answer.name, answer.status, answer.text) == ("write", "error", "not now")


@pytest.mark.rule("DIA-11")
async def test_two_calls_of_one_answer_under_one_id(tmp_path: Path) -> None:
    """Of two calls that a model gives one id, the approval of that act runs one, once."""
    ran: list[str] = []
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a"), approvals=approvals, approval_wait=0.0) as session,
    ):
        own: Any = [SessionMiddleware(session)]
        model = saying(["a", "a"], [])
        agent: Any = create_agent(model, [a_tool(ran)], middleware=own, checkpointer=InMemorySaver())
        waiting = await agent.ainvoke(GO, THREAD)
        await allow(approvals)
        on: Any = Command(resume={one.id: {"type": "approve"} for one in waiting["__interrupt__"]})
        await agent.ainvoke(on, THREAD)
    assert ran == ["a"]


@pytest.mark.rule("APR-12")
async def test_a_call_that_has_run_gets_its_result_again(tmp_path: Path) -> None:
    """An approved call that comes again under its id does not run again; the model reads the result that was kept."""
    ran: list[str] = []
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a"), approvals=approvals, approval_wait=0.01) as session,
    ):
        agent: Any = create_agent(
            saying(["a"], ["a"], []),
            [a_tool(ran)],
            middleware=[SessionMiddleware(session)],
            checkpointer=InMemorySaver(),
        )
        await agent.ainvoke(GO, THREAD)
        await allow(approvals)
        result = await agent.ainvoke(ON, THREAD)
    assert ran == ["a"]
    answers = [(one.name, one.tool_call_id, one.text) for one in result["messages"] if one.type == "tool"]
    assert answers == [("write", "call-a", "wrote a")] * 2


async def test_calls_beside_one_that_waits_run_once(tmp_path: Path) -> None:
    """Of several calls in one answer, those without a question run at once, and not again when the run goes on."""
    ran: list[str] = []
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("b"), approvals=approvals, approval_wait=0.01) as session,
    ):
        agent: Any = create_agent(
            saying(["a", "b", "c"], []),
            [a_tool(ran)],
            middleware=[SessionMiddleware(session)],
            checkpointer=InMemorySaver(),
        )
        await agent.ainvoke(GO, THREAD)
        assert sorted(ran) == ["a", "c"]
        await allow(approvals)
        await agent.ainvoke(ON, THREAD)
    assert sorted(ran) == ["a", "b", "c"]


@pytest.mark.rule("DIA-7")
async def test_an_approval_is_for_the_call_that_was_shown(tmp_path: Path) -> None:
    """A stored call that was changed before the run goes on does not run, because the approval was for another call."""
    ran: list[str] = []
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a", "z"), approvals=approvals, approval_wait=0.01) as session,
    ):
        agent: Any = create_agent(
            saying(["a"], []), [a_tool(ran)], middleware=[SessionMiddleware(session)], checkpointer=InMemorySaver()
        )
        result = await agent.ainvoke(GO, THREAD)
        await allow(approvals)
        asked = result["messages"][-1]
        changed = asked.model_copy(update={"tool_calls": [{**asked.tool_calls[0], "args": {"path": "z"}}]})
        await agent.aupdate_state(THREAD, {"messages": [changed]}, as_node="model")
        result = await agent.ainvoke(None, THREAD)
    assert ran == []
    assert "Operation denied" in result["messages"][-2].text


@pytest.mark.rule("DIA-7")
async def test_approvals_of_langchain_come_first() -> None:
    """A call that LangChain's own middleware has approved or edited is decided about here, too."""
    ran: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("not here") if data["tool_input"]["path"] == "edited" else None

    model = saying(["a"], ["b"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        own: Any = [HumanInTheLoopMiddleware({"write": True}), SessionMiddleware(session)]
        agent: Any = create_agent(model, [a_tool(ran)], middleware=own, checkpointer=InMemorySaver())
        await agent.ainvoke(GO, THREAD)
        edited = {"type": "edit", "edited_action": {"name": "write", "args": {"path": "edited"}}}
        await agent.ainvoke(Command(resume={"decisions": [edited]}), THREAD)
        assert "not here" in model.read[1]
        await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)
    assert ran == ["b"]


async def test_tools_of_the_provider_are_refused() -> None:
    """A model that is given a tool of its provider's is not called, unless the host has named the tool."""
    model = saying([], [])
    tools: Any = [{"type": "web_search"}]
    async with SessionCoordinator() as session:
        agent: Any = create_agent(model, tools, middleware=[SessionMiddleware(session)])
        with pytest.raises(HookUsageError, match="'web_search'"):
            await agent.ainvoke(GO)
        assert model.read == []
        agent = create_agent(model, tools, middleware=[SessionMiddleware(session, outside=["web_search"])])
        await agent.ainvoke(GO)
    assert len(model.read) == 1


async def test_tools_that_a_model_brings_along_are_refused() -> None:
    """A tool of the provider's that comes with the model or its settings is refused like one of the agent's."""

    class Settings(AgentMiddleware[Any, Any, Any]):
        """Middleware that adds a tool to the settings."""

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(model_settings={"tools": [{"type": "web_search"}]}))

    class Searching(Model):
        """A model that brings a tool along."""

        model_kwargs: dict[str, Any] = {"tools": [{"type": "web_search"}]}  # noqa: RUF012  # pydantic copies it

    plain, searching = saying([]), Searching(says=[[]], read=[])
    async with SessionCoordinator() as session:
        own = SessionMiddleware(session)
        for model, before in ((plain, [Settings()]), (searching, [])):
            agent: Any = create_agent(model, [a_tool([])], middleware=[*before, own])
            with pytest.raises(HookUsageError, match="'web_search'"):
                await agent.ainvoke(GO)
            assert model.read == []


@pytest.mark.rule("DIA-9")
@pytest.mark.parametrize("inside", ["field", "kwargs", "extra_body", "settings", "bound", "bound twice"])
async def test_tools_of_the_provider_by_other_names_are_refused(inside: str) -> None:
    """A setting that gives a model tools of its provider is refused by its name, wherever it is set."""

    class Serving(Model):
        """A model with the settings of a provider."""

        mcp_servers: Any = None
        model_kwargs: Any = None

    given: dict[str, Any] = {"mcp_servers": [{"type": "url", "url": "https://mcp.example", "name": "x"}]}
    name = "mcp_servers" if inside == "field" else "web_search_options"
    options = {
        "field": given,
        "kwargs": {"model_kwargs": {"web_search_options": {}}},
        "extra_body": {"model_kwargs": {"extra_body": {"web_search_options": {}}}},
    }.get(inside, {})
    model: Any = Serving(says=[[], []], read=[], **options)

    class Settings(AgentMiddleware[Any, Any, Any]):
        """Middleware that adds a setting."""

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            settings: dict[str, Any] = {"web_search_options": {}} if inside == "settings" else {}
            used = model.bind(web_search_options={}) if inside.startswith("bound") else model
            used = RunnableBinding(bound=used) if inside == "bound twice" else used
            return await handler(request.override(model=used, model_settings=settings))

    async with SessionCoordinator() as session:
        agent: Any = create_agent(model, [], middleware=[Settings(), SessionMiddleware(session)])
        with pytest.raises(HookUsageError, match=f"'{name}'"):
            await agent.ainvoke(GO)
        assert model.read == []
        agent = create_agent(model, [], middleware=[Settings(), SessionMiddleware(session, outside=[name])])
        await agent.ainvoke(GO)
    assert len(model.read) == 1


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("parts", [True, False])
async def test_the_text_of_an_error_can_be_changed(*, changed: bool, parts: bool) -> None:
    """The model reads an answer that is an error as the hooks left it, and to the byte if they left it alone."""
    hooks = HookRegistry()

    @hooks.on("tool:error", name="masks")
    async def masks(event: str, data: Mapping[str, Any]) -> HookResult | None:
        assert "hunter22" in data["error"]["message"]
        return HookResult.modify({"error": "masked"}) if changed else None

    content: Any = [{"type": "text", "text": "no hunter22"}] if parts else "no hunter22"

    def write(path: str) -> ToolMessage:
        """Write a file."""
        return ToolMessage(content, tool_call_id=f"call-{path}", status="error", artifact="hunter22")

    model = saying(["a"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write)]
        agent: Any = create_agent(model, tools, middleware=[SessionMiddleware(session)])
        result = await agent.ainvoke(GO)
    (answer,) = [one for one in result["messages"] if one.type == "tool"]
    assert (answer.status, answer.content) == ("error", "masked" if changed else content)
    assert answer.artifact == (None if changed else "hunter22")


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize("update", [dict, tuple])
@pytest.mark.parametrize("as_object", [True, False])
async def test_what_else_a_tool_updates_stays(update: Callable[[Any], Any], *, as_object: bool) -> None:
    """If a tool updates the agent's state, hooks see and replace its answer in there; the rest stays."""
    hooks = HookRegistry()
    seen: list[Any] = []

    @hooks.on("tool:post", name="masks")
    async def masks(event: str, data: Mapping[str, Any]) -> HookResult:
        seen.append(data["result"])
        return HookResult.modify({"result": {"masked": True}})

    def write(path: str) -> Command[Any]:
        """Write a file."""
        answer = {"role": "tool", "content": f"wrote {path}", "tool_call_id": f"call-{path}", "artifact": path}
        answers = convert_to_messages([answer]) if as_object else [answer]
        return Command(update=update([("messages", [*answers, HumanMessage("and more")])]))

    model = saying(["a"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write)]
        agent: Any = create_agent(model, tools, middleware=[SessionMiddleware(session)])
        result = await agent.ainvoke(GO)
    assert seen == ["wrote a"]
    (answer,) = [one for one in result["messages"] if one.type == "tool"]
    assert (answer.text, answer.artifact, answer.status) == ('{"masked": true}', None, "success")
    assert "and more" in model.read[1]


async def test_an_answer_that_is_an_error_is_told() -> None:
    """A tool whose error becomes its answer has failed for the hooks, and the model reads the answer."""
    seen: list[str] = []
    hooks = HookRegistry()

    @hooks.observe("tool:error", name="watch")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        seen.append(data["error"]["message"])

    def write(path: str) -> str:
        """Write a file."""
        raise ToolException("no room")

    model = saying(["a"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write, handle_tool_error=True)]
        agent: Any = create_agent(model, tools, middleware=[SessionMiddleware(session)])
        await agent.ainvoke(GO)
    assert seen == ["no room"]
    assert "no room" in model.read[1]


async def test_a_tool_that_interrupts_the_run_gets_its_answer() -> None:
    """A tool's own interruption stays its own: the answer that resumes the run reaches the tool."""
    answers: list[Any] = []

    def write(path: str) -> str:
        """Write a file."""
        answers.append(interrupt("where?"))
        return "wrote"

    async with SessionCoordinator(hooks=asking()) as session:
        agent: Any = create_agent(
            saying(["a"], []),
            [StructuredTool.from_function(write)],
            middleware=[SessionMiddleware(session)],
            checkpointer=InMemorySaver(),
        )
        result = await agent.ainvoke(GO, THREAD)
        assert result["__interrupt__"][0].value == "where?"
        await agent.ainvoke(Command(resume="here"), THREAD)
    assert answers == ["here"]


@pytest.mark.parametrize("broken", [False, True])
async def test_a_run_is_a_turn(*, broken: bool) -> None:
    """Hooks observe the beginning and the end of a run, with the model's last message or the failure."""
    told: list[tuple[str, Any]] = []
    hooks = HookRegistry()

    @hooks.observe("prompt:complete", name="end")
    async def end(event: str, data: Any, outcome: Any) -> None:
        told.append((data["prompt"], data["response"]))

    @hooks.observe("orchestrator:complete", name="status")
    async def status(event: str, data: Any, outcome: Any) -> None:
        told.append(("status", data["status"]))

    def write(path: str) -> str:
        """Write a file."""
        if broken:
            raise OSError("the disk is full")
        return "wrote"

    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write)]
        agent: Any = create_agent(saying(["a"], []), tools, middleware=[SessionMiddleware(session)])
        if broken:
            with pytest.raises(OSError, match="disk"):
                await agent.ainvoke(GO)
        else:
            await agent.ainvoke(GO)
    assert told == ([("status", "error"), ("go", None)] if broken else [("status", "success"), ("go", "done")])


async def test_texts_stay_at_their_place() -> None:
    """A text that came with a call stays behind its result in later model calls, and is not in the agent's state."""
    hooks = HookRegistry()
    hooks.on("tool:post", name="lint")(lambda event, data: HookResult.inject(f"seen {data['tool_input']['path']}"))
    model = saying(["a"], ["b"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [a_tool([])], middleware=[SessionMiddleware(session)])
        result = await agent.ainvoke(GO)
    last = model.read[2]
    assert last.index("wrote a") < last.index("seen a") < last.index("wrote b") < last.index("seen b")
    assert not any("seen" in one.text for one in result["messages"])


@pytest.mark.rule("INJ-1")
@pytest.mark.parametrize(("role", "kind"), [("system", "human"), ("user", "human"), ("assistant", "ai")])
async def test_a_text_keeps_its_role(role: Role, kind: str) -> None:
    """An injected text is the model's own only in the model's role; in any other it is a user's message."""
    hooks = HookRegistry()
    hooks.on("prompt:submit", name="style")(lambda event, data: HookResult.inject("be brief", role=role))
    model = saying([])
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [], middleware=[SessionMiddleware(session)])
        await agent.ainvoke(GO)
    assert [one["type"] for one in json.loads(model.read[0]) if "be brief" in one["content"]] == [kind]


@pytest.mark.rule("DIA-3")
@pytest.mark.parametrize("field", ["model_name", "model", "model_id", "nothing"])
async def test_a_gate_denies_a_model_by_its_name(field: str) -> None:
    """Gates of model calls read the model's name in any field that LangChain's models keep it in, or an empty text."""

    class Named(Model):
        """A model with a name."""

        model_config = ConfigDict(extra="allow")

    name = "" if field == "nothing" else "large"
    hooks = HookRegistry()
    hooks.gate("llm:pre", name="guard")(lambda event, data: HookResult.deny("no") if data["model"] == name else None)
    fields: dict[str, Any] = {"says": [[]], "read": [], field: "large"}
    model = Named(**fields)
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [], middleware=[SessionMiddleware(session)])
        with pytest.raises(HookAbortError):
            await agent.ainvoke(GO)
    assert model.read == []


async def test_runs_without_a_loop_fail() -> None:
    """A run that is not asynchronous fails before the model or a tool is called."""
    model = saying(["a"], [])
    ran: list[str] = []
    async with SessionCoordinator() as session:
        agent: Any = create_agent(model, [a_tool(ran)], middleware=[SessionMiddleware(session)])
        with pytest.raises((TypeError, NotImplementedError)):
            agent.invoke(GO)
    assert (model.read, ran) == ([], [])


@pytest.mark.parametrize("mode", ["values", "updates", "messages", "events"])
async def test_a_streamed_run_is_inside(mode: str) -> None:
    """A streamed run passes the hooks like any other; of several calls in one answer, only the denied one stays out."""
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("not here") if data["tool_input"]["path"] == "b" else None

    ran: list[str] = []
    model = saying(["a", "b", "c"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [a_tool(ran)], middleware=[SessionMiddleware(session)])
        stream = agent.astream_events(GO, version="v2") if mode == "events" else agent.astream(GO, stream_mode=mode)
        assert [piece async for piece in stream]
    assert sorted(ran) == ["a", "c"]
    assert "not here" in model.read[1]


def statuses(hooks: HookRegistry) -> list[str]:
    """Return the statuses of ended turns, in order, as hooks receive them."""
    told: list[str] = []

    @hooks.observe("orchestrator:complete", name="status")
    async def status(event: str, data: Any, outcome: Any) -> None:
        told.append(data["status"])

    return told


@pytest.mark.rule("DIA-10")
@pytest.mark.parametrize("fails", ["tool", "model"])
async def test_what_is_tried_again_is_one_turn(fails: str) -> None:
    """If another middleware repeats a call, each try is decided about, and the turn ends when the run does."""
    hooks = HookRegistry()
    told, asked = statuses(hooks), []
    failures = {fails: [OSError("the disk is full")]}

    @hooks.observe("*", name="watch")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        if event in ("tool:pre", "llm:pre"):
            asked.append(event)

    def fail(what: str) -> None:
        if failures.get(what):
            raise failures[what].pop()

    def write(path: str) -> str:
        """Write a file."""
        fail("tool")
        return "wrote"

    class Flaky(Model):
        """A model that fails at first."""

        def _generate(self, *arguments: Any, **options: Any) -> ChatResult:
            fail("model")
            return super()._generate(*arguments, **options)

    again: dict[str, Any] = {"max_retries": 2, "initial_delay": 0.0, "jitter": False}
    async with SessionCoordinator(hooks=hooks) as session:
        own: Any = [ToolRetryMiddleware(**again), ModelRetryMiddleware(**again), SessionMiddleware(session)]
        model = Flaky(says=[["a"], []], read=[])
        agent: Any = create_agent(model, [StructuredTool.from_function(write)], middleware=own)
        result = await agent.ainvoke(GO)
        assert result["messages"][-1].text == "done"
        assert told == ["success"]
    assert told == ["success"]
    assert asked.count("tool:pre") == (2 if fails == "tool" else 1)
    assert asked.count("llm:pre") == (3 if fails == "model" else 2)


@pytest.mark.rule("DIA-10")
async def test_a_run_that_is_left_or_fails_is_over_when_the_next_begins() -> None:
    """The turn of a stream that is left early ends as cancelled, and that of a run that fails with an error."""
    hooks = HookRegistry()
    told = statuses(hooks)

    def write(path: str) -> str:
        """Write a file."""
        raise OSError("the disk is full")

    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write)]
        agent: Any = create_agent(saying(["a"], ["a"], []), tools, middleware=[SessionMiddleware(session)])
        stream = agent.astream(GO, stream_mode="updates")
        await anext(stream)
        await stream.aclose()
        assert told == []
        with pytest.raises(OSError, match="disk"):
            await agent.ainvoke(GO)
        with pytest.raises(OSError, match="disk"):
            await agent.ainvoke(GO)
        assert told == ["cancelled", "error"]
        await agent.ainvoke(GO)
    assert told == ["cancelled", "error", "error", "success"]


@pytest.mark.rule("DIA-10")
async def test_a_run_that_is_cancelled_is_over_at_once() -> None:
    """The turn of a run whose task is cancelled in a tool ends with the run, as cancelled."""
    hooks = HookRegistry()
    told = statuses(hooks)

    async def write(path: str) -> None:
        """Write a file."""
        run.cancel()
        await asyncio.Event().wait()

    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(coroutine=write)]
        agent: Any = create_agent(saying(["a"]), tools, middleware=[SessionMiddleware(session)])
        run = asyncio.create_task(agent.ainvoke(GO))
        with pytest.raises(asyncio.CancelledError):
            await run
        assert told == ["cancelled"]


async def test_what_is_no_text_of_a_prompt_stays() -> None:
    """A hook that changes a prompt changes its text; a picture beside it reaches the model as it was."""
    hooks = HookRegistry()
    hooks.gate("prompt:submit", name="guard")(lambda event, data: HookResult.modify({"prompt": "be careful"}))
    picture = {"type": "image", "base64": "dot", "mime_type": "image/png"}
    model = saying([])
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [], middleware=[SessionMiddleware(session)])
        await agent.ainvoke({"messages": [HumanMessage([{"type": "text", "text": "be quick"}, picture])]})
    (read,) = json.loads(model.read[0])
    assert read["content"] == [{"type": "text", "text": "be careful"}, picture]


async def test_several_answers_of_a_tool_stay() -> None:
    """If a tool answers with a list, hooks see and replace its answer anywhere in there; the rest of the list stays."""
    hooks = HookRegistry()

    @hooks.on("tool:post", name="masks")
    async def masks(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.modify({"result": "masked"}) if data["result"] in ("wrote b", "wrote c") else None

    def write(path: str) -> list[Any]:
        """Write a file."""
        answer = ToolMessage(f"wrote {path}", tool_call_id=f"call-{path}", artifact=path)
        more = HumanMessage(f"more of {path}")
        if path == "c":
            return [Command(update={"messages": [answer, more]})]
        return [Command(update={"messages": [more]}), answer]

    model = saying(["a", "b", "c"], [])
    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write)]
        agent: Any = create_agent(model, tools, middleware=[SessionMiddleware(session)])
        result = await agent.ainvoke(GO)
    answers = [(one.text, one.artifact) for one in result["messages"] if one.type == "tool"]
    assert answers == [("wrote a", "a"), ("masked", None), ("masked", None)]
    assert all(f"more of {path}" in model.read[1] for path in "abc")


@pytest.mark.rule("COO-3")
async def test_a_result_that_a_hook_around_the_tool_refuses_stays_out() -> None:
    """If a hook around a tool raises once the tool has run, the run ends so, and no model reads the result."""
    hooks = HookRegistry()

    async def layer(context: Any, call_next: Any) -> Any:
        await call_next()
        raise HookAbortError("a secret", "layer")

    hooks.around("tool", layer, name="layer")
    model, ran = saying(["a"], []), list[str]()
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [a_tool(ran)], middleware=[SessionMiddleware(session)])
        with pytest.raises(HookAbortError, match="a secret"):
            await agent.ainvoke(GO)
    assert (ran, len(model.read)) == (["a"], 1)


async def test_a_tool_may_send_the_run_elsewhere_without_an_answer() -> None:
    """A tool that gives the graph a command alone has run for the hooks, without a result."""
    hooks = HookRegistry()
    seen: list[tuple[str, Any]] = []

    @hooks.observe("*", name="watch")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        if event in ("tool:post", "tool:error"):
            seen.append((event, data.get("result")))

    def write(path: str) -> Command[Any]:
        """Write a file."""
        return Command(goto="model")

    async with SessionCoordinator(hooks=hooks) as session:
        tools = [StructuredTool.from_function(write)]
        agent: Any = create_agent(saying(["a"], []), tools, middleware=[SessionMiddleware(session)])
        await agent.ainvoke(GO)
    assert seen == [("tool:post", None)]


@pytest.mark.rule("DIA-10")
async def test_a_summary_parts_no_call_from_its_result() -> None:
    """If another middleware sums up the conversation, a text never separates a call from its result."""
    hooks = HookRegistry()
    hooks.on("tool:post", name="lint")(lambda event, data: HookResult.inject(f"seen {data['tool_input']['path']}"))
    model = saying(["a", "b"], ["c"], ["d"], ["e"], [])
    shorter = SummarizationMiddleware(saying(*[[]] * 9), trigger=("messages", 8), keep=("messages", 4))
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(model, [a_tool([])], middleware=[shorter, SessionMiddleware(session)])
        await agent.ainvoke(GO)
    assert "summary" in model.read[-1]
    for read in map(json.loads, model.read):
        calls = [number for number, one in enumerate(read) if one["type"] == "ai" and one["tool_calls"]]
        assert all(read[number + 1]["type"] == "tool" for number in calls)
    assert [sum(f"seen {path}" in read for read in model.read) for path in "abcde"] == [4, 4, 3, 2, 1]


@pytest.mark.rule("DIA-9")
async def test_a_langgraph_that_hides_rejections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If LangGraph keeps no answer under its private name, no tool runs, and the error says so."""
    monkeypatch.setattr(adapter, "SCRATCHPAD", "__gone")
    ran: list[str] = []
    async with SessionCoordinator() as session:
        agent: Any = create_agent(saying(["a"], []), [a_tool(ran)], middleware=[SessionMiddleware(session)])
        with pytest.raises(HookUsageError, match="this version of LangGraph"):
            await agent.ainvoke(GO)
    assert ran == []


class Moves(AgentMiddleware[Any, Any, Any]):
    """Middleware that changes each call."""

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Move the file."""
        call = {**request.tool_call, "args": {"path": "moved"}}
        return await handler(request.override(tool_call=call))


async def test_what_middleware_outside_leaves_is_what_is_decided_about() -> None:
    """Hooks see a call as the middleware before ours in the list has left it."""
    ran: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("moved") if data["tool_input"]["path"] == "moved" else None

    async with SessionCoordinator(hooks=hooks) as session:
        own: Any = [Moves(), SessionMiddleware(session)]
        agent: Any = create_agent(saying(["a"], []), [a_tool(ran)], middleware=own)
        await agent.ainvoke(GO)
    assert ran == []


@pytest.mark.rule("DIA-7")
@pytest.mark.parametrize("by", ["name", "tool"])
async def test_the_tool_that_runs_is_the_tool_that_is_decided_about(by: str) -> None:
    """Hooks see the name of the tool that runs, whatever name a middleware before ours leaves in the call."""
    ran: list[str] = []
    tools = {name: a_tool(ran, name=name) for name in ("write", "delete")}

    class Swaps(AgentMiddleware[Any, Any, Any]):
        """Middleware that exchanges the name, or the tool, and not both."""

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            """Exchange it."""
            other: Any = {"tool_call": {**request.tool_call, "name": "other"}}
            return await handler(request.override(**(other if by == "name" else {"tool": tools["delete"]})))

    seen: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult:
        seen.append(data["tool_name"])
        return HookResult.deny("not that one")

    async with SessionCoordinator(hooks=hooks) as session:
        own: Any = [Swaps(), SessionMiddleware(session)]
        await create_agent(saying(["a"], []), [*tools.values()], middleware=own).ainvoke(GO)
    assert (seen, ran) == (["write" if by == "name" else "delete"], [])


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize("as_object", [False, True])
def test_the_text_of_a_call_is_found_where_langchain_keeps_it(*, as_object: bool) -> None:
    """The model's own JSON of exactly this call is found, in the pieces of a stream and beside a parsed call."""
    text = '{"path": "a", "path": "b"}'
    pieces: Any = [{"name": "write", "args": text, "id": one, "index": number} for number, one in enumerate(("1", "2"))]
    beside = [{"id": "3", "type": "function", "function": {"name": "write", "arguments": text}}]
    messages = [
        AIMessageChunk(content="", tool_call_chunks=pieces),
        AIMessage("", additional_kwargs={"tool_calls": beside}),
        HumanMessage("go on"),
        AIMessage("", tool_calls=[{"name": "write", "args": {}, "id": "4"}]),
    ]
    state: Any = SimpleNamespace(messages=messages) if as_object else {"messages": messages}
    for call, found in (("1", [text.encode()]), ("3", [text.encode()]), ("4", []), ("5", [])):
        request: Any = SimpleNamespace(state=state, tool_call={"id": call})
        assert list(adapter.raw_arguments(request)) == found


@pytest.mark.rule("DIA-7", "DIA-11")
@pytest.mark.parametrize(
    ("text", "runs"),
    [('{"path": "a"}', ["moved"]), ('{"path": "a", "path": "b"}', [])],
    ids=["readable", "key twice"],
)
async def test_the_models_own_text_refuses_a_call_and_replaces_none(text: str, runs: list[str]) -> None:
    """A text of the model's that cannot be read refuses the call; any other leaves the call as middleware left it."""

    class Writing(Model):
        """A model whose provider keeps the text of a call."""

        def _generate(self, *arguments: Any, **options: Any) -> ChatResult:
            given = super()._generate(*arguments, **options)
            message: Any = given.generations[0].message
            kept = [{"id": one["id"], "function": {"name": "write", "arguments": text}} for one in message.tool_calls]
            message.additional_kwargs["tool_calls"] = kept
            return given

    ran: list[str] = []
    async with SessionCoordinator() as session:
        own: Any = [Moves(), SessionMiddleware(session)]
        agent: Any = create_agent(Writing(says=[["a"], []], read=[]), [a_tool(ran)], middleware=own)
        await agent.ainvoke(GO)
    assert ran == runs


async def test_the_calls_of_a_denied_answer_are_known() -> None:
    """A call of a denied answer does not run later either, when the model has given another answer."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("llm:post", lambda event, data: HookResult.deny("no") if "call-a" in str(data) else None, name="guard")
    async with SessionCoordinator(hooks=hooks) as session:
        agent: Any = create_agent(saying(["a"], []), [a_tool(ran)], middleware=[SessionMiddleware(session)])
        with pytest.raises(HookAbortError):
            await agent.ainvoke(GO)
        await agent.ainvoke(GO)
        later = await session.call_tool("write", {"path": "a"}, ran.append, call_id="call-a")
        assert (later.denied, ran) == (True, [])
        assert (await session.call_tool("write", {"path": "b"}, ran.append, call_id="call-b")).ok
