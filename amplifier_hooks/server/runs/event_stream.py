"""Events of a run as server-sent events: each with its number, so that whoever lost the stream goes on where it broke.

A line without meaning is sent while nothing happens, so that a connection that is dead is noticed.

Waiting for something on behalf of somebody who may go away.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
    from typing import Any

    from starlette.requests import Request

    from amplifier_hooks.runs.run_states import RunEvent


EVENT_STREAM: Final = "text/event-stream"
QUIET: Final = 15.0
"""Seconds without a word."""
LARGEST: Final = 18
"""Digits of the largest number that can be a place in a stream."""


def last_event(given: str | None) -> int:
    """After which event to begin, as `Last-Event-ID` says it; a text that is no number begins at the start."""
    return int(given) if given and given.isascii() and given.isdigit() and len(given) <= LARGEST else 0


async def as_stream(events: AsyncIterator[RunEvent], quiet: float = QUIET) -> AsyncGenerator[str, None]:
    """The text of a stream. Closing it closes what it reads from."""
    pending: asyncio.Future[RunEvent] | None = None
    yield "retry: 1000\n\n"
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({pending}, timeout=quiet)
            if not done:
                yield ": still here\n\n"
                continue
            try:
                event = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            # ASCII JSON has no line breaks, whatever somebody put into it.
            yield f"id: {event.number}\nevent: {event.type}\ndata: {json.dumps(dict(event.body))}\n\n"
    finally:
        if pending is not None and not pending.done():
            pending.cancel()
            await asyncio.wait({pending})


T = TypeVar("T")


async def while_there(
    request: Request, work: Coroutine[Any, Any, T | None], undo: Callable[[T], Awaitable[None]]
) -> T | None:
    """What comes of the work; None, and the work cancelled, once whoever asked has hung up.

    What came of it all the same is undone. Cancelling it is as if they had hung up. Raises what the work raises.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _give_up(working, leaving, undo)
        raise
    if not leaving.done():
        await _cancel_all(leaving)
        return working.result()
    await _give_up(working, leaving, undo)
    return None


async def _give_up(
    working: asyncio.Task[T | None], leaving: asyncio.Task[None], undo: Callable[[T], Awaitable[None]]
) -> None:
    await _cancel_all(working, leaving)
    if not working.cancelled() and working.exception() is None:
        found = working.result()
        if found is not None:
            await undo(found)


async def _cancel_all(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _wait_for_disconnect(request: Request) -> None:
    """Returns when the other side has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
