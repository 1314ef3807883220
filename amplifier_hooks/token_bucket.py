"""A rate limit: the time of a message or a request comes in; the seconds that it has to wait go out."""

from __future__ import annotations


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
