"""What goes out to a hook elsewhere, and what comes back: strict JSON, within limits.

Strict because two readers must not disagree about an answer: a key given twice, a NaN or half a character is refused,
not guessed at.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

from amplifier_hooks.errors import HookUnavailable, InvalidResult
from amplifier_hooks.result import Action
from amplifier_hooks.text.escape import clip, for_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


LARGEST_PAYLOAD: Final = 1024 * 1024
LARGEST_ANSWER: Final = 64 * 1024
LONGEST_REASON: Final = 2 * 1024
"""Bytes."""
DEEPEST: Final = 64
"""Levels of nesting, either way."""

ACTION: Final = re.compile(rf'"action"\s*:\s*"(?:{"|".join(get_args(Action))})"'.encode("ascii"))
"""The part by which an answer of ours is recognised inside of other text."""

STRAY: Final = (
    "output that is not an answer: print one JSON object in UTF-8, with no byte-order mark and no other text, "
    "or nothing; log lines go to standard error"
)

_encoder: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=str)


def outgoing(message: Mapping[str, Any]) -> bytes:
    """One line of ASCII JSON. What JSON has no form for, a date or an object of the host's, goes as its `str`.

    Raises `HookUnavailable` when it is too large, too deep, or cannot be written at all: a hook that is told less than
    what happens could allow what it has not seen.
    """
    if _too_deep(message):
        raise HookUnavailable(f"the payload is nested deeper than {DEEPEST}; hooks outside this process get no more")
    try:
        data = _encoder.encode(message).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise HookUnavailable(f"the payload cannot be written as JSON: {error}") from error
    if len(data) > LARGEST_PAYLOAD:
        raise HookUnavailable(
            f"the payload has {len(data):,} bytes; hooks outside this process get {LARGEST_PAYLOAD:,}"
        )
    return data


def incoming(data: bytes) -> dict[str, Any]:
    """The JSON object an answer consists of.

    Raises `InvalidResult` for anything else: not UTF-8, not one object, a key given twice, NaN, too large, too deep.
    """
    if len(data) > LARGEST_ANSWER:
        raise InvalidResult(f"an answer of {len(data):,} bytes: at most {LARGEST_ANSWER:,} are read")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError:
        raise InvalidResult(f"an answer nested deeper than {DEEPEST}: flatten it") from None
    except UnicodeDecodeError as error:
        raise InvalidResult(f"an answer that is not UTF-8 (byte {error.start}): write UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidResult(f"an answer that is not JSON ({error}): write one JSON object, or nothing") from None
    if not isinstance(value, dict):
        raise InvalidResult(f"an answer that is a JSON {type(value).__name__}: write one object, or nothing")
    if _too_deep(value):
        raise InvalidResult(f"an answer nested deeper than {DEEPEST}: flatten it")
    return value


def answer_in(output: bytes, *, gate: bool) -> dict[str, Any] | None:
    """The JSON object that a hook printed; None if it printed nothing, or text where that is no decision.

    At a gate every output is an answer, or invalid: a denial behind a byte-order mark or a line of a log must not read
    like nothing at all. Elsewhere text is left alone, unless it has an answer in it. Raises `InvalidResult`.
    """
    output = output.strip()
    if output.startswith(b"{"):
        return incoming(output)
    if not output or not (gate or hides(output, ACTION)):
        return None
    raise InvalidResult(STRAY)


def hides(text: bytes, answers: re.Pattern[bytes]) -> bool:
    """Return True if there is an object with an answer in a text, in UTF-8 or UTF-16."""
    plain = text.replace(b"\0", b"")
    start = plain.find(b"{")
    return start >= 0 and answers.search(plain, start) is not None


def as_reason(data: bytes) -> str:
    """What a program wrote to say why, ready for a model to read; empty if it wrote nothing."""
    return clip(for_model(data.decode("utf-8", "backslashreplace").strip()), LONGEST_REASON)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidResult(f"an answer with the key {twice:.40} twice: give each key once")
    return fields


def _no_number(name: str) -> NoReturn:
    raise InvalidResult(f"an answer with {name}, which is no JSON number: write a finite one")


def _too_deep(value: object) -> bool:
    """Whether it is nested too deeply; level by level, so that no depth can exhaust the stack."""
    level: list[object] = [value]
    for _ in range(DEEPEST + 1):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return False
    return True


def _parts(value: object) -> Iterable[object]:
    """The containers directly inside a value."""
    inside: Iterable[object]
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, (list, tuple)):
        inside = value
    else:
        return ()
    return [part for part in inside if isinstance(part, (dict, list, tuple))]
