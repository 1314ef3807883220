"""Runs to test with: each kind of store open and empty, with a clock that can be moved, and runs to submit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.runs.blueprint import Agents, Blueprint, read_blueprint
from amplifier_hooks.runs.run_coordinator import RunCoordinator
from amplifier_hooks.runs.run_hooks import RunHooks
from amplifier_hooks.runs.run_states import ENDED, Holder, RunRecord
from amplifier_hooks.runs.run_store import MemoryRuns, PostgresRuns, RunStore, SqliteRuns
from tests.stores import DSN, schema, server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_hooks.runs.runner import Runner

LEASES: Final = (60.0, 30.0)
"""Leases of a runner and of a coordinator."""


MOVED: Final = "(SELECT 1767268800000000 + moved FROM {schema}.moved)"
"""Time of a store on PostgreSQL whose clock stands still; a table moves it."""


class Shelf:
    """A store, and its clock."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    async def advance(self, seconds: float) -> None:
        """Move the clock on by these seconds."""
        self.now += timedelta(seconds=seconds)
        if isinstance(self.store, PostgresRuns):
            await self.store.database.fetch("UPDATE {schema}.moved SET moved = moved + $1", round(seconds * 1e6))


@asynccontextmanager
async def run_store(kind: str, folder: Path) -> AsyncIterator[Shelf]:
    """Open a store of this kind, and yield it with its clock."""
    shelf: Shelf
    if kind == "postgres":
        await server()
        async with schema() as name, PostgresRuns(DSN, schema=name) as store:
            store.now = lambda: MOVED
            await store.database.fetch("CREATE TABLE {schema}.moved AS SELECT 0::BIGINT AS moved")
            yield Shelf(store)
        return
    now = lambda: shelf.now  # noqa: E731  # the clock of a shelf that is made with it
    shelf = Shelf(MemoryRuns(now) if kind == "memory" else SqliteRuns(folder / "runs.db", now))
    async with shelf.store:
        yield shelf


def new_run(number: int = 1, **fields: Any) -> RunRecord:
    """Return a run to submit; without `hooked` it has no run hooks."""
    given: dict[str, Any] = {
        "id": f"run_{number:032x}",
        "tenant": "acme",
        "session": f"ses_{number:012x}",
        "agent": "writer",
        "parameters": {"amount": number},
        "bare": not fields.get("hooked"),
    }
    return RunRecord(**{**given, **fields})


async def claim(store: RunStore, runner: str = "one", **wanted: Any) -> RunRecord | None:
    """Claim a run for a runner, through a coordinator; return None if there is none."""
    return await store.take((runner, "coordinator"), LEASES, **wanted)


async def change(store: RunStore, run: str, decide: Callable[..., Any], **fields: Any) -> RunRecord:
    """Change a run as one of the methods of `RunRecord` does, with these arguments."""
    return await store.change(run, partial(decide, **fields))


async def queue(client: Runner, agent: str, parameters: dict[str, Any]) -> str:
    """Queue a run over HTTP, and return its id."""
    run: str = (await client.ask("POST", "/runs", body={"agent_name": agent, "parameters": parameters}))["run_id"]
    return run


# -- a coordinator and its runners -------------------------------------------------------------------------------------

Work = Callable[[RunRecord], Any]
"""Function of an agent: it returns a result, a text or data."""


def agent(name: str = "writer", *, start: Any = None, finish: Any = None, **fields: Any) -> Blueprint:
    """Return a blueprint."""
    hooks = {point: entry for point, entry in (("on_run_start", start), ("on_run_finish", finish)) if entry}
    return read_blueprint(json.dumps({"name": name, "type": "procedural", "hooks": hooks, **fields}))


def python_hook(name: str = "hook", on_error: str = "block", **fields: Any) -> dict[str, Any]:
    """Return a hook entry for a function of the test."""
    return {"type": "python", "handler_ref": f"tests:{name}", "on_error": on_error, **fields}


def agent_hook(name: str = "validator", on_error: str = "block", **fields: Any) -> dict[str, Any]:
    """Return a hook entry for an agent."""
    return {"type": "agent", "agent_name": name, "on_error": on_error, **fields}


def done(record: RunRecord) -> Any:
    """Return a result at once."""
    return {"done": record.agent}


@frozen
class House:
    """A coordinator, and the functions of its Python hooks."""

    runs: RunCoordinator
    functions: dict[str, Any]

    async def told(self, run: str, kind: str = "") -> list[dict[str, Any]]:
        """Return the events of a run whose kind begins with this text."""
        return [dict(event) for event in await self.runs.store.events(run) if event["event_type"].startswith(kind)]

    async def work(self, runner: str = "runner", **agents: Work) -> RunRecord | None:
        """Claim one run, run its agent, and complete it."""
        record = await self.runs.claim(runner, wait=60)
        return None if record is None else await self.do(record, **agents)

    async def do(self, record: RunRecord, **agents: Work) -> RunRecord:
        """Run the agent of a claimed run, and report its result."""
        by = Holder(str(record.holder), record.attempt)
        work = agents.get(record.agent.replace("-", "_"), done)
        try:
            result = work(record)
        except RuntimeError as problem:
            return await self.runs.complete(record.id, by, "failed", error=str(problem))
        text = result if isinstance(result, str) else None
        await self.runs.report(record.id, by, text=text, data=None if text is not None else result)
        return await self.runs.complete(record.id, by, "completed")

    async def until(self, run: str, stage: str = "") -> RunRecord:
        """Return the run, once it is at this stage, or has ended with nothing left to do."""
        async with asyncio.timeout(60):
            with self.runs.store.watch(run) as watch:
                while True:
                    record = await self.runs.get(run)
                    if record.stage == stage or (not stage and record.stage in ENDED and not record.owes):
                        return record
                    await watch.wait(5)


@asynccontextmanager
async def house(
    *blueprints: Blueprint, store: RunStore | None = None, registry: HookRegistry | None = None, **options: Any
) -> AsyncIterator[House]:
    """Open a coordinator over a store in memory."""
    functions: dict[str, Any] = {}

    def find(name: str) -> Any:
        found = functions.get(name.removeprefix("tests:"))
        if found is None:
            raise HookUnavailable(f"there is no function {name}")
        return found

    async with (
        store or MemoryRuns() as opened,
        RunCoordinator(
            opened, Agents(blueprints), RunHooks(registry=registry or HookRegistry(), find=find), **options
        ) as runs,
    ):
        yield House(runs, functions)
