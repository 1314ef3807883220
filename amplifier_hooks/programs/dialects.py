"""Claude Code, Codex and Gemini CLI: their events and fields, their answers, and one row for each program.

Codex has Claude Code's shape and reads it strictly: a part that it does not support voids the whole answer. Gemini CLI
has names of its own, milliseconds, and its decisions at the top of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidResult
from amplifier_hooks.programs.dialect import (
    ABSENT,
    Dialect,
    Field,
    Posting,
    Spelling,
    Verdict,
    split,
    take,
    to_text,
    write_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# -- events and fields -------------------------------------------------------------------------------------------------


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
    decision, reason = OLD_DECISIONS.get(parts.decision), parts.reason
    if spelling.ours == events.APPROVAL_REQUIRED:
        behavior = take(own, "decision", dict) or {}
        permission, why = behavior.get("behavior"), behavior.get("message")
    else:
        permission, why = take(own, "permissionDecision", str), take(own, "permissionDecisionReason", str)
    if permission is not None:
        decision, reason = (permission if permission in CLAUDE_DECISIONS else None), reason if parts.stop else why or ""
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

GEMINI_DECISIONS: Final = {
    "": "none",
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
}


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
    variables={"CLAUDE_PROJECT_DIR": "project"},
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
    variables={"GEMINI_PROJECT_DIR": "project"},
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
