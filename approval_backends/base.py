"""What every backend that decides inside this process has in common: an approval is claimed once, by its digest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from amplifier_hooks.action import Action, freeze
from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalRequest, Decision

__all__ = ["InProcessBackend"]


class InProcessBackend(ABC):
    """A backend whose requests live and die with the process. Subclasses only ask."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._approved: dict[str, str] = {}

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and keep the digest of what was approved, with the approver's own arguments, until it is claimed.

        Raises what `ask` raises, and `BackendUnavailable` for an answer to a question that was withdrawn meanwhile.
        Cancelling it cancels the question.
        """
        self._open.add(request.id)
        try:
            decision = await self.ask(request)
            if request.id not in self._open:
                raise BackendUnavailable("the question was withdrawn before the answer")
        finally:
            self._open.discard(request.id)
        if any(option.allows for option in request.options if option.id == decision.option):
            self._approved[request.id] = _digest(request, decision)
        return decision

    @abstractmethod
    async def ask(self, request: ApprovalRequest) -> Decision:
        """Put the question to somebody and return what they chose."""

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval for running the action: once, and only for the digest that was shown."""
        return self._approved.pop(request_id, None) == digest

    async def settle(self, request_id: str, outcome: Literal["done", "failed"]) -> None:  # noqa: B027  # may be enough
        """Nothing is kept, so there is nothing to settle."""

    async def withdraw(self, request_id: str, reason: str) -> None:  # noqa: ARG002  # for backends that can show it
        """Forget the request. One that is unknown is none."""
        self._open.discard(request_id)
        self._approved.pop(request_id, None)


def _digest(request: ApprovalRequest, decision: Decision) -> str:
    """The digest of what was approved. Raises `InputNotFreezable` for arguments that cannot be bound to one."""
    if decision.arguments is None:
        return request.digest
    arguments = freeze(dict(decision.arguments))
    return Action(request.tenant, request.session, request.event, request.tool, arguments).digest
