"""Somebody who waits for a run, and whether a run may be put into their hands just now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._watch.ring()
        return there

    def release(self) -> None:
        """The start hook that was begun for it is done: it need not be patient any more."""
        self.patient = 0.0
        self.wake()

    def wake(self) -> None:
        """There may be something to claim."""
        self._watch.ring()

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
