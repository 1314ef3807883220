"""One thread that does one thing after the other, for a loop that waits for it."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_hooks.storage.store_errors import StoreBusy, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")


class Worker:
    """A thread and its queue. It ends with the process, or when it is told to.

    A pool of one would do the same and take longer to say so: `run_in_executor` makes two futures for each call.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._open = True
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do(self, work: Callable[[], T], limit: float | None = None) -> T:
        """What the work returns or raises.

        Raises `StoreBusy` after so many seconds. What has not begun by then, or when this is cancelled, is not done
        at all; what has begun is done to its end.
        """
        if not self._open:
            raise StoreClosed("the store is closed")
        result: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((result, work))
        timer = None if limit is None else self._loop.call_later(limit, _late, result, limit)
        try:
            return await result
        finally:
            if timer is not None:
                timer.cancel()

    def end(self) -> None:
        """Do what is in the queue, and end. Twice is harmless."""
        if self._open:
            self._open = False
            self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            result, work = job
            if not result.done():  # read from another thread, which can only make it do what nobody waits for
                try:
                    self._tell(result, work(), None)
                except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits
                    self._tell(result, None, error)
            del job, result, work

    def _tell(self, result: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_set, result, value, error)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            self._open = False


def _set(result: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


def _late(result: asyncio.Future[Any], limit: float) -> None:
    if not result.done():
        result.set_exception(StoreBusy(f"the store did not answer within {limit:g} seconds"))
