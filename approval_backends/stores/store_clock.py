"""The time by which a store judges. It never goes back, so no clock that is set back prolongs a question.

A store keeps the last reading of its clocks, and its own age at that reading. While the machine is up, the store ages
by the clock that cannot be set. After a new start of the machine it ages by the wall clock, and at least by the time
since that start. If the wall clock then stands before the reading that was kept, the time that has passed is unknown:
the store leaps, and all that was open is over. PostgreSQL has a wall clock only, and leaps whenever it is set back.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from approval_backends.lifecycle import Moment
from approval_backends.stores.approval_rows import micros

SECOND: Final = 1_000_000
SET_BACK: Final = 1 * SECOND
"""Microseconds by which a wall clock may stand before the reading that was kept, without having been set back."""
LEAP: Final = 100 * 365 * 86_400 * SECOND
"""Microseconds by which the store ages when the time that has passed is unknown: longer than any question lives."""
KEPT_FOR: Final = 5 * SECOND
"""Microseconds after which a reading is kept anew."""


class ClockReading(msgspec.Struct, frozen=True, gc=False):
    """An instant on two clocks: the one on the wall, and the seconds since the machine started.

    `boot` names that start. Without it, only the wall clock counts.
    """

    wall: datetime
    boot: str = ""
    uptime: float = 0.0


class StoreClock(msgspec.Struct, frozen=True, gc=False):
    """The reading that a store keeps, and the store's age at that reading. Times are whole microseconds."""

    boot: str = ""
    uptime: int = 0
    wall: int = 0
    age: int = 0

    def at(self, reading: ClockReading) -> StoreClock:
        """Return the clock at a later reading."""
        wall, uptime = micros(reading.wall), round(reading.uptime * SECOND)
        if reading.boot and reading.boot == self.boot:
            passed = uptime - self.uptime
        elif wall < self.wall - SET_BACK:
            passed = LEAP
        else:
            passed = max(wall - self.wall, uptime if reading.boot else 0)
        return StoreClock(reading.boot, uptime, wall, self.age + max(passed, 0))

    def is_due(self, later: StoreClock) -> bool:
        """Return True if the store has to keep the later clock in place of this one."""
        return later.boot != self.boot or later.age - self.age >= KEPT_FOR

    def moment(self, reading: ClockReading) -> Moment:
        """Return the moment of this clock's reading."""
        return Moment(reading.wall, self.age / SECOND)


def system_reading() -> ClockReading:
    """Return the time now, by the wall clock and by a clock that counts while the machine sleeps and cannot be set."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_clock is None:
        return ClockReading(datetime.now(UTC))
    return ClockReading(datetime.now(UTC), _boot(), time.clock_gettime(boot_clock))


@cache
def _boot() -> str:
    """Return the name of this start of the machine; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
