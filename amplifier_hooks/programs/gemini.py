"""Gemini CLI's hooks: names of its own, milliseconds, and decisions at the top of the answer."""

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

TOOL: Final = (Field("tool_name"), Field("tool_input", default={}))


def as_response(result: Any) -> Any:
    """Return a tool's result as the object that Gemini CLI expects."""
    return result if isinstance(result, dict) else {"llmContent": to_text(result), "returnDisplay": to_text(result)}


SPELLINGS: Final = (
    Spelling(
        theirs="SessionStart",
        ours=events.SESSION_START,
        takes_context=True,
        matcher_field="source",
        text_counts=True,
        blocks="nothing",
        fields=(Field("source", default="startup"),),
    ),
    Spelling(
        theirs="SessionEnd",
        ours=events.SESSION_END,
        matcher_field="reason",
        blocks="nothing",
        fields=(Field("reason", default="other"),),
    ),
    Spelling(
        theirs="BeforeAgent",
        ours=events.PROMPT_SUBMIT,
        takes_context=True,
        text_counts=True,
        fields=(Field("prompt", default=""),),
    ),
    Spelling(
        theirs="AfterAgent",
        ours=events.AGENT_STOP,
        fields=(
            Field("prompt", default=""),
            Field("prompt_response", "response", default="", to_theirs=to_text),
            Field("stop_hook_active", default=False),
        ),
    ),
    Spelling(theirs="BeforeTool", ours=events.TOOL_PRE, matcher_field="tool_name", changes="tool_input", fields=TOOL),
    Spelling(
        theirs="AfterTool",
        ours=events.TOOL_POST,
        takes_context=True,
        matcher_field="tool_name",
        blocks="inject",
        fields=(*TOOL, Field("tool_response", "result", default={}, to_theirs=as_response)),
    ),
    Spelling(
        theirs="Notification",
        ours=events.USER_NOTIFICATION,
        matcher_field="notification_type",
        blocks="nothing",
        fields=(
            Field("notification_type", default=""),
            Field("message", default=""),
            Field("details", default={}),
        ),
    ),
    Spelling(
        theirs="PreCompress",
        ours=events.CONTEXT_PRE_COMPACT,
        matcher_field="trigger",
        blocks="nothing",
        fields=(Field("trigger", default="auto"),),
    ),
)
"""Supported events. BeforeModel, AfterModel and BeforeToolSelection are missing: their requests have another shape."""

DECISIONS: Final = {"": "none", "allow": "allow", "approve": "allow", "deny": "deny", "block": "deny", "ask": "ask"}


def read(spelling: Spelling, answer: dict[str, Any]) -> Verdict:
    """Return the verdict of an answer: one JSON object with its decision at the top. Raises `InvalidResult`."""
    parts = split(spelling, answer)
    decision = DECISIONS.get(parts.decision)
    if decision is None:
        raise InvalidResult(f"an answer with the decision {parts.decision!r:.40}, which is not known")
    update = take(parts.own, "tool_input", dict) if spelling.ours == events.TOOL_PRE else None
    context = take(parts.own, "additionalContext", str) or ""
    return parts.verdict(decision=decision, context=context, update=ABSENT if update is None else update)


def write(spelling: Spelling, verdict: Verdict) -> dict[str, Any]:
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


GEMINI: Final = Dialect(
    name="gemini",
    title="Gemini CLI",
    spellings=SPELLINGS,
    common=(
        Field("session_id", default=""),
        Field("transcript_path", default=""),
        Field("cwd"),
        Field("timestamp", default=""),
    ),
    read=read,
    write=write,
    settings=(".gemini/settings.json",),
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
