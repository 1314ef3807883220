"""The record as a file."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.effects.audit import AuditLog, NoRecord, Recorder, RecordUnavailable
from amplifier_hooks.testing import CollectingAudit, ManualClock

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = [
    "a\nb",
    "a\r\nb",
    "\u2028\u2029\x85",
    "\x00\x1b[2J",
    '"}\n{"kind":"approval.decided","status":"approved"}',
    "\ud800",
    "𝄞",
    "\u202e",
]


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-10")
@pytest.mark.parametrize("value", HOSTILE)
async def test_one_line_per_record(tmp_path: Path, value: str) -> None:
    """A record is one physical line of ASCII, for whoever splits lines, and reads back as the same value."""
    path = tmp_path / "record.jsonl"
    log = AuditLog.open(path)
    await log.write("note", {"value": value, value: 1})
    await log.write("end", {})
    await log.close()
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    assert lines.pop() == b""
    assert lines == raw.splitlines()
    assert raw.decode("ascii").splitlines() == [line.decode() for line in lines]
    assert json.loads(lines[0]) == {"kind": "note", "value": value, value: 1}
    assert json.loads(lines[1]) == {"kind": "end"}


@pytest.mark.rule("AUD-1")
async def test_mode(tmp_path: Path) -> None:
    """Only the owner can read the file, whatever the umask says."""
    before = os.umask(0)
    try:
        log = AuditLog.open(tmp_path / "record.jsonl")
    finally:
        os.umask(before)
    await log.close()
    assert stat.S_IMODE((tmp_path / "record.jsonl").stat().st_mode) == 0o600


@pytest.mark.rule("AUD-1")
async def test_append_only(tmp_path: Path) -> None:
    """Opening the file again goes on behind what is there."""
    for number in (1, 2):
        log = AuditLog.open(tmp_path / "record.jsonl")
        await log.write("note", {"number": number}, durable=True)
        await log.close()
    lines = (tmp_path / "record.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2]


@pytest.mark.rule("AUD-1")
def test_link(tmp_path: Path) -> None:
    """A path that is a link is refused: it would lead the record somewhere else."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        AuditLog.open(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


async def test_closed(tmp_path: Path) -> None:
    """A closed record cannot be written; closing it twice is harmless."""
    log = AuditLog.open(tmp_path / "record.jsonl")
    await log.close()
    await log.close()
    with pytest.raises(OSError, match="closed"):
        await log.write("note", {})


@pytest.mark.rule("AUD-3")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110  # no Path at import
async def test_full_disk() -> None:
    """A full disk is noticed when the record is written, not when it is closed."""
    log = AuditLog.open("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        await log.write("note", {})
    await log.close()


@pytest.mark.rule("AUD-1")
async def test_recorder() -> None:
    """Every record says who, when, and in which order."""
    audit = CollectingAudit()
    recorder = Recorder(audit, ManualClock(), "s1", "acme")
    await recorder.write("one", {"x": 1})
    await recorder.note("two", {})
    head = {"time": "2026-01-01T12:00:00+00:00", "session": "s1", "tenant": "acme"}
    assert [dict(record.facts) for record in audit.records] == [{"number": 1, **head, "x": 1}, {"number": 2, **head}]
    assert [record.durable for record in audit.records] == [True, False]


@pytest.mark.rule("AUD-3")
async def test_recorder_fails() -> None:
    """What precedes something raises when it cannot be written; what follows something does not."""
    recorder = Recorder(CollectingAudit(RuntimeError("gone")), ManualClock(), "s1", "")
    with pytest.raises(RecordUnavailable, match=r"audit_unavailable.*RuntimeError: gone"):
        await recorder.write("decision", {})
    await recorder.note("news", {})


async def test_no_record() -> None:
    """A session that keeps no record writes to one that forgets."""
    record = NoRecord()
    await record.write("note", {}, durable=True)
    await record.close()
