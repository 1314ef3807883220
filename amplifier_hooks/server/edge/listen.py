"""Listening: an ASGI application and a socket come in; a server of limited connections runs.

The Unix socket is for its owner only; the TCP port of this machine is for clients with a token. A connection whose
request head does not arrive in time is closed, and connections over the limit are refused. When the server closes,
running requests have a few seconds to end before they are cancelled.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
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
"""Seconds in which the head of a request has to arrive; after that, its connection is closed."""
FAREWELL: Final = 5.0
"""Seconds that requests have to end when the server closes, and again to clean up after they are cancelled."""
MOST: Final = 2_048
SHARE: Final = 4
"""Divisor of the files this process may open: a listener uses a fourth, as the store and the record need files."""
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


class ListenConfig(uvicorn.Config):
    """Uvicorn's settings, with the limits of connections."""

    def __init__(self, app: ASGIApp, *, head: float, most: int) -> None:
        super().__init__(Leaving(app), http=Connection, log_level="warning", lifespan="off", access_log=False)
        self.head = head
        self.most = most


class Connection(H11Protocol):
    """An HTTP connection. A request to upgrade to another protocol is answered in HTTP."""

    config: ListenConfig
    _late: asyncio.TimerHandle | None = None
    """Timer that closes the connection if the head of a request is not complete by then."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own
        """Accept a connection, or answer 503 and close it if there are too many."""
        super().connection_made(transport)
        if (pid := peer_process(transport.get_extra_info("socket"))) is not None:
            self.client = ("", pid)
        if len(self.connections) > self.config.most:
            transport.write(FULL)
            transport.close()
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Process received bytes. A head that comes in pieces has no more time than one that does not come."""
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a closed connection."""
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


def peer_process(connection: socket.socket) -> int | None:
    """Return the id of the process at the other end of a Unix socket; None if the system does not tell."""
    if connection.family != getattr(socket, "AF_UNIX", None):
        return None
    level, name = (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", None)) if sys.platform == "linux" else (0, 2)
    try:
        return None if name is None else struct.unpack_from("i", connection.getsockopt(level, name, 12))[0]
    except OSError:
        return None


@define
class Leaving:
    """ASGI middleware that answers 503 to requests which the closing server cancels."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application. Only the closing server cancels this call."""
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
    """A uvicorn server that leaves signals to its host."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def end_serving(self, serving: asyncio.Task[None], farewell: float) -> None:
        """Accept no more connections, and return when all have ended.

        Running requests are cancelled after `farewell` seconds; connections that stay after that are aborted.
        """
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
    """Serve at a socket for the duration of the block, then close it.

    Args:
        app: The application.
        listener: The socket.
        head: Seconds in which the head of a request has to arrive.
        farewell: Seconds that running requests may take at the end before they are cancelled.
        most: Connections at once; None is a share of the files that this process may open.
    """
    server = SignalFreeServer(ListenConfig(app, head=head, most=connection_limit() if most is None else most))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        await server.end_serving(serving, farewell)
        listener.close()


def connection_limit() -> int:
    """Return the number of connections that one listener may have."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows has no such limit
        return MOST
    allowed, _ = getrlimit(RLIMIT_NOFILE)
    return MOST if allowed < 0 else max(1, min(MOST, allowed // SHARE))


def loopback_socket(port: int) -> socket.socket:
    """Return a socket at a port of this machine. Raises `OSError` if the port is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small answers would wait
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise type(error)(error.errno, error.strerror, f"127.0.0.1:{port}") from None
    return listener


def has_listener(path: Path) -> bool:
    """Return True if a server listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def unix_socket(path: Path) -> socket.socket:
    """Return a Unix socket in a folder that only its owner can write to.

    The socket of a killed server is replaced. Raises `OSError`, also if another server answers at the path.
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
            listener.listen(BACKLOG)  # from here on, clients wait instead of being refused
        finally:
            os.umask(before)
    except OSError:
        listener.close()
        raise
    return listener
