"""What becomes of a run at a turn of its life, and what is told of that. Pure: the table judges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from amplifier_hooks.runs.run_events import Told
from amplifier_hooks.runs.run_states import MOST_ATTEMPTS, MOST_STARTS, RunRecord, RunRefusal, held, moved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from amplifier_hooks.runs.run_states import Holder
    from amplifier_hooks.runs.store.run_queries import Concluded


RunWrite = tuple[RunRecord, RunRecord, "Sequence[Told]"]
"""A run as it was read, what it has become, and what is told of that."""


def handed_to(stored: RunRecord, record: RunRecord, runner: str, lease: float, now: datetime, *more: Told) -> RunWrite:
    """A run in a runner's hands; `stored` is what the row still says."""
    after = held(sure(moved(record, "hand", now)), runner, lease, now)
    after = replace(after, handed=record.handed + 1, started=record.started or now)
    return stored, after, (*more, Told("run_running", {"runner": runner, "attempt": after.handed}))


def handed_back(record: RunRecord, now: datetime, by: Holder) -> RunWrite | RunRefusal:
    """A run of which its runner never heard: anybody's again, and not counted as one that its runner lost."""
    after = moved(record, "hand_back", now, by)
    if isinstance(after, RunRefusal):
        return after
    handed = record.handed - 1
    after = replace(after, handed=handed, started=record.started if handed else None)
    return record, after, (Told("run_ready", {}),)


def concluded_as(record: RunRecord, one: Concluded, lease: float, now: datetime) -> RunWrite | RunRefusal:
    """What becomes of a run whose start hooks are done."""
    passed = one.passed
    after = moved(record, "pass" if passed.error is None else "block", now, one.by)
    if isinstance(after, RunRefusal):
        return after
    hooked = record.hooked or bool(passed.told)
    if passed.error is not None:
        after = replace(after, hooked=hooked, error=passed.error, blocked=passed.blocked, holder=None)
        return record, after, (*passed.told, ended_told(after))
    changed = passed.parameters is not None and passed.parameters != record.parameters
    if changed or hooked is not record.hooked:
        after = replace(after, hooked=hooked, ran_with=passed.parameters if changed else None)
    if one.runner is not None:
        return handed_to(record, after, one.runner, lease, now, *passed.told)
    return record, after, (*passed.told, Told("run_ready", {}))


def result_told(record: RunRecord) -> dict[str, Any]:
    """What is told of a result."""
    return {"result_text": record.result_text, "result_data": record.result_data}


def ended_told(record: RunRecord) -> Told:
    """How a run ended, with everything that is known of it then."""
    fields = {"status": record.status, **result_told(record), "error": record.error}
    if record.blocked:
        fields["block_reason"] = record.error
    kinds: dict[str, Any] = {"completed": "run_completed", "failed": "run_failed", "stopped": "run_stopped"}
    return Told(kinds[record.stage], fields)


def taken_back(record: RunRecord, now: datetime) -> tuple[RunRecord, tuple[Told, ...]]:
    """What becomes of a run whose holder did not come back."""
    who = record.holder or "nobody"
    if record.stage == "starting" and record.begun >= MOST_STARTS:
        error = f"{record.begun} coordinators began its start hooks and were not heard of again"
        lost = Told("run_lost", {"holder": who, "error": f"{who} did not finish its start hook"})
        after = replace(sure(moved(record, "give_up", now)), error=error, holder=None)
        return after, (lost, ended_told(after))
    if record.stage == "starting":
        lost = Told("run_lost", {"holder": who, "error": f"{who} did not finish its start hook; it is taken up again"})
        return sure(moved(record, "drop", now)), (lost,)
    lost = Told("run_lost", {"holder": who, "error": f"runner {who} was not heard of in time"})
    if record.stopping:
        after = sure(moved(record, "lose", now))
        after = replace(sure(moved(after, "stop", now)), owes=True)
        return replace(after, version=record.version + 1), (lost, ended_told(after))
    if record.handed >= MOST_ATTEMPTS:
        error = f"{record.handed} runners had this run and were not heard of again"
        after = replace(sure(moved(record, "give_up", now)), error=error, owes=True)
        return after, (lost, ended_told(after))
    return sure(moved(record, "lose", now)), (lost,)


def sure(after: RunRecord | RunRefusal) -> RunRecord:
    """The record after a move that whoever asks knows to be possible."""
    if isinstance(after, RunRefusal):
        raise AssertionError(f"run {after.record.id!r} was read to be moved, and {after.reason}")  # noqa: TRY004  # not the caller's
    return after
