"""The chain that ties the lines together."""

from __future__ import annotations

import hashlib
from itertools import combinations

import attrs
import pytest

from amplifier_hooks.record.format.line import FORMAT, Opening, chain_hash
from amplifier_hooks.record.record_errors import MalformedLine

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
        attrs.evolve(OPENING, log="x"),
        attrs.evolve(OPENING, previous="x"),
        attrs.evolve(OPENING, tenant="x"),
        attrs.evolve(OPENING, session="x"),
        attrs.evolve(OPENING, sdk="x"),
        attrs.evolve(OPENING, key="x"),
        attrs.evolve(OPENING, segment=3),
        attrs.evolve(OPENING, tenant="acm", session="es1"),
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
