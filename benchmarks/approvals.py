"""The cost of an approval: ask, decide, wake, beside the bare commits and notifications that any store needs.

The bare work is done by the same driver with the same settings on the same disk: for SQLite two durable commits on a
connection of its own, for PostgreSQL one `UPDATE … RETURNING` with a notification and the wait for it, in memory a
future that one task sets and another awaits. PostgreSQL is the server at AMPLIFIER_TEST_POSTGRES, if one answers.
"""

# ruff: noqa: S608  # the only names in statements are made here

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from msgspec.structs import replace

from amplifier_hooks.approvals import act_of
from amplifier_hooks.ports import ApprovalRequest, Option, Question
from amplifier_hooks.storage.sqlite import SETTINGS
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.approval_store import OpenRequestLimits
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.postgres import PostgresStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.stores.transactions import OPEN, DatabaseStore
from benchmarks.options import parser
from benchmarks.rounds import QUICK, THOROUGH, Effort, Samples, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from approval_backends.stores.approval_store import ApprovalStore

DSN: Final = os.environ.get("AMPLIFIER_TEST_POSTGRES") or "postgresql://postgres@127.0.0.1:5432/postgres"
ROOM: Final = OpenRequestLimits(per_session=1_000_000, per_tenant=1_000_000)
ROBIN: Final = Decider(name="Robin", channel="bench")
LISTED: Final = 10_000
WHY: Final = (
    "On PostgreSQL the bare work is one commit; an approval is two, and one that is decided elsewhere takes two more "
    "round trips: a notification and a read. Each round trip takes some 60 µs of this process, of which asyncpg's pool "
    "takes 27. Half of the time of a list goes to decoding the requests."
)
REQUESTERS: Final = 32
DECIDERS: Final = 2
CROWD: Final = 2_000

TARGETS: Final = {"memory": 10.0, "SQLite": 1.5, "PostgreSQL": 3.0, "PostgreSQL, decided elsewhere": 3.0}
LISTING_AT_MOST: Final = {"SQLite": 3.0, "PostgreSQL": 2.0}
BARE: Final = {
    "memory": "a future between two tasks",
    "SQLite": "two durable commits",
    "PostgreSQL": "`UPDATE … RETURNING`, notified",
    "PostgreSQL, decided elsewhere": "`UPDATE … RETURNING`, notified",
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    if arguments[:1] == ["--decider"]:
        asyncio.run(decider(*arguments[1:]))
        return
    chosen = parser("approvals", __doc__).parse_args(arguments)
    asyncio.run(report(quick=chosen.quick, write=chosen.write))


async def report(*, quick: bool, write: bool) -> None:
    """Measure everything, in one run."""
    effort = QUICK if quick else Effort(THOROUGH.rounds, 0.05)
    out = Report("approvals", ("asyncpg",))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        memory, file = MemoryStore(ROOM), await stack.enter_async_context(SqliteStore(folder / "ours.db", ROOM))
        pairs: dict[str, tuple[Timed, Timed]] = {
            "memory": (timed(future_round_trip), timed(deciding(memory), memory)),
            "SQLite": (timed(two_commits(folder / "bare.db")), timed(deciding(file), file)),
        }
        name = f"bench_{uuid4().hex}" if await answers() else None
        if name is not None:
            store = await stack.enter_async_context(schema(name))
            bare = await stack.enter_async_context(notified_update(name))
            elsewhere = await stack.enter_async_context(PostgresStore(DSN, ROOM, schema=name))
            pairs["PostgreSQL"] = (timed(bare), timed(deciding(store), store))
            pairs["PostgreSQL, decided elsewhere"] = (timed(bare), timed(deciding(store, elsewhere), store))
        rows = []
        for kind, (bare_work, own_work) in pairs.items():
            samples = await measure({"bare": bare_work, "ours": own_work}, effort)
            rows.append(round_trip_row(kind, samples["bare"], samples["ours"]))
        out.text("Submit, decide, wake the waiter: times the bare work takes, median of the same-round ratios.")
        out.table(["store", "beside", "bare, µs", "ours, µs", "ratio", "half within", *VERDICT], rows)

        count = 100 if quick else LISTED
        listed = [await listing(kind, store, count, effort) for kind, store in await listers(stack, folder, name)]
        out.text(f"Listing {count:,} pending requests, beside fetching the whole rows and looking at none.")
        out.table(["store", "bare, ms", "ours, ms", "ratio", *VERDICT], listed)
        if name is not None:
            out.text(WHY)
            out.text(await crowd(name, 64 if quick else CROWD))
    out.finish(write=write)


# -- one at a time -----------------------------------------------------------------------------------------------------


def a_request(tenant: str = "acme") -> ApprovalRequest:
    """Return a request like those of a file tool."""
    now = datetime.now(UTC)
    request = ApprovalRequest(
        id=uuid4().hex,
        tenant=tenant,
        session="session-1",
        agent="coder",
        event="tool:pre",
        tool="Write",
        arguments={"file_path": "src/app.py", "content": "print('hello')\n" * 10},
        digest="",
        questions=(Question(hook="guard", prompt="Write to src/app.py?"),),
        options=(Option(id="1", label="Allow", kind="allow_once"), Option(id="2", label="Deny", kind="reject_once")),
        default="deny",
        created=now,
        expires=now + timedelta(seconds=300),
    )
    return replace(request, digest=act_of(request).digest)


def deciding(store: ApprovalStore, elsewhere: ApprovalStore | None = None) -> Callable[[], Awaitable[None]]:
    """Ask in one task; decide as soon as that is stored, over the same store or another connection to it."""
    broker, other = Broker(store), Broker(elsewhere or store)

    async def work() -> None:
        request = a_request()
        with store.watch() as watch:
            waiter = asyncio.ensure_future(broker.ask(request))
            await watch.wait(5)
        await other.decide(request.id, request.digest, "1", ROBIN)
        await waiter

    return work


async def future_round_trip() -> None:
    """Let one task wait, and another answer."""
    loop = asyncio.get_running_loop()
    question, answer = loop.create_future(), loop.create_future()

    async def waits() -> None:
        question.set_result(1)
        await answer

    waiter = loop.create_task(waits())
    await question
    answer.set_result(2)
    await waiter


def two_commits(path: Path) -> Callable[[], Awaitable[None]]:
    """Insert a row and update it, each in a transaction of its own, on the loop's own thread."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in SETTINGS:
        connection.execute(setting)
    connection.execute("CREATE TABLE bare (id TEXT PRIMARY KEY, status TEXT, body TEXT)")
    body = json.dumps({"text": "x" * 500})

    async def work() -> None:
        name = uuid4().hex
        connection.execute("INSERT INTO bare VALUES (?, 'pending', ?)", (name, body))
        connection.execute("UPDATE bare SET status = 'approved' WHERE id = ? AND status = 'pending'", (name,))

    return work


@asynccontextmanager
async def notified_update(name: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """One conditional update that notifies, until a listening connection has heard of it."""
    import asyncpg

    writer, listener = await asyncpg.connect(DSN), await asyncpg.connect(DSN)
    await writer.execute(f'CREATE TABLE "{name}".bare (id INTEGER PRIMARY KEY, turn INTEGER)')
    await writer.execute(f'INSERT INTO "{name}".bare VALUES (1, 0)')
    heard = asyncio.Event()
    await listener.add_listener(f"{name}_bare", lambda *_: heard.set())
    sql = (  # the name is made here
        f'WITH changed AS (UPDATE "{name}".bare SET turn = turn + 1 WHERE id = 1 RETURNING turn) '
        f"SELECT turn, pg_notify('{name}_bare', '1') FROM changed"
    )

    async def work() -> None:
        heard.clear()
        await writer.fetch(sql)
        await heard.wait()

    try:
        yield work
    finally:
        await writer.close()
        await listener.close()


def timed(work: Callable[[], Awaitable[None]], store: ApprovalStore | None = None) -> Timed:
    """Return a function that does the work so many times; it withdraws approved requests when the clock has stopped."""

    async def run(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            await work()
        spent = perf_counter() - start
        if store is not None:
            await store.end_session("acme", "session-1")
        return spent

    return run


def round_trip_row(kind: str, bare: Samples, ours: Samples) -> list[str]:
    """Return one line of the table."""
    ratio = ours.ratio(bare)
    low, high = ours.spread(bare)
    figures = [number(bare.usual), number(ours.usual), number(ratio), f"{low:.2f} to {high:.2f}"]
    return [kind, BARE[kind], *figures, *verdict(ratio, TARGETS[kind])]


# -- many --------------------------------------------------------------------------------------------------------------


async def listers(stack: AsyncExitStack, folder: Path, name: str | None) -> list[tuple[str, Any]]:
    """Stores with a database below, empty."""
    found: list[tuple[str, Any]] = [("SQLite", await stack.enter_async_context(SqliteStore(folder / "list.db", ROOM)))]
    if name is not None:
        found.append(("PostgreSQL", await stack.enter_async_context(schema(f"{name}_list"))))
    return found


async def listing(kind: str, store: Any, count: int, effort: Effort) -> list[str]:
    """All pending requests as records, beside their rows."""
    chunk = 100
    script = DatabaseStore.submit.__wrapped__  # type: ignore[attr-defined]  # in few transactions

    def many() -> Any:
        for place in range(chunk):
            yield from script(store, a_request(f"tenant-{place}"))

    for _ in range(count // chunk):
        await store.database.run(many())

    async def bare() -> None:
        await store.database.fetch(f"{OPEN} ORDER BY created, id LIMIT {LISTED}")

    async def ours() -> None:
        records = await store.pending()
        assert len(records) == count
        assert isinstance(records[0], RequestRecord)

    samples = await measure({"bare": timed(bare), "ours": timed(ours)}, Effort(min(effort.rounds, 11), 0.0), number=1)
    ratio = samples["ours"].ratio(samples["bare"])
    figures = [number(samples[one].usual / 1e3) for one in ("bare", "ours")]
    return [kind, *figures, number(ratio), *verdict(ratio, LISTING_AT_MOST[kind])]


async def crowd(name: str, count: int) -> str:
    """Parallel requesters here, deciding processes elsewhere: how many a second, and whether any was decided twice."""
    async with schema(f"{name}_crowd") as store:
        broker = Broker(store)
        command = [sys.executable, "-m", "benchmarks", "approvals", "--decider", f"{name}_crowd"]
        deciders = [
            await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            for _ in range(DECIDERS)
        ]
        for process in deciders:
            assert process.stdout is not None
            await process.stdout.readline()  # it is ready
        waits: list[float] = []

        async def requester() -> None:
            for _ in range(count // REQUESTERS):
                start, request = perf_counter(), a_request()
                await broker.submit(request)
                record = await broker.wait(request.id)
                assert record.status == "approved"
                waits.append(perf_counter() - start)

        start = perf_counter()
        await asyncio.gather(*(requester() for _ in range(REQUESTERS)))
        spent = perf_counter() - start
        won = [int((await process.communicate(b"stop\n"))[0].split()[-1]) for process in deciders]
        twice = sum(won) - len(waits)
    return (
        f"{REQUESTERS} requesters in one process, {DECIDERS} processes that both decide every request on PostgreSQL: "
        f"{len(waits):,} requests, {len(waits) / spent:,.0f} a second, {median(waits) * 1e3:.1f} ms each (median); "
        f"won by each decider: {', '.join(map(str, won))}; decided twice: {twice}."
    )


async def decider(name: str) -> None:
    """Decide whatever is pending, until told to stop; then say how often this process was the one that decided."""
    won, loop = 0, asyncio.get_running_loop()
    stop = loop.run_in_executor(None, sys.stdin.readline)
    async with PostgresStore(DSN, ROOM, schema=name) as store:
        broker = Broker(store)
        print("ready", flush=True)
        with broker.watch() as watch:
            while not stop.done():
                for record in await broker.pending(ROBIN):
                    resolution = await broker.decide(record.id, record.digest, "1", ROBIN)
                    won += resolution.accepted
                await watch.wait(0.05)
    print(won)


@asynccontextmanager
async def schema(name: str) -> AsyncIterator[PostgresStore]:
    """A store in a schema that is gone afterwards."""
    async with PostgresStore(DSN, ROOM, schema=name) as store:
        try:
            yield store
        finally:
            await store.database.fetch("DROP SCHEMA {schema} CASCADE")


async def answers() -> bool:
    """Return True if a PostgreSQL server answers."""
    import asyncpg

    try:
        await (await asyncpg.connect(DSN, timeout=5)).close()
    except (OSError, asyncpg.PostgresError):
        return False
    return True
