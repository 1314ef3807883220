"""Plain functions off the event loop, in a few daemon threads of their own.

These are not the threads of `concurrent.futures`, and so not of `asyncio.to_thread`: the interpreter waits for those
when it exits, so one hung hook would hold the process; and they serve the whole program, so a few hung hooks would
stop its file writes and name look-ups.

A thread cannot be stopped. A call that is given up runs on, its result is dropped, and it keeps its thread until it
returns: a pool whose threads all hang takes no more calls, and its callers wait until their own deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from contextvars import Context, copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import attrs

from amplifier_hooks.act import LARGE, is_larger

if TYPE_CHECKING:
    from collections.abc import Callable


P = ParamSpec("P")
R = TypeVar("R")

_IDLE_SECONDS: Final = 10.0  # how long a thread without work stays


@attrs.define(eq=False)
class _ThreadCall:
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
        with contextlib.suppress(RuntimeError):  # the loop was closed: no caller waits any more
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
    """At most `limit` threads, started on demand and ended when idle. Any number of event loops may share a pool."""

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
            self._changed.wait_for(lambda: self._waiting, timeout=_IDLE_SECONDS)
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None
