"""Several answers → one Outcome. Pure; precedence is a table.

Precedence decides only the `action` that the Outcome reports. The Outcome carries every injection, question, message
and risk of every hook in any case, and its data includes all modifications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from amplifier_hooks.result import CONTINUE, DEFAULT_OPTIONS, DEFAULT_PROMPT, Ask, Outcome, UserMessage, injections_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amplifier_hooks.result import Action, Answer, Assessment, Cause, ContextInjection, HookResult, Status


PRECEDENCE: Final[tuple[Action, ...]] = ("deny", "ask_user", "inject_context", "modify", "continue")
"""From the strictest to the mildest."""

RANK: Final = {action: rank for rank, action in enumerate(PRECEDENCE)}

OBJECTIONS: Final = ("deny", "ask_user")
"""Actions that count at a second look at changed data."""

CAUSES: Final[Mapping[Status, Cause]] = {
    "ok": "denied_by_hook",
    "error": "hook_error",
    "timeout": "hook_timeout",
    "invalid": "hook_invalid_output",
    "unavailable": "hook_unavailable",
    "disabled": "hook_unavailable",
    "conflict": "conflict",
}
"""Cause of a denial, by the status of the hook that denied."""

Item = TypeVar("Item")


def stricter(one: Action, other: Action) -> Action:
    """Return the stricter of two actions."""
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
    """Merge all answers to one event into one Outcome; `answers` are in the order they were given.

    `ran` names every hook that was reached, silent hooks included; by default, the hooks that answered. At a second
    look at changed data only denials, questions and risks count. Among equally strict answers the first decides,
    because a denial stops the others; the Outcome takes its reason, cause and name.
    """
    injections: list[ContextInjection] = []
    asks: list[Ask] = []
    messages: list[UserMessage] = []
    assessments: list[Assessment] = []
    strictest, decisive = PRECEDENCE[-1], None
    for answer in answers:
        result = answer.result if answer.status == "ok" else CONTINUE
        if result is CONTINUE and not answer.denies:
            continue  # it was slow or failed, and gave no answer
        if result.risk is not None or answer.registered is not None:
            _add(answer, assessments, answer.assessments)
        action = "deny" if answer.denies else result.action
        if answer.recheck and action not in OBJECTIONS:
            continue
        if result.context_injection or result.context_injections:
            _add(answer, injections, injections_of(result, answer.hook_name, event))
            action = stricter(action, "inject_context")  # an injection takes effect at any action
        if result.action == "ask_user":
            _add(answer, asks, [_ask(answer.hook_name, result)])
        if result.user_message:
            _add(answer, messages, [_message(answer.hook_name, result, result.user_message)])
        if decisive is None or RANK[action] < RANK[strictest]:
            strictest, decisive = action, answer
    denial = decisive if strictest == "deny" else None
    return Outcome(  # in the order of its fields: by name it takes twice as long
        event,
        data,
        ran or tuple(dict.fromkeys(answer.hook_name for answer in answers)),
        duration_ms,
        strictest,
        None if decisive is None else _reason(decisive),
        None if denial is None else denial.hook_name,
        None if denial is None else CAUSES[denial.status],
        modified,
        tuple(injections),
        tuple(asks),
        tuple(messages),
        tuple(answers),
        tuple(assessments),
    )


def refusal(outcome: Outcome, cause: Cause, by: str, reason: str) -> Outcome:
    """Return the outcome as denied by the registry itself; the answers of the hooks stay on record."""
    return replace(outcome, action="deny", reason=reason, denied_by=by, cause=cause)


def _reason(answer: Answer) -> str | None:
    """Return the reason that a hook gave. A failed hook gave none; if its failure denies, the error is the reason."""
    return answer.error if answer.denies else answer.result.reason


def _add(answer: Answer, items: list[Item], new: Iterable[Item]) -> None:
    """Keep the items of an answer. A second look mostly repeats items of the first; each is kept once."""
    items += [item for item in new if item not in items] if answer.recheck else new


def _ask(hook: str, result: HookResult) -> Ask:
    """Return a hook's question, with defaults for what the hook left out."""
    return Ask(
        hook_name=hook,
        prompt=result.approval_prompt or DEFAULT_PROMPT,
        options=tuple(result.approval_options or DEFAULT_OPTIONS),
        timeout=result.approval_timeout,
        default=result.approval_default,
        scope=result.approval_scope if result.approval_prompt else "action",
        key=result.approval_key,
    )


def _message(hook: str, result: HookResult, text: str) -> UserMessage:
    """Return a hook's message for the user, with its source."""
    return UserMessage(
        text=text,
        level=result.user_message_level,
        hook_name=hook,
        source=f"hook:{result.user_message_source or hook}",
    )
