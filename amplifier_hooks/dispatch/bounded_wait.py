"""Waiting for somebody else's code, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from amplifier_hooks.abandoned_work import cancel_all
from amplifier_hooks.dispatch.captured_output import without_capture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable


T = TypeVar("T")


class TooLate(TimeoutError):
    """The time was up before there was a result."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`, if that is in time.

    `asyncio.timeout` would wait for work that swallows a cancellation, and take a result that comes late. Cancelling it
    cancels the work. Raises `TooLate`, and what the work raises.
    """
    async with underway(work) as task:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TooLate(f"no answer within {seconds:g} s")
        return result_of(task)


@asynccontextmanager
async def underway(work: Awaitable[T]) -> AsyncIterator[asyncio.Future[T]]:
    """`work` in a task of its own, which is cancelled at the end of the block, and left behind if it does not stop.

    The task's output is no hook's output, in whatever context the block stands.
    """
    with without_capture():
        task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        await cancel_all({task})


def result_of(task: asyncio.Future[T]) -> T:
    """The result of a task that is done. Raises what the task raised, and `RuntimeError` if it cancelled itself."""
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()
