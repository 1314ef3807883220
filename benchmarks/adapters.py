"""The cost an adapter adds to a tool call inside each SDK, beside the cost of `call_tool` with the same hooks.

The hooks are a gate and a hook behind the tool that say nothing. An SDK's tool calls come many in one answer of the
model, so that what a model call costs counts for little; the program behind the Claude Agent SDK is left out, and its
callbacks are called as the SDK calls them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import define

from amplifier_hooks import HookRegistry, SessionCoordinator
from benchmarks.options import parser
from benchmarks.rounds import Effort, Samples, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

TARGET: Final = 3.0
CALLS: Final = 50
"""Tool calls in one answer of the model."""
GIVEN: Final = {"path": "notes", "text": "hello"}


@define
class Pair:
    """One SDK: work without and with its adapter, each in seconds for so many rounds of calls."""

    alone: Timed
    inside: Timed


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("adapters", __doc__).parse_args(arguments)
    known = [name for name, (package, _) in SDKS.items() if installed(package)]
    report = Report("adapters", sorted({SDKS[name][0] for name in known}))
    samples = asyncio.run(measured(known, Effort(rounds=3 if chosen.quick else 31, seconds=0)))
    base = samples["call_tool"]
    rows = []
    for name in known:
        alone, inside = samples[f"{name} alone"], samples[name]
        added = Samples([whole - part for whole, part in zip(inside.seconds, alone.seconds, strict=True)])
        ratio = added.ratio(base)
        cells = [number(one.usual / CALLS) for one in (alone, inside, added, base)]
        rows.append([name, *cells, number(ratio), *verdict(ratio, TARGET)])
    heads = ["µs a tool call", "SDK alone", "with adapter", "added", "`call_tool`", "added / `call_tool`", *VERDICT]
    report.table(heads, rows)
    report.finish(write=chosen.write)


def installed(package: str) -> bool:
    """Return True if an SDK is installed."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


async def measured(names: Sequence[str], effort: Effort) -> dict[str, Samples]:
    """Return samples of every SDK with and without its adapter, and of `call_tool`; each is a round of calls."""
    async with AsyncExitStack() as stack:
        subjects: dict[str, Timed] = {}
        for name in names:
            pair = await SDKS[name][1](await session(stack))
            subjects |= {f"{name} alone": pair.alone, name: pair.inside}
        subjects["call_tool"] = by_itself(await session(stack))
        return await measure(subjects, effort, number=1)


async def session(stack: AsyncExitStack) -> SessionCoordinator:
    """Open a session with the hooks."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="gate")(nothing)
    hooks.on("tool:post", name="after")(nothing)
    return await stack.enter_async_context(SessionCoordinator(hooks=hooks))


async def nothing(_event: str, _data: Mapping[str, Any]) -> None:
    """A hook that has nothing to say."""


def timed(work: Callable[[], Awaitable[Any]]) -> Timed:
    """Return the seconds that the work takes."""

    async def run(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            await work()
        return perf_counter() - began

    return run


def by_itself(session: SessionCoordinator) -> Timed:
    """Call `call_tool` so many times."""

    async def work() -> None:
        for _ in range(CALLS):
            await session.call_tool("write", GIVEN, write)

    return timed(work)


async def write(_given: Any) -> str:
    """Act as the tool."""
    return "wrote"


# -- the SDKs ----------------------------------------------------------------------------------------------------------


async def openai_agents(session: SessionCoordinator) -> Pair:
    """One run: an answer with many calls of a function tool, then one with none."""
    from agents import Agent, FunctionTool, RunConfig, Runner
    from agents.testing import ScriptedModel, assistant_message, function_call

    from amplifier_hooks.adapters.openai_agents import OpenAIAgents

    async def invoked(_context: Any, _given: str) -> str:
        return "wrote"

    tool = FunctionTool("write", "Writes.", {"type": "object", "properties": {}}, invoked, strict_json_schema=False)
    adapter = OpenAIAgents(session)
    number = 0

    def agent() -> Agent[Any]:
        nonlocal number
        number += 1
        calls = [function_call("write", GIVEN, call_id=f"c{number}-{one}") for one in range(CALLS)]
        return Agent(name="writer", tools=[tool], model=ScriptedModel([calls, [assistant_message("done")]]))

    async def alone() -> None:
        await Runner.run(agent(), "go", run_config=RunConfig(tracing_disabled=True))

    async def inside() -> None:
        await adapter.run(agent(), "go", run_config=RunConfig(tracing_disabled=True))

    return Pair(timed(alone), timed(inside))


async def langchain(session: SessionCoordinator) -> Pair:
    """Agents with and without our middleware."""
    from amplifier_hooks.adapters.langchain import SessionMiddleware

    return Pair(langchain_runs(), langchain_runs(SessionMiddleware(session)))


async def langchain_beside(session: SessionCoordinator) -> Pair:
    """Agents with our middleware, and with one that does nothing: what LangChain itself does around any."""
    from langchain.agents.middleware import AgentMiddleware

    from amplifier_hooks.adapters.langchain import SessionMiddleware

    class Idle(AgentMiddleware[Any, Any, Any]):
        """A middleware that passes every call on."""

        async def abefore_agent(self, state: Any, runtime: Any) -> None:
            """Nothing."""

        async def aafter_agent(self, state: Any, runtime: Any) -> None:
            """Nothing."""

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

    return Pair(langchain_runs(Idle()), langchain_runs(SessionMiddleware(session)))


def langchain_runs(*middleware: Any) -> Timed:
    """One run: an answer with many calls of a tool, then one with none."""
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool

    class Scripted(BaseChatModel):
        """A model that answers with many calls, then with none."""

        rounds: int = 0

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
            return self

        async def _agenerate(self, messages: Any, *_arguments: Any, **_options: Any) -> ChatResult:
            self.rounds += 1
            ids = range(CALLS) if len(messages) == 1 else ()
            calls: Any = [{"name": "write", "args": GIVEN, "id": f"c{self.rounds}-{one}"} for one in ids]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])

        def _generate(self, *_arguments: Any, **_options: Any) -> ChatResult:
            raise NotImplementedError

    async def writes(path: str, text: str) -> str:
        """Write."""
        return "wrote"

    tools = [StructuredTool.from_function(coroutine=writes, name="write")]
    agent: Any = create_agent(Scripted(), tools, middleware=middleware)
    return timed(lambda: agent.ainvoke({"messages": [HumanMessage("go")]}))


async def pydantic_ai(session: SessionCoordinator) -> Pair:
    """One run: an answer with many calls of a tool, then one with none."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from amplifier_hooks.adapters.pydantic_ai import SessionCapability

    number = 0

    async def model(messages: Any, _about: Any) -> ModelResponse:
        nonlocal number
        number += 1
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("write", GIVEN, f"c{number}-{one}") for one in range(CALLS)])

    async def write(path: str, text: str) -> str:
        """Write."""
        return "wrote"

    plain = Agent(FunctionModel(model), tools=[write])
    own = Agent(FunctionModel(model), tools=[write], capabilities=[SessionCapability(session)])
    return Pair(timed(lambda: plain.run("go")), timed(lambda: own.run("go")))


async def claude_agent_sdk(session: SessionCoordinator) -> Pair:
    """The callbacks of one call: before the tool, for the permission, and after it."""
    from claude_agent_sdk import ClaudeAgentOptions, ToolPermissionContext

    from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent

    options = ClaudeAgent(session).options(ClaudeAgentOptions(allowed_tools=["write"]))
    assert options.hooks is not None
    asked, permitted = options.hooks["PreToolUse"][-1].hooks[0], options.can_use_tool
    assert permitted is not None
    number = 0

    async def alone() -> None:
        """Nothing: without hooks the program asks for none of this."""

    async def inside() -> None:
        nonlocal number
        for _ in range(CALLS):
            number += 1
            common = {"session_id": "s", "transcript_path": "", "cwd": "/", "tool_use_id": f"t{number}"}
            call: Any = {**common, "tool_name": "write", "tool_input": GIVEN}
            before: Any = {**call, "hook_event_name": "PreToolUse"}
            await asked(before, f"t{number}", {"signal": None})
            await permitted("write", dict(GIVEN), ToolPermissionContext(tool_use_id=f"t{number}"))
            after: Any = {**call, "hook_event_name": "PostToolUse", "tool_response": "wrote"}
            await asked(after, f"t{number}", {"signal": None})

    return Pair(timed(alone), timed(inside))


async def agent_hooks(session: SessionCoordinator) -> Pair:
    """A host's two emissions around its tool: with an asynchronous interceptor that allows, and with ours."""
    from amplifier_hooks.adapters.agent_hooks import SessionInterceptor

    return Pair(emissions(Allowing()), emissions(SessionInterceptor(session)))


async def agent_hooks_host(session: SessionCoordinator) -> Pair:
    """A host's two emissions around its tool, and a tool call in a session that makes them."""
    from agent_hooks import InterceptionEmitter

    from amplifier_hooks.adapters.agent_hooks import AgentHooksHost

    emitter = InterceptionEmitter().register(Allowing())
    emitter.set_max_records(1)
    AgentHooksHost(session, emitter)
    return Pair(emissions(Allowing()), by_itself(session))


class Allowing:
    """An interceptor that allows everything."""

    def intercept(self, _context: Any, /) -> Any:
        """Allow."""
        return allowed()


async def allowed() -> Any:
    """Return an allowing verdict, asynchronously."""
    from agent_hooks import ALLOW

    return ALLOW


def emissions(interceptor: Any) -> Timed:
    """Return a host's two emissions around each of its tool calls."""
    from agent_hooks import AgentContextBuilder, InterceptionEmitter

    emitter = InterceptionEmitter().register(interceptor)
    emitter.set_max_records(1)
    session = uuid4().hex
    contexts = AgentContextBuilder(agent_id="agent", framework="a-benchmark", session_id=session)
    number = 0

    async def work() -> None:
        nonlocal number
        for _ in range(CALLS):
            number += 1
            about: Any = {"call_id": f"{session}-{number}", "name": "write", "args": dict(GIVEN)}
            await emitter.emit(contexts.pre_tool_call(**about))
            await emitter.emit(contexts.post_tool_call(**about, value="wrote"))

    return timed(work)


SDKS: Final[Mapping[str, tuple[str, Callable[[SessionCoordinator], Awaitable[Pair]]]]] = {
    "AGENT-HOOKS, our hooks in its host": ("agent-hooks-sdk", agent_hooks),
    "AGENT-HOOKS, its interceptors here": ("agent-hooks-sdk", agent_hooks_host),
    "Claude Agent SDK, its callbacks": ("claude-agent-sdk", claude_agent_sdk),
    "LangChain": ("langchain", langchain),
    "LangChain, beside a middleware that does nothing": ("langchain", langchain_beside),
    "OpenAI Agents SDK": ("openai-agents", openai_agents),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
}
"""The title of each comparison, its package, and the function that measures it."""
