"""The HTTP API against its own description: whatever schemathesis thinks of, no answer is a failure of the server."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from amplifier_hooks.record.recorder import NoRecord
from amplifier_hooks.runs.run_store import RUN_TABLES, RunStore
from amplifier_hooks.server.build_api import API_TABLES
from amplifier_hooks.server.edge.listen import listening, loopback_socket
from amplifier_hooks.server.runs.agent_routes import agents_router
from amplifier_hooks.server.runs.run_routes import runs_router
from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.storage.sqlite import MemoryDatabase
from tests.api import Office, new_hook, office
from tests.runs import agent, agent_hook, house
from tests.stores import DSN, schema, server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from schemathesis.generation import GenerationMode
    from schemathesis.schemas import APIOperation

    Operation = APIOperation[Any, Any, Any, Any]

pytestmark = pytest.mark.slow

EVERYTHING = ("hooks:manage", "hooks:read", "approvals:decide", "runs:read", "runs:create", "runs:claim")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
EXAMPLES = 25


@asynccontextmanager
async def whole(kind: str) -> AsyncIterator[Office]:
    """The API with every route there is, over one database."""
    async with AsyncExitStack() as stack:
        if kind == "postgres":
            await server()
            name = await stack.enter_async_context(schema())
            database: Any = PostgresDatabase(DSN, *API_TABLES, RUN_TABLES, schema=name)
        else:
            database = MemoryDatabase(*API_TABLES, RUN_TABLES)
        blueprints = agent("writer", finish=agent_hook("audit")), agent("audit")
        inside = await stack.enter_async_context(house(*blueprints, store=RunStore(database)))
        routers = [runs_router(inside.runs), agents_router(inside.runs, NoRecord())]
        yield await stack.enter_async_context(office(database, routers=routers))


@contextmanager
def served(kind: str, tenant: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The API on a port of its own, in a loop of its own; with a token of this tenant, and its description."""
    began: Any = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with whole(kind) as there:
            scopes = EVERYTHING if tenant else (*EVERYTHING, "hooks:admin", "runs:write")
            _, secret = await there.api.tokens.create("fuzz", scopes=scopes, tenant=tenant)
            there.api.caller_check.runners = there.api.caller_check.writes
            listener = loopback_socket(0)
            port = listener.getsockname()[1]
            async with listening(there.api.app, listener):
                stop = asyncio.Event()
                found.extend((port, secret, there.api.app.openapi(), stop, asyncio.get_running_loop()))
                began.set()
                await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert began.wait(60)
        port, secret, description, stop, loop = found
        yield f"http://127.0.0.1:{port}", secret, description
        loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(60)


@pytest.fixture(scope="module", params=[("memory", "acme"), pytest.param(("postgres", ""), marks=pytest.mark.postgres)])
def api(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The API, served once for all."""
    with served(*request.param) as serving:
        yield serving


def operations(description: dict[str, Any]) -> list[Operation]:
    """Return the operations of the API description."""
    import schemathesis
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_dict(description)
    return [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]


def tried(operation: Operation, mode: GenerationMode, client: httpx2.Client, about: str | None = None) -> None:
    """Try one operation with whatever fits its description, or does not; raises what a check has to say.

    With an id, it is `about` that hook, whose version it names, about that run, or about the hook of that agent.
    """
    from schemathesis import checks

    every = [getattr(checks, one) for one in CHECKS]
    name = next((one for one in ("hook_id", "agent_name") if f"{{{one}}}" in operation.path), "run_id")
    named = {name: about, **({"hook_type": "on_run_finish"} if name == "agent_name" else {})}
    aimed: dict[str, Any] = {} if about is None else {"path_parameters": named}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode, **aimed))
    def one(case: Any) -> None:
        headers = {"authorization": client.headers["authorization"]}
        if about is not None and name == "hook_id":
            headers["if-match"] = client.get(f"/v1/hooks/{about}").headers.get("etag", '"1"')
        if about is not None and name == "agent_name" and (said := client.get("/agents")).is_success:
            headers["if-match"] = said.json()["agents"][1]["hooks"][0]["tag"]
        if isinstance(case.query, dict) and isinstance(case.query.get("wait"), int | float):
            case.query["wait"] = min(case.query["wait"], 0.01)  # nothing comes of waiting
        case.call_and_validate(base_url=str(client.base_url), headers=headers, checks=every)

    with suppress(Unsatisfiable):  # it takes nothing, so nothing about it can be wrong
        one()


@pytest.mark.rule("API-1", "API-7", "API-8", "RUN-7")
def test_no_answer_is_a_failure(api: tuple[str, str, dict[str, Any]]) -> None:
    """Whatever fits the description, and whatever does not, is answered as the description says, and never by a 500."""
    from schemathesis.generation import GenerationMode

    address, secret, description = api
    found = operations(description)
    assert len(found) >= 22
    with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {secret}"}) as client:
        hook = client.post("/v1/hooks", json=new_hook()).json()["hook_id"]
        run = client.post("/runs", json={"agent_name": "writer", "parameters": {"amount": 1}}).json()["run_id"]
        client.get("/runner/runs", params={"runner": "fuzz"})
        order = ("put", "delete")  # what changes the hook, and what removes it, come last
        for operation in sorted(found, key=lambda one: order.index(one.method) if one.method in order else -1):
            ids = {"{hook_id}": hook, "{run_id}": run, "{agent_name}": "writer"}
            about = next((one for name, one in ids.items() if name in operation.path), None)
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                tried(operation, mode, client)
                if about is not None and not operation.path.endswith("/events"):  # which do not end while it runs
                    tried(operation, mode, client, about)
        assert client.get(f"/v1/hooks/{hook}").status_code == 404
        assert client.get(f"/runs/{run}").status_code == 200
