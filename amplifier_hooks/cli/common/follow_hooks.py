"""Trusted hooks come in; for a block their changes are announced, asked about, and taken over once they are trusted."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from amplifier_hooks.definitions.change_requests import ChangeRequests
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_hooks.cli.project.read_project import NamedHooks
    from amplifier_hooks.definitions.pinned_modules import PinnedModules
    from amplifier_hooks.ports import ApprovalBackend, AuditSink
    from amplifier_hooks.registry.hook_table import RegistryChange


@asynccontextmanager
async def follow_hooks(
    hooks: NamedHooks, approvals: ApprovalBackend | None, audit: AuditSink, *more: PinnedModules | None
) -> AsyncIterator[None]:
    """Follow the files and modules of hooks, and further modules, for the block.

    With `approvals`, the approvers are asked about each change that waits, and `audit` records it.
    """
    async with AsyncExitStack() as stack:
        if hooks.files is not None:
            stack.callback(hooks.registry.watch(tell_change))
        for one in (hooks.files, hooks.modules, *more):
            if one is None:
                continue
            stack.push_async_callback(_end, asyncio.create_task(one.watch()))
            if approvals is not None and one.trust is not None:
                requests = ChangeRequests(one, one.trust, approvals, audit)
                stack.push_async_callback(_end, asyncio.create_task(requests.follow()))
        yield


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def tell_change(change: RegistryChange) -> None:
    """Print a change of the hooks in force on standard error: a server at a terminal shows no log."""
    if change.what == "broken":
        text = f"{change.hook} has changed and is not taken over: {change.detail}"
    elif change.what in ("defined", "redefined", "undefined"):
        text = f"Hook {change.hook} is {change.what}."
    else:
        return
    print(for_terminal(text), file=sys.stderr, flush=True)
