"""The wire format of external hooks: an event is written as strict JSON; exit status and output become an answer.

Native commands read one JSON object on standard input, `{"event": "tool:pre", "data": {…}}`, and answer through their
exit status and standard output:

| exit status    | standard output     | answer                                                              |
|----------------|---------------------|---------------------------------------------------------------------|
| 0              | nothing             | continue                                                            |
| 0              | one JSON object     | the fields of a `HookResult`                                        |
| 0              | anything else, at a gate | invalid                                                        |
| 0              | text, not at a gate | continue: text is no decision                                       |
| 0              | not at a gate: begins with `{`, or text with an answer in it | invalid                    |
| 2              | anything            | deny; standard error is the reason                                  |
| any other, or a signal | anything    | the hook has failed                                                 |

A service receives `{"id": "msg_…", "event": "tool:pre", "data": {…}}` and answers with the fields of a `HookResult`
and the request's `id`.

Exit status 2 denies, whatever the output is: interpreters end with it if a script is missing or does not parse, so it
may mean that no decision was made, but never that the hook allowed.

JSON is strict and limited in both directions, because two readers must not disagree about an answer: a key given
twice, a NaN or half a character is refused.

Hops count how often a question has left a process and come back, as when a command that a hook runs asks the server.
The registry counts the depth of emits within a process only, so a variable carries the hops to a command, and clients
of the server pass them on.
"""

from __future__ import annotations

import json
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, get_args

from attrs import frozen

from amplifier_hooks.errors import HookFailed, HookRefused, HookUnavailable, InvalidResult
from amplifier_hooks.result import Action, HookResult, as_result
from amplifier_hooks.text.escape import clip, for_model
from amplifier_hooks.text.strict_parsing import depth, load_json

if TYPE_CHECKING:
    from collections.abc import Mapping


LARGEST_PAYLOAD: Final = 1024 * 1024
LARGEST_ANSWER: Final = 64 * 1024
LONGEST_REASON: Final = 2 * 1024
"""Bytes of a reason, at most."""
DEEPEST: Final = 64
"""Levels of nesting in either direction, at most."""

ACTION: Final = re.compile(rf'"action"\s*:\s*"(?:{"|".join(get_args(Action))})"'.encode("ascii"))
"""Pattern that recognises an answer inside of other text."""

STRAY: Final = (
    "output that is not an answer: print one JSON object in UTF-8, with no byte-order mark and no other text, "
    "or nothing; log lines go to standard error"
)

_encoder: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=str)


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of ASCII JSON; a value without a JSON form, such as a date, is written as its `str`.

    Raises `HookUnavailable` for a message that is too large, too deep, or cannot be written: a hook that receives less
    than the whole act could allow what it has not seen.
    """
    too_deep = f"the payload is nested deeper than {DEEPEST}; hooks outside this process get no more"
    try:
        data = _encoder.encode(message).encode("ascii")
    except RecursionError:
        raise HookUnavailable(too_deep) from None
    except (TypeError, ValueError) as error:
        raise HookUnavailable(f"the payload cannot be written as JSON: {error}") from error
    if len(data) > LARGEST_PAYLOAD:
        raise HookUnavailable(
            f"the payload has {len(data):,} bytes; hooks outside this process get {LARGEST_PAYLOAD:,}"
        )
    if depth(data) > DEEPEST + 1:  # the message is around the payload
        raise HookUnavailable(too_deep)
    return data


def decode_answer(data: bytes) -> dict[str, Any]:
    """Return the JSON object that an answer consists of.

    Raises `InvalidResult` for an answer that is not UTF-8, not one object, too large or too deep, or that has a key
    twice or a NaN.
    """
    if len(data) > LARGEST_ANSWER:
        raise InvalidResult(f"an answer of {len(data):,} bytes: at most {LARGEST_ANSWER:,} are read")
    if depth(data) > DEEPEST:
        raise InvalidResult(f"an answer nested deeper than {DEEPEST}: flatten it")
    try:
        value = load_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidResult(f"an answer that is not UTF-8 (byte {error.start}): write UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidResult(f"an answer that is not JSON ({error}): write one JSON object, or nothing") from None
    except ValueError as error:
        raise InvalidResult(f"an answer that is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidResult(f"an answer that is a JSON {type(value).__name__}: write one object, or nothing")
    return value


def answer_in(output: bytes, *, gate: bool) -> dict[str, Any] | None:
    """Return the JSON object that a hook printed; None if it printed nothing, or if it is no gate and printed text.

    At a gate every output is an answer or invalid: a denial behind a byte-order mark or a log line must not count as
    no answer. Without `gate`, text is ignored unless an answer hides in it. Raises `InvalidResult`.
    """
    output = output.strip()
    if output.startswith(b"{"):
        return decode_answer(output)
    if not output or not (gate or hides(output, ACTION)):
        return None
    raise InvalidResult(STRAY)


def hides(text: bytes, answers: re.Pattern[bytes]) -> bool:
    """Return True if a text, in UTF-8 or UTF-16, has an object with an answer in it."""
    plain = text.replace(b"\0", b"")
    start = plain.find(b"{")
    return start >= 0 and answers.search(plain, start) is not None


def as_reason(data: bytes) -> str:
    """Return a program's standard error as a reason, escaped and shortened for a model; empty if there is none."""
    return clip(for_model(data.decode("utf-8", "backslashreplace").strip()), LONGEST_REASON)


BLOCKED: Final = 2
"""Exit status that denies, as in the agent programs that this format follows."""


@frozen(kw_only=True)
class ProgramExit:
    """The exit status of a program and its output. A negative `code` is the signal that ended the program.

    `left` names the processes that the program left behind, and that were ended.
    """

    code: int
    output: bytes = b""
    errors: bytes = b""
    left: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """Exit status or signal in words."""
        return f"was ended by signal {-self.code}" if self.code < 0 else f"ended with exit status {self.code}"


class Codec(Protocol):
    """A wire format for hooks that are commands or services."""

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:
        """Return the message for a hook, with an id for a service. Raises `HookUnavailable` if it cannot be written."""
        ...

    def answer(self, event: str, data: Mapping[str, Any], ended: ProgramExit) -> HookResult:
        """Return the answer that a command's exit status and output stand for.

        Raises `InvalidResult` for output that is not an answer, `HookFailed` for an exit status that is a failure.
        """
        ...

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:
        """Return the answer in a service's body. Raises `InvalidResult` if it does not answer this request."""
        ...


@frozen
class NativeCodec:
    """Our own format. Without `gate`, text is no decision."""

    gate: bool = True

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:
        """Return the event and its payload, with the id of the request if there is one."""
        named = {} if request_id is None else {"id": request_id}
        return encode_message({**named, "event": event, "data": dict(data)})

    def answer(self, event: str, data: Mapping[str, Any], ended: ProgramExit) -> HookResult:  # noqa: ARG002  # ours means the same everywhere
        """Return the answer by exit status, then by standard output, as the table in the module's docstring shows."""
        if ended.code == BLOCKED:
            return HookResult.deny(as_reason(ended.errors) or None)
        if ended.code != 0:
            said = as_reason(ended.errors)
            raise HookFailed(f"the command {ended.in_words}{f': {said}' if said else ''}")
        return as_result(answer_in(ended.output, gate=self.gate))

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # noqa: ARG002  # as above
        """Return the answer in a JSON object: the id of its request, and the fields of a `HookResult`."""
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
    """Return the number of hops for a command that starts now."""
    return str(HOPS.get() + 1)


def note_hops(said: str | None) -> None:
    """Note the hops of an incoming question; a text that is not a number counts as none.

    Raises `HookRefused` if the question has come back too often.
    """
    hops = int(said) if said and said.isascii() and said.isdigit() and len(said) <= len("1000") else 0
    if hops >= MOST_HOPS:
        raise HookRefused(f"hooks ask in a circle: this question has come back {hops} times through their commands")
    HOPS.set(hops)
