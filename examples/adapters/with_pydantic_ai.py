"""An agent of pydantic-ai, inside a session: what a gate denies does not run, and the model reads why.

The model has a script, so that this runs without a key; put yours in its place.

Run it, with the extra pydantic-ai: python examples/adapters/with_pydantic_ai.py

Prints:
    writing notes.txt
    the agent: I wrote the notes, and left production alone.
    the model was told: Operation denied by guard: not in production
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.pydantic_ai import SessionCapability

registry = HookRegistry()


@registry.gate("tool:pre", match="write_file")
async def guard(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Keep the agent out of production."""
    return HookResult.deny("not in production") if "production" in data["tool_input"]["path"] else None


steps: Iterator[Any] = iter(
    [
        ToolCallPart("write_file", {"path": "production.cfg"}),
        ToolCallPart("write_file", {"path": "notes.txt"}),
        TextPart("I wrote the notes, and left production alone."),
    ]
)


def script(_messages: list[ModelMessage], _about: AgentInfo) -> ModelResponse:
    """Say one thing after the other."""
    return ModelResponse(parts=[next(steps)])


agent = Agent(FunctionModel(script))


@agent.tool_plain
def write_file(path: str) -> str:
    """Write a file."""
    print(f"writing {path}")
    return "written"


async def main() -> None:
    """Run it; the two lines with `session` are all there is to change."""
    async with SessionCoordinator(hooks=registry) as session:
        result = await agent.run("Do it", capabilities=[SessionCapability(session)])
    print(f"the agent: {result.output}")
    parts = [part for message in result.all_messages() for part in message.parts]
    print(f"the model was told: {next(part.content for part in parts if isinstance(part, ToolReturnPart))}")


if __name__ == "__main__":
    asyncio.run(main())
