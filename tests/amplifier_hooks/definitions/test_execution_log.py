"""The execution log: what is kept of an event, and what keeping it costs those who emit."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.definitions.execution_log import EXECUTION_TABLES, ExecutionRecorder, ExecutionStore
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase
from amplifier_hooks.testing import ManualClock

CALL = {"tool_name": "Bash", "tool_input": {}, "tenant_id": "acme", "request_id": "req-1", "event_id": "e"}


@pytest.fixture
async def store() -> AsyncIterator[ExecutionStore]:
    """Where entries are kept."""
    async with MemoryDatabase(EXECUTION_TABLES) as database:
        yield ExecutionStore(database)


@pytest.mark.rule("API-3")
async def test_an_entry_has_everything(store: ExecutionStore) -> None:
    """Event, tenant, every hook with its answer, why it was stopped, how long it took, when, and what it belongs to."""
    registry, clock = HookRegistry(), ManualClock()
    registry.on("tool:pre", lambda event, data: HookResult.modify({"note": "x"}), name="noting")
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no \x1b[31m"), name="strict")
    async with ExecutionRecorder(store, clock=clock, pause=0) as recorder:
        recorder.watch(registry)
        await registry.emit("tool:pre", CALL)
    (entry,) = await store.find()
    assert (entry.event_type, entry.tenant_id, entry.request_id) == ("tool:pre", "acme", "req-1")
    assert (entry.aborted, entry.abort_reason, entry.timestamp) == (True, "no \x1b[31m", clock.now())
    assert [(run.hook_name, run.action, run.success) for run in entry.hook_results] == [
        ("noting", "modify", True),
        ("strict", "deny", True),
    ]
    assert entry.hook_results[0].data == {"note": "x"}
    assert entry.total_duration_ms > 0
    assert await store.get(entry.log_id) == entry


@pytest.mark.rule("API-3")
async def test_what_an_entry_does_not_have(store: ExecutionStore) -> None:
    """Secrets are hidden, what is large or odd is left out, and events without hooks leave nothing."""
    registry = HookRegistry()
    answer = {"password": "hunter2hunter2", "text": "Bearer abcdefghijklmnopqrstuv", "odd": object(), "half": "\ud800"}

    def fails(event: str, data: Any) -> None:
        raise RuntimeError("token=abcdefghijklmnop")

    registry.on("tool:post", lambda event, data: HookResult.modify(answer), name="a")
    registry.on("tool:post", lambda event, data: HookResult.modify({"huge": ["x" * 500] * 100}), name="b\x00")
    registry.on("tool:post", fails, name="c")
    async with ExecutionRecorder(store) as recorder:
        recorder.watch(registry)
        await registry.emit("tool:post", {**CALL, "tenant_id": 3, "request_id": ["x"]})
        await registry.emit("tool:pre", CALL)
    (entry,) = await store.find()
    said = entry.model_dump_json()
    assert "hunter2" not in said
    assert "abcdefghijklmnop" not in said
    first, second, third = entry.hook_results
    assert first.data is not None
    assert first.data.keys() == {"password", "text", "odd", "half"}
    assert second.data == {"$omitted": "size"}
    assert (third.success, third.status) == (False, "error")
    assert (entry.tenant_id, entry.request_id) == ("", "")


class Stuck(ExecutionStore):
    """A store that does not answer."""

    async def add(self, entries: Any) -> None:
        """Wait."""
        await asyncio.Event().wait()


@pytest.mark.rule("API-3")
async def test_nobody_waits_for_it() -> None:
    """With a store that hangs, emits go on; what does not fit is counted and let go."""
    registry = HookRegistry()
    registry.on("tool:pre", lambda event, data: None, name="a")
    recorder = ExecutionRecorder(Stuck(MemoryDatabase()), room=3)
    recorder.watch(registry)
    for _ in range(5):
        await registry.emit("tool:pre", CALL)
    assert recorder.lost == 2


class Broken(ExecutionStore):
    """A store that is gone."""

    async def add(self, entries: Any) -> None:
        """Fail."""
        raise StoreUnavailable("gone")


@pytest.mark.rule("API-3")
async def test_a_store_that_is_gone_breaks_nothing() -> None:
    """Entries that cannot be written are lost and counted, without any effect on the hooks."""
    registry = HookRegistry()
    registry.on("tool:pre", lambda event, data: None, name="a")
    async with ExecutionRecorder(Broken(MemoryDatabase())) as recorder:
        recorder.watch(registry)
        assert not (await registry.emit("tool:pre", CALL)).denied
    assert recorder.lost == 1
    assert registry.hooks()[0].name == "a"
    assert len(registry.hooks()) == 1


@pytest.mark.rule("API-3")
async def test_a_day(store: ExecutionStore) -> None:
    """An entry is kept for 24 hours, or as long as it was said, and removed within a minute after that."""
    registry, clock = HookRegistry(), ManualClock()
    registry.on("tool:pre", lambda event, data: None, name="a")
    recorder = ExecutionRecorder(store, clock=clock)
    recorder.watch(registry)
    await registry.emit("tool:pre", CALL)
    await recorder.flush()
    await recorder.clean()
    clock.advance(timedelta(hours=24).total_seconds())
    await recorder.clean()
    assert len(await store.find()) == 1
    clock.advance(61)
    await recorder.clean()
    assert await store.find() == []
    short = ExecutionRecorder(store, clock=clock, retention=timedelta(seconds=1))
    await registry.emit("tool:pre", CALL)
    await recorder.flush()
    clock.advance(2)
    await short.clean()
    assert await store.find() == []
