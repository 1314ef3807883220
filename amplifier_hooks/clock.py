"""The time of day, its text in payloads and records, its number in databases, and a rate limit over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any, Final

MILLISECOND: Final = 1_000_000
"""Nanoseconds of a millisecond."""
MICROSECONDS: Final = 1_000
"""Microseconds of a millisecond."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_latest = (-MILLISECOND, "")
"""The start of the last millisecond that was formatted, in nanoseconds, and its text. One call takes many stamps."""
_endings: list[str] = []
"""The text of each microsecond within a millisecond, with the zone."""


class SystemClock:
    """The system's time, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)


def stamp(clock: Any) -> str:
    """Return the time of a clock as ISO 8601 in UTC. The text of the system's time is cached for each millisecond."""
    if type(clock) is not SystemClock:
        return str(clock.now().isoformat())
    now = time_ns()
    start, text = _latest
    micros = (now - start) // 1000
    if not 0 <= micros < MICROSECONDS:
        start, text = _begin_millisecond(now - now % MILLISECOND)
        micros = (now - start) // 1000
    return text + _endings[micros]


def _begin_millisecond(start: int) -> tuple[int, str]:
    global _latest  # noqa: PLW0603  # a cache of one
    if not _endings:
        _endings.extend([f"{number:03d}+00:00" for number in range(MICROSECONDS)])
    _latest = (start, moment_of(start // 1000).isoformat(timespec="milliseconds")[:-6])
    return _latest


def micros_of(moment: datetime) -> int:
    """Return a time as a number of microseconds."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment_of(micros: int) -> datetime:
    """Return the time that a number of microseconds means."""
    return EPOCH + timedelta(0, 0, micros)


class TokenBucket:
    """A rate limit: so many at once, and so many a second after that. Pure: the time is an argument."""

    def __init__(self, per_second: float, at_once: int) -> None:
        self._per_second = per_second
        self._most = self._left = float(at_once)
        self._at = 0.0

    def seconds_to_wait(self, now: float) -> float:
        """Count one more and return 0 if it fits now; otherwise return the seconds until it fits."""
        left = min(self._most, self._left + (now - self._at) * self._per_second)
        short = max(0.0, 1.0 - left)
        self._left, self._at = left if short else left - 1.0, now
        return short / self._per_second
