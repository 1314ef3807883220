"""A request's life as one table, and the conditions for an answer to count. Pure: the time is an argument.

    pending ─ approve ─▶ approved ─ claim ─▶ claimed ─ finish ─▶ done
       │                    │                   ├───── fail ───▶ failed
       │                    │                   └───── lose ───▶ unknown ─ finish, fail ─▶ done, failed
       ├─ deny ─▶ denied    │
       ├─ give_up ─▶ expired│
       └────────────────────┴─ expire ─▶ expired · withdraw ─▶ cancelled · supersede ─▶ superseded

`judge` decides whether an answer counts, `move_request` makes every other move; both return the new record or a
`Refusal` that says what is so instead. Stores keep records and compare before they set; this module decides which move
may follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from amplifier_hooks.act import freeze
from amplifier_hooks.approvals import (
    CHANGED_ONCE,
    answered_digest,
    check_digest,
    is_for_another,
    make_grants,
    within_ceiling,
)
from amplifier_hooks.errors import ApprovalMismatch, InputNotFreezable
from amplifier_hooks.ports import ApprovalRequest, Decision, Grant, GrantUse, KeptResult, Option
from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_hooks.ports import Stop


Status = Literal[
    "pending", "approved", "claimed", "done", "failed", "unknown", "denied", "expired", "cancelled", "superseded"
]
Move = Literal["approve", "deny", "expire", "give_up", "withdraw", "supersede", "claim", "finish", "fail", "lose"]
Timing = Literal["in time", "over", "any time"]
RefusalCode = Literal[
    "unknown_request",
    "not_allowed",
    "already_resolved",
    "not_approved",
    "expired",
    "withdrawn",
    "wrong_digest",
    "not_offered",
    "bad_arguments",
    "above_ceiling",
    "too_early",
    "stopped",
]


class MoveRule(msgspec.Struct, frozen=True):
    """One row of the table: the states before, the state after, and the time: before the end, after it, or either."""

    sources: frozenset[Status]
    target: Status
    timing: Timing = "any time"


OPEN: Final[frozenset[Status]] = frozenset({"pending", "approved"})
"""States in which nothing has begun: the question can still be withdrawn."""

MOVES: Final[Mapping[Move, MoveRule]] = {
    "approve": MoveRule(frozenset({"pending"}), "approved", "in time"),
    "deny": MoveRule(frozenset({"pending"}), "denied", "in time"),
    "expire": MoveRule(OPEN, "expired", "over"),  # any client that notices
    "give_up": MoveRule(frozenset({"pending"}), "expired"),  # the requester has waited long enough by its own clock
    "withdraw": MoveRule(OPEN, "cancelled"),
    "supersede": MoveRule(OPEN, "superseded"),
    "claim": MoveRule(frozenset({"approved"}), "claimed", "in time"),
    "finish": MoveRule(frozenset({"claimed", "unknown"}), "done"),
    "fail": MoveRule(frozenset({"claimed", "unknown"}), "failed"),
    "lose": MoveRule(frozenset({"claimed"}), "unknown"),
}

STATUSES: Final[tuple[Status, ...]] = get_args(Status)
FINAL: Final[frozenset[Status]] = frozenset(STATUSES) - {source for row in MOVES.values() for source in row.sources}
"""States that nothing leads out of."""

BEGUN: Final[frozenset[Status]] = frozenset({"claimed", "done", "failed", "unknown"})
"""States in which the approval is used up."""

STANDING: Final[tuple[frozenset[Status], ...]] = (
    BEGUN,
    frozenset({"denied"}),
    OPEN,
    frozenset({"expired", "cancelled"}),
)
"""States in which a request stands for its call, the strongest first. A superseded request stands for no call."""

CLAIM_WITHIN: Final = 60.0
"""Seconds. An approval given at the last moment can still be claimed for so long."""


def follow(status: Status, move: Move, *, over: bool) -> Status | None:
    """Return the state after a move, or None if the table has no such row."""
    row = MOVES[move]
    on_time = row.timing == "any time" or (row.timing == "over") is over
    return row.target if status in row.sources and on_time else None


# -- time --------------------------------------------------------------------------------------------------------------


class Moment(msgspec.Struct, frozen=True, gc=False):
    """An instant as a store has it: the wall clock's time, which is shown, and the store's own age in seconds.

    The age never goes back, whatever the wall clock does.
    """

    wall: datetime
    age: float = 0.0


def seconds_left(start: Moment, seconds: float, now: Moment) -> float:
    """Return the rest of a span; of wall clock and age, the one that leaves less counts."""
    return seconds - max((now.wall - start.wall).total_seconds(), now.age - start.age)


# -- values ------------------------------------------------------------------------------------------------------------


class Decider(msgspec.Struct, frozen=True, kw_only=True):
    """The person or program that answers, as its channel authenticated it; no field may come from the answer itself.

    `tenant` and `sessions` bound what the decider sees (None: all); `may_decide` is a right apart from seeing.
    """

    name: str
    """The name, for the record."""
    channel: str
    """The kind of place of the answer, such as `terminal` or `web`."""
    tenant: str | None = None
    """The tenant whose requests the decider sees; None stands for all."""
    sessions: frozenset[str] | None = None
    """The ids of the sessions that the decider sees; None stands for all."""
    may_decide: bool = True
    """True if the decider may answer, and not only look."""


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A decider's answer to one request. `id` names this very decision, so that it can be sent twice.

    `seconds` and `times` limit an "always".
    """

    request: str
    digest: str
    option: str
    by: Decider
    id: str
    message: str | None = None
    arguments: Mapping[str, Any] | None = None
    seconds: float | None = None
    times: int | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request and its state so far.

    `digest` is the one that can be claimed: the request's, or that of the action with the approver's own arguments.
    `reason` says why a request ended without a decision. `result` is that of the act, once it is settled.
    """

    request: ApprovalRequest
    created: Moment
    lifetime: float
    digest: str
    status: Status = "pending"
    version: int = 1
    decision: Decision | None = None
    decided: Moment | None = None
    reason: str = ""
    ended: datetime | None = None
    result: KeptResult | None = None

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.id

    @property
    def expires(self) -> datetime:
        """The end of the time to answer, by the store's wall clock."""
        return self.created.wall + timedelta(seconds=self.lifetime)

    @property
    def took(self) -> float | None:
        """Seconds from the question to the decision."""
        return None if self.decided is None else (self.decided.wall - self.created.wall).total_seconds()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why an answer or a move did not count, and what is so instead. An unseen request has no `record`."""

    code: RefusalCode
    reason: str
    record: RequestRecord | None = None


def new_record(request: ApprovalRequest, now: Moment) -> RequestRecord:
    """Return a new record. The requester sets how long it lives, the store from when on."""
    lifetime = (request.expires - request.created).total_seconds()
    return RequestRecord(request=request, created=now, lifetime=lifetime, digest=request.digest)


# -- the conditions ----------------------------------------------------------------------------------------------------


def is_over(record: RequestRecord, now: Moment) -> bool:
    """Return True if the time of an open record is over: the time to answer it, or the time to claim its approval."""
    left = seconds_left(record.created, record.lifetime, now)
    if record.status == "approved" and record.decided is not None:
        left = max(left, seconds_left(record.decided, CLAIM_WITHIN, now))
    return left <= 0


def sees(decider: Decider, request: ApprovalRequest) -> bool:
    """Return True if the decider may know of this request."""
    return decider.tenant in (None, request.tenant) and (
        decider.sessions is None or request.session in decider.sessions
    )


def sees_stop(decider: Decider, stop: Stop) -> bool:
    """Return True if the stop is in force and reaches a session of the decider."""
    return (
        stop.ended is None
        and (not decider.tenant or stop.tenant in ("", decider.tenant))
        and (decider.sessions is None or not stop.session or stop.session in decider.sessions)
    )


def judge(  # noqa: C901, PLR0911  # one way out for each reason
    record: RequestRecord | None, answer: ApprovalAnswer, now: Moment
) -> RequestRecord | Refusal:
    """Return the record with this answer, if the answer counts; the unchanged record, if it had counted already.

    An answer counts if its option was offered, for this pending request, with its digest, in time, by a decider with
    the right to decide; an "allow" only of arguments that have that digest, since a row may have changed in the store;
    an "allow always" only up to its ceiling of risk, and without edited arguments. An "always" lasts as long as the
    request, and so its card, says.
    """
    if record is None or not sees(answer.by, record.request):
        return Refusal(code="unknown_request", reason="there is no such request")
    request, decided = record.request, record.decision
    if not answer.by.may_decide:
        return Refusal(code="not_allowed", reason=f"{answer.by.name} may look, but not decide", record=record)
    if decided is not None and (decided.id, decided.by, decided.option) == (answer.id, answer.by.name, answer.option):
        return record
    if record.status != "pending":
        return _resolved_refusal(record)
    if is_over(record, now):
        return Refusal(code="expired", reason="the time to answer is over", record=record)
    if answer.digest != request.digest:
        return Refusal(code="wrong_digest", reason="this answer is for another action", record=record)
    option = next((option for option in request.options if option.id == answer.option), None)
    if option is None:
        return Refusal(code="not_offered", reason=f"{answer.option!r} was not offered", record=record)
    if not within_ceiling(option, request.risk):
        reason = f"an action of {request.risk} risk is allowed once at a time"
        return Refusal(code="above_ceiling", reason=reason, record=record)
    try:
        if option.allows:
            check_digest(request)
        digest = answered_digest(request, answer.arguments)
    except ApprovalMismatch as problem:
        return Refusal(code="wrong_digest", reason=str(problem), record=record)
    except InputNotFreezable as problem:
        return Refusal(code="bad_arguments", reason=str(problem), record=record)
    if is_for_another(option, request, digest):
        return Refusal(code="bad_arguments", reason=CHANGED_ONCE, record=record)
    return _decided_record(record, decision_of(answer, now.wall, option, request.keep), option, digest, now)


def move_request(
    record: RequestRecord | None,
    move: Move,
    now: Moment,
    *,
    reason: str = "",
    digest: str | None = None,
    result: KeptResult | None = None,
) -> RequestRecord | Refusal:
    """Return the record after a move that is no answer. A given digest has to be the record's."""
    if record is None:
        return Refusal(code="unknown_request", reason="there is no such request")
    over = is_over(record, now)
    target = follow(record.status, move, over=over)
    if target is None:
        if record.status not in MOVES[move].sources:
            return _resolved_refusal(record)
        code: RefusalCode = "expired" if over else "too_early"
        return Refusal(code=code, reason=f"its time is {'over' if over else 'not over'}", record=record)
    if digest is not None and digest != record.digest:
        return Refusal(code="wrong_digest", reason="another action was approved", record=record)
    ended = now.wall if target in FINAL else None
    version, reason = record.version + 1, reason or record.reason
    return replace(record, status=target, reason=reason, ended=ended, version=version, result=result or record.result)


def refuse_stopped(record: RequestRecord, stops: Iterable[Stop]) -> Refusal | None:
    """Return the refusal of a claim that a stop covers, or None."""
    request = record.request
    found = next((stop for stop in stops if stop.covers(request.tenant, request.session)), None)
    return None if found is None else Refusal(code="stopped", reason=found.reason, record=record)


def refuse_uncovered(
    request: ApprovalRequest, wanted: Sequence[str], held: Sequence[Grant], stops: Iterable[Stop]
) -> Refusal | None:
    """Return the refusal of a call by the grants that are held: a stop covers it, or one that it needs is not held."""
    stop = next((stop for stop in stops if stop.covers(request.tenant, request.session)), None)
    if stop is not None:
        return Refusal(code="stopped", reason=stop.reason)
    if {grant.id for grant in held} != set(wanted):
        return Refusal(code="not_approved", reason="a grant is over or used up")
    return None


LONGEST_ACTION: Final = 512
"""Bytes of a call that a use of a grant keeps."""


def use_of(request: ApprovalRequest, now: Moment) -> GrantUse:
    """Return a call that a grant covers, as the store keeps it."""
    action = freeze(dict(request.arguments)).decode("ascii")
    return GrantUse(
        at=now.wall,
        session=request.session,
        tool=request.tool,
        action=clip(action, LONGEST_ACTION),
        digest=request.digest,
    )


def outcomes(request: ApprovalRequest) -> dict[str, Status]:
    """Return the status that each option gives a pending request, for the options that make no grants.

    Of options with one id the first counts.
    """
    meant = {option.id: option for option in reversed(request.options)}
    return {name: _status(option) for name, option in meant.items() if not option.lasts}


def decision_of(
    answer: ApprovalAnswer, at: datetime | None = None, option: Option | None = None, keep: float | None = None
) -> Decision:
    """Return the decision that an answer makes once it counts. A denial carries no arguments."""
    return Decision(
        option=answer.option,
        by=answer.by.name,
        channel=answer.by.channel,
        message=answer.message,
        id=answer.id,
        at=at,
        arguments=answer.arguments if option is None or option.allows else None,
        keep=keep if option is not None and option.lasts and not option.session_only else None,
        seconds=answer.seconds,
        times=answer.times,
    )


def _status(option: Option) -> Status:
    return MOVES["approve" if option.allows else "deny"].target


def _decided_record(
    record: RequestRecord, decision: Decision, option: Option, digest: str, now: Moment
) -> RequestRecord:
    return replace(
        record,
        status=_status(option),
        decision=decision,
        decided=now,
        digest=digest if option.allows else record.digest,
        ended=None if option.allows else now.wall,
        version=record.version + 1,
    )


def _resolved_refusal(record: RequestRecord) -> Refusal:
    """Return the refusal that names the state a record has already, and its approver, if there was one."""
    if record.status == "pending":
        return Refusal(code="not_approved", reason="no approver has decided yet", record=record)
    if record.status == "expired":
        return Refusal(code="expired", reason="the time was over", record=record)
    if record.status in ("cancelled", "superseded"):
        return Refusal(code="withdrawn", reason=f"{record.status}: {record.reason}", record=record)
    option = next((o for o in record.request.options if record.decision and o.id == record.decision.option), None)
    verdict = f"already {'approved' if option is None or option.allows else 'denied'}"
    decider = f" by {record.decision.by} ({record.decision.channel})" if record.decision else ""
    now = f", now {record.status}" if record.status not in ("approved", "denied") else ""
    return Refusal(code="already_resolved", reason=f"{verdict}{decider}{now}", record=record)


# -- grants ------------------------------------------------------------------------------------------------------------


def grants_of(record: RequestRecord) -> tuple[Grant, ...]:
    """Return the grants that this record makes with its present status: those of a denial, or of a claimed approval."""
    if record.decision is None or record.decided is None or record.status not in ("denied", "claimed"):
        return ()
    return make_grants(record.request, record.decision, record.decided.wall, record.decided.age)


def is_in_force(grant: Grant, now: Moment) -> bool:
    """Return True if a grant is neither revoked, over nor used up; of wall clock and age, the earlier end counts."""
    return (
        grant.revoked is None
        and (grant.expires is None or grant.expires > now.wall)
        and (grant.ends is None or grant.ends > now.age)
        and (grant.times is None or grant.used < grant.times)
    )
