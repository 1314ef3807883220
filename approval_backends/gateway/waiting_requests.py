"""What waits for an answer, as one gateway knows it: read from the store, never remembered past it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve, frozen

from approval_backends.lifecycle import FINAL, Moment, RequestRecord, seconds_left, sees

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from datetime import datetime

    from approval_backends.lifecycle import Decider
    from approval_backends.stores.approval_store import ApprovalStore


RECHECK: Final = 5.0
"""Seconds after which the store is read again, woken or not."""
FOLLOWED: Final = 16
"""Approved requests whose end is looked for; of more, the oldest are let go."""


@frozen
class RequestChange:
    """Something that is not as it was: a request that is new, is not asked any more, or has gone on since."""

    kind: Literal["added", "resolved", "changed"]
    record: RequestRecord


class WaitingRequests:
    """The pending requests of a store, oldest first, and the store's time."""

    def __init__(self, store: ApprovalStore) -> None:
        self._store = store
        self._alone = asyncio.Lock()
        self._pending: dict[str, RequestRecord] = {}
        self._followed: dict[str, int] = {}
        self._moment: Moment | None = None
        self._read = 0.0
        self._left = RECHECK

    async def refresh(self) -> list[RequestChange]:
        """Read the store; what is new since the last time. What is over is expired on the way.

        Raises `StoreUnavailable`, and then nothing has changed here. Cancelling it may lose news, never the truth.
        """
        async with self._alone:
            if self._moment is None or time.monotonic() - self._read > RECHECK:
                self._moment, self._read = await self._store.now(), time.monotonic()
            found, moment = await self._store.pending(), self.moment
            self._left = _least_left(found, moment)
            if self._left <= 0:
                await self._store.expire_due()
                found = await self._store.pending()
                self._left = _least_left(found, moment)
            pending = {record.id: record for record in found}
            news = [RequestChange("added", record) for record in found if record.id not in self._pending]
            for record in [record for record in self._pending.values() if record.id not in pending]:
                after = await self._store.get(record.id)
                news.append(RequestChange("resolved", after or evolve(record, status="cancelled", reason="removed")))
            if not news:  # so it was something else that woke us
                news = [one for request_id in list(self._followed) async for one in self._progress_of(request_id)]
            self._pending = pending
            for one in news:
                self._follow(one.record)
            return news

    def _follow(self, record: RequestRecord) -> None:
        """Remember what is approved and not at its end, to tell what becomes of it."""
        self._followed.pop(record.id, None)
        if record.status != "pending" and record.status not in FINAL:
            self._followed[record.id] = record.version
        if len(self._followed) > FOLLOWED:
            del self._followed[next(iter(self._followed))]

    async def _progress_of(self, request_id: str) -> AsyncIterator[RequestChange]:
        record = await self._store.get(request_id)
        if record is None:
            del self._followed[request_id]
        elif record.version != self._followed[request_id]:
            yield RequestChange("changed", record)

    @property
    def moment(self) -> Moment:
        """The store's time, as far as it was heard of."""
        if self._moment is None:
            raise RuntimeError("nothing was read yet")
        passed = time.monotonic() - self._read
        return Moment(self._moment.wall + timedelta(seconds=passed), self._moment.boot, self._moment.reading + passed)

    @property
    def now(self) -> datetime:
        """The same, on the wall."""
        return self.moment.wall

    @property
    def pause(self) -> float:
        """Seconds until the store has to be read again at the latest."""
        return min(RECHECK, max(self._left, 0.0) + 0.01)

    def visible_to(self, decider: Decider) -> Iterator[RequestRecord]:
        """What somebody may see of it, oldest first."""
        return (record for record in self._pending.values() if sees(decider, record.request))

    def get(self, request_id: str) -> RequestRecord | None:
        """One that waits."""
        return self._pending.get(request_id)


def _least_left(pending: Iterable[RequestRecord], moment: Moment) -> float:
    """Seconds until the first of them is over."""
    return min((seconds_left(one.created, one.lifetime, moment) for one in pending), default=RECHECK)
