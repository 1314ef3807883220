"""Runs with a Python start hook through one coordinator, beside the bare statements that claim a row.

Four runners empty a queue. *Whole runs* are claimed, carried out, reported and completed; *claims* only claimed. *Bare*
is what a claim around a hook cannot do without: a conditional update that takes the next row, and one that gives it to
the runner; by as many tasks over the same database, without hook, events or checks. All in every round, in turn.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from amplifier_hooks.runs.blueprint import Agents, read_blueprint
from amplifier_hooks.runs.run_coordinator import RunCoordinator
from amplifier_hooks.runs.run_hooks import RunHooks
from amplifier_hooks.runs.run_states import Holder, RunRecord
from amplifier_hooks.runs.run_store import PostgresRuns, RunStore, SqliteRuns
from benchmarks.approvals import DSN, answers
from benchmarks.options import parser
from benchmarks.table import Report, number

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNNERS: Final = 4
RUNS: Final = 300
TARGET: Final = 200
"""Whole runs a second through one coordinator on PostgreSQL."""
HOOK: Final = {"type": "python", "handler_ref": "benchmark:hook", "on_error": "block"}
WRITER: Final = json.dumps({"name": "writer", "type": "procedural", "hooks": {"on_run_start": HOOK}})

TAKE: Final = (
    "UPDATE {schema}.run SET stage = 'starting', holder = $1, held_until = created WHERE id = ("
    "SELECT id FROM {schema}.run WHERE stage = 'queued' ORDER BY urgent DESC, created, id LIMIT 1%s) RETURNING id"
)
GIVE: Final = (
    "UPDATE {schema}.run SET stage = 'running', holder = $2, held_until = created "
    "WHERE id = $1 AND stage = 'starting' RETURNING id"
)
WAYS: Final = ("bare", "claims", "whole runs")


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("runs", __doc__).parse_args(arguments)
    report = Report("runs", ("asyncpg",))
    count, rounds = (40, 1) if chosen.quick else (RUNS, 3)
    rows = asyncio.run(measured(count, rounds))
    heads = ["store", *(f"{way}, a second" for way in WAYS), "claims of bare", "twice", "target", "verdict"]
    report.text(f"{RUNNERS} runners, {count:,} runs, {rounds} rounds, medians.")
    report.table(heads, rows)
    report.finish(write=chosen.write)


async def measured(count: int, rounds: int) -> list[list[str]]:
    """Return a row for each kind of store."""
    rows = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores: list[tuple[str, RunStore, str]] = [("SQLite", SqliteRuns(folder / "runs.db"), "")]
        if await answers():
            name = f"bench_{uuid4().hex[:12]}"
            stores.append(("PostgreSQL", PostgresRuns(DSN, schema=name), " FOR UPDATE SKIP LOCKED"))
        for kind, store, skip in stores:
            await stack.enter_async_context(store)
            try:
                rows.append(await compared(kind, store, skip, count, rounds))
            finally:
                if kind == "PostgreSQL":
                    await store.database.fetch("DROP SCHEMA {schema} CASCADE")
    return rows


async def compared(kind: str, store: RunStore, skip: str, count: int, rounds: int) -> list[str]:
    """Measure one store in both ways, round by round."""
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    twice = 0
    async with RunCoordinator(store, Agents([read_blueprint(WRITER)]), RunHooks(find=lambda _: hook)) as runs:
        for turn in range(rounds + 1):
            for way in WAYS[turn % 3 :] + WAYS[: turn % 3]:
                await filled(store, count)
                start = perf_counter()
                claimed = await (bare(store, skip) if way == "bare" else ours(runs, count, whole=way == "whole runs"))
                rate = len(claimed) / (perf_counter() - start)
                twice += len(claimed) - len(set(claimed))
                assert len(set(claimed)) == count, f"{count - len(set(claimed))} runs were lost"
                await store.database.fetch("DELETE FROM {schema}.run")
                if turn:
                    rates[way].append(rate)
    share = median(mine / other for mine, other in zip(rates["claims"], rates["bare"], strict=True))
    figures = [number(median(rates[way])) for way in WAYS]
    met = median(rates["whole runs"]) >= TARGET
    wanted = [f"≥ {TARGET}", "met" if met else "**missed**"] if kind == "PostgreSQL" else ["", ""]
    return [kind, *figures, f"{share:.0%}", str(twice), *wanted]


async def hook(_event: str, data: dict[str, Any]) -> dict[str, Any]:
    """A start hook that goes on with what there is."""
    return {"action": "continue", "parameters": data["parameters"]}


async def filled(store: RunStore, count: int) -> None:
    """Queue so many runs."""
    for first in range(0, count, 50):
        await asyncio.gather(*(store.submit(new_run(place), 8) for place in range(first, min(first + 50, count))))


def new_run(place: int) -> RunRecord:
    """Return a run to queue."""
    return RunRecord(
        id=f"run_{uuid4().hex}",
        tenant="acme",
        session="ses_benchmark",
        agent="writer",
        parameters={"amount": place, "customer": "C-2071", "note": "x" * 200},
        hooked=True,
    )


async def bare(store: RunStore, skip: str) -> list[str]:
    """Claim runs with two statements each, until there is none."""
    found: list[str] = []

    async def runner(name: str) -> None:
        while rows := await store.database.fetch(TAKE % skip, name):
            await store.database.fetch(GIVE, rows[0][0], name)
            found.append(rows[0][0])

    await asyncio.gather(*(runner(f"runner-{place}") for place in range(RUNNERS)))
    return found


async def ours(runs: RunCoordinator, count: int, *, whole: bool) -> list[str]:
    """Claim runs by runners of a coordinator, until all are claimed, or until all are completed."""
    found: list[str] = []

    async def runner(name: str) -> None:
        while len(found) < count:
            record = await runs.claim(name, wait=0.2)
            if record is not None:
                assert record.status == "running"
                found.append(record.id)
                if whole:
                    by = Holder(name, record.attempt)
                    await runs.report(record.id, by, data=record.parameters["amount"])
                    await runs.complete(record.id, by, "completed")

    await asyncio.gather(*(runner(f"runner-{place}") for place in range(RUNNERS)))
    return found
