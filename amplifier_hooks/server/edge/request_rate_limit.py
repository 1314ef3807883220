"""How often one tenant may ask, so that the others notice nothing of it."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Callable


MOST: Final = 4_096
"""Buckets that are kept; the one unused longest is full again by then."""


@frozen
class Rate:
    """So many a second, and so many at once after a rest."""

    per_second: float
    at_once: int


@define(eq=False)
class Turnstile:
    """A bucket for each name: every request takes one out, and time puts them back."""

    rate: Rate
    clock: Callable[[], float] = monotonic
    _buckets: OrderedDict[str, tuple[float, float]] = field(factory=OrderedDict, init=False)

    def wait(self, name: str) -> float:
        """0 if it may go on now, which then counts; otherwise the seconds until it may."""
        now = self.clock()
        left, then = self._buckets.pop(name, (float(self.rate.at_once), now))
        left = min(float(self.rate.at_once), left + (now - then) * self.rate.per_second)
        short = max(0.0, 1.0 - left)
        self._buckets[name] = (left if short else left - 1.0, now)
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
        return short / self.rate.per_second
