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

The methods of a `RunRecord` that begin with the time return a `Change`, or raise `RunMoved`; the store carries them out
(`RunStore.change`). Events come in the order in which they happen: `hook_*` as RUN-12 defines them, and `run_*` for the
run itself.

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


RunEvent = Mapping[str, Any]
"""One event of a run, as it is stored and sent."""
Change = tuple["RunRecord", Sequence[RunEvent]]
"""A run after a change, and the events of the change."""
Decide = Callable[["RunRecord", datetime], Change]
"""A function that returns a run after a change, from the run as it is and the time."""


class Blocked(msgspec.Struct, frozen=True):
    """A run that does not start, and the reason. `failed` is True if a hook failed and no hook blocked the run."""

    reason: str
    """The reason."""
    failed: bool = False
    """True if a hook failed and no hook blocked the run."""


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
    def effective(self) -> Mapping[str, Any]:
        """The parameters with which the run runs, or ran."""
        return self.parameters if self.ran_with is None else self.ran_with

    def event(self, now: datetime, kind: str, **fields: Any) -> RunEvent:
        """Return an event of the run, with the fields that all events have."""
        stamp = now.isoformat()
        return {"event_type": kind, "session_id": self.session, "run_id": self.id, "timestamp": stamp, **fields}

    @property
    def outcome(self) -> dict[str, Any]:
        """The result and the end, as far as they are known."""
        ending = {"status": self.status if self.ended else None, "error": self.error}
        return {"result_text": self.result_text, "result_data": self.result_data, **ending}

    def move(self, move: str, now: datetime, by: Holder | None = None) -> RunRecord:
        """Return the run after a move, with stage and hold set. Raise `RunMoved` if the move is impossible.

        `by` is the caller. An expired hold still counts until another holder has taken the run.
        """
        row = MOVES[move]
        if self.stage not in row.sources:
            raise RunMoved(self.id, self.status, f"it is {self.status}{' already' if self.stage in ENDED else ''}")
        if row.hold == "own" and (by is None or not self.is_held_by(by)):
            raise RunMoved(self.id, self.status, "another holder has it by now")
        if row.hold == "over" and self.held_until is not None and self.held_until > now:
            raise RunMoved(self.id, self.status, f"{self.holder} has it")
        if row.target is None:
            return self
        ended = row.target in ENDED
        holder = self.holder if ended or move == "lose" else None  # the last holder
        return replace(self, stage=row.target, ended=now if ended else None, holder=holder, held_until=None)

    def is_held_by(self, by: Holder) -> bool:
        """Return True if the run is, or was last, under this hold."""
        return (by.name, by.attempt) == (self.holder, self.attempt)

    # -- changes -------------------------------------------------------------------------------------------------------

    def take(self, now: datetime, holders: tuple[str, str], leases: tuple[float, float]) -> Change:
        """Return the change that begins the start hooks of a run, or hands a run that needs none to the runner.

        `holders` and `leases` are those of the runner and of the coordinator.
        """
        begins = self.stage == "queued" and not self.bare
        after = self.move("begin" if begins else "hand", now).held_for(now, leases[begins])
        after = replace(after, holder=holders[begins], attempt=self.attempt + 1)
        if begins:
            return after, (self.event(now, "run_starting"),)
        after = replace(after, handed=self.handed + 1, started=self.started or now)
        return after, (self.event(now, "run_running", runner=after.holder, attempt=after.handed),)

    def conclude(
        self, now: datetime, by: Holder, begun: Mapping[str, Any] | Blocked, told: Sequence[RunEvent] = ()
    ) -> Change:
        """Return the change that blocks a run, or makes it ready with these parameters, as its start hooks decided."""
        if isinstance(begun, Blocked):
            after = replace(self.move("block", now, by), error=begun.reason, blocked=not begun.failed)
            return after, (*told, after.end_event(now))
        changed = freeze(dict(begun)) != freeze(dict(self.parameters))  # by their bytes: 1, 1.0 and True are equal
        after = replace(self.move("pass", now, by), ran_with=begun if changed else None)
        return after, (*told, self.event(now, "run_ready"))

    def renew(self, now: datetime, by: Holder, seconds: float) -> Change:
        """Return the change that extends the hold of a run."""
        return self.move("renew", now, by).held_for(now, seconds), ()

    def report(self, now: datetime, by: Holder, text: str | None, data: Any) -> Change:
        """Return the change that keeps the result of a run that is going on; a later result replaces it."""
        after = replace(self.move("report", now, by), reported=True, result_text=text, result_data=data)
        return after, (self.event(now, "run_result", result_text=text, result_data=data),)

    def end(
        self, now: datetime, by: Holder, ending: RunEnding, error: str | None = None, *, owes: bool = False
    ) -> Change:
        """Return the change that ends a run; a repeated end is none. `owes`: finish hooks follow."""
        if self.stage == ending and self.is_held_by(by):
            return self, ()
        after = replace(self.move(ending, now, by), error=error, owes=owes)
        return after, (after.end_event(now),)

    def stop(self, now: datetime, reason: str) -> Change:
        """Return the change that stops a run, or asks its runner to stop it. A run that has ended stays as it is."""
        if self.stage in ENDED or self.stopping:
            return self, ()
        if self.stage == "running":
            return replace(self, stopping=True, error=reason), (self.event(now, "run_stopping", reason=reason),)
        after = replace(self.move("stop", now), error=reason, owes=self.handed > 0, holder=None)
        return after, (after.end_event(now),)

    def take_back(self, now: datetime) -> Change:
        """Return the change that takes a run from a lost holder: another holder may have it, or it has ended."""
        starting, holder = self.stage == "starting", self.holder or "an unknown holder"
        lost = f"{holder} did not finish its start hook" if starting else f"runner {holder} was not heard of in time"
        told = self.event(now, "run_lost", holder=holder, error=lost)
        count, most, had = (
            (self.attempt, MOST_STARTS, "coordinators began its start hooks")
            if starting
            else (self.handed, MOST_ATTEMPTS, "runners had this run")
        )
        after = self.move("drop" if starting else "lose", now)
        if self.stopping:  # by a runner, which is gone
            after = replace(after.move("stop", now), owes=True)
        elif count >= most:
            error = f"{count} {had} and were not heard of again"
            after = replace(self.move("give_up", now), error=error, owes=not starting)
        else:
            return after, (told,)
        return after, (told, after.end_event(now))

    def note(self, _now: datetime, told: Sequence[RunEvent], *, settled: bool = False) -> Change:
        """Return the change that keeps events of a run. `settled` means that its finish hooks have run."""
        return (replace(self, owes=False, held_until=None) if settled else self), told

    def owe(self, now: datetime, seconds: float) -> Change:
        """Return the change that holds finish hooks of an ended run so long; 0 leaves them to other coordinators."""
        return (self.held_for(now, seconds) if self.owes else self), ()

    def held_for(self, now: datetime, seconds: float) -> RunRecord:
        """Return the run with a hold that ends after so many seconds."""
        return replace(self, held_until=now + timedelta(seconds=seconds))

    def end_event(self, now: datetime) -> RunEvent:
        """Return the event of the run's end, with everything that is known then."""
        reason = {"block_reason": self.error} if self.blocked else {}
        return self.event(now, f"run_{self.stage}", **self.outcome, **reason)
