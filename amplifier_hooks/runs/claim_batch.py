"""One transaction for all who came while the last one was under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


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
            self._going = loop.create_task(self._go())
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

    async def _go(self) -> None:
        try:
            while self._gathered:
                now, self._gathered = self._gathered[:MOST], self._gathered[MOST:]
                await self._gone([item for item, _ in now], [answer for _, answer in now])
        finally:
            self._going = None
            for _, answer in self._gathered:  # only where this was ended from outside
                answer.cancel()
            self._gathered = []

    async def _gone(self, items: list[T], answers: list[asyncio.Future[R]]) -> None:
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
