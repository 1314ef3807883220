"""Asking: one request for all asking hooks, one deadline, and silence has a name."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from attrs import frozen

from amplifier_hooks.dispatch import describe
from amplifier_hooks.effects.approval.options import offered
from amplifier_hooks.effects.audit import Recorder, RecordUnavailable
from amplifier_hooks.effects.deadline import TooLate, Withdrawn, within
from amplifier_hooks.errors import ApprovalTimeout, HookError
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, Clock, Decision, Question
from amplifier_hooks.view import DataView

if TYPE_CHECKING:
    from amplifier_hooks.action import Action
    from amplifier_hooks.result import Outcome

__all__ = ["Approval", "Approver"]

LONGEST_WAIT: Final = 366 * 86_400.0
"""Seconds. A hook may name any finite time; dates end sooner."""

CARE: Final = 5.0
"""Seconds a backend has for what needs no person: claim, settle, withdraw."""

log = get_logger(__name__)


@frozen(kw_only=True)
class Approval:
    """What became of a request. `allowed` is not the same as `approved`: a default may allow what nobody answered."""

    status: Literal["approved", "denied", "expired", "unavailable", "cancelled"]
    allowed: bool = False
    reason: str
    request: ApprovalRequest
    decision: Decision | None = None


class Approver:
    """Asks on behalf of one session, and holds the backend to the deadline."""

    def __init__(self, backend: ApprovalBackend | None, recorder: Recorder, clock: Clock, agent: str) -> None:
        self._backend = backend
        self._recorder = recorder
        self._clock = clock
        self._agent = agent
        self._open: set[asyncio.Future[str]] = set()

    def cancel(self, reason: str) -> None:
        """Take every open question back; who asked is told that nobody decided."""
        for stop in self._open:
            if not stop.done():
                stop.set_result(reason)

    async def ask(self, outcome: Outcome, action: Action) -> Approval:
        """One request for everything the hooks asked, and what became of it.

        Cancelling it withdraws the request and records that nobody decided. Raises `RecordUnavailable`.
        """
        wait = min(outcome.approval_timeout, LONGEST_WAIT)
        request = self._request(outcome, action, wait)
        if self._backend is None:
            approval = Approval(status="unavailable", reason="No approval system available", request=request)
        else:
            stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._open.add(stop)  # before anything is waited for: from here on it can be taken back
            try:
                await self._recorder.write("approval.requested", described(request))
                options = [option.label for option in request.options]
                log.info("approval_requested", hook=asking(request), prompt=request.prompt, options=options)
                approval = await self._answer(self._backend, request, wait, stop)
            finally:
                self._open.discard(stop)
        try:
            await self._recorder.write("approval.decided", decided(approval))
        except RecordUnavailable:
            await self.withdraw(request, "the record cannot be written")
            raise
        except asyncio.CancelledError:
            await self.withdraw(request, "cancelled")
            raise
        if approval.status == "expired":
            log.info("approval_timeout", hook=asking(request))
        else:
            log.info("approval_decision", hook=asking(request), decision=approval.status)
        return approval

    async def claim(self, approval: Approval) -> bool:
        """Take somebody's approval for running the action, right before it runs."""
        if self._backend is None or approval.decision is None:
            return approval.allowed  # a default has nothing to claim
        try:
            return await within(CARE, self._backend.claim(approval.request.id, approval.request.digest)) is True
        except Exception as error:  # noqa: BLE001  # a backend may raise anything; what is not claimed does not run
            log.warning("approval_claim_failed", error=describe(error))
            return False

    async def settle(self, approval: Approval | None, became: Literal["done", "failed"]) -> None:
        """Say what became of the action that was claimed. A failure is logged: it has run."""
        if self._backend is not None and approval is not None and approval.decision is not None:
            try:
                await within(CARE, self._backend.settle(approval.request.id, became))
            except Exception as error:  # noqa: BLE001  # a backend may raise anything
                log.warning("approval_settle_failed", error=describe(error))

    async def withdraw(self, request: ApprovalRequest, why: str) -> None:
        """Take the question, or what was answered to it, back."""
        if self._backend is not None:
            try:
                await within(CARE, self._backend.withdraw(request.id, why))
            except Exception as error:  # noqa: BLE001  # a backend may raise anything
                log.warning("approval_withdraw_failed", error=describe(error))

    def _request(self, outcome: Outcome, action: Action, wait: float) -> ApprovalRequest:
        now = self._clock.now()
        arguments = action.input()
        return ApprovalRequest(
            id=uuid4().hex,
            tenant=action.tenant,
            session=action.session,
            agent=self._agent,
            event=action.event,
            tool=action.tool,
            arguments=DataView(arguments) if isinstance(arguments, dict) else DataView(),
            digest=action.digest,
            questions=tuple(Question(hook=ask.hook_name, prompt=ask.prompt) for ask in outcome.asks),
            options=offered(outcome.asks),
            default=outcome.approval_default,
            created=now,
            expires=now + timedelta(seconds=wait),
        )

    async def _answer(
        self, backend: ApprovalBackend, request: ApprovalRequest, wait: float, stop: asyncio.Future[str]
    ) -> Approval:
        try:
            decision: object = await within(wait, backend.request(request), stop)
        except (TooLate, ApprovalTimeout):
            return await self._expired(request)
        except Withdrawn as withdrawn:
            await self.withdraw(request, str(withdrawn))
            return Approval(status="cancelled", reason=str(withdrawn), request=request)
        except asyncio.CancelledError:
            await self.withdraw(request, "cancelled")
            approval = Approval(status="cancelled", reason="cancelled before anybody decided", request=request)
            await self._recorder.note("approval.decided", decided(approval))
            raise
        except Exception as error:  # noqa: BLE001  # whatever went wrong, nobody approved
            return self._unavailable(request, str(error) if isinstance(error, HookError) else describe(error))
        if self._clock.now() >= request.expires:
            return await self._expired(request)  # the answer came while nobody could look at the clock
        return self._counted(request, decision)

    def _counted(self, request: ApprovalRequest, decision: object) -> Approval:
        """What an answer comes to. It counts only if it is one of those that were offered."""
        if not isinstance(decision, Decision):
            return self._unavailable(request, f"the answer was of type {type(decision).__name__}")
        chosen = next((option for option in request.options if option.id == decision.option), None)
        if chosen is None:
            return self._unavailable(request, f"{decision.option!r} was not offered")
        if chosen.allows:
            reason = f"Allowed by {decision.by}"
            return Approval(status="approved", allowed=True, reason=reason, request=request, decision=decision)
        return Approval(status="denied", reason=f"User denied: {request.prompt}", request=request, decision=decision)

    async def _expired(self, request: ApprovalRequest) -> Approval:
        """Nobody answered in time, so the default holds; here, and nowhere else, that may be to allow."""
        await self.withdraw(request, "expired")
        allowed = request.default == "allow"
        reason = f"Timeout - {'allowed' if allowed else 'denied'} by default"
        return Approval(status="expired", allowed=allowed, reason=reason, request=request)

    def _unavailable(self, request: ApprovalRequest, problem: str) -> Approval:
        log.warning("approval_unavailable", error=problem)
        return Approval(status="unavailable", reason=f"Approval unavailable: {problem}", request=request)


def asking(request: ApprovalRequest) -> str:
    """The hooks that ask, as a log line names them."""
    return ", ".join(dict.fromkeys(question.hook for question in request.questions))


def described(request: ApprovalRequest) -> dict[str, Any]:
    """A request as the record has it: arguments by their digest."""
    return {
        "request": request.id,
        "event": request.event,
        "tool": request.tool,
        "digest": request.digest,
        "hooks": [question.hook for question in request.questions],
        "prompt": request.prompt,
        "options": [option.label for option in request.options],
        "expires": request.expires.isoformat(),
    }


def decided(approval: Approval) -> dict[str, Any]:
    """The end of a request as the record has it."""
    decision = approval.decision
    return {
        "status": approval.status,
        "allowed": approval.allowed,
        "reason": approval.reason,
        "request": approval.request.id,
        "digest": approval.request.digest,
        "by": decision.by if decision else None,
        "channel": decision.channel if decision else None,
    }
