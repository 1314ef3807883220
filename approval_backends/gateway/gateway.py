"""The gateway: one address of its own for all approvers, over one broker. It listens, and knows approvers by tokens."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self, cast
from weakref import WeakSet

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response

from amplifier_hooks.clock import TokenBucket
from amplifier_hooks.text.host_names import local_names
from approval_backends.gateway.approvers import SOCKET, Approver, Gate, TurnedAway
from approval_backends.gateway.client_hub import ClientHub
from approval_backends.gateway.page_files import Assets, PageResponse, text_response
from approval_backends.gateway.wire.frames import MAX_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from websockets.asyncio.server import Server

    from amplifier_hooks.ports import AuditSink
    from approval_backends.broker import Broker
    from approval_backends.gateway.client_hub import GatewayLimits
    from approval_backends.gateway.rpc_methods import Tails
    from approval_backends.lifecycle import Decider


MOST_QUEUED: Final = 1024 * 1024
"""Bytes that may wait to be sent beside our own messages: answers to pings, which have no other bound."""
FRAGMENTS: Final = 1_024
"""Pieces of one message; empty pieces add nothing to its size."""
CONTROL_RATE: Final = 50
CONTROL_AT_ONCE: Final = 200


class BoundedConnection(ServerConnection):
    """A connection that pings, pieces of a message, or unread answers cannot flood."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pieces = 0
        self._control = TokenBucket(CONTROL_RATE, CONTROL_AT_ONCE)

    def cut(self) -> None:
        """Close at once, whatever the peer does. Calling `cut` twice is harmless."""
        transport = getattr(self, "transport", None)  # there is none before there is a peer
        if transport is not None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read, and abort the connection of a peer that makes us write and does not read."""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_QUEUED:
            self.transport.abort()

    def process_event(self, event: Frame | Request | Response) -> None:
        """Handle an event, and count pings and pieces, which have no size."""
        super().process_event(event)
        if not isinstance(event, Frame):
            return
        if event.opcode in (Opcode.PING, Opcode.PONG):
            if self._control.seconds_to_wait(self.loop.time()):
                self._refuse("too many pings")
        else:
            self._pieces = 0 if event.fin else self._pieces + 1
            if self._pieces > FRAGMENTS:
                self._refuse("a message in too many pieces")

    def _refuse(self, reason: str) -> None:
        self.protocol.fail(CloseCode.POLICY_VIOLATION, reason)
        self.send_data()


class QuietLog(logging.LoggerAdapter[logging.Logger]):
    """The library's log without what it read: at debug level it would print headers and messages, tokens included."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  # the name logging has
        """Return False for the debug level."""
        return level > logging.DEBUG and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Replace an exception by its type: its text may hold what was read."""
        problem = kwargs.pop("exc_info", None)
        if problem:
            import sys

            kind = sys.exc_info()[0]
            msg = f"{msg} ({kind.__name__ if kind else 'unknown'})"
        return msg, kwargs


class Gateway(ClientHub):
    """Serves the page and the socket. Use it as an async context manager, or `open` and `close` it.

    The gateway listens on loopback. An address that others can reach needs `names`, the hosts (with port) under which
    browsers know it: the gateway does not encrypt, so put a proxy with TLS in front. Without `approvers` there is one,
    who may decide, with a token made now. `audit` receives the gateway's own records.

    Raises `ValueError` for an address that others can reach and no names.
    """

    def __init__(
        self,
        broker: Broker,
        approvers: Iterable[Approver] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Iterable[str] = (),
        bounds: GatewayLimits | None = None,
        audit: AuditSink | None = None,
        tails: Tails | None = None,
        assets: Assets | None = None,
    ) -> None:
        super().__init__(broker, bounds=bounds, audit=audit, tails=tails)
        self.approvers = tuple(approvers) or (Approver(name="web user"),)
        self._names = tuple(names)
        if not self._names and not is_loopback(host):
            raise ValueError(f"others can reach {host}: say under which names, such as names=['approvals.example.com']")
        self._address = (host, port)
        self._gate = Gate(self.approvers, ())
        self._assets = assets or Assets()
        self._connections: WeakSet[BoundedConnection] = WeakSet()
        self._server: Server | None = None

    # -- from outside --------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port on which the gateway listens."""
        return self._address[1]

    @property
    def address(self) -> str:
        """The address of the page."""
        host, port = self._address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def link(self, approver: Approver | None = None) -> str:
        """Return the address to open in a browser. It holds the token, in the part that browsers do not send."""
        return f"{self.address}#t={(approver or self.approvers[0]).token}"

    async def open(self) -> Self:
        """Listen, and follow the store, which has to be open.

        Raises `OSError` if the address is taken, and `StoreUnavailable`; then nothing is left running. Opening twice
        is harmless.
        """
        if self._server is not None:
            return self
        await self._waiting.refresh()
        host, port = self._address
        self._gate = Gate(self.approvers, self._own_names())  # a client may know a port that was given
        try:
            self._server = await serve(
                self._handle,
                host,
                port,
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                process_request=self._request,
                create_connection=self._new_connection,  # type: ignore[arg-type]  # it is only called
                compression=None,
                max_size=MAX_MESSAGE,
                max_queue=4,
                open_timeout=self.bounds.authenticate_within,
                ping_interval=self.bounds.ping_every,
                ping_timeout=self.bounds.ping_every,
                close_timeout=1,
                server_header=None,
                logger=QuietLog(logging.getLogger(f"{__name__}.websockets"), {}),
            )
        except OSError as error:  # asyncio's error does not name the address as a field
            raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
        listening, *_ = self._server.sockets
        self._address = (host, listening.getsockname()[1])
        self._gate = Gate(self.approvers, self._own_names())
        self._follow()
        return self

    async def close(self) -> None:
        """Tell every client to come again later, and end within `bounds.stop_within`. Closing twice is harmless."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close(close_connections=False)
        self.dismiss_all()
        gone = asyncio.ensure_future(server.wait_closed())
        await asyncio.wait({gone}, timeout=self.bounds.stop_within)
        for connection in list(self._connections):  # in their handshake, or not closing
            connection.cut()
        await asyncio.wait({gone}, timeout=self.bounds.stop_within)
        own = {task for task in (gone, *self._closing, self._watching) if task is not None}
        for task in own:
            task.cancel()
        await asyncio.wait(own)
        self._watching = None

    # -- for client sessions -------------------------------------------------------------------------------------------

    def decider_of(self, token: str) -> Decider | None:
        """Return the approver of this token, or None."""
        return self._gate.decider_of(token)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _new_connection(self, *arguments: Any, **options: Any) -> BoundedConnection:
        """Return a connection, before its first message."""
        connection = BoundedConnection(*arguments, **options)
        self._connections.add(connection)
        return connection

    async def _handle(self, connection: ServerConnection) -> None:
        """Serve one client, as the approver of its token if it sent one with its request."""
        admitted = self._admit(connection.request)
        decider = None if isinstance(admitted, TurnedAway) else admitted
        await self.serve_client(cast("BoundedConnection", connection), decider)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _admit(self, request: Request | None) -> Decider | TurnedAway | None:
        if request is None:
            return TurnedAway(400, "No request.")
        names = ("Host", "Origin", "Authorization")
        hosts, origins, authorizations = (request.headers.get_all(name) for name in names)
        return self._gate.admit(_path(request), hosts, origins, authorizations, time.monotonic())

    def _request(self, _connection: ServerConnection, request: Request) -> Response | None:
        """Return the page or a part of it for an admitted request, None to open the socket, an error for any other."""
        admitted, path = self._admit(request), _path(request)
        if isinstance(admitted, TurnedAway):
            scheme = {"WWW-Authenticate": "Bearer"} if admitted.status == HTTPStatus.UNAUTHORIZED else {}
            return _response(text_response(admitted.status, admitted.reason, scheme))
        method = getattr(request, "method", "GET")  # before websockets 17 there is no other
        if path == SOCKET:
            return None if method == "GET" else _response(text_response(405, "Only GET."))
        tags, accepted = (request.headers.get_all(name) for name in ("If-None-Match", "Accept-Encoding"))
        return _response(self._assets.respond(method, path, tags, accepted))

    def _own_names(self) -> set[str]:
        """Return the hosts that a request to this gateway may name."""
        host, port = self._address
        there = local_names(port, f"[{host}]" if ":" in host else host)
        return {*self._names, *(there if is_loopback(host) else ())}


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _path(request: Request) -> str:
    return request.path.partition("?")[0]


def _response(page: PageResponse) -> Response:
    headers = Headers({**page.headers, "Connection": "close"})
    return Response(page.status, HTTPStatus(page.status).phrase, headers, page.body)
