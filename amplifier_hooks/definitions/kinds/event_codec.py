"""How an event is spelt for a hook elsewhere, and what its ending means.

Native commands read one JSON object on standard input, `{"event": "tool:pre", "data": {…}}`, and answer through their
exit status and standard output:

| exit status    | standard output     | answer                                                              |
|----------------|---------------------|---------------------------------------------------------------------|
| 0              | nothing             | continue                                                            |
| 0              | one JSON object     | the fields of a `HookResult`                                        |
| 0              | anything else, at a gate | invalid                                                        |
| 0              | text, elsewhere     | continue: text is no decision                                       |
| 0              | elsewhere: begins with `{`, or text with an answer in it | invalid                        |
| 2              | whatever it is      | deny; standard error is the reason                                  |
| any other, or a signal | whatever it is | the hook has failed                                                |

A service is sent `{"id": "msg_…", "event": "tool:pre", "data": {…}}` and answers with the fields of a `HookResult` and
the same `id`.

Exit status 2 denies whatever else was said: interpreters end with it when a script is missing or does not parse, so
it may mean that nobody decided, but never that somebody allowed.

What goes out to a hook elsewhere, and what comes back: strict JSON, within limits.

Strict because two readers must not disagree about an answer: a key given twice, a NaN or half a character is refused,
not guessed at.

How often a question has left a process and come back: a command that a hook ran asks the server, and so on.

Within a process the depth of an emit is counted by the registry. What goes on in another process is not seen from here,
so a command is told how far it is by a variable, and what speaks with the server passes that on.
"""

from __future__ import annotations

import json
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, get_args

from attrs import frozen

from amplifier_hooks.errors import HookFailed, HookRefused, HookUnavailable, InvalidResult
from amplifier_hooks.result import Action, HookResult, as_result
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


def encode_message(message: Mapping[str, Any]) -> bytes:
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


def decode_answer(data: bytes) -> dict[str, Any]:
    """The JSON object an answer consists of.

    Raises `InvalidResult` for anything else: not UTF-8, not one object, a key given twice, NaN, too large, too deep.
    """
    if len(data) > LARGEST_ANSWER:
        raise InvalidResult(f"an answer of {len(data):,} bytes: at most {LARGEST_ANSWER:,} are read")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_object, parse_constant=_refuse_constant)
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
        return decode_answer(output)
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


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidResult(f"an answer with the key {twice:.40} twice: give each key once")
    return fields


def _refuse_constant(name: str) -> NoReturn:
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


BLOCKED: Final = 2
"""The exit status that denies, here as in the programs this was learnt from."""


@frozen(kw_only=True)
class ProgramExit:
    """How a program ended, and what it wrote. `code` is negative for the signal that ended it."""

    code: int
    output: bytes = b""
    errors: bytes = b""

    @property
    def in_words(self) -> str:
        """In words."""
        return f"was ended by signal {-self.code}" if self.code < 0 else f"ended with exit status {self.code}"


class Codec(Protocol):
    """One way of talking to hooks that are commands or services."""

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:
        """What the hook is sent; a service also under which id. Raises `HookUnavailable` when that cannot be told."""
        ...

    def answer(self, event: str, data: Mapping[str, Any], ended: ProgramExit) -> HookResult:
        """What a command's ending means, for the payload it was asked about.

        Raises `InvalidResult` for output that is no answer, `HookFailed` for an ending that is none.
        """
        ...

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:
        """What the body of a service's success means. Raises `InvalidResult` for one that is no answer to this."""
        ...


@frozen
class NativeCodec:
    """Our own spelling. Without `gate`, text is no decision."""

    gate: bool = True

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:
        """The event and its payload, and the id of the request where there is one."""
        named = {} if request_id is None else {"id": request_id}
        return encode_message({**named, "event": event, "data": dict(data)})

    def answer(self, event: str, data: Mapping[str, Any], ended: ProgramExit) -> HookResult:  # noqa: ARG002  # ours means the same everywhere
        """By exit status first, then by standard output, as the table above has it."""
        if ended.code == BLOCKED:
            return HookResult.deny(as_reason(ended.errors) or None)
        if ended.code != 0:
            said = as_reason(ended.errors)
            raise HookFailed(f"the command {ended.in_words}{f': {said}' if said else ''}")
        return as_result(answer_in(ended.output, gate=self.gate))

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # noqa: ARG002  # as above
        """One JSON object: the id of the request it answers, and the fields of a `HookResult`."""
        fields = decode_answer(body)
        if fields.pop("id", None) != request_id:
            raise InvalidResult("an answer to another request, or to none: return the request's id in `id`")
        return as_result(fields)


NATIVE: Final = NativeCodec()
NATIVE_OPEN: Final = NativeCodec(gate=False)


MOST_HOPS: Final = 4
HOPS_VARIABLE: Final = "AMPLIFIER_HOOKS_HOPS"
HOPS_HEADER: Final = "x-amplifier-hooks-hops"

HOPS: Final[ContextVar[int]] = ContextVar("amplifier_hooks_hops", default=0)


def next_hop() -> str:
    """What a command that is started now is told."""
    return str(HOPS.get() + 1)


def note_hops(said: str | None) -> None:
    """Note how far the question is that came in with this; what is no number is none.

    Raises `HookRefused` when it has come back too often.
    """
    hops = int(said) if said and said.isascii() and said.isdigit() and len(said) <= len("1000") else 0
    if hops >= MOST_HOPS:
        raise HookRefused(f"hooks ask in a circle: this question has come back {hops} times through their commands")
    HOPS.set(hops)
