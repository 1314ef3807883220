import collections
import contextlib
import enum
import hashlib
import json
import math
import random
import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amplifier_hooks.act import MAX_DEPTH, MAX_INPUT, Act, freeze, freeze_input, is_larger, thaw
from amplifier_hooks.errors import InputNotFreezable, InputTooLarge

pytestmark = pytest.mark.rule("COO-4")

any_text = st.text(st.characters(exclude_categories=()), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text
# Anything hooks may bring, JSON or not: most of these must be refused, none may be changed.
values = st.recursive(
    scalars | st.floats() | st.binary(max_size=4) | st.sampled_from(["\ud83d\ude00", 1, 1.0, True, 0, -0.0, False]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(any_text, inner, max_size=4)
        | st.dictionaries(st.integers() | st.booleans() | st.none() | any_text, inner, max_size=3)
    ),
    max_leaves=12,
)


class Colour(enum.StrEnum):
    """Text that is more than text."""

    RED = "red"


class Number(enum.IntEnum):
    """A number that is more than a number."""

    ONE = 1


class Point(NamedTuple):
    """A tuple with names."""

    x: int


class ReadOnly(dict[str, Any]):
    """A read-only view of a dict, as hooks receive their data."""


def same(left: object, right: object) -> bool:
    """Return True if two values have equal types and values, all the way down; -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        assert isinstance(right, dict)
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        assert isinstance(right, list)
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


@given(values)
def test_round_trip_or_refusal(value: object) -> None:
    """An accepted value reads back exactly, with its types; every other value is refused."""
    try:
        data = freeze(value)
    except InputNotFreezable:
        assert not_exact(value)
        return
    assert same(thaw(data), value)
    assert freeze(thaw(data)) == data
    assert data.isascii()
    assert b"\n" not in data


def not_exact(value: object) -> bool:
    """Return True if the standard library would change a value, or not write it; a slow check."""
    try:
        return not same(json.loads(json.dumps(value, allow_nan=False)), value)
    except (TypeError, ValueError):
        return True


@given(values, values)
def test_different_values_have_different_bytes(left: object, right: object) -> None:
    """No two values share their bytes: 1, 1.0 and True are three values."""
    assume(not same(left, right))
    with contextlib.suppress(InputNotFreezable):
        assert freeze(left) != freeze(right)


@given(st.dictionaries(any_text, scalars), st.randoms())
def test_key_order_is_irrelevant(value: dict[str, Any], chance: random.Random) -> None:
    """The order in which keys were set leaves no trace."""
    items = list(value.items())
    chance.shuffle(items)
    try:
        assert freeze(dict(items)) == freeze(value)
    except InputNotFreezable:
        assert not_exact(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"b": 1, "a": [True, None, 1.0, "é\n"]}, rb'{"a":[true,null,1.0,"\u00e9\n"],"b":1}'),
        (10**400, b"1" + b"0" * 400),
        (-0.0, b"-0.0"),
        (1e308, b"1e+308"),
        ("\udce9.txt", rb'"\udce9.txt"'),
        ("😀", rb'"\ud83d\ude00"'),
        (ReadOnly(a=ReadOnly()), b'{"a":{}}'),
        (collections.OrderedDict(b=1, a=2), b'{"a":2,"b":1}'),
    ],
)
def test_bytes(value: object, data: bytes) -> None:
    """Canonical bytes keep big integers, signed zero, undecodable file names and read-only views of a dict."""
    assert freeze(value) == data
    assert thaw(data) == value


def nested(depth: int) -> object:
    """Return lists in lists."""
    value: object = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cycle() -> object:
    """Return a dict that holds itself."""
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [0, 1, 2, (3,)]}, "$.a[3] is of type tuple"),
        ({"a b": {"é": {1}}}, r'$["a b"]["\u00e9"] is of type set'),
        (b"raw", "$ is of type bytes"),
        ({"o": object()}, "$.o is of type object"),
        ({"m": {1: "a"}}, "$.m has the key 1, which no JSON key can be"),
        ({True: "a"}, "$ has the key True, which no JSON key can be"),
        ({None: "a"}, "$ has the key None, which no JSON key can be"),
        ({Colour.RED: 1}, "$ has the key <Colour.RED: 'red'>, which no JSON key can be"),
        ({"\ud83d\ude00": 1}, r"$ has the key '\ud83d\ude00', which no JSON key can be"),
        ([Colour.RED], "$[0] is of type Colour"),
        ([Number.ONE], "$[0] is of type Number"),
        ([math.nan], "$[0] is nan, which JSON cannot hold"),
        ([-math.inf], "$[0] is -inf, which JSON cannot hold"),
        (["\ud83d\ude00"], "$[0] holds a character split into two surrogates"),
        ([10**5000], "$[0] is an integer too long to write"),
        (Point(1), "$ is of type Point"),
    ],
)
def test_refusals_name_the_part(value: object, problem: str) -> None:
    """A value that JSON would change or cannot hold is refused, with the path to it."""
    with pytest.raises(InputNotFreezable) as caught:
        freeze(value)
    assert caught.value.problem == problem


def test_depth() -> None:
    """64 levels are accepted, 65 and cycles are not."""
    assert thaw(freeze(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for value in (nested(MAX_DEPTH + 1), cycle()):
        with pytest.raises(InputNotFreezable, match="nested deeper than 64"):
            freeze(value)


class Lying(dict[str, Any]):
    """A dict whose items differ from its contents."""

    def items(self) -> Any:
        """Return other items the second time."""
        self["told"] = "told" in self
        return [("a", 1)] if not self["told"] else [("a", object())]


class Growing(dict[str, Any]):
    """A dict that grows while it is read, as if another thread filled it."""

    def items(self) -> Any:
        """Grow while being read."""
        for item in super().items():
            self[str(len(self))] = 0
            yield item


def test_a_value_that_changes_meanwhile() -> None:
    """A value that changes while it is checked, or before it is written, is refused, not half written."""
    with pytest.raises(InputNotFreezable, match="not JSON serializable"):
        freeze({"x": Lying()})
    with pytest.raises(InputNotFreezable, match="changed size"):
        freeze({"x": Growing(a=1)})


def test_thaw_is_fresh() -> None:
    """Every reader gets a copy of its own; changing it changes neither the action nor its digest."""
    act = Act("", "s1", "tool:pre", "Write", "/p", freeze({"a": [1]}))
    first = act.arguments()
    assert first == {"a": [1]}
    assert isinstance(first, dict)
    first["a"].append(2)
    assert act.arguments() == {"a": [1]}


@pytest.mark.parametrize(
    ("fields", "value", "digest"),
    [
        (("", "", "", "", ""), None, "cff6b02d97c2173c262e5325bf9954eac05cfbb2b3805db6f8183eabcde31541"),
        (
            ("acme", "s1", "tool:pre", "Write", "/p"),
            {"file_path": "/a", "content": "é"},
            "8ce93e485300eaf0e38295dd486cb2453642a2a8202ef5df9d3da82a65d1b144",
        ),
        (
            ("acme", "s1", "tool:pre", "Wr\udce9te", ""),
            [1, 1.0, True],
            "00b47897f24e43071bf41ee1e9b6039a1a8483013726950ab4fc7127769c7171",
        ),
    ],
)
def test_vectors(fields: tuple[str, str, str, str, str], value: object, digest: str) -> None:
    """These digests never change: approvals and records outlive a release."""
    act = Act(*fields, freeze(value))
    assert act.digest == digest
    assert act.short == digest[:12]


@given(st.tuples(any_text, any_text, any_text, any_text, any_text), st.binary())
def test_digest_is_as_documented(fields: tuple[str, str, str, str, str], data: bytes) -> None:
    """Any program can compute the digest from the encoding that the module describes."""
    parts = [text.encode("utf-8", "surrogatepass") for text in fields] + [data]
    encoded = b"amplifier-hooks/act/1\n" + b"".join(struct.pack(">Q", len(part)) + part for part in parts)
    assert Act(*fields, data).digest == hashlib.sha256(encoded).hexdigest()


few = st.text("ab\n\0", max_size=3)
splits: st.SearchStrategy[tuple[str, str, str, str, str, bytes]] = st.tuples(
    few, few, few, few, few, st.sampled_from([b"", b"a", b"ab", b"b"])
)


@given(splits, splits)
def test_no_two_splits_share_a_digest(
    left: tuple[str, str, str, str, str, bytes], right: tuple[str, str, str, str, str, bytes]
) -> None:
    """Moving characters from one field to the next is another act."""
    assert (Act(*left).digest == Act(*right).digest) is (left == right)


def test_frozen() -> None:
    """No field of an action can be assigned, and its bytes are bytes."""
    act = Act("", "s", "e", "t", "", b"{}")
    with pytest.raises(AttributeError):
        act.name = "u"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Act("", "s", "e", "t", "", bytearray(b"{}"))  # type: ignore[arg-type]


@pytest.mark.rule("COO-4")
@pytest.mark.parametrize("data", [b"", b"{}{}", b"{} ", b" {}", b"{", "é".encode()])
def test_what_was_never_frozen_does_not_thaw(data: bytes) -> None:
    """Thawing reads exactly one value, and refuses any text around it."""
    with pytest.raises(ValueError, match=r"."):
        thaw(data)


@pytest.mark.rule("COO-4")
def test_canonical_as_the_encoder_has_it() -> None:
    """The bytes are those of the standard library's own encoder."""
    value = {"b": [1, -0.0, 1e16, True, None], "a": {"é\u2028": "\ud800", "": 10**30}}  # a lone half stays a lone half
    assert freeze(value) == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.rule("COO-4")
@pytest.mark.parametrize(
    "part", [["x" * 64] * 20_000, "x" * MAX_INPUT, "é" * (MAX_INPUT // 6), [0] * MAX_INPUT], ids=["a", "b", "c", "d"]
)
def test_large_input(part: Any) -> None:
    """An input of more than 1 MiB of canonical JSON is refused; one of exactly 1 MiB is not."""
    with pytest.raises(InputTooLarge, match="1,048,576 bytes"):
        freeze_input({"x": part})
    whole = {"x": "y" * (MAX_INPUT - len(freeze({"x": ""})))}
    assert len(freeze_input(whole)) == MAX_INPUT


@pytest.mark.rule("COO-4")
def test_too_large_input_is_not_read_whole() -> None:
    """Freezing an input ends at the part with which it is too large."""

    class Read(dict[str, Any]):
        def items(self) -> Any:
            for number in range(MAX_INPUT):
                assert number <= MAX_INPUT // 1_000
                yield f"{number}", "x" * 1_000

    with pytest.raises(InputTooLarge):
        freeze_input(Read())


@pytest.mark.rule("COO-4")
@pytest.mark.parametrize("key", [True, False])
def test_too_large_text_is_not_read(key: bool) -> None:
    """Freezing an input looks for no mistake in a text with which the input is too large, be it a key or a value."""
    text = "é" * MAX_INPUT + "\ud83d" + "\ude00"
    with pytest.raises(InputTooLarge):
        freeze_input({text: 1} if key else {"x": text})


def test_size_is_known_early() -> None:
    """The size of a value that contains itself is looked at only up to the limit."""
    circular: list[Any] = [1]
    circular.append(circular)
    assert is_larger(circular, 1_000)
    assert not is_larger({"a": [1, "b"]}, 1_000)
