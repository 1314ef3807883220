"""What is told about the hooks themselves: `hook:*`, from what is on record about each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks import events
from amplifier_hooks.events import IDENTITY_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.result import Answer


def reports(
    event: str, data: Mapping[str, Any], answers: Iterable[Answer], chain_ms: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Two events for each hook that was called: that it started, and how it ended. One that is disabled was not.

    Who and where is taken from the payload of the event they were called for. A hook whose own time was not worth
    measuring is given that of its chain.
    """
    about = {name: data[name] for name in IDENTITY_FIELDS.intersection(data)}
    if "event_id" in about:
        about["parent_id"] = about.pop("event_id")
    for answer in answers:
        if answer.status == "disabled":
            continue
        duration = chain_ms if answer.duration_ms is None else answer.duration_ms
        for name, facts in ((events.HOOK_START, {}), _ending(answer, duration)):
            told = {"hook_name": answer.hook_name, "event": event, "event_type": name.replace(":", "_")}
            yield name, {**about, **told, **facts}


def _ending(answer: Answer, duration_ms: float) -> tuple[str, dict[str, Any]]:
    if not answer.success:
        name = events.HOOK_TIMEOUT if answer.status == "timeout" else events.HOOK_FAILED
        behavior = "deny" if answer.denies else "continue"
        return name, {"error": answer.error or answer.status, "on_error_behavior": behavior, "duration_ms": duration_ms}
    if answer.action == "deny":
        return events.HOOK_BLOCKED, {"block_reason": answer.result.reason, "duration_ms": duration_ms}
    return events.HOOK_COMPLETE, {"action": answer.action, "duration_ms": duration_ms}
