"""Signals that wake waiters. A signal says that something may have changed; the waiter reads the store for the truth.

A writer may signal with news: the state that its own transaction has read. A waiter that only this signal wakes uses
the news and need not read again.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watch:
    """One waiter for changes. It remembers a signal that comes between two waits."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._news: Any = None

    async def wait(self, seconds: float) -> bool:
        """Wait for a signal, at most `seconds`. Return True if one came.

        Cancelling it loses nothing, because the waiter reads the store anyway.
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
        """Wake the waiter. `news` is the state of the watched thing, as read in a transaction that is committed.

        If a second signal comes before the waiter wakes, their order is unknown, so the news is dropped.
        """
        self._news = None if self._rung.is_set() else news
        self._rung.set()

    def news(self) -> Any:
        """Return the news of the last wait's only signal, once. None means that the waiter must read the store."""
        news, self._news = self._news, None
        return news

    def _take(self, woken: bool) -> bool:  # noqa: FBT001  # what it returns
        self._rung.clear()
        if not woken:
            self._news = None
        return woken


class ChangeSignals:
    """Waiters by topic. They belong to one event loop, so there are no locks."""

    def __init__(self) -> None:
        self._watches: dict[str | None, set[Watch]] = {}

    @contextmanager
    def watch(self, topic: str | None = None) -> Iterator[Watch]:
        """Add a waiter for one topic, or for all, until the context ends."""
        watch = Watch()
        there = self._watches.setdefault(topic, set())
        there.add(watch)
        try:
            yield watch
        finally:
            there.discard(watch)
            if not there and self._watches.get(topic) is there:
                del self._watches[topic]

    def notify(self, topic: str, news: Any = None) -> bool:
        """Wake the waiters for this topic, with the news, and the waiters for all topics, without.

        Return True if there is a waiter for this topic.
        """
        waiters = self._watches.get(topic, ())
        for watch in waiters:
            watch.notify(news)
        for watch in self._watches.get(None, ()):
            watch.notify()
        return bool(waiters)

    def notify_all(self) -> None:
        """Wake all waiters, because something unknown may have changed."""
        for watches in self._watches.values():
            for watch in watches:
                watch.notify()

    def __bool__(self) -> bool:
        return bool(self._watches)
