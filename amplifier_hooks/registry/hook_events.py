"""Makes the `hook:*` events from the recorded answers of hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks import events
from amplifier_hooks.events import IDENTITY_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.result import Answer


def hook_events(
    event: str, data: Mapping[str, Any], answers: Iterable[Answer], chain_ms: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield two events for each hook that was called, for its start and its end. A disabled hook was not called.

    The identity fields come from the payload of the event. A hook whose own duration was not measured gets the duration
    of its chain.
    """
    about = {name: data[name] for name in IDENTITY_FIELDS.intersection(data)}
    if "event_id" in about:
        about["parent_id"] = about.pop("event_id")
    for answer in answers:
        if answer.status == "disabled":
            continue
        duration = chain_ms if answer.duration_ms is None else answer.duration_ms
        for name, facts in ((events.HOOK_START, {}), _end_event(answer, duration)):
            names = {"hook_name": answer.hook_name, "event": event, "event_type": name.replace(":", "_")}
            yield name, {**about, **names, **facts}


def _end_event(answer: Answer, duration_ms: float) -> tuple[str, dict[str, Any]]:
    if not answer.success:
        name = events.HOOK_TIMEOUT if answer.status == "timeout" else events.HOOK_FAILED
        behavior = "deny" if answer.denies else "continue"
        return name, {"error": answer.error or answer.status, "on_error_behavior": behavior, "duration_ms": duration_ms}
    if answer.action == "deny":
        return events.HOOK_BLOCKED, {"block_reason": answer.result.reason, "duration_ms": duration_ms}
    would = {} if answer.would is None else {"would": answer.would.action}
    return events.HOOK_COMPLETE, {"action": answer.action, **would, "duration_ms": duration_ms}
