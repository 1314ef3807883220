"""A hook that asks, and is changed before the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends.broker import Broker
from approval_backends.deferred import DeferredApprovals
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore

ADA = Decider(name="ada", channel="test")


class Asks:
    """A hook that is made from data, and asks."""

    def __init__(self, version: str, prompt: str) -> None:
        self.hook_version = version
        self.prompt = prompt

    def __call__(self, event: str, data: Any) -> HookResult:
        """Ask."""
        return HookResult.ask(self.prompt)


async def waiting(broker: Broker, count: int = 1) -> list[RequestRecord]:
    """Return the pending requests once there are `count`."""
    found: list[RequestRecord] = []

    async def looked() -> None:
        while len(found) != count:
            with broker.watch() as watch:
                found[:] = await broker.pending(ADA)
                if len(found) != count:
                    await watch.wait(0.05)

    await asyncio.wait_for(looked(), 60)
    return found


async def allow(broker: Broker, record: RequestRecord) -> bool:
    """Allow the request; return True if the answer was accepted."""
    option = next(option.id for option in record.request.options if option.allows)
    return (await broker.decide(record.id, record.digest, option, ADA)).accepted


@pytest.mark.fault("F-API-09")
@pytest.mark.rule("APR-6")
@pytest.mark.parametrize("taken_back", [False, True], ids=["a yes", "taken back"])
async def test_a_yes_to_the_old_version_does_not_count(taken_back: bool) -> None:
    """A yes to an old version of a hook has no effect: the call is judged again, and the new version asks."""
    registry, broker = HookRegistry(), Broker(MemoryStore())
    ran: list[Any] = []
    undo = registry.gate("tool:pre", Asks("1", "old?"), name="guard")
    async with SessionCoordinator(registry, session_id="s", approvals=DeferredApprovals(broker)) as session:
        call = asyncio.create_task(session.call_tool("Write", {"n": 1}, ran.append))
        (old,) = await waiting(broker)
        undo()
        registry.gate("tool:pre", Asks("2", "new?"), name="guard")
        if taken_back:
            await broker.supersede(old.id, "the hook has changed")
        else:
            assert await allow(broker, old)
        (new,) = await waiting(broker)
        assert ran == []
        assert new.id != old.id
        assert new.request.prompt == "new?"
        assert await allow(broker, new)
        assert (await call).ok
    assert len(ran) == 1


@pytest.mark.fault("F-API-09")
async def test_a_hook_that_changes_all_the_time() -> None:
    """After three rounds the call is denied, and no tool has run."""
    registry, broker = HookRegistry(), Broker(MemoryStore())
    hook = Asks("0", "now?")
    registry.gate("tool:pre", hook, name="guard")
    ran: list[Any] = []
    async with SessionCoordinator(registry, session_id="s", approvals=DeferredApprovals(broker)) as session:
        call = asyncio.create_task(session.call_tool("Write", {}, ran.append))
        for number in range(3):
            (record,) = await waiting(broker)
            hook.hook_version = str(number + 1)
            await allow(broker, record)
        outcome = await asyncio.wait_for(call, 60)
    assert outcome.denied
    assert "changed each time" in (outcome.reason or "")
    assert ran == []


@pytest.mark.fault("F-API-09")
async def test_a_yes_that_waits_for_a_restart(tmp_path: Path) -> None:
    """A yes in the store, given to the old version, is not the answer to the same call once the hook has changed."""
    path = tmp_path / "approvals.db"
    ran: list[Any] = []
    for version, decides in (("1", True), ("2", False)):
        registry = HookRegistry()
        registry.gate("tool:pre", Asks(version, "ok?"), name="guard")
        async with SqliteStore(path) as store:
            broker = Broker(store)
            async with SessionCoordinator(
                registry, session_id="s", approvals=DeferredApprovals(broker), approval_wait=0.0
            ) as session:
                outcome = await session.call_tool("Write", {}, ran.append, call_id="c1")
                assert outcome.pending
                for record in await broker.pending(ADA) if decides else ():
                    assert await allow(broker, record)
    assert ran == []
