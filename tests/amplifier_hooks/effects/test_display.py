"""Messages for the person at the screen."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.effects.display import CollectingDisplay, LogDisplay, show
from amplifier_hooks.result import UserMessage

if TYPE_CHECKING:
    from amplifier_hooks.result import Level


def message(text: str, level: Level = "info") -> UserMessage:
    """A message as the registry hands it on."""
    return UserMessage(text=text, level=level, hook_name="lint", source="hook:lint")


@pytest.mark.rule("DIS-1", "DIS-3")
async def test_order() -> None:
    """Messages are shown in order, with level and source."""
    display = CollectingDisplay()
    await show(display, [message("one"), message("two", "error")])
    assert display.messages == [("one", "info", "hook:lint"), ("two", "error", "hook:lint")]


@pytest.mark.rule("DIS-3")
async def test_async_display() -> None:
    """A display may be async."""

    class Slow(CollectingDisplay):
        async def show_message(self, message: str, level: Level, source: str) -> None:  # type: ignore[override]
            self.messages.append((message, level, source))

    display = Slow()
    await show(display, [message("one")])
    assert display.messages == [("one", "info", "hook:lint")]


@pytest.mark.rule("DIS-3")
async def test_failing_display() -> None:
    """A display that fails at one message is shown the next."""

    class Fragile(CollectingDisplay):
        def show_message(self, message: str, level: Level, source: str) -> None:
            if message == "one":
                raise BrokenPipeError
            super().show_message(message, level, source)

    display = Fragile()
    await show(display, [message("one"), message("two")])
    assert display.messages == [("two", "info", "hook:lint")]


@pytest.mark.rule("DIS-3")
@pytest.mark.parametrize("level", ["info", "warning", "error"])
async def test_log_display(level: Level, caplog: pytest.LogCaptureFixture) -> None:
    """The default display logs the message at its level, on one line."""
    with caplog.at_level(logging.INFO, "amplifier_hooks"):
        await show(LogDisplay(), [message("a\nb", level)])
    (record,) = caplog.records
    assert (record.levelname.lower(), record.getMessage()) == (level, "user_message")
    assert record.__dict__["text"] == "a\\u{0A}b"
