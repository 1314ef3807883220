"""An approval backend over a store: other programs see its questions there, and decide there."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from amplifier_hooks import SessionCoordinator
from amplifier_hooks.errors import AlreadyRun, ApprovalPending, ApprovalTimeout, InvalidCollaborator
from amplifier_hooks.ports import ApprovalRequest, Decision
from amplifier_hooks.storage.database import StoreClosed
from amplifier_hooks.testing import ScriptedApprover
from approval_backends.backend import DeferredApprovals, RacingApprovals
from approval_backends.broker import Broker
from approval_backends.errors import BackendUnavailable, RequestWithdrawn
from approval_backends.in_process import InProcessBackend
from approval_backends.lifecycle import Decider
from approval_backends.rules.policy import Rules
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import ALLOW, DENY, ROBIN, MovableClock, a_request
from tests.stores import FILES, opened, turns, until

if TYPE_CHECKING:
    from pathlib import Path


def now(number: int = 1, seconds: float = 60.0, **changes: Any) -> ApprovalRequest:
    """Return a request made now."""
    created = datetime.now(UTC)
    return replace(a_request(number), created=created, expires=created + timedelta(seconds=seconds), **changes)


@pytest.mark.rule("BCK-5")
@pytest.mark.parametrize("kind", FILES)
async def test_deferred(kind: str, tmp_path: Path) -> None:
    """A program lists and decides the questions of another; after a restart a question has its answer."""
    request = now(wait=0.0)
    async with opened(kind, tmp_path) as subject:
        worker, other = DeferredApprovals(subject.store), DeferredApprovals(Broker(subject.store))
        with pytest.raises(ApprovalPending):
            await worker.request(request)
        (record,) = await other.broker.pending(ROBIN)
        assert record.request == request
        assert (await other.broker.decide(record.id, record.request.digest, ALLOW.id, ROBIN, message="go")).accepted
        again = DeferredApprovals(subject.store)
        taken = await again.broker.resume(request.tenant, request.session)
        assert [one.id for one in taken.approved] == [request.id]
        decision = await again.request(request)
        assert (decision.by, decision.message) == ("Robin", "go")
        assert [await again.claim(request.id, request.digest) for _ in range(2)] == [True, False]
        await again.settle(request.id, "done")
        assert await other.broker.pending(ROBIN) == []
        assert await other.broker.grants(ROBIN) == []


async def test_opens_its_store(tmp_path: Path) -> None:
    """As a context manager, the backend opens the store and closes it."""
    clock = MovableClock()
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db", clock=clock)) as approvals:
        assert await approvals.broker.pending(Decider(name="x", channel="y")) == []
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
        while len(await approvals.broker.pending(ROBIN)) < 5:
            await watch.wait(1)
    await approvals.close()
    await asyncio.wait(tasks)
    assert {type(task.exception()) for task in tasks} <= {RequestWithdrawn, StoreClosed}
    async with SqliteStore(tmp_path / "a.db") as store:
        assert {record.status for record in await store.history()} == {"cancelled"}
        assert len(await store.history()) == 5


class Channel(InProcessBackend):
    """A channel to a person. It keeps what it shows and what it was told to take away."""

    def __init__(self, name: str = "screen") -> None:
        super().__init__()
        self.name = name
        self.shown: dict[str, asyncio.Future[Any]] = {}
        self.taken_away: list[str] = []
        self.asked = asyncio.Event()

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Show the question until it is answered, and take it away when it is not asked any more."""
        self.shown[request.id] = asyncio.get_running_loop().create_future()
        self.asked.set()
        try:
            answer: Decision = await self.shown[request.id]
        except asyncio.CancelledError:
            self.taken_away.append(request.id)
            raise
        finally:
            del self.shown[request.id]
        return answer

    def answer(self, request: ApprovalRequest, option: str) -> None:
        """Answer, as a person does."""
        self.shown[request.id].set_result(Decision(option=option, by=f"Robin at {self.name}", channel=self.name))

    def fail(self, request: ApprovalRequest, error: Exception) -> None:
        """Let the channel fail."""
        self.shown[request.id].set_exception(error)


async def asking(backend: RacingApprovals, request: ApprovalRequest, *channels: Channel) -> asyncio.Task[Decision]:
    """Ask, and wait until every channel shows it."""
    task = asyncio.ensure_future(backend.request(request))
    for channel in channels:
        await channel.asked.wait()
    return task


@pytest.mark.rule("BCK-7")
async def test_first_answer_wins() -> None:
    """The first answer is the decision, and the question disappears from the other screens."""
    left, right, request = Channel("left"), Channel("right"), now()
    race = RacingApprovals(left, right)
    task = await asking(race, request, left, right)
    right.answer(request, DENY.id)
    assert ((await task).by, (await task).option) == ("Robin at right", DENY.id)
    assert (left.shown, left.taken_away) == ({}, [request.id])
    assert not await race.claim(request.id, request.digest)


@pytest.mark.rule("BCK-7", "APR-6")
async def test_both_answer_in_the_same_tick() -> None:
    """When both answer at once, one of them is the decision, and it is the one that is stored."""
    left, right, request = Channel("left"), Channel("right"), now()
    race = RacingApprovals(left, right)
    task = await asking(race, request, left, right)
    left.answer(request, ALLOW.id)
    right.answer(request, DENY.id)
    decision = await task
    record = await race.broker.store.get(request.id)
    assert record is not None
    assert record.decision is not None
    assert decision == replace(record.decision, took=record.took, digest=record.request.digest)
    assert await race.claim(request.id, request.digest) is (decision.option == ALLOW.id)


@pytest.mark.rule("BCK-7", "APR-6")
async def test_answers_that_were_not_offered() -> None:
    """A channel with an answer that was not offered, or none at all, is out; the others go on."""
    left, middle, right, request = Channel("left"), Channel("middle"), Channel("right"), now()
    task = await asking(RacingApprovals(left, middle, right), request, left, middle, right)
    left.answer(request, "Allow")
    middle.shown[request.id].set_result("allow")
    await until(lambda: not left.shown and not middle.shown)
    assert not task.done()
    right.answer(request, ALLOW.id)
    assert (await task).by == "Robin at right"


@pytest.mark.rule("BCK-7", "APR-5")
@pytest.mark.fault("F-APR-24")
async def test_an_always_that_is_kept() -> None:
    """An "always" for one action is kept for every session, as each channel knows; another action is asked about."""
    policy = Rules(b"version: 1\nrules:\n- {id: push, action: ask, tool: Bash, reason: 'Publish this?'}\n")
    channel = ScriptedApprover("Allow always in this project", "Deny")
    race, ran = RacingApprovals(channel, broker=Broker(MemoryStore(), keep_grants=60.0)), list[object]()
    for name in ("s1", "s2"):
        async with SessionCoordinator(session_id=name, approvals=race, rules=policy, cwd="/w") as session:
            await session.call_tool("Bash", {"command": "git push"}, ran.append)
            if name == "s2":
                await session.call_tool("Bash", {"command": "git push --force"}, ran.append)
    assert ran == [{"command": "git push"}] * 2
    assert [(one.session, one.keep) for one in channel.requests] == [("s1", 60.0), ("s2", 60.0)]


@pytest.mark.rule("BCK-7")
async def test_all_channels_fail() -> None:
    """When no channel is left and no other client can see the question, asking ends with every reason."""
    left, right, request = Channel("left"), Channel("right"), now()
    race = RacingApprovals(left, right)
    task = await asking(race, request, left, right)
    left.fail(request, BackendUnavailable("no terminal"))
    right.fail(request, OSError("line is down"))
    with pytest.raises(BackendUnavailable, match=r"no terminal.*line is down|line is down.*no terminal"):
        await task
    record = await race.broker.store.get(request.id)
    assert record is not None
    assert record.status == "cancelled"


@pytest.mark.rule("BCK-7")
async def test_all_channels_run_out_of_time() -> None:
    """When every channel says that its time is up, the time is up."""
    left, request = Channel("left"), now()
    task = await asking(RacingApprovals(left), request, left)
    left.fail(request, ApprovalTimeout("up"))
    with pytest.raises(ApprovalTimeout):
        await task


@pytest.mark.rule("BCK-7", "BCK-5")
async def test_somebody_elsewhere_is_first(tmp_path: Path) -> None:
    """A decision from another process wins as well, and clears the screens; a channel that failed does not matter."""
    left, right, request = Channel("left"), Channel("right"), now()
    async with SqliteStore(tmp_path / "a.db") as store, SqliteStore(tmp_path / "a.db") as elsewhere:
        race = RacingApprovals(left, right, broker=Broker(store))
        task = await asking(race, request, left, right)
        left.fail(request, BackendUnavailable("no terminal"))
        resolution = await Broker(elsewhere).decide(request.id, request.digest, ALLOW.id, ROBIN)
        assert resolution.accepted
        assert (await task).by == "Robin"
        assert right.taken_away == [request.id]
        assert await race.claim(request.id, request.digest)
        await race.settle(request.id, "done")
        await race.settle(request.id, "done")


@pytest.mark.rule("APR-4")
async def test_time_is_over(tmp_path: Path) -> None:
    """When the request's time is over it is expired everywhere, and the caller gets a timeout."""
    left, request = Channel("left"), now(seconds=0.05)
    async with SqliteStore(tmp_path / "a.db") as store:
        race = RacingApprovals(left, broker=Broker(store))
        task = await asking(race, request, left)
        with pytest.raises(ApprovalTimeout):
            await task
        record = await store.get(request.id)
    assert record is not None
    assert record.status == "expired"
    assert left.taken_away == [request.id]


@pytest.mark.rule("APR-4", "BCK-5")
@pytest.mark.parametrize("kind", FILES)
async def test_goes_durable(kind: str, tmp_path: Path) -> None:
    """When only the inline wait is over the question stays open, and asking again gets the decision made meanwhile."""
    left, request = Channel("left"), now(wait=0.05)
    async with opened(kind, tmp_path) as subject:
        race = RacingApprovals(left, broker=Broker(subject.store))
        with pytest.raises(ApprovalPending) as pending:
            await race.request(request)
        assert pending.value.request == request.id
        assert left.taken_away == [request.id]
        assert (await Broker(subject.store).decide(request.id, request.digest, ALLOW.id, ROBIN)).accepted
        assert (await race.request(request)).by == "Robin"
        assert await race.claim(request.id, request.digest)
        with pytest.raises(AlreadyRun, match="its outcome is unknown"):
            await race.request(request)


@pytest.mark.rule("APR-4")
async def test_memory_is_not_durable() -> None:
    """If no caller could come back to the question, the inline wait is the whole time."""
    left, request = Channel("left"), now(wait=0.0)
    task = await asking(RacingApprovals(left), request, left)
    left.answer(request, ALLOW.id)
    assert (await task).option == ALLOW.id


@pytest.mark.rule("APR-4")
async def test_withdrawn() -> None:
    """A question that is withdrawn ends with that; `expired` as the reason is kept as expiry."""
    left = Channel("left")
    race = RacingApprovals(left)
    for reason, error, status in (
        ("changed our mind", RequestWithdrawn, "cancelled"),
        ("expired", ApprovalTimeout, "expired"),
    ):
        left.asked.clear()
        request = now()
        task = await asking(race, request, left)
        await race.withdraw(request.id, reason)
        with pytest.raises(error):
            await task
        record = await race.broker.store.get(request.id)
        assert record is not None
        assert record.status == status
    await race.withdraw("nothing", "never heard of it")


@pytest.mark.rule("APR-3", "APR-6")
@pytest.mark.fault("F-APR-05")
@pytest.mark.parametrize("seeds", [50, pytest.param(1_000, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_cancelled_in_the_same_tick(kind: str, seeds: int, tmp_path: Path) -> None:
    """A caller cancelled around the moment of the approval cannot claim it; one that was not cancelled in time can."""
    seen = set()
    async with opened(kind, tmp_path) as subject:
        broker = Broker(subject.store)
        for seed in range(seeds):
            chance, request, left = random.Random(seed), now(seed), Channel()  # a schedule
            channels = [left] if seed % 2 else []
            task = await asking(RacingApprovals(*channels, broker=broker), request, *channels)
            with broker.watch() as watch:
                while not await broker.show(request.id, ROBIN):
                    await watch.wait(1)
            deciding = asyncio.ensure_future(broker.decide(request.id, request.digest, ALLOW.id, ROBIN))
            await turns(chance.randrange(12))
            task.cancel()
            await asyncio.wait({task, deciding})
            claimed = await RacingApprovals(broker=broker).claim(request.id, request.digest)
            assert claimed is not task.cancelled()
            seen.add(claimed)
            await broker.store.end_session("acme", "session-1")
    assert False in seen


@pytest.mark.rule("BCK-7")
@pytest.mark.parametrize("wrong", [[ScriptedApprover()], ScriptedApprover, None])
def test_a_channel_that_cannot_ask(wrong: Any) -> None:
    """A list of channels, or a class, in the place of a channel is refused at once, with the call that is meant."""
    with pytest.raises(InvalidCollaborator, match=r"pass backends one by one: RacingApprovals\("):
        RacingApprovals(wrong)
