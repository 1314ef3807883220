"""One suite over all stores of runs: the same table, the same claims."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.clock import micros_of
from amplifier_hooks.runs.run_states import (
    MOST_ATTEMPTS,
    MOST_STARTS,
    AgentsTooDeep,
    Blocked,
    Holder,
    RunMoved,
    RunRecord,
    UnknownRun,
    UnknownSession,
)
from amplifier_hooks.runs.run_store import UPDATE, MemoryRuns, PostgresRuns
from amplifier_hooks.storage.postgres import PostgresDatabase
from tests.runs import Shelf, change, claim, new_run, run_store
from tests.stores import DSN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_hooks.runs.run_store import RunStore

DEEP = 4


KINDS = ("memory", "sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow]))


@pytest.fixture(params=KINDS)
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    """An empty store of each kind."""
    async with run_store(request.param, tmp_path) as made:
        yield made


async def take(store: RunStore, runner: str = "one", **wanted: Any) -> RunRecord:
    """Claim a run."""
    record = await claim(store, runner, **wanted)
    assert record is not None
    return record


def by(record: RunRecord) -> Holder:
    """Return the holder of the run."""
    assert record.holder is not None
    return Holder(record.holder, record.attempt)


async def kinds(store: RunStore, run: str) -> list[str]:
    """Return the kinds of the run's events."""
    return [event["event_type"] for event in await store.events(run)]


@pytest.mark.rule("RUN-7", "RUN-10")
async def test_a_run_from_queue_to_result(shelf: Shelf) -> None:
    """A run without hooks goes to a runner, brings its result, and ends; each step is an event, once, in order."""
    store = shelf.store
    queued = await store.submit(new_run(), DEEP)
    assert (queued.status, queued.parameters) == ("queued", {"amount": 1})
    record = await take(store)
    assert (record.status, record.holder, record.handed) == ("running", "one", 1)
    assert await claim(store, "two") is None
    await change(store, record.id, RunRecord.report, by=by(record), text=None, data={"total": [1, "\ud800\0"]})
    ended = await change(store, record.id, RunRecord.end, by=by(record), ending="completed", error=None)
    found = await store.get(record.id, tenant="acme")
    assert (found.status, found.result_data, found.result_text) == ("completed", {"total": [1, "\ud800\0"]}, None)
    assert found == ended
    assert await kinds(store, record.id) == ["run_queued", "run_running", "run_result", "run_completed"]
    *_, last = await store.events(record.id, after=2)
    assert (last["status"], last["result_data"]) == ("completed", {"total": [1, "\ud800\0"]})


@pytest.mark.rule("RUN-7", "RUN-11", "RUN-9")
async def test_a_run_with_start_hooks_goes_through_them(shelf: Shelf) -> None:
    """A run with hooks is first begun, in its coordinator's hands; it is handed on only once its hooks have passed."""
    store = shelf.store
    await store.submit(new_run(hooked=True), DEEP)
    begun = await take(store)
    assert (begun.status, begun.stage, begun.holder) == ("starting", "starting", "coordinator")
    assert await claim(store, "two") is None
    with pytest.raises(RunMoved):
        await change(store, begun.id, RunRecord.conclude, by=Holder("another", begun.attempt), begun={})
    told = ({"event_type": "hook_start", "hook_type": "on_run_start"},)
    ready = await change(store, begun.id, RunRecord.conclude, by=by(begun), begun={"amount": 2}, told=told)
    assert (ready.status, ready.stage) == ("starting", "ready")
    running = await take(store, "two")
    assert (running.status, running.parameters, running.effective) == ("running", {"amount": 1}, {"amount": 2})
    assert await kinds(store, begun.id) == [
        *("run_queued", "run_starting", "hook_start", "run_ready", "run_running"),
    ]


@pytest.mark.rule("RUN-7", "RUN-16")
async def test_changes_at_the_same_time(shelf: Shelf) -> None:
    """Changes of one run that come at the same time are all kept, with all their events, each under its own number."""
    store = shelf.store
    run = (await store.submit(new_run(), DEEP)).id
    told = [({"event_type": "hook_failed", "place": place},) for place in range(8)]
    await asyncio.gather(*(change(store, run, RunRecord.note, told=one) for one in told))
    record = await store.get(run)
    assert (record.events, record.failures, record.hooked) == (9, 8, True)
    events = await store.events(run, after=1)
    assert sorted(event["place"] for event in events) == list(range(8))


@pytest.mark.rule("RUN-9")
async def test_a_blocked_run_is_over(shelf: Shelf) -> None:
    """A blocked run is failed, its error is the reason, and no runner ever gets it."""
    store = shelf.store
    await store.submit(new_run(hooked=True), DEEP)
    begun = await take(store)
    blocked = await change(store, begun.id, RunRecord.conclude, by=by(begun), begun=Blocked("too much"))
    assert (blocked.status, blocked.error, blocked.blocked, blocked.handed) == ("failed", "too much", True, 0)
    await shelf.advance(10_000)
    assert await store.recover() == []
    assert await claim(store, "one") is None
    *_, last = await store.events(begun.id)
    assert (last["event_type"], last["block_reason"]) == ("run_failed", "too much")


@pytest.mark.rule("RUN-11")
async def test_what_others_wait_for_comes_first(shelf: Shelf) -> None:
    """Of the runs in the queue those that a start hook waits for come first, then the oldest; each once."""
    store = shelf.store
    for number in range(1, 4):
        await store.submit(new_run(number), DEEP)
        await shelf.advance(1)
    await store.submit(new_run(9, urgent=True, bare=True, hooked=True), DEEP)
    order = [(await take(store)).parameters["amount"] for _ in range(4)]
    assert order == [9, 1, 2, 3]


@pytest.mark.rule("RUN-11", "RUN-14")
async def test_what_can_be_handed_at_once(shelf: Shelf) -> None:
    """Without beginning anything, only runs whose hooks are done, or that have none, are given out."""
    store = shelf.store
    await store.submit(new_run(1, hooked=True), DEEP)
    await store.submit(new_run(2), DEEP)
    assert await claim(store, tenant="other", begin=False) is None
    assert (await take(store, begin=False)).parameters == {"amount": 2}
    assert await claim(store, begin=False) is None
    assert (await take(store)).status == "starting"


@pytest.mark.rule("RUN-7")
async def test_a_runner_takes_what_it_can_run(shelf: Shelf) -> None:
    """A runner is given runs of its tenant and of the agents it has, and no others."""
    store = shelf.store
    await store.submit(new_run(1, tenant="other"), DEEP)
    await store.submit(new_run(2, agent="painter"), DEEP)
    assert await claim(store, tenant="acme", agents=frozenset({"writer"})) is None
    assert await claim(store, agents=frozenset()) is None
    assert (await take(store, tenant="acme")).agent == "painter"
    assert (await take(store, tenant="other")).tenant == "other"


@pytest.mark.rule("RUN-7")
async def test_many_claim_at_once(shelf: Shelf) -> None:
    """However many runners claim at the same time, each run goes to one of them, and none is left over."""
    store = shelf.store
    for number in range(1, 17):
        await store.submit(new_run(number), DEEP)
    taken: list[str] = []

    async def runner(name: str) -> None:
        while record := await claim(store, name):
            taken.append(record.id)

    await asyncio.gather(*(runner(f"runner-{number}") for number in range(8)))
    while record := await claim(store, "late"):  # what all had stepped over at once
        taken.append(record.id)
    assert sorted(taken) == [f"run_{number:032x}" for number in range(1, 17)]


class HeldRuns(MemoryRuns):
    """Runs whose claims are written once `go` is set; `begun` is set before."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def _write(self, sql: str, *others: Any) -> RunRecord | None:
        if sql == UPDATE:
            self.begun.set()
            await self.go.wait()
        return await super()._write(sql, *others)


@pytest.mark.rule("RUN-7")
async def test_claims_of_one_process() -> None:
    """Claims of one process take turns; the run of a claim that is cancelled while it writes goes to the next one."""
    async with HeldRuns() as store:
        for number in range(1, 3):
            await store.submit(new_run(number), DEEP)
        first, second, third = [asyncio.create_task(take(store, name)) for name in ("one", "two", "three")]
        await asyncio.wait_for(store.begun.wait(), 60)
        first.cancel()
        store.go.set()
        found = [await asyncio.wait_for(one, 60) for one in (second, third)]
        assert [(record.parameters["amount"], record.holder) for record in found] == [(1, "two"), (2, "three")]


@pytest.mark.rule("RUN-7")
async def test_a_change_is_one_statement(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change on PostgreSQL needs no transaction, and wakes those who wait in other processes all the same."""
    database = shelf.store.database
    if not isinstance(database, PostgresDatabase):
        pytest.skip("a script on the other stores is no round trip")
    await shelf.store.submit(new_run(), DEEP)
    async with PostgresRuns(DSN, schema=database.schema) as other:
        with other.watch(f"run_{1:032x}") as watch:
            monkeypatch.delattr(PostgresDatabase, "run")
            await take(shelf.store)
            assert await watch.wait(60)


@pytest.mark.rule("RUN-7", "RUN-16")
async def test_a_runner_that_died(shelf: Shelf) -> None:
    """A run whose runner is not heard of goes to another one; a later message of the first does not count."""
    store = shelf.store
    await store.submit(new_run(), DEEP)
    first = await take(store, "one")
    await change(store, first.id, RunRecord.renew, by=by(first), seconds=60)
    await shelf.advance(59)
    assert await store.recover() == []
    await shelf.advance(2)
    assert [record.stage for record in await store.recover()] == ["ready"]
    second = await take(store, "two")
    assert (second.holder, second.handed) == ("two", 2)
    for late in (
        change(store, first.id, RunRecord.renew, by=by(first), seconds=60),
        change(store, first.id, RunRecord.report, by=by(first), text="late", data=None),
        change(store, first.id, RunRecord.end, by=by(first), ending="completed", error=None),
    ):
        with pytest.raises(RunMoved):
            await late
    await change(store, second.id, RunRecord.end, by=by(second), ending="completed", error=None)
    assert "run_lost" in await kinds(store, first.id)


@pytest.mark.rule("RUN-16")
async def test_a_late_completion_nobody_overtook(shelf: Shelf) -> None:
    """A runner that comes back before another has its run may complete it, and no other runner gets it."""
    store = shelf.store
    await store.submit(new_run(), DEEP)
    first = await take(store)
    await shelf.advance(61)
    await store.recover()
    await change(store, first.id, RunRecord.end, by=by(first), ending="completed", error=None)
    assert await claim(store, "two") is None


@pytest.mark.rule("RUN-16")
async def test_a_run_that_ends_its_runners(shelf: Shelf) -> None:
    """A run whose runners are lost again and again fails, and says so."""
    store = shelf.store
    await store.submit(new_run(), DEEP)
    for _ in range(MOST_ATTEMPTS):
        await take(store)
        await shelf.advance(61)
        await store.recover()
    record = await store.get(f"run_{1:032x}")
    assert record.status == "failed"
    assert "3 runners" in str(record.error)
    assert await claim(store, "one") is None


@pytest.mark.rule("RUN-16")
async def test_a_coordinator_that_died(shelf: Shelf) -> None:
    """A run whose start hooks have lost their coordinator is begun again; while they are renewed it is left alone."""
    store = shelf.store
    await store.submit(new_run(hooked=True), DEEP)
    first = await take(store)
    await shelf.advance(29)
    await change(store, first.id, RunRecord.renew, by=by(first), seconds=30)
    await shelf.advance(29)
    assert await store.recover() == []
    await shelf.advance(2)
    assert [record.stage for record in await store.recover()] == ["queued"]
    second = await take(store)
    assert second.stage == "starting"
    with pytest.raises(RunMoved):
        await change(store, first.id, RunRecord.conclude, by=by(first), begun={})
    await change(store, second.id, RunRecord.conclude, by=by(second), begun={})


@pytest.mark.rule("RUN-10", "RUN-16")
async def test_completion_twice(shelf: Shelf) -> None:
    """A completion sent twice is one; another one after it is refused, and the run stays as it was."""
    store = shelf.store
    await store.submit(new_run(), DEEP)
    record = await take(store)
    once = await change(store, record.id, RunRecord.end, by=by(record), ending="completed", error=None)
    assert await change(store, record.id, RunRecord.end, by=by(record), ending="completed", error=None) == once
    with pytest.raises(RunMoved):
        await change(store, record.id, RunRecord.end, by=by(record), ending="failed", error="no")
    with pytest.raises(RunMoved):
        await change(store, record.id, RunRecord.report, by=by(record), text="late", data=None)
    assert await store.get(record.id) == once
    assert (await kinds(store, record.id)).count("run_completed") == 1


@pytest.mark.rule("RUN-16")
async def test_finish_hooks_that_are_owed(shelf: Shelf) -> None:
    """One coordinator takes up the finish hooks that did not run, once; those that run or are done are left alone."""
    store = shelf.store
    await store.submit(new_run(), DEEP)
    record = await take(store)
    await change(store, record.id, RunRecord.end, by=by(record), ending="completed", error=None, owes=True)
    assert [found.id for found in await store.take_owing(30)] == [record.id]
    await shelf.advance(29)
    await change(store, record.id, RunRecord.owe, seconds=30)
    await shelf.advance(29)
    assert await store.take_owing(30) == []
    await shelf.advance(2)
    assert [found.id for found in await store.take_owing(30)] == [record.id]
    assert await store.take_owing(30) == []
    await change(store, record.id, RunRecord.note, told=({"event_type": "hook_complete"},), settled=True)
    await shelf.advance(100)
    assert await store.take_owing(30) == []


@pytest.mark.rule("RUN-10", "RUN-17")
async def test_stopping(shelf: Shelf) -> None:
    """A run without a runner stops at once; a runner is told to stop, and if it is gone the run stops without it."""
    store = shelf.store
    for number in range(1, 4):
        await store.submit(new_run(number, hooked=number == 2), DEEP)
        await shelf.advance(1)
    running = await take(store)
    begun = await take(store)
    assert (await change(store, begun.id, RunRecord.stop, reason="not today")).status == "stopped"
    with pytest.raises(RunMoved):
        await change(store, begun.id, RunRecord.conclude, by=by(begun), begun={})
    assert (await change(store, f"run_{3:032x}", RunRecord.stop, reason="nor this")).error == "nor this"
    asked = await change(store, running.id, RunRecord.stop, reason="enough")
    assert (asked.status, asked.stopping) == ("running", True)
    assert await change(store, running.id, RunRecord.stop, reason="enough") == asked
    await shelf.advance(61)
    (gone,) = await store.recover()
    assert (gone.status, gone.error) == ("stopped", "enough")
    assert await change(store, running.id, RunRecord.stop, reason="again") == gone


@pytest.mark.rule("RUN-5", "RUN-18")
async def test_children(shelf: Shelf) -> None:
    """A child knows its parent and its depth; deeper than the limit none is queued, and the run above is named."""
    store = shelf.store
    record = await store.submit(new_run(agent="a"), DEEP)
    for number, agent in enumerate("babab", start=2):
        if number == DEEP + 2:
            with pytest.raises(AgentsTooDeep, match=f"'b' below run {record.id} of 'a'"):
                await store.submit(new_run(number, agent=agent, parent=record.id), DEEP)
            break
        child = await store.submit(new_run(number, agent=agent, parent=record.id), DEEP)
        assert (child.parent, child.parent_session, child.depth) == (record.id, record.session, record.depth + 1)
        assert [found.id for found in await store.children(record.id)] == [child.id]
        assert (await store.events(record.id))[-1]["child_run_id"] == child.id
        record = child


@pytest.mark.rule("RUN-16")
async def test_the_same_id_is_the_same_run(shelf: Shelf) -> None:
    """A run that is submitted again under its id is the existing one."""
    once = await shelf.store.submit(new_run(), DEEP)
    assert await shelf.store.submit(new_run(parameters={"other": 1}), DEEP) == once
    assert await kinds(shelf.store, once.id) == ["run_queued"]


@pytest.mark.rule("RUN-10", "TEN-1")
async def test_others_see_nothing(shelf: Shelf) -> None:
    """Another tenant's run, parent and session are as good as not there."""
    store = shelf.store
    mine = await store.submit(new_run(), DEEP)
    for run in (mine.id, "run_00000000", "no id", "run_\0"):
        with pytest.raises(UnknownRun):
            await store.get(run, tenant="other")
    with pytest.raises(UnknownRun):
        await store.submit(new_run(2, tenant="other", parent=mine.id), DEEP)
    with pytest.raises(UnknownSession):
        await store.submit(new_run(3, tenant="other", session=mine.session), DEEP, resumes=True)
    again = await store.submit(new_run(4, session=mine.session), DEEP, resumes=True)
    assert again.session == mine.session


@pytest.mark.rule("RUN-13")
async def test_listing(shelf: Shelf) -> None:
    """Runs are listed newest first, page by page, and by each filter."""
    store = shelf.store
    for number in range(1, 6):
        await store.submit(new_run(number, hooked=number == 2, agent="painter" if number == 3 else "writer"), DEEP)
        await shelf.advance(number % 2)
    everything = await store.select(tenant="acme")
    assert sorted((record.created, record.id) for record in everything) == [
        (record.created, record.id) for record in sorted(everything, key=lambda one: (one.created, one.id))
    ]
    assert [record.created for record in everything] == sorted((r.created for r in everything), reverse=True)
    pages, before = [], None
    while page := await store.select(before=before, limit=2):
        pages += page
        before = (micros_of(page[-1].created), page[-1].id)
    assert pages == everything
    begun = await take(store)
    await store.submit(new_run(9, parent=begun.id), DEEP)

    async def found(**filters: Any) -> set[int]:
        return {record.parameters["amount"] for record in await store.select(**filters)}

    assert await found(tenant="other") == set()
    assert await found(hooked=True) == {2}
    assert await found(agent="painter") == {3}
    assert await found(status="running") == {1}
    assert await found(parent=begun.id) == {9}
    assert await found(session=begun.session) == {1}
    hooked = await take(store)
    assert await found(status="starting") == {2}
    await change(store, hooked.id, RunRecord.conclude, by=by(hooked), begun=Blocked("no"))
    assert await found(blocked=True) == {2}


@pytest.mark.rule("RUN-13")
async def test_being_woken(shelf: Shelf) -> None:
    """A watch for work wakes on a new run, and a watch of a run on each of its events."""
    store = shelf.store
    with store.watch() as work:
        await store.submit(new_run(), DEEP)
        assert await work.wait(60)
    with store.watch(f"run_{1:032x}") as follower:
        await take(store)
        assert await follower.wait(60)


@pytest.mark.rule("RUN-25")
async def test_purging(shelf: Shelf) -> None:
    """Runs that ended long ago are removed with their events; runs that go on, or have hooks to run, stay."""
    store = shelf.store
    for number in range(1, 4):
        await store.submit(new_run(number), DEEP)
    for owes in (False, True):
        record = await take(store)
        await change(store, record.id, RunRecord.end, by=by(record), ending="completed", error=None, owes=owes)
    assert await store.purge(3600) == 0
    await shelf.advance(3601)
    assert await store.purge(3600) == 1
    assert len(await store.select()) == 2
    assert await store.events(f"run_{1:032x}") == []


@pytest.mark.rule("RUN-16")
async def test_hooks_that_end_their_coordinators(shelf: Shelf) -> None:
    """A run whose start hooks are begun again and again and never done fails, and says so."""
    store = shelf.store
    await store.submit(new_run(hooked=True), DEEP)
    for _ in range(MOST_STARTS):
        assert (await take(store)).stage == "starting"
        await shelf.advance(31)
        await store.recover()
    record = await store.get(f"run_{1:032x}")
    assert (record.status, record.attempt - record.handed) == ("failed", MOST_STARTS)
    assert "5 coordinators" in str(record.error)


@pytest.mark.rule("RUN-16")
async def test_letting_go(shelf: Shelf) -> None:
    """Work that a coordinator releases is there at once: its starts are in the queue, its finish hooks are owed."""
    store = shelf.store
    await store.submit(new_run(1), DEEP)
    await store.submit(new_run(2, hooked=True), DEEP)
    ended = await take(store)
    await change(store, ended.id, RunRecord.end, by=by(ended), ending="completed", error=None, owes=True)
    begun = await take(store)
    await store.let_go("another")
    assert (await store.get(begun.id)).stage == "starting"
    await store.let_go("coordinator")
    await change(store, ended.id, RunRecord.owe, seconds=0)
    assert (await store.get(begun.id)).stage == "queued"
    assert [record.id for record in await store.take_owing(30)] == [ended.id]


@pytest.mark.rule("RUN-20")
@pytest.mark.parametrize("odd", ["\0", "ses_\0", "x" * 10_000, "ses_ä"], ids=["nul", "nul-inside", "long", "letter"])
async def test_names_that_are_none(shelf: Shelf, odd: str) -> None:
    """A session or a parent whose name no run has is unknown, whatever characters it has."""
    with pytest.raises(UnknownSession):
        await shelf.store.submit(new_run(session=odd), DEEP, resumes=True)
    with pytest.raises(UnknownRun):
        await shelf.store.submit(new_run(parent=odd), DEEP)


@pytest.mark.rule("RUN-16")
async def test_whose_clock_counts(shelf: Shelf) -> None:
    """A hold ends by the clock of the store, however the run came to be begun."""
    store = shelf.store
    await store.submit(new_run(hooked=True), DEEP)
    begun = await take(store)
    await change(store, begun.id, RunRecord.conclude, by=by(begun), begun={})
    after = await take(store)
    for held, lease in ((begun, 30), (after, 60)):
        assert held.held_until is not None
        assert (held.held_until - shelf.now).total_seconds() == pytest.approx(lease, abs=1)
