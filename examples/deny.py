"""A gate stops what must not happen, and the agent can read why.

A gate fails closed: if it raised or took too long, that would deny as well.

Run it: python examples/deny.py

Prints:
    ls: ran
    rm -rf build: Operation denied by no_wiping: rm -rf is not for agents
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator

registry = HookRegistry()


@registry.gate("tool:pre", match="Bash")
async def no_wiping(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Deny one command; answering nothing lets the others pass."""
    if "rm -rf" in data["tool_input"]["command"]:
        return HookResult.deny("rm -rf is not for agents")
    return None


async def main() -> None:
    """Try two commands."""
    async with SessionCoordinator(hooks=registry) as session:
        for command in ("ls", "rm -rf build"):
            result = await session.call_tool("Bash", {"command": command}, lambda _: "ran")
            print(f"{command}: {result.reason if result.denied else result.value}")


if __name__ == "__main__":
    asyncio.run(main())
