"""The age of a store, by the wall clock and the time since the machine started."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approval_backends.stores.approval_store import LEAP, SECOND, ClockReading, StoreClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def reading(wall: float, uptime: float, boot: str = "boot-1") -> ClockReading:
    """Return a reading so many seconds after noon."""
    return ClockReading(NOON + timedelta(seconds=wall), boot, uptime)


KEPT = StoreClock().at(reading(0, 1_000))


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-11")
@pytest.mark.parametrize(
    ("later", "passed"),
    [
        (reading(10, 1_010), 10),
        (reading(-3_600, 1_010), 10),  # set back while the machine is up
        (reading(3_600, 1_010), 10),  # put forward; the wall clock itself counts, too
        (reading(30, 5, "boot-2"), 30),
        (reading(3, 5, "boot-2"), 5),  # at least the time since the start
        (reading(-180, 5, "boot-2"), LEAP / SECOND),
        (reading(30, 0, ""), 30),
        (reading(30, 7_000, ""), 30),  # without a name of the start the uptime says nothing
        (reading(-0.5, 0, ""), 0),
        (reading(-2, 0, ""), LEAP / SECOND),
    ],
)
def test_time_that_has_passed(later: ClockReading, passed: float) -> None:
    """While the machine is up its own clock counts, and after a new start the wall clock, or a leap if it went back."""
    assert KEPT.at(later).age - KEPT.age == passed * SECOND


@pytest.mark.rule("BCK-8")
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.sampled_from(["", "boot-1", "boot-2"]))))
def test_age_never_goes_back(readings: list[tuple[float, float, str]]) -> None:
    """Whatever the clocks do, a store never becomes younger."""
    clock = KEPT
    for one in readings:
        later = clock.at(reading(*one))
        assert later.age >= clock.age
        clock = later


@pytest.mark.rule("BCK-8")
def test_when_a_reading_is_kept() -> None:
    """A store keeps a reading after five seconds, and at once after a new start of the machine."""
    assert not KEPT.is_due(KEPT.at(reading(4.9, 1_004.9)))
    assert KEPT.is_due(KEPT.at(reading(5, 1_005)))
    assert KEPT.is_due(KEPT.at(reading(1, 1, "boot-2")))
