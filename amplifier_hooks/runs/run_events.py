"""What is told of a run, in the order it happens: `hook_*` as RUN-12 has them, and `run_*` for the run itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from amplifier_hooks.runs.run_states import RunRecord


HookPoint = Literal["on_run_start", "on_run_finish"]
RunEventType = Literal[
    "run_queued",
    "run_starting",
    "run_ready",
    "run_running",
    "run_result",
    "run_stopping",
    "run_lost",
    "run_child",
    "run_completed",
    "run_failed",
    "run_stopped",
    "hook_start",
    "hook_complete",
    "hook_failed",
    "hook_blocked",
]
HOOK_EVENTS: Final[frozenset[RunEventType]] = frozenset({"hook_start", "hook_complete", "hook_failed", "hook_blocked"})


@frozen
class Told:
    """One thing to tell of a run, before it has its number. `at` is None for the moment it is kept."""

    type: RunEventType
    fields: Mapping[str, Any]
    at: datetime | None = None


@frozen
class RunEvent:
    """One thing that was told. `number` counts those of one run; `body` is all of it, as it is sent."""

    run: str
    number: int
    at: datetime
    type: RunEventType
    body: Mapping[str, Any]


def event_body(record: RunRecord, what: Told, now: datetime) -> dict[str, Any]:
    """The whole event."""
    return {
        "event_type": what.type,
        "session_id": record.session,
        "run_id": record.id,
        "timestamp": (what.at or now).isoformat(),
        **what.fields,
    }
