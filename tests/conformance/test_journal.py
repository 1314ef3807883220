"""The journal: one suite over memory, SQLite and PostgreSQL."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.clock import moment_of
from amplifier_hooks.record.journal import JOURNAL_TABLES, Fact, FactValues, Journal, name_in_facts
from amplifier_hooks.storage.database import Script, Statement
from amplifier_hooks.testing import ManualClock
from tests.stores import FILES, KINDS, database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from pathlib import Path

    from amplifier_hooks.storage.database import Database, Row

DAY = timedelta(days=1)


@pytest.fixture(params=KINDS)
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Yield a database with the table of facts."""
    async with database(request.param, tmp_path, JOURNAL_TABLES) as opened:
        yield opened


def an_event(number: int = 0, tenant: str = "acme", *, event: str = "tool:pre", at: int = 0, denied: int = 0) -> Fact:
    """Return the fact of an event."""
    return Fact("event", f"log_{number:03}", tenant, event=event, at=at or number, denied=denied, body="{}")


def a_run(number: int = 0, tenant: str = "acme", part: int = 1, **fields: Any) -> Fact:
    """Return the fact of one hook's run."""
    known = {"name": "guard", "event": "tool:pre", "at": number, "status": "ok", "duration": 1.0, **fields}
    return Fact("hook", f"log_{number:03}", tenant, part=part)._replace(**known)


def a_call(number: int = 0, tenant: str = "acme", **fields: Any) -> Fact:
    """Return the fact of a tool call."""
    known = {"session": "s", "name": "Write", "at": number, "status": "ok", "digest": f"d{number}", "body": "{}"}
    return Fact("call", f"call-{number}", tenant)._replace(**{**known, **fields})


def whole(tables: Any, **options: Any) -> Journal:
    """Return a journal of all kinds, with a clock that stands at 1970-01-01."""
    return Journal(tables, "event", "hook", "call", **{"keep": 100 * 365 * DAY, "clock": ManualClock(), **options})


@pytest.mark.rule("JRN-1", "API-3")
async def test_facts_come_back(tables: Database) -> None:
    """A fact comes back as it was, newest first, by page; filtered by any column, and by a hook that ran."""
    journal = whole(tables)
    events = [an_event(number, at=1 + number // 2) for number in range(5)]
    other = an_event(9, name_in_facts("other\u202e"), event="tool:post", denied=1)
    await journal.write([*events, other, a_run(9, name_in_facts("other\u202e"), name="lint")])
    assert await journal.find("event", id=other.id) == [other] == await journal.find("event", tenant="other\u202e")
    assert await journal.find("event", id=other.id, tenant="acme") == []
    seen: list[Fact] = []
    while page := await journal.find(
        "event", tenant="acme", after=(seen[-1].at, seen[-1].id) if seen else None, limit=2
    ):
        seen += page
    assert seen == events[::-1]
    assert await journal.find("event", denied=1) == [other] == await journal.find("event", hook="lint")
    assert await journal.find("event", event="session:end") == await journal.find("event", hook="absent") == []


@pytest.mark.rule("JRN-1", "LIB-2")
async def test_a_call_changes(tables: Database) -> None:
    """A call that is written again has its new state; its begin and the note of its side effects stay."""
    journal = whole(tables)
    await journal.write([a_call(at=5, status="begun", note='["creates a"]', digest="before")])
    await journal.write([a_call(at=9, status="failed", duration=2.5, body='{"reason": "no"}')])
    (call,) = await journal.find("call", tenant="acme", session="s", digest="d0", status="failed")
    assert (call.at, call.note, call.duration, call.body) == (5, '["creates a"]', 2.5, '{"reason": "no"}')
    await journal.write([a_call(session="t"), a_call(tenant="other")])
    assert len(await journal.find("call")) == 3


@pytest.mark.rule("JRN-1", "API-4")
async def test_statistics(tables: Database) -> None:
    """Runs, failures, timeouts and denials are counted for each hook and event; mean and p95 are of the timed runs."""
    journal = whole(tables)
    await journal.write([a_run(number, duration=float(number)) for number in range(1, 101)])
    failed = a_run(200, status="timeout", denied=1, duration=None)
    broken = a_run(200, part=2, status="error", duration=None)
    await journal.write([failed, broken, a_run(201, "other", name="theirs", duration=None)])
    (guard,) = await journal.statistics(tenant="acme")
    assert tuple(guard) == ("guard", "tool:pre", 102, 2, 1, 1, 50.5, 95.0)
    (theirs,) = await journal.statistics(name="theirs")
    assert tuple(theirs) == ("theirs", "tool:pre", 1, 0, 0, 0, None, None)
    assert await journal.statistics(event="tool:post") == []


@pytest.mark.rule("JRN-4", "API-3")
async def test_facts_end(tables: Database) -> None:
    """Facts that are too old go, and events beyond a tenant's quota; other kinds and tenants stay."""
    clock = ManualClock()
    now = int(clock.now().timestamp() * 1e6)
    keeper = whole(tables, clock=clock)
    await keeper.write([a_call(at=1)])
    events = Journal(tables, "event", "hook", keep=timedelta(seconds=7), clock=clock, most=3)
    times = {number: now - (10 - number) * 1_000_000 for number in range(10)}
    await whole(tables, clock=clock).write([an_event(number, "other", at=at) for number, at in times.items()])
    await events.write([a_run(number, at=at) for number, at in times.items()])
    clock.advance(61)
    late = Journal(tables, "event", "hook", keep=timedelta(seconds=68), clock=clock, most=3)
    await late.write([an_event(number, at=at) for number, at in times.items()])
    assert [one.id for one in await late.find("event", tenant="acme")] == ["log_009", "log_008", "log_007"]
    assert len(await late.find("event", tenant="other")) == 7
    ((_, _, runs, *_),) = await late.statistics(tenant="acme")
    assert runs == 3
    assert len(await late.find("call")) == 1


@pytest.mark.rule("JRN-4", "PKG-2")
async def test_a_tenant_is_forgotten(tables: Database) -> None:
    """All facts of a tenant can be removed, and no fact of another one."""
    journal = whole(tables)
    await journal.write([fact for tenant in ("acme", "other") for fact in (an_event(1, tenant), a_call(1, tenant))])
    await journal.forget("acme")
    assert {fact.tenant for kind in ("event", "call") for fact in await journal.find(kind)} == {"other"}


@pytest.mark.rule("JRN-1", "JRN-4")
async def test_one_event_is_written_whole(tables: Database) -> None:
    """A write with a fact that the store refuses raises nothing, writes none of its facts, and counts its events."""
    journal = whole(tables)
    await journal.write([an_event(1), a_call(1, status="begun"), a_run(1, name=None)])
    assert await journal.find("event") == []
    assert (journal.lost, journal.turns, bool(journal.problem)) == (1, 1, True)
    await journal.write([an_event(1)])
    assert (journal.lost, journal.turns, journal.problem) == (1, 2, "")


# -- 100,000 facts -----------------------------------------------------------------------------------------------------


class Explained:
    """A database that shows the plan of each statement instead of running it."""

    def __init__(self, database: Database, *, postgres: bool) -> None:
        self.plans: list[str] = []
        self._database = database
        self._explain = "EXPLAIN" if postgres else "EXPLAIN QUERY PLAN"

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Keep the plan of one statement."""
        if not sql.startswith("INSERT"):
            rows = await self._database.fetch(f"{self._explain} {sql}", *values)
            self.plans.append("\n".join(str(row[-1]) for row in rows))
        return [(500,)] if sql.startswith("SELECT at ") else []

    async def run(self, script: Script[Any]) -> Any:
        """Keep the plans of a script's statements."""
        try:
            step = next(script)
            while True:
                assert isinstance(step, Statement)
                step = script.send(await self.fetch(step.sql, *step.values))
        except StopIteration as end:
            return end.value


class Early:
    """A clock that stands early among the filled facts, so that few of them are old."""

    def now(self) -> datetime:
        """Return the time."""
        return moment_of(500)


def filled(count: int) -> Script[None]:
    """Write this many facts of each kind, of ten tenants and a hundred sessions."""
    for kind in ("event", "hook", "call"):
        yield Statement(
            "INSERT INTO {schema}.fact WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($2 AS INTEGER)) "
            "SELECT $1, 'id' || i, 'tenant' || (i % 10), 's' || (i % 100), 0, 'tool:pre', 'guard', i, 'ok', 0, 1.0, "
            "'d' || i, NULL, '{{}}' FROM n".replace("$1", f"'{kind}'")
            .replace("$2", "$1")
            .replace("{{}}", "{}"),
            (count,),
        )


@pytest.mark.slow
@pytest.mark.rule("JRN-3")
@pytest.mark.parametrize("kind", FILES)
async def test_queries_use_an_index(kind: str, tmp_path: Path) -> None:
    """Among 100,000 facts every query of a view, and every removal, finds its facts by an index."""
    async with database(kind, tmp_path, JOURNAL_TABLES) as tables:
        await tables.run(filled(34_000))
        if kind == "postgres":
            await tables.fetch("ANALYZE {schema}.fact")
        explained = Explained(tables, postgres=kind == "postgres")
        journal = whole(explained, keep=timedelta(0), clock=Early(), most=10)
        page = (17_000, "id17000")
        queries: list[dict[str, Any]] = [
            {"kind": "event"},
            {"kind": "event", "after": page},
            {"kind": "event", "tenant": "tenant3", "event": "tool:pre", "denied": 0, "after": page},
            {"kind": "event", "tenant": "tenant3", "hook": "guard"},
            {"kind": "event", "id": "id7"},
            {"kind": "call", "tenant": "tenant3"},
            {"kind": "call", "tenant": "tenant3", "name": "guard", "status": "ok"},
            {"kind": "call", "tenant": "tenant3", "session": "s3", "digest": "d3", "status": "ok", "limit": 1},
        ]
        for query in queries:
            await journal.find(**query)
        await journal.statistics(tenant="tenant3")
        await journal.write([a_call(1, "tenant3")])
    plans, scan = explained.plans, "Seq Scan" if kind == "postgres" else "SCAN fact\n"
    unaided = [
        plan for plan in plans if ("Index" if kind == "postgres" else "USING") not in plan or scan in f"{plan}\n"
    ]
    sorted_here = [plan for plan in plans[: len(queries)] if "B-TREE FOR ORDER BY" in plan]
    assert (unaided, sorted_here) == ([], [])
    assert len(plans) == len(queries) + 4
    assert [("fact_digest" in plan) for plan in plans[: len(queries)]] == ["digest" in query for query in queries]


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("JRN-2")
def test_secrets_and_odd_texts() -> None:
    """A text and a value lose their secrets, as in the record; two different names never become one."""
    values = FactValues()
    secret = "ghp_0123456789abcdefghij"
    kept = json.dumps(values.value({"password": "hunter2-hunter2", "text": f"use {secret}", "odd": object()}))
    assert "hunter2" not in kept
    assert secret not in kept
    assert str(values.text(f"no\n\u202e {secret}")).startswith(r"no\u{0A}\u{202E} {$secret ")
    assert values.text("\ud800") == r"\ud800"
    assert secret not in str(values.text(f"{'x' * 1_010} {secret}"))
    assert values.text(None) is None
    assert values.value({"huge": ["x" * 500] * 100}) == {"$omitted": "dict", "why": "size"}
    long = [name_in_facts("x" * 300 + last) for last in "ab"]
    assert long[0] != long[1]
    assert max(map(len, long)) < 200
