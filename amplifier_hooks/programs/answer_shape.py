"""The JSON shape the programs share: what stands at the top of an answer, and what in `hookSpecificOutput`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.definitions.kinds.event_codec import Ended
from amplifier_hooks.errors import InvalidResult
from amplifier_hooks.programs.dialect import Spelling, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen(kw_only=True)
class Parts:
    """An answer taken apart. `rest` and `own` hold what nobody has taken yet."""

    decision: str
    reason: str
    stop: bool
    message: str
    quiet: bool
    own: dict[str, Any]
    rest: dict[str, Any]

    def verdict(self, **decided: Any) -> Verdict:
        """Together with what the event's own part says; what is left over nobody knows."""
        unknown = (*self.rest, *(f"hookSpecificOutput.{key}" for key in self.own))
        common = {"reason": self.reason, "stop": self.stop, "message": self.message, "quiet": self.quiet}
        return Verdict(**{**common, **decided, "unknown": unknown})


def split(spelling: Spelling, answer: Mapping[str, Any]) -> Parts:
    """Take an answer apart. Raises `InvalidResult` for a value of the wrong type, and for another event's answer."""
    rest = dict(answer)
    stop = take(rest, "continue", bool) is False
    stop_reason = take(rest, "stopReason", str) or ""
    reason = take(rest, "reason", str) or ""
    own = dict(take(rest, "hookSpecificOutput", dict) or {})
    named = own.pop("hookEventName", spelling.theirs)
    if named != spelling.theirs:
        raise InvalidResult(f"an answer for {named!r:.60} at {spelling.theirs}: name the event that was asked about")
    return Parts(
        decision=take(rest, "decision", str) or "",
        reason=stop_reason or reason if stop else reason,
        stop=stop,
        message=take(rest, "systemMessage", str) or "",
        quiet=take(rest, "suppressOutput", bool) is True,
        own=own,
        rest=rest,
    )


WORDS: Final = {bool: "true or false", str: "a string", dict: "an object"}


def take(answer: dict[str, Any], key: str, kind: type) -> Any:
    """Take a value out of an answer; None if it is not there, or null. Raises `InvalidResult` for another type."""
    value = answer.pop(key, None)
    if value is not None and type(value) is not kind:
        raise InvalidResult(f"an answer whose {key} is of type {type(value).__name__}: write {WORDS[kind]}")
    return value


def written(spelling: Spelling, verdict: Verdict, top: Mapping[str, Any], own: Mapping[str, Any]) -> Ended:
    """An answer put together; nothing at all when there is nothing to say."""
    said, specific = dict(top), dict(own)
    if verdict.stop:
        said |= {"continue": False, "stopReason": verdict.reason or "stopped, without a reason"}
    if verdict.context and spelling.takes_context:
        specific["additionalContext"] = verdict.context
    if verdict.message:
        said["systemMessage"] = verdict.message
    if verdict.quiet:
        said["suppressOutput"] = True
    if specific:
        said["hookSpecificOutput"] = {"hookEventName": spelling.theirs, **specific}
    return Ended(code=0, output=json.dumps(said).encode("ascii") if said else b"")
