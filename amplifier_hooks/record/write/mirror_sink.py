"""Two records in two failure domains: what one of them has is on record."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import LogUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import AuditSink


log = get_logger(__name__)

PATIENCE: Final = 4.0
"""Seconds both have together."""


class TwoSinks:
    """A sink that writes to two: another disk, another machine.

    By default a record is on record when one of the two has it, so that one that fails or hangs stops nothing; with
    `need=2` both must have it. The program that opened the two closes them.
    """

    def __init__(self, first: AuditSink, second: AuditSink, *, need: int = 1, patience: float = PATIENCE) -> None:
        if need not in (1, 2):
            raise InvalidLimit("need", need, "1 or 2")
        self._sinks = (first, second)
        self._need = need
        self._patience = patience
        self._late: set[asyncio.Task[None]] = set()

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append a record to both, and return when enough of them have it.

        Raises `LogUnavailable` when too few do. Cancelling it leaves the record with whoever has it.
        """
        tasks = {asyncio.ensure_future(sink.write(kind, facts, durable=durable)) for sink in self._sinks}
        self._late |= tasks
        for task in tasks:
            task.add_done_callback(self._over)
        deadline = asyncio.get_running_loop().time() + self._patience
        waiting, done = tasks, set[asyncio.Task[None]]()
        while waiting and self._need > _good(done):
            left = deadline - asyncio.get_running_loop().time()
            ended, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            done |= ended
            if not ended:
                break
        if self._need > _good(done):
            problems = [str(task.exception()) for task in done if not task.cancelled() and task.exception()]
            problems += ["no answer in time"] * len(waiting)
            raise LogUnavailable(f"{_good(done)} of {len(tasks)} records could be written: {'; '.join(problems)}")

    def _over(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("audit_sink_failed", error=f"{type(problem).__name__}: {problem}")


def _good(tasks: set[asyncio.Task[None]]) -> int:
    return sum(not task.cancelled() and task.exception() is None for task in tasks)
