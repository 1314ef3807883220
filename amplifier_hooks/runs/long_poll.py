"""Waiting runners that may be promised a run, and a lane that batches concurrent calls into one transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amplifier_hooks.runs.run_states import RunRecord
    from amplifier_hooks.storage.change_signal import Watch


class Poller:
    """A waiting runner. At most one run is promised to it; while a run is promised, the runner asks for no other.

    `unwanted` is called with a run that arrived as the wait was cancelled.
    """

    def __init__(self, runner: str, watch: Watch, unwanted: Callable[[RunRecord], object]) -> None:
        self.runner = runner
        self._watch = watch
        self._unwanted = unwanted
        self.patient = 0.0
        """Time of the loop until which no other start hook is begun for this runner."""
        self._open = False
        self._promise: asyncio.Future[RunRecord | None] | None = None

    def promise(self) -> bool:
        """Promise the runner a run, and return True, if it waits without a promise.

        `give` has to keep or break the promise.
        """
        if not self._open or self._promise is not None:
            return False
        self._promise = asyncio.get_running_loop().create_future()
        return True

    def give(self, record: RunRecord | None) -> bool:
        """Settle the promise with a run, or break it with None. Return True if the runner still waited for it."""
        there = self._promise is not None and not self._promise.done()
        if self._promise is not None and there:
            self._promise.set_result(record)
        self._watch.notify()
        return there

    def release(self) -> None:
        """Let the next start hook be begun for the runner, because the one begun before is done."""
        self.patient = 0.0
        self.wake()

    def wake(self) -> None:
        """Wake the runner, because there may be a run to claim."""
        self._watch.notify()

    async def wait(self, seconds: float) -> RunRecord | None:
        """Wait until there may be a run to claim, at most `seconds`. Return the run if the runner was given one."""
        self._open = True
        try:
            await self._watch.wait(seconds)
            self._open = False
            return None if self._promise is None else await self._promise
        except asyncio.CancelledError:
            promise = self._promise
            if promise is not None and promise.done() and not promise.cancelled():
                record = promise.result()
                if record is not None:
                    self._unwanted(record)
            raise
        finally:
            self._open = False
            self._promise = None


MOST: Final = 64
"""Items in one batch."""

T = TypeVar("T")
R = TypeVar("R")


class Lane(Generic[T, R]):
    """Batches concurrent calls: the first item is carried out at once, then all items that arrived meanwhile.

    An item never waits for others to arrive. If a batch fails, all its items fail. `unwanted` is called with the result
    of an item whose caller was cancelled meanwhile, so that the result can be undone.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        unwanted: Callable[[R], object] = lambda _: None,
    ) -> None:
        self._carry_out = carry_out
        self._unwanted = unwanted
        self._gathered: list[tuple[T, asyncio.Future[R]]] = []
        self._going: asyncio.Task[None] | None = None

    async def do(self, item: T) -> R:
        """Carry the item out, and return its result.

        Cancelling the call does not stop the item; its result is passed to `unwanted` then.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._gathered.append((item, answer))
        if self._going is None:
            self._going = loop.create_task(self._run_batches())
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._unwanted(answer.result())  # the result came before the cancellation
            raise

    async def idle(self) -> None:
        """Wait until no batch is running."""
        while self._going is not None:
            await asyncio.wait({self._going})

    async def _run_batches(self) -> None:
        try:
            while self._gathered:
                now, self._gathered = self._gathered[:MOST], self._gathered[MOST:]
                await self._run_batch([item for item, _ in now], [answer for _, answer in now])
        finally:
            self._going = None
            for _, answer in self._gathered:  # only if this task was ended from outside
                answer.cancel()
            self._gathered = []

    async def _run_batch(self, items: list[T], answers: list[asyncio.Future[R]]) -> None:
        try:
            results = await self._carry_out(items)
        except BaseException as problem:
            for answer in answers:
                if not answer.done():
                    answer.set_exception(problem)
                    answer.exception()  # a cancelled caller will not retrieve it
            if not isinstance(problem, Exception):
                raise
            return
        for answer, result in zip(answers, results, strict=True):
            if answer.done():
                self._unwanted(result)
            else:
                answer.set_result(result)
