"""Claude's agent inside a session: what a gate denies does not run, and the model reads why.

The model is the one that the environment names (`ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`).

Run it, with the extra claude-agent-sdk: python examples/adapters/with_claude_agent_sdk.py

Prints:
    writing notes.txt
    denied: Operation denied by guard: not in production
    the agent: I wrote the notes, and left production alone.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, create_sdk_mcp_server, tool

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent

registry = HookRegistry()
denials: list[str] = []


@registry.gate("tool:pre", match="mcp__files__write_file")
async def guard(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Keep the agent out of production."""
    if "production" in data["tool_input"]["path"]:
        denials.append("Operation denied by guard: not in production")
        return HookResult.deny("not in production")
    return None


@tool("write_file", "Writes a file.", {"path": str})
async def write_file(given: dict[str, Any]) -> dict[str, Any]:
    """Write a file."""
    print(f"writing {given['path']}")
    return {"content": [{"type": "text", "text": "written"}]}


options = ClaudeAgentOptions(
    mcp_servers={"files": create_sdk_mcp_server("files", tools=[write_file])},
    allowed_tools=["mcp__files__write_file"],
    setting_sources=[],
)


async def main() -> None:
    """Run it; the first two lines are all there is to change."""
    async with (
        SessionCoordinator(hooks=registry) as session,
        ClaudeSDKClient(ClaudeAgent(session).options(options)) as client,
    ):
        await client.query("Write notes.txt and production.cfg")
        answers = [message.result async for message in client.receive_response() if isinstance(message, ResultMessage)]
    print(*(f"denied: {one}" for one in denials), sep="\n")
    print(f"the agent: {answers[0]}")


if __name__ == "__main__":
    asyncio.run(main())
