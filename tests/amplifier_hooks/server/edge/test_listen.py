"""Connections: slow and silent ones, too many of them, and what becomes of them when the server closes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from amplifier_hooks.server.edge.listen import connection_limit, listening, loopback_socket

GET = b"GET /%s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
ENOUGH = 60.0
"""Seconds after which a test has hung."""


class Place:
    """An application with answers that take their time, and what became of them."""

    def __init__(self) -> None:
        self.began, self.ended, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.app = FastAPI()
        self.app.get("/quick")(self.quick)
        self.app.get("/slow")(self.slow)
        self.app.get("/stream")(self.stream)
        self.app.get("/large")(self.large)

    async def quick(self) -> str:
        """Answer at once."""
        return "here"

    async def slow(self) -> str:
        """Answer when the test says so."""
        self.began.set()
        try:
            await self.go.wait()
        finally:
            self.ended.set()
        return "done"

    async def stream(self) -> StreamingResponse:
        """Begin, and never end."""

        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            self.began.set()
            await asyncio.Event().wait()

        return StreamingResponse(parts())

    async def large(self) -> StreamingResponse:
        """Return a stream that is larger than the buffers of a client that does not read."""

        async def parts() -> AsyncIterator[bytes]:
            self.began.set()
            while True:
                yield bytes(1024 * 1024)

        return StreamingResponse(parts())


@asynccontextmanager
async def served(place: Place, **terms: Any) -> AsyncIterator[int]:
    """The application at a port."""
    listener = loopback_socket(0)
    port: int = listener.getsockname()[1]
    async with listening(place.app, listener, **terms):
        yield port


async def answer_on(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other side hangs up."""
    async with asyncio.timeout(ENOUGH):
        return await reader.read()


@pytest.mark.rule("API-15")
@pytest.mark.fault("F-API-07")
@pytest.mark.parametrize(("asked", "head"), [(0, b""), (0, b"GET /quick HT"), (1, b"GET /quick HTTP/1.1\r\nhost:")])
async def test_a_head_that_does_not_come(asked: int, head: bytes) -> None:
    """A connection without a whole head in time is closed, also after a request that was answered."""
    async with served(Place(), head=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(asked):
            writer.write(GET % b"quick")
            await asyncio.wait_for(reader.readuntil(b"here"), ENOUGH)
        writer.write(head)
        assert b"200" not in await answer_on(reader)
        writer.close()


@pytest.mark.rule("API-15")
async def test_whoever_waits_for_an_answer_is_not_hung_up_on() -> None:
    """The time is for the head alone; the answer may take longer."""
    place = Place()
    async with served(place, head=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"slow")
        await place.began.wait()
        silent, other = await asyncio.open_connection("127.0.0.1", port)
        await answer_on(silent)  # by then the time is over for the first one, too
        place.go.set()
        answer = await asyncio.wait_for(reader.readuntil(b"done"), ENOUGH)
        writer.close()
        other.close()
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.rule("API-15")
async def test_too_many_connections() -> None:
    """One too many is told so and hung up on, and those that are there are answered."""
    async with served(Place(), most=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        late, other = await asyncio.open_connection("127.0.0.1", port)
        refused = await answer_on(late)
        writer.write(GET % b"quick")
        answer = await asyncio.wait_for(reader.readuntil(b"here"), ENOUGH)
        writer.close()
        other.close()
    assert refused.startswith(b"HTTP/1.1 503")
    assert answer.startswith(b"HTTP/1.1 200")
    assert 0 < connection_limit() <= 2_048


@pytest.mark.rule("API-15")
async def test_closing_while_a_request_is_under_way() -> None:
    """A request that does not end in time is ended, cleans up, and is told that it was the server."""
    place = Place()
    async with served(place, farewell=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"slow")
        await place.began.wait()
    answer = await answer_on(reader)
    writer.close()
    assert place.ended.is_set()
    assert answer.startswith(b"HTTP/1.1 503")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "closing"


@pytest.mark.rule("API-15")
async def test_closing_lets_a_request_end() -> None:
    """A request that ends in time while the server closes has its usual answer."""
    place = Place()
    async with served(place, farewell=ENOUGH) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"slow")
        await place.began.wait()
        asyncio.get_running_loop().call_later(0.01, place.go.set)
    answer = await answer_on(reader)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.rule("API-15")
@pytest.mark.parametrize("path", [b"stream", b"large"])
async def test_closing_under_a_stream(path: bytes) -> None:
    """A stream without an end, and a reader that does not read, keep no server from closing."""
    place = Place()
    with socket.socket() as client:
        async with asyncio.timeout(ENOUGH), served(place, farewell=0.05) as port:
            client.connect(("127.0.0.1", port))
            client.sendall(GET % path)
            await place.began.wait()


@pytest.mark.rule("API-15")
async def test_another_protocol() -> None:
    """A request for a WebSocket is answered over HTTP, as the server has no WebSockets."""
    asks = b"GET /quick HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n"
    async with served(Place()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asks)
        answer = await answer_on(reader)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
