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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import frozen

from amplifier_hooks.definitions.kinds.strict_json import answer_in, as_reason, incoming, outgoing
from amplifier_hooks.errors import HookFailed, InvalidResult
from amplifier_hooks.result import HookResult, as_result

if TYPE_CHECKING:
    from collections.abc import Mapping


BLOCKED: Final = 2
"""The exit status that denies, here as in the programs this was learnt from."""


@frozen(kw_only=True)
class Ended:
    """How a program ended, and what it wrote. `code` is negative for the signal that ended it."""

    code: int
    output: bytes = b""
    errors: bytes = b""

    @property
    def how(self) -> str:
        """In words."""
        return f"was ended by signal {-self.code}" if self.code < 0 else f"ended with exit status {self.code}"


class Codec(Protocol):
    """One way of talking to hooks that are commands or services."""

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:
        """What the hook is sent; a service also under which id. Raises `HookUnavailable` when that cannot be told."""
        ...

    def answer(self, event: str, data: Mapping[str, Any], ended: Ended) -> HookResult:
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
        return outgoing({**named, "event": event, "data": dict(data)})

    def answer(self, event: str, data: Mapping[str, Any], ended: Ended) -> HookResult:  # noqa: ARG002  # ours means the same everywhere
        """By exit status first, then by standard output, as the table above has it."""
        if ended.code == BLOCKED:
            return HookResult.deny(as_reason(ended.errors) or None)
        if ended.code != 0:
            said = as_reason(ended.errors)
            raise HookFailed(f"the command {ended.how}{f': {said}' if said else ''}")
        return as_result(answer_in(ended.output, gate=self.gate))

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # noqa: ARG002  # as above
        """One JSON object: the id of the request it answers, and the fields of a `HookResult`."""
        fields = incoming(body)
        if fields.pop("id", None) != request_id:
            raise InvalidResult("an answer to another request, or to none: return the request's id in `id`")
        return as_result(fields)


NATIVE: Final = NativeCodec()
NATIVE_OPEN: Final = NativeCodec(gate=False)
