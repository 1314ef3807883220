import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.library.parts.hook_database import AGAIN, HookDatabase
from amplifier_hooks.library.tool_ledger import ToolLedger, ToolLedgerSettings
from amplifier_hooks.record.journal import JOURNAL_TABLES, Journal
from amplifier_hooks.storage.database import Migrations, StoreUnavailable
from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase
from amplifier_hooks.testing import (
    HANG,
    CollectingAudit,
    CollectingDisplay,
    ManualClock,
    RecordingContext,
    ScriptedApprover,
)
from tests import stores

pytestmark = pytest.mark.rule("LIB-2", "LIB-7", "JRN-1", "JRN-2")


@asynccontextmanager
async def ledger(kind: str, folder: Path, **settings: Any) -> AsyncIterator[ToolLedger]:
    """Return a ledger in this kind of database."""
    given = ToolLedgerSettings.model_validate(settings)
    if kind == "postgres":
        await stores.server()
        async with (
            stores.schema() as schema,
            ToolLedger(given, database=partial(PostgresDatabase, stores.DSN, schema=schema)) as one,
        ):
            yield one
        return
    in_a_file = partial(SqliteDatabase, folder / "ledger.db")
    async with ToolLedger(given, database=MemoryDatabase if kind == "memory" else in_a_file) as one:
        yield one


@asynccontextmanager
async def working(one: ToolLedger, *hooks: Any, **options: Any) -> AsyncIterator[SessionCoordinator]:
    """Return a session with this ledger."""
    registry = HookRegistry()
    one.register(registry)
    for hook in hooks:
        registry.gate("tool:pre", hook)
    async with SessionCoordinator(registry, session_id="s", **options) as session, session.turn("go"):
        yield session


def fail(value: object) -> None:
    """Raise the error of a tool that fails."""
    raise FileNotFoundError("no a.txt, token=abcdef123456")


@pytest.mark.parametrize("kind", stores.KINDS)
async def test_every_call(kind: str, tmp_path: Path) -> None:
    """Calls that succeeded, failed, were denied or wait are kept with input, output, duration and status."""

    async def gate(event: str, data: Any) -> HookResult | None:
        if "rm" in str(data["tool_input"]):
            return HookResult.deny("not that")
        return HookResult.ask("Really?") if "ask" in str(data["tool_input"]) else None

    audit = CollectingAudit()
    approver = ScriptedApprover("Deny", HANG)
    async with ledger(kind, tmp_path) as one, working(one, gate, audit=audit, approvals=approver) as session:
        await session.call_tool("Read", {"path": "a"}, lambda value: {"text": "hello"})
        await session.call_tool("Read", {"path": "b"}, fail)
        await session.call_tool("Bash", {"command": "rm -rf /"}, fail)
        await session.call_tool("Bash", {"command": "ask"}, fail)
        kept = (await one.entries(session="s"))[::-1]
        assert [(entry.tool, entry.status) for entry in kept] == [
            ("Read", "ok"), ("Read", "failed"), ("Bash", "denied"), ("Bash", "denied"),
        ]  # fmt: skip
        by_status = {entry.status: entry for entry in kept}
        assert by_status["ok"].input == {"path": "a"}
        assert by_status["ok"].output == {"text": "hello"}
        assert (by_status["ok"].duration_ms or 0) > 0
        assert by_status["failed"].reason.startswith("FileNotFoundError: no a.txt, ")
        assert "abcdef" not in by_status["failed"].reason
        assert by_status["failed"].output is None
        running = [record.facts["digest"] for record in audit.records if record.kind == "tool.running"]
        assert running == [entry.digest for entry in kept[:2]]
        assert await one.entries(session="s", digest=running[1]) == [by_status["failed"]]
        assert [entry.tool for entry in await one.entries(status="denied")] == ["Bash", "Bash"]
        assert [entry.tool for entry in await one.entries(tool="Read", limit=1)] == ["Read"]
        assert await one.entries(tenant="acme") == await one.entries(session="other") == []


async def test_a_call_that_waits(tmp_path: Path) -> None:
    """A call without a decision is kept as pending, with the question; the decision continues its entry."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?"), name="ask")
    async with ledger("sqlite", tmp_path) as one:
        one.register(registry)
        payload = {"session_id": "s", "tool_call_id": "c", "tool_name": "Write", "tool_input": {}}
        await registry.emit("tool:pre", payload)
        assert [(entry.status, entry.reason) for entry in await one.entries()] == [("pending", "Really?")]
        await registry.emit("tool:post", {**payload, "result": 1, "duration_ms": 3.5})
        assert [(entry.status, entry.duration_ms) for entry in await one.entries()] == [("ok", 3.5)]


async def test_secrets_stay_out(tmp_path: Path) -> None:
    """No secret of an input, an output or a name is in the file; the digest is that of the original input."""
    async with ledger("sqlite", tmp_path) as one, working(one) as session:
        secret = "ghp_0123456789abcdefghij"
        for value in ({"password": "hunter2-hunter2"}, {"text": f"use {secret} there"}):
            await session.call_tool("Login", value, lambda value: {"Authorization": f"Bearer {secret}", "ok": True})
        await session.call_tool(f"Run {secret}", {}, lambda value: 1, call_id=f"call {secret}")
        _, *kept = await one.entries()
        assert kept[0].output["ok"] is True
        assert kept[0].digest != kept[1].digest
    data = (tmp_path / "ledger.db").read_bytes()
    assert b"ghp_0123456789" not in data
    assert b"hunter2" not in data


@pytest.mark.parametrize(
    "value",
    [{"a": object()}, {1: 2}, {"a": "\ud800\x00"}, {"a": float("nan")}, {"a": "x" * 100_000}, {"a": [[]] * 3_000}],
)
async def test_odd_values(value: Any, tmp_path: Path) -> None:
    """A value that JSON cannot hold, or that is too large, is kept in another form, and stops no call."""
    async with ledger("sqlite", tmp_path) as one:
        registry = HookRegistry()
        one.register(registry)
        payload = {"session_id": "s\x00", "tool_name": "\ud800Read", "tool_input": value, "result": value}
        await registry.emit("tool:post", {**payload, "duration_ms": "long"})
        await registry.emit("tool:error", {**payload, "tool_call_id": "x", "error": value})
        (first, second) = await one.entries()
        assert {first.status, second.status} == {"ok", "failed"}
        assert len(str(first.input)) < 70_000


async def test_a_note_when_a_call_comes_again(tmp_path: Path) -> None:
    """A call that changes something gets a note if an equal call succeeded before; other calls and failures do not."""
    context = RecordingContext()
    registry = HookRegistry()

    async def before(tool: str, value: object, **more: Any) -> str | None:
        payload = {"session_id": "s", "cwd": str(Path.cwd()), "tool_name": tool, "tool_input": value, **more}
        return (await registry.emit("tool:pre", payload)).context_injection

    async with ledger("sqlite", tmp_path) as one:
        one.register(registry)
        async with SessionCoordinator(registry, session_id="s", context=context) as session, session.turn("go"):
            await session.call_tool("Write", {"path": "a"}, lambda value: "written " + "x" * 300)
            await session.call_tool("Write", {"path": "b"}, fail)
            await session.call_tool("Read", {"path": "a"}, lambda value: "text")
            note = await before("Write", {"path": "a"})
            assert note is not None
            note = re.sub("[0-9]{2}:[0-9]{2}:[0-9]{2}", "12:00:00", note)
            assert note == (
                "An equal call of Write succeeded in this session at 12:00:00. Repeat it only if that is meant."
            ), "and nothing that the tool said, which would gain weight by it"
            assert await before("Write", {"path": "b"}) is None
            assert await before("Write", {"path": "c"}) is None
            assert await before("Read", {"path": "a"}) is None
            assert await before("Read", {"path": "a"}, side_effects=["creates a"]) is not None
            assert await before("Write", {"path": "a"}, session_id="t") is None
            assert await before("Write", {1: 2}) is None
        (begun,) = await one.entries(status="begun", tool="Read")
        assert begun.effects == ["creates a"]


async def test_a_call_whose_end_nobody_saw(tmp_path: Path) -> None:
    """A call that changes something is in the ledger before it runs, and can be found after a crash."""
    async with ledger("sqlite", tmp_path) as one, working(one) as session:
        begun = asyncio.Event()

        async def send(value: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(session.call_tool("send_mail", {"to": "ann"}, send))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        (entry,) = await one.entries()
        assert (entry.status, entry.duration_ms) == ("begun", None)


async def test_old_calls_go(tmp_path: Path) -> None:
    """Calls older than the limit are removed when the ledger is opened again."""
    for days, kept in ((0, 1), (20, 2), (35, 2)):
        clock = ManualClock()
        clock.advance(timedelta(days=days).total_seconds())
        async with (
            ToolLedger(ToolLedgerSettings(store=str(tmp_path / "l.db")), clock=clock) as one,
            working(one) as session,
        ):
            await session.call_tool("Read", {}, lambda value: 1, call_id=f"call-{days}")
            assert len(await one.entries()) == kept


async def test_old_calls_go_while_it_is_open(tmp_path: Path) -> None:
    """A ledger that stays open for long removes old calls."""
    clock = ManualClock()
    hook = ToolLedger(ToolLedgerSettings(store=str(tmp_path / "l.db"), days=1), clock=clock)
    async with hook as one, working(one) as session:
        for number in range(4):
            await session.call_tool("Read", {}, lambda value: 1, call_id=f"call-{number}")
            clock.advance(timedelta(days=1, seconds=1).total_seconds())
        assert [entry.call for entry in await one.entries()] == ["call-3"]


# -- when the store does not work --------------------------------------------------------------------------------------


class Opened:
    """Databases as a ledger opened them, to reach the one in use, and a clock for the rest after a failure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database: SqliteDatabase | None = None
        self.now = 0.0

    def __call__(self, tables: Migrations) -> SqliteDatabase:
        """Open the file, with a short timeout."""
        self.database = SqliteDatabase(self.path, tables, limit=0.3)
        return self.database


@asynccontextmanager
async def troubled(path: Path) -> AsyncIterator[tuple[ToolLedger, SessionCoordinator, CollectingDisplay, Opened]]:
    """Return a ledger that has kept one call, its session and screen, and its database."""
    opened, display = Opened(path), CollectingDisplay()
    one = ToolLedger(ToolLedgerSettings(), database=opened)
    one._database = HookDatabase("tool_ledger", JOURNAL_TABLES, opened, lambda: opened.now)
    one._journal = Journal(one._database, "call", keep=timedelta(days=1), clock=ManualClock())
    async with one, working(one, display=display) as session:
        await session.call_tool("Write", {"n": 0}, lambda value: "x")
        yield one, session, display, opened


def texts(display: CollectingDisplay) -> list[str]:
    """Return the messages that the user saw."""
    return [text for text, _, _ in display.messages]


async def test_a_locked_store(tmp_path: Path) -> None:
    """While another process holds the file, calls go on; the user is told, and later reads how many are missing."""
    path = tmp_path / "ledger.db"
    async with troubled(path) as (one, session, display, opened):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        outcomes = [await session.call_tool("Write", {"n": n}, lambda value: "x") for n in (1, 2, 3)]
        assert all(outcome.ok for outcome in outcomes)
        (told,) = texts(display)
        assert told.startswith(
            "The ledger of tool calls cannot be used, and the session goes on without it: the store "
        )  # is locked; or it did not answer, on a busy machine
        other.execute("ROLLBACK")
        other.close()
        opened.now += AGAIN
        await session.call_tool("Write", {"n": 4}, lambda value: "x")
        await session.call_tool("Write", {"n": 5}, lambda value: "x")
        assert texts(display)[1:] == ["The ledger of tool calls works again; 3 calls are missing from it."]
        assert [entry.input["n"] for entry in await one.entries()][::-1] == [0, 4, 5]


async def test_a_full_store(tmp_path: Path) -> None:
    """A disk that is full keeps no call from running; the user is told once."""
    async with troubled(tmp_path / "ledger.db") as (_, session, display, opened):
        assert opened.database is not None
        await opened.database.fetch("PRAGMA max_page_count = 1")
        outcomes = [await session.call_tool("Write", {"n": "x" * 9_000}, lambda value: "x") for _ in range(3)]
        assert all(outcome.ok for outcome in outcomes)
        (told,) = texts(display)
        assert told.endswith("database or disk is full")


async def test_a_store_that_is_none(tmp_path: Path) -> None:
    """A file that is no ledger is left alone; the end of the turn tells the user if no further call did."""
    path, display = tmp_path / "ledger.db", CollectingDisplay()
    path.write_bytes(b"this is no database at all, but it is somebody's")
    path.chmod(0o600)
    async with ToolLedger(ToolLedgerSettings(store=str(path))) as one:
        async with working(one, display=display) as session:
            assert (await session.call_tool("Read", {}, lambda value: "x")).ok
            assert texts(display) == []
        (told,) = texts(display)
        assert "the store is damaged: file is not a database" in told
        with pytest.raises(StoreUnavailable):
            await one.entries()
    assert path.read_bytes().startswith(b"this is no database")
