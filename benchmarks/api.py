"""The HTTP API beside a bare route, its durable changes beside bare commits, and requests under hooks.

Applications are called as a server calls them, without a socket in between. The bare routes take and return the very
models that ours do. A durable create is on record and in a SQLite file when it is answered: two things that have to
reach the disk, so it is compared with two bare commits and a bare route.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from amplifier_hooks import AuditLog, HookRegistry
from amplifier_hooks.adapters.asgi import HooksMiddleware
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions import DefinitionSettings
from amplifier_hooks.definitions.model import NewHook, new_hook_id
from amplifier_hooks.definitions.store import DefinitionStore, StoredHook
from amplifier_hooks.events import REQUEST_PRE
from amplifier_hooks.server.build_api import API_TABLES, ManagedApi, open_api
from amplifier_hooks.server.edge.authentication import RateLimiter
from amplifier_hooks.server.hooks.hook_routes import HookBody, HookPage
from amplifier_hooks.storage.database import Migrations
from amplifier_hooks.storage.sqlite import SqliteDatabase
from approval_backends.broker import Broker
from approval_backends.stores.memory import MemoryStore
from benchmarks.options import parser
from benchmarks.rounds import Effort, Samples, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DEFINITIONS: Final = 1_000
HOOKS: Final = 5
TABLES: Final = Migrations(component="bench", steps=(("CREATE TABLE {schema}.bench (id INTEGER, text TEXT)",),))
BODY: Final = {"name": "guard", "event_type": "tool:pre", "handler_ref": "http", "config": {"url": "https://a.example"}}


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("api", __doc__).parse_args(arguments)
    report = Report("api", ("fastapi", "starlette", "pydantic"))
    asyncio.run(measured(report, quick=chosen.quick))
    report.finish(write=chosen.write)


async def measured(report: Report, *, quick: bool) -> None:
    """Measure all three, each in one run with its base."""
    count = 20 if quick else DEFINITIONS
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listing = await measure(
            {name: timed async for name, timed in lists(stack, folder, count)},
            Effort(rounds=3 if quick else 41, seconds=0),
            number=1,
        )
        creating = await measure(
            {name: timed async for name, timed in creates(stack, folder)},
            Effort(rounds=3 if quick else 41, seconds=0),
            number=1 if quick else 5,
        )
    passing = await measure(dict(passages()), Effort(rounds=3 if quick else 101, seconds=0.0002 if quick else 0.02))
    rows = [
        row(f"list {count:,} definitions / a constant list", listing["ours"], listing["constant"], 3.0),
        row("create / 2 commits and a bare route", creating["ours"], both(creating), 1.0),
        row("no hooks / an empty middleware", passing["no hooks"], passing["empty"], 1.3),
        row(f"{HOOKS} hooks / an empty middleware", passing["hooks"], passing["empty"], 2.0),
    ]
    report.table(["µs, median", "ours", "base", "ratio", *VERDICT], rows)
    commit, bare = (number(creating[name].usual) for name in ("commit", "bare"))
    report.text(f"A bare commit takes {commit} µs, and a bare route that takes and returns a hook {bare} µs.")


def row(name: str, ours: Samples, base: Samples, target: float) -> list[str]:
    """Return one line of the table."""
    ratio = ours.ratio(base)
    return [name, number(ours.usual), number(base.usual), number(ratio), *verdict(ratio, target)]


def both(samples: dict[str, Samples]) -> Samples:
    """Add the samples of two commits and a bare route, round by round."""
    pairs = zip(samples["commit"].seconds, samples["bare"].seconds, strict=True)
    return Samples([2 * commit + route for commit, route in pairs])


# -- the API -----------------------------------------------------------------------------------------------------------


async def office(stack: AsyncExitStack, folder: Path, name: str) -> tuple[ManagedApi, str]:
    """The API over a file, with a record in another, and a token. No rate limit delays a caller."""
    database = await stack.enter_async_context(SqliteDatabase(folder / f"{name}.db", *API_TABLES))
    log = AuditLog.open(folder / f"{name}.jsonl")
    stack.push_async_callback(log.close)
    api = await stack.enter_async_context(
        open_api(
            database,
            registry=HookRegistry(),
            broker=Broker(MemoryStore()),
            record=log,
            settings=DefinitionSettings(hooks_max_per_event=1_000),
        )
    )
    api.caller_check.reads = api.caller_check.writes = RateLimiter(1e9, 10**9)
    api.stored_hooks.most = 10**9
    _, secret = await api.tokens.create("bench", scopes=["hooks:manage"], tenant="acme")
    return api, secret


def defined(index: int) -> StoredHook:
    """A definition that is not switched on: what is measured is the list, not the registry."""
    new = NewHook.model_validate({**BODY, "name": f"hook {index}", "enabled": False})
    return StoredHook(new.to_definition(tenant_id="acme", hook_id=new_hook_id(), now=SystemClock().now()), 1)


async def lists(stack: AsyncExitStack, folder: Path, count: int) -> AsyncIterator[tuple[str, Timed]]:
    """Our list, and a route that returns a constant one."""
    api, secret = await office(stack, folder, "list")
    hooks = [defined(index) for index in range(count)]
    store = DefinitionStore(api.keeper.store.database)
    for one in hooks:
        await store.create(one.definition, most=count)
    page = HookPage(hooks=[HookBody.of(one) for one in hooks])
    bare = FastAPI()

    @bare.get("/v1/hooks")
    async def constant() -> HookPage:
        return page

    yield "ours", asking(api.app, "GET", secret, query=f"limit={count}".encode())
    yield "constant", asking(bare, "GET", secret, query=f"limit={count}".encode())


async def creates(stack: AsyncExitStack, folder: Path) -> AsyncIterator[tuple[str, Timed]]:
    """A durable create, a bare commit, and a bare route."""
    api, secret = await office(stack, folder, "create")
    database = await stack.enter_async_context(SqliteDatabase(folder / "bare.db", TABLES))
    kept = HookBody.of(defined(0))
    bare = FastAPI()

    @bare.post("/v1/hooks", status_code=201)
    async def constant(new: NewHook) -> HookBody:  # taken in like ours
        return kept

    numbers = iter(range(10**9))

    def body() -> bytes:
        return json.dumps({**BODY, "name": f"hook {next(numbers)}"}).encode()

    async def emptied() -> None:
        for one in await api.keeper.store.find():
            await api.keeper.store.delete(one.definition.hook_id, one.version)
        api.stored_hooks.load(())

    async def commits(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            await database.fetch("INSERT INTO {schema}.bench VALUES ($1, $2)", 1, "x" * 300)
        return perf_counter() - began

    yield "ours", asking(api.app, "POST", secret, body=body, after=emptied)
    yield "commit", commits
    yield "bare", asking(bare, "POST", secret, body=body)


def asking(
    app: ASGIApp,
    method: str,
    secret: str,
    *,
    query: bytes = b"",
    body: Callable[[], bytes] = bytes,
    after: Callable[[], Awaitable[None]] | None = None,
) -> Timed:
    """Return a function that calls an application as a server does."""
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {secret}".encode()),
        (b"content-type", b"application/json"),
    ]

    async def timed(count: int) -> float:
        bodies = [body() for _ in range(count)]
        began = perf_counter()
        for one in bodies:
            status = await answered(app, {"path": "/v1/hooks", "method": method, "query_string": query}, headers, one)
            assert status in (200, 201), status
        spent = perf_counter() - began
        if after is not None:
            await after()
        return spent

    return timed


async def answered(app: ASGIApp, about: dict[str, Any], headers: list[tuple[bytes, bytes]], body: bytes) -> int:
    """Make one request, without a socket, and return the status of its answer."""
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope: Scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "root_path": "", "raw_path": about["path"].encode(),
        "query_string": b"", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "headers": headers,
        "asgi": {"version": "3.0"}, "state": {}, **about,
    }  # fmt: skip
    await app(scope, receive, send)
    return statuses[0]


# -- requests under hooks ----------------------------------------------------------------------------------------------


class Empty:
    """The smallest possible middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        await self.app(scope, receive, send)


def passages() -> list[tuple[str, Timed]]:
    """A small application behind each middleware."""
    registry = HookRegistry()
    for index in range(HOOKS):
        registry.on(REQUEST_PRE, nothing, name=f"h{index}")
    makes: list[tuple[str, Callable[[ASGIApp], ASGIApp]]] = [
        ("empty", Empty),
        ("no hooks", lambda app: HooksMiddleware(app, HookRegistry())),
        ("hooks", lambda app: HooksMiddleware(app, registry)),
    ]
    return [(name, passing(make(Starlette(routes=[Route("/", hello)])))) for name, make in makes]


async def hello(_request: Request) -> PlainTextResponse:
    """Answer as the smallest possible application."""
    return PlainTextResponse("hello")


async def nothing(_event: str, _data: object) -> None:
    """A hook that has nothing to say."""


def passing(app: ASGIApp) -> Timed:
    """Make requests, one after the other."""
    headers = [(b"host", b"127.0.0.1"), (b"accept", b"*/*"), (b"user-agent", b"bench"), (b"x-request-id", b"1")]

    async def timed(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            await answered(app, {"path": "/", "method": "GET"}, headers, b"")
        return perf_counter() - began

    return timed


if __name__ == "__main__":
    main(())
