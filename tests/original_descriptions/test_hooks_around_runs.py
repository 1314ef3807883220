"""The description of hooks at the start and the finish of an agent's run: its own words, one test for each line of it.

Each test shows a line that works as it was described, or the difference, and names the rule.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.runs import Agents, MemoryRuns, RunCoordinator, RunHooks, load_agents
from amplifier_hooks.runs.blueprint import BlueprintError
from amplifier_hooks.server.api import create_api
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
from amplifier_hooks.server.edge.authentication import CallerCheck
from amplifier_hooks.server.runs.run_routes import runs_router
from amplifier_hooks.storage.sqlite import MemoryDatabase
from tests.api import knocking
from tests.runs import House, agent, agent_hook, house

PROCESSOR = {
    "name": "data-processor",
    "type": "autonomous",
    "description": "Processes data with validation and formatting",
    "parameters_schema": {
        "type": "object",
        "required": ["data_source"],
        "properties": {"data_source": {"type": "string"}, "options": {"type": "object"}},
    },
    "output_schema": {
        "type": "object",
        "required": ["processed_count", "summary"],
        "properties": {"processed_count": {"type": "integer"}, "summary": {"type": "string"}},
    },
    "hooks": {
        "on_run_start": {
            "type": "agent", "agent_name": "input-validator", "on_error": "block", "timeout_seconds": 60
        },
        "on_run_finish": {
            "type": "agent", "agent_name": "audit-logger", "on_error": "continue", "timeout_seconds": 30
        },
    },
}  # fmt: skip
"""The description's blueprint, as it is written there."""

VALIDATOR = {
    "name": "input-validator",
    "type": "autonomous",
    "description": "Validates and enriches input parameters",
    "parameters_schema": {
        "type": "object",
        "description": "Matches on_run_start hook input schema",
        "required": ["parameters", "agent_name"],
        "properties": {
            "parameters": {"type": "object"},
            "agent_name": {"type": "string"},
            "session_id": {"type": "string"},
            "run_id": {"type": "string"},
        },
    },
    "output_schema": {
        "type": "object",
        "required": ["action"],
        "properties": {
            "action": {"type": "string", "enum": ["continue", "block"]},
            "parameters": {"type": "object"},
            "block_reason": {"type": "string"},
        },
    },
    "system_prompt": "You are a parameter validator.",
}

LOGGER = {"name": "audit-logger", "type": "autonomous"}


def folder_of(folder: Path, *blueprints: dict[str, Any], **more: Any) -> Path:
    """Write blueprints, and other files, as a folder of the description has them."""
    for blueprint in blueprints:
        (folder / f"{blueprint['name']}.json").write_text(json.dumps(blueprint))
    for name, said in more.items():
        (folder / f"{name}.json").write_text(json.dumps(said))
    return folder


@asynccontextmanager
async def described(agents: Agents, **options: Any) -> Any:
    """Open a coordinator for these agents."""
    async with MemoryRuns() as store, RunCoordinator(store, agents, RunHooks(**options)) as runs:
        yield House(runs, {})


@pytest.mark.rule("RUN-1", "RUN-8", "RUN-15")
def test_blueprints(tmp_path: Path) -> None:
    """The described blueprints load verbatim, by reference too; a mistake in a hook is named."""
    shared = {"audit": {"type": "agent", "agent_name": "audit-logger", "on_error": "continue"}}
    by_reference = {"name": "ref", "type": "autonomous", "hooks": {"on_run_finish": {"$ref": "audit"}}}
    agents = load_agents(folder_of(tmp_path, PROCESSOR, VALIDATOR, LOGGER, by_reference, hooks=shared))
    timeouts = [agents.get("data-processor").hooks.on_run_start, agents.get("ref").hooks.on_run_finish]
    assert [one and one.timeout_seconds for one in timeouts] == [60, 300]
    for wrong, said in (
        ({"type": "smtp", "on_error": "block"}, "'smtp'"),
        ({"type": "agent", "agent_name": "audit-logger"}, "on_error"),
        ([{"type": "agent"}], "mapping"),
    ):
        with pytest.raises(BlueprintError, match=said):
            load_agents(folder_of(tmp_path, {"name": "x", "type": "autonomous", "hooks": {"on_run_start": wrong}}))


@pytest.mark.rule("RUN-2", "RUN-9", "RUN-11")
async def test_start_transforms_or_blocks(tmp_path: Path) -> None:
    """One runner finishes all: the validator's parameters are the run's, and a block fails it with its reason."""
    agents = load_agents(folder_of(tmp_path, PROCESSOR, VALIDATOR, LOGGER))
    enriched = {"data_source": "db", "options": {"enriched": True}}
    result = {"processed_count": 1, "summary": "ok"}
    async with described(agents) as here:
        run = await here.runs.submit("data-processor", {"data_source": "db"})
        await here.work(input_validator=lambda _: {"action": "continue", "parameters": enriched})
        ran = await here.work(data_processor=lambda record: {**result, "summary": str(record.effective)})
        assert (ran.id, ran.status, ran.effective) == (run.id, "completed", enriched)
        await here.work(audit_logger=lambda _: "logged")
        run = await here.runs.submit("data-processor", {"data_source": "prod"})
        await here.work(input_validator=lambda _: {"action": "block", "block_reason": "Insufficient permissions"})
        blocked = await here.until(run.id)
        assert (blocked.status, blocked.blocked, blocked.error) == ("failed", True, "Insufficient permissions")
        for answer in (
            {"action": "continue"},
            {"action": "block"},
            {"action": "continue", "parameters": {"data_source": 5}},
        ):
            run = await here.runs.submit("data-processor", {"data_source": "x"})
            await here.work(input_validator=lambda _, answer=answer: answer)
            assert (await here.until(run.id)).status == "failed"


@pytest.mark.rule("RUN-3")
@pytest.mark.parametrize("fails", [True, False])
async def test_finish_observes(tmp_path: Path, fails: bool) -> None:
    """The finish hook gets the eight described fields, of failed runs too, and the result stays as it was."""
    told: list[dict[str, Any]] = []
    plain = {
        "name": "data-extractor",
        "type": "autonomous",
        "output_schema": {"type": "object", "properties": {"records": {"type": "array"}}},
        "hooks": {"on_run_finish": agent_hook("audit-logger")},
    }

    def work(_: Any) -> Any:
        if fails:
            raise RuntimeError("boom")
        return {"records": []}

    def audit(record: Any) -> Any:
        told.append(dict(record.effective))
        return '{"result_data": "changed"}'

    async with described(load_agents(folder_of(tmp_path, plain, LOGGER))) as here:
        run = await here.runs.submit("data-extractor", {})
        await here.work(data_extractor=work)
        await here.work(audit_logger=audit)
        ended = await here.until(run.id)
    assert set(told[0]) == {
        "run_id", "session_id", "agent_name", "parameters", "result_text", "result_data", "status", "error"
    }  # fmt: skip
    assert (told[0]["status"], told[0]["error"]) == (("failed", "boom") if fails else ("completed", None))
    assert (ended.status, ended.result_data) == (told[0]["status"], None if fails else {"records": []})


@pytest.mark.rule("RUN-5", "RUN-11")
async def test_agents_of_hooks_are_child_runs() -> None:
    """The agent of a hook runs as a child of the run, without run hooks of its own."""
    guarded = agent("a", start=agent_hook("v"))
    async with house(guarded, agent("v", start=agent_hook("a"))) as here:
        run = await here.runs.submit("a", {"x": 1})
        child = await here.work(v=lambda _: {"action": "continue", "parameters": {"x": 2}})
        assert child is not None
        assert (child.agent, child.parent, child.parent_session) == ("v", run.id, run.session)
        ran = await here.work()
        assert ran is not None
        assert (ran.id, ran.effective) == (run.id, {"x": 2})


@pytest.mark.rule("RUN-19", "DEF-5")
async def test_the_http_hook(tmp_path: Path) -> None:
    """The described hook is called with both of its headers, the variable filled in; its address is allowed by name."""
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        said = json.dumps({"action": "continue", "parameters": {"via": "http"}}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(said), said))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    hook = {
        "type": "http", "url": f"http://{address}/validate", "method": "POST",
        "headers": {"Authorization": "Bearer ${API_TOKEN}", "Content-Type": "application/json"},
        "on_error": "block", "timeout_seconds": 30,
    }  # fmt: skip
    calling = {"name": "http-agent", "type": "autonomous", "hooks": {"on_run_start": hook}}
    agents = load_agents(folder_of(tmp_path, calling, hooks={"$allow": {"http": [address]}}))
    async with server, described(agents, variables={"API_TOKEN": "tok-1"}) as here:
        await here.runs.submit("http-agent", {"a": 1})
        ran = await here.work(http_agent=lambda _: "done")
    assert ran.effective == {"via": "http"}
    assert "authorization: bearer tok-1\r\n" in heads[0]
    assert heads[0].count("content-type: application/json\r\n") == 1


@pytest.mark.rule("RUN-6", "RUN-12", "RUN-13", "RUN-16", "RUN-20")
async def test_claiming_completing_and_looking() -> None:
    """The described paths queue, claim, complete and show a run; other than described, reports name their holder."""
    guarded = agent("a", start=agent_hook("v"))
    async with house(guarded, agent("v")) as here, MemoryDatabase(ACCESS_TABLES) as database:
        tokens = AccessTokens(database)
        app = create_api(CallerCheck(tokens), runs_router(here.runs))
        _, secret = await tokens.create("ada", scopes=("runs:read", "runs:create", "runs:claim"), tenant="")
        async with knocking(app, secret) as client:
            run = (await client.post("/runs", json={"agent_name": "a", "parameters": {"x": 1}})).json()["run_id"]
            claimed = (await client.get("/runner/runs", params={"runner": "r1", "wait": 30})).json()
            place, holder = f"/runner/runs/{claimed['run_id']}", {"runner": "r1", "attempt": claimed["attempt"]}
            assert (await client.post(f"{place}/completed", json={"status": "completed"})).status_code == 422
            answer = {"action": "block", "block_reason": "no more"}
            assert (await client.post(f"{place}/result", json={**holder, "result_data": answer})).is_success
            assert (await client.post(f"{place}/completed", json={**holder, "status": "completed"})).is_success
            await here.until(run)
            shown = (await client.get(f"/runs/{run}")).json()
            assert (shown["status"], shown["block_reason"], shown["parameters"]) == ("failed", "no more", {"x": 1})
            assert {"parameters_as_run", "timeline", "hooks"} <= set(shown)
            for query in ("has_hooks=true", "hook_blocked=true"):
                assert [one["run_id"] for one in (await client.get(f"/runs?{query}")).json()["runs"]] == [run]
            stream = (await client.get(f"/runs/{run}/events")).text
            facts = await here.told(run, "hook_")
    assert [kind in stream for kind in ("hook_start", "hook_blocked")] == [True, True]
    described_fields = {"event_type", "session_id", "run_id", "timestamp", "hook_type", "target_type", "target_name"}
    assert all(described_fields <= set(one) for one in facts)


# -- the rest of the description ---------------------------------------------------------------------------------------


@pytest.mark.rule("RUN-14")
async def test_hooks_of_the_registry() -> None:
    """A registry's gate blocks a run first; as described for now, a posted result is observed, not changed."""
    registry = HookRegistry()
    registry.gate("on_run_start", lambda e, d: HookResult.deny("quota") if d["parameters"].get("x") == 1 else None)
    registry.on("on_result", lambda event, data: HookResult.modify({"result_data": "changed"}))
    async with house(agent("a"), registry=registry) as here:
        blocked = await here.runs.submit("a", {"x": 1})
        passed = await here.runs.submit("a", {"x": 2})
        await here.work(a=lambda _: {"n": 1})
        assert (await here.until(blocked.id)).error == "quota"
        assert (await here.until(passed.id)).result_data == {"n": 1}


@pytest.mark.rule("RUN-4")
@pytest.mark.parametrize(("on_error", "status"), [("continue", "completed"), ("block", "failed")])
async def test_on_error(on_error: str, status: str) -> None:
    """A start hook that fails is passed over, or fails the run, as `on_error` says."""
    async with house(agent("a", start=agent_hook("v", on_error)), agent("v")) as here:
        run = await here.runs.submit("a", {"x": 1})

        def broken(_: Any) -> Any:
            raise RuntimeError("down")

        await here.work(v=broken)
        if status == "completed":
            await here.work()
        assert (await here.until(run.id)).status == status


@pytest.mark.rule("RUN-5")
async def test_a_schema_that_the_input_does_not_fit() -> None:
    """A hook's agent whose schema does not take the hook's input fails the run, whatever `on_error` says."""
    picky = agent("v", parameters_schema={"type": "object", "required": ["nope"]})
    async with house(agent("a", start=agent_hook("v", "continue")), picky) as here:
        run = await here.runs.submit("a", {"x": 1})
        assert await here.runs.claim("runner") is None
        ended = await here.until(run.id)
    assert (ended.status, ended.blocked) == ("failed", True)
