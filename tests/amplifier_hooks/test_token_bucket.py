"""The rate limit that the gateway and the API share."""

from __future__ import annotations

import pytest

from amplifier_hooks.token_bucket import TokenBucket


@pytest.mark.rule("BCK-4")
def test_pace() -> None:
    """A rate limit allows so many messages at once, then so many a second, and never more at once than that."""
    pace = TokenBucket(2.0, 3)
    assert [pace.seconds_to_wait(0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert [pace.seconds_to_wait(at) == 0.0 for at in (0.4, 0.5, 0.6, 1.0)] == [False, True, False, True]
    assert [pace.seconds_to_wait(100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
