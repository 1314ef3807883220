"""JSON that others wrote comes in; its value goes out, unless two readers could understand the text differently."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, NoReturn

BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def load_json(text: str | bytes, *, deepest: int | None = None, **readers: Any) -> Any:
    """Return the value of JSON in UTF-8; `readers` are further options of `json.loads`.

    Raises `ValueError` and `RecursionError`. A key that stands twice in an object is an error, and so are a byte-order
    mark, characters after the value, `NaN`, and a number that does not read back. JSON that is nested deeper than
    `deepest` is refused before it is parsed.
    """
    if deepest is not None:
        text = text.encode() if isinstance(text, str) else text
        if depth(text) > deepest:
            raise ValueError(f"it is nested deeper than {deepest}")
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # `json.loads` would accept UTF-16, and a byte-order mark
    options = {"parse_float": _exact_float, **readers}
    return json.loads(text, object_pairs_hook=_unique_object, parse_constant=refuse_constant, **options)


def depth(text: bytes) -> int:
    """Return the depth of nested brackets in a text, in linear time, JSON or not."""
    now = most = 0
    for token in BRACKETS.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            now += 1
            most = max(most, now)
        elif first in b"]}":
            now -= 1
    return most


def refuse_constant(word: str) -> NoReturn:
    """Raise `ValueError`: `NaN` and `Infinity` are no JSON."""
    raise ValueError(f"{word} is no JSON number; write a finite one")


def _exact_float(digits: str) -> float:
    """Return a number. Raises `ValueError` unless the digits are a float's: the shortest, the first 17, or all."""
    number = float(digits)
    if repr(number) == digits:
        return number
    with suppress(InvalidOperation):  # the exponent is too large even for a decimal
        if isfinite(number) and Decimal(digits) in (Decimal(repr(number)), Decimal(f"{number:.16e}"), Decimal(number)):
            return number
    raise ValueError(f"the number {digits:.40} does not read back; write one that a 64-bit float holds")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the key {name!r:.60} stands twice in one object; give each key once")
        fields[name] = value
    return fields
