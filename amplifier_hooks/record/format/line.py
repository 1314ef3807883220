r"""One record as one line of bytes, and back.

    {"seq":7,"time":"2026-11-18T15:02:11.201340+00:00","kind":"outcome","facts":{…},"h":"9f2c…"}\n
    |<---------------------------------- body ---------------------------------->|<--- seal --->|

The body is what is hashed: exactly the bytes before the seal. The seal always has the same length, so a line is taken
apart without reading its JSON. Everything is ASCII, so no character of any value can end a line.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from attrs import frozen

from amplifier_hooks.record.record_errors import MalformedLine

LONGEST_LINE: Final = 65_536
"""Bytes of a line at most, its newline included."""

SEAL: Final = len(',"h":""}\n') + 64
"""Bytes that follow the body."""

_SEAL: Final = re.compile(rb',"h":"([0-9a-f]{64})"\}\n')
_FIRST: Final = b'{"seq":'


@frozen
class Entry:
    """One line, read. A checkpoint has no time of its own: nothing stands in it that is not signed."""

    seq: int
    kind: str
    facts: dict[str, Any]
    time: str | None = None


def seal(body: bytes, head: bytes) -> bytes:
    """The line for a body and its hash."""
    return b'%b,"h":"%b"}\n' % (body, head.hex().encode("ascii"))


def unseal(line: bytes) -> tuple[bytes, bytes]:
    """The body of a line, and the hash the line claims for it.

    Raises `MalformedLine` for what cannot be a line of the log: too long, not ended, not ASCII, without its seal.
    """
    if len(line) > LONGEST_LINE:
        raise MalformedLine(f"longer than {LONGEST_LINE:,} bytes")
    found = _SEAL.fullmatch(line[-SEAL:])
    if found is None:
        raise MalformedLine("does not end in a hash and a newline")
    body = line[:-SEAL]
    if not body.startswith(_FIRST):
        raise MalformedLine(f"does not begin with {_FIRST.decode()}")
    if not body.isascii() or b"\n" in body:
        raise MalformedLine("has bytes that are not allowed in a line")
    return body, bytes.fromhex(found[1].decode("ascii"))


def read(body: bytes) -> Entry:
    """What a body says.

    Raises `MalformedLine` when it is not the beginning of a JSON object with exactly the members of a record.
    """
    try:
        members = json.loads(body + b"}", object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as problem:
        raise MalformedLine(f"is not JSON: {problem}") from problem
    names = tuple(members)
    if names not in (("seq", "time", "kind", "facts"), ("seq", "kind", "facts")):
        raise MalformedLine(f"has the members {', '.join(names)[:80]}")
    seq, time, kind, facts = members["seq"], members.get("time"), members["kind"], members["facts"]
    if type(seq) is not int or not isinstance(kind, str) or not isinstance(facts, dict):
        raise MalformedLine("has a member of the wrong type")
    if time is not None and not isinstance(time, str):
        raise MalformedLine("has a time that is no text")
    return Entry(seq, kind, facts, time)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return members
