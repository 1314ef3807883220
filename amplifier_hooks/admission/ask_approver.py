"""Asking: one request for all asking hooks, one deadline, and silence has a name.

The order: standing answers → the session's lease on the backend → the record → `approval:required`, where a hook may
still say no → the backend, until the deadline → the record → the event of how it ended → whoever has to know. Nothing
that was decided has an effect before it is on record.

A session's hold on a backend that outlives it: begun before the first question, ended with the session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field

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
)
from amplifier_hooks.admission.build_request import Origin, build_request
from amplifier_hooks.approvals import answered_digest
from amplifier_hooks.dispatch.bounded_wait import result_of, underway, within
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import ApprovalMismatch, ApprovalPending, ApprovalTimeout, HookError, InputNotFreezable
from amplifier_hooks.events import APPROVAL_REQUIRED
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalRequest, Decision, DurableApprovals, Unfinished
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import UserMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.act import Action
    from amplifier_hooks.ports import ApprovalBackend, Clock, GrantStore, Settlement
    from amplifier_hooks.record.write.recorder import Recorder
    from amplifier_hooks.result import Outcome


BACKEND_TIMEOUT: Final = 5.0
"""Seconds a backend has for what needs no person."""

log = get_logger(__name__)


class Lease:
    """Who owns a session in a durable backend, and which of its questions wait there for somebody to come back.

    For any other backend everything here does nothing.
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
        self._recorder = recorder
        self.session_key = (tenant, session)
        self._tell = tell
        self._begun: Unfinished | None = None
        self._one_at_a_time = asyncio.Lock()
        self.waiting: dict[str, ApprovalRequest] = {}
        """Questions that are open, or answered and not used, although nobody waits for them inline."""

    @property
    def durable(self) -> bool:
        """Whether questions stay open when nobody waits for them inline."""
        return self._backend is not None and self._backend.durable is True

    async def begin(self) -> Unfinished:
        """Become the owner, and complete the record with what an earlier owner could not write. Once is enough.

        What it began without a result is shown to the person at the screen: it is never run again by itself. Raises
        what the backend raises, and `RecordUnavailable`; then nobody is asked, and the next one tries again.
        """
        async with self._one_at_a_time:
            if self._begun is None:
                self._begun = await self._acquire()
            return self._begun

    async def end(self, reason: str, *, final: bool = False) -> bool:
        """End the session there, unless questions wait for somebody to come back; whether it was ended."""
        if self.waiting and not final:
            await self._recorder.note("session.suspended", {"waiting": sorted(self.waiting)})
            return False
        if self._backend is not None and self._begun is not None:
            await within(BACKEND_TIMEOUT, self._backend.end_session(*self.session_key, reason))
            await self._complete_record(self._backend)
        return True

    async def mark_recorded(self, request: ApprovalRequest) -> None:
        """The record has everything about a request so far. A failure is logged: it is completed from there later."""
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
                    f"{request.tool or request.event} was approved and begun, and nobody knows whether it ran "
                    f"(request {request.id}). It is not run again; look, and settle it."
                )
                message = UserMessage(text=text, level="warning", hook_name="session", source="session")
                await self._tell(message)
        return found

    async def _complete_record(self, backend: DurableApprovals) -> None:
        """What happened and is not on record, because whoever was to write it has died; marked as late."""
        numbers: dict[str, int] = {}
        for facts in await within(BACKEND_TIMEOUT, backend.list_unrecorded(*self.session_key)):
            await self._recorder.write("approval.late", {**facts, "late": True})
            numbers[facts["request"]] = max(facts["event_number"], numbers.get(facts["request"], 0))
        for request_id, number in numbers.items():
            await within(BACKEND_TIMEOUT, backend.mark_recorded(request_id, number))


def durable_backend(backend: object) -> DurableApprovals | None:
    """The backend, if its questions may outlive the program."""
    return backend if isinstance(backend, DurableApprovals) else None


SLACK: Final = 1.0
"""Seconds a durable backend has to let go of a question after the inline wait; then it is cancelled."""

EXPIRED: Final = "expired"
SUPERSEDED: Final = "superseded"
"""Why a question is taken back, in words that backends know."""


async def ignore_event(_event: str, _data: dict[str, Any]) -> Outcome | None:
    """Nobody listens to what becomes of questions."""
    return None


@define(eq=False)
class Approver:
    """Asks on behalf of one session, and holds the backend to the deadline.

    `emit` tells the hooks of an event, and returns the outcome where somebody listens.
    """

    backend: ApprovalBackend | None
    recorder: Recorder
    clock: Clock
    origin: Origin = field(factory=Origin)
    lease: Lease = field(kw_only=True)
    grants: GrantStore = field(kw_only=True)
    emit: Callable[[str, dict[str, Any]], Awaitable[Outcome | None]] = field(default=ignore_event, kw_only=True)
    _open: set[asyncio.Future[str]] = field(factory=set, init=False)

    @lease.default
    def _default_lease(self) -> Lease:
        return Lease(self.backend, self.recorder, "", "")

    @grants.default
    def _default_grants(self) -> GrantStore:
        return grant_store_of(self.backend) or SessionGrants(self.clock)

    def cancel(self, reason: str) -> None:
        """Take every question back that somebody waits for; who asked is told that nobody decided."""
        for stop in self._open:
            if not stop.done():
                stop.set_result(reason)

    async def withdraw_waiting(self, reason: str) -> None:
        """Take back what stays open in a durable backend, and what was answered there and not used."""
        for request in list(self.lease.waiting.values()):
            await self._take_back(request, reason)

    async def ask(self, outcome: Outcome, action: Action, *, call: str | None = None, attempt: int = 0) -> Approval:
        """One request for everything the hooks asked, and what became of it.

        With a `call`, its id is made of that: asked again after a restart, it is the same question, and has the answer
        it was given. Cancelling it withdraws the request and records that nobody decided. Raises `RecordUnavailable`.
        """
        now = self.clock.now()
        request = build_request(
            outcome, action, self.origin, now, call=call, attempt=attempt, durable=self.lease.durable
        )
        approval = await self._match_grants(request) or await self._ask_person(request, call)
        if approval.status == "pending":
            await self.recorder.note("approval.pending", request_summary(request), durable=True)
            self.lease.waiting[request.id] = request
            await self.lease.mark_recorded(request)
            return approval
        return await self._finish(approval, call)

    async def claim(self, approval: Approval) -> bool:
        """Take somebody's approval for running the action, right before it runs."""
        if self.backend is None or not approval.claimable:
            return approval.allowed  # a default, or a standing answer, has nothing to claim
        try:
            return await within(BACKEND_TIMEOUT, self.backend.claim(approval.request.id, approval.digest)) is True
        except Exception as error:  # noqa: BLE001  # a backend may raise anything; what is not claimed does not run
            log.warning("approval_claim_failed", error=describe(error))
            return False

    async def settle(self, approval: Approval | None, became: Settlement) -> None:
        """Say what became of the action that was claimed. A failure is logged: it has run."""
        if self.backend is None or approval is None or not approval.claimable:
            return
        try:
            await within(BACKEND_TIMEOUT, self.backend.settle(approval.request.id, became))
        except Exception as error:  # noqa: BLE001  # a backend may raise anything
            log.warning("approval_settle_failed", error=describe(error))
        await self.lease.mark_recorded(approval.request)

    async def withdraw(self, request: ApprovalRequest, why: str) -> None:
        """Take a question back whose end is on record, and what was answered to it."""
        await self.lease.mark_recorded(request)  # as far as it is known; the withdrawal itself is still to come
        await self._take_back(request, why)

    async def _take_back(self, request: ApprovalRequest, why: str) -> Decision | None:
        """Have the backend take a question back. Returns the answer it had by then."""
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
        """Take a question back that is decided in another way. An answer that the backend has is on record as late."""
        decision = await self._take_back(request, why)
        if decision is not None:
            await self.recorder.note("approval.late", late_answer(request, decision))

    async def end(self, reason: str, *, final: bool = False) -> None:
        """The session is over: what is open in the backend is taken back, and grants end.

        Not so while calls are pending there, unless it is final. Raises what the backend and the store of grants raise.
        """
        if await self.lease.end(reason, final=final):
            await within(BACKEND_TIMEOUT, self.grants.end_grants(*self.lease.session_key))

    # -- before anybody is asked ---------------------------------------------------------------------------------

    async def _match_grants(self, request: ApprovalRequest) -> Approval | None:
        """What somebody has decided for good. If that cannot be found out, a person is asked."""
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
        """What a person makes of it, or what there is instead."""
        if self.backend is None:
            return Approval(status="unavailable", reason="No approval system available", request=request)
        stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open.add(stop)  # before anything is waited for: from here on it can be taken back
        try:
            await self.lease.begin()
            resumed = {"resumed": True} if request.id in self.lease.waiting else {}
            await self.recorder.write("approval.requested", request_facts(request) | resumed)
            options = [option.label for option in request.options]
            log.info("approval_requested", hook=asking_hooks(request), prompt=request.prompt, options=options)
            return await self._denial_by_hook(request, call) or await self._await_answer(self.backend, request, stop)
        except asyncio.CancelledError:
            approval = await self._unanswered(request, "cancelled")
            await self.recorder.note("approval.decided", decision_facts(approval))
            await self.lease.mark_recorded(request)
            raise
        except RecordUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # whatever went wrong, nobody approved
            said = unavailable_approval(request, str(error) if isinstance(error, HookError) else describe(error))
            return evolve(said, mismatch=isinstance(error, ApprovalMismatch))
        finally:
            self._open.discard(stop)

    async def _denial_by_hook(self, request: ApprovalRequest, call: str | None) -> Approval | None:
        """A hook may say no before a person is asked; it can say nothing else."""
        outcome = await self.emit(APPROVAL_REQUIRED, event_data(request, call))
        if outcome is None or not outcome.denied:
            return None
        by, reason = outcome.denied_by or "registry", outcome.reason or "no reason given"
        if request.id in self.lease.waiting:
            await self._void(request, f"denied by {by}: {reason}")
        if outcome.cause == "session_cancelled":
            return Approval(status="cancelled", reason=reason, request=request)
        return Approval(status="denied", reason=reason, request=request, hook=by)

    # -- asking --------------------------------------------------------------------------------------------------

    async def _await_answer(
        self, backend: ApprovalBackend, request: ApprovalRequest, stop: asyncio.Future[str]
    ) -> Approval:
        """The backend's answer, in time."""
        whole = (request.expires - request.created).total_seconds()
        left = max(0.0, min(whole, (request.expires - self.clock.now()).total_seconds()))  # clocks are put back, too
        seconds = left if request.wait is None else min(request.wait + SLACK, left)
        try:
            async with underway(backend.request(request)) as asking:
                both: set[asyncio.Future[Any]] = {asking, stop}
                await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():  # it is taken back before it is cancelled: then the reason is known everywhere
                    return await self._unanswered(request, stop.result() if stop.done() else EXPIRED)
                decision: object = result_of(asking)
        except ApprovalPending as pending:
            if request.wait is not None:
                return Approval(status="pending", reason="nobody has decided yet", request=request)
            await self._void(request, "nobody can come back to it")
            return unavailable_approval(request, str(pending))
        except ApprovalTimeout:
            return await self._unanswered(request, EXPIRED)
        if self.clock.now() >= request.expires:  # the session could not look at the clock when the answer came
            return await self._unanswered(request, EXPIRED)
        return self._approval_from(request, decision)

    def _approval_from(self, request: ApprovalRequest, decision: object) -> Approval:
        """What an answer comes to. It counts only if it is one of those that were offered."""
        if not isinstance(decision, Decision):
            return unavailable_approval(request, f"the answer was of type {type(decision).__name__}")
        chosen = next((option for option in request.options if option.id == decision.option), None)
        if chosen is None:
            return unavailable_approval(request, f"{decision.option!r} was not offered")
        try:
            answered_digest(request, decision.arguments)
        except (InputNotFreezable, TypeError, ValueError) as error:
            return unavailable_approval(request, f"the edited arguments cannot be used: {error}")
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
        """The end of a question that is taken back; if the backend has an answer by then, that answer's.

        An answer that expiry finds counts, and so does every denial. An approval that is taken back has no effect, and
        is put on record as late. When the time is up the default holds; here, and nowhere else, that may be to allow.
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

    # -- when it is decided --------------------------------------------------------------------------------------

    async def _finish(self, approval: Approval, call: str | None) -> Approval:
        """Put the end on record, then let it take effect; without the record it has none."""
        request = approval.request
        try:
            await self.recorder.write("approval.decided", decision_facts(approval))
        except RecordUnavailable:
            await self._take_back(request, "the record cannot be written")
            raise
        except asyncio.CancelledError:
            await self._take_back(request, "cancelled")
            raise
        self.lease.waiting.pop(request.id, None)
        if approval.status == EXPIRED:
            log.info("approval_timeout", hook=asking_hooks(request))
        else:
            log.info("approval_decision", hook=asking_hooks(request), decision=approval.status)
        try:
            if not (approval.allowed and approval.claimable):
                await self.lease.mark_recorded(request)  # an approval is marked when it is claimed
            await self._remember(approval)
            await self.emit(EVENT_OF[approval.status], event_data(request, call, approval))
        except asyncio.CancelledError:
            await self.withdraw(request, "cancelled")
            raise
        return approval

    async def _remember(self, approval: Approval) -> None:
        """Keep an answer that was given for good. If that fails, a person is asked again the next time."""
        if approval.decision is None or approval.grants or approval.option is None or not approval.option.lasts:
            return
        try:
            await within(BACKEND_TIMEOUT, self.grants.remember(approval.request, approval.decision, approval.digest))
        except Exception as error:  # noqa: BLE001  # a store may raise anything
            log.warning("approval_grants_failed", error=describe(error))


def unavailable_approval(request: ApprovalRequest, problem: str) -> Approval:
    """Nobody could be asked, or the answer was none."""
    log.warning("approval_unavailable", error=problem)
    return Approval(status="unavailable", reason=f"Approval unavailable: {problem}", request=request)
