"""A hook's message for the user goes to the screen; its text for the model goes into the context.

Neither ever reads the other's text. Here both are printed, so that they can be seen side by side.

Run it: python examples/messages.py

Prints:
    ◆ warning  hook:spelling  notes.md has 2 mistakes
      │ The agent was told which.
    the model reads:
    ⟦hook spelling · 5f3c9e21⟧
    notes.md, line 1: "recieve"
    notes.md, line 4: "seperate"
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, InMemoryContext, SessionCoordinator, TerminalDisplay

registry = HookRegistry()


@registry.on("tool:post", match="Write")
async def spelling(_event: str, _data: Mapping[str, Any]) -> HookResult:
    """Look at what was written, and have something to say to both."""
    return HookResult.inject(
        'notes.md, line 1: "recieve"\nnotes.md, line 4: "seperate"',
        user_message="notes.md has 2 mistakes\nThe agent was told which.",
        user_message_level="warning",
    )


async def main() -> None:
    """Write a file, then look into the context."""
    context, screen = InMemoryContext(mark="5f3c9e21"), TerminalDisplay(sys.stdout)
    async with SessionCoordinator(hooks=registry, context=context, display=screen) as session:
        await session.call_tool("Write", {"file_path": "notes.md"}, lambda _: "written")
    for message in context.messages:
        print(f"the model reads:\n{message['content']}")


if __name__ == "__main__":
    asyncio.run(main())
