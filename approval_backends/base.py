"""What every backend that decides inside this process has in common: an approval is claimed once, by its digest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from amplifier_hooks.ports import ApprovalRequest, Decision

__all__ = ["InProcessBackend"]


class InProcessBackend(ABC):
    """A backend whose requests live and die with the process. Subclasses only ask."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and keep the digest an approval would be for.

        Raises what `ask` raises. Cancelling it cancels the question.
        """
        decision = await self.ask(request)
        self._digests[request.id] = request.digest
        return decision

    @abstractmethod
    async def ask(self, request: ApprovalRequest) -> Decision:
        """Put the question to somebody and return what they chose."""

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval for running the action: once, and only for the digest that was shown."""
        return self._digests.pop(request_id, None) == digest

    async def settle(self, request_id: str, outcome: Literal["done", "failed"]) -> None:
        """Nothing is kept, so there is nothing to settle."""

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Forget the request. One that is unknown is none."""
        self._digests.pop(request_id, None)
