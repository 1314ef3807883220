"""Interleaved rounds: every subject once a round, compared within the round.

A disturbance of a shared machine lasts longer than a round, so it disturbs all subjects of that round alike and cancels
in their ratio; the median over the rounds drops the ones it hit halfway. The order turns from round to round, so that
no subject always runs first or always behind the same neighbour. A first round is run and thrown away.

The garbage collector stays on, because it does for users; each sample begins just after a collection, with everything
made before frozen, so a subject pays for what it leaves behind and for nothing else.

Needs the standard library only: peers are measured with it in environments that have nothing else of ours.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Final

__all__ = ["QUICK", "THOROUGH", "Effort", "Samples", "Timed", "measure"]

Timed = Callable[[int], Awaitable[float]]
"""A function that does its work so many times, and returns the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of rounds, and the seconds of one sample."""

    rounds: int
    seconds: float


THOROUGH: Final = Effort(rounds=41, seconds=0.005)
QUICK: Final = Effort(rounds=3, seconds=0.0002)


@dataclass(slots=True)
class Samples:
    """Seconds per operation, one sample for each round."""

    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The fastest, in µs."""
        return min(self.seconds) * 1e6

    @property
    def usual(self) -> float:
        """The median, in µs."""
        return median(self.seconds) * 1e6

    def ratios(self, base: Samples) -> list[float]:
        """Return the ratios to the base, round by round."""
        return [own / other for own, other in zip(self.seconds, base.seconds, strict=True)]

    def ratio(self, base: Samples) -> float:
        """The median of the same-round ratios."""
        return median(self.ratios(base))

    def spread(self, base: Samples) -> tuple[float, float]:
        """Between which ratios half of the rounds lie."""
        low, _, high = quantiles(self.ratios(base), n=4)
        return low, high


async def measure(
    subjects: Mapping[str, Timed], effort: Effort = THOROUGH, *, number: int | None = None
) -> dict[str, Samples]:
    """Samples of every subject; each does its work `number` times a sample, or as often as fills the time."""
    numbers = {name: number or await _filling(timed, effort.seconds) for name, timed in subjects.items()}
    samples = {name: Samples() for name in subjects}
    names = list(subjects)
    gc.collect()
    gc.freeze()
    try:
        for turn in range(effort.rounds + 1):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                gc.collect()
                spent = await subjects[name](numbers[name])
                if turn:
                    samples[name].seconds.append(spent / numbers[name])
    finally:
        gc.unfreeze()
    return samples


async def _filling(timed: Timed, seconds: float) -> int:
    """Return the number of times that take about so many seconds; running the work up to it also warms it up."""
    number = 1
    while True:
        spent = await timed(number)
        if spent >= seconds / 2:
            return max(1, round(number * seconds / spent))
        number *= 2
