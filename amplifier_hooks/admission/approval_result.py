"""The result of an approval request, in the forms for the session, the record and events.

`SessionGrants` keeps grants in memory for sessions whose backend keeps none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec.structs import asdict, replace

from amplifier_hooks.approvals import act_of, answered_digest, grant_keys, make_grants, match_grants
from amplifier_hooks.errors import AlreadyRun
from amplifier_hooks.events import APPROVAL_DENIED, APPROVAL_EXPIRED, APPROVAL_GRANTED
from amplifier_hooks.ports import ApprovalRequest, Decision, Grant, GrantStore
from amplifier_hooks.result import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_hooks.ports import Clock, GrantMatch, Option, Stop


Ending = Literal["approved", "denied", "expired", "unavailable", "cancelled", "pending"]

EVENT_OF: Final[Mapping[Ending, str]] = {
    "approved": APPROVAL_GRANTED,
    "denied": APPROVAL_DENIED,
    "expired": APPROVAL_EXPIRED,
    "unavailable": APPROVAL_DENIED,
    "cancelled": APPROVAL_DENIED,
}
"""Event for each end of a request. A pending request has none."""


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
    used: AlreadyRun | None = None
    """The end of the call that used the approval up."""

    @property
    def option(self) -> Option | None:
        """The chosen option."""
        chosen = self.decision.option if self.decision is not None else None
        return next((option for option in self.request.options if option.id == chosen), None)

    @property
    def edited_arguments(self) -> Mapping[str, Any] | None:
        """The approver's own arguments, if the approver allowed other arguments than the ones shown."""
        return self.decision.arguments if self.allowed and self.decision is not None else None

    @property
    def digest(self) -> str:
        """Digest of the action that was decided about."""
        return answered_digest(self.request, self.edited_arguments)

    @property
    def claimable(self) -> bool:
        """True if the approval is a person's and has to be claimed. A default and a grant are not claimed."""
        return self.decision is not None and not self.grants

    @property
    def message(self) -> str:
        """The reason, and the approver's message to the model."""
        said = self.decision.message if self.decision is not None and not self.allowed else None
        return f"{self.reason}\n{self.decision.by} says: {said}" if said and self.decision else self.reason


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
        "prompt": request.prompt,
        "options": [option.label for option in request.options],
        "risk": request.risk,
        "assessments": [asdict(one) for one in request.assessments],
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
    if approval.edited_arguments is not None:
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
        "tool_input": act_of(request).arguments(),
        "digest": request.digest,
        "prompt": request.prompt,
        "options": [option.label for option in request.options],
        "risk": request.risk,
        "risk_reasons": [{"by": one.by, "reason": one.reason} for one in request.risk_reasons],
        "impacts": [asdict(one) for one in request.impacts],
        "expires": request.expires.isoformat(),
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


class SessionGrants:
    """Grants of one session, until the session ends. Implements `GrantStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, Grant] = {}

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """Return the decision by grants for this request, with these grants; None without one."""
        if not self._kept:
            return None
        keys = set(grant_keys(request))
        return match_grants(request, [grant for grant in self._in_force() if grant.key in keys])

    async def remember(self, request: ApprovalRequest, decision: Decision) -> None:
        """Store a decision that lasts as grants."""
        for grant in make_grants(request, decision, decision.at or self._clock.now()):
            self._kept[grant.id] = grant

    async def use_grants(self, request: ApprovalRequest, grants: Sequence[Grant]) -> bool:
        """Count a call that these grants cover, unless one of them is over or used up."""
        if match_grants(request, [self._kept[one.id] for one in grants if one.id in self._kept]) is None:
            return False
        for grant in grants:
            self._kept[grant.id] = replace(self._kept[grant.id], used=self._kept[grant.id].used + 1)
        return True

    async def list_grants(self, tenant: str, session: str) -> list[Grant]:
        """Return the grants in force, oldest first."""
        return [grant for grant in self._in_force() if (grant.key.tenant, grant.key.session) == (tenant, session)]

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End one grant. Return True if it was in force."""
        there = any(grant.id == grant_id for grant in await self.list_grants(tenant, session))
        if there:
            del self._kept[grant_id]
        return there

    def _in_force(self) -> list[Grant]:
        now = self._clock.now()
        return [grant for grant in self._kept.values() if grant.expires is None or grant.expires > now]

    async def end_grants(self, tenant: str, session: str) -> None:
        """Remove all grants of the session."""
        for grant in await self.list_grants(tenant, session):
            del self._kept[grant.id]


def grant_store_of(backend: object) -> GrantStore | None:
    """Return the backend if it keeps grants itself, otherwise None."""
    if backend is None:  # a look at a protocol takes 10 µs
        return None
    return backend if isinstance(backend, GrantStore) else None
