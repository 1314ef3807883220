"""The whole tool call as its program sees it: the ready-made set, the guard on, and a durable record.

The call is `ls -la src`, a shell command that no person is asked about. `call_tool` is timed from the call to its
value. An SDK is timed from the model's answer that has the call to the model's next question, which has the result. A
program asks before its tool and after it: with the bridge it starts a shell and the bridge each time, over HTTP it
posts on a connection that it keeps. The server is a process of its own. Of 20 sessions at once each has one call at a
time.

The bare call is the tool behind one line that has reached the disk. A share is a median of differences within a round:
the SDK alone; two shells that start an interpreter; two bare POSTs; the whole less a whole without a record; the whole
less one with a silent gate in place of the set. The rest is ours: session, adapter, HTTP, and the loop of the server.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import httpx2
from attrs import define, field, frozen

from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.events import TOOL_POST, TOOL_PRE
from amplifier_hooks.programs.dialects import CLAUDE_CODE, CODEX, GEMINI
from amplifier_hooks.programs.install_hook import PATH, Bridge
from benchmarks.adapters import Allowing, installed
from benchmarks.guarded import TOKEN, VARIANTS, Guarded, Variant
from benchmarks.options import parser
from benchmarks.table import NOTHING, Report, number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from amplifier_hooks import SessionCoordinator
    from amplifier_hooks.programs.dialects import Dialect

    Calls = Callable[[int], Awaitable[list[float]]]
    """A function that makes so many calls, one after the other, and returns the seconds of each."""
    Ask = Callable[[bytes], Awaitable[bytes]]
    """A function that asks a server, and returns its answer."""
    Sdk = tuple[str, Callable[[SessionCoordinator | None], Calls]]

TOOL: Final = "Bash"
GIVEN: Final = {"command": "ls -la src"}
ANSWER: Final = "total 4\n-rw-r--r-- 1 mara mara 120 app.py\n"


@frozen
class Effort:
    """The number of rounds, of calls one after the other in a round, and of sessions at once."""

    rounds: int
    calls: int
    at_once: int


@define
class Taken:
    """The seconds of calls: round by round one after the other, and all of those at once."""

    rounds: list[list[float]] = field(factory=list)
    at_once: list[float] = field(factory=list)

    @property
    def alone(self) -> list[float]:
        """All calls that were made one after the other."""
        return [one for calls in self.rounds for one in calls]

    def less(self, other: Taken) -> float:
        """Return the median of the differences of the rounds' medians."""
        return median(median(own) - median(its) for own, its in zip(self.rounds, other.rounds, strict=True))


@frozen
class Entry:
    """One way to a tool call: its subjects by name, and the pairs of subjects whose difference is a part of it."""

    name: str
    whole: str
    parts: Mapping[str, tuple[str, str]]


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("whole", __doc__).parse_args(arguments)
    effort = Effort(2, 2, 3) if chosen.quick else Effort(41, 10, 20)
    known = {name: sdk for name, sdk in SDKS.items() if installed(sdk[0])}
    report = Report("whole", sorted({package for package, _ in known.values()}))
    taken, entries = asyncio.run(measured(known, effort))
    bare = median(taken["bare"].alone)
    report.text(f"The bare call takes {number(bare * 1e6)} µs; p99 {number(p99(taken['bare'].alone) * 1e6)} µs.")
    heads = ["ms a call", "p50", "p99", f"p50, {effort.at_once} at once", "p99", "times the bare call", "largest parts"]
    report.table(heads, [row(entry, taken, bare) for entry in entries])
    report.finish(write=chosen.write)


def row(entry: Entry, taken: Mapping[str, Taken], bare: float) -> list[str]:
    """Return the line of one way to a tool call."""
    whole = taken[entry.whole]
    usual = median(whole.alone)
    figures = [usual, p99(whole.alone), median(whole.at_once), p99(whole.at_once)]
    parts = {
        part: (taken[own].less(taken[less]) if less else median(taken[own].alone)) / usual
        for part, (own, less) in entry.parts.items()
    }
    parts["the rest"] = 1 - sum(parts.values())
    largest = sorted(parts, key=parts.__getitem__, reverse=True)[:3]
    shares = ", ".join(f"{part} {parts[part]:.0%}" for part in largest if parts[part] > 0)
    return [entry.name, *(number(one * 1e3) for one in figures), number(usual / bare), shares or NOTHING]


def p99(seconds: Sequence[float]) -> float:
    """Return the time within which 99 of 100 calls ended."""
    return quantiles(seconds, n=100, method="inclusive")[-1]


async def measured(sdks: Mapping[str, Sdk], effort: Effort) -> tuple[dict[str, Taken], list[Entry]]:
    """Return the seconds of every subject, and the ways to a tool call that they belong to."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subjects: dict[str, list[Calls]] = {"bare": [bare_calls(stack, folder)]}
        guarded = {variant: await Guarded.open(stack, folder, variant) for variant in VARIANTS}
        entries = []
        ways = {"`call_tool`": call_tool, **{name: make for name, (_, make) in sdks.items()}}
        for name, make in ways.items():
            for variant, at in guarded.items():
                number_of = effort.at_once if variant == "all" else 1
                subjects[f"{name}, {variant}"] = [make(await at.session(stack)) for _ in range(number_of)]
            parts = {} if make is call_tool or make is claude_agent_sdk else {"the SDK": (f"{name}, alone", "")}
            if parts:
                subjects[f"{name}, alone"] = [make(None)]
            entries.append(Entry(name, f"{name}, all", {**parts, **ours(name)}))
        served = stack.enter_context(servers(folder))
        async for more, entry in programs(stack, served, effort.at_once):
            subjects |= more
            entries.append(entry)
        return await in_rounds(subjects, effort), entries


def ours(name: str) -> dict[str, tuple[str, str]]:
    """Return the parts of the ready-made set and of the record, as differences of subjects."""
    return {
        "the record": (f"{name}, all", f"{name}, no record"),
        "the hooks": (f"{name}, all", f"{name}, one gate"),
    }


async def in_rounds(subjects: Mapping[str, Sequence[Calls]], effort: Effort) -> dict[str, Taken]:
    """Return the seconds of every subject: each once a round, in turning order; a first round is thrown away."""
    taken = {name: Taken() for name in subjects}
    names = list(subjects)
    gc.collect()
    gc.freeze()
    try:
        for turn in range(effort.rounds + 1):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                gc.collect()
                first, *others = subjects[name]
                alone = await first(effort.calls)
                together = await asyncio.gather(*(calls(2) for calls in (first, *others))) if others else []
                if turn:
                    taken[name].rounds.append(alone)
                    taken[name].at_once += [one for calls in together for one in calls]
    finally:
        gc.unfreeze()
    return taken


def repeated(call: Callable[[], Awaitable[object]]) -> Calls:
    """Return a function that makes so many calls, and returns the seconds of each."""

    async def calls(number_of: int) -> list[float]:
        taken = []
        for _ in range(number_of):
            began = perf_counter()
            await call()
            taken.append(perf_counter() - began)
        return taken

    return calls


async def tool(_given: Any) -> str:
    """Act as the tool."""
    return ANSWER


def bare_calls(stack: AsyncExitStack, folder: Path) -> Calls:
    """Return calls of the tool, each after one line that has reached the disk."""
    file = stack.enter_context((folder / "lines.jsonl").open("ab", buffering=0))

    async def call() -> None:
        file.write(json.dumps({"tool": TOOL, **GIVEN}).encode() + b"\n")
        os.fsync(file.fileno())
        await tool(GIVEN)

    return repeated(call)


def call_tool(session: SessionCoordinator | None) -> Calls:
    """Return calls of `call_tool`."""
    assert session is not None

    async def call() -> None:
        outcome = await session.call_tool(TOOL, GIVEN, tool)
        assert outcome.value == ANSWER, outcome

    return repeated(call)


# -- SDKs: each is run with and without its adapter --------------------------------------------------------------------


@define
class Watch:
    """The seconds from each answer of the model that has a call to the model's next question."""

    taken: list[float] = field(factory=list)
    since: float = 0.0
    ran: int = 0
    """Number of calls that the tool got."""

    def run(self) -> str:
        """Act as the tool."""
        self.ran += 1
        return ANSWER

    def note_question(self) -> None:
        """Note that the model is asked."""
        if self.since:
            self.taken.append(perf_counter() - self.since)

    def note_answer(self, *, calls: bool) -> None:
        """Note that the model has answered, with a call or without one."""
        self.since = perf_counter() if calls else 0.0

    def take(self, number_of: int) -> list[float]:
        """Return and forget the seconds. Raises `AssertionError` if not all calls ran."""
        taken, ran, self.taken, self.ran = self.taken, self.ran, [], 0
        assert len(taken) == ran == number_of, (len(taken), ran, number_of)
        return taken


def openai_agents(session: SessionCoordinator | None) -> Calls:
    """Return runs of the OpenAI Agents SDK."""
    from agents import Agent, FunctionTool, RunConfig, Runner
    from agents.testing import ScriptedModel, assistant_message, function_call

    from amplifier_hooks.adapters.openai_agents import OpenAIAgents

    watch, ids = Watch(), count()

    class Watched(ScriptedModel):
        """A scripted model that is watched."""

        async def get_response(self, *arguments: Any, **options: Any) -> Any:
            watch.note_question()
            answer = await super().get_response(*arguments, **options)
            watch.note_answer(calls=self.remaining_steps > 0)
            return answer

    async def invoked(_context: Any, _given: str) -> str:
        return watch.run()

    shell = FunctionTool(TOOL, "Runs.", {"type": "object", "properties": {}}, invoked, strict_json_schema=False)
    model = Watched()
    agent = Agent[Any](name="agent", tools=[shell], model=model)
    run: Any = Runner.run if session is None else OpenAIAgents(session).run

    async def calls(number_of: int) -> list[float]:
        model.extend([[function_call(TOOL, GIVEN, call_id=f"c{next(ids)}")] for _ in range(number_of)])
        model.enqueue([assistant_message("done")])
        await run(agent, "go", max_turns=number_of + 1, run_config=RunConfig(tracing_disabled=True))
        return watch.take(number_of)

    return calls


def langchain(session: SessionCoordinator | None) -> Calls:
    """Return runs of an agent of LangChain."""
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool

    from amplifier_hooks.adapters.langchain import SessionMiddleware

    watch, ids, left = Watch(), count(), [0]

    class Scripted(BaseChatModel):
        """A model that calls the tool until no call is left."""

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
            return self

        async def _agenerate(self, *_arguments: Any, **_options: Any) -> ChatResult:
            watch.note_question()
            calls: Any = [{"name": TOOL, "args": GIVEN, "id": f"c{next(ids)}"}] if left[0] else []
            left[0] -= 1
            watch.note_answer(calls=bool(calls))
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])

        def _generate(self, *_arguments: Any, **_options: Any) -> ChatResult:
            raise NotImplementedError  # LangChain demands it; the agent here calls only the async one

    async def shell(command: str) -> str:
        """Run."""
        return watch.run()

    tools = [StructuredTool.from_function(coroutine=shell, name=TOOL)]
    middleware: Any = [] if session is None else [SessionMiddleware(session)]
    agent: Any = create_agent(Scripted(), tools, middleware=middleware)

    async def calls(number_of: int) -> list[float]:
        left[0] = number_of
        await agent.ainvoke({"messages": [HumanMessage("go")]}, {"recursion_limit": 10 * number_of + 20})
        return watch.take(number_of)

    return calls


def pydantic_ai(session: SessionCoordinator | None) -> Calls:
    """Return runs of an agent of pydantic-ai."""
    from pydantic_ai import Agent, Tool
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from amplifier_hooks.adapters.pydantic_ai import SessionCapability

    watch, ids, left = Watch(), count(), [0]

    async def model(_messages: Any, _about: Any) -> ModelResponse:
        watch.note_question()
        more = left[0] > 0
        left[0] -= 1
        watch.note_answer(calls=more)
        return ModelResponse(parts=[ToolCallPart(TOOL, GIVEN, f"c{next(ids)}") if more else TextPart("done")])

    async def shell(command: str) -> str:
        """Run."""
        return watch.run()

    capabilities: Any = [] if session is None else [SessionCapability(session)]
    agent = Agent(FunctionModel(model), tools=[Tool(shell, name=TOOL)], capabilities=capabilities)

    async def calls(number_of: int) -> list[float]:
        left[0] = number_of
        await agent.run("go")
        return watch.take(number_of)

    return calls


def claude_agent_sdk(session: SessionCoordinator | None) -> Calls:
    """Return the callbacks of a call, as the Claude Agent SDK calls them; without them the program asks nothing."""
    from claude_agent_sdk import ClaudeAgentOptions, ToolPermissionContext

    from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent

    assert session is not None
    options = ClaudeAgent(session).options(ClaudeAgentOptions(allowed_tools=[TOOL]))
    assert options.hooks is not None
    asked, permitted, ids = options.hooks["PreToolUse"][-1].hooks[0], options.can_use_tool, count()
    assert permitted is not None

    async def call() -> None:
        name = f"t{next(ids)}"
        about = {"session_id": "s", "transcript_path": "", "cwd": "/", "tool_use_id": name}
        given: Any = {**about, "tool_name": TOOL, "tool_input": GIVEN}
        before: Any = {**given, "hook_event_name": "PreToolUse"}
        await asked(before, name, {"signal": None})
        answer = await permitted(TOOL, dict(GIVEN), ToolPermissionContext(tool_use_id=name))
        assert answer.behavior == "allow", answer
        after: Any = {**given, "hook_event_name": "PostToolUse", "tool_response": ANSWER}
        await asked(after, name, {"signal": None})

    return repeated(call)


def agent_hooks(session: SessionCoordinator | None) -> Calls:
    """Return the two emissions of a host of AGENT-HOOKS around each call."""
    from agent_hooks import AgentContextBuilder, InterceptionEmitter

    from amplifier_hooks.adapters.agent_hooks import SessionInterceptor

    ids = count()
    emitter = InterceptionEmitter().register(Allowing() if session is None else SessionInterceptor(session))
    emitter.set_max_records(1)
    contexts = AgentContextBuilder(agent_id="agent", framework="a-benchmark", session_id=f"s{id(emitter)}")

    async def call() -> None:
        about: Any = {"call_id": f"c{next(ids)}", "name": TOOL, "args": dict(GIVEN)}
        await emitter.emit(contexts.pre_tool_call(**about))
        await emitter.emit(contexts.post_tool_call(**about, value=ANSWER))

    return repeated(call)


def agent_hooks_host(session: SessionCoordinator | None) -> Calls:
    """Return tool calls of a session that asks the interceptors of AGENT-HOOKS; alone, their two emissions."""
    from agent_hooks import InterceptionEmitter

    from amplifier_hooks.adapters.agent_hooks import AgentHooksHost

    if session is None:
        return agent_hooks(None)
    emitter = InterceptionEmitter().register(Allowing())
    emitter.set_max_records(1)
    AgentHooksHost(session, emitter)
    return call_tool(session)


SDKS: Final[Mapping[str, Sdk]] = {
    "AGENT-HOOKS, our hooks in its host": ("agent-hooks-sdk", agent_hooks),
    "AGENT-HOOKS, its interceptors here": ("agent-hooks-sdk", agent_hooks_host),
    "Claude Agent SDK, its callbacks": ("claude-agent-sdk", claude_agent_sdk),
    "LangChain": ("langchain", langchain),
    "OpenAI Agents SDK": ("openai-agents", openai_agents),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
}
"""The title of each SDK, its package, and the function that returns calls in a session, or without one."""


# -- programs: they ask a server in another process --------------------------------------------------------------------

PROGRAMS: Final = (CLAUDE_CODE, CODEX, GEMINI)
POSTS: Final = (CLAUDE_CODE,)
SHELL: Final = "/bin/sh"


@frozen
class Served:
    """A server: its socket, its port, and the port of a bare server beside it."""

    socket: str
    port: int
    bare: int


@contextmanager
def servers(folder: Path) -> Iterator[dict[Variant, Served]]:
    """Serve each variant in a process of its own."""
    served: dict[Variant, Served] = {}
    root = Path(tempfile.mkdtemp(dir=folder, prefix="s"))
    with ExitStack() as stack:
        for variant in VARIANTS:
            argv = [sys.executable, "-m", "benchmarks.guarded", os.fspath(root), variant]
            process = stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)  # it ends
            served[variant] = Served(f"{root}/{variant}.sock", *map(int, process.stdout.readline().split()))
        yield served


async def programs(
    stack: AsyncExitStack, served: Mapping[Variant, Served], at_once: int
) -> AsyncIterator[tuple[dict[str, list[Calls]], Entry]]:
    """Yield the subjects and the entry of each program, by the bridge and over HTTP."""
    subjects: dict[str, list[Calls]]
    interpreter = shell(f"'{sys.executable}' -I -S -c pass || exit 2")
    shells = repeated(partial(twice, interpreter))
    for dialect in PROGRAMS:
        name = f"{dialect.title}, bridge"
        subjects = {"shells": [shells]}
        for variant, server in served.items():
            subjects[f"{name}, {variant}"] = [asking(dialect, partial(ask_directly, server.socket, dialect.name))]
        bridge = Bridge(python=sys.executable, file=bridge_module.__file__, socket=served["all"].socket)
        ask = shell(bridge.command(dialect, "deny"))
        subjects[name] = [asking(dialect, ask) for _ in range(at_once)]
        yield subjects, Entry(name, name, {"shells and interpreters": ("shells", ""), **ours(name)})
    bare = await stack.enter_async_context(client(served["all"].bare))
    posts = repeated(partial(twice, post(bare, "/")))
    for dialect in POSTS:
        name = f"{dialect.title}, HTTP"
        subjects = {"posts": [posts]}
        for variant, server in served.items():
            subjects[f"{name}, {variant}"] = [
                asking(dialect, post(await stack.enter_async_context(client(server.port)), f"{PATH}{dialect.name}"))
                for _ in range(at_once if variant == "all" else 1)
            ]
        yield subjects, Entry(name, f"{name}, all", {"bare POSTs": ("posts", ""), **ours(name)})


NUMBERS: Final = count()


def asking(dialect: Dialect, ask: Ask) -> Calls:
    """Return calls of a program in a session of its own: it asks before its tool, and after it."""
    names = {one.ours: one.theirs for one in dialect.spellings}
    session = f"s{next(NUMBERS)}"

    async def call() -> None:
        about = {"session_id": session, "cwd": "/", "tool_name": TOOL, "tool_input": GIVEN}
        named = {} if dialect is GEMINI else {"tool_use_id": f"t{next(NUMBERS)}"}
        before = {**about, **named, "hook_event_name": names[TOOL_PRE]}
        answer = await ask(json.dumps(before).encode())
        assert b"deny" not in answer, answer
        result = {"llmContent": ANSWER} if dialect is GEMINI else ANSWER
        after = {**before, "hook_event_name": names[TOOL_POST], "tool_response": result}
        await ask(json.dumps(after).encode())

    return repeated(call)


async def twice(ask: Ask) -> None:
    """Ask nothing, before a tool and after it."""
    await ask(b"{}")
    await ask(b"{}")


def shell(line: str) -> Ask:
    """Return a function that asks through a command, as programs start one."""

    async def ask(question: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            SHELL, "-c", line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await process.communicate(question)
        assert process.returncode == 0, errors
        return output

    return ask


async def ask_directly(path: str, program: str, question: bytes) -> bytes:
    """Ask a server over its socket, without a process."""
    status, output, errors = bridge_module.ask(path, program, question)
    assert status == 0, errors
    return output


def client(port: int) -> httpx2.AsyncClient:
    """Return a client of a server, with its token."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, headers=headers)


def post(http: httpx2.AsyncClient, path: str) -> Ask:
    """Return a function that posts a question."""

    async def ask(question: bytes) -> bytes:
        answer = await http.post(path, content=question)
        return answer.raise_for_status().content

    return ask
