"""Several processes on one store, and processes that die: no decision is lost or doubled, and nothing runs twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.testing import ALLOW, ROBIN
from tests.approval_backends.stores.worker import request, store_at
from tests.stores import FILES, address

WORKER = Path(__file__).with_name("worker.py")
ROOT = WORKER.parent.parent.parent


async def started(*arguments: str) -> asyncio.subprocess.Process:
    """Start another process."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(WORKER), *arguments, stdout=asyncio.subprocess.PIPE
    )


async def line(process: asyncio.subprocess.Process) -> str:
    """Return the next line of its output."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.rule("BCK-8", "APR-6")
@pytest.mark.fault("F-APR-02")
@pytest.mark.parametrize(
    ("processes", "rounds"),
    [(4, 10), pytest.param(16, 1_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
    ids=["few", "many"],
)
@pytest.mark.parametrize("kind", FILES)
async def test_racing_processes(kind: str, processes: int, rounds: int, tmp_path: Path) -> None:
    """However many processes decide every request at once, half for and half against, each has exactly one winner."""
    async with address(kind, tmp_path) as where, store_at(where) as store:
        racers = [await started(where, "race", str(number), str(rounds)) for number in range(processes)]
        assert [await line(racer) for racer in racers] == ["ready"] * processes
        broker = Broker(store)
        for number in range(rounds):
            await broker.submit(request(number))
        won = [json.loads(await line(racer)) for racer in racers]
        assert [await racer.wait() for racer in racers] == [0] * processes
        winners = {name: str(number) for number, names in enumerate(won) for name in names}
        assert Counter(name for names in won for name in names) == {f"r{number}": 1 for number in range(rounds)}
        for number in range(rounds):
            record = await store.get(f"r{number}")
            assert record is not None
            assert record.decision is not None
            assert record.decision.by == winners[record.id]
            assert record.status == ("approved" if int(record.decision.by) % 2 else "denied")
            kinds = Counter(event.kind for event in await store.events(record.id))
            assert kinds["approve"] + kinds["deny"] == 1


POINTS = {
    "asked": ("nothing", 0),
    "storing the request": ("nothing", 0),
    "stored": ("pending", 0),
    "storing the decision": ("pending", 0),
    "approved": ("approved", 0),
    "recorded": ("approved", 0),
    "storing the claim": ("approved", 0),
    "claimed": ("unknown", 0),
    "effect done": ("unknown", 1),
    "settled": ("done", 1),
}


@pytest.mark.rule("BCK-5", "BCK-8")
@pytest.mark.fault("F-ST-02", "F-APR-21")
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        *(("sqlite", point) for point in POINTS),
        # There a transaction is one statement, with no place within it to die.
        *(
            pytest.param("postgres", point, marks=pytest.mark.postgres)
            for point in POINTS
            if not point.startswith("storing")
        ),
    ],
)
async def test_killed(kind: str, point: str, tmp_path: Path) -> None:
    """A process that is killed leaves the stored state: never a run without an approval, never a second run."""
    canary = tmp_path / "canary"
    async with address(kind, tmp_path) as where:
        dying = await started(where, "live", str(canary), point)
        assert await dying.wait() == -signal.SIGKILL
        status, runs = POINTS[point]
        async with store_at(where) as store:
            broker = Broker(store)
            for _ in range(3):
                taken = await broker.resume("acme", "session-1")
                record = await store.get("r1")
                assert (record.status if record else "nothing") == status
                groups = {"pending": taken.pending, "approved": taken.approved, "unknown": taken.unknown}
                assert {name for name, found in groups.items() if found} == {status} & set(groups)
            unrecorded = {event.kind for event in await store.list_unrecorded()}
            assert ("approve" in unrecorded) is (point == "approved")
            claimed = await broker.claim("r1", request(1).digest)
            assert isinstance(claimed, RequestRecord) is (status == "approved")
            assert (canary.read_bytes().count(b"ran") if canary.exists() else 0) == runs


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-02")
@pytest.mark.parametrize(("point", "status"), [("clicked", "pending"), ("stored", "approved")])
@pytest.mark.parametrize("kind", FILES)
async def test_decider_killed(kind: str, point: str, status: str, tmp_path: Path) -> None:
    """An approver's process that is killed has decided, or has not; sent again, the decision counts once."""
    async with address(kind, tmp_path) as where, store_at(where) as store:
        broker = Broker(store)
        await broker.submit(request(1))
        dying = await started(where, "decide", point)
        assert await dying.wait() == -signal.SIGKILL
        record = await store.get("r1")
        assert record is not None
        assert record.status == status
        again = await broker.decide(
            "r1", request(1).digest, ALLOW.id, Decider(name="Kim", channel="y"), decision_id="d2"
        )
        assert again.accepted
        kinds = [event.kind for event in await store.events("r1")]
        assert kinds == ["submitted", "approve"]


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-02")
@pytest.mark.parametrize("kind", FILES)
async def test_killed_before_it_notifies(kind: str, tmp_path: Path) -> None:
    """A decision whose process died before it notified others reaches a waiter elsewhere, at the waiter's next look."""
    async with address(kind, tmp_path) as where, store_at(where) as store:
        broker = Broker(store, recheck=0.2)
        waiting = asyncio.ensure_future(broker.ask(request(1)))
        dying = await started(where, "decide", "stored")
        assert await dying.wait() == -signal.SIGKILL
        assert (await waiting).status == "approved"


@pytest.mark.rule("BCK-5", "BCK-8")
@pytest.mark.parametrize("kind", FILES)
async def test_two_processes(kind: str, tmp_path: Path) -> None:
    """One process asks and waits, another decides, and the first goes on at once."""
    async with address(kind, tmp_path) as where, store_at(where) as store:
        waiting = await started(where, "wait", "1")
        assert await line(waiting) == "ready"
        (record,) = await store.pending()
        assert (await Broker(store).decide(record.id, record.digest, ALLOW.id, ROBIN)).accepted
        assert await line(waiting) == "['Robin']"
        assert await waiting.wait() == 0


@pytest.mark.rule("BCK-5", "BCK-8")
@pytest.mark.parametrize("kind", FILES)
async def test_killed_while_it_waits(kind: str, tmp_path: Path) -> None:
    """The decision made after the asking process was killed is there when it comes back."""
    async with address(kind, tmp_path) as where, store_at(where) as store:
        waiting = await started(where, "wait", "1")
        assert await line(waiting) == "ready"
        waiting.kill()
        await waiting.wait()
        (record,) = await store.pending()
        assert (await Broker(store).decide(record.id, record.digest, ALLOW.id, ROBIN)).accepted
        again = Broker(store)
        assert [one.id for one in (await again.resume("acme", "session-1")).approved] == ["r0"]
        assert (await again.ask(record.request)).status == "approved"
        assert isinstance(await again.claim("r0", record.digest), RequestRecord)


@pytest.mark.rule("APR-4")
@pytest.mark.fault("F-APR-06", "F-ST-02")
@pytest.mark.parametrize("kind", FILES)
async def test_terminated(kind: str, tmp_path: Path) -> None:
    """A process that is told to end withdraws its five open questions before it does; none of them ends approved."""
    async with address(kind, tmp_path) as where, store_at(where) as store:
        waiting = await started(where, "wait", "5")
        assert await line(waiting) == "ready"
        waiting.terminate()
        assert await line(waiting) == "cancelled"
        assert await waiting.wait() == 0
        records = [await store.get(f"r{number}") for number in range(5)]
        assert [record.status for record in records if record] == ["cancelled"] * 5
