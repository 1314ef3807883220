"""A log of a hundred lines with anything changed is never called whole, and an independent verifier agrees."""

from __future__ import annotations

import re
from itertools import combinations, islice, pairwise
from typing import TYPE_CHECKING, Final

import pytest

from amplifier_hooks.record.line import SEAL, Opening, chain_hash, read, seal
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from tests.conftest import THOROUGH
from tests.logbook import KEY, OTHER_KEY, Book, hundred, pinned, stranger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

LINES: Final = hundred().segments[0]
KNOWN: Final = hundred().known
WHOLE: Final = b"".join(LINES)
STARTS: Final = [sum(map(len, LINES[:number])) for number in range(len(LINES) + 1)]

Change = tuple[bytes, int | None]
"""A changed log, and its first wrong line; a cut between lines leaves no wrong line."""


def refuse(folder: Path, changes: Iterable[Change]) -> int:
    """Check that both verifiers refuse every change and name its line. Return the number of changes."""
    path, independent, count = folder / "record.jsonl", stranger(), 0
    for count, (data, line) in enumerate(changes, 1):  # noqa: B007  # counted
        path.write_bytes(data)
        report = verify({1: path}, keys=[pinned()])
        assert report.title not in ("intact", "unbroken")
        assert verify({1: path}, heads=[KNOWN]).verdict in (LogVerdict.TAMPERED, LogVerdict.TRUNCATED)
        named = report.bad
        assert (named and named.line) == line
        other = independent(path, KEY.public)
        assert other != "unbroken"
        if named is not None:
            assert other.startswith(f"wrong: record.jsonl, line {line}: ")
    return count


def line_at(place: int) -> int:
    """Return the number of the line that holds a byte."""
    return next(number for number, (_, end) in enumerate(pairwise(STARTS), 1) if place < end)


def bytes_changed(places: Iterable[int]) -> Iterable[Change]:
    """Yield the log with another value at each place: a bit flipped, a newline, another digit or letter."""
    for place in places:
        there = WHOLE[place]
        for value in {there ^ 1, 0x0A, 0x30 if there != 0x30 else 0x31} - {there}:
            yield WHOLE[:place] + bytes([value]) + WHOLE[place + 1 :], line_at(place)


def bytes_moved(places: Iterable[int]) -> Iterable[Change]:
    """Yield the log with a byte removed, and with one inserted, at each place."""
    for place in places:
        yield WHOLE[:place] + WHOLE[place + 1 :], line_at(place)
        yield WHOLE[:place] + b"0" + WHOLE[place:], line_at(place)


def cut(places: Iterable[int]) -> Iterable[Change]:
    """Yield the part of the log before each place."""
    for place in places:
        yield WHOLE[:place], None if place in STARTS else line_at(place)


def lines_moved() -> Iterable[Change]:
    """Yield the log with every line removed, doubled, and swapped with every other."""
    for one, line in enumerate(LINES):
        yield b"".join(LINES[:one] + LINES[one + 1 :]), one + 1 if one < len(LINES) - 1 else None
        yield b"".join([*LINES[: one + 1], line, *LINES[one + 1 :]]), one + 2
    for one, other in combinations(range(len(LINES)), 2):
        moved = LINES.copy()
        moved[one], moved[other] = moved[other], moved[one]
        yield b"".join(moved), one + 1


def test_as_written(tmp_path: Path) -> None:
    """Both verifiers call an unchanged log unbroken, but not under another key; with its head it is intact."""
    book = hundred()
    (file,) = book.files(tmp_path).values()
    assert verify({1: file}, keys=[pinned()]).title == "unbroken"
    assert verify({1: file}, heads=[KNOWN]).verdict is LogVerdict.INTACT
    assert stranger()(file, KEY.public) == "unbroken"
    assert stranger()(file, OTHER_KEY.public).startswith("wrong: record.jsonl, line ")
    (line,) = Book(None).close().files(tmp_path).values()
    assert stranger()(line, KEY.public).startswith("not closed: ")


CHANGED = [line for line in range(len(LINES)) if b'"outcome"' not in LINES[line] or line in (1, 2, 50, 98)]
"""Lines whose every byte is changed: each that is no outcome, and four outcomes with numbers of one and two digits."""

BYTES = [
    pytest.param(
        [place for line in CHANGED for place in range(STARTS[line], STARTS[line + 1])],
        marks=pytest.mark.slow,
        id="every byte of each kind of line",
    ),
    pytest.param(range(0, len(WHOLE), 211), id="bytes of all lines"),
]


@pytest.mark.rule("AUD-2", "AUD-6")
@pytest.mark.fault("F-AUD-01")
@pytest.mark.parametrize("places", BYTES)
def test_bytes_changed(tmp_path: Path, places: Sequence[int]) -> None:
    """A log with another value at any byte is never called whole, and the line is named."""
    assert refuse(tmp_path, bytes_changed(places)) > 250


@pytest.mark.rule("AUD-2", "AUD-6")
@pytest.mark.fault("F-AUD-01")
@pytest.mark.parametrize("places", BYTES)
def test_bytes_moved(tmp_path: Path, places: Sequence[int]) -> None:
    """A log with any byte removed or inserted is never called whole, and the line is named."""
    assert refuse(tmp_path, bytes_moved(places)) > 200


@pytest.mark.rule("AUD-2", "AUD-5", "AUD-6")
@pytest.mark.fault("F-AUD-01")
@pytest.mark.parametrize("places", BYTES)
def test_cut(tmp_path: Path, places: Sequence[int]) -> None:
    """A log that is cut anywhere is never called whole; a torn line is named, a missing one cannot be."""
    cuts = sorted({*places, *STARTS[:-1]})
    assert refuse(tmp_path, cut(cuts)) == len(cuts)


@pytest.mark.rule("AUD-2", "AUD-6")
@pytest.mark.fault("F-AUD-01")
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(17, id="sample")])
def test_lines_moved(tmp_path: Path, step: int) -> None:
    """A log with any line removed, doubled or swapped is never called whole, and the line is named."""
    assert refuse(tmp_path, islice(lines_moved(), 0, None, step)) > 300


@pytest.mark.rule("AUD-2", "AUD-6")
@pytest.mark.fault("F-AUD-03")
def test_made_anew(tmp_path: Path) -> None:
    """A signature reveals any line changed, removed or inserted, even if all later hashes are computed anew."""
    path, independent = tmp_path / "record.jsonl", stranger()
    bodies = [line[:-SEAL] for line in LINES]
    first = Opening.of(read(bodies[0]).facts).head()
    for place in range(1, len(bodies), 1 if THOROUGH else 3):
        other = re.sub(rb'"(outcome|log\.closed)"', b'"other"', bodies[place]).replace(b"8", b"9")
        for new in ([other], [], [bodies[place], bodies[place]]):
            path.write_bytes(made_anew([*bodies[:place], *new, *bodies[place + 1 :]], first))
            assert verify({1: path}, keys=[pinned()]).title not in ("intact", "unbroken")
            assert independent(path, KEY.public) != "unbroken"


def made_anew(bodies: Iterable[bytes], head: bytes) -> bytes:
    """Return lines with these bodies, correctly numbered and chained."""
    lines = []
    for number, body in enumerate(bodies, 1):
        numbered = re.sub(rb'^\{"seq":\d+', b'{"seq":%d' % number, body)
        head = chain_hash(head, numbered)
        lines.append(seal(numbered, head))
    return b"".join(lines)
