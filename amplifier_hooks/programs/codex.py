"""Codex CLI's hooks: Claude Code's shape, read strictly. A part that Codex does not support voids the whole answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidResult
from amplifier_hooks.programs import claude_code
from amplifier_hooks.programs.dialect import ABSENT, Dialect, Field, Spelling, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable


NAMES: Final = frozenset(
    {"SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact",
     "PostCompact", "SubagentStart", "SubagentStop", "Stop"}
)  # fmt: skip

NOT_SENT: Final = frozenset(
    {"duration_ms", "custom_instructions", "compact_summary", "is_interrupt", "permission_mode"}
)
"""Fields of Claude Code that Codex does not have."""

TURN: Final = Field("turn_id", default="")

SPELLINGS: Final = tuple(
    evolve(
        row,
        fields=(TURN, claude_code.MODE, *(one for one in row.fields if one.theirs not in NOT_SENT)),
        takes_context=row.takes_context and row.theirs != "SubagentStop",
    )
    for row in claude_code.SPELLINGS
    if row.theirs in NAMES
)

COMMON: Final = frozenset({"continue", "stopReason", "systemMessage", "suppressOutput"})
UNSUPPORTED: Final[dict[str, tuple[str, ...]]] = {
    "PreToolUse": ("continue", "stopReason", "suppressOutput"),
    "PermissionRequest": ("continue", "stopReason", "suppressOutput"),
    "PostToolUse": ("suppressOutput",),
    "SubagentStart": ("continue", "stopReason", "suppressOutput"),
}
"""Keys of the common part that void an answer, by event."""


VOIDS: Final[tuple[tuple[Callable[[Spelling, Verdict], bool], str], ...]] = (
    (lambda _, said: bool(said.unknown), "has a key that Codex does not know: leave it out"),
    (lambda _, said: said.decision in ("ask", "defer"), "leaves the decision to a person: deny, or say nothing"),
    (lambda _, said: said.decision == "deny" and not said.reason, "refuses without a reason: say why"),
    (
        lambda at, said: at.ours == events.TOOL_PRE and (said.decision == "allow") != (said.update is not ABSENT),
        "has allow or updatedInput, one without the other: say both, or neither",
    ),
)
"""Conditions that void an answer, each with its remedy."""


def read(spelling: Spelling, answer: dict[str, Any]) -> Verdict:
    """Return the verdict of an answer, as Claude Code reads it.

    Raises `InvalidResult` also for unknown keys, and for everything that Codex does not support.
    """
    for key in UNSUPPORTED.get(spelling.theirs, ()):
        if answer.get(key) is not None:
            raise InvalidResult(
                f"an answer at {spelling.theirs} with {key}, which Codex does not support: leave it out"
            )
    verdict = claude_code.read(spelling, answer)
    for voids, remedy in VOIDS:
        if voids(spelling, verdict):
            raise InvalidResult(f"an answer at {spelling.theirs} that {remedy}")
    return verdict


def write(spelling: Spelling, verdict: Verdict) -> dict[str, Any]:
    """Return the answer in the part of the shape that Codex supports. A verdict that it cannot express is a refusal.

    Codex cannot ask a person for a hook, so an open question is a refusal that says so.
    """
    answer = claude_code.write(spelling, nearest_supported(spelling, verdict))
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


CODEX: Final = Dialect(
    name="codex",
    title="Codex",
    spellings=SPELLINGS,
    common=(
        Field("session_id", default=""),
        Field("transcript_path"),
        Field("cwd"),
        Field("model", default=""),
    ),
    read=read,
    write=write,
    settings=(".codex/hooks.json",),
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
