"""Foreign code, which may hang: it runs outside of a hook's capture, within a timeout, and is abandoned if it runs on.

Cancelled work has a moment to clean up; abandoned work is kept alive. Cleaning up itself runs to its end by
`finish_despite_cancel`, however often its caller is cancelled. Two callers cannot give their work a task of
its own, as `within` does: `dispatch/timeouts.py` for chains of hooks, and the `Recorder` for its sink.

A plain function that may hang runs off the event loop, in one of the few daemon threads of a `DaemonPool`. The running
task knows its cancellations, so that a caller can tell its own from one that foreign code made up.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from functools import cache
from math import inf
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from weakref import ref

import msgspec

from amplifier_hooks.act import LARGE, is_larger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

GRACE: Final = 0.1
"""Seconds that cancelled work has to clean up before it is abandoned."""

IDLE_SECONDS: Final = 10.0
"""Seconds that a thread without work stays."""

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

CURRENT_TASKS: Final[dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = getattr(asyncio.tasks, "_current_tasks", {})
"""Task that each event loop runs now, as asyncio keeps it."""

_latest: Callable[[], asyncio.AbstractEventLoop | None] = type(None)
"""The most recently used loop, if it still exists."""


class TooLate(TimeoutError):
    """The timeout passed before there was a result."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return the result of `work` if it arrives in time.

    `asyncio.timeout` would wait for work that swallows a cancellation, and would accept a late result. Cancelling
    `within` cancels the work. Raises `TooLate`, and what the work raises.
    """
    with without_capture():
        task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except BaseException:
        await cancel_all({task})
        raise
    if not task.done():
        await cancel_all({task})
        raise TooLate(f"no answer within {seconds:g} s")
    if task.cancelled():  # `result_of`, inlined: every call of a backend ends here
        raise RuntimeError("it cancelled itself")
    return task.result()


@asynccontextmanager
async def underway(work: Awaitable[T], *, grace: float = GRACE) -> AsyncIterator[asyncio.Future[T]]:
    """Run `work` in a task, cancel it at the end of the block, and abandon a task that has not stopped after `grace`.

    The task's output is no hook's output, even if the block runs in a captured hook.
    """
    with without_capture():
        task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        await cancel_all({task}, grace=grace)


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
    running = set()
    for task in tasks:
        if task.done():
            _forget(task)
        else:
            running.add(task)
            keep_until_done(task)
            task.cancel(why)
    if running:
        _, running = await asyncio.wait(running, timeout=grace)
    return running


def _forget(task: asyncio.Future[Any]) -> None:
    LEFT_BEHIND.pop(id(task), None)
    if not task.cancelled():
        task.exception()  # asyncio reports an exception that was never retrieved


# -- the running task --------------------------------------------------------------------------------------------------


def has_cancelled_itself() -> bool:
    """Return True if the code of the running task cancelled that task; the next await raises `CancelledError`."""
    task = running_task()
    return task is not None and getattr(task, "_must_cancel", False) is True  # `has_pending_cancellation`, inlined


def current_task() -> asyncio.Task[Any] | None:
    """Return the running task, or None: hooks that never wait need no task, and no loop."""
    global _latest  # noqa: PLW0603  # a cache of one
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    _latest = ref(loop)
    return asyncio.current_task(loop)


def running_task() -> asyncio.Task[Any] | None:
    """Like `current_task`, but tries the most recently used loop first.

    Before Python 3.12, asyncio asks the operating system for the process ID at each call, which takes longer than a
    hook.
    """
    latest = _latest()
    if latest is not None and getattr(latest, "_thread_id", None) == get_ident():
        return CURRENT_TASKS.get(latest)
    return current_task()


if sys.version_info >= (3, 12):
    running_task = current_task


def delivered_cancellations(task: asyncio.Task[Any]) -> int:
    """Return the number of cancellations that a task has received.

    One that was requested and is not delivered yet will arrive during the next wait.
    """
    return task.cancelling() - getattr(task, "_must_cancel", False)  # `has_pending_cancellation`, inlined


def has_pending_cancellation(task: asyncio.Task[Any]) -> bool:
    """Return True if a cancellation was requested that the task has not received yet.

    asyncio keeps this fact private in every version; without it, a hook that awaits a cancelled future could not be
    distinguished from a cancelled caller.
    """
    return bool(getattr(task, "_must_cancel", False))


def cancellations() -> int:
    """Return the number of cancellations of the running task, without one that it has not received yet."""
    task = running_task()
    return 0 if task is None else task.cancelling() - getattr(task, "_must_cancel", False)  # inlined, as above


def was_cancelled_since(before: int) -> bool:
    """Return True if the running task was cancelled since then. If not, a `CancelledError` is an ordinary error."""
    task = running_task()
    return task is not None and task.cancelling() > before


# -- plain functions, in threads ---------------------------------------------------------------------------------------


class _ThreadCall(msgspec.Struct, eq=False):
    function: Callable[[], Any]
    context: Context
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[tuple[Any, BaseException | None]]

    def carry_out(self) -> None:
        """Call the function, in the thread. No exception of the function may end the thread, not even SystemExit."""
        result, error = None, None
        try:
            result = self.context.run(self.function)
        except BaseException as raised:  # noqa: BLE001  the error is raised where the call is awaited
            error = raised
        with suppress(RuntimeError):  # the loop was closed: no caller waits any more
            self.loop.call_soon_threadsafe(self._deliver, (result, error))
        del self, error  # as in `run` below

    def _deliver(self, answer: tuple[Any, BaseException | None]) -> None:
        if not self.answer.done():  # cancelled while the answer was on its way
            self.answer.set_result(answer)


async def call_apart(value: object, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function about a value, in a thread if the value is large, so that no other session waits for it."""
    if is_larger(value, LARGE):
        return await _large_values().run(function, *args, **kwargs)
    return function(*args, **kwargs)


@cache
def _large_values() -> DaemonPool:
    return DaemonPool(4, "large")


class DaemonPool:
    """At most `limit` threads, started on demand and ended when idle. Any number of event loops may share a pool.

    These are not the threads of `concurrent.futures`, and so not of `asyncio.to_thread`: the interpreter waits for
    those when it exits, so one hung hook would hold the process; and they serve the whole program, so a few hung hooks
    would stop its file writes and name look-ups.

    A thread cannot be stopped. A call that is given up runs on, its result is dropped, and it keeps its thread until it
    returns: a pool whose threads all hang takes no more calls, and its callers wait until their own deadlines.
    """

    def __init__(self, limit: int = 4, name: str = "amplifier-hooks") -> None:
        if limit < 1:
            raise ValueError(f"a pool needs at least one thread, not {limit}")
        self._limit = limit
        self._name = name
        self._changed = threading.Condition()  # guards all below
        self._waiting: deque[_ThreadCall] = deque()
        self._threads = 0
        self._idle = 0
        self._abandoned = 0

    @property
    def abandoned_count(self) -> int:
        """The number of calls that were given up while they ran, since the pool exists."""
        return self._abandoned

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in a thread, in a copy of the current context; return its result or raise its error.

        Cancelling: a call that has not begun never will; one that has begun is abandoned.
        """
        loop = asyncio.get_running_loop()
        call = _ThreadCall(lambda: function(*args, **kwargs), copy_context(), loop, loop.create_future())
        self._submit(call)
        try:
            result, error = await call.answer
        except BaseException:  # cancelled, or this coroutine was closed
            self._give_up(call)
            raise
        try:
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        finally:
            del call, error  # the traceback holds this frame: without this, a cycle for the collector

    def _submit(self, call: _ThreadCall) -> None:
        with self._changed:
            if self._idle <= len(self._waiting) and self._threads < self._limit:
                # May raise when the system has no thread left; nothing is counted or queued then.
                threading.Thread(target=self._run_calls, name=f"{self._name}-{self._threads + 1}", daemon=True).start()
                self._threads += 1
            self._waiting.append(call)
            self._changed.notify()

    def _give_up(self, call: _ThreadCall) -> None:
        with self._changed:
            if call in self._waiting:
                self._waiting.remove(call)
            else:
                self._abandoned += 1

    def _run_calls(self) -> None:
        while (call := self._next_call()) is not None:
            call.carry_out()
            del call  # else the last call's arguments live as long as the thread waits

    def _next_call(self) -> _ThreadCall | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting, timeout=IDLE_SECONDS)
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None
