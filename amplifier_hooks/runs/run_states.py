"""The life of a run as one table, its moves, and the events that report them. Pure: the time is an argument.

    queued ─ begin ─▶ starting ─ pass ─▶ ready ─ hand ─▶ running ─ end ─▶ completed, failed, stopped
       │ ▲               │                 ▲ │              │
       │ └──── drop ─────┤                 │ │              ├─ lose ─▶ ready, or failed after the last attempt
       │                 └─ block ▶ failed └─┼── lose ──────┘
       ├─ hand ──────────────────────────────┼▶ running
       └─────────────────── stop ────────────┴▶ stopped

A holder works on a run for a limited time: a coordinator while its start hooks run, a runner while its agent works. A
hold has a holder, a number and an end, and is renewed. Once it is over, every coordinator may `drop` or `lose` the run,
and reports of the last holder no longer count when another one holds the run. A run that has ended never moves again.

The functions `…_run` take a run as it is stored and the time, and return a `Change` or raise `RunMoved`; the store
carries them out (`RunStore.change`). Events come in the order in which they happen: `hook_*` as RUN-12 defines them,
and `run_*` for the run itself.

```
RunRefused (HookError)          the request has no effect; the reason says why
├── UnknownAgent (LookupError)  there is no blueprint of that name
├── UnknownRun (LookupError)    there is no such run, or it belongs to another tenant
├── UnknownSession (LookupError)  there is no such session to continue
├── ParametersRefused (ValueError)  parameters that do not fit the agent's schema
├── ResultRefused (ValueError)  a result of another kind than the agent's, or against its schema
├── AgentsTooDeep               agents start agents that start agents …
└── RunMoved                    the run is in another state, or another runner holds it
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import HookError

Stage = Literal["queued", "starting", "ready", "running", "completed", "failed", "stopped"]
RunStatus = Literal["queued", "starting", "running", "completed", "failed", "stopped"]
RunEnding = Literal["completed", "failed", "stopped"]
HookPoint = Literal["on_run_start", "on_run_finish"]

ENDED: Final[frozenset[Stage]] = frozenset(get_args(RunEnding))
STOP_REASON: Final = "stopped on request"
MOST_ATTEMPTS: Final = 3
"""Runners that may hold a run before the run counts as one that ends its runners."""
MOST_STARTS: Final = 5
"""Coordinators that may begin the start hooks of a run before the hooks count as ones that end their coordinators."""


class RunRefused(HookError):
    """A request about a run that has no effect."""


class UnknownAgent(RunRefused, LookupError):
    """An agent without a blueprint."""


class UnknownRun(RunRefused, LookupError):
    """A run that does not exist, or that the caller may not see."""

    def __init__(self, run: str) -> None:
        super().__init__(f"there is no run {run!r:.80}")


class UnknownSession(RunRefused, LookupError):
    """A session in which no run of this tenant exists."""


class ParametersRefused(RunRefused, ValueError):
    """Parameters that do not fit the schema of their agent.

    Args:
        agent: Name of the agent.
        problem: Place in the parameters, and its flaw.
    """

    def __init__(self, agent: str, problem: str) -> None:
        self.problem = problem
        super().__init__(f"these are no parameters for {agent!r}: {problem}")


class ResultRefused(RunRefused, ValueError):
    """A result that this agent may not bring."""


class AgentsTooDeep(RunRefused):
    """Agents have started agents, deeper than the limit."""


class RunMoved(RunRefused):
    """The run is in a state that does not allow the request: it ended, was stopped, or another runner holds it."""

    def __init__(self, run: str, status: str, problem: str) -> None:
        self.status = status
        super().__init__(f"run {run}: {problem}")


class MoveRule(NamedTuple):
    """One row of the table: the source stages, the target stage (None: the stage stays), and the required hold.

    `own`: the caller holds the run. `over`: the hold has expired, or the run has no holder. `any`: the hold does not
    matter.
    """

    sources: frozenset[Stage]
    target: Stage | None
    hold: Literal["own", "over", "any"] = "any"


MOVES: Final[Mapping[str, MoveRule]] = {
    "begin": MoveRule(frozenset({"queued"}), "starting"),
    "pass": MoveRule(frozenset({"starting"}), "ready", "own"),
    "block": MoveRule(frozenset({"starting"}), "failed", "own"),
    "drop": MoveRule(frozenset({"starting"}), "queued", "over"),  # any coordinator that notices
    "hand": MoveRule(frozenset({"queued", "ready"}), "running"),
    "renew": MoveRule(frozenset({"starting", "running"}), None, "own"),
    "report": MoveRule(frozenset({"running", "ready"}), None, "own"),
    **{end: MoveRule(frozenset({"running", "ready"}), end, "own") for end in get_args(RunEnding)},  # by its runner
    "lose": MoveRule(frozenset({"running"}), "ready", "over"),
    "give_up": MoveRule(frozenset({"starting", "running"}), "failed", "over"),
    "stop": MoveRule(frozenset({"queued", "starting", "ready"}), "stopped"),
}


class Holder(msgspec.Struct, frozen=True):
    """A coordinator or runner that holds a run, and the number of its hold."""

    name: str
    """The name of the coordinator or runner."""
    attempt: int
    """The number of the hold."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run and its state so far."""

    id: str
    """The id of the run."""
    tenant: str = ""
    session: str = ""
    """The id of the run's session."""
    agent: str
    """The name of the agent."""
    parameters: Mapping[str, Any]
    """The parameters as they were submitted."""
    created: datetime = datetime.min.replace(tzinfo=UTC)
    """Time of submission; the store sets it."""
    parent: str | None = None
    """The id of the run that started this one."""
    parent_session: str | None = None
    """The session of the run that started this one."""
    depth: int = 0
    """The number of runs above this one."""
    bare: bool = False
    """True for a hook's own agent, which has no run hooks."""
    urgent: bool = False
    """True if the start hook of another run waits for this one."""
    hooked: bool = False
    """True if the blueprint names hooks, or hooks of the registry took part."""
    blocked: bool = False
    """True if a start hook kept the run from starting."""
    stage: Stage = "queued"
    """The state, as the store has it."""
    version: int = 0
    """Number of changes; a store changes a run only if it has not changed meanwhile."""
    events: int = 0
    """Number of events of the run."""
    failures: int = 0
    """Number of hooks that failed."""
    attempt: int = 0
    """The number of holds."""
    handed: int = 0
    """The number of holds of runners."""
    holder: str | None = None
    """The coordinator or runner that holds the run; None while none does."""
    held_until: datetime | None = None
    """The end of the hold, unless it is renewed."""
    stopping: bool = False
    """True if the run is to stop; its runner has to stop it."""
    ran_with: Mapping[str, Any] | None = None
    """The parameters that the start hooks made of the submitted ones; None if they changed nothing."""
    reported: bool = False
    """True once the runner has posted a result."""
    result_text: str | None = None
    """The result of an agent that brings a text."""
    result_data: Any = None
    """The result of an agent that brings data."""
    error: str | None = None
    """The message of a failure."""
    started: datetime | None = None
    """Time at which a runner first got the run."""
    ended: datetime | None = None
    """The time of its end."""
    owes: bool = False
    """True if the run has ended, and its finish hooks have not run yet."""

    @property
    def status(self) -> RunStatus:
        """The status that callers see: a run whose hooks have passed is starting until a runner has it."""
        return "starting" if self.stage == "ready" else self.stage

    @property
    def start_count(self) -> int:
        """Number of times the start hooks were begun."""
        return self.attempt - self.handed

    @property
    def effective(self) -> Mapping[str, Any]:
        """The parameters with which the run runs, or ran."""
        return self.parameters if self.ran_with is None else self.ran_with


class NewRunEvent(msgspec.Struct, frozen=True):
    """One event of a run, before it has a number. `at` is None for the time at which the event is stored."""

    type: str
    fields: Mapping[str, Any]
    at: datetime | None = None


class RunEvent(msgspec.Struct, frozen=True):
    """One stored event of a run. `number` counts the events of that run; `body` is the whole event, as it is sent."""

    run: str
    number: int
    at: datetime
    type: str
    body: Mapping[str, Any]


class StartOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run's start hooks: go on with `parameters`, or `error`; `blocked` if a hook blocked the run."""

    parameters: Mapping[str, Any] | None = None
    error: str | None = None
    blocked: bool = False
    told: tuple[NewRunEvent, ...] = ()


Change = tuple[RunRecord, Sequence[NewRunEvent]]
"""A run after a change, and the events of the change."""
Decide = Callable[[RunRecord, datetime], Change]
"""A function that returns a run after a change, from the run as it is and the time."""


def move_run(record: RunRecord, move: str, now: datetime, by: Holder | None = None) -> RunRecord:
    """Return the record after a move, with stage and hold set. Raise `RunMoved` if the move is impossible.

    `by` is the caller. An expired hold still counts until another holder has taken the run.
    """
    row = MOVES[move]
    if record.stage not in row.sources:
        raise RunMoved(record.id, record.status, f"it is {record.status}{' already' if record.stage in ENDED else ''}")
    if row.hold == "own" and (by is None or (by.name, by.attempt) != (record.holder, record.attempt)):
        raise RunMoved(record.id, record.status, "another holder has it by now")
    if row.hold == "over" and record.held_until is not None and record.held_until > now:
        raise RunMoved(record.id, record.status, f"{record.holder} has it")
    if row.target is None:
        return record
    ended = row.target in ENDED
    holder = record.holder if ended or move == "lose" else None  # the last holder
    return replace(record, stage=row.target, ended=now if ended else None, holder=holder, held_until=None)


def extend_hold(record: RunRecord, now: datetime, seconds: float) -> RunRecord:
    """Return the record with a hold that ends after so many seconds."""
    return replace(record, held_until=now + timedelta(seconds=seconds))


def hold_run(record: RunRecord, holder: str, seconds: float, now: datetime) -> RunRecord:
    """Return the record under a new hold, with a new number."""
    return replace(extend_hold(record, now, seconds), holder=holder, attempt=record.attempt + 1)


def take_run(
    record: RunRecord, now: datetime, holders: tuple[str, str], leases: tuple[float, float], *, heard: bool
) -> Change:
    """Begin the start hooks of a run that has some, or hand the run to the runner.

    `holders` and `leases` are those of the runner and of the coordinator; `heard` is True if the registry has hooks for
    the start of any run.
    """
    begins = record.stage == "queued" and not record.bare and (record.hooked or heard)
    after = move_run(record, "begin" if begins else "hand", now)
    after = hold_run(after, holders[begins], leases[begins], now)
    if begins:
        return after, (NewRunEvent("run_starting", {}),)
    after = replace(after, handed=record.handed + 1, started=record.started or now)
    return after, (NewRunEvent("run_running", {"runner": holders[0], "attempt": after.handed}),)


def conclude_run(record: RunRecord, now: datetime, by: Holder, passed: StartOutcome) -> Change:
    """Block a run or make it ready, as its start hooks have decided."""
    after = move_run(record, "pass" if passed.error is None else "block", now, by)
    hooked = any(what.type.startswith("hook_") for what in passed.told)
    after = replace(after, hooked=record.hooked or hooked)
    if passed.error is not None:
        after = replace(after, error=passed.error, blocked=passed.blocked, holder=None)
        return after, (*passed.told, end_event(after))
    # by their bytes, because 1, 1.0 and True are equal
    changed = passed.parameters is not None and freeze(dict(passed.parameters)) != freeze(dict(record.parameters))
    return replace(after, ran_with=passed.parameters if changed else None), (*passed.told, NewRunEvent("run_ready", {}))


def renew_run(record: RunRecord, now: datetime, by: Holder, seconds: float) -> Change:
    """Extend the hold of a run."""
    return extend_hold(move_run(record, "renew", now, by), now, seconds), ()


def report_run(record: RunRecord, now: datetime, by: Holder, text: str | None, data: Any) -> Change:
    """Keep the result of a run that is going on; a later result replaces it."""
    after = replace(move_run(record, "report", now, by), reported=True, result_text=text, result_data=data)
    return after, (NewRunEvent("run_result", result_fields(after)),)


def end_run(
    record: RunRecord, now: datetime, by: Holder, ending: RunEnding, error: str | None, *, owes: bool = False
) -> Change:
    """End a run. Repeating the same ending by the same holder changes nothing. `owes`: finish hooks follow."""
    if record.stage == ending and (record.holder, record.attempt) == (by.name, by.attempt):
        return record, ()
    after = replace(move_run(record, ending, now, by), error=error, owes=owes)
    return after, (end_event(after),)


def stop_run(record: RunRecord, now: datetime, reason: str) -> Change:
    """Stop a run that no runner has, or ask its runner to stop it. A run that has ended stays as it is."""
    if record.stage in ENDED or record.stopping:
        return record, ()
    if record.stage == "running":
        return replace(record, stopping=True, error=reason), (NewRunEvent("run_stopping", {"reason": reason}),)
    after = replace(move_run(record, "stop", now), error=reason, owes=record.handed > 0, holder=None)
    return after, (end_event(after),)


def take_back_run(record: RunRecord, now: datetime) -> Change:
    """Take a run from a holder that did not come back: another holder may have it, or it has ended."""
    starting, who = record.stage == "starting", record.holder or "an unknown holder"
    lost = f"{who} did not finish its start hook" if starting else f"runner {who} was not heard of in time"
    after = move_run(record, "drop" if starting else "lose", now)
    told = NewRunEvent("run_lost", {"holder": who, "error": lost})
    if record.stopping and not starting:
        after = replace(move_run(after, "stop", now), owes=True)
    elif starting and record.start_count >= MOST_STARTS:
        error = f"{record.start_count} coordinators began its start hooks and were not heard of again"
        after = replace(move_run(record, "give_up", now), error=error, holder=None)
    elif not starting and record.handed >= MOST_ATTEMPTS:
        error = f"{record.handed} runners had this run and were not heard of again"
        after = replace(move_run(record, "give_up", now), error=error, owes=True)
    else:
        return after, (told,)
    return after, (told, end_event(after))


def note_run(record: RunRecord, _now: datetime, told: Sequence[NewRunEvent], *, settled: bool = False) -> Change:
    """Keep events of a run. `settled` means that its finish hooks have run."""
    hooked = record.hooked or any(what.type.startswith("hook_") for what in told)
    after = replace(record, hooked=hooked)
    return (replace(after, owes=False, held_until=None) if settled else after), told


def owe_run(record: RunRecord, now: datetime, seconds: float) -> Change:
    """Hold the finish hooks of an ended run for so many seconds; 0 leaves them to other coordinators."""
    return (extend_hold(record, now, seconds) if record.owes else record), ()


def end_event(record: RunRecord) -> NewRunEvent:
    """Return the event of a run's end, with everything that is known then."""
    fields = {"status": record.status, **result_fields(record), "error": record.error}
    return NewRunEvent(f"run_{record.stage}", {**fields, **({"block_reason": record.error} if record.blocked else {})})


def result_fields(record: RunRecord) -> dict[str, Any]:
    """Return the fields that describe a result."""
    return {"result_text": record.result_text, "result_data": record.result_data}


def event_body(record: RunRecord, what: NewRunEvent, now: datetime) -> dict[str, Any]:
    """Return the whole event, as it is sent."""
    stamp = (what.at or now).isoformat()
    envelope = {"event_type": what.type, "session_id": record.session, "run_id": record.id, "timestamp": stamp}
    return {**envelope, **what.fields}
