"""The SQLite file: its permissions, its durability, and its errors."""

# files and processes are the subject, and nothing else is to be done

# ruff: noqa: ASYNC221, ASYNC222, ASYNC240  # files and processes are the subject, and nothing else is to be done

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_hooks.storage.database import (
    CorruptStore,
    Migrations,
    SchemaMismatch,
    Statement,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    UnsafeStore,
    Wake,
)
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_hooks.storage.database import Script

NOTES = Migrations(component="notes", steps=(("CREATE TABLE {schema}.note (id INTEGER PRIMARY KEY, text TEXT)",),))
MORE = Migrations(
    component="notes",
    steps=(
        *NOTES.steps,
        ("ALTER TABLE note ADD COLUMN by_whom TEXT", "CREATE INDEX note_by ON note (by_whom)"),
    ),
)
BROKEN = Migrations(
    component="notes", steps=(*NOTES.steps, ("CREATE TABLE other (id INTEGER)", "CREATE TABLE note (id)"))
)
INSERT = "INSERT INTO {schema}.note (text) VALUES ($1) RETURNING id"


def adding(*texts: str) -> Script[list[int]]:
    """Add notes in one transaction."""
    made = []
    for text in texts:
        ((number,),) = yield Statement(INSERT, (text,))
        made.append(number)
        yield Wake(text)
    return made


async def texts(database: Any) -> list[str]:
    """Return the notes in the store."""
    return [text for (text,) in await database.fetch("SELECT text FROM {schema}.note ORDER BY id")]


@asynccontextmanager
async def another_process(path: Path, program: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a Python process with a connection `c` to the same file, and wait until it is ready."""
    lines = f"import sqlite3, sys\nc = sqlite3.connect({str(path)!r}, isolation_level=None)\n{program}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", lines, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield process
    finally:
        await process.communicate(b"\n")


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize(
    "make", [lambda path: SqliteDatabase(path, NOTES), lambda _: MemoryDatabase(NOTES)], ids=["file", "memory"]
)
async def test_transactions(make: Any, tmp_path: Path) -> None:
    """A script is one transaction: it writes everything or, if it raises, nothing."""
    async with make(tmp_path / "store.db") as database:
        assert await database.run(adding("a", "b")) == [1, 2]

        def failing() -> Script[None]:
            yield from adding("c")
            raise LookupError("no")

        with pytest.raises(LookupError):
            await database.run(failing())
        with pytest.raises(StoreUnavailable):
            await database.run(adding_nonsense())
        assert await texts(database) == ["a", "b"]
        assert await database.open() is database
    await database.close()


def adding_nonsense() -> Script[None]:
    """Add a note, then yield a statement that no database understands."""
    yield from adding("d")
    yield Statement("NONSENSE")


async def test_wakes(tmp_path: Path) -> None:
    """Watchers of a topic, or of all, are woken once the transaction is committed; others are not."""
    async with SqliteDatabase(tmp_path / "store.db", NOTES, poll=3600) as database:
        with database.watch("a") as a, database.watch("b") as b, database.watch() as every:
            await database.run(adding("a"))
            assert [await one.wait(0) for one in (a, b, every)] == [True, False, True]
            assert [await one.wait(0) for one in (a, b, every)] == [False, False, False]


@pytest.mark.rule("BCK-8")
async def test_another_process_wakes(tmp_path: Path) -> None:
    """A write by another process wakes all watchers here."""
    path = tmp_path / "store.db"
    async with SqliteDatabase(path, NOTES) as database:
        program = (
            "print('ready', flush=True)\nsys.stdin.readline()\nc.execute(\"INSERT INTO note (text) VALUES ('x')\")"
        )
        async with another_process(path, program) as process:
            with database.watch("anything") as watch:
                assert await texts(database) == []
                assert process.stdin is not None
                process.stdin.write(b"\n")
                assert await watch.wait(60)
                assert await texts(database) == ["x"]


async def test_watch_ends_with_the_store(tmp_path: Path) -> None:
    """Closing the store wakes its waiters, and their next read raises."""
    database = await SqliteDatabase(tmp_path / "store.db", NOTES).open()
    with database.watch("a") as watch:
        waiting = asyncio.ensure_future(watch.wait(60))
        await asyncio.sleep(0)
        await database.close()
        assert await waiting
    with pytest.raises(StoreClosed, match="open it first"):
        await texts(database)


@pytest.mark.fault("F-ST-08")
async def test_modes(tmp_path: Path) -> None:
    """The file and its journal are for their owner only, whatever the umask."""
    mask = os.umask(0)
    try:
        async with SqliteDatabase(tmp_path / "store.db", NOTES) as database:
            await database.run(adding("a"))
    finally:
        os.umask(mask)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "store.db": 0o600,
        "store.db-journal": 0o600,
    }


@pytest.mark.fault("F-ST-08")
@pytest.mark.parametrize("trouble", ["readable", "link", "folder", "shared folder", "sticky folder", "pipe"])
async def test_unsafe_places(trouble: str, tmp_path: Path) -> None:
    """A store that other users could read, replace, or put a journal beside is refused, and stays untouched."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    path = folder / "store.db"
    async with SqliteDatabase(path, NOTES):
        pass
    match trouble:
        case "readable":
            path.chmod(0o640)
        case "link":
            path.rename(folder / "real.db")
            path.symlink_to(folder / "real.db")
        case "folder":
            path.unlink()
            path.mkdir()
        case "shared folder":
            folder.chmod(0o770)
        case "sticky folder":
            folder.chmod(0o1777)
        case _:
            path.unlink()
            os.mkfifo(path, 0o600)
    before = sorted(one.name for one in folder.iterdir())
    with pytest.raises(UnsafeStore):
        await SqliteDatabase(path, NOTES).open()
    assert sorted(one.name for one in folder.iterdir()) == before


@pytest.mark.fault("F-ST-05")
async def test_no_folder(tmp_path: Path) -> None:
    """The error names a missing folder."""
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await SqliteDatabase(tmp_path / "missing" / "store.db", NOTES).open()


@pytest.mark.fault("F-ST-06")
@pytest.mark.parametrize("damage", ["page", "cut", "empty", "text", "foreign"])
async def test_damage(damage: str, tmp_path: Path) -> None:
    """A damaged store, an empty file and a foreign database are refused and stay as they are."""
    path = tmp_path / "store.db"
    async with SqliteDatabase(path, NOTES) as database:
        await database.run(adding(*(f"note {number} {'x' * 200}" for number in range(200))))
    whole = path.read_bytes()
    match damage:
        case "page":
            path.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not a database, but long enough to be read as one " * 20, encoding="ascii")
        case _:
            path.unlink()
            sqlite3.connect(path).execute("CREATE TABLE theirs (id)").connection.close()
            path.chmod(0o600)
    bytes_before = path.read_bytes()
    with pytest.raises(CorruptStore):
        await SqliteDatabase(path, NOTES).open()
    assert path.read_bytes() == bytes_before


@pytest.mark.fault("F-ST-06")
async def test_versions(tmp_path: Path) -> None:
    """Older tables are migrated step by step and keep their rows; newer tables are refused untouched."""
    path = tmp_path / "store.db"
    async with SqliteDatabase(path, NOTES) as database:
        await database.run(adding("a"))
    async with SqliteDatabase(path, MORE) as database:
        assert await database.fetch("SELECT text, by_whom FROM {schema}.note") == [("a", None)]
    with pytest.raises(SchemaMismatch, match="version 2, and this program knows 1; upgrade it"):
        await SqliteDatabase(path, NOTES).open()
    async with SqliteDatabase(path, MORE) as database:
        assert await texts(database) == ["a"]


@pytest.mark.fault("F-ST-07")
async def test_migration_that_fails(tmp_path: Path) -> None:
    """A step that fails halfway leaves the old tables, and the earlier program can continue."""
    path = tmp_path / "store.db"
    async with SqliteDatabase(path, NOTES) as database:
        await database.run(adding("a"))
    with pytest.raises(StoreUnavailable):
        await SqliteDatabase(path, BROKEN).open()
    async with SqliteDatabase(path, NOTES) as database:
        tables = await database.fetch("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        assert tables == [("note",), ("schema_version",)]
        assert await texts(database) == ["a"]


MIGRATING = """
import asyncio, os, signal, sys
from amplifier_hooks.storage.database import Migrations
from amplifier_hooks.storage import sqlite
path, when = sys.argv[1], int(sys.argv[2])
steps = (("CREATE TABLE {schema}.note (id INTEGER PRIMARY KEY, text TEXT)",),
         ("ALTER TABLE note ADD COLUMN by_whom TEXT", "CREATE INDEX note_by ON note (by_whom)"))
own, count = sqlite._without_schema, 0
def counted(sql):
    global count
    count += 1
    if count == when:
        os.kill(os.getpid(), signal.SIGKILL)
    return own(sql)
sqlite._without_schema = counted
async def main():
    async with sqlite.SqliteDatabase(path, Migrations(component="notes", steps=steps)):
        print("migrated")
asyncio.run(main())
"""


@pytest.mark.fault("F-ST-07", "F-ST-02")
@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("when", [1, 3, 4, 5, 7])
async def test_killed_while_migrating(when: int, existing: bool, tmp_path: Path) -> None:
    """A process killed within a migration leaves the old tables or the new ones, and no half-made file."""
    path = tmp_path / "store.db"
    if existing:
        async with SqliteDatabase(path, NOTES) as database:
            await database.run(adding("a"))
    run = subprocess.run(
        [sys.executable, "-c", MIGRATING, str(path), str(when)], capture_output=True, text=True, check=False
    )
    assert (run.returncode == -9) is (when < 7 or not existing), run.stderr
    assert path.exists() is existing
    async with SqliteDatabase(path, MORE) as database:
        assert await texts(database) == (["a"] if existing else [])


@pytest.mark.fault("F-ST-04")
async def test_locked(tmp_path: Path) -> None:
    """While another process holds the file, a write fails at its timeout; afterwards everything works again."""
    path = tmp_path / "store.db"
    program = "c.execute('BEGIN EXCLUSIVE')\nprint('ready', flush=True)\nsys.stdin.readline()"
    async with SqliteDatabase(path, NOTES, limit=0.2) as database:
        async with another_process(path, program):
            with pytest.raises(StoreBusy):
                await database.run(adding("a"))
            await cast("Any", database._thread).run(int)  # a busy machine's write gives up after its caller
        assert await database.run(adding("b")) == [1]


@pytest.mark.fault("F-ST-05")
async def test_full(tmp_path: Path) -> None:
    """A full disk is a typed error, nothing is half-written, and the store recovers once there is room."""
    async with SqliteDatabase(tmp_path / "store.db", NOTES) as database:
        await database.run(adding("a"))
        ((pages,),) = await database.fetch("PRAGMA page_count")
        await database.fetch(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match="store_unavailable: database or disk is full"):
            await database.run(adding("b", "x" * 100_000))
        assert await texts(database) == ["a"]
        await database.fetch("PRAGMA max_page_count = 100000")
        await database.run(adding("b"))
        assert await texts(database) == ["a", "b"]


@pytest.mark.fault("F-ST-05")
async def test_read_only(tmp_path: Path) -> None:
    """A store that cannot be written is a typed error, and can still be read."""
    async with SqliteDatabase(tmp_path / "store.db", NOTES) as database:
        await database.fetch("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable, match="store_unavailable: attempt to write a readonly database"):
            await database.run(adding("a"))
        assert await texts(database) == []


async def test_cancelled_before_it_began(tmp_path: Path) -> None:
    """Queued work that is cancelled is dropped; work that has begun runs to its end."""
    async with SqliteDatabase(tmp_path / "store.db", NOTES) as database:
        began, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slow() -> Script[None]:
            loop.call_soon_threadsafe(began.set)
            go.wait(60)
            yield from adding("begun")

        first = asyncio.ensure_future(database.run(slow()))
        await began.wait()
        second = asyncio.ensure_future(database.run(adding("waiting")))
        await asyncio.sleep(0)
        for task in (first, second):
            task.cancel()
        await asyncio.wait({first, second})
        go.set()
        assert await texts(database) == ["begun"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_fork(tmp_path: Path) -> None:
    """A forked child cannot use its parent's store, and does the parent no harm."""
    async with SqliteDatabase(tmp_path / "store.db", NOTES) as database:
        child = os.fork()
        if child == 0:
            try:
                database.fetch("SELECT 1").send(None)
            except StoreClosed:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert await database.run(adding("a")) == [1]


@pytest.mark.rule("BCK-8")
async def test_many_processes_start_at_once(tmp_path: Path) -> None:
    """Processes that open a new path at once all get one store."""
    program = (
        "import asyncio, sys\nfrom amplifier_hooks.storage.database import Migrations\n"
        "from amplifier_hooks.storage.sqlite import SqliteDatabase\n"
        "M = Migrations(component='notes', steps=(('CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)',),))\n"
        "async def main():\n"
        "    async with SqliteDatabase(sys.argv[1], M) as db:\n"
        "        await db.fetch(\"INSERT INTO note (text) VALUES ('x')\")\n"
        "asyncio.run(main())\n"
    )
    path = tmp_path / "store.db"
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(path)) for _ in range(4)]
    assert [await process.wait() for process in processes] == [0, 0, 0, 0]
    async with SqliteDatabase(path, NOTES) as database:
        assert len(await texts(database)) == 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store.db", "store.db-journal"]


async def test_settings(tmp_path: Path) -> None:
    """A commit is synced to its end, with a journal that is truncated."""
    async with SqliteDatabase(tmp_path / "store.db", NOTES) as database:
        said = {name: (await database.fetch(f"PRAGMA {name}"))[0][0] for name in ("journal_mode", "synchronous")}
    assert said == {"journal_mode": "truncate", "synchronous": 2}
