"""What every backend that decides inside this process has in common: an approval is claimed once, by its digest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from amplifier_hooks.approvals.claims import Claims
from approval_backends.errors import BackendUnavailable
from approval_backends.upstream import AsUpstream

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalRequest, Decision, Settlement


class InProcessBackend(AsUpstream, ABC):
    """A backend whose requests live and die with the process. Subclasses only ask."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._claims = Claims()

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and keep the digest of what was approved until it is claimed.

        Raises what `ask` raises, `BackendUnavailable` for an answer to a question that was withdrawn meanwhile, and
        `InputNotFreezable` for edited arguments that are not plain JSON.
        Cancelling it cancels the question.
        """
        self._open.add(request.id)
        try:
            decision = await self.ask(request)
            if request.id not in self._open:
                raise BackendUnavailable("the question was withdrawn before the answer")
        finally:
            self._open.discard(request.id)
        self._claims.note(request, decision)
        return decision

    @abstractmethod
    async def ask(self, request: ApprovalRequest) -> Decision:
        """Put the question to somebody and return what they chose."""

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval for running the action: once, and only for the digest that was approved."""
        return self._claims.take(request_id, digest)

    async def settle(self, request_id: str, outcome: Settlement) -> None:  # may be enough
        """Nothing is kept, so there is nothing to settle."""

    async def withdraw(self, request_id: str, reason: str) -> None:  # noqa: ARG002  # for backends that can show it
        """Forget the request. One that is unknown is none."""
        self._open.discard(request_id)
        self._claims.drop(request_id)
