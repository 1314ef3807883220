"""A program asks; an approver answers from another terminal, with the command `amplifier-hooks approvals`.

The question lives in a file that both processes open. Started with the name of a file it waits for you, in another
terminal: `amplifier-hooks approvals list --store FILE`. Without one it starts the command itself.

Run it: python examples/decide_elsewhere.py [FILE]

Prints:
    agent: wants to write config/production.yaml
    other terminal: Allow once: Write for agent
    agent: it is written
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import DeferredApprovals, store_at

registry = HookRegistry()
CHANGE = {"file_path": "config/production.yaml", "content": "payment_provider: live\nretries: 3\n"}


@registry.gate("tool:pre", match="Write")
async def protect_production(_event: str, _data: object) -> HookResult:
    """Ask about every write."""
    return HookResult.ask("Write to production?", options=["Allow once", "Allow always", "Deny"])


async def agent(store: str) -> str:
    """Write one file, if an approver allows it, and return the result or the reason."""
    async with DeferredApprovals(store_at(store)) as approvals:
        session = SessionCoordinator(registry, session_id="release-42", approvals=approvals)
        print("agent: wants to write", CHANGE["file_path"], flush=True)
        result = await session.call_tool("Write", CHANGE, lambda _: "it is written")
        return str(result.value if result.ok else result.reason)


def command(*arguments: str, store: str) -> str:
    """Return the output of `amplifier-hooks approvals`."""
    whole = [sys.executable, "-m", "amplifier_hooks", "approvals", *arguments, "--store", store]
    return subprocess.run(whole, check=True, capture_output=True, text=True).stdout


def approver(store: str) -> str:
    """Allow the first request that waits, and return the beginning of the command's output."""
    waiting: list[dict[str, Any]] = []
    while not waiting:
        waiting = json.loads(command("list", "--json", store=store)) if Path(store).exists() else []
    return command("allow", waiting[0]["request"]["id"], "--yes", store=store).partition(",")[0]


async def main() -> None:
    """Ask, and answer from another process unless a person will."""
    if len(sys.argv) > 1:
        print("agent:", await agent(sys.argv[1]))
        return
    with TemporaryDirectory() as folder:
        store = f"{folder}/approvals.db"
        result, printed = await asyncio.gather(agent(store), asyncio.to_thread(approver, store))
    print("other terminal:", printed)
    print("agent:", result)


if __name__ == "__main__":
    asyncio.run(main())
