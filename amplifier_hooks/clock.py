"""The time of day, its text in payloads and records, and its number in databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any, Final

SECOND: Final = 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_latest = (-SECOND, "")
"""The start of the last second that was formatted, in microseconds, and its text."""


class SystemClock:
    """The system's time, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)


def stamp(clock: Any) -> str:
    """Return the time of a clock as ISO 8601 in UTC. The text of the system's time is cached for each second."""
    global _latest  # noqa: PLW0603  # a cache of one
    if type(clock) is not SystemClock:
        return str(clock.now().isoformat())
    micros = time_ns() // 1000
    start, text = _latest
    if not 0 <= micros - start < SECOND:
        start = micros - micros % SECOND
        text = datetime.fromtimestamp(start // SECOND, UTC).isoformat()[:-6]
        _latest = (start, text)
    return f"{text}.{micros - start:06d}+00:00"


def micros_of(moment: datetime) -> int:
    """Return a time as a number of microseconds."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment_of(micros: int) -> datetime:
    """Return the time that a number of microseconds means."""
    return EPOCH + timedelta(0, 0, micros)
