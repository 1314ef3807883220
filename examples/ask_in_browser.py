"""A hook asks; an approver at the page decides. Try it in a terminal, and follow the link that it prints.

Without a terminal no approver would follow a link, so a program answers over the same socket. The output below is of
that case.

Run it: python examples/ask_in_browser.py

Prints:
    Mara sees: Write production.yaml
    Mara is asked: Write production.yaml?
    written
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import ApprovalsClient, Approver, WebSocketApprovals

registry = HookRegistry()


@registry.gate("tool:pre", match="Write", name="production")
async def ask_first(_event: str, data: Mapping[str, Any]) -> HookResult:
    """Ask before every write. Without an answer within a minute it is denied."""
    return HookResult.ask(f"Write {data['tool_input']['file_path']}?", options=["Allow once", "Deny"], timeout=60)


async def answer(address: str, token: str) -> None:
    """Do as a program what Mara does at the page: wait for the card, read it, allow it."""
    async with ApprovalsClient(address, token) as client:
        async for _news in client.news():
            for row in client.queue:
                card = await client.show(row.request_id)
                print(f"Mara sees: {row.verb} {row.what}")
                print(f"Mara is asked: {card.questions[0].prompt}")
                await client.decide(row, card.options[0].option_id)
                return


async def main() -> None:
    """Try to write."""
    mara = Approver(name="Mara")
    async with WebSocketApprovals(approvers=[mara]) as web:
        if sys.stdin.isatty():
            print(f"Open {web.link}")
            person = None
        else:
            person = asyncio.create_task(answer(web.gateway.address, mara.token))
        async with SessionCoordinator(hooks=registry, approvals=web) as session:
            arguments = {"file_path": "production.yaml", "content": "replicas: 3\n"}
            result = await session.call_tool("Write", arguments, lambda _: "written")
            print(result.reason if result.denied else result.value)
        if person is not None:
            await person


if __name__ == "__main__":
    asyncio.run(main())
