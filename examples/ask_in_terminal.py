"""A hook asks; the user at the terminal decides. Try it in a terminal, and again with `< /dev/null`.

In a terminal a card shows what would be written: `a` and Enter allow it, Enter alone denies it, `m` denies it with
words for the agent, `e` edits the arguments.

Without a terminal the answer is no. The output below is of that case.

Run it: python examples/ask_in_terminal.py

Prints:
    Operation denied by production: Approval unavailable: no interactive terminal to ask in
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import TerminalApprovals

registry = HookRegistry()


@registry.gate("tool:pre", match="Write", name="production")
async def ask_first(_event: str, data: Mapping[str, Any]) -> HookResult:
    """Ask before every write. Without an answer within a minute it is denied."""
    return HookResult.ask(f"Write {data['tool_input']['file_path']}?", options=["Allow once", "Deny"], timeout=60)


async def main() -> None:
    """Try to write."""
    async with SessionCoordinator(hooks=registry, approvals=TerminalApprovals()) as session:
        result = await session.call_tool("Write", {"file_path": "production.yaml"}, lambda _: "written")
        print(result.reason if result.denied else result.value)


if __name__ == "__main__":
    asyncio.run(main())
