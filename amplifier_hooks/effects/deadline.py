"""Waiting for somebody else's code, but not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_hooks.capture import outside
from amplifier_hooks.leftovers import cancel_all

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["TooLate", "Withdrawn", "within"]

T = TypeVar("T")


class TooLate(TimeoutError):
    """The time was up before there was a result."""


class Withdrawn(Exception):
    """Nobody wants the result any more; the reason says why."""


async def within(seconds: float, work: Awaitable[T], stop: asyncio.Future[str] | None = None) -> T:
    """What `work` results in, if that is in time.

    It runs in a task of its own: `asyncio.timeout` would wait for whoever swallows a cancellation, and take a result
    that comes late. What it prints is no hook's output, whoever called for it. Cancelling it cancels the work, and so
    does a result of `stop`. Raises `TooLate`, `Withdrawn`, and what the work raises.
    """
    with outside():
        task = asyncio.ensure_future(work)
    try:
        waited: set[asyncio.Future[Any]] = {task} if stop is None else {task, stop}
        done, _ = await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await cancel_all({task})
        raise
    if task not in done:
        await cancel_all({task})
        if stop is not None and stop in done:
            raise Withdrawn(stop.result())
        raise TooLate(f"no answer within {seconds:g} s")
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()
