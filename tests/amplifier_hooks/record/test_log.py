"""The record as files: their content, and the moment when it is on disk."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey, file_of, numbers_of
from amplifier_hooks.record.record_errors import (
    LogClosed,
    LogForked,
    LogHangs,
    LogInUse,
    LogReplaced,
    LogUnavailable,
    UnsafeLog,
)
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from amplifier_hooks.record.writer import WriteSchedule
from amplifier_hooks.testing import ManualClock
from tests.disk import FaultyFiles
from tests.logbook import pinned
from tests.records import entries, facts, kinds

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.rule("AUD-2")
async def test_unsigned(tmp_path: Path) -> None:
    """A log that is not signed is still a chain, and says that it has no key."""
    log = AuditLog.open(tmp_path / "record.jsonl", signed=False)
    await log.write("note", {}, durable=True)
    await log.close()
    assert kinds(tmp_path / "record.jsonl") == ["segment.opened", "note", "log.closed"]
    assert entries(tmp_path / "record.jsonl")[0].facts["key"] == ""
    assert os.listdir(tmp_path) == ["record.jsonl"]  # noqa: PTH208


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


def replace(path: Path) -> None:
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
        (replace, "was replaced"),
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
    log = AuditLog.open(tmp_path / "a.jsonl", key=KEY, timeout=0.05, files=FaultyFiles(hanging=hanging))
    other = AuditLog.open(tmp_path / "b.jsonl", key=KEY)
    hanging.clear()
    with pytest.raises(LogHangs, match=r"0\.05 s"):
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
