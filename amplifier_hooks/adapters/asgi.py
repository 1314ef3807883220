"""HTTP applications: every request of a Starlette, FastAPI or other ASGI application passes through hooks.

    app.add_middleware(HooksMiddleware, hooks=registry)   # added before the authentication, so that it runs after it

`request:pre` is asked before the application sees a request, `request:post` before the first byte of a response goes
out; middleware of `request` encloses both. Without a hook the middleware reads, copies and holds nothing.

Where tenants have hooks, a request or WebSocket without a tenant is refused, except on paths that the host names as
public.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http.client import responses
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from attrs import define, field

from amplifier_hooks.act import MAX_DEPTH
from amplifier_hooks.dispatch.middleware import RequestContext, Rests
from amplifier_hooks.errors import EmitTooDeep, HookAbortError, InvalidRegistration
from amplifier_hooks.events import REQUEST_POST, REQUEST_PRE
from amplifier_hooks.logs import get_logger
from amplifier_hooks.text.escape import clip, for_log
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping

    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Outcome

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]
    Pairs = Iterable[tuple[bytes, bytes]]

__all__ = ["HooksMiddleware", "tenant_of_user"]


OPERATION: Final = "request"
HIDDEN: Final = "(hidden)"
CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
"""Headers whose values are hidden from hooks."""
FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection"})
"""Headers that say how a response is carried. Hooks cannot change them."""
LARGEST_BODY: Final = 1024 * 1024
LONGEST_REASON: Final = 1_000
BODILESS: Final = frozenset({204, 304})
JSON: Final = re.compile(r"application/(?:[\w.-]+\+)?json")
"""Content types of bodies that are read as JSON."""
TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
FIELD: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
"""Names and values that a header can have."""
PUBLIC: Final = re.compile(r"/[^*]*|/[^*]+/\*")
"""A path of the host's choice, or all paths below it."""
NOWHERE: Final = frozenset({"", ".", ".."})
"""Segments of a path that an application may read as another path."""
READINGS: Final = 3
"""Times that the escapes of a public path are read. A path that has more leads elsewhere."""
NO_TENANT: Final = "sign in: no tenant is known for this request, and the hooks here belong to tenants"
POLICY_VIOLATION: Final = 1008
DECIDED: Final = ("headers", "body")
"""Fields of a request that hooks decide about: a change in place refuses the request."""
LOOKS: Final = 8
"""Maximum of further looks because hooks have changed while they were asked."""
TOO_MANY_CHANGES: Final = "the hooks were changed each time before they had answered"

log = get_logger(__name__)


def tenant_of_user(scope: Scope) -> str:
    """Return `tenant_id` or `tenant` of the authenticated user; `""` if there is none, or if two users differ.

    The user is `scope["user"]`, as Starlette's authentication keeps it, or `request.state.user`.

    Args:
        scope: Scope of the ASGI request.
    """
    found = set()
    for user in (scope.get("user"), _part(scope.get("state"), "user")):
        named = (_part(user, name) for name in ("tenant_id", "tenant"))
        found |= {*[tenant for tenant in named if isinstance(tenant, str) and tenant][:1]}
    return found.pop() if len(found) == 1 else ""


def _part(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _public_paths(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(path, str) and PUBLIC.fullmatch(path) for path in given):
        raise InvalidRegistration(f"public={given!r:.100}: list paths, as '/login' or '/static/*'")
    return tuple(given)


@define(eq=False)
class HooksMiddleware:
    """ASGI middleware that puts requests under hooks.

    Args:
        app: The application inside.
        hooks: The registry.
        tenant: Returns the tenant of a request as text, or `""` or None for none; any other value fails the request.
            Add the middleware so that it runs after the authentication, because a claim of the request itself must not
            count.
        largest_body: Bytes of a body that hooks are shown. A larger body is refused with 413, because a hook that has
            not seen it could not have stopped it. Declared JSON that two readers could understand differently is
            refused with 400.
        tenants: True if every request needs a tenant, False if none does. By default requests need one while a hook of
            a tenant is registered. Tenants that may come and go need True.
        public: Paths that need no tenant: `/login`, or `/static/*` for all paths below. Hooks see their requests, too.
        read_body: True if hooks are shown bodies. If False, the middleware reads nothing before the application does.

    A denial is 403 with the reason; so is a question, because an HTTP request has no approver, and a request without
    the tenant it needs. Hooks see no credentials: such headers say `(hidden)`, and stay as they are. A WebSocket
    without the tenant it needs is closed before it opens; other WebSockets and the application's lifespan pass by.

    Raises `InvalidRegistration` for public paths that are none.
    """

    app: Application
    hooks: HookRegistry
    tenant: Callable[[Scope], str] = tenant_of_user
    largest_body: int = field(default=LARGEST_BODY, kw_only=True)
    tenants: bool | None = field(default=None, kw_only=True)
    public: Collection[str] = field(default=(), kw_only=True, converter=_public_paths)
    read_body: bool = field(default=True, kw_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer if the hooks allow it. Raise any error that the application raises."""
        hooks, kind = self.hooks, scope["type"]
        heard = kind == "http" and (
            hooks.is_heard(REQUEST_PRE) or hooks.is_heard(REQUEST_POST) or hooks.wraps(OPERATION)
        )
        needed = kind != "lifespan" and self._needs_tenant(scope)
        tenant = self._tenant_of(scope) if heard or needed else ""
        if needed and not tenant:
            log.info("request_without_tenant", path=clip(for_log(scope["path"]), LONGEST_REASON))
            if kind == "http":
                await send_problem(send, 403, "no_tenant", NO_TENANT)
            else:
                await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": NO_TENANT})
            return
        if not heard:
            await self.app(scope, receive, send)
            return
        passage = HookedRequest(self, scope, receive, send, tenant=tenant)
        try:
            await passage.carry_out()
        except EmitTooDeep as circle:
            if passage.started:
                raise
            await passage.refuse(508, "hooks_in_a_circle", str(circle))
        finally:
            await passage.rests.end()
            for outcome in passage.outcomes:
                if hooks.is_watched(outcome.event):
                    await hooks.notify(outcome)

    def _tenant_of(self, scope: Scope) -> str:
        """Return the tenant of a request; empty if it has none. Raises `InvalidRegistration` for any other value."""
        tenant: object = self.tenant(scope)
        if tenant is not None and not isinstance(tenant, str):
            kind = type(tenant).__name__  # no hook of a tenant would see the request
            raise InvalidRegistration(f"tenant= returned a value of type {kind}; return text, or '' for no tenant")
        return tenant or ""

    def _needs_tenant(self, scope: Scope) -> bool:
        """Return True if a request may not pass without a tenant."""
        needs = self.hooks.has_tenants() if self.tenants is None else self.tenants
        return needs and not is_public(scope["path"], self.public)


@define(eq=False)
class HookedRequest:
    """One request on its way."""

    owner: HooksMiddleware
    scope: Scope
    receive: Receive
    send: Send
    tenant: str = field(kw_only=True)
    started: bool = False
    """True once part of the response has gone out."""
    over: bool = False
    """True once nothing more of the application's response may go out."""
    outcomes: list[Outcome] = field(factory=list)
    """Outcomes that observers have yet to receive."""
    rests: Rests = field(factory=lambda: Rests(REQUEST_PRE))
    """The hook objects that wait for the response."""
    data: dict[str, Any] = field(init=False)
    began: float = field(factory=perf_counter)

    def __attrs_post_init__(self) -> None:
        self.data = {
            "tenant_id": self.tenant,
            "method": self.scope["method"],
            "path": self.scope["path"],
            "headers": visible_headers(self.scope["headers"]),
            "body": None,
        }

    async def carry_out(self) -> None:
        """Ask the hooks, let the application answer, and ask the hooks about the response."""
        hooks = self.owner.hooks
        if self.owner.read_body and not await self._read():
            return
        reason = await self._decide()
        if reason is not None:
            self.rests.why = reason
            await self.refuse(403, "denied", reason)
            return
        if self.rests.waiting or hooks.wraps(OPERATION):
            await self._call_with_middleware()
        elif hooks.is_heard(REQUEST_POST):
            await self._call_app(self._pass_on)
        else:
            await self.owner.app(self.scope, self.receive, self.send)

    async def _decide(self) -> str | None:
        """Ask the hooks, and again if they change meanwhile. Return the reason of a refusal, or None."""
        hooks = self.owner.hooks
        before = hooks.in_force(REQUEST_PRE)
        outcome = await hooks.emit(REQUEST_PRE, self.data, notify=False, exact=DECIDED, rests=self.rests)
        for _ in range(LOOKS):
            reason, now = denial_reason(outcome), hooks.in_force(REQUEST_PRE)
            if reason is not None or now is before:
                break
            outcome, before = await hooks.look_again(outcome, self.data, before, DECIDED, self.rests), now
        else:
            reason = TOO_MANY_CHANGES
        self.outcomes.append(outcome)
        return reason

    async def refuse(self, status: int, code: str, detail: str) -> None:
        """Answer in place of the application."""
        self.started = self.over = True
        await send_problem(self.send, status, code, detail)

    # -- the request ---------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Read the body, and replay it to the application. Return False if the body was refused."""
        messages: list[Message] = []
        largest, size, more = self.owner.largest_body, 0, True
        while more and size <= largest:
            message = await self.receive()
            messages.append(message)
            size += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        problem: tuple[int, str, str] | None = None
        try:
            if size > largest:
                problem = 413, "too_large", f"a body has at most {largest:,} bytes here"
            else:
                body = b"".join(message.get("body", b"") for message in messages)
                self.data["body"] = readable_body(body, self.data["headers"].get("content-type", ""))
        except (ValueError, RecursionError) as error:
            problem = 400, "no_json", f"the body is no plain JSON: {error}"
        if problem is not None and self._has_effect():
            await self.refuse(*problem)
            return False
        original, left = self.receive, messages[::-1]

        async def again() -> Message:
            return left.pop() if left else await original()

        self.receive = again
        return True

    def _has_effect(self) -> bool:
        """Return True if a hook is in force here that is not report-only."""
        chains = (self.owner.hooks.in_force(event) for event in (REQUEST_PRE, REQUEST_POST))
        hooks = [hook for chain in chains for hook in (*chain.participants, *chain.observers)]
        return self.owner.hooks.wraps(OPERATION) or not all(hook.report_only for hook in hooks)

    # -- the response --------------------------------------------------------------------------------------------------

    async def _call_app(self, send: Send) -> None:
        """Let the application answer. If it fails, show the hooks the status 500 that its error becomes."""
        try:
            await self.owner.app(self.scope, self.receive, send)
        except Exception:
            if not self.started:
                self.outcomes.append(await self._judge_response(500, []))
            raise

    async def _pass_on(self, message: Message) -> None:
        """Send a part of the response; the first part only after the hooks have seen it."""
        if self.over:
            return
        if message["type"] == "http.response.start":
            message = await self._first_part(message)
        await self.send(message)

    async def _first_part(self, message: Message) -> Message:
        pairs = list(message.get("headers", ()))
        outcome = await self._judge_response(message["status"], pairs)
        self.outcomes.append(outcome)
        self.started = True
        if not outcome.modified:
            return message
        status, given = outcome.data["status_code"], outcome.data["response_headers"]
        return {**message, "status": valid_status(status, message["status"]), "headers": apply_headers(pairs, given)}

    async def _judge_response(self, status: int, pairs: Pairs) -> Outcome:
        elapsed = (perf_counter() - self.began) * 1e3
        facts = {"status_code": status, "response_headers": visible_headers(pairs), "duration_ms": elapsed}
        return await self.owner.hooks.decide(REQUEST_POST, {**self.data, **facts})

    async def _call_with_middleware(self) -> None:
        """Hold the response until all middleware is through, because middleware may replace it."""
        held: list[Message] = []
        given = {name: self.data[name] for name in ("tenant_id", "method", "path", "headers", "body")}
        context = RequestContext(event_type=REQUEST_PRE, **given)

        async def hold(message: Message) -> None:
            held.append(message)

        async def call() -> None:
            await self._call_app(hold)
            if (first := next((one for one in held if one["type"] == "http.response.start"), None)) is not None:
                context.status_code = first["status"]
                context.response_headers = visible_headers(first.get("headers", ()))

        try:
            await self.owner.hooks.wrap(OPERATION, context, call, rests=self.rests.layers)
        except HookAbortError as abort:
            await self.refuse(403, "denied", abort.reason)
            return
        if not held:  # middleware answered in place of the application
            held = plain_response(context)
        for message in held:
            if message["type"] == "http.response.start" and context.status_code is not None:
                status = valid_status(context.status_code, message["status"])
                headers = apply_headers(list(message.get("headers", ())), context.response_headers)
                message = {**message, "status": status, "headers": headers}  # noqa: PLW2901  # the one that goes out
            await self._pass_on(message)


async def send_problem(send: Send, status: int, code: str, detail: str) -> None:
    """Send a response with a problem document."""
    text, title = clip(for_log(detail), LONGEST_REASON), responses.get(status, "Error")
    body = {"type": "about:blank", "title": title, "status": status, "detail": text, "code": code}
    for message in response(status, json.dumps(body).encode(), (b"content-type", b"application/problem+json")):
        await send(message)


def response(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> list[Message]:
    """Return a whole response, with the length of its body among the headers."""
    pairs = [*headers, (b"content-length", b"%d" % len(body))]
    start = {"type": "http.response.start", "status": status, "headers": pairs}
    return [start, {"type": "http.response.body", "body": body}]


def is_public(path: str, public: Collection[str]) -> bool:
    """Return True if the host has named this path, or a path above it with `/*`."""
    above = (name[:-1] for name in public if name.endswith("/*"))
    return path in public or any(path.startswith(name) and not leads_elsewhere(path[len(name) :]) for name in above)


def leads_elsewhere(path: str) -> bool:
    """Return True if an application, or a server behind it, may read these segments as another path.

    Escapes that are left in a path are read again by a server to which the application passes the path on.
    """
    for _ in range(READINGS):
        path = unquote(path)
    if path != unquote(path):
        return True
    segments = path.replace("\\", "/").split("/")
    return any(segment.partition(";")[0].strip() in NOWHERE for segment in segments)


def denial_reason(outcome: Outcome) -> str | None:
    """Return why the request is refused, or None if it goes on.

    A question is a refusal: an HTTP request has no approver.
    """
    if outcome.denied:
        return outcome.reason or f"denied by {outcome.denied_by or 'a hook'}"
    return "this needs an approval, and an HTTP request has no approver" if outcome.asks else None


def visible_headers(pairs: Pairs) -> dict[str, str]:
    """Return headers as hooks see them: names in lower case, repeated names joined, credentials hidden."""
    headers: dict[str, str] = {}
    for raw, value in pairs:
        name = raw.decode("latin-1").lower()
        text = HIDDEN if name in CREDENTIALS else value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers and name not in CREDENTIALS else text
    return headers


def readable_body(body: bytes, content_type: str) -> Any:
    """Return a body as hooks see it: parsed if declared as JSON, otherwise as text or, at worst, as bytes.

    Raises `ValueError` and `RecursionError` for declared JSON that two readers could understand differently.
    """
    if not body:
        return None
    if any(JSON.fullmatch(one.partition(";")[0].strip().lower()) for one in content_type.split(",")):  # named twice
        return load_json(body, deepest=MAX_DEPTH)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def valid_status(value: object, was: int) -> int:
    """Return `value` if a response can go out with this status, otherwise `was`."""
    sound = isinstance(value, int) and not isinstance(value, bool) and 200 <= value <= 599  # noqa: PLR2004  # HTTP's
    if not sound or (value in BODILESS) is not (was in BODILESS):
        if value != was:
            log.warning("hook_invalid_status", status=repr(value)[:40])
        return was
    return int(value)  # type: ignore[call-overload, no-any-return]  # sound: it is one


def apply_headers(pairs: list[tuple[bytes, bytes]], headers: object) -> list[tuple[bytes, bytes]]:
    """Return the headers as a hook changed them. An unchanged header stays the same to the byte."""
    before = visible_headers(pairs)
    after = headers_of(headers, before)
    kept = [(name, value) for name, value in pairs if after.get(_name(name)) == before[_name(name)]]
    new = [(name, value) for name, value in after.items() if before.get(name) != value]
    return kept + [(name.encode("latin-1"), value.encode("latin-1")) for name, value in new]


def headers_of(headers: object, before: Mapping[str, str]) -> dict[str, str]:
    """Return the valid headers of `headers`. The framing headers stay as they were."""
    after = {name: value for name, value in before.items() if name in FRAMING}
    given = headers.items() if isinstance(headers, dict) else before.items()
    for name, value in given:
        if isinstance(name, str) and name.lower() in FRAMING:
            continue
        if isinstance(name, str) and isinstance(value, str) and TOKEN.fullmatch(name) and FIELD.fullmatch(value):
            after[name.lower()] = value
        else:
            log.warning("hook_invalid_header", header=repr(name)[:60])
    return after


def plain_response(context: RequestContext) -> list[Message]:
    """Return the response of middleware that answered without the application."""
    result = context.result
    body = result if isinstance(result, bytes) else result.encode() if isinstance(result, str) else b""
    return response(valid_status(context.status_code, 200), body)


def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()
