"""The values of admission: one look at an act, and the three ends of a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from amplifier_hooks.act import Act, Call
from amplifier_hooks.admission.approval_result import Approval
from amplifier_hooks.dispatch.chain import Chain
from amplifier_hooks.errors import AlreadyRun
from amplifier_hooks.ports import ApprovalRequest
from amplifier_hooks.result import Outcome

if TYPE_CHECKING:
    from amplifier_hooks.result import Cause


class Judged(msgspec.Struct, frozen=True):
    """One look of hooks and rules at an act, as the hooks left it."""

    act: Act
    call: Call
    outcome: Outcome
    in_force: tuple[Chain, str] | None
    """The hooks and the digest of the rules that were in force as the look began; None for answers from elsewhere."""
    handles: Mapping[str, Any]
    """Fields of the event that are no JSON, passed by reference. No card and no record shows them."""
    by_rule: bool = False
    """True if a rule allowed what hooks asked about."""


class Permit(msgspec.Struct, frozen=True):
    """The only thing that lets an effect begin, once: the caller runs exactly `act.input`."""

    act: Act
    outcome: Outcome
    """The merged answers, as an outcome that goes on."""
    judged: Judged
    kind: str
    """The first word of the act's records; empty for an event without records of its own."""
    allowed: bool
    """True if a person, a rule or a grant allowed the act; False if no part of the path denied it."""
    approvals: tuple[Approval, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """A denial. Every question and unused approval of the call has been withdrawn."""

    outcome: Outcome
    act: Act | None = None
    used: AlreadyRun | None = None
    """The end of this very call, if an earlier attempt at it began."""

    @property
    def by(self) -> str:
        """The name of the hook, rule or part that denied."""
        return self.outcome.denied_by or "registry"

    @property
    def cause(self) -> Cause | None:
        """The kind of the denial."""
        return self.outcome.cause


class Pending(msgspec.Struct, frozen=True):
    """A question that stays open without a caller. A later call with the same id goes on from there."""

    outcome: Outcome
    request: ApprovalRequest
    act: Act


Verdict = Permit | Refused | Pending
