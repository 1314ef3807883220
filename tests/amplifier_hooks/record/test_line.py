"""One record as one line."""

from __future__ import annotations

import hashlib
from itertools import combinations

import msgspec
import pytest

from amplifier_hooks.record.line import (
    FORMAT,
    LONGEST_LINE,
    SEAL,
    LogEntry,
    Opening,
    chain_hash,
    read,
    seal,
    unseal,
)
from amplifier_hooks.record.record_errors import MalformedLine

HEAD = bytes(range(32))
BODY = b'{"seq":7,"time":"2026-11-18T15:02:11+00:00","kind":"outcome","facts":{"event":"tool:pre"}'


@pytest.mark.rule("AUD-2")
def test_seal() -> None:
    """A line is its body, its hash and a newline, and comes apart into both again."""
    line = seal(BODY, HEAD)
    assert line == BODY + b',"h":"' + HEAD.hex().encode() + b'"}\n'
    assert len(line) - len(BODY) == SEAL == 73
    assert unseal(line) == (BODY, HEAD)


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "end in a hash"),
        (seal(BODY, HEAD)[:-1], "end in a hash"),
        (seal(BODY, HEAD) + b"\n", "end in a hash"),
        (seal(BODY, HEAD).replace(b"0a", b"0A"), "end in a hash"),
        (seal(b'{"time":1', HEAD), "begin with"),
        (seal('{"seq":7,"x":"é"'.encode(), HEAD), "not allowed"),
        (seal(b'{"seq":7\n', HEAD), "not allowed"),
        (seal(b'{"seq":7' + b" " * LONGEST_LINE, HEAD), "longer"),
    ],
)
def test_no_line(line: bytes, problem: str) -> None:
    """Bytes that cannot be a line are refused without reading their JSON."""
    with pytest.raises(MalformedLine, match=problem):
        unseal(line)


@pytest.mark.rule("AUD-2")
def test_read() -> None:
    """A body has exactly the members of a record; a checkpoint has no time."""
    assert read(BODY) == LogEntry(seq=7, time="2026-11-18T15:02:11+00:00", kind="outcome", facts={"event": "tool:pre"})
    checkpoint = LogEntry(seq=8, kind="log.checkpoint", facts={"note": ""})
    assert read(b'{"seq":8,"kind":"log.checkpoint","facts":{"note":""}') == checkpoint


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"seq":7', "has the members seq"),
        (b'{"seq":7,"kind":"a","time":"t","facts":{}', "has the members"),
        (b'{"seq":true,"kind":"a","facts":{}', "wrong type"),
        (b'{"seq":1,"kind":2,"facts":{}', "wrong type"),
        (b'{"seq":1,"kind":"a","facts":[]', "wrong type"),
        (b'{"seq":1,"time":2,"kind":"a","facts":{}', "no text"),
        (b'{"seq":1,"kind":"a","facts":{"x":1,"x":2}', "twice"),
        (b'{"seq":1,"kind":"a","facts":{}}', "not JSON"),
        (b'{"seq":1,"kind":"a","facts":{"a":' + b"[" * 60_000, "not JSON"),
    ],
)
def test_unreadable(body: bytes, problem: str) -> None:
    """A body with other members, duplicate members or endless nesting is refused with its reason."""
    with pytest.raises(MalformedLine, match=problem):
        read(body)


# -- the chain of lines ------------------------------------------------------------------------------------------------


OPENING = Opening(log="5b" * 16, segment=2, previous="9f" * 32, tenant="acme", session="s1", sdk="0.1.0", key="k")


@pytest.mark.rule("AUD-2")
def test_first_value() -> None:
    """The chain begins with a hash of the seven texts of the opening, each with its length."""
    told = b"amplifier-hooks/audit/1/segment\n"
    for text in ("5b" * 16, "2", "9f" * 32, "acme", "s1", "0.1.0", "k"):
        told += len(text).to_bytes(8, "big") + text.encode()
    assert OPENING.head() == hashlib.sha256(told).digest()


@pytest.mark.rule("AUD-2")
def test_following() -> None:
    """Each hash is made of the one before and of the line's own bytes."""
    assert chain_hash(b"\x01" * 32, b"body") == hashlib.sha256(f"{FORMAT}\n".encode() + b"\x01" * 32 + b"body").digest()


@pytest.mark.rule("AUD-2")
def test_every_text_counts() -> None:
    """Two openings that differ in anything, also in where one text ends and the next begins, begin differently."""
    others = [
        OPENING,
        msgspec.structs.replace(OPENING, log="x"),
        msgspec.structs.replace(OPENING, previous="x"),
        msgspec.structs.replace(OPENING, tenant="x"),
        msgspec.structs.replace(OPENING, session="x"),
        msgspec.structs.replace(OPENING, sdk="x"),
        msgspec.structs.replace(OPENING, key="x"),
        msgspec.structs.replace(OPENING, segment=3),
        msgspec.structs.replace(OPENING, tenant="acm", session="es1"),
    ]
    assert all(one.head() != other.head() for one, other in combinations(others, 2))


@pytest.mark.rule("AUD-2")
def test_opening_reads_back() -> None:
    """The first line states the opening again; the signing name consists of log and segment."""
    assert Opening.of(OPENING.facts()) == OPENING
    assert OPENING.origin == f"amplifier-hooks/audit/1/{'5b' * 16}/2"


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize("change", [{"format": "x/2"}, {"segment": 0}, {"segment": True}, {"log": 7}, {"key": None}])
def test_no_opening(change: dict[str, object]) -> None:
    """A first line that states no opening opens nothing."""
    with pytest.raises(MalformedLine):
        Opening.of({**OPENING.facts(), **change})
