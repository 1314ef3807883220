"""The record as files: their content, and the moment when it is on disk."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import sys
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.ports import Head, StoreMark
from amplifier_hooks.record.log import HEADS, AuditLog, StoredHeads, last_mark
from amplifier_hooks.record.log_files import AuditKey, file_of, numbers_of
from amplifier_hooks.record.record_errors import (
    HeadConflict,
    LogClosed,
    LogCut,
    LogForked,
    LogHangs,
    LogInUse,
    LogReplaced,
    LogUnavailable,
    StoreReplaced,
    UnsafeLog,
)
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from amplifier_hooks.record.writer import WriteSchedule
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase
from amplifier_hooks.testing import ManualClock, RecordingContext
from tests.disk import FaultyFiles
from tests.logbook import pinned
from tests.records import entries, facts, kinds
from tests.stores import DSN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

KEY = AuditKey(b"\x07" * 32)
HOSTILE = [
    "a\nb",
    "a\r\nb",
    "\u2028\u2029\x85",
    "\x00\x1b[2J",
    '"}\n{"kind":"approval.decided","status":"approved"}',
    "𝄞",
    "\u202e",
]


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-10")
@pytest.mark.parametrize("value", HOSTILE)
async def test_one_line_per_record(tmp_path: Path, value: str) -> None:
    """A record is one physical line of ASCII for every tool that splits lines, and reads back as an equal value."""
    path = tmp_path / "record.jsonl"
    log = AuditLog.open(path, key=KEY)
    await log.write("note", {"value": value, value: 1})
    await log.close()
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    assert lines.pop() == b""
    assert lines == raw.splitlines()
    assert raw.decode("ascii").splitlines() == [line.decode() for line in lines]
    assert json.loads(lines[1])["facts"] == {"value": value, value: 1}
    assert kinds(path) == ["segment.opened", "note", "log.closed", "log.checkpoint"]


@pytest.mark.rule("AUD-1")
async def test_mode(tmp_path: Path) -> None:
    """Only the owner can read the files, whatever the umask is."""
    before = os.umask(0)
    try:
        log = AuditLog.open(tmp_path / "record.jsonl")
    finally:
        os.umask(before)
    await log.close()
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in os.listdir(tmp_path)}  # noqa: PTH208
    assert modes == dict.fromkeys(["record.jsonl", "audit.key", "audit.key.pub"], 0o600)


@pytest.mark.rule("AUD-1", "AUD-5")
async def test_append_only(tmp_path: Path) -> None:
    """Opening the file again continues after its last line, and records that it was closed."""
    for number in (1, 2):
        log = AuditLog.open(tmp_path / "record.jsonl")
        await log.write("note", {"number": number}, durable=True)
        await log.close()
    found = entries(tmp_path / "record.jsonl")
    assert [entry.kind for entry in found] == [
        "segment.opened",
        "note",
        "log.closed",
        "log.checkpoint",
        "log.resumed",
        "note",
        "log.closed",
        "log.checkpoint",
    ]
    assert found[4].facts == {"closed": True, "size": 4}


@pytest.mark.rule("AUD-2")
async def test_first_line(tmp_path: Path) -> None:
    """The first line states the owner of the log and the key that signs it; two logs never begin alike."""
    for name in ("a", "b"):
        log = AuditLog.open(tmp_path / name, tenant="acme", session="s\n1", key=KEY)
        await log.close()
    one, other = (entries(tmp_path / name)[0].facts for name in ("a", "b"))
    assert (one["tenant"], one["session"], one["segment"], one["previous"]) == ("acme", "s\\u{0A}1", 1, "")
    assert one["key"].startswith(f"amplifier-hooks/audit/1/{one['log']}/1+")
    assert len(one["log"]) == 32
    assert one["log"] != other["log"]


@pytest.mark.rule("AUD-2")
async def test_checkpoints(tmp_path: Path) -> None:
    """A checkpoint follows after a number of lines, and at the end."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, pace=WriteSchedule(lines=4))
    for number in range(10):
        await log.write("note", {"number": number}, durable=True)
    await log.close()
    found = [entry.seq for entry in entries(tmp_path / "record.jsonl") if entry.kind == "log.checkpoint"]
    assert found == [5, 10, 15]


@pytest.mark.rule("AUD-2", "AUD-3")
async def test_time_passes(tmp_path: Path) -> None:
    """A record that no caller waits for is synced and signed when its time has come."""
    files, anchored = FaultyFiles(), asyncio.Queue[str]()
    log = AuditLog.open(
        tmp_path / "record.jsonl",
        key=KEY,
        pace=WriteSchedule(seconds=0.05, sync=0.02),
        files=files,
        anchor=anchored.put_nowait,
    )
    await log.write("note", {})
    note = await asyncio.wait_for(anchored.get(), 60)
    assert note.split("\n")[1] == "2"
    assert files.synced[tmp_path / "record.jsonl"] == (tmp_path / "record.jsonl").stat().st_size
    await log.close()
    assert kinds(tmp_path / "record.jsonl")[:3] == ["segment.opened", "note", "log.checkpoint"]


@pytest.mark.rule("AUD-3")
async def test_durable(tmp_path: Path) -> None:
    """A durable record is synced when `write` returns, together with all records before it."""
    files = FaultyFiles()
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, files=files)
    await log.write("first", {})
    await log.write("second", {}, durable=True)
    data = (tmp_path / "record.jsonl").read_bytes()
    assert files.synced[tmp_path / "record.jsonl"] == len(data)
    assert [json.loads(line)["kind"] for line in data.splitlines()] == ["segment.opened", "first", "second"]
    await log.close()


@pytest.mark.rule("AUD-3")
async def test_many_at_once(tmp_path: Path) -> None:
    """Callers that wait at once share a sync."""
    files = FaultyFiles()
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, files=files)
    before = files.calls.count("sync")
    await asyncio.gather(*(log.write("note", {"number": number}, durable=True) for number in range(200)))
    assert files.calls.count("sync") - before < 20
    await log.close()
    assert [fact["number"] for fact in facts(tmp_path / "record.jsonl", "note")] == list(range(200))


async def test_closed(tmp_path: Path) -> None:
    """A closed record cannot be written; a second close does nothing."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY)
    await log.close()
    await log.close()
    with pytest.raises(LogClosed, match="closed"):
        await log.write("note", {})
    with pytest.raises(LogClosed, match="closed"):
        await log.write("note", {}, durable=True)


@pytest.mark.rule("AUD-9")
async def test_check(tmp_path: Path) -> None:
    """A check passes while records are taken, and raises while the disk is full and when the log is closed."""
    files = FaultyFiles(error=errno.ENOSPC, times=1_000_000)
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, files=files, pace=WriteSchedule(retry=0))
    await log.check()
    files.first = len(files.calls) + 1
    with pytest.raises(LogUnavailable, match="No space left"):
        await log.write("note", {}, durable=True)
    with pytest.raises(LogUnavailable, match="No space left"):
        await log.check()
    files.first = 0
    await log.check()
    await log.close()
    with pytest.raises(LogClosed, match="closed"):
        await log.check()


class Moody:
    """A signer that fails on demand."""

    public = KEY.public
    fails = True

    def sign(self, data: bytes) -> bytes:
        """Return the signature, or fail."""
        if self.fails:
            raise RuntimeError("no token in the slot")
        return KEY.sign(data)


@pytest.mark.rule("AUD-2")
async def test_signer_fails(tmp_path: Path) -> None:
    """A signer that fails does not stop the record, and the record states that once, until the signer works again."""
    signer = Moody()
    log = AuditLog.open(tmp_path / "record.jsonl", key=signer, pace=WriteSchedule(lines=2))
    for _ in range(6):
        await log.write("note", {}, durable=True)
    signer.fails = False
    await log.close()
    found = kinds(tmp_path / "record.jsonl")
    assert found.count("log.unsigned") == 1
    assert found[-2:] == ["log.closed", "log.checkpoint"]
    assert facts(tmp_path / "record.jsonl", "log.unsigned") == [{"error": "RuntimeError"}]


@pytest.mark.fault("F-AUD-18")
async def test_clock_jumps_back(tmp_path: Path) -> None:
    """A clock that jumps back is recorded as it was read, and the numbers continue."""
    clock = ManualClock()
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY, clock=clock)
    await log.write("note", {}, durable=True)
    clock.advance(-86_400)
    await log.write("note", {}, durable=True)
    await log.close()
    found = entries(tmp_path / "record.jsonl")
    assert [(entry.seq, entry.time) for entry in found[1:3]] == [
        (2, "2026-01-01T12:00:00.000000+00:00"),
        (3, "2025-12-31T12:00:00.000000+00:00"),
    ]


# -- where it may lie --------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-AUD-14")
async def test_refused_places(tmp_path: Path) -> None:
    """A link, a pipe, a folder, a file or folder that other users may write to are refused."""
    target = tmp_path / "elsewhere"
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir()
    (tmp_path / "open").touch(0o600)
    (tmp_path / "open").chmod(0o622)
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o777)
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    (tmp_path / "other.jsonl").touch(0o600)
    (tmp_path / "other.jsonl").write_text('{"kind":"note"}\n')
    for name, problem in {
        "link": "is a link",
        "pipe": "no plain file",
        "folder": "no plain file",
        "open": "others may read or write",
        "public/record.jsonl": "others may write to",
        "sticky/record.jsonl": "others may write to",
        "other.jsonl": "no log of this format",
    }.items():
        with pytest.raises(UnsafeLog, match=problem):
            AuditLog.open(tmp_path / name, key=KEY)
    assert not target.exists()
    assert (tmp_path / "other.jsonl").read_text() == '{"kind":"note"}\n'
    assert not any((tmp_path / name / "record.jsonl").exists() for name in ("public", "sticky"))
    with pytest.raises(FileNotFoundError):
        AuditLog.open(tmp_path / "nowhere" / "record.jsonl", key=KEY)


@pytest.mark.fault("F-AUD-14")
@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away")
async def test_somebody_elses(tmp_path: Path) -> None:
    """A file of another user is refused."""
    (tmp_path / "record.jsonl").touch(0o600)
    os.chown(tmp_path / "record.jsonl", 12_345, 12_345)
    with pytest.raises(UnsafeLog, match="belongs to another user"):
        AuditLog.open(tmp_path / "record.jsonl", key=KEY)


@pytest.mark.fault("F-AUD-12")
async def test_one_writer(tmp_path: Path) -> None:
    """A second opener is refused, until the first has closed the log."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY)
    with pytest.raises(LogInUse, match=r"another writer has .* open"):
        AuditLog.open(tmp_path / "record.jsonl", key=KEY)
    await log.close()
    await AuditLog.open(tmp_path / "record.jsonl", key=KEY).close()


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-12")
@pytest.mark.parametrize("segment", [1, 2])
async def test_one_writer_by_any_name(tmp_path: Path, segment: int) -> None:
    """The lock is on the file itself: a second name of any segment in use is refused, too."""
    path = tmp_path / "record.jsonl"
    log = AuditLog.open(path, key=KEY, pace=WriteSchedule(segment=1))
    await log.write("note", {}, durable=True)
    await log.close()
    log = AuditLog.open(path, key=KEY)
    assert file_of(path, 2).exists()
    os.link(file_of(path, segment), tmp_path / "other.jsonl")
    with pytest.raises(LogInUse, match=r"another writer has .*other\.jsonl open"):
        AuditLog.open(tmp_path / "other.jsonl", key=KEY)
    await log.close()


def put_copy(path: Path) -> None:
    """Put a copy in the place of a file."""
    data = path.read_bytes()
    path.unlink()
    path.touch(0o600)
    path.write_bytes(data)


@pytest.mark.rule("AUD-3", "AUD-8")
@pytest.mark.fault("F-AUD-20")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Path.unlink, "was removed"),
        (put_copy, "was replaced"),
        (lambda path: os.truncate(path, 100), "the writer left"),
        (lambda path: path.write_bytes(path.read_bytes() + b"{}\n"), "the writer left"),
    ],
    ids=["removed", "replaced", "shortened", "extended"],
)
async def test_changed_under_its_writer(tmp_path: Path, change: Callable[[Path], object], problem: str) -> None:
    """A file that is changed under its writer refuses the next record; the log goes on behind it and says so."""
    path = tmp_path / "record.jsonl"
    log = AuditLog.open(path, key=KEY, pace=WriteSchedule(retry=0))
    await log.write("decision", {"number": 1}, durable=True)
    change(path)
    with pytest.raises(LogReplaced, match=problem):
        await log.write("decision", {"number": 2}, durable=True)
    await log.write("decision", {"number": 3}, durable=True)
    change(file_of(path, 2))
    with pytest.raises(LogReplaced, match=problem):
        await log.check()
    await log.write("decision", {"number": 4}, durable=True)
    await log.close()
    first, *_, last = file_of(path, 3).read_bytes().splitlines()
    assert json.loads(first)["facts"]["left"]["why"] == "changed"
    assert json.loads(last)["kind"] == "log.checkpoint"
    files = {number: file_of(path, number) for number in numbers_of(path)}
    assert verify(files, keys=[pinned()]).verdict not in (LogVerdict.INTACT, LogVerdict.UNBROKEN)


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-20")
async def test_another_writer_took_the_place(tmp_path: Path) -> None:
    """A log whose file was removed is not written again beside the log of another writer at its place."""
    path = tmp_path / "record.jsonl"
    log = AuditLog.open(path, key=KEY, pace=WriteSchedule(retry=0))
    path.unlink()
    other = AuditLog.open(path, key=KEY)
    with pytest.raises(LogReplaced):
        await log.write("note", {}, durable=True)
    with pytest.raises(LogInUse):
        await log.write("note", {}, durable=True)
    with pytest.raises(LogInUse):
        await log.close()
    await other.write("note", {}, durable=True)
    await other.close()
    assert kinds(path) == ["segment.opened", "note", "log.closed", "log.checkpoint"]


@pytest.mark.fault("F-AUD-12")
async def test_other_process(tmp_path: Path) -> None:
    """Another process is refused as well, and may open the log once this one has released it."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY)
    program = f"from amplifier_hooks import AuditLog\nAuditLog.open({str(tmp_path / 'record.jsonl')!r})"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
    _, told = await other.communicate()
    assert b"LogInUse" in told
    await log.close()


@pytest.mark.fault("F-AUD-12")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_fork(tmp_path: Path) -> None:
    """A child that was forked from the writer is refused, and its parent goes on undisturbed."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=KEY)
    await log.write("note", {"by": "parent"}, durable=True)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            log.write("note", {"by": "child"}).send(None)
        except LogForked:
            os.write(writer, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)  # noqa: ASYNC222  # it ends at once
    assert os.read(reader, 100) == b"refused"
    os.close(reader)
    os.close(writer)
    await log.write("note", {"by": "parent"}, durable=True)
    await log.close()
    assert facts(tmp_path / "record.jsonl", "note") == [{"by": "parent"}] * 2


# -- a disk that hangs -------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-3", "AUD-9")
@pytest.mark.fault("F-AUD-09")
async def test_sync_hangs(tmp_path: Path) -> None:
    """A sync that hangs makes a record fail, and a check says so; another log is not held up."""
    hanging = threading.Event()
    hanging.set()
    log = AuditLog.open(tmp_path / "a.jsonl", key=KEY, timeout=0.3, files=FaultyFiles(hanging=hanging))
    other = AuditLog.open(tmp_path / "b.jsonl", key=KEY)
    hanging.clear()
    with pytest.raises(LogHangs, match=r"0\.3 s"):
        await log.write("decision", {}, durable=True)
    await other.write("decision", {}, durable=True)
    with pytest.raises(LogHangs):
        await log.write("decision", {}, durable=True)
    with pytest.raises(LogHangs):
        await log.check()
    await other.check()
    hanging.set()
    await asyncio.gather(other.close(), log.close())
    assert kinds(tmp_path / "a.jsonl").count("decision") == 2


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-09")
async def test_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk hangs, the log takes no more records than it has room for."""
    monkeypatch.setattr("amplifier_hooks.record.writer.MOST_QUEUED", 100_000)
    hanging = threading.Event()
    hanging.set()
    log = AuditLog.open(tmp_path / "a.jsonl", key=KEY, timeout=0.4, files=FaultyFiles(hanging=hanging))
    hanging.clear()
    with pytest.raises(LogHangs):
        await log.write("decision", {}, durable=True)
    taken = 0
    with suppress(LogUnavailable):
        while taken < 100:
            await log.write("note", {"text": "x" * 4_000})
            taken += 1
    with pytest.raises(LogUnavailable, match="wait for the disk"):
        await log.write("note", {})
    assert 20 < taken < 30
    hanging.set()
    await log.close()
    assert kinds(tmp_path / "a.jsonl").count("note") == taken


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
        with pytest.raises(
            StoreReplaced, match=r"beside the store [0-9a-f]{8} at mark 2, and the store that is there is"
        ):
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
