"""Coordinators and runners that are killed with kill -9 in the middle of claims, hooks and runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from amplifier_hooks.runs.runner import Runner, RunnerUnavailable
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
from approval_backends.stores.address import database_at
from tests.runs import queue
from tests.stores import DSN, FILES, schema, server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parent.parent.parent
HOOK = {"type": "python", "on_error": "block"}
WRITER = {
    "name": "writer",
    "type": "procedural",
    "hooks": {
        "on_run_start": {**HOOK, "handler_ref": "tests.end_to_end.run_agents:validate"},
        "on_run_finish": {**HOOK, "handler_ref": "tests.end_to_end.run_agents:audit"},
    },
}
NET = 120
"""Seconds after which a test calls it a hang; machines stall for a while, and that is no fault of the runs."""
SCOPES = ("runs:create", "runs:read", "runs:claim")


@define
class Place:
    """A store, and the programs that work on it."""

    folder: Path
    store: str
    token: str
    programs: list[asyncio.subprocess.Process] = field(factory=list)

    async def program(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start one command, with its output in a pipe."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", "amplifier_hooks", "runs", *arguments),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
                "PYTHONPATH": os.fspath(ROOT),
                "RUN_TEST_FOLDER": os.fspath(self.folder),
                "AMPLIFIER_HOOKS_TOKEN": self.token,
            },
        )
        self.programs.append(process)
        return process

    async def coordinator(self, port: str = "0", lease: int = 3) -> tuple[asyncio.subprocess.Process, str]:
        """Start a coordinator, and return it with its address."""
        leases = ("--lease", "2", "--runner-lease", str(lease))
        options = ("--store", self.store, "--port", port, *leases, "--json")
        process = await self.program("serve", os.fspath(self.folder / "agents"), *options)
        assert process.stdout is not None
        return process, str(json.loads(await process.stdout.readline())["url"])

    async def runner(self, url: str, name: str) -> asyncio.subprocess.Process:
        """A runner of that coordinator."""
        return await self.program("work", "tests.end_to_end.run_agents:AGENTS", "--url", url, "--name", name)

    def noted(self, what: str) -> list[str]:
        """Return the work that agents noted, run by run."""
        file = self.folder / what
        return file.read_text("ascii").split() if file.exists() else []

    async def more(self, than: int) -> None:
        """Wait until agents have begun more often than that."""
        async with asyncio.timeout(NET):
            while len(self.noted("ran")) <= than:  # noqa: ASYNC110  # other processes set no event
                await asyncio.sleep(0.01)  # it is another process that is waited for

    def fatal(self, point: str) -> None:
        """Kill the process that comes to this point next."""
        (self.folder / f"die-at-{point}").touch()


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncIterator[Place]:
    """An empty store with a token, and the programs ended afterwards."""
    async with AsyncExitStack() as stack:
        store = os.fspath(folder / "hooks.db")
        if kind == "postgres":
            await server()
            store = f"{DSN}#{await stack.enter_async_context(schema())}"
        (folder / "agents").mkdir()
        (folder / "agents" / "writer.json").write_text(json.dumps(WRITER), encoding="ascii")
        database = database_at(store, ACCESS_TABLES)
        await database.open()
        try:
            _, secret = await AccessTokens(database).create("test", scopes=SCOPES)
        finally:
            await database.close()
        made = Place(folder, store, secret)
        try:
            yield made
        finally:
            for process in made.programs:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def ended(client: Runner, runs: list[str]) -> dict[str, dict[str, Any]]:
    """These runs, once all of them have ended and their finish hooks as well."""
    async with asyncio.timeout(NET):
        while True:
            with suppress(RunnerUnavailable):  # for a moment
                found = {run: await client.ask("GET", f"/runs/{run}") for run in runs}
                if all(run["ended_at"] and run["hooks"] and settled(run) for run in found.values()):
                    return found
            await asyncio.sleep(0.5)  # it is another process that is waited for, and more questions are too many


async def listed(client: Runner) -> list[dict[str, Any]]:
    """Every run there is."""
    return list((await client.ask("GET", "/runs", params={"limit": 100}))["runs"])


def steps(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The timeline of a run."""
    return list(run["timeline"])


def settled(run: dict[str, Any]) -> bool:
    """Return True if the last hook of a run was its finish hook, and is done."""
    last = run["hooks"][-1]
    return bool(last["hook_type"] == "on_run_finish" and last["outcome"] != "running")


@pytest.mark.slow
@pytest.mark.rule("RUN-7", "RUN-10", "RUN-16")
@pytest.mark.parametrize("point", ["hook", "finish"])
@pytest.mark.parametrize("kind", FILES)
async def test_a_coordinator_is_killed(kind: str, point: str, tmp_path: Path) -> None:
    """A coordinator killed in a hook loses no run: the next one takes it up, and the agent runs once."""
    async with place(kind, tmp_path) as here:
        first, url = await here.coordinator()
        async with Runner(url, here.token) as client:
            run = await queue(client, "writer", {"amount": 1})
        here.fatal(point)
        await here.runner(url, "one")
        assert await first.wait() == -signal.SIGKILL
        _, url = await here.coordinator()
        await here.runner(url, "two")
        async with Runner(url, here.token) as client:
            found = (await ended(client, [run]))[run]
        assert (found["status"], found["result_data"]) == ("completed", {"amount": 1})
        assert here.noted("ran") == [run]
        assert here.noted("hooked") == [run] * (2 if point == "hook" else 1)
        assert here.noted("audited") == [run] * (2 if point == "finish" else 1)
        assert "lost" in [
            step["name"] if point == "hook" else (step["hook"] or {}).get("outcome") for step in steps(found)
        ]


@pytest.mark.slow
@pytest.mark.rule("RUN-7", "RUN-16")
@pytest.mark.parametrize("kind", FILES)
async def test_a_runner_is_killed(kind: str, tmp_path: Path) -> None:
    """A runner killed at work loses no run: another one gets it, with the parameters its hook had made."""
    async with place(kind, tmp_path) as here:
        _, url = await here.coordinator()
        async with Runner(url, here.token) as client:
            run = await queue(client, "writer", {"amount": 1})
            here.fatal("run")
            first = await here.runner(url, "one")
            assert await first.wait() == -signal.SIGKILL
            await here.runner(url, "two")
            found = (await ended(client, [run]))[run]
        assert (found["status"], found["runner"], found["attempt"]) == ("completed", "two", 2)
        assert (here.noted("ran"), here.noted("hooked"), here.noted("audited")) == ([run, run], [run], [run])
        assert "lost" in [step["name"] for step in found["timeline"]]


async def first_to_end(programs: list[asyncio.subprocess.Process]) -> int:
    """Wait until one of these dies by kill -9, and say which."""
    waiting = [asyncio.ensure_future(program.wait()) for program in programs]
    try:
        async with asyncio.timeout(NET):
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
    (ended,) = [place for place, program in enumerate(programs) if program.returncode is not None]
    assert programs[ended].returncode == -signal.SIGKILL
    return ended


@pytest.mark.slow
@pytest.mark.rule("RUN-7", "RUN-10", "RUN-16")
@pytest.mark.parametrize("kind", FILES)
async def test_everybody_is_killed_again_and_again(kind: str, tmp_path: Path) -> None:
    """If any process is killed at any point, every run is completed once, and none runs again after that."""
    # A run three of whose runners were lost has failed. So no more than two are killed, and a slow one is not lost.
    async with place(kind, tmp_path) as here:
        coordinator, url = await here.coordinator(lease=10)
        port = url.rpartition(":")[2]
        everybody = [coordinator, await here.runner(url, "r0"), await here.runner(url, "r1")]
        counted: dict[str, int] = {}
        for turn, point in enumerate(["run", "hook", "finish", "all", "hook", "finish"]):
            async with Runner(url, here.token) as client:
                for run in await listed(client):
                    if run["status"] == "completed":
                        counted.setdefault(run["run_id"], here.noted("ran").count(run["run_id"]))
                before = len(here.noted("ran"))
                if point != "all":
                    here.fatal(point)
                with suppress(RunnerUnavailable):  # it may be dead by now
                    for _ in range(4):
                        await queue(client, "writer", {"amount": turn})
            if point == "all":
                await here.more(than=before)
                dead = [0, 1, 2]
                for program in everybody:
                    program.kill()
                    await program.wait()
            else:
                dead = [await first_to_end(everybody)]
                assert (dead == [0]) is (point != "run"), "it was not the one that does this"
            for number in dead:
                if number == 0:
                    everybody[0], _ = await here.coordinator(port, 10)
                else:
                    everybody[number] = await here.runner(url, f"r{number}-{turn}")
        async with Runner(url, here.token) as client:
            runs = [run["run_id"] for run in await listed(client)]
            found = await ended(client, runs)
        assert len(runs) > len(counted) > 0, "some were completed before the last one died"
        assert {run["status"]: run["error"] for run in found.values()} == {"completed": None}
        assert all(run["result_data"]["amount"] == run["parameters"]["amount"] for run in found.values())
        assert {run: here.noted("ran").count(run) for run in counted} == counted, "one ran after it was completed"
        ends = [[step["name"] for step in run["timeline"]].count("completed") for run in found.values()]
        assert ends == [1] * len(runs)
