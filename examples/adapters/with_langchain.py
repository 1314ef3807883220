"""An agent of LangChain, inside a session: what a gate denies does not run, and the model reads why.

The model has a script, so that this runs without a key; put yours in its place.

Run it, with the extra langchain: python examples/adapters/with_langchain.py

Prints:
    writing notes.txt
    the agent: I wrote the notes, and left production alone.
    the model was told: Operation denied by guard: not in production
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.langchain import SessionMiddleware

registry = HookRegistry()


@registry.gate("tool:pre", match="write_file")
async def guard(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Keep the agent out of production."""
    return HookResult.deny("not in production") if "production" in data["tool_input"]["path"] else None


@tool
def write_file(path: str) -> str:
    """Write a file."""
    print(f"writing {path}")
    return "written"


class Scripted(FakeMessagesListChatModel):
    """Says one message after the other."""

    def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
        """It knows them."""
        return self


model = Scripted(
    responses=[
        AIMessage("", tool_calls=[{"name": "write_file", "args": {"path": "production.cfg"}, "id": "1"}]),
        AIMessage("", tool_calls=[{"name": "write_file", "args": {"path": "notes.txt"}, "id": "2"}]),
        AIMessage("I wrote the notes, and left production alone."),
    ]
)


async def main() -> None:
    """Run it; the two lines with `session` are all there is to change."""
    async with SessionCoordinator(hooks=registry) as session:
        agent = create_agent(model, [write_file], middleware=[SessionMiddleware(session)])
        result = await agent.ainvoke({"messages": [HumanMessage("Do it")]})
    messages = result["messages"]
    print(f"the agent: {messages[-1].text}")
    print(f"the model was told: {next(one.text for one in messages if one.type == 'tool')}")


if __name__ == "__main__":
    asyncio.run(main())
