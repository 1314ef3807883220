"""The execution log: what is kept of an event, and what keeping it costs those who emit."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.record.journal import JOURNAL_TABLES, Journal
from amplifier_hooks.server.hooks.execution_log import ExecutionRecorder, HookExecutionLog
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase
from amplifier_hooks.testing import ManualClock

CALL = {"tool_name": "Bash", "tool_input": {}, "tenant_id": "acme", "request_id": "req-1", "event_id": "e"}


def journal_in(database: Any, clock: ManualClock, keep: timedelta = timedelta(hours=24)) -> Journal:
    """Return a journal of events."""
    return Journal(database, "event", "hook", keep=keep, clock=clock)


@pytest.fixture
def clock() -> ManualClock:
    """Return the time."""
    return ManualClock()


@pytest.fixture
async def journal(clock: ManualClock) -> AsyncIterator[Journal]:
    """Yield a journal in memory."""
    async with MemoryDatabase(JOURNAL_TABLES) as database:
        yield journal_in(database, clock)


async def entries(journal: Journal) -> list[HookExecutionLog]:
    """Return all entries."""
    return [HookExecutionLog.model_validate_json(fact.body) for fact in await journal.find("event")]


@pytest.mark.rule("API-3", "JRN-1")
async def test_an_entry_has_everything(journal: Journal, clock: ManualClock) -> None:
    """Event, tenant, every hook with its answer, why it was stopped, how long it took, when, and what it belongs to."""
    registry, recorder = HookRegistry(), ExecutionRecorder(journal, clock, pause=0)
    registry.on("tool:pre", lambda event, data: HookResult.modify({"note": "x"}), name="noting")
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="strict")
    async with recorder.running(registry):
        await registry.emit("tool:pre", CALL)
    (entry,) = await entries(journal)
    assert (entry.event_type, entry.tenant_id, entry.request_id) == ("tool:pre", "acme", "req-1")
    assert (entry.aborted, entry.abort_reason, entry.timestamp) == (True, "no", clock.now())
    assert [(run.hook_name, run.action, run.success) for run in entry.hook_results] == [
        ("noting", "modify", True),
        ("strict", "deny", True),
    ]
    assert entry.hook_results[0].data == {"note": "x"}
    assert entry.total_duration_ms > 0
    assert [row[:3] for row in map(tuple, await journal.statistics())] == [
        ("noting", "tool:pre", 1),
        ("strict", "tool:pre", 1),
    ]


@pytest.mark.rule("API-3", "JRN-2", "AUD-4")
async def test_what_an_entry_does_not_have(journal: Journal, clock: ManualClock) -> None:
    """Secrets are hidden, what is large or odd is left out, and events without hooks leave nothing."""
    registry, recorder = HookRegistry(), ExecutionRecorder(journal, clock)
    answer = {"password": "hunter2hunter2", "text": "Bearer abcdefghijklmnopqrstuv", "odd": object(), "half": "\ud800"}

    def fails(event: str, data: Any) -> None:
        raise RuntimeError("token=abcdefghijklmnop")

    registry.on("tool:post", lambda event, data: HookResult.modify(answer), name="a")
    registry.on("tool:post", lambda event, data: HookResult.modify({"huge": ["x" * 500] * 100}), name="b\x00")
    registry.on("tool:post", fails, name="c")
    async with recorder.running(registry):
        await registry.emit("tool:post", {**CALL, "tenant_id": 3, "request_id": ["x"]})
        await registry.emit("tool:pre", CALL)
    (entry,) = await entries(journal)
    said = entry.model_dump_json()
    assert "hunter2" not in said
    assert "abcdefghijklmnop" not in said
    first, second, third = entry.hook_results
    assert first.data.keys() == {"password", "text", "odd", "half"}
    assert second.data == {"$omitted": "dict", "why": "size"}
    assert (third.success, third.status) == (False, "error")
    assert (entry.tenant_id, entry.request_id) == ("", "")


@pytest.mark.rule("JRN-2", "API-3")
async def test_texts_are_escaped_once(journal: Journal, clock: ManualClock) -> None:
    """Every text of an entry shows its invisible characters by number: names, reasons, errors, and all data."""
    registry, recorder = HookRegistry(), ExecutionRecorder(journal, clock)
    odd, seen = "\x1b[31m\u202e\n", r"\u{1B}[31m\u{202E}\u{0A}"

    def fails(event: str, data: Any) -> None:
        raise RuntimeError(odd)

    registry.on("tool:pre", lambda event, data: HookResult.modify({odd: [{"deep": odd}]}), name="changes" + odd)
    registry.on("tool:pre", fails, name="fails")
    registry.gate("tool:pre", lambda event, data: HookResult.deny(odd), name="denies")
    async with recorder.running(registry):
        await registry.emit("tool:pre", {**CALL, "tenant_id": odd, "request_id": odd})
    (entry,) = await entries(journal)
    first, second, third = entry.hook_results
    assert (entry.tenant_id, entry.request_id, entry.abort_reason) == (seen, seen, seen)
    assert (first.hook_name, first.data) == ("changes" + seen, {seen: [{"deep": seen}]})
    assert seen in (second.error or "")
    assert third.said == seen
    assert await journal.find("event", tenant=odd) == await journal.find("event")
    assert len(await journal.statistics(name="changes" + odd)) == 1


class Stuck:
    """A database that does not answer."""

    async def run(self, script: Any) -> Any:
        """Wait."""
        await asyncio.Event().wait()

    fetch = run


@pytest.mark.rule("API-3")
async def test_nobody_waits_for_it(clock: ManualClock) -> None:
    """With a store that hangs, emits go on; what does not fit is counted and let go."""
    registry, journal = HookRegistry(), journal_in(Stuck(), clock)
    registry.on("tool:pre", lambda event, data: None, name="a")
    recorder = ExecutionRecorder(journal, clock, room=3)
    registry.observe("*", recorder.note_event)
    for _ in range(5):
        await registry.emit("tool:pre", CALL)
    assert journal.lost == 2


class Broken(Stuck):
    """A database that is gone."""

    async def run(self, script: Any) -> Any:
        """Fail."""
        raise StoreUnavailable("gone")


@pytest.mark.rule("API-3")
async def test_a_store_that_is_gone_breaks_nothing(clock: ManualClock) -> None:
    """Events that cannot be written are lost and counted, without any effect on the hooks."""
    registry, journal = HookRegistry(), journal_in(Broken(), clock)
    registry.on("tool:pre", lambda event, data: None, name="a")
    async with ExecutionRecorder(journal, clock).running(registry):
        assert not (await registry.emit("tool:pre", CALL)).denied
    assert journal.lost == 1
    assert [hook.name for hook in registry.hooks()] == ["a"]


@pytest.mark.rule("API-3", "JRN-4")
async def test_a_day(journal: Journal, clock: ManualClock) -> None:
    """An entry is kept for its time, and removed within a minute after that, also if nothing else happens."""
    registry, recorder = HookRegistry(), ExecutionRecorder(journal, clock)
    registry.on("tool:pre", lambda event, data: None, name="a")
    registry.observe("*", recorder.note_event)
    await registry.emit("tool:pre", CALL)
    await recorder.flush()
    clock.advance(timedelta(hours=24).total_seconds())
    await recorder.flush()
    assert len(await entries(journal)) == 1
    clock.advance(61)
    await recorder.flush()
    assert await entries(journal) == []
