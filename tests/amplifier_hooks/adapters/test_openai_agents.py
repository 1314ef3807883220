"""The OpenAI Agents SDK beyond the story: further features of its agents."""

from __future__ import annotations

import asyncio
import gc
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    Agent,
    AgentsException,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    Model,
    ModelProvider,
    RunConfig,
    Runner,
    RunState,
    ShellTool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolSearchTool,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.openai_agents import OpenAIAgents
from amplifier_hooks.errors import HookAbortError, HookUsageError
from amplifier_hooks.testing import CollectingAudit
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.rule("DIA-3")]

QUIET = RunConfig(tracing_disabled=True)
ROBIN = Decider(name="Robin", channel="test")
DONE = [assistant_message("done")]


def calls(tool: str, number: int = 1, **given: Any) -> Any:
    """Return the model's call of a tool."""
    return function_call(tool, given, call_id=f"call-{number}")


def denying(*tools: str) -> HookRegistry:
    """Return a registry that denies these tools."""
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("not here") if data["tool_name"] in tools else None

    return hooks


def a_tool(ran: list[str], name: str = "write", **options: Any) -> FunctionTool:
    """Return a tool that keeps its arguments."""

    def write(path: str) -> str:
        ran.append(path)
        return f"wrote {path}"

    return function_tool(write, name_override=name, **options)


def told(model: ScriptedModel, number: int = 1) -> str:
    """Return the input of the model at one of its calls."""
    return json.dumps(model.calls[number].input, default=str)


class Server(MCPServer):
    """An MCP server with one tool."""

    def __init__(self, ran: list[Any]) -> None:
        super().__init__()
        self.ran = ran

    @property
    def name(self) -> str:
        """Name of the server."""
        return "files"

    async def connect(self) -> None:
        """Do nothing, because there is nothing to connect."""

    async def cleanup(self) -> None:
        """Do nothing, because there is nothing to clean up."""

    async def list_tools(self, *_arguments: Any, **_options: Any) -> list[MCPTool]:
        """Return the tool."""
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        return [MCPTool.model_validate({"name": "write", "inputSchema": schema})]

    async def call_tool(self, tool_name: str, arguments: Any, *_more: Any, **_options: Any) -> CallToolResult:
        """Keep the arguments of the call."""
        self.ran.append(arguments)
        return CallToolResult(content=[TextContent(type="text", text="wrote")])

    async def list_prompts(self) -> Any:
        """Raise, because there are no prompts."""
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        """Raise, because there are no prompts."""
        raise NotImplementedError


async def test_tools_of_mcp_servers_are_inside() -> None:
    """A tool of an MCP server is decided about like any other."""
    ran: list[Any] = []
    model = ScriptedModel([[calls("write", path="a")], DONE])
    agent = Agent(name="a", mcp_servers=[Server(ran)], model=model)
    async with SessionCoordinator(hooks=denying("write")) as session:
        await OpenAIAgents(session).run(agent, "go", run_config=QUIET)
    assert ran == []
    assert "not here" in told(model)
    model = ScriptedModel([[calls("write", path="a")], DONE])
    async with SessionCoordinator(hooks=denying()) as session:
        await OpenAIAgents(session).run(Agent(name="a", mcp_servers=[Server(ran)], model=model), "go", run_config=QUIET)
    assert ran == [{"path": "a"}]


@pytest.mark.parametrize("hand_over", [lambda agent: agent, handoff], ids=["agent", "handoff"])
async def test_agents_it_hands_over_to_are_inside(hand_over: Any) -> None:
    """The tools and the model of an agent that takes over are inside, too; in a circle as well."""
    ran: list[str] = []
    second_model = ScriptedModel([[calls("write", 2, path="b")], DONE])
    second = Agent(name="second", tools=[a_tool(ran)], model=second_model)
    first_model = ScriptedModel([[function_call("transfer_to_second", {}, call_id="call-1")]])
    first = Agent(name="first", handoffs=[hand_over(second)], model=first_model)
    second.handoffs = [first]
    async with SessionCoordinator(hooks=denying("write")) as session:
        await OpenAIAgents(session).run(first, "go", run_config=QUIET)
    assert ran == []
    assert "not here" in told(second_model)


async def test_a_model_that_a_provider_finds_is_inside() -> None:
    """Hooks are asked about a model that the provider of the run finds by its name, or that the run itself names."""
    hooks, model = HookRegistry(), ScriptedModel([DONE, DONE])
    hooks.gate("llm:pre", name="guard")(lambda event, data: HookResult.deny("no model"))

    class Provider(ModelProvider):
        def get_model(self, model_name: str | None) -> Model:
            return model

    async with SessionCoordinator(hooks=hooks) as session:
        adapter = OpenAIAgents(session)
        for config in (RunConfig(tracing_disabled=True, model_provider=Provider()), replace(QUIET, model=model)):
            once = adapter.config(config)
            for given in (config, once, adapter.config(once)):
                with pytest.raises(HookAbortError, match="no model"):
                    await adapter.run(Agent(name="a", model="by-name"), "go", run_config=given)
    assert len(model.calls) == 0


async def test_an_agent_used_as_a_tool_is_inside_when_it_was_put_there() -> None:
    """The tools of an agent that is a tool of another are decided about when it was put inside first."""
    ran: list[str] = []
    inner_model = ScriptedModel([[calls("write", 2, path="b")], DONE])
    inner = Agent(name="inner", tools=[a_tool(ran)], model=inner_model)
    model = ScriptedModel([[calls("ask_inner", input="do it")], DONE])
    async with SessionCoordinator(hooks=denying("write")) as session:
        adapter = OpenAIAgents(session)
        tool = adapter.agent(inner).as_tool("ask_inner", "Asks it.")
        await adapter.run(Agent(name="outer", tools=[tool], model=model), "go", run_config=QUIET)
    assert ran == []
    assert "not here" in told(inner_model)


async def test_agents_that_are_gone_are_forgotten() -> None:
    """An adapter does not keep its agents alive."""
    async with SessionCoordinator() as session:
        adapter = OpenAIAgents(session)
        for number in range(20):
            adapter.agent(Agent(name=f"a{number}", tools=[a_tool([])]))
        gc.collect()
        assert len(adapter._agents) == 0


@pytest.mark.rule("DIA-9")
async def test_what_is_out_of_reach_is_refused() -> None:
    """An agent with a tool that no hook is asked about is refused, unless the host names that tool."""
    agent = Agent(name="a", tools=[WebSearchTool()], model=ScriptedModel([DONE]))
    async with SessionCoordinator() as session:
        with pytest.raises(HookUsageError, match="web_search"):
            await OpenAIAgents(session).run(agent, "go", run_config=QUIET)
        await OpenAIAgents(session, outside=["web_search"]).run(agent, "go", run_config=QUIET)


async def test_a_wrapped_agent_stays_as_it_is() -> None:
    """An agent that is put inside twice stays the same; the host's own agent is not changed."""
    agent = Agent(name="a", tools=[a_tool([])])
    before = list(agent.tools)
    async with SessionCoordinator() as session:
        adapter = OpenAIAgents(session)
        inside = adapter.agent(agent)
        assert adapter.agent(agent) is inside
        assert adapter.agent(inside) is inside
        assert adapter.tool(inside.tools[0]) is inside.tools[0]
    assert agent.tools == before
    assert type(agent) is Agent


async def test_the_tools_own_question_comes_first() -> None:
    """A tool that wants an approval of the host gets it, and then our hooks decide about it all the same."""
    ran: list[str] = []
    tool = a_tool(ran, needs_approval=True)
    seen: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        seen.append(data["tool_input"]["path"])
        return HookResult.deny("not here") if data["tool_input"]["path"] == "b" else None

    async with SessionCoordinator(hooks=hooks) as session:
        adapter = OpenAIAgents(session)
        model = ScriptedModel([[calls("write", path="a"), calls("write", 2, path="b")], DONE])
        agent = Agent(name="a", tools=[tool], model=model)
        result = await adapter.run(agent, "go", run_config=QUIET)
        assert len(result.interruptions) == 2
        assert seen == []
        again = await adapter.resume(agent, result.to_state(), run_config=QUIET)
        assert len(again.interruptions) == 2
        state = again.to_state()
        for item in state.get_interruptions():
            state.approve(item)
        await adapter.resume(agent, state, run_config=QUIET)
    assert ran == ["a"]
    assert sorted(seen) == ["a", "b"]


async def test_what_nobody_decided_interrupts_again(tmp_path: Path) -> None:
    """A run that is resumed before a decision is interrupted again; a refusal then reaches the model."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write it?", timeout=3600))
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=hooks, approvals=approvals, approval_wait=0.0) as session,
    ):
        adapter = OpenAIAgents(session)
        model = ScriptedModel([[calls("write", path="a")], DONE])
        agent = Agent(name="a", tools=[a_tool(ran)], model=model)
        result = await adapter.run(agent, "go", run_config=QUIET)
        again = await adapter.resume(agent, result.to_state().to_json(), run_config=QUIET)
        assert len(again.interruptions) == 1
        (waiting,) = await approvals.broker.pending(ROBIN)
        no = next(one for one in waiting.request.options if not one.allows)
        await approvals.broker.decide(waiting.request.id, waiting.request.digest, no.id, ROBIN)
        last = await adapter.resume(agent, again.to_state(), run_config=QUIET)
        assert last.interruptions == []
    assert ran == []
    assert "Write it?" in told(model)


@pytest.mark.rule("DIA-7")
async def test_what_the_host_rejects_does_not_run(tmp_path: Path) -> None:
    """A host's rejection of an interruption ends the call, even if the session's approver has allowed it."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write it?", timeout=3600))
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=hooks, approvals=approvals, approval_wait=0.0) as session,
    ):
        adapter = OpenAIAgents(session)
        agent = Agent(name="a", tools=[a_tool(ran)], model=ScriptedModel([[calls("write", path="a")], DONE]))
        state = (await adapter.run(agent, "go", run_config=QUIET)).to_state()
        (waiting,) = await approvals.broker.pending(ROBIN)
        yes = next(one for one in waiting.request.options if one.allows)
        await approvals.broker.decide(waiting.request.id, waiting.request.digest, yes.id, ROBIN)
        state.reject(state.get_interruptions()[0])
        last = await adapter.resume(agent, state, run_config=QUIET)
    assert (ran, last.final_output) == ([], "done")


@pytest.mark.rule("APR-12")
async def test_a_call_that_ran_answers_with_its_result_again(tmp_path: Path) -> None:
    """A run that is resumed again from the state before a call does not run it twice; the model reads its result."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write it?", timeout=3600))
    async with DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals:
        model = ScriptedModel([[calls("write", path="a")], DONE, DONE])
        agent = Agent(name="a", tools=[a_tool(ran)], model=model)
        options: Any = {"hooks": hooks, "approvals": approvals, "approval_wait": 0.0, "session_id": "one"}
        async with SessionCoordinator(**options) as session:
            result = await OpenAIAgents(session).run(agent, "go", run_config=QUIET)
            kept = result.to_state().to_json()
            (waiting,) = await approvals.broker.pending(ROBIN)
            yes = next(one for one in waiting.request.options if one.allows)
            await approvals.broker.decide(waiting.request.id, waiting.request.digest, yes.id, ROBIN)
            for _ in range(2):
                await OpenAIAgents(session).resume(agent, kept, run_config=QUIET)
    assert ran == ["a"]
    assert "wrote a" in told(model, 1)
    assert "wrote a" in told(model, 2)
    assert "denied" not in told(model, 2)


async def test_a_host_that_approves_for_us_grants_nothing(tmp_path: Path) -> None:
    """A call that the SDK's own approval lets go on is still undecided here, and does not run."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write it?", timeout=3600))
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=hooks, approvals=approvals, approval_wait=0.0) as session,
    ):
        model = ScriptedModel([[calls("write", path="a")], DONE])
        agent = Agent(name="a", tools=[a_tool(ran)], model=model)
        result = await OpenAIAgents(session).run(agent, "go", run_config=QUIET)
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        await OpenAIAgents(session).resume(agent, state, run_config=QUIET)
    assert ran == []
    assert "waits for an approval" in told(model)


async def test_a_state_of_a_run_outside_is_refused() -> None:
    """The state of a run outside the session is not resumed."""
    model = ScriptedModel([[calls("write", path="a")], DONE])
    agent = Agent(name="a", tools=[a_tool([], needs_approval=True)], model=model)
    result = await Runner.run(agent, "go", run_config=QUIET)
    state: RunState[Any] = result.to_state()
    async with SessionCoordinator() as session:
        with pytest.raises(HookUsageError, match="outside the session"):
            await OpenAIAgents(session).resume(agent, state, run_config=QUIET)


async def test_errors_of_tools_stay_with_the_sdk() -> None:
    """The model reads the SDK's text about a failing tool; a tool that lets its error out ends the run with it."""

    @function_tool
    def broken() -> str:
        """Raise an error."""
        raise OSError("the disk is full")

    async def loud(_context: Any, _given: str) -> str:
        raise OSError("the disk is full")

    async with SessionCoordinator() as session:
        model = ScriptedModel([[calls("broken")], DONE])
        await OpenAIAgents(session).run(Agent(name="a", tools=[broken], model=model), "go", run_config=QUIET)
        assert "error occurred while running the tool" in told(model)
        raw = FunctionTool("loud", "", {"type": "object", "properties": {}}, loud, strict_json_schema=False)
        agent = Agent(name="a", tools=[raw], model=ScriptedModel([[calls("loud")], DONE]))
        with pytest.raises(Exception, match="disk is full"):
            await OpenAIAgents(session).run(agent, "go", run_config=QUIET)


@pytest.mark.rule("DIA-10")
async def test_a_call_that_the_sdk_does_not_make_is_given_up() -> None:
    """A call that was admitted, and that a guardrail of the host then refused, is on record as cancelled."""
    ran: list[str] = []
    audit = CollectingAudit()
    refusing: ToolInputGuardrail[Any] = ToolInputGuardrail(
        lambda _data: ToolGuardrailFunctionOutput.raise_exception(), "theirs"
    )
    tool = a_tool(ran, tool_input_guardrails=[refusing])
    model = ScriptedModel([[calls("write", path="a")], DONE])
    async with SessionCoordinator(audit=audit) as session:
        with pytest.raises(AgentsException):
            await OpenAIAgents(session).run(Agent(name="a", tools=[tool], model=model), "go", run_config=QUIET)
        assert audit.kinds.count("tool.cancelled") == 1
    assert ran == []


async def test_what_is_no_text_of_a_prompt_stays() -> None:
    """Hooks see and change the text of a prompt; a picture beside it reaches the model as it was."""
    hooks = HookRegistry()
    seen: list[str] = []

    @hooks.gate("prompt:submit", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult:
        seen.append(data["prompt"])
        return HookResult.modify({"prompt": "be careful"})

    picture = {"type": "input_image", "image_url": "data:image/png;base64,dot"}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "be quick"}, picture]}
    model = ScriptedModel([DONE])
    async with SessionCoordinator(hooks=hooks) as session:
        await OpenAIAgents(session).run(Agent(name="a", model=model), [asked], run_config=QUIET)
    assert seen == ["be quick"]
    (read,) = model.calls[0].input
    assert read["content"] == [{"type": "input_text", "text": "be careful"}, picture]


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize("tools", [("read", "delete"), ("delete", "read")])
async def test_two_runs_with_one_call_id_share_no_decision(tools: tuple[str, str]) -> None:
    """Of two runs at once whose models use one call id, each has the decision about its own call."""
    ran: dict[str, list[str]] = {"read": [], "delete": []}
    looks: asyncio.Barrier = asyncio.Barrier(2)

    async def look(_data: Any) -> ToolGuardrailFunctionOutput:
        await looks.wait()
        return ToolGuardrailFunctionOutput.allow()

    models = [ScriptedModel([[calls(tool, path=tool)], DONE]) for tool in tools]
    async with SessionCoordinator(hooks=denying("delete")) as session:
        adapter = OpenAIAgents(session)
        agents = [
            Agent(
                name=tool,
                tools=[a_tool(ran[tool], tool, tool_input_guardrails=[ToolInputGuardrail(look, "theirs")])],
                model=model,
            )
            for tool, model in zip(tools, models, strict=True)
        ]
        await asyncio.gather(*(adapter.run(agent, "go", run_config=QUIET) for agent in agents))
    assert ran == {"read": ["read"], "delete": []}
    assert ["not here" in told(model) for model in models] == [tool == "delete" for tool in tools]


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize("odd", [0, 1])
async def test_ambiguous_json_is_that_of_its_own_call(odd: int) -> None:
    """Of two runs at once with one call id, one call has ambiguous JSON; hooks are asked about the other alone."""
    ran: list[str] = []
    seen: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="g")(lambda event, data: seen.append(data["tool_input"]["path"]))
    answered: asyncio.Barrier = asyncio.Barrier(2)

    async def wait(*_call: Any) -> bool:
        await answered.wait()
        return False

    given = [calls("write", path="c"), calls("write", path="c")]
    given[odd].arguments = '{"path": "a", "path": "b"}'
    async with SessionCoordinator(hooks=hooks) as session:
        adapter = OpenAIAgents(session)
        agents = [
            Agent(name="a", tools=[a_tool(ran, needs_approval=wait)], model=ScriptedModel([[one], DONE]))
            for one in given
        ]
        await asyncio.gather(*(adapter.run(agent, "go", run_config=QUIET) for agent in agents))
    assert (seen, ran) == (["c"], ["c"])


@pytest.mark.rule("DIA-11")
async def test_a_call_id_that_comes_again_is_another_call() -> None:
    """A later run whose model uses the call id of an earlier one gets a decision about its own call."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre")(lambda event, data: HookResult.deny("no") if data["tool_input"]["path"] == "b" else None)
    async with SessionCoordinator(hooks=hooks) as session:
        adapter = OpenAIAgents(session)
        for path in "abc":
            model = ScriptedModel([[calls("write", path=path)], DONE])
            await adapter.run(Agent(name="a", tools=[a_tool(ran)], model=model), "go", run_config=QUIET)
    assert ran == ["a", "c"]


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"path": "a", "path": "b"}', "stands twice"),
        ('{"path": "a"} {}', "Extra data"),
        ('\ufeff{"path": "a"}', "BOM"),
        ('{"path": "a", "n": 1e400}', "does not read back"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_arguments_that_two_readers_read_differently(arguments: str, why: str, *, streamed: bool) -> None:
    """A call with ambiguous JSON is shown to no hook and does not run; record and model have the reason."""
    ran: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="g")(lambda event, data: ran.append("a hook was asked"))
    audit = CollectingAudit()
    odd = calls("write", path="a")
    odd.arguments = arguments
    model = ScriptedModel([[odd], DONE])
    async with SessionCoordinator(hooks=hooks, audit=audit) as session:
        adapter = OpenAIAgents(session)
        agent = adapter.agent(Agent(name="a", tools=[a_tool(ran)], model=model))
        if streamed:
            run = Runner.run_streamed(agent, "go", run_config=adapter.config(QUIET))
            assert [event async for event in run.stream_events()]
            result: Any = run
            if run.interruptions:  # the SDK cannot read them either
                return
        else:
            result = await adapter.run(agent, "go", run_config=QUIET)
    assert (ran, result.final_output) == ([], "done")
    assert why in told(model)
    assert any(why in facts["reason"] for facts in audit.facts("tool.denied"))


@pytest.mark.rule("DIA-9")
@pytest.mark.parametrize(
    "tool",
    [
        FileSearchTool(vector_store_ids=["v"]),
        WebSearchTool(),
        HostedMCPTool(tool_config={"type": "mcp", "server_label": "s", "server_url": "https://example.invalid"}),
        CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}}),
        ImageGenerationTool(tool_config={"type": "image_generation"}),
        LocalShellTool(executor=lambda request: ""),
        ShellTool(executor=lambda request: ""),
        ToolSearchTool(),
    ],
    ids=lambda tool: type(tool).__name__,
)
async def test_each_tool_that_no_hook_can_stop_is_refused_by_name(tool: Any) -> None:
    """A tool that is no function tool is refused by its name, also where a handover brings it along."""
    inner = Agent(name="b", tools=[tool], model=ScriptedModel([DONE]))
    async with SessionCoordinator() as session:
        for agent in (inner, Agent(name="a", handoffs=[inner], model=ScriptedModel([DONE]))):
            with pytest.raises(HookUsageError, match=tool.name):
                await OpenAIAgents(session).run(agent, "go", run_config=QUIET)


@pytest.mark.parametrize("arguments", ["{no json", '["a"]', "1"])
async def test_arguments_that_nobody_can_read_are_refused(arguments: str) -> None:
    """A call whose arguments are no JSON object does not run and interrupts nothing, and the model reads the reason."""
    ran: list[str] = []
    odd, fine = calls("write", path="a"), calls("write", 2, path="b")
    odd.arguments = arguments
    model = ScriptedModel([[odd, fine], DONE])
    async with SessionCoordinator(hooks=denying()) as session:
        agent = Agent(name="a", tools=[a_tool(ran)], model=model)
        result = await OpenAIAgents(session).run(agent, "go", run_config=QUIET)
    assert result.final_output == "done"
    assert ran == ["b"]
    assert "InputNotFreezable" in told(model)


@pytest.mark.rule("DIA-10")
async def test_a_call_in_a_run_of_the_hosts_own_is_given_up() -> None:
    """If the host runs the agent itself, a call that was admitted and not made is over when the session ends."""
    audit = CollectingAudit()
    refusing: ToolInputGuardrail[Any] = ToolInputGuardrail(
        lambda _data: ToolGuardrailFunctionOutput.raise_exception(), "theirs"
    )
    tool = a_tool([], tool_input_guardrails=[refusing])
    model = ScriptedModel([[calls("write", path="a")], DONE])
    async with SessionCoordinator(audit=audit) as session:
        adapter = OpenAIAgents(session)
        agent = adapter.agent(Agent(name="a", tools=[tool], model=model))
        async with session.turn("go"):
            with pytest.raises(AgentsException):
                await Runner.run(agent, "go", run_config=adapter.config(QUIET))
    assert audit.kinds.count("tool.cancelled") == 1


async def test_several_calls_are_decided_about_each_for_itself(tmp_path: Path) -> None:
    """Of several calls in one answer, one is denied and one waits; the others run once and are asked about once."""
    ran: list[str] = []
    asked: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        path = data["tool_input"]["path"]
        asked.append(path)
        if path == "b":
            return HookResult.ask("Write it?", timeout=3600)
        return HookResult.deny("not here") if path == "c" else None

    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=hooks, approvals=approvals, approval_wait=0.0) as session,
    ):
        adapter = OpenAIAgents(session)
        model = ScriptedModel([[calls("write", number, path=path) for number, path in enumerate("abcd")], DONE])
        agent = Agent(name="a", tools=[a_tool(ran)], model=model)
        result = await adapter.run(agent, "go", run_config=QUIET)
        assert sorted(ran) == ["a", "d"]
        (waiting,) = await approvals.broker.pending(ROBIN)
        await approvals.broker.decide(waiting.request.id, waiting.request.digest, waiting.request.options[0].id, ROBIN)
        await adapter.resume(agent, result.to_state().to_string(), run_config=QUIET)
    assert sorted(ran) == ["a", "b", "d"]
    assert sorted(asked) == ["a", "b", "b", "b", "c", "d"]
    assert "not here" in told(model)


async def test_a_streamed_run_is_inside() -> None:
    """A streamed run of the host passes the hooks as well; a denied model call ends it."""
    hooks = denying("write")
    ran: list[str] = []
    async with SessionCoordinator(hooks=hooks) as session:
        adapter = OpenAIAgents(session)
        model = ScriptedModel([[calls("write", path="a")], DONE])
        agent = adapter.agent(Agent(name="a", tools=[a_tool(ran)], model=model))
        async with session.turn("go"):
            streamed = Runner.run_streamed(agent, "go", run_config=adapter.config(QUIET))
            assert [event async for event in streamed.stream_events()]
        assert "not here" in told(model)
        hooks.gate("llm:post", name="late")(lambda event, data: HookResult.deny("never mind"))
        again = Runner.run_streamed(
            adapter.agent(Agent(name="b", model=ScriptedModel([DONE]))), "go", run_config=adapter.config(QUIET)
        )
        with pytest.raises(HookAbortError, match="never mind"):
            _ = [event async for event in again.stream_events()]
    assert ran == []


async def test_a_text_for_one_call_is_read_once() -> None:
    """A text that a hook injects for the next model call alone is in that call only."""
    hooks = HookRegistry()

    @hooks.on("tool:post", name="nudge")
    async def nudge(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.inject("just this once", ephemeral=True) if data["tool_input"]["path"] == "a" else None

    model = ScriptedModel([[calls("write", path="a")], [calls("write", 2, path="b")], DONE])
    async with SessionCoordinator(hooks=hooks) as session:
        await OpenAIAgents(session).run(Agent(name="a", tools=[a_tool([])], model=model), "go", run_config=QUIET)
    assert ["just this once" in told(model, number) for number in range(3)] == [False, True, False]


async def test_where_the_provider_keeps_the_conversation_texts_are_sent_once() -> None:
    """A provider that keeps the conversation is sent each text once."""
    hooks = HookRegistry()
    hooks.on("tool:post", name="lint")(lambda event, data: HookResult.inject(f"about {data['tool_input']['path']}"))
    model = ScriptedModel([[calls("write", path="a")], [calls("write", 2, path="b")], DONE])
    async with SessionCoordinator(hooks=hooks) as session:
        await OpenAIAgents(session).run(
            Agent(name="a", tools=[a_tool([])], model=model), "go", run_config=QUIET, conversation_id="conv_1"
        )
    assert ["about a" in told(model, number) for number in range(3)] == [False, True, False]
