"""An observer is told of everything that happened, and changes nothing.

Run it: python examples/observe.py

Prints:
    tool:pre   Read  continue
    tool:post  Read  continue
    the agent got: 3 lines
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookRegistry, Outcome, SessionCoordinator

registry = HookRegistry()


@registry.observe("tool:*")
async def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
    """Print what happened and what the other hooks made of it."""
    print(f"{event:<10} {data['tool_name']}  {outcome.action}")


async def main() -> None:
    """Run one tool call past the hooks."""
    async with SessionCoordinator(hooks=registry) as session:
        result = await session.call_tool("Read", {"file_path": "notes.txt"}, lambda _: "3 lines")
        print(f"the agent got: {result.value}")


if __name__ == "__main__":
    asyncio.run(main())
