"""Several answers → one Outcome. Pure; precedence is a table.

Precedence decides only what the Outcome reports as its `action`. Every injection, question and message of every hook
is carried along whatever the action turns out to be, and the data is whatever the modifications made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from amplifier_hooks.result import (
    DEFAULT_OPTIONS,
    DEFAULT_PROMPT,
    Answer,
    Ask,
    Cause,
    ContextInjection,
    Outcome,
    Status,
    UserMessage,
)

__all__ = ["CAUSES", "PRECEDENCE", "merge", "refusal", "stricter"]

PRECEDENCE: Final = ("deny", "ask_user", "inject_context", "modify", "continue")
"""From the strictest to the mildest."""

RANK: Final = {action: rank for rank, action in enumerate(PRECEDENCE)}

CAUSES: Final[Mapping[Status, Cause]] = {
    "ok": "denied_by_hook",
    "error": "hook_error",
    "timeout": "hook_timeout",
    "invalid": "hook_invalid_output",
    "unavailable": "hook_unavailable",
    "disabled": "hook_unavailable",
}
"""Why something was denied, by what became of the hook that denied it."""


def stricter(one: str, other: str) -> str:
    """Whichever of two actions stands first in the table."""
    return one if RANK[one] <= RANK[other] else other


def merge(
    event: str,
    data: Mapping[str, Any],
    answers: Sequence[Answer],
    *,
    ran: tuple[str, ...] = (),
    modified: bool = False,
    duration_ms: float = 0.0,
) -> Outcome:
    """All answers to one event as one Outcome; `answers` stand in the order they were given.

    Of a second look at changed data only denials and questions count. The first denial is the one that is reported,
    because it is the one that stopped the others.
    """
    counted = [answer for answer in answers if not answer.recheck or answer.action in ("deny", "ask_user")]
    denial = next((answer for answer in counted if answer.action == "deny"), None)
    injections = tuple(item for answer in counted for item in _injections(event, answer))
    strictest = "inject_context" if injections else "continue"
    for answer in counted:
        strictest = stricter(strictest, answer.action)
    return Outcome(
        event=event,
        data=data,
        action=strictest,  # type: ignore[arg-type]  # stricter() returns one of the two actions it was given
        reason=_reason(denial, counted, strictest),
        denied_by=denial.hook_name if denial else None,
        cause=CAUSES[denial.status] if denial else None,
        modified=modified,
        injections=injections,
        asks=_asks(counted),
        messages=tuple(message for answer in counted for message in _messages(answer)),
        answers=tuple(answers),
        ran=ran,
        total_duration_ms=duration_ms,
    )


def refusal(outcome: Outcome, cause: Cause, by: str, reason: str) -> Outcome:
    """The same outcome, denied by the registry itself; what the hooks said stays on record."""
    return Outcome(
        event=outcome.event,
        data=outcome.data,
        action="deny",
        reason=reason,
        denied_by=by,
        cause=cause,
        modified=outcome.modified,
        injections=outcome.injections,
        asks=outcome.asks,
        messages=outcome.messages,
        answers=outcome.answers,
        ran=outcome.ran,
        total_duration_ms=outcome.total_duration_ms,
    )


def _reason(denial: Answer | None, answers: Iterable[Answer], strictest: str) -> str | None:
    """The denial's reason, else that of the first hook that answered with the reported action."""
    if denial is not None:
        return denial.result.reason if denial.status == "ok" else denial.error
    return next((a.result.reason for a in answers if a.action == strictest and a.result.reason), None)


def _injections(event: str, answer: Answer) -> tuple[ContextInjection, ...]:
    """The texts of one answer, attributed by us: what a hook wrote there about itself is overwritten."""
    return tuple(
        ContextInjection(
            content=item.content,
            role=item.role,
            ephemeral=item.ephemeral,
            append_to_last_tool_result=item.append_to_last_tool_result,
            hook_name=answer.hook_name,
            event=event,
        )
        for item in answer.result.injections
    )


def _asks(answers: Iterable[Answer]) -> tuple[Ask, ...]:
    """Every question once: a second look that asks the same again adds nothing."""
    asks: dict[Ask, None] = {}
    for answer in answers:
        result = answer.result
        if answer.success and result.action == "ask_user":
            ask = Ask(
                hook_name=answer.hook_name,
                prompt=result.approval_prompt or DEFAULT_PROMPT,
                options=tuple(result.approval_options or DEFAULT_OPTIONS),
                timeout=result.approval_timeout,
                default=result.approval_default,
                scope=result.approval_scope if result.approval_prompt else "action",
                key=result.approval_key,
            )
            asks[ask] = None
    return tuple(asks)


def _messages(answer: Answer) -> tuple[UserMessage, ...]:
    result = answer.result
    if result.user_message is None or not answer.success:
        return ()
    source = f"hook:{result.user_message_source or answer.hook_name}"
    level = result.user_message_level
    return (UserMessage(text=result.user_message, level=level, hook_name=answer.hook_name, source=source),)
