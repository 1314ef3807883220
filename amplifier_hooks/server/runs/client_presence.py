"""Waiting for something on behalf of somebody who may go away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from starlette.requests import Request


T = TypeVar("T")


async def while_there(
    request: Request, work: Coroutine[Any, Any, T | None], undo: Callable[[T], Awaitable[None]]
) -> T | None:
    """What comes of the work; None, and the work cancelled, once whoever asked has hung up.

    What came of it all the same is undone. Cancelling it is as if they had hung up. Raises what the work raises.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _given_up(working, leaving, undo)
        raise
    if not leaving.done():
        await _ended(leaving)
        return working.result()
    await _given_up(working, leaving, undo)
    return None


async def _given_up(
    working: asyncio.Task[T | None], leaving: asyncio.Task[None], undo: Callable[[T], Awaitable[None]]
) -> None:
    await _ended(working, leaving)
    if not working.cancelled() and working.exception() is None:
        found = working.result()
        if found is not None:
            await undo(found)


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _gone(request: Request) -> None:
    """Returns when the other side has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
