"""Somebody who waits for a run, and whether a run may be put into their hands just now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_hooks.runs.life import RunRecord
    from amplifier_hooks.storage.bells import Watch

__all__ = ["Poller"]


class Poller:
    """A runner that waits. One run at most is promised to it, and while one is it asks for no other."""

    def __init__(self, runner: str, watch: Watch) -> None:
        self.runner = runner
        self._watch = watch
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

    def give(self, record: RunRecord | None) -> None:
        """What became of the promise: the run, or none."""
        if self._promise is not None and not self._promise.done():
            self._promise.set_result(record)
        self._watch.ring()

    def release(self) -> None:
        """The start hook that was begun for it is done: it need not be patient any more."""
        self.patient = 0.0
        self._watch.ring()

    async def wait(self, seconds: float) -> RunRecord | None:
        """Until there may be something to claim, at most so long; the run, if it was given one."""
        self._open = True
        try:
            if self._promise is None:
                await self._watch.wait(seconds)
        finally:
            self._open = False
        promise, self._promise = self._promise, None
        return None if promise is None else await promise
