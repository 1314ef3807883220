"""A rate limit for messages. Pure: the time is an argument."""

from __future__ import annotations


class MessageRateLimit:
    """A token bucket: so many at once, and so many a second after that."""

    def __init__(self, per_second: float, at_once: int) -> None:
        self._per_second = per_second
        self._most = float(at_once)
        self._left = float(at_once)
        self._at = 0.0

    def allows(self, now: float) -> bool:
        """Return True if one more fits now, and count it."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
