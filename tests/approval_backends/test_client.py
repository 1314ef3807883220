"""The client for programs: over any number of connections, and any number of gateways' lives."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from approval_backends.broker import Broker
from approval_backends.client import ApprovalsClient, Disconnected
from approval_backends.errors import BackendUnavailable, GatewayRefusal, TokenRefused
from approval_backends.gateway.client_hub import GatewayLimits
from approval_backends.gateway.wire.messages import Added, Attached, Resolved, TailNote, WireMessage
from approval_backends.stores.memory import MemoryStore
from tests.gateways import MARA, SOON, WATCHER, asked, gateway, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from approval_backends.gateway.gateway import Gateway

pytestmark = pytest.mark.rule("BCK-2")


@pytest.fixture
async def one() -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway() as there:
        yield there


def client(to: Gateway, token: str = MARA.token, **options: Any) -> ApprovalsClient:
    """Return a client of a gateway."""
    return ApprovalsClient(to.address, token, **options)


async def hear(there: ApprovalsClient, kind: type[WireMessage]) -> Any:
    """Return the next news of this kind."""
    async with asyncio.timeout(SOON), aclosing(there.news()) as news:
        async for one in news:
            if isinstance(one, kind):
                return one
    raise AssertionError


@pytest.mark.rule("WIR-4", "WIR-6")
async def test_queue_is_kept(one: Gateway) -> None:
    """The queue follows the gateway, and deciding returns the result."""
    first, second = asked(1), asked(2)
    await served(one).submit(first)
    async with client(one) as mara:
        assert (mara.you.name, mara.you.may_decide, mara.connected) == ("Mara", True, True)
        assert [row.request_id for row in mara.queue] == [first.id]
        await served(one).submit(second)
        assert (await hear(mara, Added)).row.request_id == second.id
        assert [row.request_id for row in mara.queue] == [first.id, second.id]
        card = await mara.show(first.id)
        answer = await mara.decide(card.row, "deny", message="no")
        assert answer.accepted
        assert (await hear(mara, Resolved)).ending.message == "no"
        assert [row.request_id for row in mara.queue] == [second.id]
        late = await mara.decide(card.row, "allow")
        assert late.refusal is not None
        assert late.refusal.code == "already_resolved"
        edited = await mara.decide(mara.queue[0], "allow", arguments={"file_path": "b"})
        assert edited.ending is not None
        assert edited.ending.edited
        assert len((await mara.history()).entries) == 2


@pytest.mark.slow
@pytest.mark.rule("WIR-5", "WIR-8", "WIR-9")
async def test_everything_else(one: Gateway) -> None:
    """Long views come whole, grants can be listed and ended, and the events of a session are heard."""
    request = asked(arguments={"file_path": "f", "content": "".join(f"{n}\n" for n in range(9_000)), "x": "y" * 50_000})
    await served(one).submit(request)

    class Nowhere:
        async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None: ...

    record = one.watched_sink(Nowhere())
    async with client(one) as mara:
        views = {view.name: await mara.whole(request.id, view) for view in (await mara.show(request.id)).views}
        assert len(views["Diff"].lines or ()) == views["Diff"].added == 9_000
        assert json.loads(views["Raw"].text or "") == request.arguments
        await mara.decide(mara.queue[0], "always")
        await served(one).claim(request.id, request.digest)
        (grant,) = (await mara.grants()).grants
        assert await mara.revoke(grant.grant_id)
        assert not await mara.revoke(grant.grant_id)
        assert (await mara.tail(request.session)).lines == []
        await record.write("tool.ran", {"tenant": "", "session": request.session, "tool": "Write"})
        assert (await hear(mara, TailNote)).line.text == "Write"
        await mara.tail(None)
        with pytest.raises(GatewayRefusal, match="there is no such request"):
            await mara.show("nothing")


@pytest.mark.rule("WIR-10")
async def test_gateway_restarts() -> None:
    """When the gateway is gone and back, the client attaches again by itself, and has the requests that wait now."""
    broker = Broker(MemoryStore())
    async with gateway(broker, bounds=GatewayLimits(stop_within=0.2)) as one, client(one) as mara:
        await mara.tail("session-1")
        await hear(mara, Attached)
        deciding = asked(1)
        await broker.submit(deciding)
        await hear(mara, Added)
        row = mara.queue[0]
        await one.close()
        await hear(mara, Disconnected)
        assert not mara.connected
        later = asyncio.ensure_future(mara.decide(row, "allow"))
        await broker.submit(asked(2))
        async with gateway(broker, port=one.port):
            assert (await hear(mara, Attached)).you.name == "Mara"
            assert (await later).accepted
            assert len(mara.queue) in (1, 2)
            assert (await hear(mara, Resolved)).request_id == deciding.id
            assert len(mara.queue) == 1


@pytest.mark.rule("WIR-2", "WIR-10")
async def test_wrong_token(one: Gateway) -> None:
    """A wrong token is an error at once, and a token that is not taken any more ends the news."""
    with pytest.raises(TokenRefused, match="refuses this token"):
        await client(one, "x" * 40).__aenter__()
    async with gateway(bounds=GatewayLimits(lifetime=0.05), approvers=[MARA]) as short, client(short) as mara:
        short._gate = one._gate.__class__([WATCHER], short._own_names())
        with pytest.raises(TokenRefused):
            await hear(mara, Resolved)
        with pytest.raises(TokenRefused):
            await mara.grants()


@pytest.mark.rule("WIR-10")
async def test_no_gateway() -> None:
    """Without a gateway, entering the client raises after the given time."""
    nowhere = ApprovalsClient("http://127.0.0.1:9", MARA.token, timeout=0.05)
    with pytest.raises(BackendUnavailable, match=r"no gateway was reached at ws://127\.0\.0\.1:9/acp"):
        await nowhere.__aenter__()
    with pytest.raises(BackendUnavailable, match="closed"):
        await nowhere.grants()
    with pytest.raises(BackendUnavailable, match="not connected yet"):
        _ = nowhere.you


@asynccontextmanager
async def strange(*said: str) -> AsyncIterator[str]:
    """Yield the address of a gateway of another kind, which sends these texts after attaching."""

    async def handle(connection: ServerConnection) -> None:
        async for text in connection:
            call = json.loads(text)
            you = {"name": "x", "channel": "y", "mayDecide": True}
            value = {"you": you, "queue": [], "serverTime": "2026-01-01T12:00:00Z"}
            await connection.send(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": value}))
            for one in said if call["method"].endswith("attach") else ():
                await connection.send(one)

    async with serve(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.rule("WIR-10")
async def test_what_is_not_understood() -> None:
    """Unknown messages of a newer or a broken gateway are ignored, and a call without an answer ends in time."""
    odd = ["", "[]", '{"jsonrpc":"2.0","method":"_amplifier-hooks/newer","params":{}}', "{"]
    wrong = '{"jsonrpc":"2.0","method":"_amplifier-hooks/added","params":{"row":7}}'
    good = '{"jsonrpc":"2.0","method":"_amplifier-hooks/grants_changed","params":{}}'
    async with strange(*odd, wrong, good) as address, ApprovalsClient(address, "t", timeout=10) as there:
        assert isinstance(await hear(there, Attached), Attached)
        assert type(await hear(there, WireMessage)) is WireMessage
        assert there.queue == []


@pytest.mark.rule("WIR-10")
async def test_cancelling(one: Gateway) -> None:
    """A call that is cancelled leaves nothing behind, and the client goes on."""
    async with client(one) as mara:
        call = asyncio.ensure_future(mara.grants())
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        assert not mara._answers
        assert (await mara.grants()).grants == []
    await mara.close()
    assert not [task for task in asyncio.all_tasks() if "ApprovalsClient" in repr(task)]


def test_attempts_come_slower() -> None:
    """The pause grows from attempt to attempt, up to a bound, and differs between clients."""
    there = ApprovalsClient("http://127.0.0.1:9", "t")
    assert all(0.05 * 2**n <= there._pause(n) <= 0.1 * 2**n for n in range(7))
    assert 7.5 <= there._pause(50) <= 15
    assert len({there._pause(3) for _ in range(20)}) > 10
