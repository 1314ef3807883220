"""A record that hangs is a record that cannot be written: any sink, held to its time."""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from amplifier_hooks.ports import AuditSink


PATIENCE: Final = 5.0
"""Seconds a sink has for one record."""

THROUGH: Final = object()


class PunctualSink:
    """Another sink, given up when it takes too long. One that never waits costs no timer.

    It is driven in its caller's task, so that a sink which ignores its cancellation still holds up its caller.
    """

    def __init__(self, sink: AuditSink, seconds: float | None = None) -> None:
        self._sink = sink
        self._seconds = seconds

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record. Raises `TimeoutError`, and what the sink raises."""
        step = self._sink.write(kind, facts, durable=durable).__await__()
        waiting = next(step, THROUGH)  # most records are written in the first step
        if waiting is THROUGH:
            return
        seconds = PATIENCE if self._seconds is None else self._seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await rest(step, waiting)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"not written within {seconds:g} s") from error
            raise


@coroutine
def rest(step: Iterator[Any], waiting: Any) -> Generator[Any, Any, None]:
    """The other steps of something awaitable that has been started, the first of which waits for `waiting`."""
    steps: Any = step
    try:
        while True:
            try:
                yield waiting
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001  # whatever it is, it is for who waits
                waiting = steps.throw(error)
            else:
                waiting = next(steps)
    except StopIteration:
        return
