"""Asking, waiting, deciding, withdrawing: over every store, with any failure and any coincidence."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.ports import Question
from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends.backend import StoreApprovals
from approval_backends.broker import Broker
from approval_backends.errors import BackendUnavailable, TooManyRequests
from approval_backends.lifecycle import Decider, Refusal, RequestRecord
from approval_backends.stores.approval_store import system_reading
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.stores.transactions import PENDING, UNRECORDED
from approval_backends.testing import ALLOW, ALWAYS, DENY, LIFETIME, ROBIN, MovableClock, StoreSubject, a_request
from tests.stores import FILES, KINDS, opened, turns, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_hooks.result import Scope

KIM = Decider(name="Kim", channel="phone", tenant="acme")


@pytest.fixture(params=KINDS)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreSubject]:
    """Each store in turn."""
    async with opened(request.param, tmp_path) as one:
        yield one


async def decided(broker: Broker, request: Any, option: Any = ALLOW, by: Decider = ROBIN, **more: Any) -> bool:
    """Answer, and return True if the answer counted."""
    return (await broker.decide(request.id, request.digest, option.id, by, **more)).accepted


@pytest.mark.rule("APR-6", "APR-8", "BCK-8")
async def test_whole_way(subject: StoreSubject) -> None:
    """Ask, wait, decide, claim, settle: each once, and the waiter gets the decision."""
    broker, request = Broker(subject.store), a_request()
    waiting = asyncio.ensure_future(broker.ask(request))
    with broker.watch() as watch:
        while not await broker.pending(ROBIN):
            await watch.wait(1)
    assert await decided(broker, request, message="fine")
    record = await waiting
    assert (record.status, record.decision and record.decision.message) == ("approved", "fine")
    assert await broker.wait(request.id) == record
    claims = [await broker.claim(request.id, request.digest) for _ in range(2)]
    assert [isinstance(claim, RequestRecord) for claim in claims] == [True, False]
    assert isinstance(await broker.claim("nothing", request.digest), Refusal)
    assert isinstance(await broker.settle(request.id, "done"), RequestRecord)
    assert isinstance(await broker.settle(request.id, "done"), Refusal)
    assert [event.kind for event in await broker.events(request.id, ROBIN)] == [
        "submitted",
        "approve",
        "claim",
        "finish",
    ]
    assert [one.id for one in await broker.history(ROBIN)] == [request.id]


@pytest.mark.rule("APR-4")
async def test_waiting_has_an_end(subject: StoreSubject) -> None:
    """A waiter leaves when its own timeout ends, and the question stays open; at its own end the request expires."""
    broker, request = Broker(subject.store, recheck=0.01), a_request()
    await broker.submit(request)
    assert (await broker.wait(request.id, 0.0)).status == "pending"
    assert (await broker.wait(request.id, 0.02)).status == "pending"
    await subject.advance(LIFETIME)
    assert (await broker.wait(request.id)).status == "expired"
    with pytest.raises(BackendUnavailable, match="there is no request"):
        await broker.wait("nothing")


@pytest.mark.rule("APR-4")
@pytest.mark.fault("F-APR-04")
async def test_late_answer(subject: StoreSubject) -> None:
    """A late approval is refused and recorded, whether or not the end was noticed before."""
    broker, request = Broker(subject.store), a_request()
    await broker.submit(request)
    await subject.advance(LIFETIME)
    for _ in range(2):
        resolution = await broker.decide(request.id, request.digest, ALLOW.id, ROBIN)
        assert resolution.refusal is not None
        assert (resolution.accepted, resolution.refusal.code) == (False, "expired")
    record = await broker.wait(request.id)
    assert record.status == "expired"
    assert isinstance(await broker.claim(request.id, request.digest), Refusal)
    kinds = [event.kind for event in await broker.events(request.id, ROBIN)]
    assert kinds == ["submitted", "late_decision", "expire", "late_decision"]


@pytest.mark.rule("APR-4")
@pytest.mark.fault("F-APR-04")
async def test_given_up(subject: StoreSubject) -> None:
    """When the requester has waited long enough, a question without an answer expires; an answer stands."""
    broker, silent, answered = Broker(subject.store), a_request(1), a_request(2)
    for request in (silent, answered):
        await broker.submit(request)
    assert await decided(broker, answered)
    record = await broker.give_up(silent.id)
    assert isinstance(record, RequestRecord)
    assert (record.status, record.reason) == ("expired", "no answer came in time")
    assert isinstance(await broker.claim(silent.id, silent.digest), Refusal)
    refusal = await broker.give_up(answered.id)
    assert isinstance(refusal, Refusal)
    assert refusal.record == await broker.show(answered.id, ROBIN)
    assert isinstance(await broker.claim(answered.id, answered.digest), RequestRecord)


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-08", "F-APR-09", "F-APR-10")
async def test_rights(subject: StoreSubject) -> None:
    """An approver sees and decides only their own requests; another's looks like one that is not there."""
    broker, request = Broker(subject.store), a_request()
    await broker.submit(request)
    for stranger in (replace(KIM, tenant="other"), replace(KIM, sessions=frozenset({"session-2"}))):
        assert await broker.show(request.id, stranger) is None
        assert await broker.pending(stranger) == []
        assert await broker.events(request.id, stranger) == []
        foreign = await broker.decide(request.id, request.digest, ALLOW.id, stranger)
        missing = await broker.decide("nothing", request.digest, ALLOW.id, stranger)
        assert foreign == missing
        assert foreign.refusal is not None
        assert foreign.refusal.code == "unknown_request"
    refused = await broker.decide(request.id, request.digest, ALLOW.id, replace(KIM, may_decide=False))
    assert refused.refusal is not None
    assert refused.refusal.code == "not_allowed"
    assert [one.id for one in await broker.pending(KIM)] == [request.id]
    assert await broker.show(request.id, KIM) == (await broker.pending(KIM))[0]
    assert await decided(broker, request, by=KIM)


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-17")
async def test_same_words(subject: StoreSubject) -> None:
    """Of two requests that read alike only the one that was approved can run."""
    broker = Broker(subject.store)
    first, second = a_request(1), a_request(2)
    for request in (first, second):
        await broker.submit(request)
    assert await decided(broker, first)
    assert not isinstance(await broker.claim(second.id, second.digest), RequestRecord)
    assert not isinstance(await broker.claim(first.id, second.digest), RequestRecord)
    assert isinstance(await broker.claim(first.id, first.digest), RequestRecord)


@pytest.mark.fault("F-APR-20")
async def test_second_approver(subject: StoreSubject) -> None:
    """An approver who connects later sees the request under one id and digest, and decides it once."""
    request = a_request()
    await Broker(subject.store).submit(request)
    seen = [(await Broker(subject.store).pending(who))[0] for who in (ROBIN, KIM)]
    assert seen[0] == seen[1]
    answers = [await decided(Broker(subject.store), seen[1].request, by=who) for who in (KIM, ROBIN)]
    assert answers == [True, False]


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-02")
async def test_sixteen_tasks(subject: StoreSubject) -> None:
    """Sixteen at once, half of them for and half against: one winner, and every loser is told which."""
    broker = Broker(subject.store)
    for turn in range(10):
        request = a_request(turn)
        await broker.submit(request)
        waiting = asyncio.ensure_future(broker.wait(request.id))
        results = await asyncio.gather(
            *(
                broker.decide(
                    request.id, request.digest, (DENY if n % 2 else ALLOW).id, Decider(name=f"p{n}", channel="x")
                )
                for n in range(16)
            )
        )
        (winner,) = (one.record for one in results if one.accepted)
        assert winner is not None
        losers = [one.record for one in results if not one.accepted]
        assert [record == winner for record in losers] == [True] * 15
        assert await waiting == winner


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-05")
@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_in_the_same_tick(kind: str, tmp_path: Path) -> None:
    """A waiter that is cancelled around the moment of the approval still reports its cancellation."""
    async with opened(kind, tmp_path) as subject:
        broker = Broker(subject.store)
        for seed in range(200 if kind == "memory" else 20):
            chance, request = random.Random(seed), a_request(seed, session=f"s{seed}", tenant=f"t{seed}")
            await broker.submit(request)
            waiting = asyncio.ensure_future(broker.wait(request.id))
            await turns(chance.randrange(4))
            deciding = asyncio.ensure_future(broker.decide(request.id, request.digest, ALLOW.id, ROBIN))
            await turns(chance.randrange(6))
            cancelled = waiting.cancel()
            await asyncio.wait({waiting, deciding})
            assert waiting.cancelled() is cancelled
            assert deciding.result().accepted


@pytest.mark.fault("F-APR-18")
async def test_flood(subject: StoreSubject) -> None:
    """A flood is refused at the quota; what is open can be decided, and another tenant notices nothing."""
    broker, refused = Broker(subject.store), set()
    for number in range(200):
        try:
            await broker.submit(a_request(number))
        except TooManyRequests as error:
            refused.add((error.scope, error.limit, number))
    assert refused == {("session", 32, number) for number in range(32, 200)}
    await broker.submit(a_request(1, tenant="other"))
    there = await broker.pending(KIM)
    assert len(there) == 32
    assert await decided(broker, there[0].request)


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-15")
async def test_grants(subject: StoreSubject) -> None:
    """An approver with the rights to it finds, lists and revokes a grant; no other approver does."""
    broker, request = Broker(subject.store), a_request()
    assert await broker.match_grants(request) is None
    await broker.submit(request)
    assert await decided(broker, request, ALWAYS)
    assert isinstance(await broker.claim(request.id, request.digest), RequestRecord)
    found = await broker.match_grants(request)
    assert found is not None
    said, (grant,) = found
    assert (said, grant.by, grant.request) == ("allow", "Robin", request.id)
    assert await broker.match_grants(a_request(session="session-2")) is None
    assert await broker.grants(replace(KIM, tenant="other")) == []
    assert not await broker.revoke(grant.id, replace(KIM, tenant="other"))
    assert not await broker.revoke(grant.id, replace(KIM, sessions=frozenset({"session-2"})))
    assert not await broker.revoke(grant.id, replace(KIM, may_decide=False))
    assert await broker.revoke(grant.id, KIM)
    assert not await broker.revoke(grant.id, KIM)
    assert await broker.match_grants(request) is None


@pytest.mark.rule("APR-5")
async def test_an_always_with_a_budget(subject: StoreSubject) -> None:
    """An "always" that its approver limits to two calls covers two calls, and the next one is asked about."""
    approvals = StoreApprovals(subject.store)
    registry, ran = HookRegistry(), list[Any]()
    ask = HookResult.ask("Really?", options=["Allow once", "Allow always", "Deny"])
    registry.gate("tool:pre", lambda event, data: ask, name="guard")

    async def answer_next() -> None:
        with subject.store.watch() as watch:
            while not (found := await approvals.broker.pending(ROBIN)):
                await watch.wait(10)
        [option] = [one for one in found[0].request.options if one.lasts]
        await approvals.broker.decide(found[0].id, found[0].digest, option.id, ROBIN, times=2)

    async with SessionCoordinator(registry, session_id="s", approvals=approvals, cwd="/w") as session:
        for asked in (True, False, False, True):
            call = asyncio.ensure_future(session.call_tool("Read", {"path": "a"}, ran.append))
            if asked:
                await answer_next()
            assert (await call).ok
    assert len(ran) == 4


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-24")
@pytest.mark.parametrize("scope", ["prompt", "action"])
async def test_kept_grants(subject: StoreSubject, scope: Scope) -> None:
    """When asked to, a store keeps a grant beyond its session, for a time."""
    question = Question(hook="guard", prompt="Write it?", scope=scope)
    broker, request = Broker(subject.store), a_request(questions=(question,), keep=100.0)
    await broker.submit(request)
    assert await decided(broker, request, ALWAYS)
    assert isinstance(await broker.claim(request.id, request.digest), RequestRecord)
    await broker.store.end_session("acme", "session-1")
    later = replace(request, session="session-2")
    assert await broker.match_grants(later) is not None
    await subject.advance(100)
    assert await broker.match_grants(later) is None


@pytest.mark.rule("APR-4")
@pytest.mark.fault("F-APR-06")
async def test_end_of_a_session(subject: StoreSubject) -> None:
    """When a session ends, its five open questions end with it, durably, and every waiter is told."""
    broker = Broker(subject.store)
    requests = [a_request(number) for number in range(5)]
    for request in requests:
        await broker.submit(request)
    waiting = [asyncio.ensure_future(broker.wait(request.id)) for request in requests]
    assert await decided(broker, requests[0])
    ended = await broker.store.end_session("acme", "session-1", "closed")
    assert len(ended) == 5
    assert {record.status for record in await asyncio.gather(*waiting)} <= {"approved", "cancelled"}
    stored = [await subject.store.get(request.id) for request in requests]
    assert {(record.status, record.reason) for record in stored if record} == {("cancelled", "closed")}
    assert not isinstance(await broker.claim(requests[0].id, requests[0].digest), RequestRecord)


@pytest.mark.rule("BCK-5", "BCK-8")
@pytest.mark.fault("F-APR-21", "F-LC-08")
async def test_resume(subject: StoreSubject) -> None:
    """Every worker that begins finds the open requests, those without a result as unknown; earlier ones go on."""
    old = Broker(subject.store)
    pending, approved, running = (a_request(number) for number in range(3))
    for request in (pending, approved, running):
        await old.submit(request)
    for request in (approved, running):
        assert await decided(old, request)
    assert isinstance(await old.claim(running.id, running.digest), RequestRecord)
    new = Broker(subject.store)
    for _ in range(3):
        new = Broker(subject.store)
        taken = await new.resume("acme", "session-1")
        found = [[record.id for record in group] for group in (taken.pending, taken.approved, taken.unknown)]
        assert found == [[pending.id], [approved.id], [running.id]]
        assert not isinstance(await new.claim(running.id, running.digest), RequestRecord)
    assert (await old.submit(a_request(9))).status == "pending"
    assert (await new.submit(pending)).status == "pending"
    claims = [await broker.claim(approved.id, approved.digest) for broker in (old, new)]
    assert [isinstance(claim, RequestRecord) for claim in claims] == [True, False]
    settled = await new.settle(running.id, "done", "the server knows the key")
    assert isinstance(settled, RequestRecord)
    assert (settled.status, settled.reason) == ("done", "the server knows the key")


@pytest.mark.rule("BCK-8")
async def test_lost_track(subject: StoreSubject) -> None:
    """An action with an unknown end is settled as unknown, once."""
    broker, request = Broker(subject.store), a_request()
    await broker.submit(request)
    assert await decided(broker, request)
    await broker.claim(request.id, request.digest)
    record = await broker.settle(request.id, "unknown", "cancelled while it ran")
    assert isinstance(record, RequestRecord)
    assert (record.status, record.ended) == ("unknown", None)


@pytest.mark.rule("APR-7")
async def test_retried_decision(subject: StoreSubject) -> None:
    """A decision sent again with its id counts as itself."""
    broker, request = Broker(subject.store), a_request()
    await broker.submit(request)
    assert await decided(broker, request, decision_id="d1")
    assert await decided(broker, request, decision_id="d1")
    assert not await decided(broker, request, decision_id="d2")


@pytest.mark.rule("APR-7")
async def test_arguments_are_data(subject: StoreSubject) -> None:
    """Arguments of any name decide nothing; edited ones are a copy of the approver's."""
    names = {"approved": True, "approval_id": "x", "non_interactive": True, "skip_hooks": True, "__hook_ctx": {"a": 1}}
    broker, request = Broker(subject.store), a_request(arguments={**names, "calls": [names]})
    assert (await broker.submit(request)).status == "pending"
    edited: dict[str, Any] = {"file_path": "other.py", "approved": False}
    assert not await decided(broker, request, arguments={"n": float("inf")})
    resolution = await broker.decide(request.id, request.digest, ALLOW.id, ROBIN, arguments=edited)
    edited["file_path"] = "changed.py"
    assert resolution.record is not None
    assert resolution.record.decision is not None
    assert resolution.record.decision.arguments == {"file_path": "other.py", "approved": False}
    assert not isinstance(await broker.claim(request.id, request.digest), RequestRecord)
    assert isinstance(await broker.claim(request.id, resolution.record.digest), RequestRecord)


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-ST-11")
@pytest.mark.parametrize("back", [3_600.0, 86_400.0])
async def test_clock_put_back_across_a_restart(back: float, tmp_path: Path) -> None:
    """A wall clock put back gives no request more time, while the machine is up and after it was started anew."""
    clock = MovableClock()
    first, second = a_request(1), a_request(2)
    async with SqliteStore(tmp_path / "a.db", clock=clock) as store:
        for request in (first, second):
            await store.submit(request)
    clock.move(wall=-back, uptime=LIFETIME - 1)
    async with SqliteStore(tmp_path / "a.db", clock=clock) as store:
        assert await decided(Broker(store), first)
        clock.move(uptime=1)
        assert not await decided(Broker(store), second)
    await clock.reboot(10)
    async with SqliteStore(tmp_path / "a.db", clock=clock) as store:
        assert not isinstance(await Broker(store).claim(first.id, first.digest), RequestRecord)
        assert [record.id for record in await store.expire_due()] == [first.id]


@pytest.mark.fault("F-ST-11")
async def test_clock_put_forward() -> None:
    """A wall clock put forward ends what waits; it never lets anything through."""
    clock = MovableClock()
    store, request = MemoryStore(clock=clock), a_request()
    await store.submit(request)
    clock.move(wall=86_400)
    assert not await decided(Broker(store), request)


def test_the_system_has_two_clocks() -> None:
    """The reading a store uses has the time of day, and, if there is one, a clock that cannot be set."""
    before, after = system_reading(), system_reading()
    assert after.wall - before.wall < timedelta(seconds=5)
    assert before.boot == after.boot
    assert not before.boot or after.uptime >= before.uptime > 0


# -- stores that fail --------------------------------------------------------------------------------------------------


class Failing:
    """A store whose n-th call fails: before anything was done, or after it was, with the answer lost."""

    def __init__(self, store: Any, when: int, *, lost: bool) -> None:
        self.inner, self.when, self.lost, self.calls = store, when, lost, 0
        self.durable = store.durable
        self.watch = store.watch

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.when and not self.lost:
                raise StoreUnavailable("store_unavailable: the disk is gone")
            result = await method(*args, **kwargs)
            if self.calls == self.when:
                raise StoreUnavailable("store_unavailable: the answer is lost")
            return result

        return call


@asynccontextmanager
async def failing(when: int, *, lost: bool) -> AsyncIterator[tuple[Broker, Failing]]:
    """Yield a broker over a failing store."""
    store = Failing(MemoryStore(), when, lost=lost)
    yield Broker(store, recheck=0.01), store


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-01")
@pytest.mark.parametrize("lost", [False, True])
async def test_every_call_fails_once(lost: bool) -> None:
    """Any one failing call of the store leaves the approval blocked or run once, and the store says the same."""
    when, ran, failed, status = 0, -1, True, ""
    while failed:
        when, ran, failed, request = when + 1, 0, False, a_request()
        async with failing(when, lost=lost) as (broker, store):
            try:
                await broker.submit(request)
                await broker.decide(request.id, request.digest, ALLOW.id, ROBIN, decision_id="d1")
                record = await broker.wait(request.id, 0.05)
                if record.status == "approved" and isinstance(
                    await broker.claim(request.id, request.digest), RequestRecord
                ):
                    ran += 1
                    await broker.settle(request.id, "done")
            except StoreUnavailable:
                failed = True
            failed = failed or store.calls >= when
            stored = await store.inner.get(request.id)
            status = stored.status if stored else "nothing"
            events = [event.kind for event in await store.inner.events(request.id)]
        assert events.count("claim") <= 1
        assert ran <= events.count("claim")
        if ran:
            assert status in ("done", "claimed")
        else:
            assert status in ("nothing", "pending", "approved", "claimed")
    assert (ran, status) == (1, "done")


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-01")
@pytest.mark.parametrize("lost", [False, True])
async def test_a_decision_whose_answer_is_lost(lost: bool) -> None:
    """Sent again with its id, a decision whose confirmation was lost has won, not lost to itself."""
    request = a_request()
    async with failing(2, lost=lost) as (broker, _store):
        await broker.submit(request)
        with pytest.raises(StoreUnavailable):
            await broker.decide(request.id, request.digest, ALLOW.id, ROBIN, decision_id="d1")
        assert await decided(broker, request, decision_id="d1")


@pytest.mark.rule("BCK-8")
async def test_waiting_through_an_outage() -> None:
    """A waiter outlasts a store that is away for a moment, and gives up when it stays away for longer than it waits."""
    request = a_request()
    async with failing(2, lost=False) as (broker, store):
        waiting = asyncio.ensure_future(broker.ask(request))
        await until(lambda: store.calls >= 2)
        store.when = store.calls + 1
        assert await decided(Broker(store.inner), request)
        assert (await waiting).status == "approved"
    async with failing(1, lost=False) as (broker, store):
        with pytest.raises(StoreUnavailable):
            await broker.wait(request.id)
    closing = MemoryStore()
    waiting = asyncio.ensure_future(Broker(closing).ask(request))
    await turns(1)
    await closing.close()
    with pytest.raises(StoreUnavailable):
        await waiting


class Counted(SqliteStore):
    """A store that counts how often a record is looked at."""

    looks = 0

    async def look(self, request_id: str) -> Any:
        """Count, and look."""
        self.looks += 1
        return await super().look(request_id)


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("here", [True, False])
async def test_who_reads_again(here: bool, tmp_path: Path) -> None:
    """A waiter receives the record of a decision in its own process, and reads one that was decided elsewhere."""
    async with Counted(tmp_path / "store.db") as store, SqliteStore(tmp_path / "store.db") as elsewhere:
        broker, request = Broker(store, recheck=60), a_request()
        with broker.watch() as watch:
            waiting = asyncio.ensure_future(broker.ask(request))
            assert await watch.wait(60)
        assert await decided(broker if here else Broker(elsewhere), request)
        assert await waiting == await store.get(request.id)
        assert (store.looks == 0) is here


# -- many --------------------------------------------------------------------------------------------------------------

FINISHED = """INSERT INTO {schema}.approval_request
    SELECT 'old-' || n.value, tenant, session, call, expires, request, created, age, lifetime, digest, 'denied',
           version, decision, decided, decided_age, reason, created, NULL
    FROM {schema}.approval_request, (
        WITH RECURSIVE counted (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM counted WHERE value < 100000)
        SELECT value FROM counted
    ) n WHERE id = $1"""
EVENTS = """INSERT INTO {schema}.approval_event
    SELECT id, 1, 'submitted', created, 1, '', '', '', CASE WHEN id LIKE '%7' THEN 0 ELSE 1 END
    FROM {schema}.approval_request WHERE id LIKE 'old-%'"""


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-10")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", FILES)
async def test_a_hundred_thousand_finished(kind: str, tmp_path: Path) -> None:
    """Beside 100,000 finished requests an index finds pending ones and unrecorded events; a purge keeps both."""
    async with opened(kind, tmp_path) as subject:
        database = subject.store.database  # type: ignore[attr-defined]
        broker, request = Broker(subject.store), a_request(expires=datetime(2027, 1, 1, tzinfo=UTC))
        await broker.submit(request)
        await database.fetch(FINISHED, request.id)
        await database.fetch(EVENTS)
        if kind == "postgres":
            await database.fetch("ANALYZE {schema}.approval_request")
        explain = "EXPLAIN " if kind == "postgres" else "EXPLAIN QUERY PLAN "
        plan = await database.fetch(f"{explain}{PENDING} ORDER BY created, id LIMIT $1", 10)
        assert "approval_open" in " ".join(str(row) for row in plan)
        plan = await database.fetch(f"{explain}{UNRECORDED}", 10, "acme", "session-1")
        assert "approval_event_unrecorded" in " ".join(str(row) for row in plan)
        assert [record.id for record in await broker.pending(ROBIN)] == [request.id]
        await subject.advance(7 * 86_400.0)
        assert await subject.store.purge() == 90_000
        assert [record.id for record in await broker.pending(ROBIN)] == [request.id]
        assert await subject.store.purge(unrecorded=True) == 10_000
