"""The clock on the wall."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["SystemClock"]


class SystemClock:
    """The system's time, in UTC."""

    def now(self) -> datetime:
        """Now."""
        return datetime.now(UTC)
