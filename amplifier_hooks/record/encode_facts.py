"""A record's kind and facts come in; ASCII bytes for one line go out, with secrets hidden.

Most records are plain: texts, numbers and containers that JSON holds as they are, without a secret. The encoder looks
once at each value to find that out, and a C encoder does the rest. Every other record is simplified value by value, so
no value keeps a record from being written: a table has one rule for each type. A value without a rule, and one that is
too large, too deep, circular or broken, is replaced by its type, the reason and, if it has bytes, its length and
SHA-256.

The redactor hides secrets before the log hashes the record, because a chain cannot lose a secret afterwards. A keyed
hash and the length replace each secret: equal secrets look equal within one log, and without the key they cannot be
guessed. A text with a private key, or with many secrets, is replaced as a whole. `amplifier_hooks.text.secrets` finds
the secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain
from math import isfinite
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from attrs import define, field

from amplifier_hooks.record.line import LONGEST_LINE
from amplifier_hooks.text.matching import is_text
from amplifier_hooks.text.secrets import PRIVATE_KEY, Secrets, is_secret_name, names_a_secret, replace_spans

if TYPE_CHECKING:
    from collections.abc import Iterable


DEPTH: Final = 32
"""Deepest nesting of containers."""

ITEMS: Final = 2_048
"""Most members of one container."""

LONGEST_INT: Final = 1 << 63
"""Smallest positive integer that is replaced, because other readers would round it."""

_PLAIN: Final = frozenset((bool, type(None)))


class TooMuch(Exception):
    """The texts together are longer than the room of the record."""


@define
class ValueSimplifier:
    """A converter of any value into one that JSON can hold, with secrets hidden. Texts over `longest` become digests.

    Each record needs its own simplifier. `digests` holds the digests made so far, by the identity of their text.
    """

    redactor: Redactor | None
    longest: int
    room: int
    nodes: int
    """Values that it may still look at; containers within each other could hold more values than there are atoms."""
    digests: dict[int, str] = field(factory=dict)
    path: set[int] = field(factory=set)

    def simplify(self, value: object, depth: int = 0) -> Any:
        """Return the value as the record states it.

        Raises `TooMuch` if the record has no room for it, and no other `Exception`.
        """
        try:
            return self._simplify(value, depth)
        except TooMuch:
            raise
        except Exception as problem:  # noqa: BLE001  # values bring code of their own
            return omission(value, f"it raised {type(problem).__name__}")

    def _simplify(self, value: object, depth: int) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Mapping | list | tuple | AbstractSet) or (
            isinstance(value, Sequence) and not isinstance(value, str | _BYTES)
        ):
            return self._container(value, depth)
        rule = next((rule for kind, rule in _RULES if isinstance(value, kind)), None)
        if rule is None:
            return omission(value, "not a value of the record")
        replaced = rule(value)
        return self._text(replaced) if isinstance(replaced, str) else replaced

    def _container(self, value: Collection[Any], depth: int) -> Any:
        if id(value) in self.path:
            return omission(value, "circular")
        if depth >= DEPTH:
            return omission(value, "depth")
        self.nodes -= len(value)
        if len(value) > ITEMS or self.nodes < 0:
            return omission(value, "size", length=len(value))
        self.path.add(id(value))
        try:
            if isinstance(value, Mapping):
                named = self.redactor is not None and names_a_secret(value)
                return dict(
                    self._member(key, item, depth + 1, secret=named and key == "value")
                    for key, item in list(value.items())
                )
            return [self.simplify(item, depth + 1) for item in list(value)]
        finally:
            self.path.discard(id(value))

    def _member(self, key: object, item: object, depth: int, *, secret: bool) -> tuple[str, Any]:
        secret = secret or (self.redactor is not None and isinstance(key, str) and self.redactor.covers_name(key))
        return self._name(key), self._secret(item, depth) if secret else self.simplify(item, depth)

    def _secret(self, value: object, depth: int) -> Any:
        """Return the replacement of a value under a secret's name. None and booleans are no secrets."""
        if self.redactor is None or type(value) in _PLAIN:
            return value
        if isinstance(value, Mapping | list | tuple) and depth < DEPTH and len(value) <= ITEMS:
            if isinstance(value, Mapping):
                return {self._name(key): self._secret(item, depth + 1) for key, item in list(value.items())}
            return [self._secret(item, depth + 1) for item in value]
        text = value if isinstance(value, str) else repr(value)
        return self.redactor.replacement_of(text)

    def _name(self, key: object) -> str:
        """Return the name of a member. The record's own names begin with `$`, so a leading `$` of others is doubled."""
        text = key if isinstance(key, str) else f"{key!r}"
        if len(text) > min(self.longest, 1_024) or not is_text(text):
            text = f"$omitted name {self._digest(text)}"
        elif text.startswith("$"):
            text = f"${text}"
        return self._limit_text(text)

    def _text(self, value: str) -> Any:
        value = str.__str__(value)  # a subclass may return another text
        if not is_text(value):
            return omission(value, "lone surrogate", length=len(value), sha256=self._digest(value))
        if len(value) > self.longest:
            return omission(value, "size", length=len(value), sha256=self._digest(value))
        return self._limit_text(value)

    def _limit_text(self, text: str) -> str:
        self.room -= len(text)
        if self.room < 0:
            raise TooMuch
        return self.redactor.redact(text) if self.redactor is not None else text

    def _digest(self, text: str) -> str:
        known = self.digests.get(id(text))
        if known is None:
            known = self.digests[id(text)] = digest(text)
        return known


def omission(value: object, why: str, **about: Any) -> dict[str, Any]:
    """Return the stand-in for an omitted value."""
    return {"$omitted": type(value).__name__, "why": why, **about}


def digest(value: str) -> str:
    """Return the SHA-256 of a text, computed in pieces, because the text may be large."""
    hashed = hashlib.sha256()
    for start in range(0, len(value), 1 << 20):
        hashed.update(value[start : start + (1 << 20)].encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def _integer(value: int) -> Any:
    return int(value) if -LONGEST_INT <= value < LONGEST_INT else omission(value, "size", length=value.bit_length())


def _number(value: float) -> Any:
    return float(value) if isfinite(value) else omission(value, str(float(value)))


def _bytes(value: bytes | bytearray | memoryview) -> dict[str, Any]:
    data = bytes(value)
    return {"$bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


_BYTES: Final = bytes | bytearray | memoryview
_RULES: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Enum, lambda value: str(value.value)),
    (str, lambda value: value),
    (bool, bool),
    (int, _integer),
    (float, _number),
    (_BYTES, _bytes),
    (datetime, datetime.isoformat),
    (date, date.isoformat),
    (time, time.isoformat),
    (timedelta, timedelta.total_seconds),
    (UUID | Decimal | PurePath, str),
    (type, lambda value: value.__name__),
    (BaseException, lambda value: f"{type(value).__name__}: {value}"),
)
"""Rules by type; the first that fits applies."""


HEAVY: Final = 32_768
"""Most characters and members that are encoded on the event loop."""

SHORT: Final = 4_096
"""Most characters of a text in a plain record."""

ROOM: Final = LONGEST_LINE - 1_024
"""Bytes for the facts; the rest is for the other parts of a line."""

SIZES: Final = ((49_152, 8_192), (8_192, 2_048), (1_024, 512), (128, 128))
"""Pairs of the longest text and the most values, tried in turn until the record fits."""

LONGEST_KIND: Final = 100
MOST_NAMES: Final = 4_096

_SHORTEST_SECRET: Final = 8
_fast: Final = msgspec.json.Encoder().encode
_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class Heavy(Exception):
    """The record takes so long to encode that no event loop should wait for it."""


class Encoder:
    """Encoder of the part of a line that does not depend on its position: `"kind":…,"facts":{…}`."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._suspects = redactor.suspects if redactor is not None else None
        self._usual: set[str] = set()
        """Names of values that are written unchanged, remembered because names recur."""
        self._encode_kind = lru_cache(MOST_NAMES)(self._make_kind)
        self._clean: set[str] = set()
        """Texts without a secret, remembered because names, events and reasons come again and again."""

    def encode(self, kind: str, facts: Mapping[str, Any], *, patient: bool = False) -> bytes:
        """Return the encoded kind and facts.

        Raises `Heavy` for a record that would hold up an event loop, unless `patient`; raises nothing else.
        """
        data = self._encode_plain(facts)
        if data is None:
            if not patient and _is_heavy(facts):
                raise Heavy
            data = self._encode_long(facts)
        return b'"kind":%b,"facts":%b' % (self._encode_kind(kind), data)

    def _make_kind(self, kind: str) -> bytes:
        tamed = ValueSimplifier(self._redactor, LONGEST_KIND, ROOM, 1).simplify(kind)
        return _ascii(tamed if isinstance(tamed, str) else "odd").encode("ascii")

    # -- the short way -------------------------------------------------------------------------------------------------

    def _encode_plain(self, facts: Mapping[str, Any]) -> bytes | None:
        """Return the encoded facts, or None unless all of them are plain."""
        if type(facts) is not dict:
            return None
        try:
            if self._members(facts, 0, 0) < 0:
                return None
            data = _fast(facts)
        except (UnicodeEncodeError, RuntimeError, msgspec.MsgspecError):  # a surrogate; changed while it was read
            return None
        return data if data.isascii() and len(data) <= ROOM else None

    def _members(self, value: dict[str, Any], nodes: int, depth: int) -> int:
        """Return `nodes` plus the number of values in `value`, or -1 if one of them is not plain."""
        if not self._usual.issuperset(value) and not all(map(self._is_usual, value)):
            return -1
        return self._items(value.values(), nodes + len(value), depth)

    def _items(self, values: Iterable[Any], nodes: int, depth: int) -> int:  # noqa: C901, PLR0911, PLR0912  # one look each
        if depth > DEPTH or nodes > ITEMS:
            return -1
        suspects, clean = self._suspects, self._clean
        for item in values:
            kind = type(item)
            if kind is str:
                length = len(item)
                if length >= _SHORTEST_SECRET and item not in clean:
                    if length > SHORT or (suspects is not None and suspects(item)):
                        return -1
                    if length <= LONGEST_KIND:
                        _remember(clean, item)
            elif item is None or kind is bool:
                pass
            elif kind is int:
                if not -LONGEST_INT <= item < LONGEST_INT:
                    return -1
            elif kind is float:
                if not isfinite(item):
                    return -1
            elif kind is dict:
                nodes = self._members(item, nodes, depth + 1)
                if nodes < 0:
                    return -1
            elif kind is list or kind is tuple:
                nodes = self._items(item, nodes + len(item), depth + 1)
                if nodes < 0:
                    return -1
            else:
                return -1
        return nodes

    def _is_usual(self, name: object) -> bool:
        """Return True if values under this name may be written unchanged. Such names are remembered."""
        if type(name) is not str or len(name) > LONGEST_KIND:
            return False
        secret = self._redactor is not None and (
            name == "value"  # a name beside it may make it a secret
            or self._redactor.covers_name(name)
            or self._redactor.suspects(name)
        )
        usual = name.isascii() and not name.startswith("$") and not secret
        if usual:
            _remember(self._usual, name)
        return usual

    # -- the long way --------------------------------------------------------------------------------------------------

    def _encode_long(self, facts: object) -> bytes:
        """Return the facts, simplified value by value, with as much of their texts as the record has room for."""
        digests: dict[int, str] = {}
        for longest, nodes in SIZES:
            try:
                tamed = ValueSimplifier(self._redactor, longest, ROOM, nodes, digests).simplify(facts)
            except TooMuch:
                continue
            data = _ascii(tamed if isinstance(tamed, dict) else {"facts": tamed}).encode("ascii")
            if len(data) <= ROOM:
                return data
        return _ascii(omission(facts, "size")).encode("ascii")


def _remember(texts: set[str], text: str) -> None:
    """Add a text, and forget the others where they are too many."""
    if len(texts) >= MOST_NAMES:
        texts.clear()
    texts.add(text)


def _is_heavy(facts: object) -> bool:
    """Return True if the facts weigh more than `HEAVY`. The count stops there."""
    weight, waiting = 0, [facts]
    while waiting and weight <= HEAVY:
        value = waiting.pop()
        weight += 1
        if isinstance(value, str | bytes | bytearray):
            weight += len(value)
        elif isinstance(value, dict | list | tuple | set | frozenset):
            weight += len(value)
            if weight <= HEAVY:
                waiting.extend(chain(value.keys(), value.values()) if isinstance(value, dict) else value)
    return weight > HEAVY


MOST_FOUND: Final = 4


class Redactor:
    """A finder and hider of secrets.

    Args:
        key: The key of their hashes; different for every log.
        known: Secrets by their value; values shorter than eight characters are ignored.
        environment: An environment with more secrets, found by their names.
    """

    def __init__(
        self, key: bytes, *, secrets: Iterable[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._key = key
        self._secrets = Secrets(secrets=secrets, environment=environment)
        self.suspects: Callable[[str], bool] = self._secrets.suspects
        """Return True if a text has a secret in it. The text must have no lone surrogates."""
        self.covers_name: Callable[[str], bool] = lru_cache(MOST_NAMES)(is_secret_name)
        """Return True if values under this name are secrets. Answers are cached, because names recur."""

    def replacement_of(self, value: str) -> dict[str, Any]:
        """Return the stand-in for a value that is a secret."""
        return {"$secret": self._hash(value), "length": len(value)}

    def redact(self, text: str) -> str:
        """Return the text with its secrets hidden, and everything else unchanged."""
        if not self.suspects(text):
            return text
        spans = self._secrets.spans(text)
        if len(spans) > MOST_FOUND or any(kind == PRIVATE_KEY.kind for _, _, kind in spans):
            return self._mark(text)
        return replace_spans(text, spans, [self._mark(text[start:end]) for start, end, _ in spans])

    def _mark(self, text: str) -> str:
        return f"{{$secret {self._hash(text)} length {len(text)}}}"

    def _hash(self, text: str) -> str:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()
