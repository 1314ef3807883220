"""What the hooks of a run are given, and what their answers mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.action import freeze, thaw
from amplifier_hooks.errors import InputNotFreezable, InvalidResult
from amplifier_hooks.escape import clip, visible
from amplifier_hooks.kinds.messages import LARGEST_PAYLOAD, LONGEST_REASON

if TYPE_CHECKING:
    from amplifier_hooks.runs.life import RunRecord

__all__ = ["StartAnswer", "as_finish_answer", "as_start_answer", "finish_input", "plain_parameters", "start_input"]

CONTINUES: Final = frozenset({"action", "parameters"})
BLOCKS: Final = frozenset({"action", "block_reason"})


@frozen
class StartAnswer:
    """Go on with these parameters; or do not, and why."""

    parameters: dict[str, Any] | None = None
    block_reason: str | None = None


def start_input(record: RunRecord, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What `on_run_start` receives."""
    return {
        "parameters": dict(parameters),
        "agent_name": record.agent,
        "session_id": record.session,
        "run_id": record.id,
    }


def finish_input(record: RunRecord) -> dict[str, Any]:
    """What `on_run_finish` receives: the parameters are those that ran."""
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
    """What a start hook's answer means. Raises `InvalidResult` for every other shape; nothing is guessed."""
    if not isinstance(given, Mapping):
        raise InvalidResult(
            f"an answer that is a {type(given).__name__}: return {{'action': 'continue', 'parameters': …}} "
            "or {'action': 'block', 'block_reason': …}"
        )
    fields, action = dict(given), given.get("action")
    if action == "continue":
        _only(fields, CONTINUES, "continue")
        if not isinstance(fields.get("parameters"), Mapping):
            raise InvalidResult("continue without parameters: return them all, changed or not, as one object")
        return StartAnswer(parameters=plain_parameters(fields["parameters"]))
    if action == "block":
        _only(fields, BLOCKS, "block")
        reason = fields.get("block_reason")
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidResult("block without a block_reason: say why, as a text")
        return StartAnswer(block_reason=clip(reason, LONGEST_REASON))
    raise InvalidResult(f"an answer with action {visible(repr(action))[:60]}: it is 'continue' or 'block'")


def as_finish_answer(given: object) -> None:
    """A finish hook says nothing: `{}`, or nothing at all. Raises `InvalidResult` for anything else."""
    if given is not None and (not isinstance(given, Mapping) or given):
        raise InvalidResult("an answer of a finish hook: return {}; it can change nothing any more")


def plain_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON holds them, and nobody else's any more. Raises `InvalidResult` for what it cannot hold."""
    try:
        data = freeze(dict(given))
    except InputNotFreezable as problem:
        raise InvalidResult(f"parameters that are no plain JSON: {problem.problem}") from None
    if len(data) > LARGEST_PAYLOAD:
        raise InvalidResult(f"parameters of {len(data):,} bytes: at most {LARGEST_PAYLOAD:,} are kept")
    return dict(thaw(data))  # type: ignore[call-overload, no-any-return]  # an object, as it was


def _only(fields: Mapping[str, Any], known: frozenset[str], action: str) -> None:
    odd = sorted(str(name) for name in fields if name not in known)
    if odd:
        raise InvalidResult(f"{action} with {visible(odd[0])[:60]!r}: it has {' and '.join(sorted(known))}, no more")
