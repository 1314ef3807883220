"""An agent of the OpenAI Agents SDK, run inside a session: what a gate denies does not run, and the model reads why.

The model is the SDK's own scripted one, so that this runs without a key; put yours in its place.

Run it, with the extra openai-agents: python examples/adapters/with_openai_agents.py

Prints:
    writing notes.txt
    the agent: I wrote the notes, and left production alone.
    the model was told: Operation denied by guard: not in production
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from agents import Agent, RunConfig, ToolCallOutputItem, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.openai_agents import OpenAIAgents

registry = HookRegistry()


@registry.gate("tool:pre", match="write_file")
async def guard(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Keep the agent out of production."""
    return HookResult.deny("not in production") if "production" in data["tool_input"]["path"] else None


@function_tool
def write_file(path: str) -> str:
    """Write a file."""
    print(f"writing {path}")
    return "written"


model = ScriptedModel(
    [
        [function_call("write_file", {"path": "production.cfg"}, call_id="1")],
        [function_call("write_file", {"path": "notes.txt"}, call_id="2")],
        [assistant_message("I wrote the notes, and left production alone.")],
    ]
)
agent = Agent(name="writer", tools=[write_file], model=model)


async def main() -> None:
    """Run it; the two lines with `session` are all there is to change."""
    async with SessionCoordinator(hooks=registry) as session:
        result = await OpenAIAgents(session).run(agent, "Do it", run_config=RunConfig(tracing_disabled=True))
    print(f"the agent: {result.final_output}")
    told = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    print(f"the model was told: {told[0]}")


if __name__ == "__main__":
    asyncio.run(main())
