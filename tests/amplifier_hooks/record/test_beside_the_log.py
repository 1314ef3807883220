"""Heads in a database, and with an anchor that receives every checkpoint."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.ports import Head, StoreMark
from amplifier_hooks.record.beside_the_log import HEADS, StoredHeads, last_mark
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.record.record_errors import HeadConflict, LogCut, LogUnavailable, StoreReplaced
from amplifier_hooks.record.writer import WriteSchedule
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase
from amplifier_hooks.testing import RecordingContext
from tests.records import entries, facts, kinds
from tests.stores import DSN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = AuditKey(b"\x07" * 32)
NONE = StoreMark(store="", number=0)
HEAD = Head(log="5b" * 16, segment=1, size=10, head="9f" * 32, note="signed")


@asynccontextmanager
async def heads_in(kind: str, folder: Path) -> AsyncIterator[StoredHeads]:
    """Yield a store of each kind, open and empty."""
    if kind == "postgres":
        from amplifier_hooks.storage.postgres import PostgresDatabase

        schema = f"heads_{uuid4().hex}"
        async with PostgresDatabase(DSN, HEADS, schema=schema) as database:
            try:
                yield StoredHeads(database)
            finally:
                await database.fetch("DROP SCHEMA {schema} CASCADE")
        return
    file = SqliteDatabase(folder / "heads.db", HEADS) if kind == "sqlite" else MemoryDatabase(HEADS)
    async with file as database:
        yield StoredHeads(database)


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_latest(tmp_path: Path, kind: str) -> None:
    """The latest head of each log is stored, in whatever order heads come; two hashes for one line are refused."""
    async with heads_in(kind, tmp_path) as heads:
        assert await heads.latest(HEAD.log) is None
        later, next_segment = replace(HEAD, size=12, head="aa" * 32), replace(HEAD, segment=2, size=11)
        for head, kept in ((HEAD, HEAD), (HEAD, HEAD), (later, later), (HEAD, later), (next_segment, next_segment)):
            await heads.put(head)
            assert await heads.latest(HEAD.log) == kept
        with pytest.raises(HeadConflict, match="line 11 in segment 2"):
            await heads.put(replace(next_segment, head="bb" * 32))
        assert await heads.latest("other") is None
        assert await heads.latest_mark() is None
        first, second = await heads.mark(), await heads.mark()
        assert (first.number, second) == (1, StoreMark(store=first.store, number=2))
        assert await heads.latest_mark() == second


@pytest.mark.rule("AUD-2")
async def test_mirrored(tmp_path: Path) -> None:
    """The anchor and the store get every checkpoint on disk, and the last one when the log is closed."""
    notes: list[str] = []
    async with MemoryDatabase(HEADS) as database:
        heads = StoredHeads(database)
        log = AuditLog.open(
            tmp_path / "record.jsonl",
            key=KEY,
            heads=heads,
            anchor=notes.append,
            pace=WriteSchedule(lines=2, segment=2_000),
        )
        for number in range(8):
            await log.write("note", {"number": number, "text": "x" * 200}, durable=True)
        await log.close()
        found = entries(tmp_path / "record.jsonl")
        kept = await heads.latest(found[0].facts["log"])
    assert kept is not None
    assert (kept.size, kept.note) == (found[-1].seq, found[-1].facts["note"])
    assert notes == [entry.facts["note"] for entry in found if entry.kind == "log.checkpoint"]


class Broken:
    """A store that cannot be reached."""

    async def latest(self, log: str) -> Head | None:
        """Fail."""
        raise StoreUnavailable("no route to host")

    async def put(self, head: Head) -> None:
        """Fail."""
        raise StoreUnavailable("no route to host")


@pytest.mark.rule("AUD-2", "AUD-3")
async def test_store_is_away(tmp_path: Path) -> None:
    """A log whose head cannot be compared is not written; a store that fails later stops nothing."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, heads=Broken())
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="no route to host"):
            await log.write("note", {})
    with pytest.raises(LogUnavailable, match="no route to host"):
        await log.close()
    assert kinds(tmp_path / "record.jsonl") == ["segment.opened"]
    told: list[str] = []

    class Later(Broken):
        async def latest(self, log: str) -> Head | None:
            return None

    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, heads=Later(), anchor=told.append)
    await log.write("note", {}, durable=True)
    await log.close()
    assert kinds(tmp_path / "record.jsonl")[-3:] == ["note", "log.closed", "log.checkpoint"]


async def cut_log(path: Path, heads: StoredHeads) -> bytes:
    """Write a log, cut off its end, of which the store knows, and return the rest."""
    log = AuditLog.open(path, key=KEY, heads=heads)
    for number in range(3):
        await log.write("note", {"number": number}, durable=True)
    await log.close()
    data = b"".join(path.read_bytes().splitlines(keepends=True)[:3])  # noqa: ASYNC240  # a small file
    path.write_bytes(data)  # noqa: ASYNC240  # see above
    return data


@pytest.mark.rule("AUD-2", "AUD-5")
@pytest.mark.fault("F-ST-09")
@pytest.mark.parametrize("change", ["cut", "rewritten"])
async def test_cut(tmp_path: Path, change: str) -> None:
    """A log that lacks lines of its store is neither written nor signed, until the operator accepts that."""
    path = tmp_path / "record.jsonl"
    async with MemoryDatabase(HEADS) as database:
        heads = StoredHeads(database)
        data = await cut_log(path, heads)
        if change == "rewritten":  # by an attacker with the key: longer than before, and all of it holds
            log = AuditLog.open(path, key=KEY)
            for _ in range(9):
                await log.write("forged", {}, durable=True)
            await log.close()
            data = path.read_bytes()
        log = AuditLog.open(path, key=KEY, heads=heads)
        with pytest.raises(LogCut, match="line 7 of segment 1"):
            await log.write("note", {}, durable=True)
        with pytest.raises(LogCut):
            await log.close()
        assert path.read_bytes() == data
        log = AuditLog.open(path, key=KEY, heads=heads, accept_cut=True)
        await log.write("note", {"number": 9}, durable=True)
        await log.close()
        assert path.read_bytes() == data
        assert facts(path, "segment.opened")[1]["left"] == {"why": "cut", "bytes": len(data)}
        assert facts(path, "note")[-1] == {"number": 9}
        kept: Any = await heads.latest(facts(path, "segment.opened")[0]["log"])
        assert kept.segment == 2
        log = AuditLog.open(path, key=KEY, heads=heads)
        await log.write("note", {}, durable=True)
        await log.close()
    assert os.path.exists(tmp_path / "record.000002.jsonl")  # noqa: ASYNC240, PTH110  # a name only


# -- the store was replaced --------------------------------------------------------------------------------------------


@asynccontextmanager
async def written(path: Path, file: Path, **options: Any) -> AsyncIterator[AuditLog]:
    """Open a log beside a store."""
    async with SqliteDatabase(file, HEADS) as database:
        log = AuditLog.open(path, key=KEY, heads=StoredHeads(database), **options)
        yield log
        with suppress(StoreReplaced):  # the test expects it
            await log.close()


async def days(path: Path, file: Path, count: int) -> None:
    """Write the records of some days beside a store."""
    for number in range(count):
        async with written(path, file) as log:
            await log.write("note", {"day": number}, durable=True)


@pytest.mark.rule("AUD-8", "AUD-3")
@pytest.mark.fault("F-ST-09")
@pytest.mark.parametrize("change", ["older", "other", "new"])
async def test_store_replaced(tmp_path: Path, change: str) -> None:
    """Beside an older copy of its store, or another one, a log is not written, until the operator accepts that."""
    path, file = tmp_path / "record.jsonl", tmp_path / "store.db"
    await days(path, file, 1)
    older = file.read_bytes()
    await days(path, file, 1)
    newer = file.read_bytes()
    if change == "older":
        file.write_bytes(older)
    else:
        file.unlink()
        await days(tmp_path / "another.jsonl", file, 3 if change == "other" else 0)
    before = path.read_bytes()
    async with written(path, file) as log:
        with pytest.raises(StoreReplaced, match="at mark 2, and the store that is there is"):
            await log.check()
        with pytest.raises(StoreReplaced):
            await log.write("note", {}, durable=True)
    assert path.read_bytes() == before
    replacing = file.read_bytes()
    file.write_bytes(newer)  # the right store is back
    await days(path, file, 1)
    file.write_bytes(replacing)
    async with written(path, file, accept_store=True) as log:
        await log.write("note", {"accepted": True}, durable=True)
    assert [fact["known"]["number"] for fact in facts(path, "store.accepted")] == [3]
    await days(path, file, 1)
    assert facts(path, "note")[-1] == {"day": 0}


@pytest.mark.rule("AUD-8")
async def test_marked_while_it_is_written(tmp_path: Path) -> None:
    """With every checkpoint the log learns the store's mark; a mark alone does not cause another."""
    path, marked = tmp_path / "record.jsonl", asyncio.Event()

    class Counting(StoredHeads):
        async def mark(self) -> StoreMark:
            try:
                return await super().mark()
            finally:
                marked.set()

    async with MemoryDatabase(HEADS) as database:
        heads = Counting(database)
        log = AuditLog.open(path, key=KEY, heads=heads, pace=WriteSchedule(lines=1))
        for _ in range(2):
            marked.clear()
            await log.write("note", {}, durable=True)
            await marked.wait()
        mark = await heads.latest_mark()
        await log.close()
        assert facts(path, "store.marked") == [{"store": mark and mark.store, "number": number} for number in (1, 2)]
        assert last_mark(path) == mark


@pytest.mark.rule("AUD-8")
async def test_the_mark_of_an_earlier_segment(tmp_path: Path) -> None:
    """The last mark is found, however many segments ago it was written, and whatever follows it."""
    path = tmp_path / "record.jsonl"
    await days(path, tmp_path / "store.db", 1)
    log = AuditLog.open(path, key=KEY, pace=WriteSchedule(segment=400))
    for number in range(9):
        await log.write("note", {"number": number, "text": "x" * 300}, durable=True)
    await log.close()
    with path.open("ab") as file:
        file.write(b'{"seq":99,"time":"now","kind":"store.marked","facts":{"number":99')
    assert (last_mark(path) or NONE).number == 1


@pytest.mark.rule("AUD-8", "AUD-3")
@pytest.mark.fault("F-ST-09")
async def test_calls_are_denied_beside_another_store(tmp_path: Path) -> None:
    """Until the operator has accepted the store, no tool runs, and the reason says so."""
    path, file = tmp_path / "record.jsonl", tmp_path / "store.db"
    await days(path, file, 2)
    file.unlink()
    ran: list[Any] = []
    async with written(path, file) as log:
        session = SessionCoordinator(HookRegistry(), session_id="s", context=RecordingContext(), audit=log)
        outcome = await session.call_tool("Write", {}, ran.append)
        await session.close()
    assert outcome.denied
    assert "was written beside the store" in (outcome.reason or "")
    assert ran == []
