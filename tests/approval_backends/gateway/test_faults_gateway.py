"""A gateway with clients that are broken, hostile, slow or too many. It serves the other clients all the while."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
from websockets.exceptions import ConnectionClosed

from approval_backends.broker import Broker
from approval_backends.gateway.client_hub import GatewayLimits
from approval_backends.stores.memory import MemoryStore
from tests.gateways import MARA, SOON, WATCHER, Caller, asked, closed_with, gateway, http, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_hooks.ports import Grant
    from approval_backends.gateway.gateway import BoundedConnection, Gateway

pytestmark = pytest.mark.rule("BCK-4")

TEXT, BINARY, PING, CONTINUED = 0x1, 0x2, 0x9, 0x0


@pytest.fixture
async def one() -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway() as there:
        yield there


def frame(opcode: int, payload: bytes, *, fin: bool = True, mask: bool = True) -> bytes:
    """Return a frame as it is on the wire."""
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size)
    head = bytes([opcode | (0x80 if fin else 0), length[0] | (0x80 if mask else 0), *length[1:]])
    return head + (b"\0\0\0\0" if mask else b"") + payload


async def still_served(to: Gateway, bystander: Caller) -> None:
    """A connected client and a new client are both served."""
    await bystander.call("ping")
    async with Caller(to) as newcomer:
        await newcomer.attach()


@pytest.mark.fault("F-WS-06")
async def test_compression_is_not_negotiated(one: Gateway) -> None:
    """Compression that a client offers is not taken up, so no small message can become a large one."""
    async with Caller(one, compression="deflate") as mara:
        assert mara.connection.response is not None
        assert "Sec-WebSocket-Extensions" not in mara.connection.response.headers
        await mara.attach()


@pytest.mark.rule("WIR-3", "WIR-10")
@pytest.mark.fault("F-WS-06", "F-WS-07")
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"x" * 65_000, fin=False) + frame(CONTINUED, b"x" * 1_000), 1009),
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(TEXT, b"", fin=False) + frame(CONTINUED, b"", fin=False) * 100_000, 1008),
        (frame(PING, b"x" * 126), 1002),
        (frame(TEXT, b"{}", mask=False), 1002),
        (frame(CONTINUED, b"{}"), 1002),
        (frame(0x3, b""), 1002),
        (frame(PING, b"x" * 100) * 10_000, 1008),
        (frame(0xA, b"") * 10_000, 1008),
    ],
    ids=["too large", "no UTF-8", "pieces", "large control", "unmasked", "no start", "unknown", "pings", "pongs"],
)
async def test_broken_frames(one: Gateway, sent: bytes, code: int) -> None:
    """A connection with broken frames is closed with the code for it, and other clients notice nothing."""
    async with Caller(one) as bystander, Caller(one) as broken:
        await bystander.attach()
        await broken.attach()
        broken.connection.transport.write(sent)
        assert await closed_with(broken) == code
        await still_served(one, bystander)


@pytest.mark.rule("WIR-3")
@pytest.mark.fault("F-WS-08")
async def test_broken_messages(one: Gateway) -> None:
    """A broken message is answered with an error that says why, and the connection stays."""
    async with Caller(one) as mara:
        await mara.attach()
        for sent, code in {
            "[" * 60_000: -32700,
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + "9" * 60_000 + "}}": -32700,
            '{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}': -32700,
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}': -32700,
            '{"jsonrpc":"2.0","id":1,"method":"\\ud800"}': -32700,
            "[1]": -32600,
            "": -32700,
        }.items():
            await mara.connection.send(sent)
            answer = await mara.read()
            assert (answer["id"], answer["error"]["code"]) == (None, code)
        await mara.connection.send(b"\x00binary frames are ignored")
        for method, params, code in (
            ("m", {}, -32601),
            ("session/prompt", {}, -32601),
            ("_amplifier-hooks/show", {}, -32602),
            ("_amplifier-hooks/show", {"requestId": "\u202e"}, -32002),
            ("_amplifier-hooks/__class__", {}, -32601),
            ("_amplifier-hooks/answer", {}, -32601),
        ):
            assert (await mara.ask(method, **params))["error"]["code"] == code
        await mara.say(method="session/cancel", params={"sessionId": "s"})
        await mara.say(id="never-asked", result={"outcome": {"outcome": "selected", "optionId": "allow"}})
        await mara.say(id="never-asked", error={"code": -32601, "message": "no"})
        await mara.call("ping")
        assert not mara.heard


@pytest.mark.rule("WIR-2", "WIR-10")
@pytest.mark.fault("F-WS-04")
async def test_nobody_says_who_they_are() -> None:
    """A client that does not authenticate in time is closed, and an approver gets in past any number of them."""
    bounds = GatewayLimits(authenticate_within=1.0, strangers=8, clients=2)
    async with gateway(bounds=bounds) as one, AsyncExitStack() as crowd:
        origin = one.address.rstrip("/")
        strangers = [await crowd.enter_async_context(Caller(one, None, origin=origin)) for _ in range(40)]
        assert await closed_with(strangers[0]) == 1013
        async with Caller(one, None, origin=origin) as page:
            await page.greet()
            meta = {"amplifier-hooks": {"token": MARA.token}}
            assert (await page.ask("authenticate", methodId="token", _meta=meta))["result"] == {}
            codes = [await closed_with(stranger) for stranger in strangers[1:]]
            assert (codes.count(1013), codes.count(4401)) == (32, 7)
            async with Caller(one) as mara:
                await mara.attach()
                await page.call("attach")


@pytest.mark.rule("WIR-10")
async def test_all_places_taken() -> None:
    """A gateway has places for so many clients; one more is refused, whichever way it brings its token."""
    async with gateway(bounds=GatewayLimits(clients=1)) as one, Caller(one) as mara:
        await mara.attach()
        async with Caller(one) as other:
            assert await closed_with(other) == 1013
        async with Caller(one, None, origin=one.address.rstrip("/")) as page:
            await page.greet()
            meta = {"amplifier-hooks": {"token": WATCHER.token}}
            refusal = await page.ask("authenticate", methodId="token", _meta=meta)
            assert "all places are taken" in refusal["error"]["message"]
            assert await closed_with(page) == 1013
        await mara.call("ping")


@pytest.mark.rule("WIR-2")
@pytest.mark.fault("F-WS-05")
async def test_wrong_tokens(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong token ends the connection, a flood of them is told to wait, and no token is ever logged."""
    caplog.set_level(logging.DEBUG)
    async with gateway(bounds=GatewayLimits(authenticate_within=60)) as one:
        await wrong_tokens(one)
    ours = "\n".join(line.getMessage() for line in caplog.records if line.name.startswith("approval_backends"))
    assert "connection open" in ours
    assert "canary" not in ours
    assert MARA.token not in ours


async def wrong_tokens(one: Gateway) -> None:
    """Send wrong tokens in every place where a token can be."""
    wrong = "canary-" + "x" * 40
    async with Caller(one, None, origin=one.address.rstrip("/")) as page:
        await page.greet()
        refusal = await page.ask("authenticate", methodId="token", _meta={"amplifier-hooks": {"token": wrong}})
        assert refusal["error"]["code"] == -32000
        assert await closed_with(page) == 4401
    head = "Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: eA=="
    asking = f"GET /acp HTTP/1.1\nHost: 127.0.0.1:{one.port}\n{head}\nAuthorization: Bearer {wrong}\n\n"
    statuses = [(await http(one.port, asking))[0] for _ in range(40)]
    assert (statuses.count(401), statuses.count(429)) in {(20, 20), (21, 19)}
    async with Caller(one) as mara:
        await mara.attach()
        await mara.connection.send(f'{{"broken": "{wrong}')
        await mara.read()
    await http(one.port, f"GET /?token={wrong} HTTP/1.1\nHost: 127.0.0.1:{one.port}\nBad {wrong}\n\n")


@pytest.mark.rule("WIR-2", "WIR-10")
async def test_a_token_does_not_last_for_ever() -> None:
    """After its time a connection has to bring its token again."""
    async with gateway(bounds=GatewayLimits(lifetime=0.05)) as one, Caller(one) as mara:
        assert await closed_with(mara) == 4401


@pytest.mark.rule("WIR-3", "WIR-10")
async def test_too_many_messages() -> None:
    """A client that sends too much is told so, and closed if it goes on; other clients are served."""
    async with (
        gateway(bounds=GatewayLimits(rate=1.0, at_once=10)) as one,
        Caller(one) as bystander,
        Caller(one) as flood,
    ):
        await bystander.attach()
        ping: dict[str, Any] = {"method": "_amplifier-hooks/ping", "params": {}}
        codes = set()
        while -32029 not in codes:
            await flood.say(id=1, **ping)
            codes.add((await flood.read()).get("error", {}).get("code"))
        with suppress(ConnectionClosed):  # before all messages were sent
            for _ in range(30):
                await flood.say(id=1, **ping)
        assert await closed_with(flood) == 4429
        await still_served(one, bystander)


def narrow(to: Gateway) -> socket.socket:
    """Return a connection with little room for data on its way."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect(("127.0.0.1", to.port))
    return sock


@pytest.mark.rule("BCK-2", "WIR-10")
@pytest.mark.fault("F-WS-09")
@pytest.mark.parametrize("queue", [True, False], ids=["ours", "plain"])
@pytest.mark.parametrize("events", [400, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_viewer_that_stops_reading(queue: bool, events: int) -> None:
    """A client that stops reading costs little, is let go or owed nothing, and can come again; others miss nothing."""
    async with gateway(bounds=GatewayLimits(queued=64)) as one, Caller(one) as reader:
        await reader.attach()
        async with Caller(one, sock=narrow(one), ping_interval=None, close_timeout=0.1) as lazy:
            await lazy.greet(queue=queue)
            if queue:
                await lazy.call("attach")
            visitor, seat = list(one._clients.items())[1]
            connection = cast("BoundedConnection", seat.connection)
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            lazy.connection.transport.pause_reading()
            held = 0
            for number in range(events // 2):
                request = asked(number)
                await served(one).submit(request)
                assert (await reader.note("added"))["row"]["requestId"] == request.id
                await served(one).withdraw(request.id, "enough")
                assert (await reader.note("resolved"))["requestId"] == request.id
                waits = visitor._outbox._bytes + len(visitor._to_ask) * 1_000
                held = max(held, waits + connection.transport.get_write_buffer_size())
            assert held < 64 * 1_024 + 64 * 1_024
            if queue:
                async with asyncio.timeout(SOON):
                    await connection.wait_closed()
            lazy.connection.transport.resume_reading()
        async with Caller(one) as again:
            assert (await again.attach())["queue"] == []


@pytest.mark.rule("WIR-10")
async def test_answers_that_are_not_read(one: Gateway) -> None:
    """A client that pings and does not read the answers is cut off, since nothing else would hold them back."""
    async with Caller(one, sock=narrow(one), ping_interval=None) as mara, Caller(one) as bystander:
        await mara.attach()
        await bystander.attach()
        connection = cast("BoundedConnection", next(iter(one._clients.values())).connection)
        connection.transport.write(b"\x81\x7e" + struct.pack("!H", 60_000) + b"x" * 60_000)
        mara.connection.transport.pause_reading()
        for _ in range(200):
            connection.transport.write(b"\x81\x7e" + struct.pack("!H", 60_000) + b"x" * 60_000)
        mara.connection.transport.write(frame(PING, b"x"))
        async with asyncio.timeout(SOON):
            await connection.wait_closed()
        mara.connection.transport.resume_reading()
        await still_served(one, bystander)


@pytest.mark.rule("BCK-2", "WIR-3")
async def test_store_that_cannot_be_used(one: Gateway) -> None:
    """While the store is away a client is told that nothing was decided; afterwards everything goes on."""
    request = asked()
    store = served(one).store
    await store.submit(request)
    async with Caller(one) as mara:
        await mara.attach()
        await store.close()
        answer = await mara.ask(
            "_amplifier-hooks/decide",
            requestId=request.id,
            digest=request.digest,
            optionId="allow",
            decisionId="12345678",
        )
        assert answer["error"]["code"] == -32003
        await store.open()
        assert (await mara.decide(request, "allow"))["accepted"]


@pytest.mark.rule("BCK-2", "WIR-3")
async def test_one_odd_request_silences_nobody(one: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """A request that cannot be shown is left out and logged; it can still be answered elsewhere."""
    odd, plain = asked(1, tenant="\ud800", session="\ud800", agent="\ud800"), asked(2)
    async with Caller(one) as mara:
        await mara.attach()
        await served(one).submit(odd)
        await served(one).submit(plain)
        assert (await mara.note("added", lambda note: note["row"]["requestId"] == plain.id))["row"][
            "what"
        ] == "src/2.py"
        assert len((await mara.call("attach"))["queue"]) == 2


class Faulty(MemoryStore):
    """A store with a mistake in it."""

    async def grants(self, **_what: Any) -> list[Grant]:
        """Raise the error of the mistake."""
        raise RuntimeError("canary")


@pytest.mark.rule("WIR-3")
async def test_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """A mistake of ours is reported without its details, which are logged, and the connection goes on."""
    async with gateway(Broker(Faulty())) as one, Caller(one) as mara:
        await mara.attach()
        answer = await mara.ask("_amplifier-hooks/grants")
        assert answer["error"] == {"code": -32603, "message": "Internal error: the gateway's log has the details"}
        await mara.call("ping")
    assert "RuntimeError: canary" in caplog.text
