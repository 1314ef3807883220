"""Requests on the card of a terminal as they arrive, over the store of another process."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.terminal_io import user_name
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import DENY, a_request
from tests.person import Person

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

WATCHING = """
import json, sys, termios
from amplifier_hooks.cli.app import app
before = termios.tcgetattr(0)
try:
    app(["approvals", "watch", *json.loads(sys.argv[1])])
except SystemExit as end:
    print("ENDED", end.code, termios.tcgetattr(0) == before)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The path of a future store; its folder is the user's own."""
    return tmp_path / "approvals.db"


def at(path: Path, work: Callable[[Broker], Awaitable[Any]]) -> Any:
    """Do something with a store, beside its watcher."""

    async def done() -> Any:
        async with Broker(SqliteStore(path)) as broker:
            return await work(broker)

    return asyncio.run(done())


def asked(path: Path, name: str, seconds: float = 300, **changes: Any) -> None:
    """Ask for something, as an agent in another process would."""
    now = datetime.now(UTC)
    request = replace(a_request(id=name, arguments={"name": name}, **changes), created=now)
    at(path, lambda broker: broker.submit(replace(request, expires=now + timedelta(seconds=seconds))))


def outcome(path: Path, name: str, seconds: float = 10) -> tuple[str, str | None, str | None]:
    """Return the status of a request within so many seconds, with the decider and the channel."""
    record = at(path, lambda broker: broker.wait(name, seconds))
    decision = record.decision
    return record.status, decision and decision.by, decision and decision.channel


def watching(path: Path, *options: str) -> Person:
    """Return a person who watches a store."""
    return Person("--store", str(path), *options, program=WATCHING)  # type: ignore[arg-type]  # its arguments


@pytest.mark.rule("CLI-2", "BCK-5", "BCK-7")
@pytest.mark.fault("F-CLI-05", "F-CLI-11")
def test_watch(store: Path) -> None:
    """Requests come one at a time, oldest first; an answer of another approver takes its request off the screen."""
    asked(store, "first")
    asked(store, "second")
    person = watching(store)
    person.sees("name  first", "1 more waiting", "Enter confirms")
    digest = at(store, lambda broker: broker.store.get("first")).digest
    kim = Decider(name="Kim\x1b[2J", channel="page")
    at(store, lambda broker: broker.decide("first", digest, DENY.id, kim))
    person.sees("name  second")
    person.misses("name  first", "more waiting")
    person.selects("a", "a Allow")
    person.types("\r")
    person.sees("denied by Kim\\u{1B}[2J (page)", "): Allow")
    assert b"Kim\x1b" not in person.raw
    assert outcome(store, "second") == ("approved", user_name(), "cli")
    asked(store, "third")
    person.sees("name  third")
    person.types("\x03")
    person.sees("): Deny")
    assert outcome(store, "third") == ("denied", user_name(), "cli")
    person.types("\x03")
    person.sees("Stopped.", "ENDED 0 True")
    person.child.close()


@pytest.mark.rule("BCK-11", "CLI-2")
def test_alike_requests_together(store: Path) -> None:
    """One answer decides every listed request of low risk in the store; one of medium risk comes next by itself."""
    for name in ("first", "second"):
        asked(store, name, risk="low")
    asked(store, "other")
    person = watching(store)
    person.sees("name  first", "2 more waiting", "b Allow all 2", "Enter confirms")
    person.selects("b", "b Allow all 2")
    person.sees("2 alike actions of low risk", "first", "second")
    person.types("\r")
    person.sees("name  other", "Enter confirms")
    for name in ("first", "second"):
        assert outcome(store, name) == ("approved", user_name(), "cli")
    assert outcome(store, "other", 0)[0] == "pending"
    person.child.close()


@pytest.mark.rule("APR-6")
def test_a_row_that_changed_in_the_store(store: Path) -> None:
    """The watcher shows no request whose arguments no longer have its digest, and goes on with the next."""
    asked(store, "first")
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("""UPDATE approval_request SET request = replace(request, '"name":"first"', '"name":"ls"')""")
    person = watching(store)
    person.sees("Not shown: the arguments of request 'first' do not have its digest.")
    asked(store, "second")
    person.sees("name  second")
    person.misses("name  ls")
    assert outcome(store, "first", 0)[0] == "pending"
    person.child.close()


@pytest.mark.slow
@pytest.mark.rule("CLI-2")
def test_waiting_and_leaving(store: Path) -> None:
    """Watching may begin before the store exists; an expired request is reported; leaving the card decides nothing."""
    person = watching(store, "--session", "session-1")
    person.sees("Waiting for requests in ")
    asked(store, "other", session="session-2")
    asked(store, "short", seconds=2)
    person.sees("name  short")
    person.sees("): expired", "no answer came")
    assert outcome(store, "short") == ("expired", None, None)
    asked(store, "open")
    person.sees("name  open")
    person.child.kill(signal.SIGTERM)
    person.child.wait()
    assert outcome(store, "open", 0) == outcome(store, "other", 0) == ("pending", None, None)


@pytest.mark.rule("CLI-2")
def test_later(store: Path) -> None:
    """A card can be left without an answer: the request stays open, and the next one is shown."""
    asked(store, "first")
    asked(store, "second")
    person = watching(store)
    person.sees("name  first", "l Later", "Enter confirms")
    person.selects("l", "l Later")
    person.types("\r")
    person.sees("name  second")
    assert outcome(store, "first", 0) == ("pending", None, None)
    person.types("\x03")
    person.sees("): left open; nothing was decided", "): Deny")
    person.types("\x03")
    person.sees("Stopped.", "ENDED 0 True")
    person.child.close()
    assert outcome(store, "first", 0) == ("pending", None, None)


@pytest.mark.rule("CLI-1", "CLI-2")
@pytest.mark.fault("F-CLI-04")
def test_watch_without_a_terminal(store: Path) -> None:
    """Without a terminal watching ends at once, names the other commands, and makes no store."""
    told = CliRunner().invoke(app, ["approvals", "watch", "--store", str(store)], input="a\r\r")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.startswith("There is no terminal to show requests on; use 'approvals list' and ")
    assert not store.exists()
