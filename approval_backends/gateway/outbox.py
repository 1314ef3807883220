"""What waits to be sent to one client, and how much of it may."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Outbox:
    """Messages in order, at most so many and so large together; one that is alone may be of any size.

    `later` makes messages when there is nothing else to send: they are not made, and take no room, before.
    """

    def __init__(self, most: int, most_bytes: int, later: Callable[[], str | None]) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._later = later
        self._texts: deque[str] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    def put(self, text: str) -> bool:
        """One more; False if there is no room for it. All of our messages are ASCII, so a character is a byte."""
        if self._texts and (len(self._texts) >= self._most or self._bytes + len(text) > self._most_bytes):
            return False
        self._texts.append(text)
        self._bytes += len(text)
        self._wake.set()
        return True

    def wake(self) -> None:
        """There is something to make later."""
        self._wake.set()

    async def take(self) -> str:
        """The next one. Cancelling it loses nothing."""
        while True:
            if self._texts:
                text = self._texts.popleft()
                self._bytes -= len(text)
                return text
            made = self._later()
            if made is not None:
                return made
            self._wake.clear()
            await self._wake.wait()

    def emptied(self) -> list[str]:
        """All that waits, and then nothing does."""
        waits = list(self._texts)
        self._texts.clear()
        self._bytes = 0
        return waits
