"""Asks the approver: one request for all asking hooks, with one deadline and a defined result for silence.

The order: grants → the session's lease on the backend → the record → `approval:required`, where a hook may still deny →
the backend, until the deadline → the record → the event of the result. A decision has no effect before it is on record.

A `Lease` is a session's hold on a backend that outlives the session: it begins before the first question and ends with
the session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field
from msgspec.structs import replace

from amplifier_hooks.act import Call
from amplifier_hooks.admission.approval_result import (
    EVENT_OF,
    Approval,
    SessionGrants,
    asking_hooks,
    decision_facts,
    event_data,
    grant_store_of,
    late_answer,
    request_facts,
    request_summary,
    stop_facts,
)
from amplifier_hooks.admission.build_request import Origin, build_request, predict_impacts
from amplifier_hooks.approvals import CHANGED_ONCE, answered_digest, is_for_another
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import (
    AlreadyRun,
    ApprovalMismatch,
    ApprovalPending,
    ApprovalTimeout,
    HookError,
    InputNotFreezable,
    StopInForce,
)
from amplifier_hooks.events import APPROVAL_REQUIRED
from amplifier_hooks.foreign_code import finish_despite_cancel, result_of, underway, within
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import (
    ApprovalRequest,
    CallStore,
    Decision,
    DurableApprovals,
    KnownCall,
    ProjectGrants,
    StopSource,
    Unfinished,
)
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import UserMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from amplifier_hooks.act import Act
    from amplifier_hooks.ports import ApprovalBackend, Clock, GrantStore, KeptResult, Settlement, Stop
    from amplifier_hooks.record.recorder import Recorder
    from amplifier_hooks.result import Outcome


BACKEND_TIMEOUT: Final = 5.0
"""Timeout, in seconds, for calls of the backend that need no person."""

log = get_logger(__name__)


class Lease:
    """A worker's part in a session of a durable backend, and the questions that wait there for a resumed call.

    For any other backend a lease does nothing.
    """

    def __init__(
        self,
        backend: object,
        recorder: Recorder,
        tenant: str,
        session: str,
        tell: Callable[[UserMessage], Awaitable[None]] | None = None,
    ) -> None:
        self._backend = durable_backend(backend)
        self._calls: CallStore | None = backend if backend is not None and isinstance(backend, CallStore) else None
        self._recorder = recorder
        self.session_key = (tenant, session)
        self._tell = tell
        self._begun: Unfinished | None = None
        self.tried = self._backend is None
        """True once the backend was asked for what other workers left, whether or not it answered."""
        self._one_at_a_time = asyncio.Lock()
        self.waiting: dict[str, ApprovalRequest] = {}
        """Questions that are open, or answered and not used, without a caller that waits for them inline."""

    @property
    def durable(self) -> bool:
        """True if questions stay open when no caller waits for them inline."""
        return self._backend is not None and self._backend.durable is True

    @property
    def begun(self) -> bool:
        """True if the record has all that other workers left, so that their questions may be used or withdrawn here."""
        return self._backend is None or self._begun is not None

    async def begin(self) -> Unfinished:
        """Begin the session in the backend, and complete the record with events that another worker did not write.

        Later calls return the first result. An act that another worker began and that has no result yet is reported to
        the user, and never repeated by itself. Raises what the backend raises, and `RecordUnavailable`; then no
        approver is asked, and the next call tries again.
        """
        self.tried = True
        async with self._one_at_a_time:
            if self._begun is None:
                self._begun = await self._acquire()
            return self._begun

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
            await self._recorder.note("session.suspended", {"waiting": sorted(self.waiting)})
            return False
        if self._backend is not None and self._begun is not None:
            await within(BACKEND_TIMEOUT, self._backend.end_session(*self.session_key, reason, final=final))
            await self._complete_record(self._backend)
        return True

    async def mark_recorded(self, request: ApprovalRequest) -> None:
        """Tell the backend that a request is on record so far.

        A failure is logged; the next worker completes the record.
        """
        if self._backend is not None:
            try:
                await within(BACKEND_TIMEOUT, self._backend.mark_recorded(request.id))
            except Exception as error:  # noqa: BLE001  # a backend may raise anything
                log.warning("approval_mark_failed", error=describe(error))

    async def _acquire(self) -> Unfinished:
        if self._backend is None:
            return Unfinished()
        found = await within(BACKEND_TIMEOUT, self._backend.begin_session(*self.session_key))
        await self._complete_record(self._backend)
        self.waiting |= {request.id: request for request in (*found.pending, *found.approved)}
        for request in found.unknown:
            await self._recorder.note("approval.unknown", request_summary(request), durable=True)
            if self._tell is not None:
                text = (
                    f"{request.tool or request.event} was approved and begun, and no result is known yet "
                    f"(request {request.id}). It is not run again; look, and settle it."
                )
                message = UserMessage(text=text, level="warning", hook_name="session", source="session")
                await self._tell(message)
        return found

    async def _complete_record(self, backend: DurableApprovals) -> None:
        """Record, marked as late, the events that another worker did not record."""
        numbers: dict[str, int] = {}
        for facts in await within(BACKEND_TIMEOUT, backend.list_unrecorded(*self.session_key)):
            await self._recorder.write("approval.late", {**facts, "late": True})
            numbers[facts["request"]] = max(facts["event_number"], numbers.get(facts["request"], 0))
        for request_id, number in numbers.items():
            await within(BACKEND_TIMEOUT, backend.mark_recorded(request_id, number))


def durable_backend(backend: object) -> DurableApprovals | None:
    """Return the backend if its questions may outlive the program, otherwise None."""
    return backend if backend is not None and isinstance(backend, DurableApprovals) else None


SLACK: Final = 1.0
"""Seconds a durable backend has to release a question after the inline wait; then the request is cancelled."""

EXPIRED: Final = "expired"
SUPERSEDED: Final = "superseded"
"""Reasons for withdrawing a question, in words that backends know."""


OTHER_ACT: Final = "the answer is about another act with this call id"

NO_CALL: Final = Call(chosen=False, returns=False)
"""A call that no later call can come back to."""


async def ignore_event(_event: str, _data: dict[str, Any]) -> Outcome | None:
    """Ignore an event about a question: the default for an approver without hooks."""
    return None


@define(eq=False)
class Approver:
    """Asks on behalf of one session, and holds the backend to the deadline.

    `emit` calls the hooks of an event, and returns the outcome if there are hooks.
    """

    backend: ApprovalBackend | None
    recorder: Recorder
    clock: Clock
    origin: Origin = field(factory=Origin)
    lease: Lease = field(kw_only=True)
    grants: GrantStore = field(kw_only=True)
    emit: Callable[[str, dict[str, Any]], Awaitable[Outcome | None]] = field(default=ignore_event, kw_only=True)
    _open: set[asyncio.Future[str]] = field(factory=set, init=False)
    _unsettled: dict[str, tuple[ApprovalRequest, Settlement, KeptResult | None]] = field(factory=dict, init=False)
    _stop_source: StopSource | None = field(init=False)
    _stops: dict[str, Stop] = field(factory=dict, init=False)
    """The stops that cover the session, as they are on record."""

    @lease.default
    def _default_lease(self) -> Lease:
        return Lease(self.backend, self.recorder, "", "")

    @_stop_source.default
    def _backend_as_stop_source(self) -> StopSource | None:
        backend: object = self.backend
        return backend if backend is not None and isinstance(backend, StopSource) else None

    @grants.default
    def _default_grants(self) -> GrantStore:
        return grant_store_of(self.backend) or SessionGrants(self.clock)

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
        await self._settle_all()
        now = self.clock.now()
        request = resumed or build_request(
            outcome,
            act,
            self.origin,
            now,
            call=call,
            attempt=attempt,
            durable=self.lease.durable,
            given=given,
            impacts=await predict_impacts(act, self.origin.cwd),
            keep=self._keep,
        )
        if unread is not None:
            return failed_approval(request, unread)
        approval = await self._match_grants(request) or await self._ask_person(request, call.id or None)
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
            return await self._use_grants(approval)
        if self.backend is None or not approval.claimable:
            return approval.allowed  # a default needs no claim
        try:
            claimed = await within(BACKEND_TIMEOUT, self.backend.claim(approval.request.id, approval.digest)) is True
        except StopInForce:
            raise
        except Exception as error:  # noqa: BLE001  # a backend may raise anything; an act without a claim does not run
            log.warning("approval_claim_failed", error=describe(error))
            return False
        if claimed:
            await self._remember(approval)
        return claimed

    async def _use_grants(self, approval: Approval) -> bool:
        """Count the call that grants cover. Return True if the act may run."""
        try:
            used = await within(BACKEND_TIMEOUT, self.grants.use_grants(approval.request, approval.grants))
        except StopInForce:
            raise
        except Exception as error:  # noqa: BLE001  # a store may raise anything; a call that is not counted does not run
            log.warning("approval_grants_failed", error=describe(error))
            return False
        return used is True

    @property
    def _keep(self) -> float | None:
        """The seconds for which the store keeps an "always" for a project, if it keeps any."""
        grants: object = self.grants
        return grants.keep_grants if isinstance(grants, ProjectGrants) else None

    @property
    def knows_stops(self) -> bool:
        """True if the backend knows the stops of acts."""
        return self._stop_source is not None

    async def find_stop(self, sessions: Sequence[tuple[str, str]]) -> Stop | None:
        """Return a stop that covers one of these sessions, or None. A stop that is new here, or over, goes on record.

        If the backend fails, the stops that were read last count.
        """
        if self._stop_source is None:
            return None
        try:
            found = await self._stop_source.stops()
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

    async def settle(self, approvals: Iterable[Approval], became: Settlement, result: KeptResult | None = None) -> None:
        """Report the end of a claimed act. A report that fails is repeated until the session ends: the act has run."""
        claimed = (approval.request for approval in approvals if approval.claimable)
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
        return await self._finish(self._approval_from(known.request, known.denial), call.id or None)

    async def _take_back(self, request: ApprovalRequest, why: str) -> Decision | None:
        """Withdraw a question from the backend. Return the answer that the backend had by then, or None."""
        self.lease.waiting.pop(request.id, None)
        if self.backend is not None:
            try:
                found: object = await within(BACKEND_TIMEOUT, self.backend.withdraw(request.id, why))
            except Exception as error:  # noqa: BLE001  # a backend may raise anything
                log.warning("approval_withdraw_failed", error=describe(error))
            else:
                return found if isinstance(found, Decision) else None
        return None

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
            await within(BACKEND_TIMEOUT, self.grants.end_grants(*self.lease.session_key))

    # -- before asking -------------------------------------------------------------------------------------------

    async def _match_grants(self, request: ApprovalRequest) -> Approval | None:
        """Return the approval by grants, or None. If the store fails, a person is asked."""
        try:
            found = await within(BACKEND_TIMEOUT, self.grants.match_grants(request))
        except Exception as error:  # noqa: BLE001  # a store may raise anything
            log.warning("approval_grants_failed", error=describe(error))
            return None
        if found is None:
            return None
        said, grants = found
        allows, first = said == "allow", grants[0]
        option = next((option.id for option in request.options if option.allows is allows), None)
        if option is None:
            return None
        if request.id in self.lease.waiting:
            await self._void(request, SUPERSEDED)
        return Approval(
            status="approved" if allows else "denied",
            allowed=allows,
            reason=f"Allowed for good by {first.by}" if allows else f"User denied: {request.prompt}",
            request=request,
            decision=Decision(option=option, by=first.by, channel="grant", id=first.id, at=first.created),
            grants=grants,
        )

    async def _ask_person(self, request: ApprovalRequest, call: str | None) -> Approval:
        """Ask a person, and return the approval or the substitute for it."""
        if self.backend is None:
            return Approval(status="unavailable", reason="No approval system available", request=request)
        stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open.add(stop)  # before the first await: from here on it can be withdrawn
        try:
            await self.lease.begin()
            resumed = {"resumed": True} if request.id in self.lease.waiting else {}
            await self.recorder.write("approval.requested", request_facts(request) | resumed)
            options = [option.label for option in request.options]
            log.info("approval_requested", hook=asking_hooks(request), prompt=request.prompt, options=options)
            return await self._denial_by_hook(request, call) or await self._await_answer(self.backend, request, stop)
        except asyncio.CancelledError:
            await finish_despite_cancel(self._record_cancelled(request))
            raise
        except RecordUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # after any error the act is not approved
            return failed_approval(request, error)
        finally:
            self._open.discard(stop)

    async def _record_cancelled(self, request: ApprovalRequest) -> None:
        """Withdraw a question whose caller was cancelled, and record its end."""
        approval = await self._unanswered(request, "cancelled")
        await self.recorder.note("approval.decided", decision_facts(approval))
        await self.lease.mark_recorded(request)

    async def _denial_by_hook(self, request: ApprovalRequest, call: str | None) -> Approval | None:
        """Return the denial of a hook at `approval:required`. Any other answer there has no effect."""
        outcome = await self.emit(APPROVAL_REQUIRED, event_data(request, call))
        if outcome is None or not outcome.denied:
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
        except ApprovalPending as pending:
            if request.wait is not None:
                return Approval(status="pending", reason="the approver has not decided yet", request=request)
            await self._void(request, "no caller can come back to it")
            return unavailable_approval(request, str(pending))
        except ApprovalTimeout:
            return await self._unanswered(request, EXPIRED)
        if self.clock.now() >= request.expires:  # the session was too busy to see the deadline pass
            return await self._unanswered(request, EXPIRED)
        return self._approval_from(request, decision)

    def _approval_from(self, request: ApprovalRequest, decision: object) -> Approval:
        """Return the approval from an answer, which counts only if it was one of the offered options."""
        if not isinstance(decision, Decision):
            return unavailable_approval(request, f"the answer was of type {type(decision).__name__}")
        if decision.digest not in (None, request.digest):
            return replace(unavailable_approval(request, OTHER_ACT), cause="approval_mismatch")
        chosen = next((option for option in request.options if option.id == decision.option), None)
        if chosen is None:
            return unavailable_approval(request, f"{decision.option!r} was not offered")
        try:
            digest = answered_digest(request, decision.arguments)
        except (InputNotFreezable, TypeError, ValueError) as error:
            return unavailable_approval(request, f"the edited arguments cannot be used: {error}")
        if is_for_another(chosen, request, digest):
            return unavailable_approval(request, CHANGED_ONCE)
        took = decision.took
        if took is None:
            took = max(0.0, (self.clock.now() - request.created).total_seconds())
        return Approval(
            status="approved" if chosen.allows else "denied",
            allowed=chosen.allows,
            reason=f"Allowed by {decision.by}" if chosen.allows else f"User denied: {request.prompt}",
            request=request,
            decision=decision,
            took=took,
        )

    async def _unanswered(self, request: ApprovalRequest, why: str) -> Approval:
        """Return the end of a question that is withdrawn.

        If the backend has an answer by then: at expiry every answer counts, at any other withdrawal only a denial. An
        approval that is withdrawn has no effect and is recorded as late. At expiry without an answer the default holds;
        only there may silence allow.
        """
        decision = await self._take_back(request, why)
        if decision is not None:
            approval = self._approval_from(request, decision)
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
            await self.emit(EVENT_OF[approval.status], event_data(request, call, approval))
        except asyncio.CancelledError:
            await finish_despite_cancel(self.withdraw(request, "cancelled"))
            raise
        return approval

    async def _remember(self, approval: Approval) -> None:
        """Store a decision that lasts as a grant. If that fails, a person is asked again the next time."""
        if approval.decision is None or approval.grants or approval.option is None or not approval.option.lasts:
            return
        try:
            await within(BACKEND_TIMEOUT, self.grants.remember(approval.request, approval.decision))
        except Exception as error:  # noqa: BLE001  # a store may raise anything
            log.warning("approval_grants_failed", error=describe(error))


def failed_approval(request: ApprovalRequest, error: Exception) -> Approval:
    """Return the end of a question whose backend raised an error."""
    said = unavailable_approval(request, str(error) if isinstance(error, HookError) else describe(error))
    used = error if isinstance(error, AlreadyRun) else None
    return replace(said, cause="approval_mismatch" if isinstance(error, ApprovalMismatch) else None, used=used)


def unavailable_approval(request: ApprovalRequest, problem: str) -> Approval:
    """Return the end of a question that could not be asked, or got no valid answer."""
    log.warning("approval_unavailable", error=problem)
    return Approval(status="unavailable", reason=f"Approval unavailable: {problem}", request=request)
