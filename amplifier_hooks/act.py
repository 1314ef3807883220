r"""An act: one thing that is about to happen, frozen to its exact bytes, and the digest that identifies it.

`freeze` turns a tool's input into canonical JSON: keys sorted, no blanks, ASCII only. It accepts only values that read
back exactly, so no conversion separates the input that a person saw from the input that runs. It checks every part by
its type, not by `==`, for which `1`, `1.0` and `True` are equal.

The digest binds tenant, session, event, name, folder and input:

    SHA-256( "amplifier-hooks/act/1\n", then of each of the six: length as 8 bytes, big-endian, and the bytes )

Text is UTF-8. The lengths make the hashed bytes unambiguous, whatever the fields hold. The first line separates this
hash from every other one, and names the version of the encoding. A grant that outlives its session uses this digest
without the session, under a first line of its own: `amplifier-hooks/grant/1`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from functools import lru_cache
from struct import Struct
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import force_setattr

from amplifier_hooks.errors import InputNotFreezable, InputTooLarge
from amplifier_hooks.events import TOOL_PRE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Act", "Call", "freeze", "thaw"]

MAX_DEPTH: Final = 64
MAX_INPUT: Final = 1_048_576
"""Maximum size of a tool's input, in bytes of canonical JSON."""
LARGE: Final = 65_536
"""Size above which a value is processed off the event loop."""
BEGINNINGS_KEPT: Final = 1_024
"""Sessions, events, names and folders whose first hashed bytes are cached."""
LONGEST_KEPT: Final = 1_024
"""Characters of a name and a folder whose bytes are cached; both may be of any length."""
_DOMAIN: Final = b"amplifier-hooks/act/1\n"
_GRANT_DOMAIN: Final = b"amplifier-hooks/grant/1\n"
_scan: Final[Any] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out
_decode: Final = msgspec.json.Decoder().decode
_length: Final = Struct(">Q").pack
_SIZED: Final = (str, bytes, dict, list, tuple)
_LISTS: Final = (list, tuple)


def freeze(value: object) -> bytes:
    """Return a value as canonical JSON. Raises `InputNotFreezable`, naming the part (`$.files[3]`).

    Accepted are None, bool, int, finite float, str, list, and dict with str keys, at most 64 deep. Subclasses of dict
    pass, because a read-only view of an input is still that input; other subclasses would read back as another type.

    Args:
        value: Value of JSON: None, bool, int, finite float, str, list, or dict with keys of str.
    """
    return _freeze(value, math.inf)


def freeze_input(value: Mapping[str, Any]) -> bytes:
    """Return a tool's input as `freeze` does. Raises `InputTooLarge` as soon as its size is known."""
    data = _freeze(value, MAX_INPUT)
    if len(data) > MAX_INPUT:
        raise InputTooLarge(MAX_INPUT)
    return data


def _freeze(value: object, room: float) -> bytes:
    try:
        flaw = _flaw(value, room, 0)
        if not isinstance(flaw, tuple):
            return _encode(value).encode("ascii")
    except InputTooLarge:
        raise
    except Exception as problem:  # another thread changed the value, or reading it ran code of its own
        raise InputNotFreezable(str(problem)) from problem
    path, what = flaw
    raise InputNotFreezable(f"${path} {what}")


def is_larger(value: object, limit: int) -> bool:
    """Return True if the texts and parts of a value are more than `limit`; its JSON is then larger, too.

    The function stops as soon as that is known.
    """
    waiting, size = [value], 0
    for one in waiting:  # the list grows meanwhile
        if type(one) is str:
            size += len(one)
        else:
            size += len(one) if isinstance(one, _SIZED) else 1
            if isinstance(one, dict):
                waiting += one
                waiting += one.values()
            elif isinstance(one, _LISTS):
                waiting += one
        if size > limit:
            return True
    return False


def thaw(data: bytes) -> object:
    """Return a fresh copy of the value that was frozen; changing the copy changes nothing else.

    Args:
        data: Canonical JSON, as `freeze` returns it.

    Raises `ValueError` for data that is not canonical JSON.
    """
    if data.isascii() and data.strip() is data:
        try:
            return _decode(data)
        except msgspec.DecodeError:
            pass  # half a character, which no UTF-8 has, or no JSON
    text = data.decode("ascii")
    try:
        value, end = _scan(text, 0)
    except StopIteration as problem:
        raise ValueError(f"no value at character {problem.value}") from None
    if end != len(text):
        raise ValueError(f"{len(text) - end} characters follow the value")
    return value


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Act(msgspec.Struct, frozen=True):
    """One thing that is about to happen. Two acts share a digest only if all six fields are equal, byte for byte."""

    tenant: str
    """The tenant; empty in a host without tenants."""
    session: str
    """The id of the session."""
    event: str
    """The event at which the act is decided about."""
    name: str
    """The tool, agent or step."""
    cwd: str
    """The folder in which the act happens."""
    input: bytes
    """The input as canonical JSON, from `freeze`."""
    digest: str = ""
    """The digest of the six fields, whatever a caller passes for it."""

    def __post_init__(self) -> None:
        if type(self.input) is not bytes:  # a bytearray could still change
            raise TypeError(f"the input of an act is bytes, and not {type(self.input).__name__}")
        texts = (self.tenant, self.session, self.event, self.name, self.cwd)
        force_setattr(self, "digest", _digest(_DOMAIN, texts, self.input))

    @property
    def grant_digest(self) -> str:
        """The digest without the session: an act has one grant digest in every session of its tenant."""
        return _digest(_GRANT_DOMAIN, (self.tenant, self.event, self.name, self.cwd), self.input)

    @property
    def short(self) -> str:
        """The beginning of the digest, for people to compare."""
        return self.digest[:12]

    def arguments(self) -> Any:
        """Return a fresh copy of the input; changing the copy changes nothing else."""
        return thaw(self.input)

    def fields(self) -> dict[str, Any]:
        """Return fresh copies of the fields that the input takes in the data of the event."""
        given: Any = thaw(self.input)
        return {"tool_input": given} if self.event == TOOL_PRE else given


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One occurrence of an act. No field is hashed: two calls may be about the same act.

    The `id` selects an earlier decision about the same act; it never stands for the act.
    """

    id: str = ""
    """The id, as the model or the program gave it. It selects an earlier decision about the same act."""
    run: str = ""
    """The run that the call belongs to; programs number their calls anew in each run."""
    received: bytes = b""
    """The caller's own bytes, as evidence for the record."""
    chosen: bool = True
    """True if the caller chose the id, so that an earlier attempt at this call may have left a decision."""
    returns: bool = True
    """True if a later call with this id may take the decision up. Other questions expire with their caller."""
    rests: Any = None
    """The hook objects that wait for the act, which the hooks' answers add to."""


@lru_cache(BEGINNINGS_KEPT)
def _beginning(domain: bytes, texts: tuple[str, ...]) -> Any:
    """Return the hash of the first bytes, to be copied. The acts of a session share most of them."""
    # an odd tool name must get a digest too, and still one of its own
    fields = [text.encode("utf-8", "surrogatepass") for text in texts]
    return hashlib.sha256(domain + b"".join(_length(len(field)) + field for field in fields))


def _digest(domain: bytes, texts: tuple[str, ...], data: bytes) -> str:
    """Return the digest of texts and data. Name and folder are the last two texts."""
    beginning = _beginning if len(texts[-1]) + len(texts[-2]) <= LONGEST_KEPT else _beginning.__wrapped__
    hashed = beginning(domain, texts).copy()
    hashed.update(_length(len(data)) + data)
    return str(hashed.hexdigest())


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


def _flaw(value: object, room: float, depth: int) -> float | tuple[str, str]:
    """Return the place below `value` that would not read back exactly, and the reason; without one, the room left.

    The JSON of a value is at least as long as its texts and parts, so a value with more of them than `room` is too
    large. Raises `InputTooLarge`, as soon as that is known.
    """
    check = _SCALARS.get(type(value))
    if check is not None:
        unused = _room_after(len(value) if type(value) is str else 1, room)  # first, as a check reads the whole text
        problem = check(value)
        return ("", problem) if problem else unused
    parts: Iterable[tuple[Any, Any]]
    if keyed := isinstance(value, dict):
        parts = value.items()
    elif type(value) is list:
        parts = enumerate(value)
    else:
        return "", f"is of type {type(value).__name__}"
    if depth == MAX_DEPTH:
        return "", f"is nested deeper than {MAX_DEPTH}"
    room -= len(value)
    for step, item in parts:
        if keyed and (type(step) is not str or (not step.isascii() and isinstance(_flaw(step, room, depth), tuple))):
            return "", f"has the key {step!r:.40}, which no JSON key can be"
        room -= len(step) if type(step) is str else 0
        if type(item) is str and item.isascii():
            room -= len(item)  # the usual case
        else:
            left = _flaw(item, room, depth + 1)
            if isinstance(left, tuple):  # the path is built only for an error
                path, problem = left
                return f"{_step(step)}{path}", problem
            room = left
        if room < 0:
            raise InputTooLarge(MAX_INPUT)
    return room


def _room_after(size: int, room: float) -> float:
    if size > room:
        raise InputTooLarge(MAX_INPUT)
    return room - size


def _step(step: str | int) -> str:
    plain = isinstance(step, str) and step.isascii() and step.isidentifier()
    return f".{step:.40}" if plain else f"[{json.dumps(step)[:40]}]"
