"""Which version of a handler it is, as far as its code tells: the same in every process, another after a change."""

from __future__ import annotations

import hashlib
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def fingerprint(handler: object) -> str:
    """The version of a handler: what it says itself in `hook_version`, or a digest of its code.

    What a function closes over is not in its code; a handler that is made from data says its version itself.
    """
    said = getattr(handler, "hook_version", None)
    if isinstance(said, str):
        return said
    while isinstance(handler, partial) or hasattr(handler, "__wrapped__"):
        handler = handler.func if isinstance(handler, partial) else handler.__wrapped__
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    if not isinstance(code, CodeType):
        return f"{type(handler).__module__}.{type(handler).__qualname__}"
    return hashlib.sha256("\0".join(parts(code)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parts(code: CodeType) -> Iterator[str]:
    """What makes a function this one, without where it stands."""
    yield code.co_qualname
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from parts(value)
        else:
            yield repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
