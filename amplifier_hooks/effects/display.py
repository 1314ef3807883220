"""Messages for the person at the screen."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from amplifier_hooks.escape import for_log
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.ports import DisplaySystem
    from amplifier_hooks.result import Level, UserMessage

__all__ = ["CollectingDisplay", "LogDisplay", "show"]

log = get_logger(__name__)


class CollectingDisplay:
    """Keeps what it is shown; for tests, and for hosts that draw later."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Level, str]] = []

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Keep the message."""
        self.messages.append((message, level, source))


class LogDisplay:
    """Sends messages to the log; the screen of a session that was given none."""

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Log the message on one line."""
        method = {"info": log.info, "warning": log.warning, "error": log.error}[level]
        method("user_message", text=for_log(message), source=for_log(source))


async def show(display: DisplaySystem, messages: Iterable[UserMessage]) -> None:
    """Show the messages in order. A display that fails is logged and breaks nothing."""
    for message in messages:
        try:
            shown = display.show_message(message.text, message.level, message.source)
            if inspect.isawaitable(shown):
                await shown
        except Exception as error:  # noqa: BLE001  # a screen must not decide what runs
            log.warning("display_failed", hook=message.hook_name, error=f"{type(error).__name__}: {error}")
