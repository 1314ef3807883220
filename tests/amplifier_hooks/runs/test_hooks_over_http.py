"""Services as hooks of runs, over a real connection: headers, variables, and the addresses that are allowed."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.definitions.kinds.webhook import AllowedUrls
from amplifier_hooks.runs import Agents, Blocked, RunHooks
from amplifier_hooks.runs.blueprint import BlueprintError
from tests.runs import agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEADERS = {"Authorization": "Bearer ${API_TOKEN}", "Content-Type": "application/json"}


def http_hook(url: str, **fields: Any) -> dict[str, Any]:
    """Return a hook entry for a service."""
    return {"type": "http", "url": url, "method": "POST", "on_error": "block", "headers": HEADERS, **fields}


@asynccontextmanager
async def service(seen: list[str]) -> AsyncIterator[int]:
    """Serve a validator on a free port, which adds a parameter and keeps each request's head."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head.lower())
        length = int(head.lower().partition("content-length:")[2].splitlines()[0])
        asked = json.loads(await reader.readexactly(length))
        said = json.dumps({"action": "continue", "parameters": {**asked["parameters"], "via": "http"}})
        fields = f"content-type: application/json\r\ncontent-length: {len(said)}\r\nconnection: close"
        writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{said}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.rule("RUN-8", "RUN-19")
async def test_a_service_on_this_machine() -> None:
    """A service that the operator allows by its host and port is asked over plain http, with its headers filled in."""
    seen: list[str] = []
    async with service(seen) as port:
        hooks = RunHooks(reach=AllowedUrls(http_hosts=[f"127.0.0.1:{port}"]), variables={"API_TOKEN": "t-1"})
        writer = agent(start=http_hook(f"http://127.0.0.1:{port}/validate"))
        assert hooks.problems(Agents([writer])) == []
        assert await hooks.start(writer, {"a": 1}) == {"a": 1, "via": "http"}
        (head,) = seen
        assert "authorization: bearer t-1" in head
        assert head.count("content-type: application/json") == 1
        other = agent(start=http_hook(f"http://127.0.0.1:{port + 1}/validate"))
        assert isinstance(await hooks.start(other, {}), Blocked)
    assert len(seen) == 1


@pytest.mark.rule("RUN-8")
def test_a_body_is_json() -> None:
    """A blueprint that names another content type is refused, because the body is JSON."""
    with pytest.raises(BlueprintError, match="the body is JSON"):
        agent(start=http_hook("https://a.example/", headers={"content-type": "text/plain"}))


@pytest.mark.rule("RUN-19")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (http_hook("http://a.example/"), "its scheme is 'http'"),
        (http_hook("https://a.example:8443/"), "port 8443 is not among those allowed"),
        (http_hook("https://a.example/", headers={"x": "${NONE}"}), "there is no such variable"),
        (http_hook("https://a.example/", headers={"Host": "x"}), "it is set by us"),
        ({"type": "python", "handler_ref": "nowhere:hook", "on_error": "block"}, "nowhere"),
        ({"type": "python", "handler_ref": "json:nothing", "on_error": "block"}, "nothing"),
    ],
    ids=["scheme", "port", "variable", "header", "module", "function"],
)
async def test_a_check_finds_what_fails(entry: dict[str, Any], words: str) -> None:
    """A check finds before any run why a hook would fail at each run, with the agent and the place."""
    hooks = RunHooks(variables={"API_TOKEN": "t"})
    (problem,) = hooks.problems(Agents([agent(start=entry)]))
    assert problem.startswith("writer: hooks.on_run_start: ")
    assert words in problem
    begun = await hooks.start(agent(start=entry), {})
    assert isinstance(begun, Blocked)
    assert words in begun.reason


@pytest.mark.rule("RUN-19")
def test_a_check_finds_all_at_once() -> None:
    """A check of one hook names every variable that is missing, and no other."""
    entry = http_hook("http://a.example/", headers={"x": "${ONE}", "y": "${TWO}", "z": "${API_TOKEN}"})
    (problem,) = RunHooks(variables={"API_TOKEN": "t"}).problems(Agents([agent(start=entry)]))
    assert [word in problem for word in ("${ONE}", "${TWO}", "API_TOKEN")] == [True, True, False]
