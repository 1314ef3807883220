"""Events of a run come in; server-sent events go out, numbered so that a client can resume a broken stream.

The stream sends a comment while nothing happens, so that a dead connection is noticed. `while_there` runs work for a
client that may disconnect.
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
"""Seconds without an event after which a comment is sent."""
LARGEST: Final = 18
"""Digits of an event's number, at most."""


def last_event(given: str | None) -> int:
    """Return the number in `Last-Event-ID`, after which the stream begins; 0 for any other text."""
    return int(given) if given and given.isascii() and given.isdigit() and len(given) <= LARGEST else 0


async def as_stream(events: AsyncIterator[RunEvent], quiet: float = QUIET) -> AsyncGenerator[str, None]:
    """Yield the text of a stream. Closing it cancels a pending read of `events`."""
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
            # ASCII JSON has no line breaks, whatever its strings contain.
            yield f"id: {event.number}\nevent: {event.type}\ndata: {json.dumps(dict(event.body))}\n\n"
    finally:
        if pending is not None and not pending.done():
            pending.cancel()
            await asyncio.wait({pending})


T = TypeVar("T")


async def while_there(
    request: Request, work: Coroutine[Any, Any, T | None], undo: Callable[[T], Awaitable[None]]
) -> T | None:
    """Return the result of work; if the client disconnects first, cancel the work and return None.

    A result that comes in spite of that is passed to `undo`. Cancelling has the effect of a disconnect. Raises the
    errors of the work.
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
    """Wait until the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
