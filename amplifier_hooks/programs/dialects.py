"""Claude Code, Codex and Gemini CLI: their events and fields, their answers, and one row for each program.

Codex has Claude Code's shape and reads it strictly: a part that it does not support voids the whole answer. Gemini CLI
has names of its own, milliseconds, and its decisions at the top of the answer.

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

from attrs import evolve, field, frozen

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
    review: str = ""
    """Step in which a user reviews our hook, for a program that runs no other; empty for one that runs any hook."""
    reviewed: str = ""
    """File beside the user's settings in which the program notes the hooks that its user has reviewed."""
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
    variable: str = ""
    """Variable in the environment of commands that names the project."""
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

    def waits_for_review(self, path: Path) -> bool:
        """Return True if the program notes no reviewed hook of a settings file. A file of the machine needs none."""
        if not self.review or any(path.match(one) for one in self.machine.get(sys.platform, ())):
            return False
        notes = self.in_home().with_name(self.reviewed)
        return not notes.exists() or f"{path}:" not in notes.read_text(encoding="utf-8", errors="replace")

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
    common: Verdict
    """The parts that mean the same at every event, without a decision."""
    own: dict[str, Any]
    rest: dict[str, Any]

    def verdict(self, **fields: Any) -> Verdict:
        """Return the verdict of these parts, with these `fields`. Keys that no reader took are unknown."""
        unknown = (*self.rest, *(f"hookSpecificOutput.{key}" for key in self.own))
        return evolve(self.common, **fields, unknown=unknown)


def split(spelling: Spelling, answer: Mapping[str, Any]) -> AnswerParts:
    """Return the parts of an answer. Raises `InvalidResult` for a wrongly typed value, or another event's answer."""
    rest = dict(answer)
    stop = take(rest, "continue", bool) is False
    stop_reason, reason = take(rest, "stopReason", str), take(rest, "reason", str) or ""
    message, quiet = take(rest, "systemMessage", str) or "", take(rest, "suppressOutput", bool) is True
    common = Verdict(reason=(stop and stop_reason) or reason, stop=stop, message=message, quiet=quiet)
    own = dict(take(rest, "hookSpecificOutput", dict) or {})
    named = own.pop("hookEventName", spelling.theirs)
    if named != spelling.theirs:
        raise InvalidResult(f"an answer for {named!r:.60} at {spelling.theirs}: name the event that was asked about")
    return AnswerParts(decision=take(rest, "decision", str) or "", common=common, own=own, rest=rest)


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


def error_text(error: Any) -> str:
    """Return an error of this package as Claude Code's one line."""
    return str(error.get("message", "")) if isinstance(error, dict) else to_text(error)


def error_of(text: Any) -> dict[str, str]:
    """Return Claude Code's error line as an error of this package."""
    return {"type": "ToolError", "message": to_text(text)}


STOP_ERRORS: Final = frozenset(
    {"rate_limit", "overloaded", "authentication_failed", "oauth_org_not_allowed", "billing_error", "invalid_request",
     "model_not_found", "server_error", "max_output_tokens"}
)  # fmt: skip


def stop_error(error: Any) -> str:
    """Return Claude Code's word for the error that ended a turn."""
    kind = error.get("type") if isinstance(error, dict) else error
    return kind if kind in STOP_ERRORS else "unknown"


def as_response(result: Any) -> Any:
    """Return a tool's result as the object that Gemini CLI expects."""
    return result if isinstance(result, dict) else {"llmContent": to_text(result), "returnDisplay": to_text(result)}


SOURCE: Final = Field("source", default="startup")
ENDED: Final = Field("reason", default="other")
PROMPT: Final = Field("prompt", default="")
TRIGGER: Final = Field("trigger", default="auto")
MESSAGE: Final = Field("message", default="")
CALL: Final = (Field("tool_name"), Field("tool_input", default={}))
TOOL: Final = (*CALL, Field("tool_use_id", "tool_call_id", default=""))
MODE: Final = Field("permission_mode", default="default")
TURN: Final = Field("turn_id", default="")
AGENT: Final = (Field("agent_id", default=""), Field("agent_type", default=""))
ACTIVE: Final = Field("stop_hook_active", default=False)
STOPS: Final = (ACTIVE, Field("last_assistant_message", "response", default=None, to_theirs=to_text))
FAILED: Final = Field("error", default="", to_theirs=error_text, to_ours=error_of)
TOOK: Final = Field("duration_ms")
SESSION: Final = (Field("session_id", default=""), Field("transcript_path", default=""), Field("cwd"))

# fmt: off
CLAUDE_EVENTS: Final = (
    Spelling("SessionStart", events.SESSION_START, (SOURCE, Field("model")), "source", "nothing", takes_context=True,
             text_counts=True),
    Spelling("SessionEnd", events.SESSION_END, (ENDED,), "reason", "nothing"),
    Spelling("UserPromptSubmit", events.PROMPT_SUBMIT, (MODE, PROMPT), takes_context=True, text_counts=True),
    Spelling("PreToolUse", events.TOOL_PRE, (MODE, *TOOL), "tool_name", takes_context=True, changes="tool_input"),
    Spelling("PostToolUse", events.TOOL_POST, (MODE, *TOOL, Field("tool_response", "result", default=""), TOOK),
             "tool_name", "inject", takes_context=True, changes="result"),
    Spelling("PostToolUseFailure", events.TOOL_ERROR,
             (MODE, *TOOL, FAILED, Field("is_interrupt", default=False), TOOK), "tool_name", "inject",
             takes_context=True),
    Spelling("PermissionRequest", events.APPROVAL_REQUIRED,
             (MODE, Field("tool_name", default=""), Field("tool_input", default={})), "tool_name"),
    Spelling("PermissionDenied", events.APPROVAL_DENIED, (MODE, *TOOL, Field("reason", default="")), "tool_name",
             "nothing"),
    Spelling("Notification", events.USER_NOTIFICATION,
             (MESSAGE, Field("notification_type", default="idle_prompt")), "notification_type", "nothing"),
    Spelling("Stop", events.AGENT_STOP, (MODE, *STOPS)),
    Spelling("StopFailure", events.ERROR_PROVIDER,
             (Field("error", default="unknown", to_theirs=stop_error, to_ours=error_of),), "error", "nothing"),
    Spelling("SubagentStart", events.SUBAGENT_START, AGENT, "agent_type", "nothing", takes_context=True),
    Spelling("SubagentStop", events.SUBAGENT_STOP,
             (MODE, *AGENT, *STOPS, Field("agent_transcript_path", default="")), "agent_type", takes_context=True),
    Spelling("PreCompact", events.CONTEXT_PRE_COMPACT, (TRIGGER, Field("custom_instructions", default="")), "trigger"),
    Spelling("PostCompact", events.CONTEXT_POST_COMPACT, (TRIGGER, Field("compact_summary", default="")), "trigger",
             "nothing"),
)
"""Claude Code's events that are also events here. Its others arrive, over the bridge, under the program's name."""

GEMINI_EVENTS: Final = (
    Spelling("SessionStart", events.SESSION_START, (SOURCE,), "source", "nothing", takes_context=True,
             text_counts=True),
    Spelling("SessionEnd", events.SESSION_END, (ENDED,), "reason", "nothing"),
    Spelling("BeforeAgent", events.PROMPT_SUBMIT, (PROMPT,), takes_context=True, text_counts=True),
    Spelling("AfterAgent", events.AGENT_STOP,
             (PROMPT, Field("prompt_response", "response", default="", to_theirs=to_text), ACTIVE)),
    Spelling("BeforeTool", events.TOOL_PRE, CALL, "tool_name", changes="tool_input"),
    Spelling("AfterTool", events.TOOL_POST,
             (*CALL, Field("tool_response", "result", default={}, to_theirs=as_response)), "tool_name", "inject",
             takes_context=True),
    Spelling("Notification", events.USER_NOTIFICATION,
             (Field("notification_type", default=""), MESSAGE, Field("details", default={})), "notification_type",
             "nothing"),
    Spelling("PreCompress", events.CONTEXT_PRE_COMPACT, (TRIGGER,), "trigger", "nothing"),
)
"""Supported events. BeforeModel, AfterModel and BeforeToolSelection are missing: their requests have another shape."""
# fmt: on

CODEX_NAMES: Final = frozenset(
    {"SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact",
     "PostCompact", "SubagentStart", "SubagentStop", "Stop"}
)  # fmt: skip

NOT_SENT: Final = frozenset(
    {"duration_ms", "custom_instructions", "compact_summary", "is_interrupt", "permission_mode"}
)
"""Fields of Claude Code that Codex does not have."""

CODEX_EVENTS: Final = tuple(
    evolve(
        row,
        fields=(TURN, MODE, *(one for one in row.fields if one.theirs not in NOT_SENT)),
        takes_context=row.takes_context and row.theirs != "SubagentStop",
    )
    for row in CLAUDE_EVENTS
    if row.theirs in CODEX_NAMES
)

# -- answers of Claude Code --------------------------------------------------------------------------------------------

CLAUDE_DECISIONS: Final = frozenset({"allow", "deny", "ask", "defer"})
OLD_DECISIONS: Final = {"": "none", "approve": "allow", "block": "deny"}


def read_claude(spelling: Spelling, answer: dict[str, Any]) -> Verdict:
    """Return the verdict of an answer, as Claude Code reads it: unknown keys change nothing and are reported.

    Raises `InvalidResult` for an unknown decision or a value of the wrong type.
    """
    parts = split(spelling, answer)
    own = parts.own
    decision, reason = OLD_DECISIONS.get(parts.decision), parts.common.reason
    if spelling.ours == events.APPROVAL_REQUIRED:
        behavior = take(own, "decision", dict) or {}
        permission, why = behavior.get("behavior"), behavior.get("message")
    else:
        permission, why = take(own, "permissionDecision", str), take(own, "permissionDecisionReason", str)
    if permission is not None:
        decision, reason = (
            (permission if permission in CLAUDE_DECISIONS else None),
            reason if parts.common.stop else why or "",
        )
    if decision is None:
        raise InvalidResult(f"an answer with the decision {permission or parts.decision!r:.40}, which is not known")
    updates = [own.pop(key) for key in ("updatedInput", "updatedToolOutput") if own.get(key) is not None]
    context = take(own, "additionalContext", str) or ""
    return parts.verdict(decision=decision, reason=reason, context=context, update=updates[0] if updates else ABSENT)


TAKES_BLOCK: Final = frozenset(
    {"UserPromptSubmit", "UserPromptExpansion", "PostToolUse", "PostToolBatch", "Stop", "SubagentStop", "PreCompact",
     "ConfigChange"}
)  # fmt: skip
"""Events at which Claude Code reads `decision: block`."""


def write_claude(spelling: Spelling, verdict: Verdict) -> dict[str, Any]:
    """Return the answer as one JSON object, empty if there is nothing to answer."""
    name, decision = spelling.theirs, verdict.decision
    reason = verdict.reason or "refused, without a reason"
    top: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if name == "PreToolUse":
        own = permission(verdict)
    elif name == "PermissionRequest" and decision in ("allow", "deny"):
        own["decision"] = {"behavior": decision} | ({"message": reason} if decision == "deny" else {})
    elif decision == "deny" and name in TAKES_BLOCK:
        top = {"decision": "block", "reason": reason}
    elif name == "PostToolUse" and verdict.update is not ABSENT:
        own["updatedToolOutput"] = verdict.update
    return write_answer(spelling, verdict, top, own)


def permission(verdict: Verdict) -> dict[str, Any]:
    """Return the decision about a tool call. A changed input alone is no permit: Claude Code asks its user about it."""
    changed = verdict.update is not ABSENT
    decision = "ask" if verdict.decision == "none" and changed else verdict.decision
    if decision == "none":
        return {}
    chosen = {
        "permissionDecision": decision,
        "permissionDecisionReason": verdict.reason
        or ("the input was changed by a hook" if changed else "decided by a hook"),
    }
    return chosen | ({"updatedInput": verdict.update} if changed and decision in ("allow", "ask") else {})


# -- answers of Codex --------------------------------------------------------------------------------------------------

UNSUPPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "PreToolUse": ("continue", "stopReason", "suppressOutput"),
    "PermissionRequest": ("continue", "stopReason", "suppressOutput"),
    "PostToolUse": ("suppressOutput",),
    "SubagentStart": ("continue", "stopReason", "suppressOutput"),
}
"""Keys of the common part that void an answer, by event."""


VOIDS: Final[tuple[tuple[Callable[[Spelling, Verdict], bool], str], ...]] = (
    (lambda _, answer: bool(answer.unknown), "has a key that Codex does not know: leave it out"),
    (lambda _, answer: answer.decision in ("ask", "defer"), "leaves the decision to a person: deny, or say nothing"),
    (lambda _, answer: answer.decision == "deny" and not answer.reason, "refuses without a reason: say why"),
    (
        lambda at, answer: at.ours == events.TOOL_PRE and (answer.decision == "allow") != (answer.update is not ABSENT),
        "has allow or updatedInput, one without the other: say both, or neither",
    ),
)
"""Conditions that void an answer, each with its remedy."""


def read_codex(spelling: Spelling, answer: dict[str, Any]) -> Verdict:
    """Return the verdict of an answer, as Claude Code reads it.

    Raises `InvalidResult` also for unknown keys, and for everything that Codex does not support.
    """
    for key in UNSUPPORTED.get(spelling.theirs, ()):
        if answer.get(key) is not None:
            raise InvalidResult(
                f"an answer at {spelling.theirs} with {key}, which Codex does not support: leave it out"
            )
    verdict = read_claude(spelling, answer)
    for voids, remedy in VOIDS:
        if voids(spelling, verdict):
            raise InvalidResult(f"an answer at {spelling.theirs} that {remedy}")
    return verdict


def write_codex(spelling: Spelling, verdict: Verdict) -> dict[str, Any]:
    """Return the answer in the part of the shape that Codex supports. A verdict that it cannot express is a refusal.

    Codex cannot ask a person for a hook, so an open question is a refusal that says so.
    """
    answer = write_claude(spelling, nearest_supported(spelling, verdict))
    return {key: value for key, value in answer.items() if key not in UNSUPPORTED.get(spelling.theirs, ())}


def nearest_supported(spelling: Spelling, verdict: Verdict) -> Verdict:
    """Return the nearest verdict that Codex understands, never a more lenient one."""
    if verdict.decision in ("ask", "defer"):
        verdict = evolve(verdict, decision="deny", reason=verdict.reason or "a person has to decide", update=ABSENT)
    if spelling.ours == events.CONTEXT_PRE_COMPACT and verdict.decision == "deny":
        return evolve(verdict, decision="none", stop=True, update=ABSENT)  # the only refusal that Codex knows there
    if spelling.ours != events.TOOL_PRE:
        return evolve(verdict, update=ABSENT)
    changed = verdict.update is not ABSENT
    if changed and verdict.decision == "none":
        return evolve(verdict, decision="deny", reason=verdict.reason or NOT_APPROVED, update=ABSENT)
    if verdict.decision == "allow" and not changed:
        return evolve(verdict, decision="none", reason="")
    return verdict


NOT_APPROVED: Final = "a hook changed the input, and no person has approved the changed input"


# -- answers of Gemini CLI ---------------------------------------------------------------------------------------------

GEMINI_DECISIONS: Final = OLD_DECISIONS | {"allow": "allow", "deny": "deny", "ask": "ask"}


def read_gemini(spelling: Spelling, answer: dict[str, Any]) -> Verdict:
    """Return the verdict of an answer: one JSON object with its decision at the top. Raises `InvalidResult`."""
    parts = split(spelling, answer)
    decision = GEMINI_DECISIONS.get(parts.decision)
    if decision is None:
        raise InvalidResult(f"an answer with the decision {parts.decision!r:.40}, which is not known")
    update = take(parts.own, "tool_input", dict) if spelling.ours == events.TOOL_PRE else None
    context = take(parts.own, "additionalContext", str) or ""
    return parts.verdict(decision=decision, context=context, update=ABSENT if update is None else update)


def write_gemini(spelling: Spelling, verdict: Verdict) -> dict[str, Any]:
    """Return the answer as one JSON object, empty if there is nothing to answer."""
    changed = verdict.update is not ABSENT and spelling.theirs == "BeforeTool"
    decision = "ask" if verdict.decision == "defer" or (changed and verdict.decision == "none") else verdict.decision
    top: dict[str, Any] = {}
    if decision in ("deny", "ask") and spelling.blocks != "nothing":
        top = {"decision": decision, "reason": verdict.reason or "decided by a hook"}
    elif decision == "allow" and spelling.theirs == "BeforeTool":
        top = {"decision": "allow"}
    own = {"tool_input": verdict.update} if changed and decision != "deny" else {}
    return write_answer(spelling, verdict, top, own)


# -- the programs ------------------------------------------------------------------------------------------------------

MANAGED: Final = ("managed-settings.json", "managed-settings.d/*.json")
SYSTEM: Final = ("system-defaults.json", "settings.json")

CLAUDE_CODE: Final = Dialect(
    name="claude_code",
    title="Claude Code",
    spellings=CLAUDE_EVENTS,
    common=(*SESSION, Field("prompt_id")),
    read=read_claude,
    write=write_claude,
    settings=(".claude/settings.json", ".claude/settings.local.json"),
    home="CLAUDE_CONFIG_DIR",
    machine={
        "linux": tuple(f"/etc/claude-code/{name}" for name in MANAGED),
        "darwin": tuple(f"/Library/Application Support/ClaudeCode/{name}" for name in MANAGED),
    },
    timeouts={"UserPromptSubmit": 30.0, "MessageDisplay": 10.0},
    posting=Posting(command="claude", since=(2, 1, 295), never=frozenset({"SessionStart"})),
    variable="CLAUDE_PROJECT_DIR",
    differs=(
        ("a decision behind other output", "the hook has failed; there: text, which decides nothing"),
        ("several hooks for one event", "one after the other, each sees what the one before changed; there: at once"),
        ("`permissionDecision: allow`", "nothing against it; there: no question is asked any more"),
        ("`permissionDecision: defer`", "asks a person; there: ends a headless run"),
        ("`continue: false`", "refuses this operation, with the stop reason; there: ends the turn"),
        ("`PermissionRequest` answering allow", "changes nothing, because hooks cannot grant; a refusal counts"),
        ("hooks of type prompt, agent, mcp_tool", "not run, and said at import"),
    ),
)

CODEX: Final = Dialect(
    name="codex",
    title="Codex",
    spellings=CODEX_EVENTS,
    common=(Field("session_id", default=""), Field("transcript_path"), Field("cwd"), Field("model", default="")),
    read=read_codex,
    write=write_codex,
    settings=(".codex/hooks.json",),
    home="CODEX_HOME",
    machine=dict.fromkeys(("linux", "darwin"), ("/etc/codex/hooks.json",)),
    review="start codex in this folder, and choose `Trust all and continue` at `Hooks need review`",
    reviewed="config.toml",
    timeouts={"SessionEnd": 1.0},
    silent_block=False,
    differs=(
        ("a decision behind other output", "the hook has failed; there: text, which decides nothing"),
        ("`permissionDecision: ask`", "the hook has failed, and the call goes on; as there"),
        ("exit status 2 with nothing on standard error", "the hook has failed, and the call goes on; as there"),
        ("an unknown key", "the whole answer is void; as there"),
        ("several hooks for one event", "one after the other; there: at once, and the last rewrite wins"),
        ("hooks in config.toml", "not read; only hooks.json"),
    ),
)

GEMINI: Final = Dialect(
    name="gemini",
    title="Gemini CLI",
    spellings=GEMINI_EVENTS,
    common=(*SESSION, Field("timestamp", default="")),
    read=read_gemini,
    write=write_gemini,
    settings=(".gemini/settings.json",),
    machine={
        "linux": tuple(f"/etc/gemini-cli/{name}" for name in SYSTEM),
        "darwin": tuple(f"/Library/Application Support/GeminiCli/{name}" for name in SYSTEM),
    },
    second=1000.0,
    timeout=60.0,
    failures="closed",
    warns=frozenset({1}),
    merges=True,
    variable="GEMINI_PROJECT_DIR",
    differs=(
        ("a decision behind other output", "the hook has failed; there: text, which decides nothing"),
        ("exit status 1", "a warning to the user, and the call goes on; as there"),
        ("every other exit status than 0 and 1", "refuses; as there, though its documentation says only 2"),
        ("BeforeModel, AfterModel, BeforeToolSelection", "not run, and said at import"),
        ("several hooks for one event", "one after the other; there: at once, unless `sequential`"),
    ),
)

DIALECTS: Final[Mapping[str, Dialect]] = {one.name: one for one in (CLAUDE_CODE, CODEX, GEMINI)}
"""The programs, a row each."""
