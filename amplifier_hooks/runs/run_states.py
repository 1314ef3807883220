"""The life of a run as one table, its moves, and the events that report them. Pure: the time is an argument.

    queued ─ begin ─▶ starting ─ pass ─▶ ready ─ hand ─▶ running ─ end ─▶ completed, failed, stopped
       │ ▲               │                 ▲ │              │
       │ └──── drop ─────┤                 │ │              ├─ lose ─▶ ready, or failed after the last attempt
       │                 └─ block ▶ failed └─┼── lose ──────┘
       ├─ hand ──────────────────────────────┼▶ running ─ hand_back ─▶ ready
       └─────────────────── stop ────────────┴▶ stopped

A holder works on a run for a limited time: a coordinator while its start hooks run, a runner while its agent works. A
hold has a holder, a number and an end, and is renewed. Once it is over, every coordinator may `drop` or `lose` the run,
and reports of the last holder no longer count when another one holds the run. A run that has ended never moves again.

Events come in the order in which they happen: `hook_*` as RUN-12 defines them, and `run_*` for the run itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.runs.store.run_rows import StartConclusion


Stage = Literal["queued", "starting", "ready", "running", "completed", "failed", "stopped"]
RunStatus = Literal["queued", "starting", "running", "completed", "failed", "stopped"]
RunEnding = Literal["completed", "failed", "stopped"]
Hold = Literal["own", "over", "any"]
RunMove = Literal[
    "begin",
    "pass",
    "block",
    "drop",
    "hand",
    "hand_back",
    "renew",
    "report",
    "complete",
    "fail",
    "halt",
    "lose",
    "give_up",
    "stop",
]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
ENDINGS: Final[tuple[RunEnding, ...]] = get_args(RunEnding)
ENDED: Final[frozenset[Stage]] = frozenset(ENDINGS)
STOP_REASON: Final = "stopped on request"
MOST_ATTEMPTS: Final = 3
"""Runners that may hold a run before the run counts as one that ends its runners."""
MOST_STARTS: Final = 5
"""Coordinators that may begin the start hooks of a run before the hooks count as ones that end their coordinators."""

STATUS_OF: Final[Mapping[Stage, RunStatus]] = {
    "queued": "queued",
    "starting": "starting",
    "ready": "starting",  # the hooks are done, and no runner has it yet
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "stopped": "stopped",
}
"""The status that callers see in each stage."""


class MoveRule(msgspec.Struct, frozen=True):
    """One row of the table: the source stages, the target stage (None: the stage stays), and the required hold.

    `own`: the caller holds the run. `over`: the hold has expired, or the run has no holder. `any`: the hold does not
    matter.
    """

    sources: frozenset[Stage]
    target: Stage | None
    hold: Hold = "any"


MOVES: Final[Mapping[RunMove, MoveRule]] = {
    "begin": MoveRule(frozenset({"queued"}), "starting"),
    "pass": MoveRule(frozenset({"starting"}), "ready", "own"),
    "block": MoveRule(frozenset({"starting"}), "failed", "own"),
    "drop": MoveRule(frozenset({"starting"}), "queued", "over"),  # any coordinator that notices
    "hand": MoveRule(frozenset({"queued", "ready"}), "running"),
    "renew": MoveRule(frozenset({"starting", "running"}), None, "own"),
    "report": MoveRule(frozenset({"running", "ready"}), None, "own"),
    "complete": MoveRule(frozenset({"running", "ready"}), "completed", "own"),
    "fail": MoveRule(frozenset({"running", "ready"}), "failed", "own"),
    "halt": MoveRule(frozenset({"running", "ready"}), "stopped", "own"),
    "lose": MoveRule(frozenset({"running"}), "ready", "over"),
    "give_up": MoveRule(frozenset({"starting", "running"}), "failed", "over"),
    "hand_back": MoveRule(frozenset({"running"}), "ready", "own"),  # the runner did not receive the run
    "stop": MoveRule(frozenset({"queued", "starting", "ready"}), "stopped"),
}

END_OF: Final[Mapping[RunEnding, RunMove]] = {"completed": "complete", "failed": "fail", "stopped": "halt"}
"""The move with which a runner brings a run to each ending."""


class Holder(msgspec.Struct, frozen=True):
    """A coordinator or runner that holds a run, and the number of its hold."""

    name: str
    attempt: int


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run and its state so far.

    `parameters` are those of the submission; `ran_with` are those that the start hooks made of them, None if they
    changed nothing. `attempt` numbers the holds, `handed` those of runners. `bare` runs have no run hooks: they are a
    hook's own agent. The start hook of another run waits for an `urgent` run.
    """

    id: str
    tenant: str
    session: str
    agent: str
    parameters: Mapping[str, Any]
    created: datetime
    parent: str | None = None
    parent_session: str | None = None
    depth: int = 0
    bare: bool = False
    urgent: bool = False
    hooked: bool = False
    """True if the blueprint names hooks, or hooks of the registry took part."""
    blocked: bool = False
    stage: Stage = "queued"
    version: int = 1
    events: int = 0
    """Number of events of the run."""
    failures: int = 0
    """Number of hooks that failed."""
    attempt: int = 0
    handed: int = 0
    holder: str | None = None
    held_until: datetime | None = None
    stopping: bool = False
    """True if the run is to stop; its runner has to stop it."""
    ran_with: Mapping[str, Any] | None = None
    reported: bool = False
    result_text: str | None = None
    result_data: Any = None
    error: str | None = None
    started: datetime | None = None
    """Time at which a runner first got the run."""
    ended: datetime | None = None
    owes: bool = False
    """True if the run has ended, and its finish hooks have not run yet."""

    @property
    def status(self) -> RunStatus:
        """The status that callers see."""
        return STATUS_OF[self.stage]

    @property
    def start_count(self) -> int:
        """Number of times the start hooks were begun."""
        return self.attempt - self.handed

    @property
    def effective(self) -> Mapping[str, Any]:
        """The parameters with which the run runs, or ran."""
        return self.parameters if self.ran_with is None else self.ran_with


class RunRefusal(msgspec.Struct, frozen=True):
    """The reason why a move was refused; `record` is the run as it is."""

    record: RunRecord
    reason: str


def move_run(record: RunRecord, move: RunMove, now: datetime, by: Holder | None = None) -> RunRecord | RunRefusal:
    """Return the record after a move, with stage, version and hold set, or a `RunRefusal` if the move is impossible.

    `by` is the caller. An expired hold still counts until another holder has taken the run.
    """
    row = MOVES[move]
    if record.stage not in row.sources:
        return RunRefusal(
            record, f"it is {record.status} already" if record.stage in ENDED else f"it is {record.status}"
        )
    if row.hold == "own" and (by is None or (by.name, by.attempt) != (record.holder, record.attempt)):
        return RunRefusal(record, "another holder has it by now")
    if row.hold == "over" and not is_over(record, now):
        return RunRefusal(record, f"{record.holder} has it")
    if row.target is None:
        return replace(record, version=record.version + 1)
    return replace(
        record,
        stage=row.target,
        version=record.version + 1,
        ended=now if row.target in ENDED else None,
        holder=record.holder if row.target in ENDED or move == "lose" else None,  # the last holder
        held_until=None,
    )


def is_over(record: RunRecord, now: datetime) -> bool:
    """Return True if the hold of the run has expired, or there is none."""
    return record.held_until is None or record.held_until <= now


def hold_run(record: RunRecord, holder: str, seconds: float, now: datetime) -> RunRecord:
    """Return the record under a new hold, with a new number."""
    until = now + timedelta(seconds=seconds)
    return replace(record, holder=holder, held_until=until, attempt=record.attempt + 1)


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


class NewRunEvent(msgspec.Struct, frozen=True):
    """One event of a run, before it has a number. `at` is None for the time at which the event is stored."""

    type: RunEventType
    fields: Mapping[str, Any]
    at: datetime | None = None


class RunEvent(msgspec.Struct, frozen=True):
    """One stored event of a run. `number` counts the events of that run; `body` is the whole event, as it is sent."""

    run: str
    number: int
    at: datetime
    type: RunEventType
    body: Mapping[str, Any]


def event_body(record: RunRecord, what: NewRunEvent, now: datetime) -> dict[str, Any]:
    """Return the whole event, as it is sent."""
    return {
        "event_type": what.type,
        "session_id": record.session,
        "run_id": record.id,
        "timestamp": (what.at or now).isoformat(),
        **what.fields,
    }


RunWrite = tuple[RunRecord, RunRecord, "Sequence[NewRunEvent]"]
"""A run as it was read, the run after the change, and the events of the change."""


def hand_to_runner(
    stored: RunRecord, record: RunRecord, runner: str, lease: float, now: datetime, *more: NewRunEvent
) -> RunWrite:
    """Return the change that puts a run into a runner's hands. `stored` is the run as its row still has it."""
    after = hold_run(expect_record(move_run(record, "hand", now)), runner, lease, now)
    after = replace(after, handed=record.handed + 1, started=record.started or now)
    return stored, after, (*more, NewRunEvent("run_running", {"runner": runner, "attempt": after.handed}))


def hand_back_run(record: RunRecord, now: datetime, by: Holder) -> RunWrite | RunRefusal:
    """Return the change that gives back a run whose runner never received it.

    Any runner may claim the run again, and it does not count as lost by its runner.
    """
    after = move_run(record, "hand_back", now, by)
    if isinstance(after, RunRefusal):
        return after
    handed = record.handed - 1
    after = replace(after, handed=handed, started=record.started if handed else None)
    return record, after, (NewRunEvent("run_ready", {}),)


def conclude_run(record: RunRecord, one: StartConclusion, lease: float, now: datetime) -> RunWrite | RunRefusal:
    """Return the change of a run whose start hooks are done, or a refusal."""
    passed = one.passed
    after = move_run(record, "pass" if passed.error is None else "block", now, one.by)
    if isinstance(after, RunRefusal):
        return after
    hooked = record.hooked or bool(passed.told)
    if passed.error is not None:
        after = replace(after, hooked=hooked, error=passed.error, blocked=passed.blocked, holder=None)
        return record, after, (*passed.told, end_event(after))
    changed = passed.parameters is not None and passed.parameters != record.parameters
    if changed or hooked is not record.hooked:
        after = replace(after, hooked=hooked, ran_with=passed.parameters if changed else None)
    if one.runner is not None:
        return hand_to_runner(record, after, one.runner, lease, now, *passed.told)
    return record, after, (*passed.told, NewRunEvent("run_ready", {}))


def result_fields(record: RunRecord) -> dict[str, Any]:
    """Return the fields that describe a result."""
    return {"result_text": record.result_text, "result_data": record.result_data}


def end_event(record: RunRecord) -> NewRunEvent:
    """Return the event of a run's end, with everything that is known then."""
    fields = {"status": record.status, **result_fields(record), "error": record.error}
    if record.blocked:
        fields["block_reason"] = record.error
    kinds: dict[str, Any] = {"completed": "run_completed", "failed": "run_failed", "stopped": "run_stopped"}
    return NewRunEvent(kinds[record.stage], fields)


def take_back_run(record: RunRecord, now: datetime) -> tuple[RunRecord, tuple[NewRunEvent, ...]]:
    """Return the run and the events after its holder did not come back."""
    who = record.holder or "an unknown holder"
    if record.stage == "starting" and record.start_count >= MOST_STARTS:
        error = f"{record.start_count} coordinators began its start hooks and were not heard of again"
        lost = NewRunEvent("run_lost", {"holder": who, "error": f"{who} did not finish its start hook"})
        after = replace(expect_record(move_run(record, "give_up", now)), error=error, holder=None)
        return after, (lost, end_event(after))
    if record.stage == "starting":
        lost = NewRunEvent(
            "run_lost", {"holder": who, "error": f"{who} did not finish its start hook; it is taken up again"}
        )
        return expect_record(move_run(record, "drop", now)), (lost,)
    lost = NewRunEvent("run_lost", {"holder": who, "error": f"runner {who} was not heard of in time"})
    if record.stopping:
        after = expect_record(move_run(record, "lose", now))
        after = replace(expect_record(move_run(after, "stop", now)), owes=True)
        return replace(after, version=record.version + 1), (lost, end_event(after))
    if record.handed >= MOST_ATTEMPTS:
        error = f"{record.handed} runners had this run and were not heard of again"
        after = replace(expect_record(move_run(record, "give_up", now)), error=error, owes=True)
        return after, (lost, end_event(after))
    return expect_record(move_run(record, "lose", now)), (lost,)


def expect_record(after: RunRecord | RunRefusal) -> RunRecord:
    """Return the record after a move that the caller knows to be possible."""
    if isinstance(after, RunRefusal):
        raise AssertionError(f"run {after.record.id!r} had to move: {after.reason}")  # noqa: TRY004  # not the caller's
    return after
