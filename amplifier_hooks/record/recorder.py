"""Kinds and facts of one session come in; records with session, tenant, time and number go to its sink.

The recorder gives every sink a timeout: a record that hangs counts as a record that cannot be written.
"""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.clock import stamp
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable, problem_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator, Mapping

    from amplifier_hooks.ports import AuditSink, Clock


log = get_logger(__name__)


class NoRecord:
    """A sink for sessions without a record."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Do nothing."""


async def write_durably(sink: AuditSink, kind: str, facts: Mapping[str, Any]) -> None:
    """Record an act before it takes effect. Raises `RecordUnavailable` for every error of the sink."""
    try:
        await sink.write(kind, facts, durable=True)
    except Exception as error:
        raise RecordUnavailable(error) from error


class Recorder:
    """One session's writer to a sink. It adds session, tenant, time and number to every record.

    Without a sink, or with `NoRecord`, it makes no records.
    """

    def __init__(
        self,
        sink: AuditSink | None,
        clock: Clock,
        session: str,
        tenant: str,
        *,
        required: bool = True,
    ) -> None:
        self._sink = None if type(sink) is NoRecord else sink
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
        if (writing := self.begin(kind, facts, durable=durable, decides=True)) is not None:
            await writing

    async def note(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Record a fact that is already true. A failure is only logged, because there is nothing left to deny."""
        if (writing := self.begin(kind, facts, durable=durable, decides=False)) is not None:
            await writing

    def begin(self, kind: str, facts: Mapping[str, Any], *, durable: bool, decides: bool) -> Awaitable[None] | None:
        """Begin to write a record. Return the rest of the writing, or None if there is nothing to wait for.

        Most records are written in the first step, and need no timer. If the record `decides`, errors are raised as by
        `write`, here or by the rest.
        """
        if self._sink is None:
            return None
        self._number += 1
        try:
            about = {
                "number": self._number,
                "time": stamp(self._clock),
                "session": self._session,
                "tenant": self._tenant,
                **facts,
            }
            step = self._sink.write(kind, about, durable=durable).__await__()
            waiting = next(step, THROUGH)
        except Exception as error:  # noqa: BLE001  # a sink may raise anything
            self._fail(kind, error, decides=decides)
            return None
        return None if waiting is THROUGH else self._finish(kind, step, waiting, decides=decides)

    async def _finish(self, kind: str, step: Iterator[Any], waiting: Any, *, decides: bool) -> None:
        try:
            await finish_in_time(step, waiting)
        except Exception as error:  # noqa: BLE001  # as in `begin`
            self._fail(kind, error, decides=decides)

    def _fail(self, kind: str, error: Exception, *, decides: bool) -> None:
        log.error("audit_unavailable", kind=kind, error=problem_text(error))
        if decides and self._required:
            raise RecordUnavailable(error) from error


SINK_TIMEOUT: Final = 5.0
"""Timeout, in seconds, of a sink for one record."""

THROUGH: Final = object()


async def finish_in_time(step: Iterator[Any], waiting: Any) -> None:
    """Take the remaining steps of writing a record. Raises `TimeoutError`, and the errors of the sink.

    The sink runs in its caller's task, so a sink that ignores its cancellation still holds up its caller.
    """
    limit = asyncio.timeout(SINK_TIMEOUT)
    try:
        async with limit:
            await remaining_steps(step, waiting)
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"not written within {SINK_TIMEOUT:g} s") from error
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
