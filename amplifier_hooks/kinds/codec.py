"""How an event is spelt for a hook elsewhere, and what its ending means.

Native commands read one JSON object on standard input, `{"event": "tool:pre", "data": {…}}`, and answer through their
exit status and standard output:

| exit status    | standard output     | answer                                                              |
|----------------|---------------------|---------------------------------------------------------------------|
| 0              | nothing             | continue                                                            |
| 0              | text                | continue: text is no decision                                       |
| 0              | one JSON object     | the fields of a `HookResult`                                        |
| 0              | begins like JSON, but is none | invalid                                                   |
| 2              | whatever it is      | deny; standard error is the reason                                  |
| any other, or a signal | whatever it is | the hook has failed                                                |

Exit status 2 denies whatever else was said: interpreters end with it when a script is missing or does not parse, so
it may mean that nobody decided, but never that somebody allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import frozen

from amplifier_hooks.errors import HookFailed
from amplifier_hooks.kinds.messages import as_reason, pack, unpack
from amplifier_hooks.result import CONTINUE, HookResult, as_result

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BLOCKED", "NATIVE", "Codec", "Ended", "NativeCodec"]

BLOCKED: Final = 2
"""The exit status that denies, here as in the programs this was learnt from."""

LOOKS_LIKE_JSON: Final = (b"{", b"[")


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

    def question(self, event: str, data: Mapping[str, Any]) -> bytes:
        """What the hook is sent. Raises `HookUnavailable` when the event cannot be told this way."""
        ...

    def answer(self, event: str, ended: Ended) -> HookResult:
        """What a command's ending means.

        Raises `InvalidResult` for output that is no answer, `HookFailed` for an ending that is none.
        """
        ...

    def reply(self, event: str, body: bytes) -> HookResult:
        """What the body of a service's success means. Raises `InvalidResult` for one that is no answer."""
        ...


class NativeCodec:
    """Our own spelling."""

    def question(self, event: str, data: Mapping[str, Any]) -> bytes:
        """The event and its payload."""
        return pack({"event": event, "data": dict(data)})

    def answer(self, event: str, ended: Ended) -> HookResult:  # noqa: ARG002  # ours means the same at every event
        """By exit status first, then by standard output, as the table above has it."""
        if ended.code == BLOCKED:
            return HookResult.deny(as_reason(ended.errors) or None)
        if ended.code != 0:
            said = as_reason(ended.errors)
            raise HookFailed(f"the command {ended.how}{f': {said}' if said else ''}")
        output = ended.output.strip()
        return as_result(unpack(output)) if output.startswith(LOOKS_LIKE_JSON) else CONTINUE

    def reply(self, event: str, body: bytes) -> HookResult:  # noqa: ARG002  # as above
        """One JSON object with the fields of a `HookResult`, and nothing else."""
        return as_result(unpack(body))


NATIVE: Final = NativeCodec()
