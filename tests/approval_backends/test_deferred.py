"""An approval backend over a store: other programs see its questions there, and decide there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from amplifier_hooks.errors import ApprovalPending
from amplifier_hooks.storage.database import StoreClosed
from approval_backends.broker import Broker
from approval_backends.deferred import DeferredApprovals
from approval_backends.errors import RequestWithdrawn
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import ALLOW, ROBIN, MovableClock, a_request
from tests.stores import FILES, opened

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.ports import ApprovalRequest


def now(number: int = 1, **changes: Any) -> ApprovalRequest:
    """Return a request made now."""
    created = datetime.now(UTC)
    return replace(a_request(number), created=created, expires=created + timedelta(minutes=1), **changes)


@pytest.mark.rule("BCK-5")
@pytest.mark.parametrize("kind", FILES)
async def test_deferred(kind: str, tmp_path: Path) -> None:
    """A program lists and decides the questions of another; after a restart a question has its answer."""
    request = now(wait=0.0)
    async with opened(kind, tmp_path) as subject:
        worker, other = DeferredApprovals(subject.store), DeferredApprovals(Broker(subject.store))
        with pytest.raises(ApprovalPending):
            await worker.request(request)
        (record,) = await other.pending(ROBIN)
        assert record.request == request
        assert (await other.decide(record.id, record.request.digest, ALLOW.id, ROBIN, message="go")).accepted
        again = DeferredApprovals(subject.store)
        taken = await again.resume(request.tenant, request.session)
        assert [one.id for one in taken.approved] == [request.id]
        decision = await again.request(request)
        assert (decision.by, decision.message) == ("Robin", "go")
        assert [await again.claim(request.id, request.digest) for _ in range(2)] == [True, False]
        await again.settle(request.id, "done")
        assert await other.pending(ROBIN) == []
        assert await other.grants(ROBIN) == []


async def test_opens_its_store(tmp_path: Path) -> None:
    """As a context manager, the backend opens the store and closes it."""
    clock = MovableClock()
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db", clock=clock)) as approvals:
        assert await approvals.pending(Decider(name="x", channel="y")) == []
    async with Broker(MemoryStore()) as broker:
        assert await broker.pending(ROBIN) == []


@pytest.mark.rule("APR-4")
@pytest.mark.fault("F-APR-06")
async def test_closed_while_asking(tmp_path: Path) -> None:
    """Closing withdraws the questions that are being asked at that moment, durably, and tells every waiter."""
    approvals = await DeferredApprovals(SqliteStore(tmp_path / "a.db")).open()
    requests = [now(number) for number in range(5)]
    tasks = [asyncio.ensure_future(approvals.request(request)) for request in requests]
    with approvals.broker.watch() as watch:
        while len(await approvals.pending(ROBIN)) < 5:
            await watch.wait(1)
    await approvals.close()
    await asyncio.wait(tasks)
    assert {type(task.exception()) for task in tasks} <= {RequestWithdrawn, StoreClosed}
    async with SqliteStore(tmp_path / "a.db") as store:
        assert {record.status for record in await store.history()} == {"cancelled"}
        assert len(await store.history()) == 5
