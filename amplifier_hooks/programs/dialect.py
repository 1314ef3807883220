"""What a dialect is: how another program spells events and answers, as tables.

A `Verdict` is an answer in nobody's spelling. Dialects read one out of what a hook of theirs has printed, and write one
down so that their program understands it.

The JSON shape the programs share: what stands at the top of an answer, and what in `hookSpecificOutput`.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from attrs import evolve, field, frozen

from amplifier_hooks import events
from amplifier_hooks.definitions.kinds.event_codec import (
    BLOCKED,
    STRAY,
    ProgramExit,
    as_reason,
    decode_answer,
    encode_message,
    hides,
)
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidPayload, InvalidResult
from amplifier_hooks.logs import get_logger
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


log = get_logger(__name__)

ABSENT: Final = object()
"""The value of something that was not said."""

Block = Literal["deny", "inject", "nothing"]

DECISION: Final = re.compile(
    rb'"(?:hookSpecificOutput|permissionDecision|stopReason)"\s*:|"continue"\s*:\s*false'
    rb'|"(?:decision|behavior)"\s*:\s*"(?:allow|approve|ask|block|defer|deny)"'
)
"""The part by which a decision of those programs is recognised inside of other text."""


def identity(value: Any) -> Any:
    """What both sides spell alike."""
    return value


@frozen
class Field:
    """One field of an event: their name, ours, and how the value is told either way.

    `default` is what we send where our payload has none; without one the field is left out.
    """

    theirs: str
    ours: str = ""
    default: Any = ABSENT
    to_theirs: Callable[[Any], Any] = identity
    to_ours: Callable[[Any], Any] = identity

    @property
    def name(self) -> str:
        """Our name of it."""
        return self.ours or self.theirs


@frozen(kw_only=True)
class Spelling:
    """One event of theirs.

    `blocks` says what refusing means there: the operation is denied, or it is over and the refusal is read by the
    model. `tested` is the field that matchers look at. Where `text_counts`, plain text on standard output is context.
    """

    theirs: str
    ours: str
    fields: tuple[Field, ...] = ()
    blocks: Block = "deny"
    tested: str = ""
    text_counts: bool = False
    takes_context: bool = False
    """Whether their program reads text for its model in an answer here."""
    changes: str = ""
    """The field of our payload that an update replaces."""


@frozen(kw_only=True)
class Verdict:
    """What was answered, in nobody's spelling. `stop` ends more than this operation: the agent is to come to rest."""

    decision: Literal["none", "allow", "deny", "ask", "defer"] = "none"
    reason: str = ""
    stop: bool = False
    update: Any = ABSENT
    context: str = ""
    message: str = ""
    quiet: bool = False
    unknown: tuple[str, ...] = ()
    """Keys nobody knows. They are reported and change nothing."""


class AnswerReader(Protocol):
    """Reads an answer of theirs. Raises `InvalidResult` for one their program rejects."""

    def __call__(self, spelling: Spelling, answer: dict[str, Any]) -> Verdict:
        """Return the verdict that the answer stands for."""
        ...


class AnswerWriter(Protocol):
    """Writes an answer down for their program."""

    def __call__(self, spelling: Spelling, verdict: Verdict) -> ProgramExit:
        """Return the ending that tells the program the verdict."""
        ...


@frozen(kw_only=True)
class Dialect:
    """A program's way of speaking to hooks.

    `warns` are the exit statuses after which that program only warns; every other one than 0 and those, and than 2,
    is a failure if `failures` says "open", and a refusal if it says "closed". `silent_block` says whether exit status
    2 with nothing on standard error blocks.
    """

    name: str
    title: str
    spellings: tuple[Spelling, ...]
    common: tuple[Field, ...]
    read: AnswerReader
    write: AnswerWriter
    settings: tuple[str, ...]
    """Where its settings are in a project: the file that a team commits, and its user's own file where there is one.

    In a home it is the first.
    """
    second: float = 1.0
    """How many of its units of time make a second."""
    timeout: float = 600.0
    """Seconds a hook has if its settings do not say."""
    timeouts: Mapping[str, float] = field(factory=dict)
    """The same for single events."""
    failures: Literal["open", "closed"] = "open"
    warns: frozenset[int] = frozenset()
    silent_block: bool = True
    merges: bool = False
    """Whether a changed input is merged over the one there was."""
    variables: Mapping[str, str] = field(factory=dict)
    """What it tells commands in their environment: name, and `project` or `root`."""
    differs: tuple[tuple[str, str], ...] = ()
    """What is not the same here as there, a row each: what, and how it is here."""

    def spelling(self, event: str) -> Spelling | None:
        """Its spelling of an event, found by either name."""
        name = events.canonical(event)
        return next((row for row in self.spellings if event == row.theirs or name == row.ours), None)

    def describe(self, spelling: Spelling, data: Mapping[str, Any], cwd: str) -> dict[str, Any]:
        """A payload of ours as that program would send it."""
        said: dict[str, Any] = {}
        for one in (*self.common, *spelling.fields):
            value = data.get(one.name, ABSENT)
            if value is not ABSENT and value is not None:
                said[one.theirs] = one.to_theirs(value)
            elif one.default is not ABSENT:
                said[one.theirs] = one.default
        return {**said, "cwd": said.get("cwd") or cwd, "hook_event_name": spelling.theirs}

    def understand(self, question: Mapping[str, Any]) -> tuple[Spelling, dict[str, Any]]:
        """What that program tells a hook, as one of our events; fields without a name of ours keep theirs.

        Raises `InvalidPayload` when it names no event.
        """
        name = question.get("hook_event_name")
        if not isinstance(name, str) or not name:
            raise InvalidPayload("a question without hook_event_name: it says for which event it is")
        spelling = next((row for row in self.spellings if row.theirs == name), None)
        if spelling is None:
            spelling = Spelling(theirs=name, ours=f"{self.name}:{_snake(name)}", blocks="nothing")
        known = {one.theirs: one for one in (*self.common, *spelling.fields)}
        payload = {
            known[key].name if key in known else key: known[key].to_ours(value) if key in known else value
            for key, value in question.items()
            if key != "hook_event_name"
        }
        return spelling, payload


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


@frozen(kw_only=True)
class DialectCodec:
    """Speaks a dialect to commands and services, as that program would."""

    dialect: Dialect
    cwd: str = field(factory=os.getcwd)
    tools: Mapping[str, str] = field(factory=dict)
    """What that program calls tools of ours: our name, and its."""

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:  # noqa: ARG002  # they have none
        """The payload in their spelling. Raises `HookUnavailable` for an event that program does not have."""
        spelling = self._spelling(event)
        said = self.dialect.describe(spelling, data, self.cwd)
        if "tool_name" in said:
            said["tool_name"] = self.tools.get(said["tool_name"], said["tool_name"])
        return encode_message(said)

    def answer(self, event: str, data: Mapping[str, Any], ended: ProgramExit) -> HookResult:
        """What that program would make of a command's ending.

        Raises `InvalidResult` or `HookFailed` where it counts the hook as failed; what that means is its policy, and
        was said when the hook was registered.
        """
        dialect, spelling = self.dialect, self._spelling(event)
        said = as_reason(ended.errors)
        if ended.code == BLOCKED and (said or dialect.silent_block):
            return as_hook_result(spelling, Verdict(decision="deny", reason=said))
        if ended.code in dialect.warns:
            return HookResult.proceed(user_message=said, user_message_level="warning") if said else CONTINUE
        if ended.code != 0:
            if dialect.failures == "closed":
                return as_hook_result(
                    spelling, Verdict(decision="deny", reason=said or f"the command {ended.in_words}")
                )
            raise HookFailed(f"the command {ended.in_words}{f': {said}' if said else ''}")
        output = ended.output.strip()
        if output.startswith(b"{"):
            return self._read(spelling, data, decode_answer(output))
        if hides(output, DECISION):
            if dialect.failures == "closed":
                return as_hook_result(spelling, Verdict(decision="deny", reason=STRAY))
            raise InvalidResult(STRAY)
        text = output.decode("utf-8", "backslashreplace")
        return as_hook_result(spelling, Verdict(context=text)) if text and spelling.text_counts else CONTINUE

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # noqa: ARG002  # they have no ids
        """What that program would make of a service's answer; an empty one says nothing."""
        return self._read(self._spelling(event), data, decode_answer(body)) if body.strip() else CONTINUE

    def _spelling(self, event: str) -> Spelling:
        spelling = self.dialect.spelling(event)
        if spelling is None:
            raise HookUnavailable(f"{self.dialect.title} has no event like {event!r}; register the hook where it has")
        return spelling

    def _read(self, spelling: Spelling, data: Mapping[str, Any], answer: dict[str, Any]) -> HookResult:
        verdict = self.dialect.read(spelling, answer)
        before = data.get(spelling.changes)
        if self.dialect.merges and isinstance(verdict.update, dict) and isinstance(before, dict):
            verdict = evolve(verdict, update={**before, **verdict.update})
        if verdict.unknown:
            log.warning("hook_answer_has_unknown_keys", dialect=self.dialect.name, keys=sorted(verdict.unknown))
        return as_hook_result(spelling, verdict)


def as_hook_result(spelling: Spelling, verdict: Verdict) -> HookResult:
    """An answer of theirs as one of ours.

    A hook can refuse and ask, never grant: what would be a permit there is "nothing against it" here.
    """
    extra: dict[str, Any] = {}
    if verdict.message:
        extra["user_message"] = verdict.message
    if verdict.quiet:
        extra["suppress_output"] = True
    context = [verdict.context] if verdict.context else []
    refused = verdict.decision == "deny" or verdict.stop
    if refused and spelling.blocks == "inject" and not verdict.stop:
        context.insert(0, verdict.reason or "a hook objects to this, without a reason")
        refused = False
    if context:
        extra["context_injection"] = "\n\n".join(context)
        extra["append_to_last_tool_result"] = spelling.ours in (events.TOOL_POST, events.TOOL_ERROR)
    if refused and spelling.blocks != "nothing":
        return HookResult.deny(verdict.reason or None, **extra)
    if verdict.update is not ABSENT and spelling.changes:
        extra["data"] = {spelling.changes: verdict.update}
    if verdict.decision in ("ask", "defer"):
        return HookResult.ask(verdict.reason or None, **extra)
    if "data" in extra:
        return HookResult.modify(extra.pop("data"), **extra)
    if context:
        return HookResult(action="inject_context", **extra)
    return HookResult.proceed(**extra)


def to_text(value: Any) -> str:
    """A value where they want text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


@frozen(kw_only=True)
class AnswerParts:
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


def split(spelling: Spelling, answer: Mapping[str, Any]) -> AnswerParts:
    """Take an answer apart. Raises `InvalidResult` for a value of the wrong type, and for another event's answer."""
    rest = dict(answer)
    stop = take(rest, "continue", bool) is False
    stop_reason = take(rest, "stopReason", str) or ""
    reason = take(rest, "reason", str) or ""
    own = dict(take(rest, "hookSpecificOutput", dict) or {})
    named = own.pop("hookEventName", spelling.theirs)
    if named != spelling.theirs:
        raise InvalidResult(f"an answer for {named!r:.60} at {spelling.theirs}: name the event that was asked about")
    return AnswerParts(
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


def write_answer(spelling: Spelling, verdict: Verdict, top: Mapping[str, Any], own: Mapping[str, Any]) -> ProgramExit:
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
    return ProgramExit(code=0, output=json.dumps(said).encode("ascii") if said else b"")
