"""Listening: a Unix socket that only its owner can use, and a port of this machine for those who bear a token.

Whoever connects and says nothing, or its request drop by drop, is hung up on; beyond so many connections nobody else is
taken. What is under way when the server closes may end by itself for a while, and is ended then.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import h11
import uvicorn
from attrs import define
from uvicorn.protocols.http.h11_impl import H11Protocol

from amplifier_hooks.server.problem_details import problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


BACKLOG: Final = 256
HEAD: Final = 10.0
"""Seconds in which the head of a request has to be there, or its connection is closed."""
FAREWELL: Final = 5.0
"""Seconds that requests have to end by themselves when the server closes; and then, once more, to clean up."""
MOST: Final = 2_048
SHARE: Final = 4
"""Of the files this process may open, one listener takes a fourth: the store and the record need some, too."""
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


class ListenConfig(uvicorn.Config):
    """How connections are dealt with."""

    def __init__(self, app: ASGIApp, *, head: float, most: int) -> None:
        super().__init__(Leaving(app), http=Connection, log_level="warning", lifespan="off", access_log=False)
        self.head = head
        self.most = most


class Connection(H11Protocol):
    """One connection. There are no others than those of HTTP: what asks for another protocol is answered in this."""

    config: ListenConfig
    _late: asyncio.TimerHandle | None = None
    """Hangs up on whoever has not said a whole head by then."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own
        """Somebody is there. Where there are too many, they are told to come again."""
        super().connection_made(transport)
        if len(self.connections) > self.config.most:
            transport.write(FULL)
            transport.close()
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take it in. A head that comes in pieces is given no more time than one that does not come."""
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(self.config.head, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _should_upgrade(self) -> bool:
        return False


@define
class Leaving:
    """ASGI middleware: a request that is ended because the server closes is answered with that, and not with a bug."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer. Only the server cancels this, when it closes."""
        began: list[Message] = []

        async def note_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                began.append(message)
            await send(message)

        try:
            await self.app(scope, receive, note_start)
        except asyncio.CancelledError:
            if not began:
                closing = problem(503, "closing", "the server is closing; ask it again", headers={"retry-after": "1"})
                await closing(scope, receive, send)
            elif not any(name == b"content-length" for name, _ in began[0]["headers"]):
                await send({"type": "http.response.body", "body": b"", "more_body": False})  # a stream ends here
            else:
                raise


class SignalFreeServer(uvicorn.Server):
    """One that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield

    async def end_serving(self, serving: asyncio.Task[None], farewell: float) -> None:
        """Take nobody else; return when all are gone. What is under way is ended in time, and what stays is cut."""
        self.should_exit = True
        await asyncio.wait({serving}, timeout=farewell)
        for task in self.server_state.tasks:
            task.cancel()
        if not serving.done():
            await asyncio.wait({serving}, timeout=farewell)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await serving


@asynccontextmanager
async def listening(
    app: ASGIApp,
    listener: socket.socket,
    *,
    head: float = HEAD,
    farewell: float = FAREWELL,
    most: int | None = None,
) -> AsyncIterator[None]:
    """Serve at this socket, for as long as the block lasts; it is closed then.

    Args:
        app: The application.
        listener: The socket.
        head: Seconds in which the head of a request has to be there.
        farewell: Seconds that what is under way at the end may still take; then it is cancelled.
        most: Connections at once; a share of the files that this process may open if None.
    """
    server = SignalFreeServer(ListenConfig(app, head=head, most=connection_limit() if most is None else most))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        await server.end_serving(serving, farewell)
        listener.close()


def connection_limit() -> int:
    """How many connections one listener may have."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows has no such limit
        return MOST
    allowed, _ = getrlimit(RLIMIT_NOFILE)
    return MOST if allowed < 0 else max(1, min(MOST, allowed // SHARE))


def loopback_socket(port: int) -> socket.socket:
    """A port of this machine. Raises `OSError` when it is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small answers would wait
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def has_listener(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def unix_socket(path: Path) -> socket.socket:
    """A socket in a folder that is its owner's alone.

    One that a server left behind when it was killed is replaced; one that answers is not. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.parent.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"others can put files into {path.parent}; name a socket in a folder of your own")
    if has_listener(path):
        raise FileExistsError(f"another server answers at {path}")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
            listener.listen(BACKLOG)  # whoever asks from here on is kept waiting, and not turned away
        finally:
            os.umask(before)
    except OSError:
        listener.close()
        raise
    return listener
