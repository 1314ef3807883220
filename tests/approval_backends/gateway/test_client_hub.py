"""The pending requests as a gateway knows them."""

from __future__ import annotations

import pytest

from approval_backends.broker import Broker
from approval_backends.gateway.client_hub import MOST_FOLLOWED, WaitingRequests
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import ROBIN, MovableClock, a_request


async def kinds(waiting: WaitingRequests) -> list[tuple[str, str]]:
    """Return the new changes, each with its kind and status."""
    return [(one.kind, one.record.status) for one in await waiting.refresh()]


@pytest.mark.rule("WIR-4")
async def test_waiting() -> None:
    """Changes come once, in order, from any source; a request ends when its time is up, or when it is removed."""
    clock = MovableClock()
    store = MemoryStore(clock=clock)
    broker, waiting = Broker(store), WaitingRequests(store)
    with pytest.raises(RuntimeError, match="nothing was read"):
        _ = waiting.now
    assert waiting.pause == 5.0
    first, second = a_request(1), a_request(2)
    await broker.submit(first)
    assert await kinds(waiting) == [("added", "pending")]
    assert await kinds(waiting) == []
    assert waiting.now >= clock().wall
    await broker.decide(first.id, first.digest, "allow", ROBIN)
    await broker.submit(second)
    assert await kinds(waiting) == [("added", "pending"), ("resolved", "approved")]
    await broker.claim(first.id, first.digest)
    assert await kinds(waiting) == [("changed", "claimed")]
    assert await kinds(waiting) == []
    await broker.settle(first.id, "failed")
    assert await kinds(waiting) == [("changed", "failed")]
    assert waiting.get(second.id) is not None
    assert [record.id for record in waiting.visible_to(ROBIN)] == [second.id]
    assert list(waiting.visible_to(Decider(name="x", channel="y", tenant="other"))) == []
    await clock.advance(61)
    waiting._read_at -= 10  # as if time had passed here, too
    assert await kinds(waiting) == [("resolved", "expired")]
    third = a_request(3)
    await broker.submit(third)
    await waiting.refresh()
    del store._records[third.id], store._pending[third.id]
    assert await kinds(waiting) == [("resolved", "cancelled")]


@pytest.mark.rule("WIR-4")
async def test_only_the_last_are_followed() -> None:
    """The gateway follows only the last approved requests to their end, so that reading stays short."""
    store = MemoryStore()
    broker, waiting = Broker(store), WaitingRequests(store)
    for number in range(2 * MOST_FOLLOWED):
        request = a_request(number)
        await broker.submit(request)
        await waiting.refresh()
        await broker.decide(request.id, request.digest, "allow", ROBIN)
        await waiting.refresh()
    assert len(waiting._versions) == MOST_FOLLOWED
    store._records.clear()
    assert await kinds(waiting) == []
    assert not waiting._versions
