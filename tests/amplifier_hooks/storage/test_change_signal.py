"""Signals that wake waiters, and their news."""

from __future__ import annotations

import pytest

from amplifier_hooks.storage.change_signal import ChangeSignals


@pytest.mark.rule("BCK-8")
async def test_news() -> None:
    """The only signal since the last wait brings its news, once, and only to watchers of its topic."""
    bells = ChangeSignals()
    with bells.watch("a") as a, bells.watch("b") as b, bells.watch() as every:
        bells.notify("a", "new")
        assert [await one.wait(0) for one in (a, b, every)] == [True, False, True]
        assert [one.news() for one in (a, b, every)] == ["new", None, None]
        assert a.news() is None


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("rings", [("old", "new"), ("new", None), (None, "new")])
async def test_two_rings_bring_no_news(rings: tuple[str | None, ...]) -> None:
    """The order of two signals is unknown, so a waiter that both wake reads the store."""
    bells = ChangeSignals()
    with bells.watch("a") as watch:
        for news in rings:
            bells.notify("a", news)
        assert await watch.wait(0)
        assert watch.news() is None


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("seconds", [0.0, 0.001])
async def test_news_nobody_took(seconds: float) -> None:
    """A wait that times out brings no news, whatever came before."""
    bells = ChangeSignals()
    with bells.watch("a") as watch:
        bells.notify("a", "old")
        assert await watch.wait(60)
        assert not await watch.wait(seconds)
        assert watch.news() is None
