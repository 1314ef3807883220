"""Requests of Starlette and FastAPI applications, under hooks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import httpx2
import pytest
from fastapi import Body, FastAPI
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from amplifier_hooks import HookAbortError, HookRegistry, HookResult
from amplifier_hooks.adapters.asgi import HooksMiddleware, tenant_of_user
from amplifier_hooks.dispatch.middleware import RequestContext
from amplifier_hooks.errors import InvalidRegistration, OperationNotRun
from tests.hooks import saying


class User(BaseUser):
    """A user of a tenant."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id


class Backend(AuthenticationBackend):
    """An authentication that believes a header."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return the user that the header names."""
        named = conn.headers.get("x-user-of")
        return (AuthCredentials(["authenticated"]), User(named)) if named else None


async def echo(request: Request) -> Response:
    """Return the request's body, with two cookies."""
    response = PlainTextResponse(await request.body() or b"hello")
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    return response


async def fails(request: Request) -> Response:
    """Raise the error of a bug."""
    raise RuntimeError("a bug")


async def streams(request: Request) -> Response:
    """Return a response in parts."""

    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield str(number).encode()

    return StreamingResponse(parts())


def starlette(registry: HookRegistry, **options: Any) -> Starlette:
    """Return a Starlette application with authentication."""
    routes = [Route("/echo", echo, methods=["GET", "POST"]), Route("/fails", fails), Route("/streams", streams)]
    middleware = [
        Middleware(AuthenticationMiddleware, backend=Backend()),
        Middleware(HooksMiddleware, hooks=registry, **options),
    ]
    return Starlette(routes=routes, middleware=middleware)


def fastapi(registry: HookRegistry, **options: Any) -> FastAPI:
    """Return a FastAPI application with authentication."""
    app = FastAPI()

    @app.get("/echo")
    async def get() -> Response:
        return PlainTextResponse("hello")

    @app.post("/echo")
    async def post(said: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        return said

    app.add_middleware(HooksMiddleware, hooks=registry, **options)
    app.add_middleware(AuthenticationMiddleware, backend=Backend())
    return app


def client(app: Any, *, raises: bool = True) -> httpx2.AsyncClient:
    """Return a client of an application."""
    transport = httpx2.ASGITransport(app, raise_app_exceptions=raises)
    return httpx2.AsyncClient(transport=transport, base_url="http://app")


APPS: list[Callable[..., Any]] = [starlette, fastapi]


@pytest.mark.rule("API-2", "API-5")
@pytest.mark.parametrize("make", APPS)
async def test_what_hooks_see(make: Callable[..., Any]) -> None:
    """Hooks see method, path, headers, body and the user's tenant, and afterwards status, headers and time, too."""
    registry = HookRegistry()
    seen: dict[str, Mapping[str, Any]] = {}
    for event in ("request:pre", "request:post"):
        registry.on(event, lambda event, data: seen.update({event: dict(data)}), name="look")
    async with client(make(registry)) as http:
        answer = await http.post("/echo?secret=1", json={"n": 1}, headers={"x-user-of": "acme", "Authorization": "s"})
    assert answer.status_code == 200
    assert "1" in answer.text
    before, after = seen["request:pre"], seen["request:post"]
    assert (before["method"], before["path"], before["body"]) == ("POST", "/echo", {"n": 1})
    assert (before["tenant_id"], before["headers"]["authorization"]) == ("acme", "(hidden)")
    assert before["headers"]["content-type"] == "application/json"
    assert (after["tenant_id"], after["status_code"]) == ("acme", 200)
    assert after["duration_ms"] > 0
    assert "content-type" in after["response_headers"]


@pytest.mark.rule("API-2")
@pytest.mark.parametrize("make", APPS)
async def test_an_abort_is_a_clear_error(make: Callable[..., Any]) -> None:
    """A denied request is 403 with the reason, as a problem; the application sees nothing of it."""
    registry = HookRegistry()
    registry.gate("request:pre", lambda event, data: HookResult.deny("not on\r\nSundays"), name="sundays")
    after: list[str] = []
    registry.on("request:post", lambda event, data: after.append(event), name="after")
    async with client(make(registry)) as http:
        answer = await http.get("/echo")
    body = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert (body["status"], body["code"]) == (403, "denied")
    assert "Sundays" in body["detail"]
    assert body["detail"].isprintable()
    assert after == []


@pytest.mark.rule("API-2")
async def test_what_nobody_can_be_asked() -> None:
    """A hook that fails at its gate, and one that asks, keep a request out."""
    for answer in (HookResult.ask("May they?"), 3):
        registry = HookRegistry()
        registry.gate("request:pre", saying(answer), name="g")
        async with client(starlette(registry)) as http:
            assert (await http.get("/echo")).status_code == 403


@pytest.mark.rule("API-5", "TEN-1")
async def test_only_the_hooks_of_the_users_tenant() -> None:
    """A tenant's hooks run for requests of its users, the system's for all; a request's own claim does not count."""
    registry = HookRegistry()
    ran: list[str] = []
    for tenant in ("", "acme", "other"):
        registry.gate(
            "request:pre", lambda event, data, who=tenant: ran.append(who), name=f"of {tenant}", tenant=tenant
        )
    async with client(starlette(registry)) as http:
        await http.get("/echo", headers={"x-user-of": "acme"})
        refused = await http.get("/echo?tenant_id=other", headers={"tenant_id": "other"})
    assert (ran, refused.status_code) == (["", "acme"], 403)


@pytest.mark.rule("API-5")
@pytest.mark.parametrize("make", APPS)
async def test_what_comes_after_may_change_headers_and_status(make: Callable[..., Any]) -> None:
    """Hooks can add, change and remove headers, and change the status; untouched headers stay."""
    registry = HookRegistry()

    def after(event: str, data: Any) -> HookResult:
        headers = {**data["response_headers"], "x-frame-options": "DENY"}
        headers.pop("content-type")
        return HookResult.modify({"response_headers": headers, "status_code": 203})

    registry.on("request:post", after)
    async with client(make(registry)) as http:
        answer = await http.get("/echo")
    assert (answer.status_code, answer.text) == (203, "hello")
    assert answer.headers["x-frame-options"] == "DENY"
    assert "content-type" not in answer.headers
    if make is starlette:
        assert len(answer.headers.get_list("set-cookie")) == 2


@pytest.mark.rule("API-5")
@pytest.mark.parametrize(
    "answer",
    [
        {"status_code": 204},
        {"status_code": 99},
        {"status_code": True},
        {"status_code": "200"},
        {"response_headers": "none"},
        {"response_headers": {"x-a": "1\r\nx-b: 2", "x y": "1", "x-c": 3}},
        {"response_headers": {"content-length": "1", "transfer-encoding": "chunked"}},
    ],
)
async def test_changes_that_would_break_a_response(answer: dict[str, Any]) -> None:
    """A status that needs no body, an invalid status, and headers that no response can have are ignored."""
    registry = HookRegistry()
    registry.on("request:post", lambda event, data: HookResult.modify(answer), name="after")
    async with client(starlette(registry)) as http:
        got = await http.get("/echo")
    assert (got.status_code, got.text, got.headers["content-length"]) == (200, "hello", "5")
    assert not {"x-a", "x-b", "x-c", "transfer-encoding"} & set(got.headers)


@pytest.mark.rule("API-2")
async def test_around_a_request() -> None:
    """Middleware encloses the request: it can change the response, answer in its place, or stop it."""
    registry = HookRegistry()
    ways: list[Any] = []

    @registry.around("request")
    async def layer(context: RequestContext, call_next: Any) -> None:
        if context.headers.get("x-way") == "stop":
            raise HookAbortError("closed")
        if context.headers.get("x-way") == "instead":
            context.status_code, context.result = 418, "teapot"
            return
        await call_next()
        ways.append((context.method, context.path, context.status_code))
        context.status_code = 202
        context.response_headers = {**context.response_headers, "x-layer": "1"}

    async with client(starlette(registry)) as http:
        changed = await http.get("/echo")
        stopped = await http.get("/echo", headers={"x-way": "stop"})
        instead = await http.get("/echo", headers={"x-way": "instead"})
    assert (changed.status_code, changed.text, changed.headers["x-layer"]) == (202, "hello", "1")
    assert ways == [("GET", "/echo", 200)]
    assert (stopped.status_code, stopped.json()["detail"]) == (403, "closed")
    assert (instead.status_code, instead.text) == (418, "teapot")


@pytest.mark.rule("API-2")
async def test_a_response_without_headers() -> None:
    """An application may leave headers out, and middleware may then add some."""

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"bare"})

    registry = HookRegistry()

    @registry.around("request")
    async def layer(context: RequestContext, call_next: Callable[[], Any]) -> None:
        await call_next()
        context.response_headers = {"x-layer": "was here"}

    transport: Any = httpx2.ASGITransport(HooksMiddleware(bare, hooks=registry))
    async with httpx2.AsyncClient(transport=transport, base_url="http://app") as client:
        answer = await client.get("/")
    assert (answer.text, answer.headers["x-layer"]) == ("bare", "was here")


@pytest.mark.rule("API-2")
async def test_a_body_that_is_too_large_to_be_shown() -> None:
    """A body that is too large for hooks is refused, unless hooks are shown no bodies at all."""
    registry = HookRegistry()
    bodies: list[Any] = []
    registry.gate("request:pre", lambda event, data: bodies.append(data["body"]), name="g")
    async with client(starlette(registry, largest_body=10)) as http:
        assert (await http.post("/echo", content=b"x" * 11)).status_code == 413
        assert (await http.post("/echo", content=b"x" * 10)).text == "x" * 10
        assert (await http.post("/echo", content=b"\xff")).content == b"\xff"
    async with client(starlette(registry, largest_body=10, read_body=False)) as http:
        assert (await http.post("/echo", content=b"x" * 11)).status_code == 200
    assert bodies == ["x" * 10, b"\xff", None]


@pytest.mark.rule("API-2")
async def test_a_body_in_parts() -> None:
    """Hooks see a body whole, and its parts count together; the application gets each part."""
    registry = HookRegistry()
    registry.gate(
        "request:pre", lambda event, data: HookResult.deny("no") if "bad" in (data["body"] or "") else None, name="g"
    )

    async def parts(*texts: bytes) -> AsyncIterator[bytes]:
        for text in texts:
            yield text

    async with client(starlette(registry, largest_body=10)) as http:
        assert (await http.post("/echo", content=parts(b"good", b"ba", b"d"))).status_code == 403
        assert (await http.post("/echo", content=parts(b"x" * 6, b"y" * 5))).status_code == 413
        assert (await http.post("/echo", content=parts(b"x" * 6, b"y" * 4))).text == "x" * 6 + "y" * 4


@pytest.mark.rule("API-2")
async def test_a_header_that_stands_twice() -> None:
    """Hooks see every value of a header that stands twice; of a credential they see none."""
    registry = HookRegistry()
    seen: list[Mapping[str, str]] = []
    registry.gate("request:pre", lambda event, data: seen.append(dict(data["headers"])), name="g")
    twice = [("X-A", "1"), ("x-a", "2"), ("Cookie", "s=1"), ("cookie", "s=2")]
    async with client(starlette(registry)) as http:
        assert (await http.get("/echo", headers=twice)).status_code == 200
    assert (seen[0]["x-a"], seen[0]["cookie"]) == ("1, 2", "(hidden)")


@pytest.mark.rule("API-2")
@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"]
)
async def test_json_is_read_as_strictly_as_a_call(kind: str) -> None:
    """Declared JSON that two readers could understand differently is refused before a hook or the application."""
    registry = HookRegistry()
    bodies: list[Any] = []
    registry.gate("request:pre", lambda event, data: bodies.append(data["body"]), name="g")
    async with client(starlette(registry)) as http:
        for text in (b"[[", b'{"a": 1, "a": 2}', b"\xff", b"[" * 65 + b"]" * 65):
            answer = await http.post("/echo", content=text, headers={"content-type": kind})
            assert (answer.status_code, answer.json()["code"]) == (400, "no_json")
        assert (await http.post("/echo", content=b'{ "a": 1}', headers={"content-type": kind})).text == '{ "a": 1}'
        twice = [("content-type", "text/plain"), ("content-type", kind)]
        assert (await http.post("/echo", content=b'{"a": 1, "a": 2}', headers=twice)).status_code == 400
        assert (await http.post("/echo", content=b'{"a": 1}', headers=twice)).text == '{"a": 1}'
        joined = {"content-type": f"text/plain,{kind}"}
        assert (await http.post("/echo", content=b'{"a": 1, "a": 2}', headers=joined)).status_code == 400
    assert bodies == [{"a": 1}, {"a": 1}]


@pytest.mark.rule("API-2", "DSP-7")
async def test_no_hook_holds_what_another_reads() -> None:
    """A hook that changes headers or body in place refuses the request; no other hook reads its change."""
    registry = HookRegistry()
    seen: list[Any] = []

    def spoil(event: str, data: Any) -> None:
        dict.__setitem__(data["body"], "path", "harmless")
        dict.__setitem__(data["headers"], "x-a", "harmless")

    registry.on("request:pre", spoil, name="spoil", priority=-1, on_error="continue")
    registry.gate("request:pre", lambda event, data: seen.append((data["body"], data["headers"]["x-a"])), name="g")
    async with client(starlette(registry)) as http:
        refused = await http.post("/echo", json={"path": "secrets"}, headers={"x-a": "1"})
        registry.unregister("spoil")
        await http.post("/echo", json={"path": "secrets"}, headers={"x-a": "1"})
    assert refused.status_code == 403
    assert seen == [({"path": "secrets"}, "1")]


@pytest.mark.rule("API-2", "REG-3")
async def test_hooks_that_come_while_a_request_is_decided() -> None:
    """A gate that comes while hooks look decides, too; hooks that change without an end refuse the request."""
    registry = HookRegistry()
    ran: list[str] = []

    def again(event: str, data: Any) -> None:
        ran.append("again")
        registry.gate("request:pre", lambda event, data: None, name=f"new {len(ran)}")

    def once(event: str, data: Any) -> None:
        registry.gate("request:pre", saying(HookResult.deny("late")), name="late")

    async def answer() -> tuple[int, str]:
        async with client(starlette(registry)) as http:
            got = await http.get("/echo")
        return got.status_code, got.json()["detail"]

    registry.gate("request:pre", again, name="again")
    assert await answer() == (403, "the hooks were changed each time before they had answered")
    assert len(ran) == 9
    registry.unregister("again")
    registry.on("request:pre", once, name="once", on_error="continue")
    assert await answer() == (403, "late")


@pytest.mark.rule("API-2", "REG-5")
async def test_observers_are_told_when_it_is_over() -> None:
    """Observers see both outcomes after the response is out; a bug counts as the 500 it becomes."""
    registry = HookRegistry()
    told: list[Any] = []
    registry.observe("*", lambda event, data, outcome: told.append((event, data.get("status_code"), outcome.denied)))
    async with client(starlette(registry), raises=False) as http:
        assert (await http.get("/fails")).status_code == 500
        assert (await http.get("/streams")).text == "012"
    assert told == [
        ("request:pre", None, False),
        ("request:post", 500, False),
        ("request:pre", None, False),
        ("request:post", 200, False),
    ]


@pytest.mark.rule("API-2", "REG-10")
async def test_without_hooks_nothing_is_touched() -> None:
    """Without hooks the application gets the very scope and functions that came in; sockets always do."""
    given: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        given.append((scope, receive, send))

    async def unused(*_: Any) -> Any:
        raise AssertionError

    middleware = HooksMiddleware(app, HookRegistry())
    for scope in ({"type": "http"}, {"type": "websocket"}, {"type": "lifespan"}):
        await middleware(scope, unused, unused)
        assert given.pop() == (scope, unused, unused)


@pytest.mark.fault("F-HD-17")
@pytest.mark.rule("REG-3")
async def test_a_hook_that_calls_the_application() -> None:
    """A hook that calls the application it guards ends after four rounds, with an error."""
    registry = HookRegistry()
    app = starlette(registry)
    statuses: list[int] = []

    async def again(event: str, data: Any) -> None:
        async with client(app) as http:
            statuses.append((await http.get("/echo")).status_code)

    registry.gate("request:pre", again, name="again")
    async with client(app) as http:
        answer = await asyncio.wait_for(http.get("/echo"), 60)
    assert statuses == [508, 200, 200, 200]
    assert answer.status_code == 200


@pytest.mark.rule("API-5")
def test_whose_a_request_is() -> None:
    """The tenant is that of the user, however the authentication keeps it; without a tenant, the system."""
    assert tenant_of_user({"user": User("acme")}) == "acme"
    assert tenant_of_user({"user": {"tenant": "acme"}}) == "acme"
    assert tenant_of_user({"user": {"tenant": 3}}) == ""
    assert tenant_of_user({}) == ""
    assert tenant_of_user({"user": User(""), "state": {"user": {"tenant_id": [], "tenant": "acme"}}}) == "acme"
    assert tenant_of_user({"user": User("acme"), "state": {"user": User("acme")}}) == "acme"
    assert tenant_of_user({"user": User("acme"), "state": {"user": User("other")}}) == ""


class State(BaseHTTPMiddleware):
    """An authentication that keeps its user in the state of the request."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Believe a header."""
        if named := request.headers.get("x-user-of"):
            request.state.user = User(named)
        return await call_next(request)


@pytest.mark.rule("API-5", "API-17")
async def test_the_tenant_of_the_users_state() -> None:
    """A tenant's gate decides about requests of a user that an authentication keeps in `request.state.user`."""
    registry, seen = HookRegistry(), list[str]()
    registry.gate("request:pre", lambda event, data: HookResult.deny("acme is closed"), name="closed", tenant="acme")
    registry.on("request:post", lambda event, data: seen.append(data["tenant_id"]), name="look")
    middleware = [Middleware(State), Middleware(HooksMiddleware, hooks=registry)]
    app = Starlette(routes=[Route("/echo", echo)], middleware=middleware)
    async with client(app) as http:
        answers = [await http.get("/echo", headers={"x-user-of": tenant}) for tenant in ("acme", "other")]
    assert ([answer.status_code for answer in answers], seen) == ([403, 200], ["other"])
    assert answers[0].json()["detail"] == "acme is closed"


@pytest.mark.rule("API-17")
async def test_a_request_without_a_tenant() -> None:
    """While a tenant has a hook, even a disabled one at another event, a request without a tenant is 403."""
    registry, ran = HookRegistry(), list[str]()
    registry.on("request:pre", lambda event, data: ran.append("system"), name="system")
    async with client(starlette(registry)) as http:
        assert (await http.get("/echo")).status_code == 200
        undo = registry.gate("tool:pre", saying(None), name="acmes", tenant="acme")
        registry.disable("acmes")
        refused = await http.get("/echo")
        assert (refused.status_code, refused.json()["code"]) == (403, "no_tenant")
        assert (await http.get("/echo", headers={"x-user-of": "other"})).status_code == 200
        undo()
        assert (await http.get("/echo")).status_code == 200
    assert ran == ["system"] * 3


@pytest.mark.rule("API-17")
async def test_applications_that_decide_about_tenants() -> None:
    """`tenants=True` refuses without any hook, `tenants=False` lets the hooks of the system decide, as before."""
    async with client(starlette(HookRegistry(), tenants=True)) as http:
        assert (await http.get("/echo")).status_code == 403
        assert (await http.get("/echo", headers={"x-user-of": "acme"})).status_code == 200
    registry = HookRegistry()
    registry.gate("request:pre", saying(HookResult.deny("no")), name="acmes", tenant="acme")
    async with client(starlette(registry, tenants=False)) as http:
        assert (await http.get("/echo")).status_code == 200


@pytest.mark.rule("API-17")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        *(("/echo", 403), ("/open", 200), ("/open/", 403), ("/openly", 403), ("/static/a/b.css", 200)),
        *(("/static", 403), ("/static/", 403), ("/static/../echo", 403), ("/static/..\\echo", 403)),
        *(
            ("/static//echo", 403),
            ("/static/./echo", 403),
            ("/static/%2e%2e/echo", 403),
            ("/static/%252e%252E/echo", 403),
        ),
        *(("/static/..;x=1/echo", 403), ("/static/" + "%" + "25" * 9 + "2e/echo", 403), ("/static/100%25.css", 200)),
    ],
)
async def test_public_paths(path: str, status: int) -> None:
    """A public path is one path, or all paths below one that lead nowhere else; its requests reach the hooks."""
    registry, seen, sent = HookRegistry(), list[str](), list[Any]()
    registry.on("request:pre", lambda event, data: seen.append(data["path"]), name="look")

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    app = HooksMiddleware(PlainTextResponse("hello"), registry, tenants=True, public=["/open", "/static/*"])
    await app({"type": "http", "method": "GET", "path": path, "headers": []}, receive, send)
    assert (sent[0]["status"], seen) == (status, [path] if status == 200 else [])


@pytest.mark.rule("API-17")
@pytest.mark.parametrize("value", [UUID(int=5), 7, b"acme", ["acme"]])
async def test_a_tenant_that_is_no_text(value: Any) -> None:
    """A value of another type than text fails the request, because no hook of a tenant would see it."""
    registry, ran = HookRegistry(), list[str]()
    registry.gate("request:pre", saying(HookResult.deny("no")), name="acmes", tenant="acme")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ran.append(scope["path"])

    middleware = HooksMiddleware(app, registry, lambda scope: value)
    with pytest.raises(InvalidRegistration, match=f"type {type(value).__name__}; return text"):
        await middleware({"type": "http", "method": "GET", "path": "/echo", "headers": []}, None, None)  # type: ignore[arg-type]  # nothing is received or sent before the error
    assert ran == []


@pytest.mark.rule("API-17")
async def test_the_tenant_is_asked_for_once() -> None:
    """The tenant that lets a request pass is the tenant whose hooks see it, also if the host's answers differ."""
    registry, sent, answers = HookRegistry(), list[Any](), ["acme", ""]
    registry.gate("request:pre", saying(HookResult.deny("acme is closed")), name="acmes", tenant="acme")

    async def send(message: Any) -> None:
        sent.append(message)

    middleware = HooksMiddleware(PlainTextResponse("hello"), registry, lambda scope: answers.pop(0), read_body=False)
    await middleware({"type": "http", "method": "GET", "path": "/echo", "headers": []}, None, send)  # type: ignore[arg-type]  # a refusal receives nothing
    assert (sent[0]["status"], answers) == (403, [""])


@pytest.mark.rule("API-17")
@pytest.mark.parametrize("public", ["/login", ["login"], ["/*"], ["/a*"], ["/a/*/b"], [3]])
def test_public_paths_that_are_none(public: Any) -> None:
    """A text in place of a list, a path without its slash, and a pattern for everything are refused by name."""
    with pytest.raises(InvalidRegistration, match="list paths, as '/login'"):
        HooksMiddleware(PlainTextResponse("hello"), HookRegistry(), public=public)


@pytest.mark.rule("API-2", "API-17")
async def test_a_websocket_without_a_tenant() -> None:
    """A WebSocket without the tenant it needs never opens; one with a tenant, and the lifespan, pass by the hooks."""
    began: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        began.append("app")
        yield

    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("hello")
        await websocket.close()

    registry = HookRegistry()
    registry.gate("request:pre", saying(HookResult.deny("no")), name="acmes", tenant="acme")
    app = Starlette(
        routes=[WebSocketRoute("/talk", talk)],
        lifespan=lifespan,
        middleware=[
            Middleware(AuthenticationMiddleware, backend=Backend()),
            Middleware(HooksMiddleware, hooks=registry, tenants=True),
        ],
    )
    with TestClient(app) as http:
        assert began == ["app"]
        with http.websocket_connect("/talk", headers={"x-user-of": "acme"}) as socket:
            assert socket.receive_text() == "hello"
        with pytest.raises(WebSocketDisconnect) as closed, http.websocket_connect("/talk"):
            pass
    assert (closed.value.code, "no tenant is known" in closed.value.reason) == (1008, True)


@pytest.mark.unspoilt  # spoiling hooks are in force
@pytest.mark.rule("API-2", "DSP-11")
@pytest.mark.parametrize("body", [b"x" * 3_000_000, b'{"a": 1, "a": 2}'])
@pytest.mark.parametrize("event", ["request:pre", "request:post"])
async def test_a_report_only_hook_refuses_no_body(body: bytes, event: str) -> None:
    """A body that hooks cannot be shown is refused for the sake of hooks in force, and never for report-only ones."""
    registry, seen = HookRegistry(), list[Any]()

    async def size(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    def look(event: str, data: Mapping[str, Any]) -> HookResult:
        seen.append(data["body"])
        return HookResult.deny("no")

    registry.on(event, look, name="look", report_only=True)
    app = Starlette(
        routes=[Route("/", size, methods=["POST"])], middleware=[Middleware(HooksMiddleware, hooks=registry)]
    )
    async with client(app) as http:
        answer = await http.post("/", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.text, seen) == (200, str(len(body)), [None])
        registry.on("request:pre", saying(None), name="other")
        refused = await http.post("/", content=body, headers={"content-type": "application/json"})
        assert refused.status_code in (400, 413)


@pytest.mark.rule("REG-17", "API-2")
@pytest.mark.parametrize("path", ["/echo", "/closed"])
async def test_a_hook_object_before_a_request(path: str) -> None:
    """A hook object at `request.pre` denies a request, or goes on after the response and changes its status."""
    ends: list[Any] = []

    class Teapot:
        name, event_type, priority, enabled = "teapot", "request.pre", 10, True

        async def execute(self, context: RequestContext, call_next: Callable[..., Any]) -> Any:
            try:
                await call_next(context)
            except OperationNotRun as error:
                ends.append(error.why)
                raise
            ends.append(context.status_code)
            context.status_code = 418
            return context

    registry = HookRegistry()
    registry.add(Teapot())
    closed = HookResult.deny("shut")
    registry.gate("request:pre", lambda event, data: closed if data["path"] == "/closed" else None, priority=99)
    async with client(starlette(registry)) as http:
        response = await http.get(path)
    assert (response.status_code, ends) == ((418, [200]) if path == "/echo" else (403, ["shut"]))
