"""Kinds and facts of one session come in; records with session, tenant, time and number go to its sink.

`TwoSinks` writes to sinks in two failure domains, and one of them suffices. `PunctualSink` gives every sink a timeout:
a record that hangs counts as a record that cannot be written.
"""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.clock import stamp
from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import LogUnavailable, RecordUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator, Mapping

    from amplifier_hooks.ports import AuditSink, Clock


log = get_logger(__name__)


class NoRecord:
    """A sink for sessions without a record."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Do nothing."""


class Recorder:
    """One session's writer to a sink. It adds session, tenant, time and number to every record."""

    def __init__(
        self,
        sink: AuditSink,
        clock: Clock,
        session: str,
        tenant: str,
        *,
        required: bool = True,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._session = session
        self._tenant = tenant
        self._required = required
        self._number = 0

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = True) -> None:
        """Record a decision before it takes effect. Without `durable`, the next durable record makes it durable, too.

        Raises `RecordUnavailable` for every error of the sink, and the session then denies the act. If the record is
        not required, the recorder only logs the error.
        """
        try:
            await self._append(kind, facts, durable=durable)
        except Exception as error:
            log.error("audit_unavailable", kind=kind, error=f"{type(error).__name__}: {error}")  # noqa: TRY400
            if self._required:
                raise RecordUnavailable(error) from error

    async def note(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Record a fact that is already true. A failure is only logged, because there is nothing left to deny."""
        try:
            await self._append(kind, facts, durable=durable)
        except Exception as error:  # noqa: BLE001  # a sink may raise anything
            log.error("audit_unavailable", kind=kind, error=f"{type(error).__name__}: {error}")  # noqa: TRY400

    def _append(self, kind: str, facts: Mapping[str, Any], *, durable: bool) -> Awaitable[None]:
        self._number += 1
        record = {
            "number": self._number,
            "time": stamp(self._clock),
            "session": self._session,
            "tenant": self._tenant,
            **facts,
        }
        return self._sink.write(kind, record, durable=durable)


MIRROR_TIMEOUT: Final = 4.0
"""Timeout, in seconds, of both sinks together."""


class TwoSinks:
    """A sink that writes to two others, such as another disk or another machine.

    By default one of the two suffices, so that a sink that fails or hangs stops nothing; with `need=2` both must have
    the record. The program that opened the two sinks closes them.
    """

    def __init__(self, first: AuditSink, second: AuditSink, *, need: int = 1, timeout: float = MIRROR_TIMEOUT) -> None:
        if need not in (1, 2):
            raise InvalidLimit("need", need, "1 or 2")
        self._sinks = (first, second)
        self._need = need
        self._timeout = timeout
        self._late: set[asyncio.Task[None]] = set()

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append a record to both sinks, and return when enough of them have it.

        Raises `LogUnavailable` if too few have it. Cancelling it takes the record back from neither sink.
        """
        tasks = {asyncio.ensure_future(sink.write(kind, facts, durable=durable)) for sink in self._sinks}
        self._late |= tasks
        for task in tasks:
            task.add_done_callback(self._forget)
        deadline = asyncio.get_running_loop().time() + self._timeout
        waiting, done = tasks, set[asyncio.Task[None]]()
        while waiting and self._need > _count_succeeded(done):
            left = deadline - asyncio.get_running_loop().time()
            ended, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            done |= ended
            if not ended:
                break
        if self._need > _count_succeeded(done):
            problems = [str(task.exception()) for task in done if not task.cancelled() and task.exception()]
            problems += ["no answer in time"] * len(waiting)
            raise LogUnavailable(
                f"{_count_succeeded(done)} of {len(tasks)} records could be written: {'; '.join(problems)}"
            )

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("audit_sink_failed", error=f"{type(problem).__name__}: {problem}")


def _count_succeeded(tasks: set[asyncio.Task[None]]) -> int:
    return sum(not task.cancelled() and task.exception() is None for task in tasks)


SINK_TIMEOUT: Final = 5.0
"""Timeout, in seconds, of a sink for one record."""

THROUGH: Final = object()


class PunctualSink:
    """A sink with a timeout around another sink. A sink that never waits costs no timer.

    The other sink runs in its caller's task, so a sink that ignores its cancellation still holds up its caller.
    """

    def __init__(self, sink: AuditSink, seconds: float | None = None) -> None:
        self._sink = sink
        self._seconds = seconds

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record. Raises `TimeoutError`, and the errors of the sink."""
        step = self._sink.write(kind, facts, durable=durable).__await__()
        waiting = next(step, THROUGH)  # most records are written in the first step
        if waiting is THROUGH:
            return
        seconds = SINK_TIMEOUT if self._seconds is None else self._seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await remaining_steps(step, waiting)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"not written within {seconds:g} s") from error
            raise


@coroutine
def remaining_steps(step: Iterator[Any], waiting: Any) -> Generator[Any, Any, None]:
    """Return the remaining steps of an awaitable that has been started and now waits for `waiting`."""
    steps: Any = step
    try:
        while True:
            try:
                yield waiting
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001  # every error belongs to the awaitable
                waiting = steps.throw(error)
            else:
                waiting = next(steps)
    except StopIteration:
        return
