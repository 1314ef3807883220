"""Foreign code, which may hang: it runs outside of a hook's capture, within a timeout, and is abandoned if it runs on.

Cancelled work has a moment to clean up; abandoned work is kept alive. Cleaning up itself runs to its end by
`finish_despite_cancel`, however often its caller is cancelled. Two callers cannot give their work a task of
its own, as `within` does: `dispatch/timeouts.py` for chains of hooks, and `PunctualSink` for records.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator


T = TypeVar("T")

GRACE: Final = 0.1
"""Seconds that cancelled work has to clean up before it is abandoned."""

LEFT_BEHIND: Final[dict[int, Any]] = {}
"""Work that did not end, by its `id`: a coroutine stays for good, a task until it is done."""

# A destructor closes a coroutine again, and one that swallows `GeneratorExit` may then run for ever, at the latest when
# the interpreter clears its modules. The collector looks into no constants of code, so it never finds this circle, and
# destroys nothing that hangs on it.
_circle: list[Any] = [LEFT_BEHIND]
_circle.append((lambda: None).__code__.replace(co_consts=(None, _circle)))

PRINTING: ContextVar[Any] = ContextVar("amplifier_hooks.printing", default=None)
"""Captured output that receives the text which the current code prints, or None; see `dispatch/captured_output.py`."""

NOTHING: Final = nullcontext()


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


async def finish_despite_cancel(work: Awaitable[T], seconds: float = inf) -> T:
    """Carry `work` out to its end, and return its result. A cancellation is raised once the work has ended.

    Work that takes longer than `seconds` goes on by itself, and `TooLate` is raised. Without `seconds` the work has to
    bound its own time. Raises what the work raises, unless the caller was cancelled.
    """
    task = asyncio.ensure_future(work)
    keep_until_done(task)
    cancelled: asyncio.CancelledError | None = None
    until = monotonic() + seconds
    while not task.done() and (left := until - monotonic()) > 0:
        try:
            await asyncio.wait({task}, timeout=None if left == inf else left)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if not task.done():
        raise TooLate(f"not finished within {seconds:g} s")
    return result_of(task)


def result_of(task: asyncio.Future[T]) -> T:
    """Return the result of a task that is done.

    Raises what the task raised, and `RuntimeError` if the task cancelled itself.
    """
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()


def without_capture() -> AbstractContextManager[None]:
    """Return a context in which printed text is no hook's output: a message, or a tool that a hook had called."""
    return NOTHING if PRINTING.get() is None else _without_capture()


@contextmanager
def _without_capture() -> Iterator[None]:
    token = PRINTING.set(None)
    try:
        yield
    finally:
        with suppress(ValueError):  # closed from another context, as unfinished coroutines are
            PRINTING.reset(token)


def keep_alive(work: object) -> None:
    """Keep work for as long as the process lives. Nothing closes or destroys it."""
    LEFT_BEHIND[id(work)] = work


def keep_until_done(task: asyncio.Future[Any]) -> None:
    """Keep a task that goes on by itself until it is done. Its late error is not reported."""
    keep_alive(task)
    task.add_done_callback(_forget)


async def cancel_all(
    tasks: Iterable[asyncio.Future[Any]], why: str | None = None, *, grace: float = GRACE
) -> set[asyncio.Future[Any]]:
    """Cancel tasks and give them `grace` seconds to clean up. Return those that run on; they are kept until done."""
    tasks = set(tasks)
    running = {task for task in tasks if not task.done()}
    for task in tasks:
        keep_until_done(task)
        task.cancel(why)
    if running:
        _, running = await asyncio.wait(running, timeout=grace)
    return running


def _forget(task: asyncio.Future[Any]) -> None:
    LEFT_BEHIND.pop(id(task), None)
    if not task.cancelled():
        task.exception()  # asyncio reports an exception that was never retrieved
