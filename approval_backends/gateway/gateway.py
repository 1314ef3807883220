"""The gateway: one address for all approvers, over one broker.

    store ── wakes ──▶ WaitingRequests ── changes ──▶ every ClientSession ── one sender each ──▶ its client
    client ── calls, answers ──▶ ClientSession ──▶ RpcMethods ──▶ broker ──▶ store

The store is the truth. Nothing is decided here, and nothing is remembered that a second gateway would have to know.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from attrs import define
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.text.host_names import local_names
from approval_backends.card.count_files import find_card_facts
from approval_backends.gateway.approvers import Approver, Approvers
from approval_backends.gateway.client_session import TOO_SLOW, UNKNOWN_TOKEN, ClientSession
from approval_backends.gateway.edge.connection import BoundedConnection, QuietLog
from approval_backends.gateway.edge.limits import GatewayLimits
from approval_backends.gateway.edge.origin_check import SOCKET, Admitted, Gate, TurnedAway
from approval_backends.gateway.gateway_record import GatewayRecord, Tails, WatchedSink
from approval_backends.gateway.page_files import HEADERS, Assets
from approval_backends.gateway.rpc_methods import RpcMethods
from approval_backends.gateway.waiting_requests import RequestChange, WaitingRequests
from approval_backends.gateway.wire.frames import MAX_MESSAGE, Note, encode_json, write_frame
from approval_backends.gateway.wire.messages import OURS, Added, Changed, Resolved, TailNote, fields, notification_text
from approval_backends.gateway.wire.record_messages import ending, permission, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from websockets.asyncio.server import Server

    from amplifier_hooks.ports import AuditSink
    from approval_backends.broker import Broker
    from approval_backends.gateway.wire.messages import TailLine, WireMessage
    from approval_backends.lifecycle import Decider, RequestRecord


RESTARTS: Final = 1012
GOODBYE: Final = 1.5
"""Seconds for telling a client why it has to go."""
AFTER_TROUBLE: Final = 1.0
QUESTION_AGE: Final = 1.0
"""Seconds for which the time in a question counts as the time now."""

log = logging.getLogger(__name__)

TELL: Final = {
    "added": ClientSession.tell_added,
    "resolved": ClientSession.tell_resolved,
    "changed": ClientSession.tell_changed,
}
"""Tells a client of a change of a request, by the kind of the change."""


class Gateway:
    """Serves the page and the socket. Use it as an async context manager, or `start` and `stop` it.

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
        self.bounds = bounds or GatewayLimits()
        self.approvers = tuple(approvers) or (Approver(name="web user"),)
        self._names = tuple(names)
        if not self._names and not _is_loopback(host):
            raise ValueError(f"others can reach {host}: say under which names, such as names=['approvals.example.com']")
        self._address = (host, port)
        self._broker = broker
        self._tokens = Approvers(self.approvers)
        self._gate = Gate(self._tokens, ())
        self._waiting = WaitingRequests(broker.store)
        self._tails = tails or Tails()
        self._tails.on_line = self._line
        self.methods = RpcMethods(broker, self._waiting, GatewayRecord(audit, lambda: self._waiting.now), self._tails)
        self._assets = assets or Assets()
        self._clients: dict[ClientSession, _ClientConnection] = {}
        self._questions: dict[str, tuple[float, str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._connections: WeakSet[BoundedConnection] = WeakSet()
        self._server: Server | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

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

    async def start(self) -> Self:
        """Listen, and follow the store, which has to be open.

        Raises `OSError` if the address is taken, and `StoreUnavailable`; then nothing is left running. Starting twice
        is harmless.
        """
        if self._server is not None:
            return self
        await self._waiting.refresh()
        host, port = self._address
        listening = _bound_socket(host, port)
        self._address = (host, listening.getsockname()[1])
        self._gate = Gate(self._tokens, self._own_names())
        try:
            self._server = await serve(
                self._handle,
                sock=listening,
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
        except BaseException:
            listening.close()
            raise
        self._watching = asyncio.create_task(self._watch())
        return self

    async def stop(self) -> None:
        """Tell every client to come again later, and end within `bounds.stop_within`. Stopping twice is harmless."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close(close_connections=False)
        for client in list(self._clients):
            self._dismiss(client, RESTARTS, "the gateway stops")
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

    def watched_sink(self, sink: AuditSink) -> WatchedSink:
        """Return a sink that writes to `sink`, and shows each line to the clients that follow its session."""
        return WatchedSink(sink, self._tails)

    # -- for client sessions -------------------------------------------------------------------------------------------

    def decider_of(self, token: str) -> Decider | None:
        """Return the approver of this token, or None."""
        return self._gate.decider_of(token)

    def register_client(self, client: ClientSession) -> bool:
        """Return True if the client may have one of the places for authenticated clients; False if all are taken."""
        others = sum(one.decider is not None for one in self._clients if one is not client)
        return others < self.bounds.clients

    async def waiting(self, by: Decider) -> list[RequestRecord]:
        """Return the pending requests that the approver may see, read from the store just now.

        Raises `StoreUnavailable`.
        """
        self._tell(await self._waiting.refresh())
        return list(self._waiting.visible_to(by))

    async def question(self, request_id: str) -> str | None:
        """Return the parameters of `session/request_permission`, or None for a request that cannot be shown.

        Clients that ask within one second share one text.
        """
        record = self._waiting.get(request_id)
        if record is None:
            return None
        made, text = self._questions.get(request_id, (0.0, ""))
        if time.monotonic() - made > QUESTION_AGE:
            facts = await find_card_facts(record.request, await self._broker.session_requests(record.request))
            try:
                text = encode_json(fields(permission(record, self._waiting.now, facts)))
            except ApprovalMismatch:
                log.exception("gateway_failed")
                return None
            if self._waiting.get(request_id) is None:  # it has ended meanwhile
                return None
            self._questions[request_id] = (time.monotonic(), text)
        return text

    def announce_grants(self) -> None:
        """Tell every client that a grant was made or ended."""
        text = write_frame(Note(f"{OURS}grants_changed"))
        for client in list(self._clients):
            client.tell_grants_changed(text)

    # -- news ----------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Read the store whenever it changed, and now and then."""
        trouble = False
        with self._broker.watch() as watch:
            while True:
                pause = AFTER_TROUBLE
                try:
                    self._tell(await self._waiting.refresh())
                    pause, trouble = self._waiting.pause, False
                except StoreUnavailable as problem:
                    if not trouble:  # once, not every second
                        log.warning("gateway_store_unavailable error=%s", problem)
                    trouble = True
                except Exception:
                    log.exception("gateway_failed")
                await watch.wait(pause)

    def _tell(self, news: Iterable[RequestChange]) -> None:
        for one in news:
            try:
                text = self._note(one)
            except Exception:  # one odd request that cannot be announced must not silence the others
                log.exception("gateway_failed")
                continue
            for client in list(self._clients):
                TELL[one.kind](client, one.record, text)
            if one.kind == "resolved":
                self._questions.pop(one.record.id, None)
            if _makes_grant(one.record):
                self.announce_grants()
        for client in list(self._clients):
            client.tell_stops(self._waiting.stops, self._waiting.now)

    def _note(self, one: RequestChange) -> str:
        record, now = one.record, self._waiting.now
        message: WireMessage
        if one.kind == "added":
            message = Added(row=row(record), server_time=now)
        elif one.kind == "changed":
            message = Changed(request_id=record.id, status=record.status, server_time=now)
        else:
            message = Resolved(
                request_id=record.id, session_id=record.request.session, ending=ending(record), server_time=now
            )
        return notification_text(f"{OURS}{one.kind}", message)

    def _line(self, key: tuple[str, str], line: TailLine) -> None:
        if self._server is None or all(client.tailing is None for client in self._clients):
            return
        note = TailNote(session_id=key[1], line=line, server_time=self._waiting.now)
        text = notification_text(f"{OURS}line", note)
        for client in list(self._clients):
            client.tell_line(key, text)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _new_connection(self, *arguments: Any, **options: Any) -> BoundedConnection:
        """Return a connection, before its first message."""
        connection = BoundedConnection(*arguments, **options)
        self._connections.add(connection)
        return connection

    async def _handle(self, connection: ServerConnection) -> None:
        """Serve one client, until it leaves or its time is over."""
        loop = asyncio.get_running_loop()
        admitted = self._admit(connection.request)
        decider = admitted.decider if isinstance(admitted, Admitted) else None
        client = ClientSession(self, lambda code, reason: self._dismiss(client, code, reason), decider)
        sender = asyncio.create_task(self._send(client, connection))
        self._clients[client] = _ClientConnection(connection, sender)
        if decider is not None and not self.register_client(client):
            client.dismiss(TOO_SLOW, "all places are taken")
        self._make_room()
        timers = [
            loop.call_later(self.bounds.authenticate_within, self._dismiss_unknown, client),
            loop.call_later(self.bounds.lifetime, client.dismiss, UNKNOWN_TOKEN, "send your token again"),
        ]
        try:
            async for message in connection:
                if isinstance(message, str):
                    await client.handle_message(message)
        except ConnectionClosed:
            pass
        finally:
            for timer in timers:
                timer.cancel()
            sender.cancel()
            del self._clients[client]

    async def _send(self, client: ClientSession, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                await connection.send(await client.next())

    def _dismiss_unknown(self, client: ClientSession) -> None:
        if client.decider is None:
            client.dismiss(UNKNOWN_TOKEN, "no token came in time")

    def _make_room(self) -> None:
        """Dismiss the oldest unauthenticated client if there are too many of them."""
        strangers = [one for one, seat in self._clients.items() if one.decider is None and not seat.leaving]
        if len(strangers) > self.bounds.strangers:
            strangers[0].dismiss(TOO_SLOW, "too many connections without a token")

    def _dismiss(self, client: ClientSession, code: int, reason: str) -> None:
        """Close a connection. Its sender may be stuck, and would keep the closing frame back."""
        seat = self._clients.get(client)
        if seat is not None and not seat.leaving:
            seat.leaving = True
            seat.sender.cancel()
            task = asyncio.create_task(self._say_goodbye(seat.connection, client, code, reason))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _say_goodbye(self, connection: ServerConnection, client: ClientSession, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(GOODBYE):
                for text in client.last_words():
                    await connection.send(text)
                await connection.close(code, reason)
        except (TimeoutError, ConnectionClosed):
            connection.transport.abort()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _admit(self, request: Request | None) -> Admitted | TurnedAway:
        if request is None:
            return TurnedAway(400, "No request.")
        names = ("Host", "Origin", "Authorization")
        hosts, origins, authorizations = (request.headers.get_all(name) for name in names)
        return self._gate.admit(_path(request), hosts, origins, authorizations, time.monotonic())

    def _request(self, _connection: ServerConnection, request: Request) -> Response | None:
        """Return the page or a part of it for an admitted request, None to open the socket, an error for any other."""
        admitted, path = self._admit(request), _path(request)
        if isinstance(admitted, TurnedAway):
            return _response(admitted.status, admitted.reason)
        method = getattr(request, "method", "GET")  # before websockets 17 there is no other
        if method not in (("GET",) if path == SOCKET else ("GET", "HEAD")):
            return _response(405, "Only GET.")
        if path == SOCKET:
            return None
        asset = self._assets.find(path)
        if asset is None:
            return _response(404, "There is nothing here.")
        known = asset.tag in request.headers.get_all("If-None-Match")
        body, headers = asset.content_for(",".join(request.headers.get_all("Accept-Encoding")))
        content = b"" if known or method == "HEAD" else body
        return _response(304 if known else 200, content, headers, length=None if known else len(body))

    def _own_names(self) -> set[str]:
        """Return the hosts that a request to this gateway may name."""
        host, port = self._address
        there = local_names(port, f"[{host}]" if ":" in host else host)
        return {*self._names, *(there if _is_loopback(host) else ())}


@define
class _ClientConnection:
    """A client's connection, the task that sends to it, and whether it was told to go."""

    connection: ServerConnection
    sender: asyncio.Task[None]
    leaving: bool = False


def _bound_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that the port is known before a client can connect.

    The socket names its protocol, because asyncio only then sends small messages at once.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _makes_grant(record: RequestRecord) -> bool:
    decision = None if record.status == "approved" else record.decision
    return decision is not None and any(one.lasts for one in record.request.options if one.id == decision.option)


def _path(request: Request) -> str:
    return request.path.partition("?")[0]


def _response(
    status: int, content: str | bytes, headers: Mapping[str, str] | None = None, *, length: int | None = None
) -> Response:
    body = content if isinstance(content, bytes) else f"{content}\n".encode()
    found = {"Content-Type": "text/plain; charset=utf-8", **HEADERS, **(headers or {}), "Connection": "close"}
    if status != HTTPStatus.NOT_MODIFIED:
        found["Content-Length"] = str(len(body) if length is None else length)
    if status == HTTPStatus.UNAUTHORIZED:
        found["WWW-Authenticate"] = "Bearer"
    return Response(status, HTTPStatus(status).phrase, Headers(found), body)
