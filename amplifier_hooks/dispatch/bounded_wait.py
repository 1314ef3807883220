"""Awaiting foreign code, with a timeout."""

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
    """The timeout passed before there was a result."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return the result of `work` if it arrives in time.

    `asyncio.timeout` would wait for work that swallows a cancellation, and would accept a late result. Cancelling
    `within` cancels the work. Raises `TooLate`, and what the work raises.
    """
    async with underway(work) as task:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TooLate(f"no answer within {seconds:g} s")
        return result_of(task)


@asynccontextmanager
async def underway(work: Awaitable[T]) -> AsyncIterator[asyncio.Future[T]]:
    """Run `work` in a task, cancel the task at the end of the block, and abandon a task that does not stop.

    The task's output is no hook's output, even if the block runs in a captured hook.
    """
    with without_capture():
        task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        await cancel_all({task})


def result_of(task: asyncio.Future[T]) -> T:
    """Return the result of a task that is done.

    Raises what the task raised, and `RuntimeError` if the task cancelled itself.
    """
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()
