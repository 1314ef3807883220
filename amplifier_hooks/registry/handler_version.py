"""A handler comes in; its version goes out: equal in every process, different after a change of its code or its values.

The version is a digest of the handler's code, defaults, closure, filled-in arguments, and of the attributes of its
object. It does not cover the globals that the code uses. Values of other types than data count by their type and, if
they have public attributes, by those.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from numbers import Rational
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from amplifier_hooks.dispatch.chain import stated_version

MOST_VALUES: Final = 20_000
"""Values that one version covers. The containers after them count by their type and length."""

DEEPEST: Final = 12
"""Levels of nested values that a version covers."""

OBJECTS: Final = 1
"""Levels of objects within objects whose attributes count, except for records, whose fields always do."""

LONGEST_VALUE: Final = 1 << 20
"""Characters or bytes of one value that a version covers. A longer value counts by its length and its beginning."""

PLAIN: Final = (float, complex, date, time, timedelta, timezone, Decimal, range, type(None), type(...))
"""Types whose `repr` is the value, in every process."""

LEAVES: Final[tuple[tuple[Any, Callable[[Any], bytes]], ...]] = (
    (Enum, lambda value: value.name.encode("utf-8", "surrogatepass")),
    (str, lambda value: b"%d %b" % (len(value), value[:LONGEST_VALUE].encode("utf-8", "surrogatepass"))),
    ((bytes, bytearray), lambda value: b"%d %b" % (len(value), value[:LONGEST_VALUE])),
    (int, lambda value: hex(value).encode()),
    (PLAIN, lambda value: repr(value).encode()),
    (os.PathLike, lambda value: os.fsencode(os.fspath(value))),
    (re.Pattern, lambda value: repr((value.pattern, value.flags)).encode("utf-8", "surrogatepass")),
    (ModuleType, lambda value: value.__name__.encode()),
    (type, lambda value: _type_name(value)),  # noqa: PLW0108  # the function is defined below
    (BuiltinFunctionType, lambda value: value.__qualname__.encode()),
    (Rational, lambda value: b"%d/%d" % (value.numerator, value.denominator)),  # fractions; their module loads slowly
)
"""Types without parts, and their values as bytes."""


def fingerprint(handler: object) -> str:
    """Return the version of a handler: its `hook_version`, or a digest of its code and its values. Never raises."""
    return stated_version(handler) or sys.intern(
        _Digest().of(handler, own=True).hex()[:16]
    )  # one text for all its hooks


class _Digest:
    """The digest of one handler and of everything that it was made with."""

    def __init__(self) -> None:
        self._left = MOST_VALUES
        self._path: list[int] = []
        self._objects = 0

    def of(self, value: object, *, own: bool = False) -> bytes:
        """Return the digest of a value. With `own`, the private attributes of an object count, too."""
        self._left -= 1
        name = _type_name(type(value))
        if id(value) in self._path:
            return _hash(b"circle", str(len(self._path) - self._path.index(id(value))).encode())
        self._path.append(id(value))
        try:
            return _hash(name, *self._parts(value, own=own))
        except BaseException:  # noqa: BLE001  # foreign code and foreign types
            return _hash(name)
        finally:
            self._path.pop()

    def _parts(self, value: Any, *, own: bool) -> Iterator[bytes]:  # noqa: PLR0911  # a case for each kind of type
        for kind, encode in LEAVES:
            if isinstance(value, kind):
                return iter((encode(value),))
        if self._left < _size(value) or len(self._path) > DEEPEST:
            return iter((str(_size(value)).encode(),))
        if isinstance(value, list | tuple):
            return map(self.of, value)
        if isinstance(value, set | frozenset):
            return iter(sorted(map(self.of, value)))
        if isinstance(value, Mapping):
            return iter(sorted(self.of(key) + self.of(item) for key, item in value.items()))
        if isinstance(value, partial):
            return iter((self.of(value.func, own=own), self.of(value.args), self.of(value.keywords)))
        if isinstance(value, MethodType):
            return iter((self.of(value.__func__), self.of(value.__self__, own=own)))
        return self._function_parts(value) if isinstance(value, FunctionType) else self._object_parts(value, own=own)

    def _function_parts(self, function: FunctionType) -> Iterator[bytes]:
        code = function.__code__
        yield _code_digest(code, code.co_qualname)
        yield from (self.of(function.__defaults__), self.of(function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                yield self.of(cell.cell_contents)
            except ValueError:
                yield b""  # the cell is empty still
        if hasattr(function, "__wrapped__"):
            yield self.of(getattr(function, "__wrapped__"))  # noqa: B009  # typeshed has no such attribute

    def _object_parts(self, value: object, *, own: bool) -> Iterator[bytes]:
        call = getattr(type(value), "__call__", None)  # noqa: B004  # the function itself
        if own and isinstance(call, FunctionType):
            yield self.of(call)
        if self._objects > OBJECTS and not _is_record(type(value)):
            return
        self._objects += 1
        for name in sorted(_attribute_names(value)):
            if not name.startswith("__" if own else "_") and hasattr(value, name):
                yield from (name.encode(), self.of(getattr(value, name)))
        self._objects -= 1


def _is_record(kind: type) -> bool:
    """Return True for classes that declare their fields: those of attrs, dataclasses, msgspec and pydantic."""
    declared = ("__attrs_attrs__", "__dataclass_fields__", "__struct_fields__", "__pydantic_fields__")
    return any(hasattr(kind, name) for name in declared)


def _size(value: object) -> int:
    return len(value) if isinstance(value, list | tuple | set | frozenset | Mapping) else 0


def _attribute_names(value: object) -> set[str]:
    """Return the names of an object's attributes, without the fields that attrs does not show, such as secrets."""
    slots = (getattr(one, "__slots__", ()) for one in type(value).__mro__)
    names = {name for one in slots for name in ((one,) if isinstance(one, str) else one)}
    hidden = {one.name for one in getattr(type(value), "__attrs_attrs__", ()) if not one.repr}
    return (names | set(getattr(value, "__dict__", ()))) - hidden


@lru_cache(maxsize=1_024)
def _code_digest(code: CodeType, name: str) -> bytes:  # noqa: ARG001  # code objects of two names can be equal
    return _hash(*(part.encode("utf-8", "surrogatepass") for part in code_parts(code)))


def code_parts(code: CodeType) -> Iterator[str]:
    """Yield the parts of a code object that identify it, without its location."""
    yield code.co_qualname
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from code_parts(value)
        else:
            yield repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _type_name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode("utf-8", "surrogatepass")


def _hash(*parts: bytes) -> bytes:
    """Return a digest of these parts, each preceded by its length."""
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()
