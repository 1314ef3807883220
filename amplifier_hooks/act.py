r"""An action that is about to happen, frozen to its exact bytes, and the digest that identifies it.

`freeze` turns a tool's input into canonical JSON: keys sorted, no blanks, ASCII only. It accepts only values that read
back exactly, so no conversion separates the input that a person saw from the input that runs. It checks every part by
its type, not by `==`, for which `1`, `1.0` and `True` are equal.

The digest binds tenant, session, event, tool and input:

    SHA-256( "amplifier-hooks/action/1\n", then of each of the five: length as 8 bytes, big-endian, and the bytes )

Text is UTF-8. The lengths make the hashed bytes unambiguous, whatever the fields hold. The first line separates this
hash from every other one, and names the version of the encoding. A grant that outlives its session uses this digest
without the session, under a first line of its own: `amplifier-hooks/grant/1`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import attrs

from amplifier_hooks.errors import InputNotFreezable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["MAX_DEPTH", "Action", "freeze", "thaw", "unchanged"]

MAX_DEPTH: Final = 64
_DOMAIN: Final = b"amplifier-hooks/action/1\n"
_GRANT_DOMAIN: Final = b"amplifier-hooks/grant/1\n"
_decode: Final = json.JSONDecoder().raw_decode


def freeze(value: object) -> bytes:
    """Return a value as canonical JSON. Raises `InputNotFreezable`, naming the part (`$.files[3]`).

    Accepted are None, bool, int, finite float, str, list, and dict with str keys, at most 64 deep. Subclasses of dict
    pass, because a read-only view of an input is still that input; other subclasses would read back as another type.
    """
    try:
        flaw = _flaw(value, 0)
        if flaw is None:
            return _encode(value).encode("ascii")
    except (TypeError, ValueError, RuntimeError) as problem:  # another thread changed the value while it was read
        raise InputNotFreezable(str(problem)) from problem
    path, what = flaw
    raise InputNotFreezable(f"${path} {what}")


def thaw(data: bytes) -> object:
    """Return a fresh copy of the value that was frozen; changing the copy changes nothing else.

    Raises `ValueError` for data that is not canonical JSON.
    """
    text = data.decode("ascii")
    value, end = _decode(text)
    if end != len(text):
        raise ValueError(f"{len(text) - end} characters follow the value")
    return value


def unchanged(value: object, data: bytes) -> bool:
    """Return True if `value`, once thawed from `data`, still freezes to it. Return False also if that is unknown."""
    try:
        return _encode(value).encode("ascii") == data
    except Exception:  # noqa: BLE001  # `freeze` reports the problem
        return False


@attrs.frozen
class Action:
    """One exact call. Two calls share a digest only if tenant, session, event, tool and input bytes are equal."""

    tenant: str
    session: str
    event: str
    tool: str
    input_bytes: bytes = attrs.field(validator=attrs.validators.instance_of(bytes))  # a bytearray could still change
    digest: str = attrs.field(init=False)

    @digest.default
    def _hash(self) -> str:
        return _hashed(_DOMAIN, (self.tenant, self.session, self.event, self.tool), self.input_bytes)

    @property
    def grant_digest(self) -> str:
        """The digest without the session: an action has one grant digest in every session of its tenant."""
        return _hashed(_GRANT_DOMAIN, (self.tenant, self.event, self.tool), self.input_bytes)

    @property
    def short(self) -> str:
        """The beginning of the digest, for people to compare."""
        return self.digest[:12]

    def input(self) -> object:
        """Return a fresh copy of the input."""
        return thaw(self.input_bytes)


def _hashed(domain: bytes, texts: Iterable[str], input_bytes: bytes) -> str:
    # surrogatepass: an odd tool name must get a digest too, and still one of its own
    parts = [domain]
    for field in (*(text.encode("utf-8", "surrogatepass") for text in texts), input_bytes):
        parts += (len(field).to_bytes(8, "big"), field)
    return hashlib.sha256(b"".join(parts)).hexdigest()


# Two halves of one character become that character when JSON is read; alone, each survives.
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_MAX_INT_BITS: Final = 14_000  # 4,215 digits; Python refuses to print more than 4,300


def _text_flaw(value: str) -> str:
    whole = value.isascii() or _SURROGATE_PAIR.search(value) is None
    return "" if whole else "holds a character split into two surrogates"


_SCALARS: Final[dict[type, Callable[[Any], str]]] = {  # the problem with a value of this type, or nothing
    str: _text_flaw,
    bool: lambda _: "",
    NoneType: lambda _: "",
    int: lambda value: "" if value.bit_length() <= _MAX_INT_BITS else "is an integer too long to write",
    float: lambda value: "" if math.isfinite(value) else f"is {value}, which JSON cannot hold",
}


def _encoder() -> Callable[[object], str]:
    """Return the writer of canonical JSON. It writes as `JSONEncoder.encode` does, but builds its parts only once."""
    plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    chunks = make(None, plain.default, json.encoder.encode_basestring_ascii, None, ":", ",", True, False, False)  # noqa: FBT003
    return lambda value: "".join(chunks(value, 0))


_encode: Final = _encoder()


def _flaw(value: object, depth: int) -> tuple[str, str] | None:
    """Return the place below `value` that would not read back exactly, and the reason; None if there is none."""
    check = _SCALARS.get(type(value))
    if check is not None:
        problem = check(value)
        return ("", problem) if problem else None
    parts: Iterable[tuple[Any, Any]]
    if type(value) is list:
        parts = enumerate(value)
    elif isinstance(value, dict):
        for key in value:
            if type(key) is not str or _text_flaw(key):
                return "", f"has the key {key!r:.40}, which no JSON key can be"
        parts = value.items()
    else:
        return "", f"is of type {type(value).__name__}"
    if depth == MAX_DEPTH:
        return "", f"is nested deeper than {MAX_DEPTH}"
    for step, item in parts:
        flaw = _flaw(item, depth + 1)
        if flaw is not None:  # the path is built only for an error
            path, problem = flaw
            return f"{_step(step)}{path}", problem
    return None


def _step(step: str | int) -> str:
    plain = isinstance(step, str) and step.isascii() and step.isidentifier()
    return f".{step:.40}" if plain else f"[{json.dumps(step)[:40]}]"
