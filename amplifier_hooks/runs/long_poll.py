"""Somebody who waits for a run, and whether a run may be put into their hands just now.

One transaction for all who came while the last one was under way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amplifier_hooks.runs.run_states import RunRecord
    from amplifier_hooks.storage.change_signal import Watch


class Poller:
    """A runner that waits. One run at most is promised to it, and while one is it asks for no other.

    `unwanted` is given a run that came as the wait was cancelled.
    """

    def __init__(self, runner: str, watch: Watch, unwanted: Callable[[RunRecord], object]) -> None:
        self.runner = runner
        self._watch = watch
        self._unwanted = unwanted
        self.patient = 0.0
        """Until this time of the loop no other start hook is begun for it."""
        self._open = False
        self._promise: asyncio.Future[RunRecord | None] | None = None

    def promise(self) -> bool:
        """Promise it a run, if it is waiting for one. What is promised has to be kept or broken by `give`."""
        if not self._open or self._promise is not None:
            return False
        self._promise = asyncio.get_running_loop().create_future()
        return True

    def give(self, record: RunRecord | None) -> bool:
        """What became of the promise: the run, or none. Whether it was still there to hear it."""
        there = self._promise is not None and not self._promise.done()
        if self._promise is not None and there:
            self._promise.set_result(record)
        self._watch.notify()
        return there

    def release(self) -> None:
        """The start hook that was begun for it is done: it need not be patient any more."""
        self.patient = 0.0
        self.wake()

    def wake(self) -> None:
        """There may be something to claim."""
        self._watch.notify()

    async def wait(self, seconds: float) -> RunRecord | None:
        """Until there may be something to claim, at most so long; the run, if it was given one."""
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
"""Of one go."""

T = TypeVar("T")
R = TypeVar("R")


class Lane(Generic[T, R]):
    """Carries out work in goes: the first at once, and then whatever has gathered meanwhile.

    Nobody waits for others to come. A go that fails fails for all that were in it. `unwanted` is given what came of
    work whose asker was cancelled meanwhile, so that it can be undone.
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
        """Have it done, and return what came of it.

        Cancelling it does not keep it from being done: what comes of it is unwanted then.
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
                self._unwanted(answer.result())  # it came, and then we were cancelled
            raise

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while self._going is not None:
            await asyncio.wait({self._going})

    async def _run_batches(self) -> None:
        try:
            while self._gathered:
                now, self._gathered = self._gathered[:MOST], self._gathered[MOST:]
                await self._run_batch([item for item, _ in now], [answer for _, answer in now])
        finally:
            self._going = None
            for _, answer in self._gathered:  # only where this was ended from outside
                answer.cancel()
            self._gathered = []

    async def _run_batch(self, items: list[T], answers: list[asyncio.Future[R]]) -> None:
        try:
            results = await self._carry_out(items)
        except BaseException as problem:
            for answer in answers:
                if not answer.done():
                    answer.set_exception(problem)
                    answer.exception()  # whoever was cancelled meanwhile will not look at it
            if not isinstance(problem, Exception):
                raise
            return
        for answer, result in zip(answers, results, strict=True):
            if answer.done():
                self._unwanted(result)
            else:
                answer.set_result(result)
