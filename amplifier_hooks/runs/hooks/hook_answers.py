"""The input of run hooks, and the meaning of their answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.definitions.kinds.event_codec import LARGEST_PAYLOAD, LONGEST_REASON
from amplifier_hooks.errors import InputNotFreezable, InvalidResult
from amplifier_hooks.result import HookResult, as_result
from amplifier_hooks.text.escape import clip, visible

if TYPE_CHECKING:
    from amplifier_hooks.runs.run_states import RunRecord


CONTINUES: Final = frozenset({"action", "parameters"})

NO_APPROVER: Final = "it asks a question, and before a run there is no approver to answer it"
NO_CONTEXT: Final = "it injects text, and before a run there is no context for it; change the parameters instead"
ONLY_PARAMETERS: Final = (
    "it changes something else than the parameters; return all of them, as modify({'parameters': …})"
)
NO_REASON: Final = "it said no and gave no reason"
IMPOSSIBLE: Final[Mapping[object, str]] = {"ask_user": NO_APPROVER, "inject_context": NO_CONTEXT}
"""Answers that a run cannot carry out, and the reasons."""


@frozen
class StartAnswer:
    """An answer that lets a run start, with new parameters if there are any, or that blocks it with a reason."""

    parameters: dict[str, Any] | None = None
    block_reason: str | None = None


def start_input(record: RunRecord, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of `on_run_start`."""
    return {
        "parameters": dict(parameters),
        "agent_name": record.agent,
        "session_id": record.session,
        "run_id": record.id,
    }


def finish_input(record: RunRecord) -> dict[str, Any]:
    """Return the input of `on_run_finish`. The parameters are those that ran."""
    return {
        "parameters": dict(record.effective),
        "result_text": record.result_text,
        "result_data": record.result_data,
        "status": record.status,
        "error": record.error,
        "session_id": record.session,
        "run_id": record.id,
        "agent_name": record.agent,
    }


def as_start_answer(given: object) -> StartAnswer:
    """Read a start hook's answer: one of the two objects of a blueprint, or a `HookResult`.

    An answer that denies, asks or injects blocks the run, in either form. Raise `InvalidResult` for every other form;
    nothing is guessed.
    """
    if isinstance(given, Mapping):
        fields, action = dict(given), given.get("action")
        if action == "continue":
            _only(fields, CONTINUES, "continue")
            if not isinstance(fields.get("parameters"), Mapping):
                raise InvalidResult("continue without parameters: return them all, changed or not, as one object")
            return StartAnswer(parameters=plain_parameters(fields["parameters"]))
        if action != "modify":
            refusal = _refusal(action, fields.get("block_reason", fields.get("reason")))
            if refusal is None:
                raise InvalidResult(f"an answer with action {visible(repr(action))[:60]}: it is 'continue' or 'block'")
            return StartAnswer(block_reason=refusal)
    elif not hasattr(given, "action"):
        raise InvalidResult(
            f"an answer that is a {type(given).__name__}: return {{'action': 'continue', 'parameters': …}} "
            "or {'action': 'block', 'block_reason': …}"
        )
    return _start_answer(as_result(given))


def _start_answer(result: HookResult) -> StartAnswer:
    """Return the answer in a `HookResult`. Raise `InvalidResult` for parameters that JSON cannot hold."""
    refusal = _refusal(result.action, result.reason) or (NO_CONTEXT if result.injects else None)
    if refusal is None and result.action == "modify":
        data = result.data or {}
        if set(data) == {"parameters"} and isinstance(data["parameters"], Mapping):
            return StartAnswer(parameters=plain_parameters(data["parameters"]))
        refusal = ONLY_PARAMETERS
    return StartAnswer(block_reason=refusal)


def _refusal(action: object, reason: object) -> str | None:
    """Return the reason why an answer keeps a run from starting, or None if it does not."""
    if action in ("block", "deny"):
        return clip(reason, LONGEST_REASON) if isinstance(reason, str) and reason.strip() else NO_REASON
    return IMPOSSIBLE.get(action) if isinstance(action, str) else None


def as_finish_answer(given: object) -> None:
    """Accept an empty answer of a finish hook: `{}` or None. Raise `InvalidResult` for any other answer."""
    if given is not None and (not isinstance(given, Mapping) or given):
        raise InvalidResult("an answer of a finish hook: return {}; it can change nothing any more")


def plain_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the parameters as plain JSON. Raise `InvalidResult` for values that JSON cannot hold."""
    try:
        data = freeze(dict(given))
    except InputNotFreezable as problem:
        raise InvalidResult(f"parameters that are no plain JSON: {problem.problem}") from None
    if len(data) > LARGEST_PAYLOAD:
        raise InvalidResult(f"parameters of {len(data):,} bytes: at most {LARGEST_PAYLOAD:,} are kept")
    return dict(thaw(data))  # type: ignore[call-overload, no-any-return]  # an object, as before


def _only(fields: Mapping[str, Any], known: frozenset[str], action: str) -> None:
    odd = sorted(str(name) for name in fields if name not in known)
    if odd:
        raise InvalidResult(f"{action} with {visible(odd[0])[:60]!r}: it has {' and '.join(sorted(known))}, no more")
