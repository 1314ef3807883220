"""The gateway inside another ASGI application: requests of that application come in; its sign-in names the approver.

The application around has the port, the lifespan and the sign-in. Host and Origin are checked here all the same: a
cookie goes along with every request that any page makes its browser send.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from amplifier_hooks.text.host_names import local_names, turned_away
from approval_backends.gateway.approvers import REFUSALS, SOCKET
from approval_backends.gateway.client_hub import ClientHub
from approval_backends.gateway.client_session import UNKNOWN_TOKEN
from approval_backends.gateway.page_files import Assets, PageResponse, text_response
from approval_backends.gateway.wire.frames import MAX_MESSAGE
from approval_backends.lifecycle import Decider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from amplifier_hooks.ports import AuditSink
    from approval_backends.broker import Broker
    from approval_backends.gateway.client_hub import GatewayLimits
    from approval_backends.gateway.rpc_methods import Tails


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
SignIn: TypeAlias = Callable[[Scope], Decider | Awaitable[Decider | None] | None]
"""Returns the approver of a request, or None for a visitor who has not signed in."""

SIGN_IN_AGAIN: Final = 10.0
"""Seconds after which an open connection has to be signed in still."""
TOO_BIG: Final = 1009
FOREIGN: Final = 1008
NOT_OPEN: Final = 1013
SECURE: Final = ("https", "wss")
SIGNED_OUT: Final = "sign in to the application again"
CLOSED: Final = "The approvals are not open: enter them in the lifespan of the application."

log = logging.getLogger(__name__)


class MountedGateway(ClientHub):
    """An ASGI application that serves the page and the socket below the path at which it is mounted.

    `sign_in` gets the scope of a request and returns the `Decider` who sent it, or None. Without one, no page and no
    socket is served; an error of `sign_in` counts as None. An open connection is asked about again every
    `sign_in_again` seconds. `names` are the hosts, with ports, under which browsers know the application; without them,
    those of this machine at the port of the request.

    Raises `TypeError` if `sign_in` cannot be called.
    """

    def __init__(
        self,
        broker: Broker,
        sign_in: SignIn,
        *,
        names: Iterable[str] = (),
        bounds: GatewayLimits | None = None,
        audit: AuditSink | None = None,
        tails: Tails | None = None,
        sign_in_again: float = SIGN_IN_AGAIN,
    ) -> None:
        if not callable(sign_in):
            raise TypeError(f"sign_in is {sign_in!r}; pass a function that returns the Decider of a request, or None")
        super().__init__(broker, bounds=bounds, audit=audit, tails=tails)
        self._sign_in = sign_in
        self._names = frozenset(name.lower() for name in names)
        self._again = sign_in_again
        self._assets = Assets(by_host=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one socket."""
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        elif scope["type"] == "http":
            await _send_response(await self._respond(scope), send)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _respond(self, scope: Scope) -> PageResponse:
        foreign = self._foreign_header(scope)
        if foreign is not None:
            return text_response(REFUSALS[foreign].status, REFUSALS[foreign].reason)
        path = _path_below_mount(scope)
        if path == "":
            return text_response(308, "The page is one slash further.", {"Location": f"{scope.get('root_path', '')}/"})
        if path == "/" and await self._find_decider(scope) is None:
            return text_response(401, "Sign in first; then load this page again.")
        tags, accepted = _headers(scope, b"if-none-match"), _headers(scope, b"accept-encoding")
        return self._assets.respond(scope["method"], path, tags, accepted)

    def _foreign_header(self, scope: Scope) -> str | None:
        """Return the header that does not name this application, or None."""
        hosts, origins = _headers(scope, b"host"), _headers(scope, b"origin")
        foreign = turned_away(self._names or local_names((scope.get("server") or ("", None))[1]), hosts, origins)
        insecure = any(origin.lower().startswith("http:") for origin in origins)
        return foreign or ("origin" if insecure and scope.get("scheme") in SECURE else None)

    async def _find_decider(self, scope: Scope) -> Decider | None:
        """Return the approver that the application signed in, or None."""
        try:
            found = self._sign_in(scope)
            decider: object = await found if inspect.isawaitable(found) else found
        except Exception:
            log.exception("gateway_sign_in_failed")
            return None
        if decider is None or isinstance(decider, Decider):
            return decider
        log.error("gateway_sign_in_failed error=it returned no Decider but %s", type(decider).__name__)
        return None

    # -- sockets -------------------------------------------------------------------------------------------------------

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        peer = AsgiPeer(receive, send)
        if self._foreign_header(scope) is not None or _path_below_mount(scope) != SOCKET:
            await peer.close(FOREIGN, "")  # before it is accepted: the server answers 403
            return
        if self._watching is None:
            await peer.close(NOT_OPEN, CLOSED)
            return
        decider = await self._find_decider(scope)
        await send({"type": "websocket.accept"})
        if decider is None:  # accepted only to be told so: a browser does not tell its page why a socket was refused
            await peer.close(UNKNOWN_TOKEN, SIGNED_OUT)
            return
        watching = asyncio.create_task(self._watch_sign_in(scope, decider, peer))
        try:
            await self.serve_client(peer, decider)
        finally:
            watching.cancel()

    async def _watch_sign_in(self, scope: Scope, decider: Decider, peer: AsgiPeer) -> None:
        """Close the connection once its sender is signed out, or is another approver."""
        while True:
            await asyncio.sleep(self._again)
            if await self._find_decider(scope) != decider:
                break
        client = next((one for one, seat in self._clients.items() if seat.connection is peer), None)
        if client is not None:
            client.dismiss(UNKNOWN_TOKEN, SIGNED_OUT)


class AsgiPeer:
    """A socket of an ASGI server. The server bounds its pings and pieces."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._cut = asyncio.Event()

    async def send(self, message: str) -> None:
        """Send a message. Raises `OSError` if the client has left."""
        await self._send({"type": "websocket.send", "text": message})

    async def close(self, code: int, reason: str) -> None:
        """Close the socket, with a code and a reason."""
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    def cut(self) -> None:
        """End the reading, so that the server drops the connection."""
        self._cut.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's messages until it leaves, or sends one that is too large."""
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            while True:
                receiving = asyncio.ensure_future(self._receive())
                try:
                    await asyncio.wait({receiving, cut}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not receiving.done():
                        receiving.cancel()
                if self._cut.is_set() or receiving.result()["type"] != "websocket.receive":
                    return
                text = receiving.result().get("text")
                if text is None:
                    continue
                if len(text.encode("utf-8", "surrogatepass")) > MAX_MESSAGE:
                    await self.close(TOO_BIG, "this message is too large")
                    return
                yield text
        finally:
            cut.cancel()


async def _send_response(page: PageResponse, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in page.headers.items()]
    await send({"type": "http.response.start", "status": page.status, "headers": headers})
    await send({"type": "http.response.body", "body": page.body})


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for known, value in scope["headers"] if known.lower() == name]


def _path_below_mount(scope: Scope) -> str:
    """Return the path below the mount. Frameworks differ on a path that has the mount's own path in front."""
    path, mount = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    return path.removeprefix(mount) if path == mount or path.startswith(f"{mount}/") else path
