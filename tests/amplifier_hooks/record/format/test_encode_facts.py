"""Any value becomes a line, or a statement about its omission."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.record.format.encode_facts import ROOM, Encoder, Heavy, Redactor
from amplifier_hooks.record.write.log import AuditLog
from amplifier_hooks.record.write.log_files import AuditKey
from tests.records import facts

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = Encoder(None)
HIDING = Encoder(Redactor(b"k" * 32, environment={}))


def told(facts: object, encoder: Encoder = PLAIN) -> Any:
    """Return the facts as a reader decodes them. The bytes are ASCII, one line, and within their room."""
    data = encoder.encode("note", facts, patient=True)  # type: ignore[arg-type]  # some are no mapping
    assert data.isascii()
    assert b"\n" not in data
    assert len(data) <= ROOM + 20
    return json.loads(b"{" + data + b"}")["facts"]


def sha256(text: str) -> str:
    """Return the digest of a text, lone surrogates included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Colour(Enum):
    """A choice."""

    RED = "red"


class Rude:
    """A value whose own code fails."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Loud(str):
    """A text whose `str` is another text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def nested(depth: int) -> list[Any]:
    """Return lists nested to a depth."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CIRCULAR: dict[str, Any] = {"name": "x"}
CIRCULAR["self"] = [CIRCULAR]

REPLACED: dict[str, tuple[Any, Any]] = {
    "not a number": (float("nan"), {"$omitted": "float", "why": "nan"}),
    "infinity": (float("-inf"), {"$omitted": "float", "why": "-inf"}),
    "a huge integer": (10**10_000, {"$omitted": "int", "why": "size", "length": 33_220}),
    "half a character": (
        "a\ud800",
        {"$omitted": "str", "why": "lone surrogate", "length": 2, "sha256": sha256("a\ud800")},
    ),
    "bytes": (b"\xff\n", {"$bytes": 2, "sha256": hashlib.sha256(b"\xff\n").hexdigest()}),
    "a circle": (CIRCULAR, {"name": "x", "self": [{"$omitted": "dict", "why": "circular"}]}),
    "too many members": (list(range(5_000)), {"$omitted": "list", "why": "size", "length": 5_000}),
    "an object": (Rude(), {"$omitted": "Rude", "why": "not a value of the record"}),
    "an exception": (ValueError(Rude()), {"$omitted": "ValueError", "why": "it raised RuntimeError"}),
    "a time": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "a day": (date(2026, 1, 2), "2026-01-02"),
    "a duration": (timedelta(seconds=2), 2.0),
    "a decimal": (Decimal("1.10"), "1.10"),
    "a path": (PurePosixPath("/tmp/x"), "/tmp/x"),  # a name only
    "a uuid": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "a choice": (Colour.RED, "red"),
    "a class": (Rude, "Rude"),
    "a set": ({1}, [1]),
    "a view": (MappingProxyType({"a": 1}), {"a": 1}),
    "a loud text": (Loud("quiet"), "quiet"),
    "a name that is ours": ({"$omitted": 1, "$$x": 2}, {"$$omitted": 1, "$$$x": 2}),
    "names that are no texts": ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
    "as it is": ({"a": [1, -1.5, True, None, "é\u2028"]}, {"a": [1, -1.5, True, None, "é\u2028"]}),
    "the largest integer": (2**63 - 1, 2**63 - 1),
    "a larger one": (2**63, {"$omitted": "int", "why": "size", "length": 64}),
}


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
@pytest.mark.parametrize("case", REPLACED)
@pytest.mark.parametrize("encoder", [PLAIN, HIDING], ids=["plain", "hiding"])
def test_values(case: str, encoder: Encoder) -> None:
    """Every type has its rule: the value is written unchanged, as something readable, or as an omission."""
    value, written = REPLACED[case]
    assert told({"value": value}, encoder) == {"value": written}


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
def test_deep() -> None:
    """Endless nesting is cut at a depth, and the record says so there."""
    value, depth = told({"value": nested(5_000)})["value"], 1
    while isinstance(value, list):
        (value,), depth = value, depth + 1
    assert value == {"$omitted": "list", "why": "depth"}
    assert depth == 32


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
def test_large() -> None:
    """Values too large for a line are replaced by their digest, the largest first; small values stay readable."""
    large = "x" * 10_000_000
    found = told({"large": large, "middle": ["y" * 9_000] * 9, "small": "z" * 900})
    assert found["large"] == {"$omitted": "str", "why": "size", "length": len(large), "sha256": sha256(large)}
    assert found["middle"][0]["sha256"] == sha256("y" * 9_000)
    assert found["small"] == "z" * 900
    assert told({"value": "y" * 60_000})["value"]["length"] == 60_000
    assert told({"value": "y" * 40_000})["value"] == "y" * 40_000


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
def test_more_than_there_are_atoms() -> None:
    """Containers that hold each other many times are omitted, not walked through."""
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    assert "$omitted" in json.dumps(told({"value": value}))
    assert told({f"{number}": number for number in range(3_000)}) == {
        "$omitted": "dict",
        "why": "size",
        "length": 3_000,
    }
    assert told(["no", "mapping"]) == {"facts": ["no", "mapping"]}


@pytest.mark.rule("AUD-4")
def test_heavy() -> None:
    """The encoder refuses every heavy record of an impatient caller."""
    for value in ("x" * 40_000, b"x" * 40_000, [[0] * 300] * 300, {"a": nested(40_000)}, [CIRCULAR] * 2_000):
        with pytest.raises(Heavy):
            PLAIN.encode("note", {"value": value})
    assert PLAIN.encode("note", {"value": "x" * 30_000, "odd": {1}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.rule("AUD-4")
@given(value=st.dictionaries(st.text(st.characters()), JSON, max_size=5), kind=st.text(st.characters()))
def test_anything(value: dict[str, Any], kind: str) -> None:
    """Any kind and facts become one line, and the short way and the long way give equal lines."""
    assert json.loads(b"{" + PLAIN.encode(kind, value) + b"}")
    data = HIDING._encode_plain(value)
    if data is not None:
        assert json.loads(data) == json.loads(HIDING._encode_long(value))


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
async def test_written(tmp_path: Path) -> None:
    """A record that takes long to encode is encoded beside the event loop, and is on record all the same."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=AuditKey(b"\x07" * 32))
    await log.write("note", {"value": "x" * 5_000_000}, durable=True)
    await log.close()
    assert facts(tmp_path / "record.jsonl", "note")[0]["value"]["length"] == 5_000_000
