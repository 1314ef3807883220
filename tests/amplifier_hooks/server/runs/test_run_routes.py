"""Runs over HTTP: queueing and looking, claiming and completing, and the runner that does it."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from msgspec.structs import replace

from amplifier_hooks import HookRegistry
from amplifier_hooks.record.recorder import NoRecord
from amplifier_hooks.runs.run_states import Holder, RunRecord
from amplifier_hooks.runs.runner import Runner, RunnerRefused, RunnerTask, RunnerUnavailable
from amplifier_hooks.server.api import create_api
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
from amplifier_hooks.server.edge.authentication import CallerCheck
from amplifier_hooks.server.runs.agent_routes import agents_router
from amplifier_hooks.server.runs.run_routes import as_stream, runs_router
from amplifier_hooks.storage.sqlite import MemoryDatabase
from tests.api import knocking, office
from tests.runs import House, agent, agent_hook, change, house, python_hook, queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    import httpx2
    from fastapi import FastAPI

    from amplifier_hooks.runs.blueprint import Blueprint
    from amplifier_hooks.storage.change_signal import Watch

SCOPES = ("runs:read", "runs:create", "runs:claim")
FIELDS = {"event_type", "session_id", "run_id", "timestamp", "hook_type", "target_type", "target_name"}


@frozen
class Site:
    """An application with runs, and its clients."""

    app: FastAPI
    house: House
    tokens: AccessTokens

    async def secret(self, tenant: str = "acme", scopes: tuple[str, ...] = SCOPES) -> str:
        """A token."""
        return (await self.tokens.create("ada", scopes=scopes, tenant=tenant))[1]

    async def client(self, tenant: str = "acme", scopes: tuple[str, ...] = SCOPES) -> httpx2.AsyncClient:
        """Return a client with a token."""
        return knocking(self.app, await self.secret(tenant, scopes))


@asynccontextmanager
async def site(*blueprints: Blueprint, **options: Any) -> AsyncIterator[Site]:
    """An application over stores in memory."""
    async with house(*blueprints, **options) as inside, MemoryDatabase(ACCESS_TABLES) as database:
        tokens = AccessTokens(database)
        yield Site(create_api(CallerCheck(tokens), runs_router(inside.runs)), inside, tokens)


def held(claimed: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the body of a request of the runner that holds a run."""
    return {"runner": claimed["runner"], "attempt": claimed["attempt"], **fields}


def events_in(stream: str) -> list[tuple[int, str, dict[str, Any]]]:
    """The events of a stream: number, type, and what they say."""
    found = []
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


@pytest.mark.rule("RUN-7", "RUN-10", "RUN-13", "RUN-20")
async def test_a_run_over_http() -> None:
    """A run is queued, claimed, given its result and completed over HTTP; then it shows all that happened."""
    enriching = agent(start=python_hook(), finish=agent_hook("audit"), parameters_schema={"required": ["amount"]})
    async with site(enriching, agent("audit")) as here, await here.client("") as client:
        here.house.functions["hook"] = lambda event, data: {
            "action": "continue",
            "parameters": {"amount": 2, "tier": "gold"},
        }
        queued = await client.post("/runs", json={"agent_name": "writer", "parameters": {"amount": 1, "old": True}})
        assert (queued.status_code, queued.json()["status"]) == (201, "queued")
        run = queued.json()["run_id"]
        claimed = (await client.get("/runner/runs", params={"runner": "r1", "wait": 30})).json()
        assert (claimed["run_id"], claimed["parameters"], claimed["agent"]["name"]) == (
            *(run, {"amount": 2, "tier": "gold"}, "writer"),
        )
        assert (await client.get("/runner/runs", params={"runner": "r2"})).status_code == 204
        renewed = await client.post(f"/runner/runs/{run}/renew", json=held(claimed))
        assert renewed.json() == {"stop": False, "lease_seconds": 60.0}
        early = await client.post(f"/runner/runs/{run}/completed", json=held(claimed, status="completed"))
        assert (early.status_code, early.json()["code"]) == (409, "run_moved")
        wrong = await client.post(f"/runner/runs/{run}/result", json=held(claimed, result_text="text"))
        assert (wrong.status_code, wrong.json()["code"]) == (422, "result_refused")
        assert (await client.post(f"/runner/runs/{run}/result", json=held(claimed, result_data=[1]))).is_success
        done = await client.post(f"/runner/runs/{run}/completed", json=held(claimed, status="completed"))
        assert done.json()["status"] == "completed"
        again = await client.post(f"/runner/runs/{run}/completed", json=held(claimed, status="completed"))
        assert (again.status_code, again.json()["ended_at"]) == (200, done.json()["ended_at"])
        other = await client.post(f"/runner/runs/{run}/completed", json=held(claimed, status="failed"))
        assert (other.status_code, other.json()["run_status"]) == (409, "completed")
        await here.house.until(run)
        shown = (await client.get(f"/runs/{run}")).json()
        assert (shown["parameters"], shown["parameters_as_run"]) == (
            *({"amount": 1, "old": True}, {"amount": 2, "tier": "gold"}),
        )
        assert [(one["path"], one["kind"]) for one in shown["parameter_changes"]] == [
            *(("$.amount", "changed"), ("$.old", "removed"), ("$.tier", "added")),
        ]
        assert (shown["result_data"], shown["result_text"], shown["parameters_changed"]) == ([1], None, 3)
        assert [(hook["hook_type"], hook["target_name"], hook["outcome"]) for hook in shown["hooks"]] == [
            ("on_run_start", "tests:hook", "complete"),
            ("on_run_finish", "audit", "complete"),
        ]
        told = [step["name"] for step in shown["timeline"]]
        assert [name for name in told if name != "ready"] == [  # it is ready for a while if the runner lost patience
            *("queued", "starting", "hook", "running", "result", "completed", "hook", "child"),
        ]
        assert all(step["duration_ms"] is not None for step in shown["timeline"] if step["name"] in ("hook", "running"))
        (child,) = shown["children"]
        assert (child["agent_name"], child["is_hook_agent"], child["parent_run_id"]) == ("audit", True, run)
        parent = (await client.get(f"/runs/{child['run_id']}")).json()["parent"]
        assert parent["run_id"] == run


@pytest.mark.rule("RUN-13", "RUN-6", "RUN-12")
async def test_the_stream_of_a_run() -> None:
    """The events of a run are a stream that can be taken up where it broke; a blocked one says why."""
    async with site(agent(start=python_hook())) as here, await here.client() as client:
        here.house.functions["hook"] = lambda event, data: {"action": "block", "block_reason": "no\nmore"}
        run = (await client.post("/runs", json={"agent_name": "writer"})).json()["run_id"]
        assert (await client.get("/runner/runs", params={"runner": "r"})).status_code == 204
        await here.house.until(run)
        answer = await client.get(f"/runs/{run}/events")
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_in(answer.text)
        assert [kind for _, kind, _ in events] == [
            *("run_queued", "run_starting", "hook_start", "hook_blocked", "run_failed"),
        ]
        assert set(events[3][2]) == FIELDS | {"block_reason", "duration_ms"}
        assert events[4][2]["block_reason"] == "no\nmore"
        rest = await client.get(f"/runs/{run}/events", headers={"last-event-id": "3"})
        assert [number for number, _, _ in events_in(rest.text)] == [4, 5]
        for odd in ("-1", "x", "9" * 40):
            whole = await client.get(f"/runs/{run}/events", headers={"last-event-id": odd})
            assert len(events_in(whole.text)) == 5
        assert (await client.get(f"/runs/{run}/events", headers={"last-event-id": "5"})).status_code == 204
        shown = (await client.get(f"/runs/{run}")).json()
        assert (shown["status"], shown["blocked"], shown["block_reason"], shown["error"]) == (
            *("failed", True, "no\nmore", "no\nmore"),
        )
        assert shown["hooks"][0]["outcome"] == "blocked"


@pytest.mark.rule("RUN-13")
async def test_following_a_run() -> None:
    """A follower of a run gets each of its events once, from any starting point, until nothing can follow."""
    async with house(agent(finish=python_hook())) as here:
        here.functions["hook"] = lambda event, data: {}
        run = (await here.runs.submit("writer", {})).id

        async def followed(after: int) -> list[tuple[int, str]]:
            text = "".join([part async for part in as_stream(here.runs.store, run, after)])
            return [(number, kind) for number, kind, _ in events_in(text)]

        following = asyncio.ensure_future(followed(0))
        await here.work()
        kinds = [
            *("run_queued", "run_starting", "run_ready", "run_running", "run_result", "run_completed", "hook_start"),
            "hook_complete",
        ]
        assert await following == list(enumerate(kinds, start=1))
        assert await followed(6) == [(7, "hook_start"), (8, "hook_complete")]


@pytest.mark.rule("RUN-13")
async def test_a_quiet_stream() -> None:
    """While nothing happens a stream says that it is still there."""
    async with house(agent()) as here:
        run = (await here.runs.submit("writer", {})).id
        stream = as_stream(here.runs.store, run, 1, quiet=0.01)
        assert [await anext(stream) for _ in range(3)] == ["retry: 1000\n\n", ": still here\n\n", ": still here\n\n"]
        await stream.aclose()


@pytest.mark.rule("RUN-10")
async def test_a_run_continues_a_session() -> None:
    """A run that names the session of an earlier one, as an agent that resumes its parent does, is claimed for it."""
    async with site(agent()) as here, await here.client() as client:
        await client.post("/runs", json={"agent_name": "writer"})
        first = (await client.get("/runner/runs", params={"runner": "r", "wait": 5})).json()
        run, session = first["run_id"], first["session_id"]
        assert (await client.post(f"/runner/runs/{run}/result", json=held(first, result_data=[1]))).is_success
        await client.post(f"/runner/runs/{run}/completed", json=held(first, status="completed"))
        assert (await client.post("/runs", json={"agent_name": "writer", "session_id": session})).status_code == 201
        second = (await client.get("/runner/runs", params={"runner": "r", "wait": 5})).json()
        assert (second["run_id"] != run, second["session_id"]) == (True, session)


@pytest.mark.rule("RUN-13")
async def test_the_list_of_runs() -> None:
    """Runs are listed newest first, a page at a time, and by what matters: hooks, blocked, status, agent, parent."""
    async with site(agent(), agent("hooked", start=python_hook())) as here, await here.client() as client:
        here.house.functions["hook"] = lambda event, data: {"action": "block", "block_reason": "no"}
        for name in ("writer", "hooked", "writer", "hooked"):
            assert (await client.post("/runs", json={"agent_name": name})).status_code == 201
        first = (await client.get("/runs", params={"limit": 3})).json()
        rest = (await client.get("/runs", params={"limit": 3, "cursor": first["next"]})).json()
        assert [run["agent_name"] for run in first["runs"] + rest["runs"]] == ["hooked", "writer", "hooked", "writer"]
        assert rest["next"] is None
        claimed = (await client.get("/runner/runs", params={"runner": "r", "agents": ["writer"]})).json()
        await client.get("/runner/runs", params={"runner": "r", "agents": ["hooked"], "wait": 0.05})

        async def found(**query: Any) -> list[str]:
            page = (await client.get("/runs", params=query)).json()
            return [run["agent_name"] for run in page["runs"]]

        assert await found(has_hooks=True) == ["hooked", "hooked"]
        assert await found(has_hooks=False) == ["writer", "writer"]
        async with asyncio.timeout(60):
            while not (blocked := await found(hook_blocked=True)):
                pass  # the hook runs in a thread
        assert set(blocked) == {"hooked"}
        assert await found(has_hooks=False, hook_blocked=False, agent_name="writer") == ["writer", "writer"]
        assert await found(status="running") == ["writer"]
        assert await found(agent_name="absent\0") == []
        assert await found(session_id=claimed["session_id"]) == ["writer"]
        for wrong in ({"cursor": "x"}, {"cursor": "9" * 30 + ".x"}, {"limit": 0}, {"status": "odd"}, {"blocked": True}):
            assert (await client.get("/runs", params=wrong)).status_code in (400, 422)


@pytest.mark.rule("RUN-20", "API-7")
async def test_parameters_that_no_route_has() -> None:
    """Every route, that of health included, refuses a query parameter that it does not have, and names it."""
    async with (
        house(agent()) as inside,
        office(routers=[runs_router(inside.runs), agents_router(inside.runs, NoRecord())]) as there,
        await there.client("hooks:admin", "approvals:decide", "runs:write", *SCOPES, tenant="") as client,
    ):
        described = there.api.app.openapi()["paths"]
        routes = [(path, method) for path, methods in described.items() for method in methods]
        for template, method in routes:
            path = re.sub(r"\{\w+\}", "run_00000000", template)
            answer = await client.request(method, path, params={"runner": "r", "hook_bloked": True})
            assert (path, answer.status_code) == (path, 422)
            assert "query.hook_bloked: no such parameter" in answer.json()["detail"]
        for path, short in (("", "event"), ("", "tenant"), ("/logs", "hook"), ("/stats", "event")):
            assert (await client.get(f"/v1/hooks{path}", params={short: "x"})).status_code == 422
    assert len(routes) >= 25


@pytest.mark.rule("RUN-13", "RUN-14")
async def test_observers_are_no_hooks_of_a_run() -> None:
    """An observer of the start of all runs sees a run, which has no hooks for that."""
    registry, seen = HookRegistry(), []

    @registry.observe("run:start")
    def observer(event: str, data: Any, outcome: Any) -> None:
        seen.append(data["agent_name"])

    async with site(agent(), registry=registry) as here, await here.client() as client:
        await client.post("/runs", json={"agent_name": "writer"})
        claimed = await client.get("/runner/runs", params={"runner": "r", "wait": 5})
        shown = (await client.get(f"/runs/{claimed.json()['run_id']}")).json()
        assert (seen, shown["has_hooks"]) == (["writer"], False)
        assert (await client.get("/runs", params={"has_hooks": True})).json()["runs"] == []


@pytest.mark.rule("RUN-13", "API-7")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"agent_name": "absent"}, "unknown_agent"),
        ({"agent_name": "writer", "parameters": {"amount": "x"}}, "parameters_refused"),
        ({"agent_name": "writer", "parameters": {"amount": 1}, "session_id": "ses_none"}, "unknown_session"),
        ({"agent_name": "writer", "parameters": [1]}, "invalid"),
        ({"agent_name": "writer", "parameters": {"amount": 1}, "tenant_id": "other"}, "invalid"),
        ({"agent_name": 5}, "invalid"),
    ],
)
async def test_runs_nobody_can_queue(body: dict[str, Any], code: str) -> None:
    """An invalid run is refused as a problem with a code, and nothing is queued."""
    schema = {"required": ["amount"], "properties": {"amount": {"type": "integer"}}}
    async with site(agent(parameters_schema=schema)) as here, await here.client() as client:
        answer = await client.post("/runs", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
        missing = await client.post("/runs", json={**body, "agent_name": "writer", "parent_run_id": "run_00000000"})
        assert missing.status_code in (404, 422)
        assert (await client.get("/runs")).json()["runs"] == []


@pytest.mark.rule("RUN-18")
async def test_too_deep_over_http() -> None:
    """A cycle of agents that start agents ends as a problem that names the run above."""
    async with site(agent("a"), max_depth=1) as here, await here.client() as client:
        parent: str | None = None
        for _ in range(2):
            answer = await client.post("/runs", json={"agent_name": "a", "parent_run_id": parent})
            parent = answer.json()["run_id"]
        answer = await client.post("/runs", json={"agent_name": "a", "parent_run_id": parent})
        assert answer.status_code == 409
        assert (answer.json()["code"], f"below run {parent} of 'a'" in answer.json()["detail"]) == (
            "agents_too_deep",
            True,
        )


@pytest.mark.rule("RUN-13", "TEN-1", "API-6")
async def test_tenants_and_scopes() -> None:
    """No other tenant sees a tenant's runs, and each route needs its scope."""
    async with site(agent()) as here, await here.client() as mine, await here.client("other") as other:
        run = (await mine.post("/runs", json={"agent_name": "writer"})).json()["run_id"]
        assert (await other.get("/runs")).json()["runs"] == []
        for method, path in (("GET", f"/runs/{run}"), ("GET", f"/runs/{run}/events"), ("POST", f"/runs/{run}/stop")):
            assert (await other.request(method, path)).status_code == 404
        assert (await other.post("/runs", json={"agent_name": "writer", "parent_run_id": run})).status_code == 404
        assert (await other.get("/runner/runs", params={"runner": "r"})).status_code == 204
        claimed = (await mine.get("/runner/runs", params={"runner": "r"})).json()
        for what, more in (("renew", {}), ("result", {"result_data": 1}), ("completed", {"status": "failed"})):
            assert (await other.post(f"/runner/runs/{run}/{what}", json=held(claimed, **more))).status_code == 404
        async with await here.client(scopes=("runs:read",)) as reader:
            assert (await reader.get("/runs")).is_success
            assert (await reader.post("/runs", json={"agent_name": "writer"})).status_code == 403
            assert (await reader.get("/runner/runs", params={"runner": "r"})).status_code == 403
            assert (await reader.post(f"/runs/{run}/stop")).status_code == 403
        async with knocking(here.app) as nobody:
            assert (await nobody.get("/runs")).status_code == 401
        async with await here.client("") as system:
            assert (await system.get(f"/runs/{run}")).status_code == 404
            assert (await system.post(f"/runner/runs/{run}/renew", json=held(claimed))).is_success


@pytest.mark.rule("RUN-5", "RUN-20", "TEN-1")
async def test_a_tenants_runner_does_not_answer_the_operators_guard() -> None:
    """Only a runner of the system claims the agent of a blueprint's hook; the run's tenant does not even see it."""
    guarded = agent(start=agent_hook("guard"))
    async with site(guarded, agent("guard")) as here, await here.client() as mine, await here.client("") as system:
        run = (await mine.post("/runs", json={"agent_name": "writer"})).json()["run_id"]
        assert (await mine.get("/runner/runs", params={"runner": "r", "wait": 0.05})).status_code == 204
        guard = (await system.get("/runner/runs", params={"runner": "s", "wait": 30})).json()
        assert (guard["agent"]["name"], guard["parent_run_id"]) == ("guard", run)
        block = held(guard, result_data={"action": "deny", "reason": "too much"})
        child = f"/runner/runs/{guard['run_id']}"
        assert (await mine.post(f"{child}/result", json=block)).status_code == 404
        assert (await mine.get(f"/runs/{guard['run_id']}")).status_code == 404
        assert (await mine.get(f"/runs/{run}")).json()["children"] == []
        assert (await system.post(f"{child}/result", json=block)).is_success
        assert (await system.post(f"{child}/completed", json=held(guard, status="completed"))).is_success
        assert (await here.house.until(run)).error == "too much"


@pytest.mark.rule("RUN-17")
async def test_stopping_over_http() -> None:
    """A queued run is stopped at once; the runner of another is told when it renews."""
    async with site(agent()) as here, await here.client() as client:
        one, two = [(await client.post("/runs", json={"agent_name": "writer"})).json()["run_id"] for _ in range(2)]
        claimed = (await client.get("/runner/runs", params={"runner": "r"})).json()
        assert claimed["run_id"] in (one, two)
        waiting = two if claimed["run_id"] == one else one
        assert (await client.post(f"/runs/{waiting}/stop")).json()["status"] == "stopped"
        asked = await client.post(f"/runs/{claimed['run_id']}/stop", json={"reason": "enough"})
        assert (asked.json()["status"], asked.json()["stop_requested"]) == ("running", True)
        assert (await client.post(f"/runner/runs/{claimed['run_id']}/renew", json=held(claimed))).json()["stop"]
        ended = held(claimed, status="stopped", error="as told")
        assert (await client.post(f"/runner/runs/{claimed['run_id']}/completed", json=ended)).json()[
            "status"
        ] == "stopped"


@pytest.mark.rule("RUN-22")
async def test_a_runner_that_hung_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim whose runner has hung up takes nothing: a run that comes later is there for the next runner."""
    async with site(agent()) as here:
        secret = await here.secret()
        gone, waits, sent = asyncio.Event(), asyncio.Event(), list[Any]()
        watch = here.house.runs.store.watch

        def note_claim(run: str | None = None) -> AbstractContextManager[Watch]:
            waits.set()
            return watch(run)

        monkeypatch.setattr(here.house.runs.store, "watch", note_claim)

        async def receive() -> dict[str, Any]:
            if not sent:
                sent.append(None)
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/runner/runs",
            "raw_path": b"/runner/runs",
            "query_string": b"runner=r1&wait=60",
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {secret}".encode())],
        }
        asking = asyncio.ensure_future(here.app(scope, receive, send))
        async with asyncio.timeout(60):
            await waits.wait()
            gone.set()
            await asking
        assert sent[1]["status"] == 204
        run = (await here.house.runs.submit("writer", {}, tenant="acme")).id
        record = await here.house.runs.claim("r2")
        assert record is not None
        assert (record.id, record.handed) == (run, 1)


# -- the runner --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def runner_of(here: Site, agents: dict[str, Any], **options: Any) -> AsyncIterator[Runner]:
    """A runner of this application."""
    async with (
        knocking(here.app) as client,
        Runner(
            "http://127.0.0.1", await here.secret(""), agents, client=client, name="r1", wait=1.0, **options
        ) as made,
    ):
        yield made


@pytest.mark.rule("RUN-7", "RUN-10", "RUN-11")
async def test_a_runner_serves() -> None:
    """One runner does whatever it is given: a run, the agent of its start hook, and its finish agent."""
    blueprints = (
        agent(type="autonomous", start=agent_hook("validator"), finish=agent_hook("audit")),
        agent("validator"),
        agent("audit"),
    )
    audited = asyncio.Event()

    async def audit(task: RunnerTask) -> dict[str, Any]:
        assert task.parameters["result_text"] == "Invoice over 2"
        audited.set()
        return {}

    def validate(task: RunnerTask) -> dict[str, Any]:
        return {"action": "continue", "parameters": {"amount": task.parameters["parameters"]["amount"] + 1}}

    agents = {"writer": lambda task: f"Invoice over {task.parameters['amount']}", "validator": validate, "audit": audit}
    async with site(*blueprints) as here, runner_of(here, agents) as runner:
        serving = asyncio.ensure_future(runner.serve())
        run = await queue(runner, "writer", {"amount": 1})
        await audited.wait()
        await here.house.until(run)
        serving.cancel()
        await asyncio.wait({serving})
        shown = await runner.ask("GET", f"/runs/{run}")
        assert (shown["status"], shown["result_text"], shown["runner"]) == ("completed", "Invoice over 2", "r1")


@pytest.mark.rule("RUN-10", "RUN-16", "RUN-17")
async def test_a_runner_says_how_it_ended() -> None:
    """An agent's error or result of the wrong kind fails its run; an agent that has to stop is cancelled."""
    cancelled = asyncio.Event()

    async def endless(task: RunnerTask) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def broken(task: RunnerTask) -> Any:
        raise ZeroDivisionError("by zero")

    blueprints = (agent("broken"), agent("wrong", output_schema={"type": "object"}), agent("endless"))
    agents = {"broken": broken, "wrong": lambda _: 5, "endless": endless}
    async with site(*blueprints) as here, runner_of(here, agents) as runner:
        for name, words in (("broken", "ZeroDivisionError: by zero"), ("wrong", "result_refused")):
            run = await queue(runner, name, {})
            task = await runner.claim()
            assert task is not None
            await runner.do(task)
            record = await here.house.runs.get(run)
            assert (record.status, words in str(record.error)) == ("failed", True)
        run = await queue(runner, "endless", {})
        task = await runner.claim()
        assert task is not None
        await here.house.runs.stop(run)
        await runner.do(replace(task, lease=0.01))
        await cancelled.wait()
        assert (await here.house.runs.get(run)).status == "stopped"


@pytest.mark.rule("RUN-16")
async def test_a_runner_that_was_overtaken() -> None:
    """A runner whose run another runner holds by now gives it up, and its reports change nothing."""
    async with site(agent()) as here, runner_of(here, {"writer": lambda _: 1}) as runner:
        run = await queue(runner, "writer", {})
        task = await runner.claim()
        assert task is not None
        await change(here.house.runs.store, run, RunRecord.renew, by=Holder(runner.name, task.attempt), seconds=0)
        await here.house.runs.store.recover()
        other = await here.house.runs.claim("other")
        assert other is not None
        await runner.do(task)
        record = await here.house.runs.get(run)
        assert (record.status, record.holder) == ("running", "other")


@pytest.mark.rule("RUN-7")
async def test_a_runner_that_is_not_let_in() -> None:
    """A runner without a token that counts ends with what the server says; a server that is not there is told apart."""
    async with (
        site(agent()) as here,
        knocking(here.app) as client,
        Runner("http://127.0.0.1", "no", client=client) as one,
    ):
        with pytest.raises(RunnerRefused, match="401 unauthorized"):
            await one.serve()
    async with Runner("http://127.0.0.1:9", "token", wait=0) as lost:
        with pytest.raises(RunnerUnavailable, match="cannot be reached"):
            await lost.claim()
