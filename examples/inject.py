"""A hook tells the model what is wrong while it can still mend it; the person at the screen reads something shorter.

Run it: python examples/inject.py

Prints:
    screen: 1 finding (info, hook:lint)
    system message:
    ⟦hook lint · 5f3c9e21⟧
    app.py, line 2: missing colon
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, InMemoryContext, SessionCoordinator

registry = HookRegistry()


@registry.on("tool:post", match="Write")
async def lint(_event: str, data: Mapping[str, Any]) -> HookResult:
    """Put a finding into the agent's context, and a shorter word on the screen."""
    path = data["tool_input"]["file_path"]
    return HookResult.inject(f"{path}, line 2: missing colon", user_message="1 finding")


class Screen:
    """A display is anything that can show a message."""

    def show_message(self, message: str, level: str, source: str) -> None:
        """Print it."""
        print(f"screen: {message} ({level}, {source})")


async def main() -> None:
    """Write a file, then look into the context."""
    context = InMemoryContext(mark="5f3c9e21")
    async with SessionCoordinator(hooks=registry, context=context, display=Screen()) as session:
        await session.call_tool("Write", {"file_path": "app.py"}, lambda _: "written")
    for message in context.messages:
        print(f"{message['role']} message:\n{message['content']}")


if __name__ == "__main__":
    asyncio.run(main())
