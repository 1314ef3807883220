"""Waiting for a change. A bell says that something may have changed; the truth is read.

Who has just written what changed has read it with that, and may ring with what was read. Whoever is woken by such a
ring and by no other need not read it again.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watch:
    """One that waits. It remembers a ring it was not waiting for."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._news: Any = None

    async def wait(self, seconds: float) -> bool:
        """Until it is woken, at most so long; whether it was woken.

        Cancelling it loses nothing: the truth is read, not heard.
        """
        timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), self._rung.set) if seconds > 0 else None
        if timer is None:
            return self._take(self._rung.is_set())
        try:
            await self._rung.wait()
        finally:
            timer.cancel()
        return self._take(asyncio.get_running_loop().time() < timer.when())

    def notify(self, news: Any = None) -> None:
        """Wake it; `news` is what a transaction that holds has made of what is watched, read in that transaction.

        Of two rings nobody knows which was last, so they bring no news.
        """
        self._news = None if self._rung.is_set() else news
        self._rung.set()

    def news(self) -> Any:
        """What the only ring of the last wait has brought, once; None says: read."""
        news, self._news = self._news, None
        return news

    def _take(self, woken: bool) -> bool:  # noqa: FBT001  # what it returns
        self._rung.clear()
        if not woken:
            self._news = None
        return woken


class ChangeSignals:
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

    def notify(self, topic: str, news: Any = None) -> None:
        """Wake those of this topic, with the news if there are any, and those of all."""
        for watch in self._watches.get(topic, ()):
            watch.notify(news)
        for watch in self._watches.get(None, ()):
            watch.notify()

    def notify_all(self) -> None:
        """Wake everybody: something changed, and nobody knows what."""
        for watches in self._watches.values():
            for watch in watches:
                watch.notify()

    def __bool__(self) -> bool:
        return bool(self._watches)
