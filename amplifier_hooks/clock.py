"""The clock on the wall."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time_ns
from typing import Any, Final

SECOND: Final = 1_000_000_000

_latest = (-1, "")
"""The second that was last written out, and how."""


class SystemClock:
    """The system's time, in UTC."""

    def now(self) -> datetime:
        """Now."""
        return datetime.now(UTC)


def stamp(clock: Any) -> str:
    """A time as payloads and records have it: ISO 8601, UTC. The system's is written out once for each second."""
    global _latest  # noqa: PLW0603  # a cache of one
    if type(clock) is not SystemClock:
        return str(clock.now().isoformat())
    second, rest = divmod(time_ns(), SECOND)
    latest, text = _latest
    if second != latest:
        text = datetime.fromtimestamp(second, UTC).isoformat()[:-6]
        _latest = (second, text)
    return f"{text}.{rest // 1000:06d}+00:00"
