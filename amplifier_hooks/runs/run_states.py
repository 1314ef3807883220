"""A run's life as one table. Pure: the time is an argument.

    queued ─ begin ─▶ starting ─ pass ─▶ ready ─ hand ─▶ running ─ end ─▶ completed, failed, stopped
       │ ▲               │                 ▲ │              │
       │ └──── drop ─────┤                 │ │              ├─ lose ─▶ ready, or failed after the last attempt
       │                 └─ block ▶ failed └─┼── lose ──────┘
       ├─ hand ──────────────────────────────┼▶ running ─ hand_back ─▶ ready
       └─────────────────── stop ────────────┴▶ stopped

Whoever does something for a run holds it for a while: a coordinator while its start hooks run, a runner while the agent
does. A hold has a holder, a number and an end. It is renewed; once it is over, anybody may `drop` or `lose` the run,
and what its last holder says does not count any more when somebody else holds it. What has ended never moves again.

What becomes of a run at a turn of its life, and what is told of that. Pure: the table judges.

What is told of a run, in the order it happens: `hook_*` as RUN-12 has them, and `run_*` for the run itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec
from attrs import frozen
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
MOST_ATTEMPTS: Final = 3
"""Runners that may have a run in their hands before it counts as one that ends its runners."""
MOST_STARTS: Final = 5
"""Coordinators that may begin its start hooks before they count as hooks that end their coordinators."""

STATUS_OF: Final[Mapping[Stage, RunStatus]] = {
    "queued": "queued",
    "starting": "starting",
    "ready": "starting",  # the hooks are done, and no runner has it yet
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "stopped": "stopped",
}
"""What is told of a stage."""


@frozen
class MoveRule:
    """One row of the table: from where, to where (None: it stays), and whose hold is needed.

    `own`: of whoever asks. `over`: its time is up, or nobody has it. `any`: it does not matter.
    """

    sources: frozenset[Stage]
    target: Stage | None
    hold: Hold = "any"


MOVES: Final[Mapping[RunMove, MoveRule]] = {
    "begin": MoveRule(frozenset({"queued"}), "starting"),
    "pass": MoveRule(frozenset({"starting"}), "ready", "own"),
    "block": MoveRule(frozenset({"starting"}), "failed", "own"),
    "drop": MoveRule(frozenset({"starting"}), "queued", "over"),  # whoever notices
    "hand": MoveRule(frozenset({"queued", "ready"}), "running"),
    "renew": MoveRule(frozenset({"starting", "running"}), None, "own"),
    "report": MoveRule(frozenset({"running", "ready"}), None, "own"),
    "complete": MoveRule(frozenset({"running", "ready"}), "completed", "own"),
    "fail": MoveRule(frozenset({"running", "ready"}), "failed", "own"),
    "halt": MoveRule(frozenset({"running", "ready"}), "stopped", "own"),
    "lose": MoveRule(frozenset({"running"}), "ready", "over"),
    "give_up": MoveRule(frozenset({"starting", "running"}), "failed", "over"),
    "hand_back": MoveRule(frozenset({"running"}), "ready", "own"),  # nobody could tell the runner that it has it
    "stop": MoveRule(frozenset({"queued", "starting", "ready"}), "stopped"),
}

END_OF: Final[Mapping[RunEnding, RunMove]] = {"completed": "complete", "failed": "fail", "stopped": "halt"}
"""The move with which a runner ends a run so."""


@frozen
class Holder:
    """Somebody who has a run, and the number of that hold."""

    name: str
    attempt: int


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run and what became of it so far.

    `parameters` are those it was sent with; `ran_with` those the start hooks made of them, None where they made
    nothing. `attempt` numbers the holds, `handed` those of runners. `bare` runs have no run hooks: they are a hook's
    own agent. `urgent` ones are waited for by the start hook of another.
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
    """Its blueprint names hooks, or the registry's had something to say."""
    blocked: bool = False
    stage: Stage = "queued"
    version: int = 1
    events: int = 0
    """How many there are."""
    failures: int = 0
    """How many of its hooks failed."""
    attempt: int = 0
    handed: int = 0
    holder: str | None = None
    held_until: datetime | None = None
    stopping: bool = False
    """Somebody wants it stopped, and its runner has to do that."""
    ran_with: Mapping[str, Any] | None = None
    reported: bool = False
    result_text: str | None = None
    result_data: Any = None
    error: str | None = None
    started: datetime | None = None
    """When a runner first got it."""
    ended: datetime | None = None
    owes: bool = False
    """It ended, and its finish hooks have not run yet."""

    @property
    def status(self) -> RunStatus:
        """What is told of it."""
        return STATUS_OF[self.stage]

    @property
    def start_count(self) -> int:
        """How often its start hooks were begun."""
        return self.attempt - self.handed

    @property
    def effective(self) -> Mapping[str, Any]:
        """The parameters it runs with, or ran with."""
        return self.parameters if self.ran_with is None else self.ran_with


@frozen
class RunRefusal:
    """Why a move did not happen; `record` is what is so instead."""

    record: RunRecord
    reason: str


def move_run(record: RunRecord, move: RunMove, now: datetime, by: Holder | None = None) -> RunRecord | RunRefusal:
    """The record after a move, with stage, version and hold set; or why it cannot be made.

    `by` is whoever asks. A hold that is over still counts as long as nobody else has taken the run.
    """
    row = MOVES[move]
    if record.stage not in row.sources:
        return RunRefusal(
            record, f"it is {record.status} already" if record.stage in ENDED else f"it is {record.status}"
        )
    if row.hold == "own" and (by is None or (by.name, by.attempt) != (record.holder, record.attempt)):
        return RunRefusal(record, "somebody else has it by now")
    if row.hold == "over" and not is_over(record, now):
        return RunRefusal(record, f"{record.holder} has it")
    if row.target is None:
        return replace(record, version=record.version + 1)
    return replace(
        record,
        stage=row.target,
        version=record.version + 1,
        ended=now if row.target in ENDED else None,
        holder=record.holder if row.target in ENDED or move == "lose" else None,  # who had it last
        held_until=None,
    )


def is_over(record: RunRecord, now: datetime) -> bool:
    """Whether nobody holds it any more."""
    return record.held_until is None or record.held_until <= now


def hold_run(record: RunRecord, holder: str, seconds: float, now: datetime) -> RunRecord:
    """The record in somebody's hands, under a new number."""
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


@frozen
class NewRunEvent:
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


def event_body(record: RunRecord, what: NewRunEvent, now: datetime) -> dict[str, Any]:
    """The whole event."""
    return {
        "event_type": what.type,
        "session_id": record.session,
        "run_id": record.id,
        "timestamp": (what.at or now).isoformat(),
        **what.fields,
    }


RunWrite = tuple[RunRecord, RunRecord, "Sequence[NewRunEvent]"]
"""A run as it was read, what it has become, and what is told of that."""


def hand_to_runner(
    stored: RunRecord, record: RunRecord, runner: str, lease: float, now: datetime, *more: NewRunEvent
) -> RunWrite:
    """A run in a runner's hands; `stored` is what the row still says."""
    after = hold_run(expect_record(move_run(record, "hand", now)), runner, lease, now)
    after = replace(after, handed=record.handed + 1, started=record.started or now)
    return stored, after, (*more, NewRunEvent("run_running", {"runner": runner, "attempt": after.handed}))


def hand_back_run(record: RunRecord, now: datetime, by: Holder) -> RunWrite | RunRefusal:
    """A run of which its runner never heard: anybody's again, and not counted as one that its runner lost."""
    after = move_run(record, "hand_back", now, by)
    if isinstance(after, RunRefusal):
        return after
    handed = record.handed - 1
    after = replace(after, handed=handed, started=record.started if handed else None)
    return record, after, (NewRunEvent("run_ready", {}),)


def conclude_run(record: RunRecord, one: StartConclusion, lease: float, now: datetime) -> RunWrite | RunRefusal:
    """What becomes of a run whose start hooks are done."""
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
    """What is told of a result."""
    return {"result_text": record.result_text, "result_data": record.result_data}


def end_event(record: RunRecord) -> NewRunEvent:
    """How a run ended, with everything that is known of it then."""
    fields = {"status": record.status, **result_fields(record), "error": record.error}
    if record.blocked:
        fields["block_reason"] = record.error
    kinds: dict[str, Any] = {"completed": "run_completed", "failed": "run_failed", "stopped": "run_stopped"}
    return NewRunEvent(kinds[record.stage], fields)


def take_back_run(record: RunRecord, now: datetime) -> tuple[RunRecord, tuple[NewRunEvent, ...]]:
    """What becomes of a run whose holder did not come back."""
    who = record.holder or "nobody"
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
    """The record after a move that whoever asks knows to be possible."""
    if isinstance(after, RunRefusal):
        raise AssertionError(f"run {after.record.id!r} was read to be moved, and {after.reason}")  # noqa: TRY004  # not the caller's
    return after
