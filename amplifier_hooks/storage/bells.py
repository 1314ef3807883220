"""Waiting for a change. A bell says that something may have changed, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Bells", "Watch"]


class Watch:
    """One that waits. It remembers a ring it was not waiting for."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """Until it is woken, at most so long; whether it was woken.

        Cancelling it loses nothing: the truth is read, not heard.
        """
        timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), self._rung.set) if seconds > 0 else None
        if timer is None:
            return self._take()
        try:
            await self._rung.wait()
        finally:
            timer.cancel()
        woken = asyncio.get_running_loop().time() < timer.when()
        self._rung.clear()
        return woken

    def ring(self) -> None:
        """Wake it."""
        self._rung.set()

    def _take(self) -> bool:
        woken = self._rung.is_set()
        self._rung.clear()
        return woken


class Bells:
    """Those who wait, by topic. Of one event loop, and without locks."""

    def __init__(self) -> None:
        self._watches: dict[str | None, set[Watch]] = {}

    @contextmanager
    def watch(self, topic: str | None = None) -> Iterator[Watch]:
        """One more that waits, for one topic or for all."""
        watch = Watch()
        there = self._watches.setdefault(topic, set())
        there.add(watch)
        try:
            yield watch
        finally:
            there.discard(watch)
            if not there and self._watches.get(topic) is there:
                del self._watches[topic]

    def ring(self, topic: str) -> None:
        """Wake those of this topic, and those of all."""
        for place in (topic, None):
            for watch in self._watches.get(place, ()):
                watch.ring()

    def ring_all(self) -> None:
        """Wake everybody: something changed, and nobody knows what."""
        for watches in self._watches.values():
            for watch in watches:
                watch.ring()

    def __bool__(self) -> bool:
        return bool(self._watches)
