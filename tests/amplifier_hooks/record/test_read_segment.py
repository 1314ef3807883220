"""A file as lines, and a line as a record."""

from __future__ import annotations

import json
import os
import tracemalloc
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.record.line import LONGEST_LINE, LogEntry, chain_hash, read, seal
from amplifier_hooks.record.read_segment import iter_entries, open_segment
from amplifier_hooks.record.record_errors import MalformedLine, UnsafeLog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.rule("AUD-5")
def test_lines(tmp_path: Path) -> None:
    """Lines come with their newline; an unfinished or overlong line comes without, 64 KiB at most."""
    path = tmp_path / "record.jsonl"
    path.write_bytes(b"one\n\ntwo\n" + b"x" * (LONGEST_LINE - 1) + b"\n" + b"y" * LONGEST_LINE + b"rest")
    with open_segment(path) as pages:
        for _ in range(2):
            assert [(line[:4], len(line)) for line in pages.lines()] == [
                (b"one\n", 4),
                (b"\n", 1),
                (b"two\n", 4),
                (b"xxxx", LONGEST_LINE),
                (b"yyyy", LONGEST_LINE),
                (b"rest", 4),
            ]
        assert list(pages.lines(6)) == [b"one\n", b"\n", b"t"]
        assert list(pages.lines(5)) == [b"one\n", b"\n"]
        assert list(pages.lines(0)) == []
        assert len(b"".join(pages.lines(1 << 40))) == pages.size == path.stat().st_size
        assert pages.digest(9) == sha256(path.read_bytes()[9:]).hexdigest()
        assert pages.digest(pages.size) == pages.digest(pages.size + 1) == sha256().hexdigest()
        assert pages.growth == 0


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-19")
def test_growing(tmp_path: Path) -> None:
    """The reading of a file that grows with every line ends; so does that of a file that shrinks."""
    path = tmp_path / "record.jsonl"
    path.write_bytes(b"line\n" * 100_000)
    with open_segment(path) as pages, path.open("ab", buffering=0) as file:
        count = sum(bool(file.write(line)) for line in pages.lines())
        assert (count, pages.growth) == (100_000, 500_000)
    with open_segment(path) as pages:
        for _ in pages.lines():
            os.truncate(path, 5)
        assert pages.growth == 5 - 1_000_000
        assert pages.digest(0) != sha256(path.read_bytes() * 2).hexdigest()


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-19")
def test_memory(tmp_path: Path) -> None:
    """However long a line or a file is, the reader holds less than a mebibyte of it."""
    path = tmp_path / "record.jsonl"
    path.touch()
    os.truncate(path, 1 << 26)
    tracemalloc.start()
    try:
        with open_segment(path) as pages:
            for _ in pages.lines():
                pass
            pages.digest(0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.rule("AUD-5")
def test_no_plain_file(tmp_path: Path) -> None:
    """A pipe and a folder are refused without waiting, and leave no descriptor behind."""
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/dev/fd")  # noqa: PTH208  # names are enough
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(UnsafeLog, match=f"{path} is no plain file"), open_segment(path):
            pass
    assert os.listdir("/dev/fd") == before  # noqa: PTH208
    with pytest.raises(FileNotFoundError), open_segment(tmp_path / "nothing"):
        pass


# -- the content of a line ---------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def parse(*bodies: bytes) -> list[tuple[int, str | None, str, dict[str, Any]]]:
    """Return the content of lines with these bodies, as the verifier reads them. Raises `MalformedLine`."""
    head, lines = b"h" * 32, []
    for body in bodies:
        head = chain_hash(head, body)
        lines.append(seal(body, head))
    return [parts(entry) for _, _, entry in iter_entries(lines, b"h" * 32)]


def parts(entry: LogEntry) -> tuple[int, str | None, str, dict[str, Any]]:
    """Return the parts of an entry."""
    return entry.seq, entry.time, entry.kind, entry.facts


@given(
    st.fixed_dictionaries(
        {"seq": st.integers(), "kind": st.text(max_size=10) | st.just("outcome"), "facts": VALUES},
        optional={"time": st.just("2026-11-18T15:02:11.201340+00:00") | st.text(max_size=5)},
    ),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_same_as_read(record: dict[str, Any], separators: tuple[str, str]) -> None:
    """The fast parser and the thorough parser agree on every line."""
    ordered = {name: record[name] for name in ("seq", "time", "kind", "facts") if name in record}
    body = json.dumps(ordered, separators=separators).removesuffix("}").encode("ascii")
    expected: object
    try:
        expected = [parts(read(body))]
    except MalformedLine as problem:
        expected = str(problem)
    got: object
    try:
        got = parse(body)
    except MalformedLine as problem:
        got = str(problem)
    assert got == expected


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    "facts",
    ['{"x":1,"x":1}', '{"x":{"a":1,"a":2}}', "{", "{}}", "{},", '{"x":"\\ud800}', "[" * 60_000, '{"x":1e999,"y":NaN'],
)
def test_refused(facts: str) -> None:
    """The fast parser accepts nothing that the thorough parser refuses."""
    body = f'{{"seq":1,"time":"2026","kind":"outcome","facts":{facts}'.encode("ascii")
    with pytest.raises(MalformedLine):
        read(body)
    with pytest.raises(MalformedLine):
        parse(body)


@pytest.mark.rule("AUD-2")
def test_lines_beside_each_other() -> None:
    """An unusual line among usual ones is read as it would be alone; so are those beside it."""
    usual = [b'{"seq":%d,"kind":"a","facts":{"x":[%d]}' % (seq, seq) for seq in range(1, 100)]
    odd = b'{"seq":7, "time":"\\u2014","kind":"a","facts":{}'
    expected = [(seq, None, "a", {"x": [seq]}) for seq in range(1, 100)]
    assert parse(*usual) == expected
    assert parse(*usual[:50], odd, *usual[50:]) == [*expected[:50], (7, "\u2014", "a", {}), *expected[50:]]
    with pytest.raises(MalformedLine, match="'x' stands twice"):
        parse(*usual, b'{"seq":9,"kind":"a","facts":{"x":1,"x":1}', *usual)


@pytest.mark.rule("AUD-2")
def test_odd_numbers() -> None:
    """Numbers that JSON reads differently than they are written come out as the thorough parser reads them."""
    body = b'{"seq":1,"kind":"a","facts":{"x":%s,"y":1e5,"z":-0.0,"w":1E+2}' % (b"9" * 30)
    assert parse(body) == [(1, None, "a", {"x": int("9" * 30), "y": 1e5, "z": -0.0, "w": 100.0})]


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize("byte", [b"\t", b"\r", b"\n", b"\x00", b"\x1f", b"\x80", b"\xff"])
def test_bytes(byte: bytes) -> None:
    """Bytes that no line may have are refused in every place."""
    for body in (
        b'{"seq":1,"kind":"a","facts":{%s}',
        b'{"seq":1,%s"kind":"a","facts":{}',
        b'{"seq":1,"kind":"a%s","facts":{}',
    ):
        with pytest.raises(MalformedLine, match="has bytes that are not allowed in a line"):
            parse(body % byte)
    with pytest.raises(MalformedLine, match="has bytes that are not allowed in a line"):
        parse('{"seq":1,"kind":"a","facts":{"x":"é"}'.encode())
    assert parse(b'{"seq":1,"kind":"a\x7f","facts":{}') == [(1, None, "a\x7f", {})]
