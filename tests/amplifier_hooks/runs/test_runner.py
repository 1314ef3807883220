"""A runner and its server: agents and answers that must not end the runner."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from attrs import define, field

from amplifier_hooks.runs.runner import Runner, RunnerRefused, RunnerUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

RUN: dict[str, Any] = {
    "run_id": "run_0123456789abcdef",
    "session_id": "ses_1",
    "tenant_id": "",
    "parent_run_id": None,
    "parent_session_id": None,
    "agent_name": "writer",
    "parameters": {"amount": 1},
    "attempt": 1,
    "lease_seconds": 60.0,
    "agent": {"type": "procedural"},
}
REFUSED = {"code": "refused", "detail": "no"}


def answer(status: int, body: Any = None) -> httpx2.Response:
    """Return the answer of a server."""
    return httpx2.Response(status, json=body) if body is not None else httpx2.Response(status)


@define
class Server:
    """A server with prepared answers to claims, which accepts everything else."""

    claims: list[httpx2.Response]
    others: dict[str, list[httpx2.Response]] = field(factory=dict)
    heard: list[tuple[str, dict[str, Any]]] = field(factory=list)
    empty: asyncio.Event = field(factory=asyncio.Event)
    """Set when a claim comes that has no prepared answer."""

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        if request.method == "GET":
            if self.claims:
                return self.claims.pop(0)
            self.empty.set()
            await asyncio.Event().wait()
        what = request.url.path.rpartition("/")[2]
        self.heard.append((what, json.loads(request.content)))
        left = self.others.get(what)
        return left.pop(0) if left else answer(200, {"stop": False, "lease_seconds": 60.0})

    def reports(self, what: str) -> list[dict[str, Any]]:
        """Return the bodies of this kind of report."""
        return [body for kind, body in self.heard if kind == what]


@asynccontextmanager
async def runner_of(server: Server, agent: Callable[..., Any] | None = None) -> AsyncIterator[Runner]:
    """Return a runner of this server."""
    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as client,
        Runner("http://127.0.0.1", "t", {"writer": agent or (lambda _: 1)}, name="r1", client=client) as runner,
    ):
        yield runner


async def served(server: Server, agent: Callable[..., Any] | None = None) -> None:
    """Let a runner serve until the server has no more answers. Raise an error that ends the runner before."""
    async with runner_of(server, agent) as runner, asyncio.timeout(60):
        serving = asyncio.ensure_future(runner.serve())
        empty = asyncio.ensure_future(server.empty.wait())
        done, _ = await asyncio.wait({serving, empty}, return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, empty):
            task.cancel()
        await asyncio.wait({serving, empty})
        if serving in done:
            await serving


class Mute(Exception):
    """An error without a readable message."""

    def __str__(self) -> str:
        raise SystemExit


async def cancels(task: Any) -> None:
    """Raise a cancellation, although the agent was not cancelled."""
    raise asyncio.CancelledError


async def cancels_its_task(task: Any) -> None:
    """Cancel the task that the agent runs in."""
    own = asyncio.current_task()
    assert own is not None
    own.cancel()
    await asyncio.Event().wait()


async def leaves(task: Any) -> None:
    """Try to end the program."""
    sys.exit(3)


def raising(problem: BaseException) -> Callable[..., Any]:
    """Return an agent that raises this error."""

    def agent(task: Any) -> None:
        raise problem

    return agent


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.rule("RUN-21")
@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (lambda _: float("nan"), "ValueError: Out of range"),
        (lambda _: object(), "TypeError"),
        (lambda _: ENDLESS, "ValueError: Circular"),
        (raising(Mute()), "Mute"),
        (raising(ValueError("\ud800")), r"ValueError: \ud800"),
        (raising(SystemExit(3)), "it ended with SystemExit"),
        (raising(BaseExceptionGroup("odd", [GeneratorExit()])), "it ended with BaseExceptionGroup"),
        (leaves, "it ended with SystemExit"),
        (cancels, "it cancelled itself"),
        (cancels_its_task, "it cancelled itself"),
    ],
    ids=["nan", "object", "endless", "mute", "half", "exit", "group", "exit-in-a-coroutine", "cancelled", "task"],
)
async def test_nothing_an_agent_does_ends_its_runner(agent: Callable[..., Any], words: str) -> None:
    """Any error of an agent, and a result that is no JSON, fail its run; the runner asks for the next one."""
    server = Server([answer(200, RUN), answer(200, RUN)])
    await served(server, agent)
    ends = server.reports("completed")
    assert [(end["status"], words in end["error"]) for end in ends] == [("failed", True)] * 2


@pytest.mark.rule("RUN-21")
async def test_a_plain_function_works_in_a_thread() -> None:
    """An agent that blocks does not keep the runner from renewing its run."""
    renewed = threading.Event()
    server = Server([answer(200, {**RUN, "lease_seconds": 0.01})])

    async def renewing(request: httpx2.Request) -> httpx2.Response:
        said = await server(request)
        if server.reports("renew"):
            renewed.set()
        return said

    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(renewing)) as client,
        Runner("http://127.0.0.1", "t", {"writer": lambda _: renewed.wait(60)}, client=client) as runner,
    ):
        task = await runner.claim()
        assert task is not None
        await runner.do(task)
    assert server.reports("result")[0]["result_data"] is True
    assert [end["status"] for end in server.reports("completed")] == ["completed"]


@pytest.mark.rule("RUN-21")
@pytest.mark.parametrize(
    "odd",
    [
        answer(500, {}),
        answer(503, REFUSED),
        answer(408, REFUSED),
        answer(429, REFUSED),
        answer(200, ["no run"]),
        answer(200, {"run_id": "run_1"}),
        answer(200, {**RUN, "parameters": 5}),
        answer(200, {**RUN, "lease_seconds": "soon"}),
        httpx2.Response(200, content=b"<html>"),
        httpx2.Response(302, headers={"location": "http://elsewhere/"}),
    ],
    ids=["500", "503", "408", "429", "a-list", "a-field", "odd-parameters", "odd-lease", "html", "elsewhere"],
)
async def test_a_claim_that_is_answered_oddly(odd: httpx2.Response, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner asks again after a temporary refusal and after an answer that it does not understand."""
    monkeypatch.setattr("amplifier_hooks.runs.runner.PAUSE", 0.0)  # the runner does not wait
    server = Server([odd, answer(200, RUN)])
    await served(server)
    assert [end["status"] for end in server.reports("completed")] == ["completed"]


@pytest.mark.rule("RUN-21")
@pytest.mark.parametrize("status", [401, 403, 404, 409, 422])
async def test_a_report_that_is_refused(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses the report of a run's end does not end the runner, which claims the next run."""
    monkeypatch.setattr("amplifier_hooks.runs.runner.PAUSE", 0.0)
    server = Server(
        [answer(200, RUN), answer(200, RUN)],
        {"completed": [answer(status, REFUSED)], "result": [answer(503, REFUSED), answer(408, REFUSED)]},
    )
    await served(server)
    assert [end["status"] for end in server.reports("completed")] == ["completed"] * 2


@pytest.mark.rule("RUN-17")
async def test_an_agent_that_is_stopped_cleans_up_first() -> None:
    """A runner that is told to stop reports the run as stopped when its agent has cleaned up."""
    server = Server([answer(200, {**RUN, "lease_seconds": 0.9})], {"renew": [answer(200, {"stop": True})]})

    async def clean(task: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.15)
            server.heard.append(("cleaned", {}))

    await served(server, clean)
    assert [what for what, _ in server.heard] == ["renew", "cleaned", "completed"]
    assert [end["status"] for end in server.reports("completed")] == ["stopped"]


@pytest.mark.rule("RUN-21")
async def test_a_runner_that_is_refused_for_good() -> None:
    """A server that does not accept this runner ends it, with the server's reason."""
    with pytest.raises(RunnerRefused, match="403 refused"):
        await served(Server([answer(403, REFUSED)]))


@pytest.mark.rule("RUN-21")
@pytest.mark.parametrize(
    ("url", "token"),
    [("127.0.0.1:8439", "t"), ("ftp://a.example", "t"), ("http://", "t"), ("http://a.example", "ä\n")],
    ids=["no-scheme", "ftp", "no-host", "token"],
)
async def test_an_address_that_is_none(url: str, token: str) -> None:
    """An address or a token with which no request can be made is an error at once, and is not tried again."""
    with pytest.raises(RunnerUnavailable, match=r"is no address of a coordinator|the token is none"):
        await Runner(url, token).__aenter__()
