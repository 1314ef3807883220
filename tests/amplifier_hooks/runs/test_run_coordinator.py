"""Claims that are cancelled, stores that go away, and coordinators that lose their runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_hooks.runs import run_coordinator as module
from amplifier_hooks.runs.run_states import Holder, RunRecord
from amplifier_hooks.runs.run_store import MemoryRuns
from amplifier_hooks.storage.database import StoreUnavailable
from tests.runs import Shelf, agent, agent_hook, change, house, python_hook
from tests.stores import turns

LONG = 3_000.0
"""Lease of a coordinator: the keeper sleeps, and a test keeps instead."""


def goes_on(event: str, data: dict[str, Any]) -> dict[str, Any]:
    """Continue with the same parameters."""
    return {"action": "continue", "parameters": data["parameters"]}


@pytest.mark.rule("RUN-16", "RUN-22")
@pytest.mark.parametrize("steps", range(1, 16))
@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
async def test_a_claim_that_is_cancelled(steps: int, hooked: bool) -> None:
    """If a claim is cancelled at any point, its run can be claimed again: at once, or after its lease."""
    store = Forgetful()
    async with house(agent(start=python_hook() if hooked else None), store=store, lease=LONG) as here:
        here.functions["hook"] = goes_on
        run = (await here.runs.submit("writer", {"amount": 1})).id
        claiming = asyncio.ensure_future(here.runs.claim("gone", wait=60))
        for _ in range(steps):
            if not claiming.done():
                await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait({claiming})
        if not claiming.cancelled():
            return  # the claim had its run by then
        if (record := await here.runs.claim("there", wait=0.5)) is None:
            here.runs._back = -1e9  # long ago
            await store.shelf.advance(10_000)
            await here.runs._keep()
            record = await here.runs.claim("there", wait=60)
        assert record is not None
        assert record.id == run


@pytest.mark.rule("RUN-22")
async def test_a_run_that_came_too_late() -> None:
    """A run whose hook passes after its runner has gone waits for the next one, and is not lost to a lease."""
    go = asyncio.Event()

    async def waits(event: str, data: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        return goes_on(event, data)

    async with house(agent(start=python_hook()), lease=LONG) as here:
        here.functions["hook"] = waits
        run = (await here.runs.submit("writer", {})).id
        claiming = asyncio.ensure_future(here.runs.claim("gone", wait=60))
        await here.until(run, "starting")
        claiming.cancel()
        await asyncio.wait({claiming})
        go.set()
        record = await here.runs.claim("there", wait=60)
        assert record is not None
        assert (record.id, record.handed, record.attempt - record.handed) == (run, 1, 1)


class Forgetful(MemoryRuns):
    """A store that goes away for some of its methods, before or after the change."""

    def __init__(self) -> None:
        self.shelf = Shelf(self)
        super().__init__(lambda: self.shelf.now)
        self.away: set[str] = set()

    async def take(self, *arguments: Any, **wanted: Any) -> Any:
        """Take the runs, and lose the answer."""
        taken = await super().take(*arguments, **wanted)
        self._gone("take")
        return taken

    async def change(self, *arguments: Any) -> Any:
        """Fail before the change."""
        self._gone("change")
        return await super().change(*arguments)

    async def take_owing(self, lease: float) -> Any:
        """Fail before the change."""
        self._gone("owing")
        return await super().take_owing(lease)

    def _gone(self, what: str) -> None:
        if what in self.away:
            raise StoreUnavailable("gone")


@pytest.mark.rule("RUN-16", "RUN-22")
@pytest.mark.parametrize("lost", ["take", "change"])
async def test_a_start_nobody_heard_of(lost: str) -> None:
    """A run whose start was stored but not received, or not concluded, is taken up again, also under load."""
    store = Forgetful()
    busy = asyncio.Event()

    async def waits(event: str, data: Any) -> None:
        await busy.wait()

    blueprints = (agent("busy", start=python_hook("waits")), agent(start=python_hook()))
    async with house(*blueprints, store=store, lease=LONG) as here:
        here.functions.update(waits=waits, hook=goes_on)
        other = await here.runs.submit("busy", {})
        assert await here.runs.claim("one", agents=["busy"], wait=0.01) is None
        run = (await here.runs.submit("writer", {})).id
        store.away = {lost}
        if lost == "take":
            with pytest.raises(StoreUnavailable):
                await here.runs.claim("one", agents=["writer"], wait=60)
        else:
            assert await here.runs.claim("one", agents=["writer"], wait=0.05) is None
            if mine := {task for (started, _), task in here.runs._starting.items() if started == run}:
                await asyncio.wait(mine)
        store.away = set()
        here.runs._back = -1e9  # long ago
        for _ in range(3):
            await store.shelf.advance(2_000)
            await here.runs._keep()
        record = await here.runs.claim("one", agents=["writer"], wait=60)
        assert record is not None
        assert record.id == run
        assert (await here.runs.get(other.id)).attempt == 1  # a run that is known to be at work is left alone
        busy.set()


@pytest.mark.rule("RUN-22")
async def test_a_store_that_was_away() -> None:
    """After a time without renewals, live runners are given the time to renew."""
    store = Forgetful()
    async with house(agent(), store=store, lease=LONG) as here:
        run = (await here.runs.submit("writer", {})).id
        record = await here.runs.claim("one")
        assert record is not None
        here.runs._back = here.runs._kept = -1e9  # it has gone on for long
        here.runs._recovered = True
        await store.shelf.advance(100)
        store.away = {"owing"}
        with pytest.raises(StoreUnavailable):
            await here.runs._keep()
        store.away = set()
        await here.runs._keep()
        assert (await here.runs.get(run)).stage == "running"
        await here.runs.renew(run, Holder("one", record.attempt))
        here.runs._back -= 30
        await here.runs._keep()
        assert (await here.runs.get(run)).stage == "running"
        await store.shelf.advance(100)
        here.runs._kept = -1e9  # and again: but only once in between
        await here.runs._keep()
        here.runs._back -= 30
        here.runs._kept = -1e9
        await here.runs._keep()
        assert (await here.runs.get(run)).stage == "ready"


@pytest.mark.rule("RUN-16", "RUN-17")
async def test_a_run_that_was_stopped_elsewhere() -> None:
    """A coordinator whose run was stopped or taken by another one cancels its hook; the agent goes on."""
    store = MemoryRuns()
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(event: str, data: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    blueprints = (agent(start=python_hook()), agent("two", start=agent_hook()), agent("validator"))
    async with house(*blueprints, store=store, lease=LONG) as here:
        here.functions["hook"] = waits
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("one", wait=0.01) is None
        await begun.wait()
        await change(store, run, RunRecord.stop, reason="elsewhere")
        await here.runs._keep()
        await cancelled.wait()
        run = (await here.runs.submit("two", {})).id
        child = await here.runs.claim("one", wait=60)
        assert child is not None
        (task,) = here.runs._starting.values()
        await store.let_go(here.runs.name)
        await here.runs._keep()
        await asyncio.wait({task})
        assert (await here.runs.get(run)).stage == "queued"
        assert not (await here.runs.get(child.id)).stopping  # the next coordinator finds it at work


@pytest.mark.rule("RUN-16")
async def test_a_coordinator_that_takes_up_its_own_run() -> None:
    """A coordinator that lost a run, and has it again, repeats the start hook; the hook's agent goes on."""
    store = MemoryRuns()
    async with house(agent(start=agent_hook()), agent("validator"), store=store, lease=LONG) as here:
        run = (await here.runs.submit("writer", {})).id
        child = await here.runs.claim("one", wait=60)
        assert child is not None
        (first,) = here.runs._starting.values()
        await store.let_go(here.runs.name)
        assert await here.runs.claim("two", agents=["writer"], wait=0.01) is None
        assert (await here.runs.get(run)).attempt == 2
        await here.runs._keep()
        await asyncio.wait({first})
        assert not (await here.runs.get(child.id)).stopping
        await here.do(child, validator=lambda _: {"action": "continue", "parameters": {}})
        assert (await here.until(run, "ready")).attempt == 2


@pytest.mark.rule("RUN-11")
async def test_room_for_one_more_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that waits because too many start hooks are at work is woken as soon as one of them is done."""
    monkeypatch.setattr(module, "MOST_STARTING", 1)
    monkeypatch.setattr(module, "LOOK", 3_600.0)
    go = asyncio.Event()

    async def blocks(event: str, data: Any) -> Any:
        await go.wait()
        return {"action": "block", "block_reason": "no"}

    async with house(agent("first", start=python_hook("blocks")), agent(start=python_hook()), lease=LONG) as here:
        here.functions.update(blocks=blocks, hook=goes_on)
        await here.runs.submit("first", {})
        assert await here.runs.claim("one", wait=0.01) is None
        await here.runs.submit("writer", {})
        waiting = asyncio.ensure_future(here.runs.claim("two", wait=3_600))
        await asyncio.sleep(0)
        go.set()
        async with asyncio.timeout(60):
            record = await waiting
        assert record is not None
        assert record.agent == "writer"


class Slow(MemoryRuns):
    """A store that keeps outcomes of start hooks only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def change(self, *arguments: Any) -> Any:
        """Wait, and store the outcome."""
        self.asked.set()
        await self.go.wait()
        return await super().change(*arguments)


@pytest.mark.rule("RUN-22")
async def test_a_run_that_was_promised() -> None:
    """A run that was being handed to a runner as it went away can be claimed as soon as that is done."""
    store = Slow()
    async with house(agent(start=python_hook()), store=store, lease=LONG) as here:
        here.functions["hook"] = goes_on
        run = (await here.runs.submit("writer", {})).id
        claiming = asyncio.ensure_future(here.runs.claim("gone", wait=60))
        await store.asked.wait()
        claiming.cancel()
        await asyncio.wait({claiming})
        store.go.set()
        record = await here.runs.claim("there", wait=60)
        assert record is not None
        assert (record.id, record.handed) == (run, 1)


@pytest.mark.rule("RUN-17")
async def test_a_coordinator_that_closes_begins_no_hooks() -> None:
    """A coordinator that closes lets its hooks clean up, and leaves the hooks of other runs to another coordinator."""
    called: list[str] = []
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def clean(event: str, data: dict[str, Any]) -> dict[str, Any]:
        called.append(data["run_id"])
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()
        return {}

    start, finish = agent("started", start=python_hook()), agent("finished", finish=python_hook())
    async with house(start, finish) as one:
        one.functions["hook"] = clean
        first, second = [(await one.runs.submit("finished", {})).id for _ in range(2)]
        ending, other = await one.runs.claim("a", wait=60), await one.runs.claim("b", wait=60)
        assert ending is not None
        assert other is not None
        await one.do(ending)
        await begun.wait()
        closing = asyncio.ensure_future(one.runs.close())
        await turns(5)
        assert (await one.do(other)).owes
        waiting = (await one.runs.submit("started", {})).id
        assert await one.runs.claim("a") is None
        assert (await one.runs.get(waiting)).stage == "queued"
        cleaned.set()
        await closing
    assert (ending.id, other.id, called) == (first, second, [first])
