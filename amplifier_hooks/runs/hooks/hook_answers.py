"""The meaning of the answers of run hooks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.definitions.kinds.event_codec import LARGEST_PAYLOAD, LONGEST_REASON
from amplifier_hooks.errors import InputNotFreezable, InvalidResult
from amplifier_hooks.result import HookResult, as_result
from amplifier_hooks.text.escape import clip, visible

if TYPE_CHECKING:
    from amplifier_hooks.runs.blueprint import Blueprint
    from amplifier_hooks.text.json_schema import Schema


NO_APPROVER: Final = "it asks a question, and before a run there is no approver to answer it"
NO_CONTEXT: Final = "it injects text, and before a run there is no context for it; change the parameters instead"
ONLY_PARAMETERS: Final = (
    "it changes something else than the parameters; return all of them, as modify({'parameters': …})"
)
FORMS: Final = "return {'action': 'continue', 'parameters': …} or {'action': 'block', 'block_reason': …}"
NO_REASON: Final = "it said no and gave no reason"
IMPOSSIBLE: Final[Mapping[object, str]] = {"ask_user": NO_APPROVER, "inject_context": NO_CONTEXT}
"""Answers that a run cannot carry out, and the reasons."""


def as_start_answer(given: object, blueprint: Blueprint) -> HookResult:
    """Read a start hook's answer: one of the two objects of a blueprint, or a `HookResult`.

    An answer that denies, asks or injects becomes a denial, in either form. Raise `InvalidResult` for every other form,
    and for parameters that are no JSON or do not fit the agent's schema; nothing is guessed.
    """
    fields = dict(given) if isinstance(given, Mapping) else {}
    action = fields.get("action", getattr(given, "action", None))
    if action in ("block", "deny"):
        reason = fields.get("block_reason", fields.get("reason", getattr(given, "reason", None)))
        return HookResult.deny(clip(reason, LONGEST_REASON) if isinstance(reason, str) and reason.strip() else None)
    if isinstance(action, str) and action in IMPOSSIBLE:
        return HookResult.deny(IMPOSSIBLE[action])
    if action is None and not fields:
        raise InvalidResult(f"an answer that is a {type(given).__name__}: {FORMS}")
    result = _going_on(fields, action) if fields and action != "modify" else as_result(given)
    if result.injects:
        return HookResult.deny(NO_CONTEXT)
    if result.action != "modify":
        return result
    data = result.data or {}
    if set(data) != {"parameters"} or not isinstance(data["parameters"], Mapping):
        return HookResult.deny(ONLY_PARAMETERS)
    try:
        return HookResult.modify({"parameters": thaw(freeze_parameters(blueprint, data["parameters"]))})
    except InvalidResult as problem:
        raise InvalidResult(f"parameters that do not fit {blueprint.name!r}: {problem}") from None


def _going_on(fields: Mapping[str, Any], action: object) -> HookResult:
    """Return the answer in the object with which a blueprint's hook lets a run go on. Raise `InvalidResult`."""
    if action != "continue":
        raise InvalidResult(f"an answer with action {visible(repr(action))[:60]}: it is 'continue' or 'block'")
    if odd := sorted(str(name) for name in fields.keys() - {"action", "parameters"}):
        raise InvalidResult(f"continue with {visible(odd[0])[:60]!r}: it has action and parameters, no more")
    if not isinstance(fields.get("parameters"), Mapping):
        raise InvalidResult("continue without parameters: return them all, changed or not, as one object")
    return HookResult.modify({"parameters": fields["parameters"]})


def as_finish_answer(given: object) -> None:
    """Accept an empty answer of a finish hook: `{}` or None. Raise `InvalidResult` for any other answer."""
    if given is not None and (not isinstance(given, Mapping) or given):
        raise InvalidResult("an answer of a finish hook: return {}; it can change nothing any more")


def freeze_parameters(blueprint: Blueprint, given: Mapping[str, Any]) -> bytes:
    """Return the parameters of a run as canonical JSON. Raise `InvalidResult` if the agent does not accept them."""
    return freeze_fitting(dict(given), blueprint.parameters_schema)


def freeze_fitting(value: Any, schema: Schema | None) -> bytes:
    """Return a value as canonical JSON. Raise `InvalidResult` if it is none, too large, or against the schema."""
    try:
        data = freeze(value)
    except InputNotFreezable as problem:
        raise InvalidResult(f"no plain JSON: {problem.problem}") from None
    if len(data) > LARGEST_PAYLOAD:
        raise InvalidResult(f"{len(data):,} bytes; at most {LARGEST_PAYLOAD:,} are kept")
    flaw = None if schema is None else schema.problem(thaw(data))
    if flaw is not None:
        raise InvalidResult(flaw)
    return data
