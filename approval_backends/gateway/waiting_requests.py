"""The pending requests and the stops as one gateway knows them: read from the store, never remembered past it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from attrs import frozen
from msgspec.structs import replace

from approval_backends.lifecycle import FINAL, Moment, RequestRecord, seconds_left, sees

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
    from datetime import datetime

    from amplifier_hooks.ports import Stop
    from approval_backends.lifecycle import Decider
    from approval_backends.stores.approval_store import ApprovalStore


RECHECK: Final = 5.0
"""Seconds after which the gateway reads the store again, woken or not."""
MOST_FOLLOWED: Final = 16
"""Approved requests whose end the gateway looks for; of more, it drops the oldest."""


@frozen
class RequestChange:
    """A change: a request that is new, is not asked any more, or has moved on since."""

    kind: Literal["added", "resolved", "changed"]
    record: RequestRecord


class WaitingRequests:
    """The pending requests of a store, oldest first, its stops, and the store's time."""

    def __init__(self, store: ApprovalStore) -> None:
        self._store = store
        self._alone = asyncio.Lock()
        self._pending: dict[str, RequestRecord] = {}
        self._versions: dict[str, int] = {}
        self._stops: list[Stop] = []
        self._moment: Moment | None = None
        self._read_at = 0.0
        self._seconds_left = RECHECK

    async def refresh(self) -> list[RequestChange]:
        """Read the store, expire every request whose time is over, and return the changes since the last read.

        Raises `StoreUnavailable`, and then nothing has changed here. Cancelling `refresh` may lose changes, never the
        truth.
        """
        async with self._alone:
            if self._moment is None or time.monotonic() - self._read_at > RECHECK:
                self._moment, self._read_at = await self._store.now(), time.monotonic()
            found, stops, moment = await self._store.pending(), await self._store.stops(), self.moment
            self._seconds_left = _seconds_to_next_end(found, moment)
            if self._seconds_left <= 0:
                await self._store.expire_due()
                found = await self._store.pending()
                self._seconds_left = _seconds_to_next_end(found, moment)
            pending = {record.id: record for record in found}
            news = [RequestChange("added", record) for record in found if record.id not in self._pending]
            for record in [record for record in self._pending.values() if record.id not in pending]:
                after = await self._store.get(record.id)
                news.append(RequestChange("resolved", after or replace(record, status="cancelled", reason="removed")))
            if not news:  # so another change woke the gateway
                news = [one for request_id in list(self._versions) async for one in self._progress_of(request_id)]
            self._pending, self._stops = pending, [stop for stop in stops if stop.ended is None]
            for one in news:
                self._follow(one.record)
            return news

    def _follow(self, record: RequestRecord) -> None:
        """Remember a request that is approved and not at its end, to announce its next changes."""
        self._versions.pop(record.id, None)
        if record.status != "pending" and record.status not in FINAL:
            self._versions[record.id] = record.version
        if len(self._versions) > MOST_FOLLOWED:
            del self._versions[next(iter(self._versions))]

    async def _progress_of(self, request_id: str) -> AsyncIterator[RequestChange]:
        record = await self._store.get(request_id)
        if record is None:
            del self._versions[request_id]
        elif record.version != self._versions[request_id]:
            yield RequestChange("changed", record)

    @property
    def moment(self) -> Moment:
        """The store's time, counted on from the last reading."""
        if self._moment is None:
            raise RuntimeError("nothing was read yet")
        passed = time.monotonic() - self._read_at
        return Moment(self._moment.wall + timedelta(seconds=passed), self._moment.age + passed)

    @property
    def now(self) -> datetime:
        """The store's time by its wall clock."""
        return self.moment.wall

    @property
    def pause(self) -> float:
        """Seconds until the store has to be read again at the latest."""
        return min(RECHECK, max(self._seconds_left, 0.0) + 0.01)

    def visible_to(self, decider: Decider) -> Iterator[RequestRecord]:
        """Return the pending requests that the approver may see, oldest first."""
        return (record for record in self._pending.values() if sees(decider, record.request))

    @property
    def stops(self) -> Sequence[Stop]:
        """The stops in force, oldest first."""
        return self._stops

    def get(self, request_id: str) -> RequestRecord | None:
        """Return a pending request, or None."""
        return self._pending.get(request_id)


def _seconds_to_next_end(pending: Iterable[RequestRecord], moment: Moment) -> float:
    """Return the seconds until the time of the first of these requests is over."""
    return min((seconds_left(one.created, one.lifetime, moment) for one in pending), default=RECHECK)
