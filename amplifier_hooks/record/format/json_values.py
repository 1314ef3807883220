"""What JSON cannot hold, as something it can: a value never keeps a record from being written.

Every type of value has one rule, in a table. What has none, and what is too large, too deep, circular or broken, is
replaced by its type, the reason and, where there are bytes to speak of, its length and SHA-256.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from attrs import define, field

from amplifier_hooks.text.linear_search import is_text
from amplifier_hooks.text.secrets import names_a_secret

if TYPE_CHECKING:
    from amplifier_hooks.record.format.redact import Redactor


DEPTH: Final = 32
"""Containers within each other at most."""

ITEMS: Final = 2_048
"""Members of one container at most."""

LONGEST_INT: Final = 1 << 63
"""Integers from here on are replaced: other readers would round them."""

_PLAIN: Final = frozenset((bool, type(None)))


class TooMuch(Exception):
    """All texts together are longer than the record has room for."""


@define
class Tamer:
    """Turns any value into one that JSON can hold, with its secrets hidden. Texts over `longest` become digests.

    One is good for one record. `digests` are those that were made before, by the identity of their text.
    """

    redactor: Redactor | None
    longest: int
    room: int
    nodes: int
    """Values it looks at; containers that hold each other could have more of them than there are atoms."""
    digests: dict[int, str] = field(factory=dict)
    path: set[int] = field(factory=set)

    def tamed(self, value: object, depth: int = 0) -> Any:
        """The value as the record has it.

        Raises `TooMuch` when there is no room for it, and nothing else but what ends the process.
        """
        try:
            return self._tamed(value, depth)
        except TooMuch:
            raise
        except Exception as problem:  # noqa: BLE001  # values bring code of their own
            return omitted(value, f"it raised {type(problem).__name__}")

    def _tamed(self, value: object, depth: int) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Mapping | list | tuple | AbstractSet) or (
            isinstance(value, Sequence) and not isinstance(value, str | _BYTES)
        ):
            return self._container(value, depth)
        rule = next((rule for kind, rule in _RULES if isinstance(value, kind)), None)
        if rule is None:
            return omitted(value, "not a value of the record")
        replaced = rule(value)
        return self._text(replaced) if isinstance(replaced, str) else replaced

    def _container(self, value: Collection[Any], depth: int) -> Any:
        if id(value) in self.path:
            return omitted(value, "circular")
        if depth >= DEPTH:
            return omitted(value, "depth")
        self.nodes -= len(value)
        if len(value) > ITEMS or self.nodes < 0:
            return omitted(value, "size", length=len(value))
        self.path.add(id(value))
        try:
            if isinstance(value, Mapping):
                named = self.redactor is not None and names_a_secret(value)
                return dict(
                    self._member(key, item, depth + 1, secret=named and key == "value")
                    for key, item in list(value.items())
                )
            return [self.tamed(item, depth + 1) for item in list(value)]
        finally:
            self.path.discard(id(value))

    def _member(self, key: object, item: object, depth: int, *, secret: bool) -> tuple[str, Any]:
        secret = secret or (self.redactor is not None and isinstance(key, str) and self.redactor.names(key))
        return self._name(key), self._secret(item, depth) if secret else self.tamed(item, depth)

    def _secret(self, value: object, depth: int) -> Any:
        """What stands under a secret's name. That there is nothing, or only a yes or no, is no secret."""
        if self.redactor is None or type(value) in _PLAIN:
            return value
        if isinstance(value, Mapping | list | tuple) and depth < DEPTH and len(value) <= ITEMS:
            if isinstance(value, Mapping):
                return {self._name(key): self._secret(item, depth + 1) for key, item in list(value.items())}
            return [self._secret(item, depth + 1) for item in value]
        text = value if isinstance(value, str) else repr(value)
        return self.redactor.hidden(text)

    def _name(self, key: object) -> str:
        """A member's name. Ours begin with `$`, so that of somebody's data is doubled."""
        text = key if isinstance(key, str) else f"{key!r}"
        if len(text) > min(self.longest, 1_024) or not is_text(text):
            text = f"$omitted name {self._digest(text)}"
        elif text.startswith("$"):
            text = f"${text}"
        return self._kept(text)

    def _text(self, value: str) -> Any:
        value = str.__str__(value)  # a subclass may say something else
        if not is_text(value):
            return omitted(value, "lone surrogate", length=len(value), sha256=self._digest(value))
        if len(value) > self.longest:
            return omitted(value, "size", length=len(value), sha256=self._digest(value))
        return self._kept(value)

    def _kept(self, text: str) -> str:
        self.room -= len(text)
        if self.room < 0:
            raise TooMuch
        return self.redactor.without(text) if self.redactor is not None else text

    def _digest(self, text: str) -> str:
        known = self.digests.get(id(text))
        if known is None:
            known = self.digests[id(text)] = digest(text)
        return known


def omitted(value: object, why: str, **about: Any) -> dict[str, Any]:
    """What stands for a value that is not there."""
    return {"$omitted": type(value).__name__, "why": why, **about}


def digest(value: str) -> str:
    """SHA-256 of a text; in pieces, for it may be large."""
    hashed = hashlib.sha256()
    for start in range(0, len(value), 1 << 20):
        hashed.update(value[start : start + (1 << 20)].encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def _integer(value: int) -> Any:
    return int(value) if -LONGEST_INT <= value < LONGEST_INT else omitted(value, "size", length=value.bit_length())


def _number(value: float) -> Any:
    return float(value) if math.isfinite(value) else omitted(value, str(float(value)))


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
"""By type, the first that fits."""
