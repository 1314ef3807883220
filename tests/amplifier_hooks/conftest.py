"""Fixtures of the kernel's tests. A hook that refused to end is ended after its test, so that the run exits quietly."""

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from amplifier_hooks.foreign_code import LEFT_BEHIND
from tests.hooks import Hands


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


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """Return the clock of the dispatcher."""
    hands = Hands()
    for module in ("run_hooks", "timeouts", "middleware"):
        monkeypatch.setattr(f"amplifier_hooks.dispatch.{module}.clock", hands)
    return hands


@pytest.fixture
async def clock(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> Hands:
    """Return the clock of the dispatcher and of the loop, which jumps to the next timer when everything waits.

    No pause of the machine is a hook's time then. Nothing waits for the jump: a test with threads needs a real clock.
    """
    loop: Any = asyncio.get_running_loop()
    if not hasattr(loop, "_selector"):
        pytest.skip("this loop has a clock of its own")
    select = loop._selector.select

    def jump(timeout: float | None) -> Any:
        ready = select(timeout and 0)
        if timeout and not ready:
            hands.now += timeout + 1e-6  # no timer comes to the digit
        return ready

    monkeypatch.setattr(loop._selector, "select", jump)
    monkeypatch.setattr(loop, "time", hands)
    return hands
