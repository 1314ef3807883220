"""The time of day, its text, and the rate limit that the gateway and the API share."""

from datetime import UTC, datetime, timedelta

import pytest

from amplifier_hooks import clock
from amplifier_hooks.clock import SystemClock, TokenBucket, stamp
from amplifier_hooks.testing import ManualClock


@pytest.mark.rule("EVT-2")
def test_stamp() -> None:
    """The system's time is written in ISO 8601, in UTC, and is the current time."""
    before = datetime.now(UTC) - timedelta(microseconds=1)
    written = [stamp(SystemClock()) for _ in range(3)]
    assert before <= datetime.fromisoformat(written[0]) <= datetime.fromisoformat(written[-1]) <= datetime.now(UTC)
    assert {text[-6:] for text in written} == {"+00:00"}


@pytest.mark.rule("EVT-2")
def test_stamps_of_different_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of one second is not used for another, also when the clock is set back."""
    nanoseconds = [1_767_225_599_999_999_999, 1_767_225_600_000_000_000, 1_767_225_599_000_001_999]
    monkeypatch.setattr(clock, "time_ns", lambda: nanoseconds.pop(0))
    assert [stamp(SystemClock()) for _ in range(3)] == [
        "2025-12-31T23:59:59.999999+00:00",
        "2026-01-01T00:00:00.000000+00:00",
        "2025-12-31T23:59:59.000001+00:00",
    ]


@pytest.mark.rule("EVT-2")
def test_stamp_of_another_clock() -> None:
    """A clock that was handed in gives the time of the stamp."""
    hands = ManualClock()
    hands.advance(0.25)
    assert stamp(hands) == "2026-01-01T12:00:00.250000+00:00"


@pytest.mark.rule("BCK-4")
def test_pace() -> None:
    """A rate limit allows so many messages at once, then so many a second, and never more at once than that."""
    pace = TokenBucket(2.0, 3)
    assert [pace.seconds_to_wait(0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert [pace.seconds_to_wait(at) == 0.0 for at in (0.4, 0.5, 0.6, 1.0)] == [False, True, False, True]
    assert [pace.seconds_to_wait(100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
