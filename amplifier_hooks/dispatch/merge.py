"""Several answers → one Outcome. Pure; precedence is a table.

Precedence decides only what the Outcome reports as its `action`. Every injection, question, message and risk of every
hook is carried along whatever the action turns out to be, and the data is whatever the modifications made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from amplifier_hooks.result import CONTINUE, DEFAULT_OPTIONS, DEFAULT_PROMPT, Ask, Outcome, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amplifier_hooks.result import Action, Answer, Assessment, Cause, ContextInjection, Status


PRECEDENCE: Final[tuple[Action, ...]] = ("deny", "ask_user", "inject_context", "modify", "continue")
"""From the strictest to the mildest."""

RANK: Final = {action: rank for rank, action in enumerate(PRECEDENCE)}

OBJECTIONS: Final = ("deny", "ask_user")
"""What counts of a second look at changed data."""

CAUSES: Final[Mapping[Status, Cause]] = {
    "ok": "denied_by_hook",
    "error": "hook_error",
    "timeout": "hook_timeout",
    "invalid": "hook_invalid_output",
    "unavailable": "hook_unavailable",
    "disabled": "hook_unavailable",
}
"""Why something was denied, by what became of the hook that denied it."""

Item = TypeVar("Item")


def stricter(one: Action, other: Action) -> Action:
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

    `ran` names every hook that was reached, silent ones included; without it, the hooks that answered are those.
    Of a second look at changed data only denials, questions and risks count. Of equally strict answers the first
    decides, because a denial stops the others; reason, cause and name are its own.
    """
    injections: list[ContextInjection] = []
    asks: list[Ask] = []
    messages: list[UserMessage] = []
    assessments: list[Assessment] = []
    strictest, decisive = PRECEDENCE[-1], None
    for answer in answers:
        said = answer.result if answer.status == "ok" else CONTINUE
        if said is CONTINUE and not answer.denies:
            continue  # it took its time, or failed, and had nothing to say
        if said.risk is not None or answer.registered is not None:
            _add(answer, assessments, answer.assessments)
        action = "deny" if answer.denies else said.action
        if answer.recheck and action not in OBJECTIONS:
            continue
        if said.context_injection or said.context_injections:
            _add(answer, injections, (_attribute(item, answer, event) for item in said.injections))
            action = stricter(action, "inject_context")  # it takes effect whatever the answer's own action is
        if said.action == "ask_user":
            _add(answer, asks, [_ask(answer)])
        if said.user_message:
            _add(answer, messages, [_message(answer, said.user_message)])
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
    """The same outcome, denied by the registry itself; what the hooks said stays on record."""
    return replace(outcome, action="deny", reason=reason, denied_by=by, cause=cause)


def _reason(answer: Answer) -> str | None:
    """The reason a hook gave. One that failed gave none; if that denies, what went wrong is the reason."""
    return answer.error if answer.denies else answer.result.reason


def _add(answer: Answer, items: list[Item], new: Iterable[Item]) -> None:
    """Keep what an answer brought. A second look mostly says again what the first one said; that is kept once."""
    items += [item for item in new if item not in items] if answer.recheck else new


def _attribute(item: ContextInjection, answer: Answer, event: str) -> ContextInjection:
    """A text with its hook as we know it: what the hook wrote there about itself is overwritten."""
    return replace(item, hook_name=answer.hook_name, event=event)


def _ask(answer: Answer) -> Ask:
    """A hook's question; what the hook left out has a default here."""
    said = answer.effective_result
    return Ask(
        hook_name=answer.hook_name,
        prompt=said.approval_prompt or DEFAULT_PROMPT,
        options=tuple(said.approval_options or DEFAULT_OPTIONS),
        timeout=said.approval_timeout,
        default=said.approval_default,
        scope=said.approval_scope if said.approval_prompt else "action",
        key=said.approval_key,
    )


def _message(answer: Answer, text: str) -> UserMessage:
    """A hook's message for the user, and who says so."""
    said = answer.effective_result
    return UserMessage(
        text=text,
        level=said.user_message_level,
        hook_name=answer.hook_name,
        source=f"hook:{said.user_message_source or answer.hook_name}",
    )
