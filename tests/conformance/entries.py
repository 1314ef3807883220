"""The entry points of acts: each makes one act from arguments, and names the attacks that it cannot meet."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

from amplifier_hooks.errors import HookAbortError, InvalidPayload
from amplifier_hooks.programs.program_session import ProgramSessions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.scene import Scene

__all__ = ["ENTRIES", "Entry"]

NO_ID: Final = "an operation has no call id, and no later call comes back to it"
TWO_FIELDS: Final = "the stage's tool has two fields, and needs both"
ONE_FOLDER: Final = "the call names no folder; it happens in the session's"
OWN_IDS: Final = "the SDK's model gives call ids, so two acts of one run have two"
VALUES: Final = "its caller hands over values, and no text of a sender"
READ_BEFORE: Final = "the SDK reads the text, hands over its value, and runs the tool with that value"
NO_TOOL: Final = "self-protection judges tool calls"
NO_INPUT: Final = "size and depth are limits of a tool's input; an operation may carry handles"
ONE_TOOL: Final = "the stage's agent has one tool"


class Entry:
    """One entry point. `field` holds the arguments in the data of its event."""

    event: ClassVar[str] = "tool:pre"
    field: ClassVar[str] = "tool_input"
    cannot: ClassVar[Mapping[str, str]] = {}
    """Needs of attacks that the entry point does not meet, with the reasons."""

    records: ClassVar[bool] = True
    """True if denials go on record."""
    slow: ClassVar[bool] = False
    """True if the entry point needs an SDK, which is slow to import."""

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Make one act; if it is admitted, its effect is `scene.run`."""
        raise NotImplementedError

    async def act_text(self, scene: Scene, text: bytes) -> None:
        """Make one act, whose arguments are the sender's own JSON."""
        await self.act(scene, text)

    async def close(self) -> None:
        """Close the sessions that the entry point has made."""

    def arguments_of(self, shown: Any) -> Any:
        """Return the arguments in a request's input."""
        return shown if self.event == "tool:pre" else shown[self.field]

    def change(self, data: Any, arguments: Any) -> dict[str, Any]:  # some need the rest of the data
        """Return the data of a modification to these arguments."""
        return {self.field: arguments}


class CallTool(Entry):
    """`session.call_tool`."""

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Call a tool."""
        await scene.session.call_tool(tool, given, scene.run, call_id=call, cwd=cwd)


class ExecuteTool(Entry):
    """`session.execute_tool`."""

    cannot: ClassVar = {"folder": ONE_FOLDER, "text": VALUES}

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Call one of the session's own tools."""
        await scene.session.execute_tool(tool, given, call_id=call)


class RunStep(Entry):
    """`session.run_step`."""

    event: ClassVar = "workflow:pre"
    field: ClassVar = "inputs"
    cannot: ClassVar = {
        "folder": ONE_FOLDER,
        "call id": NO_ID,
        "again": NO_ID,
        "text": VALUES,
        "bounds": NO_INPUT,
        "tool": NO_TOOL,
    }

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Run a step of a workflow."""
        await scene.session.run_step(tool, "step", given, scene.run)


class InvokeAgent(Entry):
    """`session.invoke_agent`."""

    event: ClassVar = "agent:pre"
    field: ClassVar = "inputs"
    cannot: ClassVar = {
        "folder": ONE_FOLDER,
        "call id": NO_ID,
        "again": NO_ID,
        "text": VALUES,
        "bounds": NO_INPUT,
        "tool": NO_TOOL,
    }

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Invoke an agent."""
        with suppress(HookAbortError):
            await scene.session.invoke_agent(tool, given, scene.run)


class Memory(Entry):
    """`session.operation("memory")`."""

    event: ClassVar = "memory:pre"
    field: ClassVar = "content"
    cannot: ClassVar = {
        "folder": ONE_FOLDER,
        "call id": NO_ID,
        "again": NO_ID,
        "text": VALUES,
        "bounds": NO_INPUT,
        "tool": NO_TOOL,
    }

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Store something in memory."""
        with suppress(HookAbortError):
            await scene.session.operation(
                "memory", {"content": given, "key": tool}, lambda data: scene.run(data["content"])
            )


class Program(Entry):
    """A program session, with questions of Claude Code."""

    cannot: ClassVar = {"session": "the pool of sessions keeps its sessions to itself"}
    program: ClassVar = "claude_code"
    before: ClassVar = "PreToolUse"
    after: ClassVar = "PostToolUse"

    def __init__(self) -> None:
        self.pool: ProgramSessions | None = None

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Ask as the program does, run what the answer leaves, and report."""
        if self.pool is None:
            self.pool = ProgramSessions(scene.hooks, waits=0.0 if scene.durable else 300.0, options=scene.options)
        common = {"session_id": "s", "transcript_path": "/tmp/t", "cwd": cwd or str(scene.folder)}
        question = {**common, **self.about(call), "tool_name": tool}
        sent = {**question, "hook_event_name": self.before}
        text = given if isinstance(given, bytes) else json.dumps(given).encode()
        asked = await self.ask(self.pool, json.dumps(sent).encode()[:-1] + b', "tool_input": ' + text + b"}")
        final = None if asked is None else self.input_after(json.loads(asked or b"{}"), json.loads(text))
        if final is not None:
            report = {"hook_event_name": self.after, "tool_input": final, "tool_response": {"is": scene.run(final)}}
            await self.ask(self.pool, json.dumps({**question, **report}).encode())

    def about(self, call: str) -> dict[str, Any]:
        """Return the fields of a question by which the program names a call."""
        return {"tool_use_id": call}

    async def ask(self, pool: ProgramSessions, question: bytes) -> bytes | None:
        """Return the answer to a question, or None if it is refused."""
        try:
            return (await pool.answer_once(self.program, question)).output
        except InvalidPayload:
            return None

    def input_after(self, answer: dict[str, Any], given: Any) -> Any:
        """Return the input with which the program goes on after an answer, or None if it does not."""
        own = answer.get("hookSpecificOutput", {})
        return own.get("updatedInput", given) if own.get("permissionDecision", "allow") == "allow" else None

    async def close(self) -> None:
        """Close the pool."""
        if self.pool is not None:
            await self.pool.close()
            self.pool = None


class PostingProgram(Program):
    """A program that posts its questions over HTTP, each under an id of its own."""

    async def ask(self, pool: ProgramSessions, question: bytes) -> bytes | None:
        """Post a question."""
        import httpx2

        from amplifier_hooks.server.program_api import create_app

        transport = httpx2.ASGITransport(create_app(pool, token="secret"), client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            headers = {"authorization": "Bearer secret", "webhook-id": uuid4().hex}
            response = await client.post(f"/v1/bridge/{self.program}", content=question, headers=headers)
        return response.content if response.status_code == 200 else None


class Codex(Program):
    """A program session, with questions of Codex."""

    program: ClassVar = "codex"

    def about(self, call: str) -> dict[str, Any]:
        """Return the fields that Codex has besides Claude Code's."""
        return {"tool_use_id": call, "turn_id": "turn", "model": "m", "permission_mode": "default"}


class Gemini(Program):
    """A program session, with questions of Gemini CLI, which merges a changed input over its own."""

    cannot: ClassVar = {
        **Program.cannot,
        "call id": "Gemini CLI names no calls",
        "id after a run": "Gemini CLI names no calls",
    }
    program: ClassVar = "gemini"
    before: ClassVar = "BeforeTool"
    after: ClassVar = "AfterTool"

    def about(self, call: str) -> dict[str, Any]:
        """Return nothing: Gemini CLI names no calls."""
        return {}

    def input_after(self, answer: dict[str, Any], given: Any) -> Any:
        """Return the input with which Gemini CLI goes on."""
        changed = answer.get("hookSpecificOutput", {}).get("tool_input", {})
        return {**given, **changed} if answer.get("decision", "allow") == "allow" else None


class ClaudeSdk(Entry):
    """The Claude Agent SDK: the callbacks that its options hold, called as its program calls them."""

    cannot: ClassVar = {"folder": "the client has one folder for all its calls", "text": READ_BEFORE}
    slow: ClassVar = True

    def __init__(self) -> None:
        self.own: Any = None
        self.of: Any = None

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Ask the hook, then the permission callback, run the call, and report."""
        from claude_agent_sdk import ClaudeAgentOptions, PermissionResultAllow, ToolPermissionContext

        from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent

        if self.of is not scene.session:
            self.of, allowed = scene.session, ClaudeAgentOptions(allowed_tools=["write", "other"])
            self.own = ClaudeAgent(scene.session).options(allowed)
        question = {"session_id": "s", "cwd": str(scene.folder), "tool_name": tool, "tool_use_id": call}
        asked = await self._hook("PreToolUse", {**question, "tool_input": given})
        answer = asked.get("hookSpecificOutput", {})
        if answer.get("permissionDecision") in ("deny", "defer"):
            return
        final = answer.get("updatedInput", given)
        said = await self.own.can_use_tool(tool, final, ToolPermissionContext(tool_use_id=call))
        if isinstance(said, PermissionResultAllow):
            await self._hook("PostToolUse", {**question, "tool_input": final, "tool_response": scene.run(final)})

    async def _hook(self, event: str, question: dict[str, Any]) -> dict[str, Any]:
        (matcher,) = self.own.hooks[event]
        answer: dict[str, Any] = await matcher.hooks[0](
            {**question, "hook_event_name": event, "transcript_path": "/tmp/t"}, question["tool_use_id"], {}
        )
        return answer


class Sdk(Entry):
    """An SDK with its agent, one tool, and a model with a script."""

    cannot: ClassVar = {"folder": ONE_FOLDER, "names": ONE_TOOL, "two calls": OWN_IDS, "fields": TWO_FIELDS}
    slow: ClassVar = True
    stage: ClassVar[tuple[str, str]]

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Run the agent, whose model calls the tool once."""
        file, name = self.stage
        stages = import_module("tests.end_to_end.adapters.stage")
        stage = getattr(import_module(f"tests.end_to_end.adapters.{file}"), name)(scene.folder)
        stage.wrote = scene.ran
        given = given.decode() if isinstance(given, bytes) else given
        await stage.run(scene.session, stages.Use("write", given), stages.Say("finished"))


class OpenAIAgents(Sdk):
    """The OpenAI Agents SDK."""

    cannot: ClassVar = {**Sdk.cannot, "id after a run": "the stage's model gives another id once the tool has run"}
    stage: ClassVar = ("stage_openai_agents", "OpenAIAgentsStage")


class LangChain(Sdk):
    """LangChain."""

    cannot: ClassVar = {**Sdk.cannot, "object": "LangChain itself refuses arguments that are no object"}
    stage: ClassVar = ("stage_langchain", "LangChainStage")


class PydanticAI(Sdk):
    """pydantic-ai."""

    stage: ClassVar = ("stage_pydantic_ai", "PydanticAIStage")


class AgentHooks(Sdk):
    """A host that speaks AGENT-HOOKS."""

    cannot: ClassVar = {**Sdk.cannot, "text": READ_BEFORE}
    stage: ClassVar = ("stage_agent_hooks", "AgentHooksStage")


class Asgi(Entry):
    """A request to an ASGI application. Its hooks ask no person: a question refuses it."""

    event: ClassVar = "request:pre"
    field: ClassVar = "body"
    records: ClassVar = False
    cannot: ClassVar = dict.fromkeys(
        ("person", "session", "rules", "call id", "again", "folder"),
        "a request has no session: hooks alone decide about it",
    ) | {
        "modify": "a hook cannot change a request",
        "names": "a request has no grants",
        "object": "a body may be any JSON value",
    }

    async def act(
        self, scene: Scene, given: Any, *, call: str = "call-1", tool: str = "write", cwd: str | None = None
    ) -> None:
        """Send a request, whose body has the arguments."""
        import httpx2
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        from amplifier_hooks.adapters.asgi import HooksMiddleware

        async def effect(request: Any) -> PlainTextResponse:
            return PlainTextResponse(scene.run(await request.json()))

        inner = Starlette(routes=[Route("/", effect, methods=["POST"])])
        transport = httpx2.ASGITransport(HooksMiddleware(inner, scene.hooks))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            body = given if isinstance(given, bytes) else json.dumps(given).encode()
            await client.post("/", content=body, headers={"content-type": "application/json"})


ENTRIES: Final[Mapping[str, type[Entry]]] = {
    "call_tool": CallTool,
    "execute_tool": ExecuteTool,
    "run_step": RunStep,
    "invoke_agent": InvokeAgent,
    "memory": Memory,
    "program": Program,
    "posting_program": PostingProgram,
    "codex": Codex,
    "gemini": Gemini,
    "claude_agent_sdk": ClaudeSdk,
    "openai_agents": OpenAIAgents,
    "langchain": LangChain,
    "pydantic_ai": PydanticAI,
    "agent_hooks": AgentHooks,
    "asgi": Asgi,
}
