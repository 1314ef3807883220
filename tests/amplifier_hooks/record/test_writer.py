"""The verifiers read the files of the writer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.record.line import Checkpoint
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey, file_of, numbers_of
from amplifier_hooks.record.report import LogVerdict, Observation
from amplifier_hooks.record.verify import verify
from amplifier_hooks.record.writer import WriteSchedule
from benchmarks.audit_verify import alone, write
from tests.logbook import pinned, stranger

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.record.report import Report


async def session(path: Path, count: int = 20, **options: Any) -> None:
    """Open a log, write a few odd records, and close it."""
    log = AuditLog.open(path, **options)
    for number in range(count):
        await log.write(
            "outcome", {"number": number, "said": 'a\n\u2028\ud800"}{', "n": [1e300, -0.5, 1 << 70]}, durable=True
        )
    await log.close()


def found(path: Path) -> Report:
    """Return the verdict on a log whose key lies beside it."""
    files = {number: file_of(path, number) for number in numbers_of(path)}
    return verify(files, keys=[pinned(AuditKey.open(path.with_name("audit.key")))])


@pytest.mark.rule("AUD-2", "AUD-5", "AUD-6")
async def test_segments(tmp_path: Path) -> None:
    """A log that was opened twice and has many files is unbroken, and the independent verifier agrees."""
    path = tmp_path / "record.jsonl"
    notes: list[str] = []
    for _ in range(2):
        await session(path, pace=WriteSchedule(segment=2_000), anchor=notes.append)
    report = found(path)
    assert report.verdict is LogVerdict.UNBROKEN
    assert {finding.observation for finding in report.findings} <= {Observation.RESUMED, Observation.CLOCK}
    assert len(report.segments) > 4
    assert stranger()(path, AuditKey.open(tmp_path / "audit.key").public) == "unbroken"
    anchors = [Checkpoint.parse(note.partition("\n\n")[0] + "\n") for note in notes]
    files = {one.number: one.file for one in report.segments}
    assert all(one.matches for one in verify(files, anchors=anchors).comparisons)


@pytest.mark.rule("AUD-2", "AUD-5")
async def test_crash(tmp_path: Path) -> None:
    """The next writer cuts off a torn line, and both verifiers report it, wherever the file ended before."""
    path = tmp_path / "record.jsonl"
    await session(path, 3)
    whole = path.read_bytes()
    for size in range(len(whole) - 900, len(whole) + 1, 53):
        path.write_bytes(whole[:size])
        await session(path, 1)
        report = found(path)
        torn = size not in {len(whole), *(place + 1 for place in range(len(whole)) if whole[place] == 0x0A)}
        assert report.title == "unbroken"
        assert (Observation.RECOVERED in {finding.observation for finding in report.findings}) == torn
        other = stranger()(path, AuditKey.open(tmp_path / "audit.key").public)
        assert other.startswith("repaired tail: " if torn else "unbroken")


@pytest.mark.rule("AUD-2", "AUD-5")
async def test_damage(tmp_path: Path) -> None:
    """A writer that meets a wrong line begins the next segment, and the log is tampered with from then on."""
    path = tmp_path / "record.jsonl"
    await session(path)
    path.write_bytes(path.read_bytes().replace(b'"number":7', b'"number":8'))
    await session(path)
    report = found(path)
    assert report.verdict is LogVerdict.TAMPERED
    assert [finding.observation for finding in report.findings] == [Observation.EVIDENCE, Observation.DAMAGE]
    os.truncate(path, path.stat().st_size - 1)
    assert Observation.EVIDENCE_CHANGED in {finding.observation for finding in found(path).findings}


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-15")
async def test_key_lost(tmp_path: Path) -> None:
    """A log that continues under another key says so, and verifies only with both keys pinned."""
    path = tmp_path / "record.jsonl"
    await session(path)
    old = pinned(AuditKey.open(tmp_path / "audit.key"))
    for name in ("audit.key", "audit.key.pub"):
        (tmp_path / name).unlink()
    await session(path)
    report = found(path)
    assert report.verdict is LogVerdict.CANNOT_TELL
    assert {Observation.NOT_PINNED, Observation.KEY_CHANGED} <= {finding.observation for finding in report.findings}
    files = {one.number: one.file for one in report.segments}
    new = pinned(AuditKey.open(tmp_path / "audit.key"))
    assert verify(files, keys=[old, new]).verdict is LogVerdict.UNBROKEN


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-17", "F-AUD-19")
def test_gigabyte(tmp_path: Path) -> None:
    """A log of a gigabyte is verified in less than 64 MiB."""
    write(tmp_path / "record.jsonl", 1_000_000_000)
    said, _seconds, _memory, _target, judged = alone("", tmp_path / "record.jsonl")
    assert (said, judged) == (": unbroken", "met")
