"""Hypothesis strategies for answers of hooks: results, answers on record, and the answers of a whole chain."""

from __future__ import annotations

from typing import Any, Final, get_args

from hypothesis import strategies as st

from amplifier_hooks.result import (
    ACTIONS,
    DEFAULTS,
    LEVELS,
    LONGEST,
    RISKS,
    ROLES,
    SCOPES,
    Answer,
    ContextInjection,
    HookResult,
    Status,
)

__all__ = ["FAILURES", "answers", "chains", "injections", "names", "results"]

FAILURES: Final = tuple(status for status in get_args(Status) if status != "ok")

names: Final = st.sampled_from(["lint", "scope", "secrets", "budget", "a b", "Ω"])
texts: Final = st.text(max_size=8)
words: Final = st.text(min_size=1, max_size=8)
flags: Final = st.booleans()
labels: Final = st.sampled_from(["Allow", "Allow once", "Allow always", "Deny", "Ask again"])
values: Final = st.none() | flags | st.integers() | texts

injections: Final = st.builds(
    ContextInjection,
    content=words,
    role=st.sampled_from(ROLES),
    ephemeral=flags,
    append_to_last_tool_result=flags,
    hook_name=names,  # forged: a hook may write anything there
    event=texts,
)


@st.composite
def results(draw: st.DrawFn) -> HookResult:
    """Any answer that can be built; each field is given or left out."""
    fields: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {"action": st.sampled_from(ACTIONS)},
            optional={
                "data": st.dictionaries(texts, values, max_size=3),
                "reason": texts,
                "context_injection": texts,
                "context_injection_role": st.sampled_from(ROLES),
                "ephemeral": flags,
                "append_to_last_tool_result": flags,
                "context_injections": st.lists(injections, max_size=3),
                "approval_prompt": texts,
                "approval_options": st.lists(labels, min_size=1, max_size=3, unique=True),
                "approval_timeout": st.floats(0, LONGEST) | st.integers(0, int(LONGEST)),
                "approval_default": st.sampled_from(DEFAULTS),
                "approval_scope": st.sampled_from(SCOPES),
                "approval_key": texts,
                "suppress_output": flags,
                "user_message": texts,
                "user_message_level": st.sampled_from(LEVELS),
                "user_message_source": texts,
                "risk": st.sampled_from(RISKS),
                "risk_reason": texts,
            },
        )
    )
    if "risk_reason" in fields:
        fields.setdefault("risk", "low")
    if fields["action"] == "modify":
        fields.setdefault("data", {})
    if fields["action"] == "inject_context" and not fields.get("context_injections"):
        fields["context_injection"] = fields.get("context_injection") or "text"
    return HookResult(**fields)


def _failed(status: Status, name: str, error: str, *, denies: bool, recheck: bool) -> Answer:
    return Answer(hook_name=name, status=status, error=error, denies=denies, recheck=recheck)


def answers(
    names: st.SearchStrategy[str] = names, rechecks: st.SearchStrategy[bool] = flags
) -> st.SearchStrategy[Answer]:
    """One hook's answer on record: its result, or its failure."""
    said = st.builds(Answer, hook_name=names, result=results(), duration_ms=st.floats(0, 1e6), recheck=rechecks)
    failed = st.builds(_failed, st.sampled_from(FAILURES), names, texts, denies=flags, recheck=rechecks)
    return said | failed


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Answer]]:
    """The hooks that a chain reached, with their answers on record, as a dispatcher leaves them.

    Some hooks stay silent, the first denial ends the chain, and gates may have had a second look.
    """
    reached = draw(st.lists(names, unique=True, max_size=6))
    said: list[Answer] = []
    for number, name in enumerate(reached):
        if draw(flags):
            answer = draw(answers(st.just(name), st.just(value=False)))
            said.append(answer)
            if answer.action == "deny":
                return tuple(reached[: number + 1]), said
    again = draw(st.lists(st.sampled_from(reached), unique=True)) if reached else []
    return tuple(reached), [*said, *(draw(answers(st.just(name), st.just(value=True))) for name in again)]
