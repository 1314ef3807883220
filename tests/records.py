"""A reader of logs by the written format. It returns every line that counts, or an assertion names the flaw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks.record.line import Checkpoint, LogEntry, Opening, VerifierKey, chain_hash, open_note, read, unseal
from amplifier_hooks.record.log_files import file_of, numbers_of
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify

if TYPE_CHECKING:
    from pathlib import Path


def entries(path: Path) -> list[LogEntry]:
    """Return every line of a log that counts, over all its segments; raise if any line is wrong."""
    numbers = numbers_of(path)
    assert numbers == list(range(1, len(numbers) + 1)), "a segment is missing"
    files = [file_of(path, number).read_bytes() for number in numbers]
    left = [first_of(data).facts.get("left") for data in files]
    found: list[LogEntry] = []
    head = b""
    for number, data in enumerate(files, 1):
        kept, after = data, left[number] if number < len(files) else None
        if after is not None:
            kept = data[: after["bytes"]]
        elif number < len(files):
            assert found_kinds(kept)[-2:] in (
                ["segment.closed", "log.checkpoint"],
                [*found_kinds(kept)[-2:-1], "segment.closed"],
            )
        assert kept.endswith(b"\n"), "a torn line"
        more, head = segment(kept, number, head, len(found))
        found += more
    report = verify({number: file_of(path, number) for number in numbers})
    damaged = any(why and why["why"] == "damage" for why in left)
    assert (report.verdict is LogVerdict.TAMPERED) == damaged, report.findings
    return found


def segment(data: bytes, number: int, head: bytes, seq: int) -> tuple[list[LogEntry], bytes]:
    """Return the lines of one segment, and the hash of its last line."""
    found: list[LogEntry] = []
    opening: Opening | None = None
    for line in data.splitlines(keepends=True):
        body, claimed = unseal(line)
        entry = read(body)
        if opening is None:
            assert entry.kind == "segment.opened"
            opening = Opening.of(entry.facts)
            assert (opening.segment, opening.previous) == (number, head.hex())
            head = opening.head()
        seq += 1
        assert entry.seq == seq, f"line {seq} says {entry.seq}"
        assert chain_hash(head, body) == claimed, f"the hash of line {seq}"
        if entry.kind == "log.checkpoint":
            checkpoint = open_note(entry.facts["note"], VerifierKey.parse(opening.key))
            assert checkpoint == Checkpoint(opening.origin, seq - 1, head)
        head = claimed
        found.append(entry)
    return found, head


def first_of(data: bytes) -> LogEntry:
    """Return the first line of a segment."""
    return read(unseal(data[: data.index(b"\n") + 1])[0])


def found_kinds(data: bytes) -> list[str]:
    """Return the kinds of all lines."""
    return [read(unseal(line)[0]).kind for line in data.splitlines(keepends=True)]


def kinds(path: Path) -> list[str]:
    """Return the kinds of all lines of a log that count."""
    return [entry.kind for entry in entries(path)]


def facts(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the facts of all lines of one kind."""
    return [entry.facts for entry in entries(path) if entry.kind == kind]
