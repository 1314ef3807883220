"""Claude Code's hooks: its events, their fields, and its answers."""

from __future__ import annotations

from typing import Any, Final

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidResult
from amplifier_hooks.programs.dialect import (
    ABSENT,
    Dialect,
    Field,
    Spelling,
    Verdict,
    split,
    take,
    to_text,
    write_answer,
)


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


TOOL: Final = (Field("tool_name"), Field("tool_input", default={}), Field("tool_use_id", "tool_call_id", default=""))
MODE: Final = Field("permission_mode", default="default")
AGENT: Final = (Field("agent_id", default=""), Field("agent_type", default=""))
STOPS: Final = (
    Field("stop_hook_active", default=False),
    Field("last_assistant_message", "response", default=None, to_theirs=to_text),
)

SPELLINGS: Final = (
    Spelling(
        theirs="SessionStart",
        ours=events.SESSION_START,
        takes_context=True,
        matcher_field="source",
        text_counts=True,
        blocks="nothing",
        fields=(Field("source", default="startup"), Field("model")),
    ),
    Spelling(
        theirs="SessionEnd",
        ours=events.SESSION_END,
        matcher_field="reason",
        blocks="nothing",
        fields=(Field("reason", default="other"),),
    ),
    Spelling(
        theirs="UserPromptSubmit",
        ours=events.PROMPT_SUBMIT,
        takes_context=True,
        text_counts=True,
        fields=(MODE, Field("prompt", default="")),
    ),
    Spelling(
        theirs="PreToolUse",
        ours=events.TOOL_PRE,
        takes_context=True,
        matcher_field="tool_name",
        changes="tool_input",
        fields=(MODE, *TOOL),
    ),
    Spelling(
        theirs="PostToolUse",
        ours=events.TOOL_POST,
        takes_context=True,
        matcher_field="tool_name",
        changes="result",
        blocks="inject",
        fields=(MODE, *TOOL, Field("tool_response", "result", default=""), Field("duration_ms")),
    ),
    Spelling(
        theirs="PostToolUseFailure",
        ours=events.TOOL_ERROR,
        takes_context=True,
        matcher_field="tool_name",
        blocks="inject",
        fields=(
            MODE,
            *TOOL,
            Field("error", default="", to_theirs=error_text, to_ours=error_of),
            Field("is_interrupt", default=False),
            Field("duration_ms"),
        ),
    ),
    Spelling(
        theirs="PermissionRequest",
        ours=events.APPROVAL_REQUIRED,
        matcher_field="tool_name",
        fields=(MODE, Field("tool_name", default=""), Field("tool_input", default={})),
    ),
    Spelling(
        theirs="PermissionDenied",
        ours=events.APPROVAL_DENIED,
        matcher_field="tool_name",
        blocks="nothing",
        fields=(MODE, *TOOL, Field("reason", default="")),
    ),
    Spelling(
        theirs="Notification",
        ours=events.USER_NOTIFICATION,
        matcher_field="notification_type",
        blocks="nothing",
        fields=(Field("message", default=""), Field("notification_type", default="idle_prompt")),
    ),
    Spelling(theirs="Stop", ours=events.AGENT_STOP, fields=(MODE, *STOPS)),
    Spelling(
        theirs="StopFailure",
        ours=events.ERROR_PROVIDER,
        matcher_field="error",
        blocks="nothing",
        fields=(Field("error", default="unknown", to_theirs=stop_error, to_ours=error_of),),
    ),
    Spelling(
        theirs="SubagentStart",
        ours=events.SUBAGENT_START,
        takes_context=True,
        matcher_field="agent_type",
        blocks="nothing",
        fields=AGENT,
    ),
    Spelling(
        theirs="SubagentStop",
        ours=events.SUBAGENT_STOP,
        takes_context=True,
        matcher_field="agent_type",
        fields=(MODE, *AGENT, *STOPS, Field("agent_transcript_path", default="")),
    ),
    Spelling(
        theirs="PreCompact",
        ours=events.CONTEXT_PRE_COMPACT,
        matcher_field="trigger",
        fields=(Field("trigger", default="auto"), Field("custom_instructions", default="")),
    ),
    Spelling(
        theirs="PostCompact",
        ours=events.CONTEXT_POST_COMPACT,
        matcher_field="trigger",
        blocks="nothing",
        fields=(Field("trigger", default="auto"), Field("compact_summary", default="")),
    ),
)
"""Claude Code's events that are also events here. Its others arrive, over the bridge, under the program's name."""

DECISIONS: Final = frozenset({"allow", "deny", "ask", "defer"})
OLD_DECISIONS: Final = {"": "none", "approve": "allow", "block": "deny"}


def read(spelling: Spelling, answer: dict[str, Any]) -> Verdict:
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
        decision, reason = (permission if permission in DECISIONS else None), reason if parts.stop else why or ""
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


def write(spelling: Spelling, verdict: Verdict) -> dict[str, Any]:
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
    said = {
        "permissionDecision": decision,
        "permissionDecisionReason": verdict.reason
        or ("the input was changed by a hook" if changed else "decided by a hook"),
    }
    return said | ({"updatedInput": verdict.update} if changed and decision in ("allow", "ask") else {})


CLAUDE_CODE: Final = Dialect(
    name="claude_code",
    title="Claude Code",
    spellings=SPELLINGS,
    common=(Field("session_id", default=""), Field("transcript_path", default=""), Field("cwd"), Field("prompt_id")),
    read=read,
    write=write,
    settings=(".claude/settings.json", ".claude/settings.local.json"),
    timeouts={"UserPromptSubmit": 30.0, "MessageDisplay": 10.0},
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
