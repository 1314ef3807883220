"""Asks the approver: one request for all asking hooks, with one deadline and a defined result for silence.

The order: grants → the session's lease on the backend → the record → `approval:required`, where a hook may still deny →
the backend, until the deadline → the record → the event of the result. A decision has no effect before it is on record.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec.structs import asdict, force_setattr, replace

from amplifier_hooks import approvals, errors, ports
from amplifier_hooks.act import Call
from amplifier_hooks.admission.approval_request import UNASSESSED, predict_impacts, request_id
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.events import APPROVAL_DENIED, APPROVAL_EXPIRED, APPROVAL_GRANTED, APPROVAL_REQUIRED
from amplifier_hooks.foreign_code import finish_despite_cancel, result_of, underway, within
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalRequest, Decision, Grant, KnownCall, Question, Unfinished
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import Cause, UserMessage, highest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from amplifier_hooks.act import Act
    from amplifier_hooks.admission.approval_request import Origin
    from amplifier_hooks.ports import ApprovalBackend, Clock, GrantStore, KeptResult, Option, Settlement, Stop
    from amplifier_hooks.record.recorder import Recorder
    from amplifier_hooks.result import Outcome


BACKEND_TIMEOUT: Final = 5.0
"""Timeout, in seconds, for calls of the backend that need no person."""

SLACK: Final = 1.0
"""Seconds a durable backend has to release a question after the inline wait; then the request is cancelled."""

LONGEST: Final = 366 * 86_400.0
"""Maximum of seconds. A hook may name any finite time, but dates end sooner."""

EXPIRED: Final = "expired"
SUPERSEDED: Final = "superseded"
"""Reasons for withdrawing a question, in words that backends know."""

OTHER_ACT: Final = "the answer is about another act with this call id"

NO_CALL: Final = Call(chosen=False, returns=False)
"""A call that no later call can come back to."""

Ending = Literal["approved", "denied", "expired", "unavailable", "cancelled", "pending"]

EVENT_OF: Final[Mapping[Ending, str]] = {
    "approved": APPROVAL_GRANTED,
    "denied": APPROVAL_DENIED,
    "expired": APPROVAL_EXPIRED,
    "unavailable": APPROVAL_DENIED,
    "cancelled": APPROVAL_DENIED,
}
"""Event for each end of a request. A pending request has none."""

T = TypeVar("T")

log = get_logger(__name__)


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a request. `allowed` differs from `approved`: a default may allow a question without an answer.

    `took` is in seconds. `grants` are the grants that made asking unnecessary, and `hook` is the hook that denied
    before a person was asked. `cause` is the kind of a denial where the status does not say it.
    """

    status: Ending
    allowed: bool = False
    reason: str
    request: ApprovalRequest
    decision: Decision | None = None
    took: float | None = None
    grants: tuple[Grant, ...] = ()
    hook: str | None = None
    cause: Cause | None = None
    used: errors.AlreadyRun | None = None
    """The end of the call that used the approval up."""
    digest: str = ""
    """Digest of the action that was decided about; by default, of the action that the request shows."""
    option: Option | None = None
    """The chosen option."""

    def __post_init__(self) -> None:
        if not self.digest:
            force_setattr(self, "digest", self.request.digest)

    @property
    def claimable(self) -> bool:
        """True if the approval is a person's and has to be claimed. A default and a grant are not claimed."""
        return self.decision is not None and not self.grants

    @property
    def edited(self) -> Mapping[str, Any] | None:
        """The approver's own arguments, if the approver allowed other arguments than the ones shown."""
        return self.decision.arguments if self.allowed and self.decision is not None else None

    @property
    def message(self) -> str:
        """The reason, and the approver's message to the model."""
        said = self.decision.message if self.decision is not None and not self.allowed else None
        return f"{self.reason}\n{self.decision.by} says: {said}" if said and self.decision else self.reason


class Lease(msgspec.Struct, eq=False):
    """A worker's part in a session of a durable backend, and the questions that wait there for a resumed call.

    For any other backend a lease does nothing.
    """

    backend: object
    recorder: Recorder
    tenant: str
    session: str
    tell: Callable[[UserMessage], Awaitable[None]]
    begun: bool = False
    """True if the record has all that other workers left, so that their questions may be used or withdrawn here."""
    tried: bool = False
    """True once the backend was asked for what other workers left, whether or not it answered."""
    waiting: dict[str, ApprovalRequest] = {}
    """Questions that are open, or answered and not used, without a caller that waits for them inline."""
    _durable: ports.DurableApprovals | None = None
    _calls: ports.CallStore | None = None
    _found: Unfinished | None = None
    _one_at_a_time: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._durable = self.backend if isinstance(self.backend, ports.DurableApprovals) else None
        self._calls = self.backend if isinstance(self.backend, ports.CallStore) else None
        self.begun = self.tried = self._durable is None

    @property
    def durable(self) -> bool:
        """True if questions stay open when no caller waits for them inline."""
        return getattr(self.backend, "durable", False) is True

    async def begin(self) -> Unfinished:
        """Begin the session in the backend, and complete the record with events that another worker did not write.

        Later calls return the first result. An act that another worker began and that has no result yet is reported to
        the user, and never repeated by itself. Raises what the backend raises, and `RecordUnavailable`; then no
        approver is asked, and the next call tries again.
        """
        self.tried = True
        async with self._one_at_a_time:
            if self._found is None:
                self._found = await self._acquire()
                self.begun = True
            return self._found

    async def find_call(self, tenant: str, session: str, call: str) -> KnownCall | None:
        """Return the request that stands for a call, in the backend or waiting here, or None.

        Raises what the backend raises, unless a request waits here.
        """
        if not self.tried:
            try:
                await self.begin()
            except Exception as error:  # noqa: BLE001  # a backend may raise anything; the next question raises again
                log.warning("approval_lease_failed", error=describe(error))
        waiting = [one for one in self.waiting.values() if one.call == call]
        here = KnownCall(request=max(waiting, key=lambda one: one.created), is_open=True) if waiting else None
        if self._calls is None:
            return here
        try:
            return await within(BACKEND_TIMEOUT, self._calls.find_call(tenant, session, call)) or here
        except Exception as error:  # a backend may raise anything
            log.warning("approval_call_unread", error=describe(error))
            if here is None:
                raise
            return here

    async def end(self, reason: str, *, final: bool = False) -> bool:
        """End the session in the backend, unless questions wait for a resumed call. Return True if it was ended."""
        if self.waiting and not final:
            await self.recorder.note("session.suspended", {"waiting": sorted(self.waiting)})
            return False
        if self._durable is not None and self.begun:
            await within(BACKEND_TIMEOUT, self._durable.end_session(self.tenant, self.session, reason, final=final))
            await self._complete_record(self._durable)
        return True

    async def mark_recorded(self, request: ApprovalRequest) -> None:
        """Tell the backend that a request is on record so far.

        A failure is logged; the next worker completes the record.
        """
        if (backend := self._durable) is not None:
            await answer_of(lambda: backend.mark_recorded(request.id), "approval_mark_failed")

    async def _acquire(self) -> Unfinished:
        if self._durable is None:
            return Unfinished()
        found = await within(BACKEND_TIMEOUT, self._durable.begin_session(self.tenant, self.session))
        await self._complete_record(self._durable)
        self.waiting |= {request.id: request for request in (*found.pending, *found.approved)}
        for request in found.unknown:
            await self.recorder.note("approval.unknown", request_summary(request), durable=True)
            text = (
                f"{request.tool or request.event} was approved and begun, and no result is known yet "
                f"(request {request.id}). It is not run again; look, and settle it."
            )
            await self.tell(UserMessage(text=text, level="warning", hook_name="session", source="session"))
        return found

    async def _complete_record(self, backend: ports.DurableApprovals) -> None:
        """Record, marked as late, the events that another worker did not record."""
        numbers: dict[str, int] = {}
        for facts in await within(BACKEND_TIMEOUT, backend.list_unrecorded(self.tenant, self.session)):
            await self.recorder.write("approval.late", {**facts, "late": True})
            numbers[facts["request"]] = max(facts["event_number"], numbers.get(facts["request"], 0))
        for named, number in numbers.items():
            await within(BACKEND_TIMEOUT, backend.mark_recorded(named, number))


class Approver(msgspec.Struct, eq=False):
    """Asks on behalf of one session, and holds the backend to the deadline."""

    backend: ApprovalBackend | None
    recorder: Recorder
    clock: Clock
    origin: Origin
    lease: Lease
    grants: GrantStore
    hears: Callable[[str], bool] = lambda _event: False
    """The function that returns True if a hook listens to an event."""
    announce: Callable[..., Awaitable[Outcome]] = cast("Any", None)
    """The function that calls the hooks of an event, and returns their outcome."""
    stop_source: ports.StopSource | None = None
    """The backend, if it knows the stops of acts."""
    _stops: dict[str, Stop] = {}
    """The stops that cover the session, as they are on record."""
    _open: set[asyncio.Future[str]] = set()
    _unsettled: dict[str, tuple[ApprovalRequest, Settlement, KeptResult | None]] = {}

    def __post_init__(self) -> None:
        source: object = self.backend
        self.stop_source = source if isinstance(source, ports.StopSource) else None

    def cancel(self, reason: str) -> None:
        """Withdraw every question that a caller waits for; the caller gets a cancelled approval with this reason."""
        for stop in self._open:
            if not stop.done():
                stop.set_result(reason)

    async def withdraw_waiting(self, reason: str) -> None:
        """Withdraw questions that stay open in a durable backend, and unused answers there."""
        for request in list(self.lease.waiting.values()):
            await self._take_back(request, reason)

    async def ask(
        self,
        outcome: Outcome,
        act: Act,
        *,
        call: Call = NO_CALL,
        attempt: str = "0",
        given: str = "",
        resumed: ApprovalRequest | None = None,
        unread: Exception | None = None,
    ) -> Approval:
        """Send one request for all questions of the outcome, and return the resulting approval.

        `resumed` is the request that an earlier attempt at the call left: it has the answer it was given. `unread` is
        the error of a backend that could not be asked for that request; then no grant and no person allows the call.
        Cancelling withdraws the request and records the question as cancelled.

        Raises `RecordUnavailable`.
        """
        stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open.add(stop)  # before the first await: from here on it can be withdrawn
        try:
            await self._settle_all()
            request = resumed or await self._new_request(outcome, act, call, attempt, given)
            if unread is not None:
                return failed_approval(request, unread)
            approval = await self._match_grants(request) or await self._ask_person(request, call.id or None, stop)
        finally:
            self._open.discard(stop)
        if approval.status == "pending":
            await self.recorder.note("approval.pending", request_summary(request), durable=True)
            self.lease.waiting[request.id] = request
            await self.lease.mark_recorded(request)
            return approval
        return await self._finish(approval, call.id or None)

    async def claim(self, approval: Approval) -> bool:
        """Claim the approval right before the act runs. Return True if the act may run.

        Raises `StopInForce` while a stop covers the session.
        """
        if approval.grants:
            count = partial(self.grants.use_grants, approval.request, approval.grants)
            counted = await answer_of(count, "approval_grants_failed", errors.StopInForce)
            return counted is True
        backend = self.backend
        if backend is None or not approval.claimable:
            return approval.allowed  # a default needs no claim
        claim = partial(backend.claim, approval.request.id, approval.digest)
        claimed = await answer_of(claim, "approval_claim_failed", errors.StopInForce)
        if claimed is True:
            await self._remember(approval)
        return claimed is True

    async def find_stop(self, sessions: Sequence[tuple[str, str]]) -> Stop | None:
        """Return a stop that covers one of these sessions, or None. A stop that is new here, or over, goes on record.

        If the backend fails, the stops that were read last count.
        """
        if self.stop_source is None:
            return None
        try:
            found = await self.stop_source.stops()
        except Exception as error:  # noqa: BLE001  # a backend may raise anything
            log.warning("approval_stops_failed", error=describe(error))
            return next(iter(self._stops.values()), None)
        in_force = {stop.id: stop for stop in found if any(stop.covers(*one) for one in sessions)}
        if in_force.keys() != self._stops.keys():
            before, self._stops = self._stops, in_force
            for stop in [stop for stop in in_force.values() if stop.id not in before]:
                await self.recorder.note("stop.begun", stop_facts(stop), durable=True)
            known = {stop.id: stop for stop in found}
            for stop in [stop for stop in before.values() if stop.id not in in_force]:
                await self.recorder.note("stop.ended", stop_facts(known.get(stop.id, stop)), durable=True)
        return next(iter(in_force.values()), None)

    async def keep_for_later(self, approval: Approval, call: Call) -> bool:
        """Keep an approval that a stop left unused, for the call that is made again. Return False if none can be."""
        if not (self.lease.durable and approval.claimable and call.chosen and call.returns):
            return False
        self.lease.waiting[approval.request.id] = approval.request
        await self.lease.mark_recorded(approval.request)
        return True

    async def settle(self, ended: Iterable[Approval], became: Settlement, result: KeptResult | None = None) -> None:
        """Report the end of a claimed act. A report that fails is repeated until the session ends: the act has run."""
        claimed = (approval.request for approval in ended if approval.claimable)
        self._unsettled |= {request.id: (request, became, result) for request in claimed}
        await self._settle_all()

    async def _settle_all(self) -> None:
        """Report every end that is not reported yet, all at once. One that fails waits for the next time."""
        if self.backend is not None and self._unsettled:
            await asyncio.gather(*(self._settle(self.backend, *one) for one in self._unsettled.values()))

    async def _settle(
        self, backend: ApprovalBackend, request: ApprovalRequest, became: Settlement, result: KeptResult | None
    ) -> None:
        try:
            await within(BACKEND_TIMEOUT, backend.settle(request.id, became, result))
        except Exception as error:  # noqa: BLE001  # a backend may raise anything
            log.warning("approval_settle_failed", error=describe(error))
        else:
            self._unsettled.pop(request.id, None)
            await self.lease.mark_recorded(request)

    async def withdraw_call(self, call: Call, why: str) -> None:
        """Withdraw every question of this call that is open, and every answer that is not used."""
        for request in [one for one in self.lease.waiting.values() if one.call == call.id]:
            await self._void(request, why)

    async def withdraw(self, request: ApprovalRequest, why: str) -> None:
        """Withdraw a question whose end is on record, and its answer."""
        await self.lease.mark_recorded(request)  # up to here; the withdrawal itself follows
        await self._take_back(request, why)

    async def supersede(self, known: KnownCall, call: Call) -> Approval | None:
        """Withdraw a question that is not asked again. Return the end that holds for its call, if it has one.

        Raises `RecordUnavailable`.
        """
        request = known.request
        if not known.is_final:
            approval = await self._unanswered(request, SUPERSEDED)
            if approval.status == "denied":
                return await self._finish(approval, call.id or None)
            try:
                now = await self.lease.find_call(request.tenant, request.session, request.call)
            except Exception as error:  # noqa: BLE001  # a backend may raise anything; a call that is unknown does not run
                return failed_approval(request, error)
            if now is None or not now.is_final:
                return None
            known = now
        if known.begun is not None:
            return failed_approval(known.request, known.begun)
        return await self._finish(self._approval_from(known.request, known.denial, self.clock.now()), call.id or None)

    async def _take_back(self, request: ApprovalRequest, why: str) -> Decision | None:
        """Withdraw a question from the backend. Return the answer that the backend had by then, or None."""
        self.lease.waiting.pop(request.id, None)
        backend = self.backend
        if backend is None:
            return None
        found: object = await answer_of(lambda: backend.withdraw(request.id, why), "approval_withdraw_failed")
        return found if isinstance(found, Decision) else None

    async def _void(self, request: ApprovalRequest, why: str) -> None:
        """Withdraw a question that was decided in another way. Record an answer of the backend as late."""
        decision = await self._take_back(request, why)
        if decision is not None:
            await self.recorder.note("approval.late", late_answer(request, decision))

    async def end(self, reason: str, *, final: bool = False) -> None:
        """End the session: withdraw its open requests from the backend, and end its grants.

        With pending calls there, nothing ends unless `final` is True. Raises what the backend and the grant store
        raise.
        """
        await self._settle_all()
        if await self.lease.end(reason, final=final):
            await within(BACKEND_TIMEOUT, self.grants.end_grants(self.lease.tenant, self.lease.session))

    # -- before asking -------------------------------------------------------------------------------------------

    async def _new_request(self, outcome: Outcome, act: Act, call: Call, attempt: str, given: str) -> ApprovalRequest:
        """Return one request for all hooks that ask about an act.

        If no caller could come back to the request, it expires at the end of the inline wait.
        """
        origin, grants, now = self.origin, self.grants, self.clock.now()
        keep = grants.keep_grants if isinstance(grants, ports.ProjectGrants) else None
        returns = self.lease.durable and call.returns
        impacts = await predict_impacts(act, origin.cwd)
        arguments = act.arguments()
        view = DataView(arguments) if isinstance(arguments, dict) else DataView()
        questions = tuple(
            Question(
                hook=ask.hook_name,
                prompt=ask.prompt,
                version=origin.version(ask.hook_name),
                scope=ask.scope,
                key=ask.key,
            )
            for ask in outcome.asks
        )
        assessments = origin.assessments(act.name, view, outcome)
        risk = highest(assessments) or UNASSESSED.risk
        time = min(outcome.approval_timeout, LONGEST)
        inline = time if origin.wait is None else min(origin.wait, time)
        allows = outcome.approval_default == "allow" and all(origin.ours(ask.hook_name) for ask in outcome.asks)
        options = approvals.common_options(outcome.asks, risk)
        return ApprovalRequest(
            id=request_id(act, call, attempt, questions),
            tenant=act.tenant,
            session=act.session,
            agent=origin.agent,
            event=act.event,
            tool=act.name,
            arguments=view,
            digest=act.digest,
            questions=questions,
            options=options if keep is None else approvals.with_project(options),
            default="allow" if allows else "deny",  # only if every asking hook says so and is the host's own
            created=now,
            expires=now + timedelta(seconds=time if returns else inline),
            risk=risk,
            cwd=act.cwd,
            project=origin.cwd,
            call=call.id if call.returns else "",
            given=given,
            wait=inline if returns and inline < time else None,
            assessments=assessments,
            impacts=impacts,
            keep=keep,
        )

    async def _match_grants(self, request: ApprovalRequest) -> Approval | None:
        """Return the approval by grants, or None. If the store fails, a person is asked."""
        found = await answer_of(lambda: self.grants.match_grants(request), "approval_grants_failed")
        if found is None:
            return None
        said, grants = found
        allows, first = said == "allow", grants[0]
        option = next((option for option in request.options if option.allows is allows), None)
        if option is None:
            return None
        if request.id in self.lease.waiting:
            await self._void(request, SUPERSEDED)
        return Approval(
            status="approved" if allows else "denied",
            allowed=allows,
            reason=f"Allowed for good by {first.by}" if allows else f"User denied: {request.prompt}",
            request=request,
            option=option,
            decision=Decision(option=option.id, by=first.by, channel="grant", id=first.id, at=first.created),
            grants=grants,
        )

    async def _ask_person(self, request: ApprovalRequest, call: str | None, stop: asyncio.Future[str]) -> Approval:
        """Ask a person, and return the approval or the substitute for it."""
        if self.backend is None:
            return Approval(status="unavailable", reason="No approval system available", request=request)
        try:
            if not self.lease.begun:
                await self.lease.begin()
            resumed = {"resumed": True} if request.id in self.lease.waiting else {}
            facts = request_facts(request)
            await self.recorder.write("approval.requested", facts | resumed)
            hooks = asking_hooks(request)
            log.info("approval_requested", hook=hooks, prompt=facts["prompt"], options=facts["options"])
            denial = await self._denial_by_hook(request, call)
            if denial is None and stop.done():
                return await self._unanswered(request, stop.result())
            return denial or await self._await_answer(self.backend, request, stop)
        except asyncio.CancelledError:
            await finish_despite_cancel(self._record_cancelled(request))
            raise
        except RecordUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # after any error the act is not approved
            return failed_approval(request, error)

    async def _record_cancelled(self, request: ApprovalRequest) -> None:
        """Withdraw a question whose caller was cancelled, and record its end."""
        approval = await self._unanswered(request, "cancelled")
        await self.recorder.note("approval.decided", decision_facts(approval))
        await self.lease.mark_recorded(request)

    async def _denial_by_hook(self, request: ApprovalRequest, call: str | None) -> Approval | None:
        """Return the denial of a hook at `approval:required`. Any other answer there has no effect."""
        if not self.hears(APPROVAL_REQUIRED):
            return None
        outcome = await self.announce(APPROVAL_REQUIRED, event_data(request, call), asks=False)
        if not outcome.denied:
            return None
        by, reason = outcome.denied_by or "registry", outcome.reason or "no reason given"
        if request.id in self.lease.waiting:
            await self._void(request, f"denied by {by}: {reason}")
        if outcome.cause == "session_cancelled":
            return Approval(status="cancelled", reason=reason, request=request)
        return Approval(status="denied", reason=reason, request=request, hook=by, cause=outcome.cause)

    # -- asking --------------------------------------------------------------------------------------------------

    async def _await_answer(
        self, backend: ApprovalBackend, request: ApprovalRequest, stop: asyncio.Future[str]
    ) -> Approval:
        """Return the approval from the backend's answer, or from the deadline."""
        whole = (request.expires - request.created).total_seconds()
        left = max(0.0, min(whole, (request.expires - self.clock.now()).total_seconds()))  # a clock may be set back
        seconds = left if request.wait is None else min(request.wait + SLACK, left)
        try:
            async with underway(backend.request(request)) as asking:
                both: set[asyncio.Future[Any]] = {asking, stop}
                await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():  # withdraw before cancelling, so that the backend knows the reason
                    return await self._unanswered(request, stop.result() if stop.done() else EXPIRED)
                decision: object = result_of(asking)
        except errors.ApprovalPending as pending:
            if request.wait is not None:
                return Approval(status="pending", reason="the approver has not decided yet", request=request)
            await self._void(request, "no caller can come back to it")
            return unavailable_approval(request, str(pending))
        except errors.ApprovalTimeout:
            return await self._unanswered(request, EXPIRED)
        now = self.clock.now()
        if now >= request.expires:  # the session was too busy to see the deadline pass
            return await self._unanswered(request, EXPIRED)
        return self._approval_from(request, decision, now)

    def _approval_from(self, request: ApprovalRequest, decision: object, now: datetime) -> Approval:
        """Return the approval from an answer, which counts only if it was one of the offered options."""
        if not isinstance(decision, Decision):
            return unavailable_approval(request, f"the answer was of type {type(decision).__name__}")
        if decision.digest not in (None, request.digest):
            return replace(unavailable_approval(request, OTHER_ACT), cause="approval_mismatch")
        chosen = next((option for option in request.options if option.id == decision.option), None)
        if chosen is None:
            return unavailable_approval(request, f"{decision.option!r} was not offered")
        digest = request.digest
        if decision.arguments is not None:
            try:
                digest = approvals.answered_digest(request, decision.arguments)
            except (errors.InputNotFreezable, TypeError, ValueError) as error:
                return unavailable_approval(request, f"the edited arguments cannot be used: {error}")
            if approvals.is_for_another(chosen, request, digest):
                return unavailable_approval(request, approvals.CHANGED_ONCE)
        took = decision.took
        if took is None:
            took = max(0.0, (now - request.created).total_seconds())
        allows = chosen.allows
        return Approval(
            status="approved" if allows else "denied",
            allowed=allows,
            reason=f"Allowed by {decision.by}" if allows else f"User denied: {request.prompt}",
            request=request,
            decision=decision,
            option=chosen,
            took=took,
            digest=digest if allows else request.digest,
        )

    async def _unanswered(self, request: ApprovalRequest, why: str) -> Approval:
        """Return the end of a question that is withdrawn.

        If the backend has an answer by then: at expiry every answer counts, at any other withdrawal only a denial. An
        approval that is withdrawn has no effect and is recorded as late. At expiry without an answer the default holds;
        only there may silence allow.
        """
        decision = await self._take_back(request, why)
        if decision is not None:
            approval = self._approval_from(request, decision, self.clock.now())
            if why == EXPIRED or not approval.allowed:
                return approval
            await self.recorder.note("approval.late", late_answer(request, decision))
        if why != EXPIRED:
            return Approval(status="cancelled", reason=why, request=request)
        allowed = request.default == "allow"
        reason = f"Timeout - {'allowed' if allowed else 'denied'} by default"
        return Approval(status="expired", allowed=allowed, reason=reason, request=request)

    # -- after the decision --------------------------------------------------------------------------------------

    async def _finish(self, approval: Approval, call: str | None) -> Approval:
        """Record the end, then let it take effect. Without the record it has no effect."""
        request = approval.request
        try:
            await finish_despite_cancel(self.recorder.write("approval.decided", decision_facts(approval)))
        except RecordUnavailable:
            await self._take_back(request, "the record cannot be written")
            raise
        except asyncio.CancelledError:
            await finish_despite_cancel(self._take_back(request, "cancelled"))
            raise
        self.lease.waiting.pop(request.id, None)
        if approval.status == EXPIRED:
            log.info("approval_timeout", hook=asking_hooks(request))
        else:
            log.info("approval_decision", hook=asking_hooks(request), decision=approval.status)
        try:
            if not (approval.allowed and approval.claimable):
                await self.lease.mark_recorded(request)  # an approval is marked when it is claimed
            if not approval.allowed:
                await self._remember(approval)  # an allowance is kept when it is claimed
            event = EVENT_OF[approval.status]
            if self.hears(event):
                await self.announce(event, event_data(request, call, approval), asks=False)
        except asyncio.CancelledError:
            await finish_despite_cancel(self.withdraw(request, "cancelled"))
            raise
        return approval

    async def _remember(self, approval: Approval) -> None:
        """Store a decision that lasts as a grant. If that fails, a person is asked again the next time."""
        decision, option = approval.decision, approval.option
        if decision is not None and option is not None and option.lasts and not approval.grants:
            await answer_of(lambda: self.grants.remember(approval.request, decision), "approval_grants_failed")


async def answer_of(asking: Callable[[], Awaitable[T]], failure: str, *passed_on: type[Exception]) -> T | None:
    """Return the answer of a backend or a store of grants, which may raise anything.

    An error and a late answer are None, and are logged under the name `failure`. Errors of the types `passed_on` are
    raised.
    """
    try:
        return await within(BACKEND_TIMEOUT, asking())
    except passed_on:
        raise
    except Exception as error:  # noqa: BLE001  # see above
        log.warning(failure, error=describe(error))
        return None


def failed_approval(request: ApprovalRequest, error: Exception) -> Approval:
    """Return the end of a question whose backend raised an error."""
    said = unavailable_approval(request, str(error) if isinstance(error, errors.HookError) else describe(error))
    used = error if isinstance(error, errors.AlreadyRun) else None
    return replace(said, cause="approval_mismatch" if isinstance(error, errors.ApprovalMismatch) else None, used=used)


def unavailable_approval(request: ApprovalRequest, problem: str) -> Approval:
    """Return the end of a question that could not be asked, or got no valid answer."""
    log.warning("approval_unavailable", error=problem)
    return Approval(status="unavailable", reason=f"Approval unavailable: {problem}", request=request)


# -- in the forms of record and events ---------------------------------------------------------------------------------


def asking_hooks(request: ApprovalRequest) -> str:
    """Return the names of the asking hooks, for a log line."""
    return ", ".join(dict.fromkeys(question.hook for question in request.questions))


def request_summary(request: ApprovalRequest) -> dict[str, Any]:
    """Return the fields that identify a request; every record of it begins with them."""
    return {"request": request.id, "event": request.event, "tool": request.tool, "digest": request.digest}


def request_facts(request: ApprovalRequest) -> dict[str, Any]:
    """Return a request in the form of the record: arguments by their digest."""
    return request_summary(request) | {
        "hooks": [question.hook for question in request.questions],
        "assessments": [asdict(one) for one in request.assessments],
        **card_facts(request),
    }


def card_facts(request: ApprovalRequest) -> dict[str, Any]:
    """Return what an approver is shown of a request, in the form of record and events."""
    return {
        "prompt": request.prompt,
        "options": [option.label for option in request.options],
        "risk": request.risk,
        "impacts": [asdict(one) for one in request.impacts],
        "expires": request.expires.isoformat(),
    }


def decision_facts(approval: Approval) -> dict[str, Any]:
    """Return the end of a request in the form of the record: decider, channel, time, duration, option, and reason."""
    decision, option = approval.decision, approval.option
    facts = request_summary(approval.request) | {
        "status": approval.status,
        "allowed": approval.allowed,
        "reason": approval.reason,
        "by": approval.hook or (decision.by if decision else None),
        "channel": decision.channel if decision else None,
    }
    if decision is not None:
        facts |= {
            "option": option.label if option else None,
            "option_kind": option.kind if option else None,
            "decision": decision.id,
            "at": decision.at.isoformat() if decision.at else None,
            "took": approval.took,
            "message": decision.message,
        }
    if approval.edited is not None:
        facts["edited"] = approval.digest
    if approval.grants:
        facts["grants"] = [grant.id for grant in approval.grants]
    return facts


def late_answer(request: ApprovalRequest, decision: Decision) -> dict[str, Any]:
    """Return an answer to a withdrawn question, in the form of the record; it has no effect."""
    allows = any(option.allows for option in request.options if option.id == decision.option)
    return request_summary(request) | {
        "what": "approve" if allows else "deny",
        "at": decision.at.isoformat() if decision.at else None,
        "by": decision.by,
        "channel": decision.channel,
        "late": True,
    }


def stop_facts(stop: Stop) -> dict[str, Any]:
    """Return the begin of a stop, or its end if it is over, in the form of the record."""
    over = stop.ended is not None
    return {
        "stop": stop.id,
        "covers": {"tenant": stop.tenant, "session": stop.session},
        "why": stop.why,
        "by": stop.ended_by if over else stop.by,
        "at": (stop.ended or stop.at).isoformat(),
    }


def event_data(request: ApprovalRequest, call: str | None, approval: Approval | None = None) -> dict[str, Any]:
    """Return the payload of an approval event."""
    data: dict[str, Any] = {
        "approval_id": request.id,
        "hook": asking_hooks(request),
        "event": request.event,
        "tool_name": request.tool or None,
        "tool_call_id": call,
        "tool_input": approvals.act_of(request).arguments(),
        "digest": request.digest,
        "risk_reasons": [{"by": one.by, "reason": one.reason} for one in request.risk_reasons],
        **card_facts(request),
    }
    if approval is not None:
        data |= {
            "option": approval.option.label if approval.option else None,
            "decided_by": approval.hook or (approval.decision.by if approval.decision else None),
            "channel": approval.decision.channel if approval.decision else None,
            "reason": approval.reason,
            "duration_ms": None if approval.took is None else approval.took * 1e3,
        }
    return data
