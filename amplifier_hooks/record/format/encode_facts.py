"""A record's kind and facts as bytes: ASCII, with secrets hidden, small enough for one line.

Most records are plain: texts, numbers and containers that JSON holds as they are, without a secret. Finding that out
takes one look at each value, and a C encoder does the rest. Everything else goes the long way, value by value.
"""

from __future__ import annotations

import json
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from amplifier_hooks.record.format.json_values import DEPTH, ITEMS, LONGEST_INT, Tamer, TooMuch, omitted
from amplifier_hooks.record.format.line import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_hooks.record.format.redact import Redactor


HEAVY: Final = 32_768
"""Characters and members from which encoding is left to a thread."""

SHORT: Final = 4_096
"""Characters of a text that is looked at on the short way."""

ROOM: Final = LONGEST_LINE - 1_024
"""Bytes for the facts; the rest is for what every line has."""

SIZES: Final = ((49_152, 8_192), (8_192, 2_048), (1_024, 512), (128, 128))
"""How long a text may be, and how many values there may be; tried in turn until the record fits."""

LONGEST_KIND: Final = 100
MOST_NAMES: Final = 4_096

_SHORTEST_SECRET: Final = 8
_fast: Final = msgspec.json.Encoder().encode
_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class Heavy(Exception):
    """This record takes so long to encode that no event loop should wait for it."""


class Encoder:
    """Makes the part of a line that does not depend on where it stands: `"kind":…,"facts":{…}`."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._suspects = redactor.suspects if redactor is not None else None
        self._names: dict[str, bool] = {}
        self._kinds: dict[str, bytes] = {}
        self._clean: set[str] = set()
        """Texts that were looked at: names, events and reasons come again and again."""

    def encode(self, kind: str, facts: Mapping[str, Any], *, patient: bool = False) -> bytes:
        """The bytes. Raises `Heavy` for what would hold up a loop, unless told to be patient; nothing else."""
        named = self._kinds.get(kind) or self._named(kind)
        data = self._short(facts)
        if data is None:
            if not patient and _is_heavy(facts):
                raise Heavy
            data = self._long(facts)
        return b'"kind":%b,"facts":%b' % (named, data)

    def _named(self, kind: str) -> bytes:
        if len(self._kinds) >= MOST_NAMES:
            self._kinds.clear()
        tamed = Tamer(self._redactor, LONGEST_KIND, ROOM, 1).tamed(kind)
        named = self._kinds[kind] = _ascii(tamed if isinstance(tamed, str) else "odd").encode("ascii")
        return named

    # -- the short way -------------------------------------------------------------------------------------------------

    def _short(self, facts: Mapping[str, Any]) -> bytes | None:
        """The facts, if all of them are plain."""
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
        """How many values there are with these, or -1 when one of them is not plain."""
        names = self._names
        for name in value:
            if not (names.get(name) or self._is_usual(name)):
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
                        self._is_clean(item)
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
        """Whether what stands under this name can be taken as it is. Remembered: the same names come again."""
        if type(name) is not str or len(name) > LONGEST_KIND:
            return False
        secret = self._redactor is not None and (
            name == "value"  # a name beside it may say that it is one
            or self._redactor.names(name)
            or self._redactor.suspects(name)
        )
        usual = name.isascii() and not name.startswith("$") and not secret
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        self._names[name] = usual
        return usual

    def _is_clean(self, text: str) -> None:
        if len(self._clean) >= MOST_NAMES:
            self._clean.clear()
        self._clean.add(text)

    # -- the long way --------------------------------------------------------------------------------------------------

    def _long(self, facts: object) -> bytes:
        """The facts, value by value, with as much of their texts as there is room for."""
        digests: dict[int, str] = {}
        for longest, nodes in SIZES:
            try:
                tamed = Tamer(self._redactor, longest, ROOM, nodes, digests).tamed(facts)
            except TooMuch:
                continue
            data = _ascii(tamed if isinstance(tamed, dict) else {"facts": tamed}).encode("ascii")
            if len(data) <= ROOM:
                return data
        return _ascii(omitted(facts, "size")).encode("ascii")


def _is_heavy(facts: object) -> bool:
    """Whether there is a lot to look at. Stops counting when it is enough."""
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
