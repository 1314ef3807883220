"""A dialect: another program's spelling of events and answers, as tables.

A `Verdict` is an answer without any program's spelling. A dialect reads a verdict from the output of a hook that was
written for its program, and writes a verdict so that its program understands it. `split` and `write_answer` handle the
JSON shape that the programs share: the top of an answer, and its `hookSpecificOutput`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import field, frozen

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidPayload, InvalidResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


ABSENT: Final = object()
"""Value of a part that an answer does not have."""

Block = Literal["deny", "inject", "nothing"]


def identity(value: Any) -> Any:
    """Return a value that both sides spell alike."""
    return value


@frozen
class Field:
    """One field of an event: its name in the program and here, and the conversions of its value.

    The program receives `default` if the payload has no value; without a default the field is left out.
    """

    theirs: str
    ours: str = ""
    default: Any = ABSENT
    to_theirs: Callable[[Any], Any] = identity
    to_ours: Callable[[Any], Any] = identity

    @property
    def name(self) -> str:
        """Name of the field in payloads here."""
        return self.ours or self.theirs


@frozen
class Spelling:
    """One event of a program.

    `blocks` is the effect of a refusal there: it denies the act, or the act is over and the model reads the refusal, or
    it does nothing. Matchers look at `matcher_field`. If `text_counts`, plain text on standard output is context.
    """

    theirs: str
    ours: str
    fields: tuple[Field, ...] = ()
    matcher_field: str = ""
    blocks: Block = "deny"
    text_counts: bool = False
    takes_context: bool = False
    """True if the program reads text for its model in an answer to this event."""
    changes: str = ""
    """Field of the payload here that an update replaces."""


@frozen(kw_only=True)
class Posting:
    """The hooks of a program that post to an address instead of running a command."""

    command: str
    """Command that prints the program's version after `--version`."""
    since: tuple[int, ...]
    """First version in which a post without an answer can block. Earlier ones go on."""
    never: frozenset[str]
    """Events, in the program's spelling, at which it skips hooks that post."""


@frozen(kw_only=True)
class Verdict:
    """An answer without any program's spelling. `stop` ends more than this act: the agent must stop."""

    decision: Literal["none", "allow", "deny", "ask", "defer"] = "none"
    reason: str = ""
    stop: bool = False
    update: Any = ABSENT
    context: str = ""
    message: str = ""
    quiet: bool = False
    unknown: tuple[str, ...] = ()
    """Unknown keys. They are reported and change nothing."""


@frozen(kw_only=True)
class Dialect:
    """A program's protocol for hooks.

    `warns` are the exit statuses after which the program only warns. Every other status except 0 and 2 is a failure if
    `failures` is "open", and a refusal if it is "closed". `silent_block` is True if exit status 2 blocks even with
    nothing on standard error.
    """

    name: str
    title: str
    spellings: tuple[Spelling, ...]
    common: tuple[Field, ...]
    read: Callable[[Spelling, dict[str, Any]], Verdict]
    """Returns the verdict that an answer states. Raises `InvalidResult` for one that the program rejects."""
    write: Callable[[Spelling, Verdict], dict[str, Any]]
    """Returns the JSON object that tells the program a verdict, empty if there is nothing to tell."""
    settings: tuple[str, ...]
    """Paths of the program's settings in a project: the file that a team commits, and the user's own file, if any.

    In a home folder the first path applies.
    """
    home: str = ""
    """Variable that names the folder of the user's settings, in place of the one in the home."""
    machine: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """Patterns of the settings files of the whole machine, by `sys.platform`."""
    second: float = 1.0
    """Number of the program's units of time in a second."""
    timeout: float = 600.0
    """Timeout, in seconds, of a hook without one in its settings."""
    timeouts: Mapping[str, float] = field(factory=dict)
    """Timeouts, in seconds, of events that have another default than `timeout`."""
    failures: Literal["open", "closed"] = "open"
    warns: frozenset[int] = frozenset()
    silent_block: bool = True
    posting: Posting | None = None
    """The hooks that post; None if the program has no such hooks."""
    merges: bool = False
    """True if the program merges a changed input over the original one."""
    variables: Mapping[str, str] = field(factory=dict)
    """Variables in the environment of commands: name, and `project` or `root`."""
    differs: tuple[tuple[str, str], ...] = ()
    """Differences from the program, a row each: the subject, and the behaviour here."""

    def in_home(self) -> Path:
        """Return the path of the settings for all projects of the user."""
        named = os.environ.get(self.home) if self.home else None
        shared = Path(self.settings[0])
        return Path(named).resolve() / shared.name if named else Path.home().resolve() / shared

    def settings_files(self, project: Path) -> list[Path]:
        """Return every settings file that the program reads in a project, there or not, each once.

        These are the files of the machine, the one of the user, and those of the project.
        """
        patterns = [Path(pattern) for pattern in self.machine.get(sys.platform, ())]
        machine = [file for pattern in patterns for file in sorted(pattern.parent.glob(pattern.name))]
        return list(dict.fromkeys([*machine, self.in_home(), *(project / name for name in self.settings)]))

    def spelling(self, event: str) -> Spelling | None:
        """Return the program's spelling of an event, found by either name, or None."""
        name = events.canonical(event)
        return next((row for row in self.spellings if event == row.theirs or name == row.ours), None)

    def describe(self, spelling: Spelling, data: Mapping[str, Any], cwd: str) -> dict[str, Any]:
        """Return a payload as the program would send it."""
        described: dict[str, Any] = {}
        for one in (*self.common, *spelling.fields):
            value = data.get(one.name, ABSENT)
            if value is not ABSENT and value is not None:
                described[one.theirs] = one.to_theirs(value)
            elif one.default is not ABSENT:
                described[one.theirs] = one.default
        return {**described, "cwd": described.get("cwd") or cwd, "hook_event_name": spelling.theirs}

    def understand(self, question: Mapping[str, Any]) -> tuple[Spelling, dict[str, Any]]:
        """Return the spelling and the payload of a program's question. Fields without a name here keep the program's.

        Raises `InvalidPayload` if the question names no event.
        """
        name = question.get("hook_event_name")
        if not isinstance(name, str) or not name:
            raise InvalidPayload("a question without hook_event_name: it says for which event it is")
        spelling = next((row for row in self.spellings if row.theirs == name), None)
        if spelling is None:
            spelling = Spelling(name, f"{self.name}:{_snake(name)}", blocks="nothing")
        known = {one.theirs: one for one in (*self.common, *spelling.fields)}
        payload = {
            known[key].name if key in known else key: known[key].to_ours(value) if key in known else value
            for key, value in question.items()
            if key != "hook_event_name"
        }
        return spelling, payload


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def to_text(value: Any) -> str:
    """Return a value as text, for fields where a program expects text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


@frozen(kw_only=True)
class AnswerParts:
    """The parts of an answer. `rest` and `own` hold the keys that no reader has taken yet."""

    decision: str
    reason: str
    stop: bool
    message: str
    quiet: bool
    own: dict[str, Any]
    rest: dict[str, Any]

    def verdict(self, **fields: Any) -> Verdict:
        """Return the verdict of these parts, with these `fields`. Keys that no reader took are unknown."""
        unknown = (*self.rest, *(f"hookSpecificOutput.{key}" for key in self.own))
        common = {"reason": self.reason, "stop": self.stop, "message": self.message, "quiet": self.quiet}
        return Verdict(**{**common, **fields, "unknown": unknown})


def split(spelling: Spelling, answer: Mapping[str, Any]) -> AnswerParts:
    """Return the parts of an answer. Raises `InvalidResult` for a wrongly typed value, or another event's answer."""
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
    """Remove a value from an answer and return it; None if it is missing or null.

    Raises `InvalidResult` for a value of another type.
    """
    value = answer.pop(key, None)
    if value is not None and type(value) is not kind:
        raise InvalidResult(f"an answer whose {key} is of type {type(value).__name__}: write {WORDS[kind]}")
    return value


def write_answer(
    spelling: Spelling, verdict: Verdict, top: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an answer of the shared shape, empty if there is nothing to answer."""
    answer, specific = dict(top), dict(own)
    if verdict.stop:
        answer |= {"continue": False, "stopReason": verdict.reason or "stopped, without a reason"}
    if verdict.context and spelling.takes_context:
        specific["additionalContext"] = verdict.context
    if verdict.message:
        answer["systemMessage"] = verdict.message
    if verdict.quiet:
        answer["suppressOutput"] = True
    if specific:
        answer["hookSpecificOutput"] = {"hookEventName": spelling.theirs, **specific}
    return answer
