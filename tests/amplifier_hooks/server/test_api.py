"""The edge of the HTTP API: who is let in, and how a refusal reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI
from pydantic import BaseModel

from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.server.api import create_api
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens, InvalidToken
from amplifier_hooks.server.edge.authentication import Caller, CallerCheck, RateLimiter, require_scope
from amplifier_hooks.server.edge.host_check import HttpLimits
from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase
from amplifier_hooks.testing import ManualClock
from amplifier_hooks.text.strict_parsing import depth
from tests.api import knocking

Reading = Annotated[Caller, Depends(require_scope("hooks:read"))]
Managing = Annotated[Caller, Depends(require_scope("hooks:manage"))]


class Thing(BaseModel):
    """A body."""

    size: int


def routes() -> APIRouter:
    """Some routes."""
    router = APIRouter()

    @router.get("/who")
    async def who(caller: Reading) -> dict[str, str]:
        return {"name": caller.name, "tenant": caller.tenant}

    @router.post("/things")
    async def make(caller: Managing, thing: Thing) -> Thing:
        return thing

    @router.get("/fails/{how}")
    async def fails(how: str, caller: Reading) -> None:
        raise {
            "store": StoreUnavailable("the disk is full"),
            "record": RecordUnavailable(OSError("full")),
            "problem": Problem(409, "taken", "a \x1b[31mname"),
            "bug": RuntimeError("password=hunter2hunter2"),
        }[how]

    return router


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock()


@pytest.fixture
async def tokens(clock: ManualClock) -> AsyncIterator[AccessTokens]:
    """Where tokens are kept."""
    async with MemoryDatabase(ACCESS_TABLES) as database:
        yield AccessTokens(database, clock)


@pytest.fixture
def app(tokens: AccessTokens) -> FastAPI:
    """The application."""
    return create_api(CallerCheck(tokens), routes(), bounds=HttpLimits(body=1_000, depth=8, seconds=0.05))


async def token_for(tokens: AccessTokens, *scopes: str, tenant: str = "acme") -> str:
    """A token."""
    _, secret = await tokens.create("ada", scopes=scopes, tenant=tenant)
    return secret


async def raw(app: FastAPI, parts: list[bytes], **headers: str) -> tuple[int, dict[str, str], Any, int]:
    """One POST in these parts, as a server hands it on; also how many parts were read."""
    said = {"host": "127.0.0.1", "content-type": "application/json", **headers}
    left = list(parts)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/things", "raw_path": b"/things", "query_string": b"",
        "http_version": "1.1", "scheme": "http", "root_path": "", "server": ("127.0.0.1", 80), "client": None,
        "headers": [(name.encode(), value.encode()) for name, value in said.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, json.loads(sent[1]["body"]), len(parts) - len(left)


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-6")
async def test_a_token_says_who_and_for_whom(app: FastAPI, tokens: AccessTokens) -> None:
    """Name and tenant of a caller are those of the token."""
    async with knocking(app, await token_for(tokens, "hooks:read")) as client:
        answer = await client.get("/who")
    assert (answer.status_code, answer.json()) == (200, {"name": "ada", "tenant": "acme"})


@pytest.mark.rule("API-6")
@pytest.mark.parametrize("secret", ["", "ahk_nonsense", "nonsense", "ahk_" + "x" * 500, "ahk_é"])
async def test_without_a_token_nobody_is_let_in(app: FastAPI, secret: str) -> None:
    """No token, and any text that is none, is 401, and says how to send one."""
    async with knocking(app) as client:
        header = f"Bearer {secret}".encode("latin-1")
        answer = await client.get("/who", headers=[(b"authorization", header)] if secret else None)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "unauthorized"


@pytest.mark.rule("API-6")
async def test_a_scope_is_needed(app: FastAPI, tokens: AccessTokens) -> None:
    """A token opens what its scopes say, and `hooks:admin` includes the other two about hooks."""
    async with knocking(app, await token_for(tokens, "hooks:read")) as client:
        refused = await client.post("/things", json={"size": 1})
    async with knocking(app, await token_for(tokens, "hooks:admin", tenant="")) as client:
        made = await client.post("/things", json={"size": 1})
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
    assert "hooks:manage" in refused.headers["www-authenticate"]
    assert made.status_code == 200


@pytest.mark.rule("API-6")
async def test_a_token_ends(app: FastAPI, tokens: AccessTokens, clock: ManualClock) -> None:
    """After its time, or once it is revoked, a token is none, at once."""
    kept, one = await tokens.create("ada", scopes=["hooks:read"])
    _, other = await tokens.create("bob", scopes=["hooks:read"], lifetime=timedelta(hours=1))
    async with knocking(app, one) as first, knocking(app, other) as second:
        assert (await first.get("/who")).status_code == 200
        assert (await second.get("/who")).status_code == 200
        await tokens.revoke(kept.id)
        clock.advance(3600)
        assert (await first.get("/who")).status_code == 401
        assert (await second.get("/who")).status_code == 401
    assert await tokens.revoke("tok_nobody") is None
    assert sorted(token.name for token in await tokens.tokens()) == ["ada", "bob"]
    assert await tokens.tokens("acme") == []


@pytest.mark.rule("API-6")
async def test_only_a_digest_is_kept(tokens: AccessTokens) -> None:
    """Nothing in the store is the token, or a part of it."""
    token, secret = await tokens.create("ada", scopes=["hooks:read"])
    rows = await tokens._database.fetch("SELECT * FROM {schema}.access_token")
    assert secret not in repr(rows)
    assert secret[4:20] not in repr(rows)
    assert secret not in repr(token)
    assert len(secret) >= 43


@pytest.mark.rule("API-6")
@pytest.mark.parametrize(
    ("name", "tenant", "scopes", "hours"),
    [
        ("ada", "", ["hooks:all"], 1),
        ("ada", "", [], 1),
        ("ada", "acme", ["hooks:admin"], 1),
        ("", "", ["hooks:read"], 1),
        ("a\u202eb", "", ["hooks:read"], 1),
        ("ada", "a\nb", ["hooks:read"], 1),
        ("ada", "", ["hooks:read"], 0),
    ],
)
async def test_a_token_that_makes_no_sense(
    tokens: AccessTokens, name: str, tenant: str, scopes: list[str], hours: int
) -> None:
    """Unknown scopes, the system's scope for a tenant, odd names and no time at all are refused."""
    with pytest.raises(InvalidToken):
        await tokens.create(name, scopes=scopes, tenant=tenant, lifetime=timedelta(hours=hours))


# -- problems ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-7")
@pytest.mark.parametrize(
    ("how", "status", "code"),
    [("store", 503, "store_unavailable"), ("record", 503, "audit_unavailable"), ("problem", 409, "taken")],
)
async def test_every_error_is_a_problem(app: FastAPI, tokens: AccessTokens, how: str, status: int, code: str) -> None:
    """Whatever goes wrong is told as RFC 9457 has it, in one printable line."""
    async with knocking(app, await token_for(tokens, "hooks:read")) as client:
        answer = await client.get(f"/fails/{how}")
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["title"]
    assert body["detail"].isprintable()


@pytest.mark.rule("API-7")
async def test_what_nobody_foresaw(app: FastAPI, tokens: AccessTokens) -> None:
    """A bug is told without what it said, which stands in the log."""
    secret = await token_for(tokens, "hooks:read")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http", "method": "GET", "path": "/fails/bug", "raw_path": b"", "query_string": b"", "client": None,
        "http_version": "1.1", "scheme": "http", "root_path": "", "server": ("127.0.0.1", 80),
        "headers": [(b"host", b"localhost:80"), (b"authorization", f"Bearer {secret}".encode())],
    }  # fmt: skip
    with pytest.raises(RuntimeError):
        await app(scope, receive, send)
    assert sent[0]["status"] == 500
    assert b"hunter2" not in sent[1]["body"]


@pytest.mark.rule("API-7")
async def test_unknown_places_are_problems_too(app: FastAPI, tokens: AccessTokens) -> None:
    """No such path, the wrong method and the wrong fields are problems; what was sent is not repeated."""
    async with knocking(app, await token_for(tokens, "hooks:manage")) as client:
        nowhere, wrong = await client.get("/nowhere"), await client.put("/things")
        invalid = await client.post("/things", json={"size": "hunter2"})
    assert (nowhere.status_code, wrong.status_code, invalid.status_code) == (404, 405, 422)
    assert invalid.json()["mistakes"][0]["at"] == "body.size"
    assert "hunter2" not in invalid.text
    assert {answer.headers["content-type"] for answer in (nowhere, wrong, invalid)} == {"application/problem+json"}


# -- the edge ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-07")
@pytest.mark.rule("API-8")
async def test_a_body_that_is_too_large(app: FastAPI) -> None:
    """A body with a length over the limit is not read, one without a length up to the limit; the connection closes."""
    status, headers, body, read = await raw(app, [b"[" * 100], **{"content-length": str(100_000_000)})
    assert (status, body["code"], headers["connection"], read) == (413, "too_large", "close", 0)
    status, headers, body, read = await raw(app, [b" " * 400] * 1_000)
    assert (status, body["code"], headers["connection"], read) == (413, "too_large", "close", 3)


@pytest.mark.fault("F-API-07")
@pytest.mark.rule("API-8")
async def test_a_slow_upload(app: FastAPI) -> None:
    """A body that does not come to its end in time is given up."""
    status, headers, body, _ = await raw(app, [b'{"size":'])
    assert (status, body["code"], headers["connection"]) == (408, "too_slow", "close")


@pytest.mark.fault("F-API-07")
@pytest.mark.rule("API-8")
@pytest.mark.parametrize(
    ("sent", "kind", "status", "code"),
    [
        (b"[" * 900, "application/json", 400, "no_json"),
        (b'{"a":' * 100, "application/json", 400, "no_json"),
        (b'{"size": 1}', "text/plain", 415, "no_json"),
        (b'{"size": 1}', "application/x-www-form-urlencoded", 415, "no_json"),
        (b"{", "application/json", 400, "no_json"),
        (b'{"size": 1, "size": 2}', "application/json", 400, "no_json"),
        (b'{"size": NaN}', "application/json", 400, "no_json"),
        (b'{"size": 1e999}', "application/json", 400, "no_json"),
        (b'{"size": 1' + b"0" * 500 + b"}", "application/json", 400, "no_json"),
        (b'{"size": "\\ud800"}', "application/json", 400, "no_json"),
        (b'{"size": "\xff"}', "application/json", 400, "no_json"),
        (b"[]", "application/json", 422, "invalid"),
    ],
)
async def test_a_body_that_is_no_plain_json(
    app: FastAPI, tokens: AccessTokens, *, sent: bytes, kind: str, status: int, code: str
) -> None:
    """Depth, doubled keys, numbers that are none, half characters and other types are refused before anything reads."""
    async with knocking(app, await token_for(tokens, "hooks:manage")) as client:
        answer = await client.post("/things", content=sent, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.rule("API-8")
async def test_a_packed_body(app: FastAPI) -> None:
    """Nothing is unpacked, so nothing can unfold."""
    async with knocking(app) as client:
        answer = await client.post("/things", content=b"x", headers={"content-encoding": "gzip"})
    assert answer.status_code == 415


@pytest.mark.rule("API-8")
def test_brackets_in_texts_are_not_counted() -> None:
    """Depth is that of the structure; what stands in a text is none, also behind a backslash."""
    assert depth(b'{"a": "[[[[\\"[[", "b": [[1]]}') == 3
    assert depth(b'"' + b"\\" * 100_001) == 0


@pytest.mark.fault("F-API-14")
@pytest.mark.rule("API-9")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:81"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
        {"host": "evil.example:8438"},
        {"host": "127.0.0.1.evil.example:8438"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:80"},
        {"host": "localhost:84380"},
        {"host": "localhost:8438", "origin": "http://localhost"},
        {"host": ""},
    ],
)
async def test_pages_of_other_origins(app: FastAPI, tokens: AccessTokens, headers: dict[str, str]) -> None:
    """A page that was not served from here is refused whatever it bears, and by whatever name or port it reached us."""
    async with knocking(app, await token_for(tokens, "hooks:read"), "http://127.0.0.1:8438", **headers) as client:
        answer = await client.get("/who", headers={"cookie": "session=1"})
    assert (answer.status_code, answer.headers["connection"]) == (403, "close")


OURS, EVIL = "http://127.0.0.1:8438", "https://evil.example"


@pytest.mark.fault("F-API-14")
@pytest.mark.rule("API-9")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("origin", OURS), ("origin", EVIL)], 403),
        ([("origin", EVIL), ("origin", OURS)], 403),
        ([("origin", OURS), ("origin", OURS)], 403),
        ([("host", "127.0.0.1:8438"), ("host", "evil.example")], 403),
        ([("host", "evil.example"), ("host", "127.0.0.1:8438")], 403),
        ([("sec-fetch-site", "cross-site"), ("sec-fetch-site", "none")], 400),
        ([("content-type", "text/plain"), ("content-type", "application/json")], 400),
        ([("authorization", "Bearer x")], 400),
        ([("origin", OURS)], 200),
    ],
)
async def test_a_header_that_is_there_twice(
    app: FastAPI, tokens: AccessTokens, headers: list[tuple[str, str]], status: int
) -> None:
    """Of a header that counts there is one: neither the first nor the last of two is believed."""
    async with knocking(app, await token_for(tokens, "hooks:read"), OURS) as client:
        answer = await client.send(twice(client.build_request("GET", "/who"), headers))
    assert answer.status_code == status


def twice(request: httpx2.Request, headers: list[tuple[str, str]]) -> httpx2.Request:
    """The request with these headers besides; its own Host goes where there are others."""
    others = dict(headers)
    own = [(name, value) for name, value in request.headers.multi_items() if name != "host" or name not in others]
    request.headers = httpx2.Headers([*own, *headers])
    return request


@pytest.mark.rule("API-9")
async def test_a_page_of_our_own(tokens: AccessTokens) -> None:
    """A page that was served from here may ask, also through a proxy under a name that was given."""
    app = create_api(CallerCheck(tokens), routes(), bounds=HttpLimits(names=["hooks.example"]))
    secret = await token_for(tokens, "hooks:read")
    for host, origin, status in (
        ("127.0.0.1:8438", "http://127.0.0.1:8438", 200),
        ("hooks.example", "https://hooks.example", 200),
        ("hooks.example:8438", "https://hooks.example", 403),
    ):
        headers = {"host": host, "origin": origin, "sec-fetch-site": "same-origin"}
        async with knocking(app, secret, OURS, **headers) as client:
            assert (await client.get("/who")).status_code == status


# -- pace --------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-11")
@pytest.mark.rule("API-10")
async def test_one_tenant_in_a_hurry(tokens: AccessTokens) -> None:
    """A tenant over the rate limit gets the time to retry; other tenants are unaffected."""
    now = [0.0]
    pace = RateLimiter(20.0, 40, clock=lambda: now[0])
    app = create_api(CallerCheck(tokens, writes=pace), routes())
    hurried, calm = await token_for(tokens, "hooks:manage"), await token_for(tokens, "hooks:manage", tenant="b")
    async with knocking(app, hurried) as one, knocking(app, calm) as other:
        statuses = []
        for _ in range(100):
            now[0] += 0.001
            statuses.append((await one.post("/things", json={"size": 1})).status_code)
        assert (await other.post("/things", json={"size": 1})).status_code == 200
        refused = await one.post("/things", json={"size": 1})
        now[0] += float(refused.headers["retry-after"])
        assert (await one.post("/things", json={"size": 1})).status_code == 200
    assert (statuses.count(200), statuses.count(429)) == (41, 59)


@pytest.mark.rule("API-10")
def test_buckets_are_bounded() -> None:
    """However many names there are, the memory they take is bounded."""
    pace = RateLimiter(1.0, 1, clock=lambda: 0.0)
    for number in range(5_000):
        assert pace.seconds_to_wait(str(number)) == 0.0
    assert len(pace._buckets) == 4_096
    assert pace.seconds_to_wait("4999") == 1.0


# -- description -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-1")
async def test_it_describes_itself(app: FastAPI) -> None:
    """The OpenAPI description has the token and the schema of a problem, and needs no token to read."""
    async with knocking(app) as client:
        described = (await client.get("/openapi.json")).json()
        health = await client.get("/healthz")
    assert health.json() == {"status": "ok", "parts": {"store": "ok"}, "stopped": False}
    post = described["paths"]["/things"]["post"]
    assert post["security"] == [{"token": []}]
    assert "application/problem+json" in post["responses"]["422"]["content"]
    assert "code" in described["components"]["schemas"]["ProblemDetails"]["required"]


@pytest.mark.rule("API-8")
async def test_whoever_hangs_up_is_not_answered(app: FastAPI) -> None:
    """A request whose sender is gone before its body is there comes to nothing."""
    sent: list[Any] = []

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-length", b"9")]
    await app({"type": "http", "method": "POST", "path": "/things", "headers": headers}, gone, send)
    assert sent == []


async def test_sockets_are_closed(app: FastAPI) -> None:
    """There are no WebSockets here."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "websocket", "headers": []}, None, send)  # type: ignore[arg-type]  # it is never asked
    assert sent[0]["type"] == "websocket.close"


@pytest.mark.rule("API-9")
async def test_answers_are_not_kept(app: FastAPI, tokens: AccessTokens) -> None:
    """No browser keeps an answer, or takes it for something else; what is refused at the edge included."""
    async with knocking(app, await token_for(tokens, "hooks:read")) as client:
        answers = [await client.get("/who"), await client.get("/who", headers={"host": "evil.example"})]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.rule("API-9")
async def test_a_name_in_any_case(tokens: AccessTokens) -> None:
    """The name of a proxy is the same in capitals, on either side."""
    app = create_api(CallerCheck(tokens), routes(), bounds=HttpLimits(names={"Hooks.Example"}))
    async with knocking(app, await token_for(tokens, "hooks:read")) as client:
        for host in ("hooks.example", "HOOKS.example"):
            assert (await client.get("/who", headers={"host": host})).status_code == 200
