"""What the kernel's tests share: hooks that refused to end are ended after each test, so that the run exits quietly."""

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from amplifier_hooks.abandoned_work import LEFT_BEHIND


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
    """The delay of every timer that is set from now on: nothing else says how often the loop is woken."""
    loop, delays = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def noted(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        delays.append(delay)
        return call_later(delay, *arguments, **options)

    monkeypatch.setattr(loop, "call_later", noted)
    return delays
