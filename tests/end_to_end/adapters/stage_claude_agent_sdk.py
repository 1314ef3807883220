"""The Claude Agent SDK with the program in its wheel, and a scripted model on loopback."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)

from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent
from tests.end_to_end.adapters.stage import Ran, Say, Stage, Use
from tests.scripted_models import serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks import SessionCoordinator

QUIET: Final = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")


class ClaudeAgentStage(Stage):
    """One agent with one tool, which runs in this process."""

    tool: ClassVar[str] = "mcp__stage__write"
    cannot: ClassVar[Mapping[str, str]] = {
        "a_model_call_is_denied": "the program calls its model itself; no hook is asked",
        "a_changed_prompt_reaches_the_model": "a prompt cannot be changed; one that a hook changed is refused",
    }

    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run one query."""
        return await self._played(session, script, prompt)

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Resume the conversation; the program makes the deferred call again by itself."""
        return await self._played(session, script, None, resume=stored)

    async def _played(
        self, session: SessionCoordinator, script: tuple[Use | Say, ...], prompt: str | None, resume: Any = None
    ) -> Ran:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        steps = [Use(self.tool, one.input) if isinstance(one, Use) else one for one in script]
        async with serving(*steps) as model:
            variables = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "x", "HOME": os.fspath(home)}
            options = self.options()
            options.env, options.resume = {**variables, **dict.fromkeys(QUIET, "1")}, resume
            answered: ResultMessage | None = None
            async with ClaudeSDKClient(ClaudeAgent(session, asking="defer").options(options)) as client:
                if prompt is not None:
                    await client.query(prompt)
                async for message in client.receive_response():
                    if isinstance(message, ResultMessage):
                        answered = message
        assert answered is not None
        read = [json.dumps(request["messages"]) for request in model.requests]
        stored = answered.session_id if answered.deferred_tool_use else None
        return Ran(read=read, stored=stored, refused=None if read else str(answered.result))

    def options(self) -> ClaudeAgentOptions:
        """Return the options of the host."""
        return ClaudeAgentOptions(
            mcp_servers={"stage": self._server()}, allowed_tools=[self.tool], cwd=self.folder, setting_sources=[]
        )

    def _server(self) -> Any:
        @tool("write", "Writes a file.", {"path": str, "text": str})
        async def write(given: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": self.write(given["path"], given["text"])}]}

        return create_sdk_mcp_server("stage", tools=[write])
