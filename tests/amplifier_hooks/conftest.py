"""Fixtures of the kernel's tests. A hook that refused to end is ended after its test, so that the run exits quietly."""

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from amplifier_hooks.foreign_code import LEFT_BEHIND


@pytest.fixture(autouse=True)
def _end_what_was_left_behind() -> Iterator[None]:
    earlier = dict(LEFT_BEHIND)
    LEFT_BEHIND.clear()
    yield
    for coroutine in [work for work in LEFT_BEHIND.values() if inspect.iscoroutine(work)]:
        del LEFT_BEHIND[id(coroutine)]
        with contextlib.suppress(BaseException):
            while True:  # each of them gives in after some throws
                coroutine.throw(RuntimeError)
    LEFT_BEHIND.update(earlier)


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the delays of all timers that are set from now on; only they tell how often the loop is woken."""
    loop, delays = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def noted(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        delays.append(delay)
        return call_later(delay, *arguments, **options)

    monkeypatch.setattr(loop, "call_later", noted)
    return delays
