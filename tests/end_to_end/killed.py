"""A program with one call to make: `python killed.py STORE FOLDER POINT`; it is killed at the point that is named.

FOLDER shows its work: `canary` has a line for each run of its tool, `record.jsonl` is its record.
"""

# it says what it did on standard output

# ruff: noqa: T201  # it says what it did on standard output

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator
from approval_backends.backend import DeferredApprovals
from tests.approval_backends.stores.worker import die, store_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def fatal(owner: Any, method: str, point: str, wanted: str, *, after: bool = False, kind: str | None = None) -> None:
    """Die before, or after, the next call of this method; of a record's `write`, with this kind of record."""
    if point != wanted:
        return
    whole: Callable[..., Awaitable[Any]] = getattr(owner, method)

    async def deadly(*arguments: Any, **options: Any) -> Any:
        meant = kind is None or arguments[0] == kind
        if meant and not after:
            die()
        result = await whole(*arguments, **options)
        if meant:
            die()
        return result

    setattr(owner, method, deadly)


async def main(address: str, folder: str, point: str) -> None:
    """Ask, run once, and print the outcome."""
    audit = AuditLog.open(Path(folder) / "record.jsonl")
    registry, approvals = HookRegistry(), DeferredApprovals(store_at(address))

    @registry.gate("tool:pre", name="guard")
    def guard(event: str, data: Any) -> HookResult:
        if sys.argv[3] == "asked":  # no closure: the version of the hook is the same in every program
            die()
        return HookResult.ask("Deploy?", options=["Allow once", "Deny"])

    fatal(audit, "write", point, "recorded the question", after=True, kind="approval.requested")
    fatal(approvals.broker, "submit", point, "stored the question", after=True)
    fatal(audit, "write", point, "decided, not recorded", kind="approval.decided")
    fatal(audit, "write", point, "recorded the decision", after=True, kind="approval.decided")
    fatal(audit, "write", point, "recorded that it runs", after=True, kind="tool.running")
    fatal(approvals, "claim", point, "claimed", after=True)
    fatal(audit, "write", point, "effect done, not recorded", kind="tool.done")
    fatal(audit, "write", point, "result recorded, not stored", after=True, kind="tool.done")
    fatal(approvals, "settle", point, "result stored", after=True)
    fatal(approvals, "mark_recorded", point, "everything but the mark")

    def deploy(given: Any) -> None:
        descriptor = os.open(Path(folder) / "canary", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, b"ran\n")
        os.close(descriptor)
        if point == "effect begun":
            die()

    async with (
        audit,
        approvals,
        SessionCoordinator(
            registry, session_id="s1", approvals=approvals, audit=audit, tenant="acme", approval_wait=20.0
        ) as session,
    ):
        outcome = await session.call_tool("deploy", {"build": 7}, deploy, call_id="c1")
    print(outcome.status, (outcome.reason or "").replace("\n", " "))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
