"""Heads that are kept elsewhere: in a database, and with whoever is told of every checkpoint."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs
import pytest

from amplifier_hooks.effects.audit import AuditLog, LogUnavailable
from amplifier_hooks.effects.audit.errors import HeadConflict, LogCut
from amplifier_hooks.effects.audit.heads import HEADS, StoredHeads
from amplifier_hooks.effects.audit.key import AuditKey
from amplifier_hooks.effects.audit.writer import Pace
from amplifier_hooks.ports import Head
from amplifier_hooks.storage import StoreUnavailable
from amplifier_hooks.storage.memory import MemoryDatabase
from amplifier_hooks.storage.sqlite import SqliteDatabase
from tests.records import entries, facts, kinds
from tests.stores import DSN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = AuditKey(b"\x07" * 32)
HEAD = Head(log="5b" * 16, segment=1, size=10, head="9f" * 32, note="signed")


@asynccontextmanager
async def heads_in(kind: str, folder: Path) -> AsyncIterator[StoredHeads]:
    """A store of each kind, open and empty."""
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
    """The latest head of each log is kept, whatever order heads come in; two hashes for one line are refused."""
    async with heads_in(kind, tmp_path) as heads:
        assert await heads.latest(HEAD.log) is None
        later, next_segment = attrs.evolve(HEAD, size=12, head="aa" * 32), attrs.evolve(HEAD, segment=2, size=11)
        for head, kept in ((HEAD, HEAD), (HEAD, HEAD), (later, later), (HEAD, later), (next_segment, next_segment)):
            await heads.put(head)
            assert await heads.latest(HEAD.log) == kept
        with pytest.raises(HeadConflict, match="line 11 in segment 2"):
            await heads.put(attrs.evolve(next_segment, head="bb" * 32))
        assert await heads.latest("other") is None


@pytest.mark.rule("AUD-2")
async def test_mirrored(tmp_path: Path) -> None:
    """Every checkpoint on disk is told to the anchor and kept in the store; the last one when the log is closed."""
    notes: list[str] = []
    async with MemoryDatabase(HEADS) as database:
        heads = StoredHeads(database)
        log = AuditLog.open(
            tmp_path / "record.jsonl", key=KEY, heads=heads, anchor=notes.append, pace=Pace(lines=2, segment=2_000)
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
        """Nothing."""
        raise StoreUnavailable("no route to host")

    async def put(self, head: Head) -> None:
        """Nothing."""
        raise StoreUnavailable("no route to host")


@pytest.mark.rule("AUD-2", "AUD-3")
async def test_store_is_away(tmp_path: Path) -> None:
    """A log whose head cannot be compared is not written; a store that goes away later stops nothing."""
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
    """A log that lost its end, of which the store knows."""
    log = AuditLog.open(path, key=KEY, heads=heads)
    for number in range(3):
        await log.write("note", {"number": number}, durable=True)
    await log.close()
    data = b"".join(path.read_bytes().splitlines(keepends=True)[:3])  # noqa: ASYNC240  # a small file
    path.write_bytes(data)  # noqa: ASYNC240  # see above
    return data


@pytest.mark.rule("AUD-2", "AUD-5")
@pytest.mark.parametrize("change", ["cut", "rewritten"])
async def test_cut(tmp_path: Path, change: str) -> None:
    """A log that lacks what the store knows is neither written nor signed, until somebody says that it may be."""
    path = tmp_path / "record.jsonl"
    async with MemoryDatabase(HEADS) as database:
        heads = StoredHeads(database)
        data = await cut_log(path, heads)
        if change == "rewritten":  # by somebody who has the key: longer than before, and all of it holds
            log = AuditLog.open(path, key=KEY)
            for _ in range(9):
                await log.write("forged", {}, durable=True)
            await log.close()
            data = path.read_bytes()
        log = AuditLog.open(path, key=KEY, heads=heads)
        with pytest.raises(LogCut, match="line 6 of segment 1"):
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
