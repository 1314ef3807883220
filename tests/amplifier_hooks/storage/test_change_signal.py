"""Being woken: what a ring may bring, and when whoever is woken has to read."""

from __future__ import annotations

import pytest

from amplifier_hooks.storage.change_signal import ChangeSignals


@pytest.mark.rule("BCK-8")
async def test_news() -> None:
    """The only ring since the last wait brings its news, once, and only to those who watch its topic."""
    bells = ChangeSignals()
    with bells.watch("a") as a, bells.watch("b") as b, bells.watch() as every:
        bells.notify("a", "new")
        assert [await one.wait(0) for one in (a, b, every)] == [True, False, True]
        assert [one.news() for one in (a, b, every)] == ["new", None, None]
        assert a.news() is None


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("rings", [("old", "new"), ("new", None), (None, "new")])
async def test_two_rings_bring_no_news(rings: tuple[str | None, ...]) -> None:
    """Nobody knows which of two rings was last, so whoever is woken by both reads."""
    bells = ChangeSignals()
    with bells.watch("a") as watch:
        for news in rings:
            bells.notify("a", news)
        assert await watch.wait(0)
        assert watch.news() is None


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("seconds", [0.0, 0.001])
async def test_news_nobody_took(seconds: float) -> None:
    """A wait that nobody ended brings nothing, whatever was left over from before."""
    bells = ChangeSignals()
    with bells.watch("a") as watch:
        bells.notify("a", "old")
        assert await watch.wait(60)
        assert not await watch.wait(seconds)
        assert watch.news() is None
