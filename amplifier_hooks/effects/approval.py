"""A question becomes an answer: one request for all asking hooks, one deadline, and silence has a name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from attrs import frozen
from uuid import uuid4

from amplifier_hooks.action import Action
from amplifier_hooks.effects.audit import Recorder
from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, Clock, Decision, Option, OptionKind, Question
from amplifier_hooks.result import Ask, Outcome

__all__ = ["Approval", "Approver", "as_options"]

KNOWN_LABELS: Final[Mapping[str, OptionKind]] = {
    "allow": "allow_once",
    "allow once": "allow_once",
    "allow always": "allow_always",
    "deny": "reject_once",
}
"""What a plain label means. Any other is a rejection: a word nobody knows must not become a permit."""

log = get_logger(__name__)


@frozen(kw_only=True)
class Approval:
    """What became of a request."""

    status: Literal["allowed", "denied", "expired", "unavailable"]
    reason: str
    request: ApprovalRequest | None = None
    decision: Decision | None = None

    @property
    def allowed(self) -> bool:
        """Whether the action may run."""
        return self.status == "allowed"


def as_options(labels: Iterable[str]) -> tuple[Option, ...]:
    """Options from plain labels."""
    return tuple(
        Option(id=f"option-{number}", label=label, kind=KNOWN_LABELS.get(label.strip().casefold(), "reject_once"))
        for number, label in enumerate(labels, start=1)
    )


class Approver:
    """Asks on behalf of one session, and holds the backend to the deadline."""

    def __init__(self, backend: ApprovalBackend | None, recorder: Recorder, clock: Clock, agent: str) -> None:
        self._backend = backend
        self._recorder = recorder
        self._clock = clock
        self._agent = agent

    async def ask(self, outcome: Outcome, action: Action, arguments: Mapping[str, Any]) -> Approval:
        """One request for everything the hooks asked, and what became of it.

        Cancelling it withdraws the request and records that nobody decided.
        """
        if self._backend is None:
            return await self._settled(Approval(status="unavailable", reason="No approval system available"))
        request = self._request(outcome, action, arguments)
        await self._recorder.write("approval.requested", described(request), durable=True)
        approval = await self._answer(self._backend, request, outcome.approval_timeout)
        return await self._settled(approval)

    def _request(self, outcome: Outcome, action: Action, arguments: Mapping[str, Any]) -> ApprovalRequest:
        now = self._clock.now()
        return ApprovalRequest(
            id=uuid4().hex,
            tenant=action.tenant,
            session=action.session,
            agent=self._agent,
            event=action.event,
            tool=action.tool,
            arguments=arguments,
            digest=action.digest,
            questions=tuple(Question(hook=ask.hook_name, prompt=ask.prompt) for ask in outcome.asks),
            options=as_options(offered(outcome.asks)),
            default=outcome.approval_default,
            created=now,
            expires=now + timedelta(seconds=outcome.approval_timeout),
        )

    async def _answer(self, backend: ApprovalBackend, request: ApprovalRequest, wait: float) -> Approval:
        try:
            async with asyncio.timeout(wait):
                decision = await backend.request(request)
        except (ApprovalTimeout, TimeoutError):
            await backend.withdraw(request.id, "expired")
            allowed = request.default == "allow"
            reason = f"Timeout - {'allowed' if allowed else 'denied'} by default"
            return Approval(status="allowed" if allowed else "expired", reason=reason, request=request)
        except Exception as error:  # noqa: BLE001  # whatever went wrong, nobody approved
            log.warning("approval_unavailable", error=f"{type(error).__name__}: {error}")
            return Approval(status="unavailable", reason=f"Approval unavailable: {error}", request=request)
        chosen = next((option for option in request.options if option.id == decision.option), None)
        if chosen is None:
            reason = f"Approval unavailable: {decision.option!r} was not offered"
            return Approval(status="unavailable", reason=reason, request=request)
        reason = f"User denied: {request.prompt}" if not chosen.allows else f"Allowed by {decision.by}"
        status: Literal["allowed", "denied"] = "allowed" if chosen.allows else "denied"
        return Approval(status=status, reason=reason, request=request, decision=decision)

    async def _settled(self, approval: Approval) -> Approval:
        request, decision = approval.request, approval.decision
        facts = {
            "status": approval.status,
            "reason": approval.reason,
            "request": request.id if request else None,
            "digest": request.digest if request else None,
            "by": decision.by if decision else None,
            "channel": decision.channel if decision else None,
        }
        await self._recorder.write("approval.decided", facts, durable=True)
        return approval


def offered(asks: Iterable[Ask]) -> tuple[str, ...]:
    """The labels every asking hook offers; a refusal is always among them."""
    first, *rest = asks
    shared = tuple(label for label in first.options if all(label in ask.options for ask in rest))
    refusals = [option for option in as_options(shared) if not option.allows]
    return shared if refusals else (*shared, "Deny")


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
