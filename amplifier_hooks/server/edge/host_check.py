"""The edge of the HTTP API: raw requests come in; checked ones reach the application, others get a problem.

A page in a browser may use the API only if this server served it: Host and Origin have to be addresses of this server.
Security-relevant headers may not be repeated. A body is limited in size, time and depth, and is plain JSON: no key
twice, no NaN, no half characters. A request that breaks these rules gets a problem, and its connection may be closed.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, field, frozen

from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.text.host_names import local_names, turned_away
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


ONCE: Final = frozenset({b"authorization", b"content-encoding", b"content-length", b"content-type", b"sec-fetch-site"})
CAREFUL: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
HANG_UP: Final = {"connection": "close"}

LARGEST_NUMBER: Final = 2**63


def _hosts(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


@frozen(kw_only=True)
class HttpLimits:
    """Limits of a request. `names` are further hosts of this server, as requests write them: `hooks.example`."""

    body: int = 256 * 1024
    depth: int = 32
    seconds: float = 10.0
    names: frozenset[str] = field(default=frozenset(), converter=_hosts)


@define
class Edge:
    """ASGI middleware that checks requests before the application."""

    app: ASGIApp
    bounds: HttpLimits = field(factory=HttpLimits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on or answer with a problem."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no sockets here"})
            return
        headers, send = dict(scope["headers"]), _forbid_caching(send)
        try:
            self._check_host(scope, headers)
            body = await self._body(headers, receive)
            if body is None:
                return
            if body:
                _check(body, headers.get(b"content-type", b""), self.bounds.depth)
        except Problem as refusal:
            await refusal.response()(scope, receive, send)
            return
        await self.app(scope, _replay(body, receive), send)

    def _check_host(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        foreign = foreign_header(scope, self.bounds.names)
        if foreign == "host":
            detail = "this server does not go by that name and port; see --name"
            raise Problem(403, "unknown_host", detail, headers=HANG_UP)
        if foreign or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Problem(403, "foreign_origin", "pages of other origins may not ask anything here", headers=HANG_UP)
        names = [name for name, _ in scope["headers"] if name in ONCE]
        if len(names) > len(set(names)):
            raise Problem(400, "header_twice", "send each header once", headers=HANG_UP)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Read the whole body; None if the client has disconnected. Raises `Problem`."""
        said = headers.get(b"content-length", b"0")
        if not said.isdigit() or len(said) > 18 or int(said) > self.bounds.body:  # noqa: PLR2004  # digits of an integer
            raise self._too_large()
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            raise Problem(415, "encoded", "send the body as it is, without a content-encoding", headers=HANG_UP)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.bounds.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self.bounds.body:
                        raise self._too_large()
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            detail = f"the body did not arrive within {self.bounds.seconds:g} seconds"
            raise Problem(408, "too_slow", detail, headers=HANG_UP) from None

    def _too_large(self) -> Problem:
        return Problem(413, "too_large", f"a body has at most {self.bounds.body:,} bytes", headers=HANG_UP)


def foreign_header(scope: Scope, names: frozenset[str]) -> Literal["host", "origin"] | None:
    """Return the header that does not name this server, at the request's port or by these names; None if all do."""
    _, port = scope.get("server") or ("", None)
    sent: dict[bytes, list[str]] = {b"host": [], b"origin": []}
    for name, value in scope["headers"]:
        if name in sent:
            sent[name].append(value.decode("latin-1"))
    return turned_away(local_names(port) | names, sent[b"host"], sent[b"origin"])


def _forbid_caching(send: Send) -> Send:
    """Return a `send` that forbids caching of responses without cache headers of their own."""

    async def send_uncached(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = list(message.get("headers", ()))
            names = {name for name, _ in said}
            message["headers"] = said + [pair for pair in CAREFUL if pair[0] not in names]
        await send(message)

    return send_uncached


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body in one piece, and then further messages."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


# -- plain JSON --------------------------------------------------------------------------------------------------------


def _check(body: bytes, content_type: bytes, deepest: int) -> None:
    """Raise `Problem` for a body that is not plain JSON."""
    kind = content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Problem(415, "no_json", "send application/json", headers=HANG_UP)
    try:
        value = load_json(body, deepest=deepest, parse_int=_integer)
        json.dumps(value, ensure_ascii=False).encode()  # half a character has no bytes
    except (ValueError, RecursionError) as error:
        raise Problem(400, "no_json", f"the body is no plain JSON: {error}") from None


def _integer(digits: str) -> int:
    number = int(digits[:32])
    if abs(number) >= LARGEST_NUMBER:
        raise ValueError("an integer has more than 64 bits")
    return number
