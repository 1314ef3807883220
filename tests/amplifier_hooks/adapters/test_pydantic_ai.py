"""pydantic-ai beyond the story: further features of its agents."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_serializer
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ExternalToolset,
    ModelRetry,
    ToolDefinition,
    ToolDenied,
    WebSearchTool,
)
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, NativeTool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.toolsets import WrapperToolset

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.pydantic_ai import SessionCapability
from amplifier_hooks.errors import HookAbortError, HookUsageError
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo

    from amplifier_hooks.result import Role

pytestmark = [pytest.mark.slow, pytest.mark.rule("DIA-3")]

ROBIN = Decider(name="Robin", channel="test")
OUTPUTS: Any = [str, DeferredToolRequests]


def scripted(read: list[str], *says: Mapping[str, Any] | None, **options: Any) -> FunctionModel:
    """Return a model that calls `write` with these arguments in turn and ends at None; it keeps its input."""

    def model(messages: list[ModelMessage], _about: AgentInfo) -> ModelResponse:
        said = says[len(read)]
        read.append(ModelMessagesTypeAdapter.dump_json(messages).decode())
        number = f"call-{len(messages)}"
        return ModelResponse(
            parts=[TextPart("done") if said is None else ToolCallPart("write", dict(said), tool_call_id=number)]
        )

    return FunctionModel(model, **options)


def an_agent(model: Any, write: Callable[..., Any], **options: Any) -> Agent[None, Any]:
    """Return an agent with one tool."""
    agent: Agent[None, Any] = Agent(model, output_type=OUTPUTS)
    agent.tool_plain(name="write", **options)(write)
    return agent


def keeping(ran: list[str]) -> Callable[[str], str]:
    """Return a tool that keeps its arguments."""

    def write(path: str) -> str:
        ran.append(path)
        return f"wrote {path}"

    return write


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


async def test_a_yes_of_the_hosts_is_not_ours(tmp_path: Path) -> None:
    """Whenever the host approves, the call waits for the session's approver, and then runs once."""
    ran: list[str] = []
    agent = an_agent(scripted([], {"path": "a"}, None), keeping(ran))
    said: list[int] = []

    async def everything(_context: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        said.append(len(requests.approvals))
        return requests.build_results(approve_all=True)

    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a"), approvals=approvals, approval_wait=0.01) as session,
    ):
        own: Any = [SessionCapability(session)]
        result = await agent.run("go", capabilities=[*own, HandleDeferredToolCalls(everything)])
        assert said == [1]
        for _ in range(2):
            requests = result.output
            assert requests.metadata[requests.approvals[0].tool_call_id]["request"]
            result = await agent.run(
                message_history=result.all_messages(),
                deferred_tool_results=requests.build_results(approve_all=True),
                capabilities=own,
            )
        assert ran == []
        await allow(approvals)
        result = await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=result.output.build_results(approve_all=True),
            capabilities=own,
        )
    assert ran == ["a"]
    assert result.output == "done"


async def test_what_the_host_denies_does_not_run(tmp_path: Path) -> None:
    """A denial of the host ends the call, even if the session's approver has allowed it."""
    ran: list[str] = []
    read: list[str] = []
    agent = an_agent(scripted(read, {"path": "a"}, None), keeping(ran))
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("a"), approvals=approvals, approval_wait=0.01) as session,
    ):
        own: Any = [SessionCapability(session)]
        result = await agent.run("go", capabilities=own)
        await allow(approvals)
        (call,) = result.output.approvals
        await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: ToolDenied("not now")}),
            capabilities=own,
        )
    assert ran == []
    assert "not now" in read[1]


@pytest.mark.rule("DIA-7")
async def test_an_approval_is_for_the_call_that_was_shown(tmp_path: Path) -> None:
    """A stored call that was changed before the run goes on does not run, because the approval was for another call."""
    ran: list[str] = []
    read: list[str] = []
    agent = an_agent(scripted(read, {"path": "first"}, None), keeping(ran))
    async with (
        DeferredApprovals(SqliteStore(tmp_path / "approvals.db")) as approvals,
        SessionCoordinator(hooks=asking("first", "other"), approvals=approvals, approval_wait=0.01) as session,
    ):
        own: Any = [SessionCapability(session)]
        result = await agent.run("go", capabilities=own)
        await allow(approvals)
        result = await agent.run(
            message_history=ModelMessagesTypeAdapter.validate_json(
                result.all_messages_json().replace(b"first", b"other")
            ),
            deferred_tool_results=result.output.build_results(approve_all=True),
            capabilities=own,
        )
    assert "Operation denied" in read[1]
    assert ran == []


@pytest.mark.rule("DIA-7")
async def test_approvals_of_pydantic_ai_come_first() -> None:
    """A tool that wants an approval of its own gets it first, and is decided about here after that."""
    ran: list[str] = []
    asked: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        asked.append(data["tool_input"]["path"])
        return HookResult.deny("not here")

    read: list[str] = []
    agent = an_agent(scripted(read, {"path": "a"}, None), keeping(ran), requires_approval=True)
    async with SessionCoordinator(hooks=hooks) as session:
        own: Any = [SessionCapability(session)]
        result = await agent.run("go", capabilities=own)
        assert asked == []
        await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=result.output.build_results(approve_all=True),
            capabilities=own,
        )
    assert (asked, ran) == (["a"], [])
    assert "not here" in read[1]


@pytest.mark.rule("DIA-7")
async def test_what_other_capabilities_leave_is_what_is_decided_about() -> None:
    """Hooks see a call as all other capabilities have left it, whatever their position."""

    class Moves(AbstractCapability[Any]):
        """A capability that changes each call at the last moment."""

        async def before_tool_execute(self, *_arguments: Any, **_options: Any) -> Any:
            return {"path": "moved"}

        def get_wrapper_toolset(self, toolset: Any) -> Any:
            return Further(toolset)

    class Further(WrapperToolset[Any]):
        """A toolset that changes the call once more, right before the tool."""

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            return await super().call_tool(name, {"path": f"{tool_args['path']} further"}, ctx, tool)

    ran: list[str] = []
    seen: list[str] = []
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: seen.append(data["tool_input"]["path"]))
    agent = an_agent(scripted([], {"path": "a"}, None), keeping(ran))
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session), Moves()])
    assert (seen, ran) == (["moved further"], ["moved further"])


@pytest.mark.rule("DIA-7")
async def test_the_tool_that_runs_is_the_tool_that_is_decided_about() -> None:
    """Hooks see the name of the tool that runs, whatever name a toolset of the host's calls it by."""

    class Renames(AbstractCapability[Any]):
        """A capability whose toolset gives a call another name, and leaves the tool."""

        def get_wrapper_toolset(self, toolset: Any) -> Any:
            return Renaming(toolset)

    class Renaming(WrapperToolset[Any]):
        """That toolset."""

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            return await super().call_tool("other", tool_args, ctx, tool)

    ran: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("not here") if data["tool_name"] == "write" else None

    agent = an_agent(scripted([], {"path": "a"}, None), keeping(ran))
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session), Renames()])
    assert ran == []


@pytest.mark.parametrize("change", [None, {"path": "b", "on": "2031-02-03"}, {"path": "b", "on": "never"}])
async def test_arguments_are_json_for_hooks_and_typed_for_the_tool(change: dict[str, Any] | None) -> None:
    """Hooks see a call's arguments as JSON; their changes are validated again before the tool runs."""
    ran: list[Any] = []
    seen: list[Any] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        seen.append(dict(data["tool_input"]))
        return None if change is None else HookResult.modify({"tool_input": change})

    def write(path: str, on: dt.date) -> str:
        ran.append((path, on))
        return "wrote"

    read: list[str] = []
    agent = an_agent(scripted(read, {"path": "a", "on": "2030-01-02"}, None), write)
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session)])
    assert seen == [{"path": "a", "on": "2030-01-02"}]
    if change is None:
        assert ran == [("a", dt.date(2030, 1, 2))]
    elif change["on"] == "never":
        assert ran == []
        assert "date" in read[1]
    else:
        assert ran == [("b", dt.date(2031, 2, 3))]


@pytest.mark.rule("DIA-7")
async def test_a_change_that_python_takes_for_none_is_one() -> None:
    """A hook that makes true of 1 has changed the input, although the two are equal to Python."""
    ran: list[Any] = []
    hooks = HookRegistry()
    changed = {"path": "a", "on": True}
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.modify({"tool_input": changed}))

    def write(path: str, on: Any) -> str:
        ran.append(on)
        return "wrote"

    agent = an_agent(scripted([], {"path": "a", "on": 1}, None), write)
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session)])
    assert ran[0] is True


class Deploy(BaseModel):
    """Arguments of which JSON shows only a part."""

    service: str
    force: bool = Field(default=False, exclude=True)
    target: SecretStr = SecretStr("staging")
    note: str = ""

    @field_serializer("note")
    def short(self, value: str) -> str:
        """Return the beginning of a note."""
        return value[:3]


@pytest.mark.rule("DIA-7")
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("change", [None, "live"])
async def test_the_models_own_json_is_decided_about(*, written: bool, change: str | None) -> None:
    """Hooks see fields that a serialisation hides or masks, and the tool runs with exactly these."""
    seen: list[Any] = []
    ran: list[Deploy] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        seen.append(json.loads(json.dumps(data["tool_input"])))
        changed = {"what": {**data["tool_input"]["what"], "target": change}}
        return None if change is None else HookResult.modify({"tool_input": changed})

    def write(what: Deploy) -> str:
        ran.append(what)
        return "deployed"

    given = {"what": {"service": "shop", "force": True, "target": "production", "note": "in full"}}
    parts: Any = iter([ToolCallPart("write", json.dumps(given) if written else given), TextPart("done")])
    agent = an_agent(FunctionModel(lambda _messages, _about: ModelResponse(parts=[next(parts)])), write)
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session)])
    assert seen[0] == given
    (what,) = ran
    assert (what.force, what.target.get_secret_value(), what.note) == (True, change or "production", "in full")


@pytest.mark.rule("DIA-7")
async def test_arguments_are_validated_from_what_was_decided_about() -> None:
    """An object that another capability puts in place of the arguments never runs; its JSON does."""

    class Sneaks(AbstractCapability[Any]):
        """A capability that changes a field that JSON does not show."""

        async def before_tool_execute(self, *_arguments: Any, args: Any, **_options: Any) -> Any:
            args["what"].force = True
            return args

    ran: list[bool] = []
    parts: Any = iter([ToolCallPart("write", {"what": {"service": "shop"}}), TextPart("done")])
    model = FunctionModel(lambda _messages, _about: ModelResponse(parts=[next(parts)]))

    def write(what: Deploy) -> str:
        ran.append(what.force)
        return "deployed"

    async with SessionCoordinator() as session:
        await an_agent(model, write).run("go", capabilities=[SessionCapability(session), Sneaks()])
    assert ran == [False]


@pytest.mark.rule("DIA-7")
async def test_json_with_a_key_twice_does_not_run() -> None:
    """Arguments that two readers could understand differently go back to the model."""
    ran: list[str] = []
    read: list[str] = []

    def model(messages: list[ModelMessage], _about: AgentInfo) -> ModelResponse:
        read.append(ModelMessagesTypeAdapter.dump_json(messages).decode())
        twice = ToolCallPart("write", '{"path": "a", "path": "b"}')
        return ModelResponse(parts=[twice if len(read) == 1 else TextPart("done")])

    async with SessionCoordinator() as session:
        await an_agent(FunctionModel(model), keeping(ran)).run("go", capabilities=[SessionCapability(session)])
    assert ran == []
    assert "stands twice" in read[1]


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize("kind", [ModelRetry, ToolFailed])
async def test_the_text_of_an_error_can_be_changed(kind: type[Exception]) -> None:
    """The model reads the text of an error as the hooks left it."""
    hooks = HookRegistry()
    hooks.on("tool:error", name="masks")(lambda event, data: HookResult.modify({"error": "masked"}))

    def write(path: str) -> str:
        raise kind("no hunter22")

    read: list[str] = []
    async with SessionCoordinator(hooks=hooks) as session:
        await an_agent(scripted(read, {"path": "a"}, None), write).run("go", capabilities=[SessionCapability(session)])
    assert "masked" in read[1]
    assert "hunter22" not in read[1]


async def test_tools_out_of_reach_are_refused() -> None:
    """A run with a tool of the provider, or one outside the agent's process, ends before the model is called."""
    read: list[str] = []
    profile = ModelProfile(supported_native_tools=frozenset({WebSearchTool}))
    searching: Any = Agent(scripted(read, None, profile=profile), capabilities=[])
    elsewhere: Any = ExternalToolset([ToolDefinition(name="fax", parameters_json_schema={"type": "object"})])
    async with SessionCoordinator() as session:
        own = SessionCapability(session)
        with pytest.raises(HookUsageError, match="'web_search'"):
            await searching.run("go", capabilities=[own, NativeTool(WebSearchTool())])
        with pytest.raises(HookUsageError, match="'fax'"):
            await Agent(scripted(read, None), output_type=OUTPUTS, toolsets=[elsewhere]).run("go", capabilities=[own])
        settings: Any = {"openai_native_tools": [{"type": "web_search"}]}
        with pytest.raises(HookUsageError, match="'openai_native_tools'"):
            await Agent(scripted(read, None)).run("go", model_settings=settings, capabilities=[own])
        settings = {"extra_body": {"web_search_options": {}}}
        with pytest.raises(HookUsageError, match="'web_search_options'"):
            await Agent(scripted(read, None)).run("go", model_settings=settings, capabilities=[own])
        assert read == []
        allowed = SessionCapability(session, outside=["fax"])
        await Agent(scripted(read, None), output_type=OUTPUTS, toolsets=[elsewhere]).run("go", capabilities=[allowed])
    assert len(read) == 1


async def test_a_retry_is_told_and_read() -> None:
    """A tool that asks the model to try again has failed for the hooks, and the model reads its message."""
    seen: list[str] = []
    hooks = HookRegistry()

    @hooks.observe("tool:error", name="watch")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        seen.append(data["error"]["message"])

    def write(path: str) -> str:
        if path == "a":
            raise ModelRetry("another path")
        return "wrote"

    read: list[str] = []
    agent = an_agent(scripted(read, {"path": "a"}, {"path": "b"}, None), write)
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session)])
    assert seen == ["another path"]
    assert "another path" in read[1]


async def test_a_streamed_run_is_inside() -> None:
    """The calls of a streamed run are decided about; the output of a denied model call is not kept."""
    ran: list[str] = []
    hooks = HookRegistry()

    @hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("not here")

    async def pieces(messages: list[ModelMessage], _about: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall("write", '{"path": "a"}', tool_call_id="call-1")}
        else:
            yield "do"
            yield "ne"

    agent = an_agent(FunctionModel(stream_function=pieces), keeping(ran))
    async with SessionCoordinator(hooks=hooks) as session:
        own: Any = [SessionCapability(session)]
        async with agent.run_stream("go", capabilities=own) as stream:
            said = [text async for text in stream.stream_text()]
        assert said[-1] == "done"
        assert ran == []
        hooks.gate("llm:pre", name="dear")(lambda event, data: HookResult.deny("too dear"))
        with pytest.raises(HookAbortError, match="too dear"):
            async with agent.run_stream("go", capabilities=own) as stream:
                pass


async def test_a_run_is_a_turn() -> None:
    """Hooks observe the end of a run, with its output; a run that continues another is no turn of its own."""
    told: list[tuple[str, Any]] = []
    hooks = HookRegistry()

    @hooks.observe("prompt:complete", name="end")
    async def end(event: str, data: Any, outcome: Any) -> None:
        told.append((data["prompt"], data["response"]))

    async with SessionCoordinator(hooks=hooks) as session:
        agent = Agent(TestModel(custom_output_text="done"), capabilities=[SessionCapability(session)])
        result = await agent.run("go")
        await agent.run("again", message_history=result.all_messages())
        await agent.run(message_history=result.all_messages()[:1])
    assert told == [("go", "done"), ("again", "done")]


async def test_what_is_no_text_of_a_prompt_stays() -> None:
    """A hook that changes a prompt changes its text; a picture beside it reaches the model as it was."""
    hooks = HookRegistry()
    hooks.gate("prompt:submit", name="guard")(lambda event, data: HookResult.modify({"prompt": "be careful"}))
    read: list[str] = []
    agent = Agent(scripted(read, None))
    async with SessionCoordinator(hooks=hooks) as session:
        picture = BinaryContent(data=b"dot", media_type="image/png")
        await agent.run(["be quick", picture], capabilities=[SessionCapability(session)])
    assert "be careful" in read[0]
    assert "image/png" in read[0]
    assert "be quick" not in read[0]


async def test_texts_stay_at_their_place() -> None:
    """A text that came with a call stays behind its result in every later model call, and is not in the history."""
    hooks = HookRegistry()
    hooks.on("tool:post", name="lint")(lambda event, data: HookResult.inject(f"seen {data['tool_input']['path']}"))
    read: list[str] = []
    agent = an_agent(scripted(read, {"path": "a"}, {"path": "b"}, None), keeping([]))
    async with SessionCoordinator(hooks=hooks) as session:
        result = await agent.run("go", capabilities=[SessionCapability(session)])
    assert read[2].count("seen a") == read[2].count("seen b") == 1
    assert read[2].index("seen a") < read[2].index("seen b")
    assert b"seen" not in result.all_messages_json()


@pytest.mark.rule("INJ-1")
@pytest.mark.parametrize(("role", "kind"), [("system", SystemPromptPart), ("user", UserPromptPart)])
async def test_a_text_keeps_its_role(role: Role, kind: type[Any]) -> None:
    """An injected text reaches the model as a part of its role, and hooks of model calls read the model's name."""
    hooks = HookRegistry()
    hooks.on("prompt:submit", name="style")(lambda event, data: HookResult.inject("be brief", role=role))
    models: list[str] = []
    hooks.observe("llm:pre", name="watch")(lambda event, data, outcome: models.append(data["model"]))
    shown: list[Any] = []

    def model(messages: list[ModelMessage], _about: AgentInfo) -> ModelResponse:
        shown[:] = [part for one in messages for part in one.parts if "be brief" in str(getattr(part, "content", ""))]
        return ModelResponse(parts=[TextPart("done") if shown else ToolCallPart("write", {"path": "a"})])

    agent = an_agent(
        FunctionModel(model, model_name="scripted", profile=ModelProfile(supports_inline_system_prompts=True)),
        keeping([]),
    )
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session)])
    assert [type(part) for part in shown] == [kind]
    assert models == ["scripted"]


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
async def test_the_tools_own_check_holds_for_changed_arguments(*, waits: bool) -> None:
    """The tool's own validator refuses the arguments that hooks leave, as it would refuse those of the model."""
    ran: list[str] = []
    read: list[str] = []

    def check(_context: Any, path: str) -> None:
        if path == "b":
            raise ModelRetry("not b")

    async def check_later(context: Any, path: str) -> None:
        check(context, path)

    agent = an_agent(scripted(read, {"path": "a"}, None), keeping(ran), args_validator=check_later if waits else check)
    hooks = HookRegistry()
    hooks.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"path": "b"}}), name="changer")
    async with SessionCoordinator(hooks=hooks) as session:
        await agent.run("go", capabilities=[SessionCapability(session)])
    assert ran == []
    assert "not b" in read[-1]


async def test_the_calls_of_a_denied_answer_are_known() -> None:
    """A call of a denied answer does not run later either, when the model has given another answer."""
    ran: list[Any] = []
    hooks = HookRegistry()
    hooks.gate("llm:post", lambda event, data: HookResult.deny("no") if "call-1" in str(data) else None, name="guard")
    agent = an_agent(scripted([], {"path": "a"}, None), keeping(ran))
    async with SessionCoordinator(hooks=hooks) as session:
        with pytest.raises(HookAbortError):
            await agent.run("go", capabilities=[SessionCapability(session)])
        await agent.run("go", capabilities=[SessionCapability(session)])
        later = await session.call_tool("write", {"path": "a"}, ran.append, call_id="call-1")
        assert (later.denied, ran) == (True, [])
        assert (await session.call_tool("write", {"path": "b"}, ran.append, call_id="call-2")).ok
