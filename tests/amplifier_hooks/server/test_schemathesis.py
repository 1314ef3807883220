"""The HTTP API against its own description: whatever schemathesis thinks of, no answer is a failure of the server."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation

from amplifier_hooks.server.listening import listening, loopback
from tests.api import new_hook, office

Operation = APIOperation[Any, Any, Any, Any]

pytestmark = pytest.mark.slow

EVERYTHING = ("hooks:manage", "hooks:read", "approvals:decide", "runs:read", "runs:create", "runs:claim")
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
EXAMPLES = 25


@contextmanager
def served() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The API on a port of its own, in a loop of its own; with a token, and its description."""
    began: Any = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with office() as there:
            _, secret = await there.api.tokens.create("fuzz", scopes=EVERYTHING, tenant="acme")
            listener = loopback(0)
            port = listener.getsockname()[1]
            async with listening(there.api.app, listener):
                stop = asyncio.Event()
                found.extend((port, secret, there.api.app.openapi(), stop, asyncio.get_running_loop()))
                began.set()
                await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert began.wait(20)
        port, secret, description, stop, loop = found
        yield f"http://127.0.0.1:{port}", secret, description
        loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(20)


@pytest.fixture(scope="module")
def api() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The API, served once for all."""
    with served() as serving:
        yield serving


def operations(description: dict[str, Any]) -> list[Operation]:
    """What the description says can be done."""
    schema = schemathesis.openapi.from_dict(description)
    return [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]


def tried(operation: Operation, mode: GenerationMode, client: httpx2.Client, hook: str | None = None) -> None:
    """Try one operation with whatever fits its description, or does not; raises what a check has to say.

    With a `hook`, it is about that one, and names its version.
    """
    aimed: dict[str, Any] = {} if hook is None else {"path_parameters": {"hook_id": hook}}

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
        if hook is not None:
            headers["if-match"] = client.get(f"/v1/hooks/{hook}").headers.get("etag", '"1"')
        case.call_and_validate(base_url=str(client.base_url), headers=headers, checks=CHECKS)

    with suppress(Unsatisfiable):  # it takes nothing, so nothing about it can be wrong
        one()


@pytest.mark.rule("API-1", "API-7", "API-8")
def test_no_answer_is_a_failure(api: tuple[str, str, dict[str, Any]]) -> None:
    """Whatever fits the description, and whatever does not, is answered as the description says, and never by a 500."""
    address, secret, description = api
    found = operations(description)
    assert len(found) >= 14
    with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {secret}"}) as client:
        hook = client.post("/v1/hooks", json=new_hook()).json()["hook_id"]
        order = ("put", "delete")  # what changes the hook, and what removes it, come last
        for operation in sorted(found, key=lambda one: order.index(one.method) if one.method in order else -1):
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                tried(operation, mode, client)
                if "{hook_id}" in operation.path:
                    tried(operation, mode, client, hook)
        assert client.get(f"/v1/hooks/{hook}").status_code == 404
