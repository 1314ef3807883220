"""What a definition's priority stands for: in which band it runs, and what its failure means there."""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

FailMode = Literal["open", "closed"]
"""Whether a failure of a hook is skipped or denies."""


@frozen
class Band:
    """The priorities from `first` to `last`, both included."""

    name: str
    first: int
    last: int
    fail_mode: FailMode


BANDS: Final = (
    Band("security", 0, 49, "closed"),
    Band("governance", 50, 99, "closed"),
    Band("input", 100, 199, "open"),
    Band("execution", 200, 299, "open"),
    Band("output", 300, 399, "open"),
    Band("application", 400, 499, "open"),
    Band("observability", 500, 699, "open"),
    Band("notification", 700, 899, "open"),
    Band("debug", 900, 1000, "open"),
)


def band_of(priority: int) -> Band:
    """The band of a priority from 0 to 1000."""
    return next(band for band in BANDS if priority <= band.last)
