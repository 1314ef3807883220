"""Asking from the process that serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends import WebSocketApprovals
from approval_backends.broker import Broker
from approval_backends.errors import BackendUnavailable
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from tests.gateways import MARA, Caller, asked, gateway

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("BCK-2")


async def test_session(tmp_path: Path) -> None:
    """A call that a hook asks about runs once an approver at the page allows it, with the approver's edits."""
    registry = HookRegistry()

    @registry.gate("tool:pre", match="Bash")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask(f"Run {data['tool_input']['command']}?", options=["Allow once", "Deny"])

    async def run(arguments: Any) -> str:
        return f"ran {arguments['command']}"

    async with WebSocketApprovals(approvers=[MARA]) as web, Caller(web.gateway) as mara:
        assert web.link.endswith(f"#t={MARA.token}")
        await mara.attach()

        async def at_the_page(option: int, **more: Any) -> Any:
            row = (await mara.note("added"))["row"]
            card = await mara.call("show", requestId=row["requestId"])
            wanted = {"requestId": row["requestId"], "digest": row["digest"], "decisionId": "at-the-page"}
            chosen = card["options"][option]["optionId"]
            return await mara.call("decide", **wanted, optionId=chosen, **more)

        async with SessionCoordinator(hooks=registry, approvals=web) as session, session.turn("go"):
            calling = asyncio.ensure_future(session.call_tool("Bash", {"command": "make"}, run))
            assert (await at_the_page(0))["accepted"]
            assert (await calling).value == "ran make"
            calling = asyncio.ensure_future(session.call_tool("Bash", {"command": "rm -r x"}, run))
            assert (await at_the_page(1, message="keep x"))["accepted"]
            assert (await calling).denied


@pytest.mark.rule("APR-4")
async def test_nobody_answers() -> None:
    """For page and session alike, the time of a call that no approver answers is over."""
    registry = HookRegistry()

    @registry.gate("tool:pre")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Run this?", timeout=0.05)

    async with WebSocketApprovals(approvers=[MARA]) as web, Caller(web.gateway) as mara:
        await mara.attach()
        async with SessionCoordinator(hooks=registry, approvals=web) as session:
            outcome = await session.call_tool("Bash", {"command": "make"}, lambda _: "ran")
        ending = (await mara.note("resolved"))["ending"]
        (entry,) = (await mara.call("history"))["entries"]
    assert (outcome.cause, entry["ending"]) == ("approval_expired", ending)
    assert (ending["status"], ending["allowed"], ending.get("by")) == ("expired", False, None)


async def test_before_and_after() -> None:
    """A question before opening is refused, as no approver could see it; opening or closing twice is harmless."""
    web = WebSocketApprovals()
    with pytest.raises(BackendUnavailable, match="async with WebSocketApprovals"):
        await web.request(asked())
    async with web:
        assert await web.open() is web
        waiting = asyncio.ensure_future(web.request(asked()))
        async with Caller(web.gateway, web.gateway.approvers[0]) as person:
            assert len((await person.attach())["queue"]) in (0, 1)
            await web.close()
            await web.close()
            with pytest.raises(BackendUnavailable):
                await waiting
    with pytest.raises(BackendUnavailable):
        await web.request(asked())


async def test_address_that_is_taken() -> None:
    """If the gateway cannot listen nothing stays open, the store included."""
    async with gateway() as one:
        store = MemoryStore()
        with pytest.raises(OSError, match="in use"):
            await WebSocketApprovals(store, port=one.port).open()
        with pytest.raises(StoreUnavailable):
            await store.pending()


@pytest.mark.rule("BCK-5", "BCK-7")
async def test_several_gateways_over_one_file(tmp_path: Path) -> None:
    """A question of one process appears at another gateway over one file; an open question outlives its process."""
    path, request = tmp_path / "approvals.db", asked(wait=0.01)
    async with SqliteStore(path) as store, gateway(Broker(store)) as other, Caller(other) as mara:
        await mara.attach()
        async with WebSocketApprovals(SqliteStore(path)) as web:
            with pytest.raises(Exception, match=request.id):
                await web.request(request)
            told = await mara.note("added")
            assert (told["row"]["requestId"], told["row"]["resumable"]) == (request.id, True)
        assert (await mara.decide(request, "allow"))["accepted"]
        async with WebSocketApprovals(SqliteStore(path)) as web:
            decision = await web.request(request)
            assert (decision.option, decision.by) == ("allow", "Mara")
            assert await web.claim(request.id, request.digest)
