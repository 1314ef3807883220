"""`amplifier-hooks runs`: the check of blueprints, and the commands that ask a coordinator."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.project.read_project import functions_of, hooks_named
from amplifier_hooks.cli.runs.serve_runs import serve_until_cancelled
from amplifier_hooks.definitions import TrustStore
from amplifier_hooks.runs.blueprint import OUTDATED, Agents
from amplifier_hooks.runs.run_states import RunRecord
from amplifier_hooks.runs.run_store import RUN_TABLES, RunStore
from amplifier_hooks.runs.runner import Runner
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
from amplifier_hooks.server.edge.listen import listening, loopback_socket
from amplifier_hooks.storage.sqlite import SqliteDatabase
from approval_backends.backend import DeferredApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.address import store_at
from tests.amplifier_hooks.server.runs.test_run_routes import site
from tests.runs import agent, agent_hook, change, new_run, python_hook, queue
from tests.stores import until as look_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITER = {"name": "writer", "type": "procedural"}


def run(*arguments: str, **environment: str) -> Any:
    """Run one command."""
    return CliRunner().invoke(app, ["runs", *arguments], env=environment)


@contextmanager
def coordinated() -> Iterator[dict[str, str]]:
    """Serve a coordinator with a runner in a thread; yield the environment variables of its address and token."""
    found: dict[str, str] = {}
    ready, stop = threading.Event(), threading.Event()

    async def serving() -> None:
        hooked = agent(start=python_hook(), type="autonomous")
        async with site(hooked) as here:
            here.house.functions["hook"] = lambda event, data: (
                {"action": "block", "block_reason": "too\x1b[31m much"}
                if data["parameters"].get("amount", 0) > 9
                else {"action": "continue", "parameters": {**data["parameters"], "tier": "gold"}}
            )
            listener = loopback_socket(0)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            secret = await here.secret()
            found.update(AMPLIFIER_HOOKS_URL=url, AMPLIFIER_HOOKS_TOKEN=secret)
            async with (
                listening(here.app, listener),
                Runner(url, secret, {"writer": lambda _: "done"}, wait=1) as runner,
            ):
                working = asyncio.ensure_future(runner.serve())
                ready.set()
                await asyncio.get_running_loop().run_in_executor(None, stop.wait)
                working.cancel()
                await asyncio.wait({working})

    thread = threading.Thread(target=asyncio.run, args=(serving(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield found
    finally:
        stop.set()
        thread.join(20)


def until(run_id: str, environment: dict[str, str]) -> dict[str, Any]:
    """A run, once it has ended."""
    while True:
        shown: dict[str, Any] = json.loads(run("show", run_id, "--json", **environment).stdout)
        if shown["ended_at"]:
            return shown


@pytest.mark.rule("RUN-15", "CLI-1")
def test_checking_blueprints(tmp_path: Path) -> None:
    """`check` names the flaws in a folder of blueprints, and missing agents that hooks name."""
    assert run("check", str(tmp_path)).stdout == "0 agents\n"
    (tmp_path / "writer.json").write_text(json.dumps(WRITER))
    assert run("check", str(tmp_path)).stdout == "1 agent: writer\n"
    hook = {"type": "agent", "agent_name": "ghost", "on_error": "block"}
    (tmp_path / "other.json").write_text(
        json.dumps({"name": "other", "type": "procedural", "hooks": {"on_run_start": hook}})
    )
    missing = run("check", str(tmp_path))
    assert (missing.exit_code, "there is no agent 'ghost'" in missing.output) == (1, True)
    (tmp_path / "broken.json").write_text("{")
    broken = run("check", str(tmp_path))
    assert (broken.exit_code, "broken.json: this is not JSON: " in broken.output) == (1, True)
    assert run("serve", str(tmp_path)).exit_code == 1


@pytest.mark.rule("RUN-19", "CLI-1")
def test_checking_addresses(tmp_path: Path) -> None:
    """`check` names addresses that are out of reach and variables that are missing, with the options of `serve`."""
    headers = {"authorization": "Bearer ${API_TOKEN}", "Content-Type": "application/json"}
    hook = {"type": "http", "url": "http://validator:8080/", "headers": headers, "on_error": "block"}
    writer = {**WRITER, "hooks": {"on_run_start": hook}}
    (tmp_path / "writer.json").write_text(json.dumps(writer), "ascii")
    environment = {"API_TOKEN": "t"}
    refused = run("check", str(tmp_path), **environment)
    assert (refused.exit_code, "hooks.on_run_start: webhook URL" in refused.output) == (1, True)
    assert run("check", str(tmp_path), "--allow-http", "validator:8080", **environment).exit_code == 0
    without = run("check", str(tmp_path), "--allow-http", "validator:8080")
    assert (without.exit_code, "there is no such variable" in without.output) == (1, True)
    (tmp_path / "hooks.json").write_text('{"$allow": {"http": ["validator:8080"]}}', "ascii")
    assert run("check", str(tmp_path), **environment).exit_code == 0
    odd = run("check", str(tmp_path), "--allow-network", "10.0.0.1/8", **environment)
    assert (odd.exit_code, "write it like 10.0.0.0/8" in odd.output) == (2, True)


@pytest.mark.slow
@pytest.mark.rule("RUN-13", "RUN-20", "CLI-1")
def test_asking_a_coordinator() -> None:
    """Runs are submitted, listed, shown and stopped over HTTP; foreign text is escaped."""
    with coordinated() as environment:
        done = run("submit", "writer", '{"amount": 1}', **environment).stdout.strip()
        shown = until(done, environment)
        assert (shown["status"], shown["parameters_as_run"]) == ("completed", {"amount": 1, "tier": "gold"})
        blocked = json.loads(run("submit", "writer", '{"amount": 10}', "--json", **environment).stdout)["run_id"]
        assert until(blocked, environment)["blocked"]
        assert [done in line for line in run("list", **environment).stdout.splitlines()] == [False, True]
        only = json.loads(run("list", "--hook-blocked", "--json", **environment).stdout)
        assert [one["run_id"] for one in only["runs"]] == [blocked]
        page = run("show", blocked, **environment).stdout
        assert "\x1b" not in page
        assert "on_run_start blocked: python tests:hook too\\u{1B}[31m much" in page
        assert "result   done" in run("show", done, **environment).stdout
        assert "completed" in run("stop", done, **environment).stdout


@pytest.mark.slow
@pytest.mark.rule("RUN-20", "CLI-3")
def test_being_refused() -> None:
    """A refusal is printed and ends with 1; a wrong call ends with 2."""
    with coordinated() as environment:
        unknown = run("submit", "ghost", **environment)
        assert (unknown.exit_code, "there is no agent 'ghost'" in unknown.output) == (1, True)
        assert run("show", "run_00000000", **environment).exit_code == 1
        for parameters in ("[1]", "{"):
            assert run("submit", "writer", parameters, **environment).exit_code == 2
        assert run("list", **{**environment, "AMPLIFIER_HOOKS_TOKEN": ""}).exit_code == 2
        assert run("list", "--token-file", "/nowhere", **environment).exit_code == 2
        assert run("work", "no_such_module:AGENTS", **environment).exit_code == 2
    gone = run("list", AMPLIFIER_HOOKS_URL="http://127.0.0.1:9", AMPLIFIER_HOOKS_TOKEN="t")
    assert (gone.exit_code, "cannot be reached: ConnectError; is the address right" in gone.output) == (1, True)


GUARDS = """
from amplifier_hooks import HookRegistry, HookResult

registry = HookRegistry()


@registry.gate("run:start", name="quota")
def quota(event, data):
    return HookResult.deny("no runs today")
"""


@pytest.mark.slow
@pytest.mark.rule("RUN-14", "CLI-1")
async def test_serving_with_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`serve --hooks` asks the hooks of a registry before every run."""
    (tmp_path / "guards_of_runs.py").write_text(GUARDS, encoding="ascii")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    database = SqliteDatabase(tmp_path / "hooks.db", ACCESS_TABLES, RUN_TABLES)
    serving = asyncio.ensure_future(
        serve_until_cancelled(
            database,
            Agents([agent()]),
            hooks=hooks_named("guards_of_runs:registry"),
            port=0,
            leases=(60.0, 30.0),
            as_json=True,
        )
    )
    async with asyncio.timeout(60):
        said = ""
        while not said:
            await asyncio.sleep(0)
            said = capsys.readouterr().out
        _, secret = await AccessTokens(database).create("ada", scopes=("runs:create", "runs:read", "runs:claim"))
        async with Runner(json.loads(said)["url"], secret) as client:
            found = await queue(client, "writer", {})
            assert await client.claim(0.2) is None
            while not (shown := await client.ask("GET", f"/runs/{found}"))["ended_at"]:
                pass
    serving.cancel()
    await asyncio.wait({serving})
    assert (shown["blocked"], shown["error"]) == (True, "no runs today")


GUARD_FILE = """version: 1
hooks:
- {name: quota, event_type: "run:start", priority: 10, handler_ref: command, config: {argv: [sh, quota.sh]}}
"""


@pytest.mark.slow
@pytest.mark.rule("TRU-7", "TRU-10", "CLI-1")
async def test_serving_asks_about_changes_of_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`serve` asks the approvers of its store about changed hooks and functions; a decision there is its answer."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("AMPLIFIER_HOOKS_TRUST", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hooks.yaml").write_text(GUARD_FILE)
    (tmp_path / "quota.sh").write_text("exit 2\n")
    (tmp_path / "starts.py").write_text("def begin(event, data): ...\n")
    blueprints = Agents([agent(start=python_hook(handler_ref="starts:begin"))])
    named, functions = hooks_named("hooks.yaml"), functions_of(blueprints, tmp_path / "blueprints")
    broker = Broker(store_at(str(tmp_path / "approvals.db")))
    serving = asyncio.ensure_future(
        serve_until_cancelled(
            SqliteDatabase(tmp_path / "hooks.db", ACCESS_TABLES, RUN_TABLES),
            blueprints,
            hooks=named,
            functions=functions,
            approvals=DeferredApprovals(broker),
            port=0,
            leases=(60.0, 30.0),
            as_json=True,
        )
    )
    (tmp_path / "quota.sh").write_text("exit 0\n")
    (tmp_path / "starts.py").write_text("def begin(event, data): return None\n")
    ann = Decider(name="ann", channel="cli")
    async with asyncio.timeout(60), Broker(store_at(str(tmp_path / "approvals.db"))) as elsewhere:
        while len(found := await elsewhere.pending(ann)) < 2:  # noqa: ASYNC110  # no event of another process
            await asyncio.sleep(0)  # the approvers poll
        for one in found:
            option = one.request.options["hooks.yaml" not in one.request.prompt]
            await elsewhere.decide(one.id, one.request.digest, option.id, ann)
        trust = TrustStore()
        assert named.files is not None
        files, waiting = named.files, functions.waiting
        assert waiting is not None
        await look_until(lambda: not files.state.problem and trust.denied(functions.source, waiting))
    serving.cancel()
    await asyncio.wait({serving})
    told = capsys.readouterr().err
    assert "hooks.yaml has changed and is not taken over" in told
    assert "blueprints is not taken over" in told
    lines = (tmp_path / "state" / "amplifier-hooks" / "runs.jsonl").read_text("ascii").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert [kinds.count(kind) for kind in ("approval.requested", "tool.done", "tool.denied")] == [2, 1, 1]


@pytest.mark.slow
@pytest.mark.rule("RUN-24", "CLI-1")
async def test_serving_with_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`serve` puts overrides on a record of its own, and names those that a changed file has put out of force."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    database = SqliteDatabase(tmp_path / "hooks.db", ACCESS_TABLES, RUN_TABLES)
    path = "/agents/writer/hooks/on_run_finish"
    body = {"type": "agent", "agent_name": "audit", "on_error": "ignore", "timeout_seconds": 5.0}
    for description in ("old", "new"):
        blueprints = agent(finish=agent_hook("audit"), description=description), agent("audit")
        serving = asyncio.ensure_future(
            serve_until_cancelled(database, Agents(blueprints), port=0, leases=(60.0, 30.0), as_json=True)
        )
        async with asyncio.timeout(60):
            said = errors = ""
            while not said:
                await asyncio.sleep(0)
                said, more = capsys.readouterr()
                errors += more
            assert (OUTDATED in errors) is (description == "new")
            if description == "old":
                _, secret = await AccessTokens(database).create("ada", scopes=["runs:write"])
                headers = {"authorization": f"Bearer {secret}"}
                async with httpx2.AsyncClient(base_url=json.loads(said)["url"], headers=headers) as client:
                    hook = (await client.get("/agents")).json()["agents"][1]["hooks"][0]
                    answer = await client.put(path, json=body, headers={"if-match": hook["tag"]})
                    assert answer.status_code == 200, answer.text
        serving.cancel()
        await asyncio.wait({serving})
    lines = (tmp_path / "state" / "amplifier-hooks" / "runs.jsonl").read_text("ascii").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds.count("run_hook.overridden") == 1


@pytest.mark.rule("RUN-25")
def test_old_runs_are_removed(tmp_path: Path) -> None:
    """Runs that ended long ago are removed once the operator confirms; without a terminal or --yes nothing is."""
    store = str(tmp_path / "runs.sqlite")

    async def end_a_run() -> None:
        async with RunStore(SqliteDatabase(tmp_path / "runs.sqlite", RUN_TABLES)) as runs:
            await runs.submit(new_run(), 5)
            await change(runs, new_run().id, RunRecord.stop, reason="not needed")

    async def count() -> int:
        async with RunStore(SqliteDatabase(tmp_path / "runs.sqlite", RUN_TABLES)) as runs:
            return len(await runs.select())

    asyncio.run(end_a_run())
    assert run("purge", "--older-than", "0s", "--store", store, "--no-input").exit_code == 2
    assert json.loads(run("purge", "--yes", "--json", "--store", store).stdout) == {"removed": 0}
    assert asyncio.run(count()) == 1
    assert run("purge", "--older-than", "0s", "--yes", "--store", store).stdout == "Removed 1 run.\n"
    assert asyncio.run(count()) == 0
