"""Stops: acts of sessions in any process are refused while one is in force, and go on after it."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.testing import CollectingAudit
from approval_backends.backend import DeferredApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.address import store_at
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from tests.stores import FILES, address

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from amplifier_hooks.ports import Stop

KIM = Decider(name="Kim", channel="check")


class Tool:
    """A tool that counts its runs."""

    runs = 0

    async def __call__(self, _input: Any) -> str:
        """Run."""
        self.runs += 1
        return "done"


def asking() -> HookRegistry:
    """Return a registry that asks about every call."""
    hooks = HookRegistry()

    @hooks.gate("tool:pre")
    async def guard(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(action="ask_user", approval_prompt="Write it?")

    return hooks


async def approve(broker: Broker, meanwhile: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
    """Allow the next request that waits, after something else."""
    with broker.watch() as watch:
        while not (found := await broker.pending(KIM)):
            await watch.wait(1)
    if meanwhile is not None:
        await meanwhile()
    await broker.decide(found[0].id, found[0].digest, found[0].request.options[0].id, KIM)


@pytest.mark.rule("APR-14")
async def test_acts_that_nobody_was_asked_about() -> None:
    """A stop denies acts without a question, in child sessions too; it is on record, and ends on record."""
    backend, audit, tool = DeferredApprovals(MemoryStore()), CollectingAudit(), Tool()
    async with SessionCoordinator(approvals=backend, audit=audit, tenant="acme", session_id="s1") as session:
        assert (await session.call_tool("Read", {}, tool)).status == "ok"
        begun = await backend.broker.stop("look first", Decider(name="Kim", channel="x", tenant="acme"), "s1")
        for one in (session, session.child("helper")):
            refused = await one.call_tool("Read", {}, tool)
            assert (refused.status, refused.cause) == ("denied", "emergency_stop")
            assert "stopped by Kim: look first" in str(refused.reason)
        await session.call_tool("Read", {}, tool)
        await backend.broker.end_stop(Decider(name="Robin", channel="x", tenant="acme"), "s1")
        assert (await session.call_tool("Read", {}, tool)).status == "ok"
    assert tool.runs == 2
    first, last = audit.facts("stop.begun")[0], audit.facts("stop.ended")[0]
    assert (first["stop"], first["by"], first["why"]) == (begun.id, "Kim", "look first")
    assert first["covers"] == {"tenant": "acme", "session": "s1"}
    assert (last["stop"], last["by"]) == (begun.id, "Robin")
    assert [one["session"] for one in audit.facts("stop.begun")].count("s1") == 1


@pytest.mark.rule("APR-14")
async def test_operations_are_stopped() -> None:
    """A stop denies operations as it denies tool calls."""
    backend = DeferredApprovals(MemoryStore())
    async with SessionCoordinator(approvals=backend) as session:
        await backend.broker.stop("look first", KIM)
        with pytest.raises(Exception, match="stopped by Kim: look first"):
            await session.operation("memory", {"operation": "put", "key": "k"}, Tool())


@pytest.mark.rule("APR-14", "APR-12")
async def test_an_approval_outlives_a_stop(tmp_path: Path) -> None:
    """An approval that a stop refuses stays unused, and the call that is made again after the stop runs once."""
    store, tool, audit = SqliteStore(tmp_path / "a.db"), Tool(), CollectingAudit()
    async with DeferredApprovals(store) as backend:
        other = Broker(store)  # of another process: this one has read the stops just now

        async def call() -> Any:
            return await session.call_tool("Write", {"file": "a"}, tool, call_id="c1")

        session = SessionCoordinator(asking(), approvals=backend, audit=audit)
        async with session:
            deciding = asyncio.create_task(approve(other, lambda: other.stop("look first", KIM)))
            refused = await call()
            await deciding
            assert (refused.status, refused.cause) == ("denied", "emergency_stop")
            again = await call()
            assert (again.status, again.cause) == ("denied", "emergency_stop")
            (record,) = await store.history()
            assert record.status == "approved"
            await backend.broker.end_stop(KIM)
            assert (await call()).status == "ok"
            assert (await call()).status == "ok", "a retry gets the kept result"
    assert tool.runs == 1
    assert [len(audit.facts(kind)) for kind in ("stop.begun", "stop.ended")] == [1, 1]


class SilentStore(MemoryStore):
    """A store that can stop answering about stops."""

    silent = False

    async def stops(self) -> list[Stop]:
        """Return the stops, or fail."""
        if self.silent:
            raise StoreUnavailable("away")
        return await super().stops()


@pytest.mark.rule("APR-14")
@pytest.mark.parametrize("stopped", [False, True], ids=["free", "stopped"])
async def test_the_last_known_stops_count(stopped: bool, caplog: pytest.LogCaptureFixture) -> None:
    """While the store cannot be read, the stops that were read last count, and the failure is logged."""
    store, tool = SilentStore(), Tool()
    backend = DeferredApprovals(store)
    async with SessionCoordinator(approvals=backend) as session:
        if stopped:
            await store.stop("look first", "Kim")
        before = await session.call_tool("Read", {}, tool)
        store.silent = True
        await backend.broker.end_stop(Decider(name="Kim", channel="x", tenant="other"))  # makes the broker read again
        with caplog.at_level(logging.WARNING):
            after = await session.call_tool("Read", {}, tool)
    assert before.status == after.status == ("denied" if stopped else "ok")
    assert "approval_stops_unread" in caplog.text


async def command(*arguments: str) -> None:
    """Run the command in another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "amplifier_hooks", *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


@pytest.mark.rule("APR-14", "CLI-2")
@pytest.mark.parametrize("kind", FILES)
async def test_another_process_stops(kind: str, tmp_path: Path) -> None:
    """The command stops and resumes the sessions of another process, which sees it within a second."""
    loop, tool = asyncio.get_running_loop(), Tool()
    async with (
        address(kind, tmp_path) as where,
        DeferredApprovals(store_at(where)) as backend,
        SessionCoordinator(approvals=backend) as session,
    ):

        async def seconds_until(status: str) -> float:
            began = loop.time()
            while (await session.call_tool("Read", {}, tool)).status != status:
                assert loop.time() - began < 60
                await asyncio.sleep(0)
            return loop.time() - began

        await seconds_until("ok")
        await command("stop", "--why", "look first", "--store", where)
        assert await seconds_until("denied") < 1.5
        await command("resume", "--yes", "--store", where)
        assert await seconds_until("ok") < 1.5
