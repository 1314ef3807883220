"""The time of day, and its text in payloads and records."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time_ns
from typing import Any, Final

SECOND: Final = 1_000_000_000

_latest = (-1, "")
"""The last second that was formatted, and its text."""


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
    second, rest = divmod(time_ns(), SECOND)
    latest, text = _latest
    if second != latest:
        text = datetime.fromtimestamp(second, UTC).isoformat()[:-6]
        _latest = (second, text)
    return f"{text}.{rest // 1000:06d}+00:00"
