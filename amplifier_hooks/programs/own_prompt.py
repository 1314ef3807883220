"""An approval backend that asks nobody: the program's own prompt does, and whoever sits there decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from amplifier_hooks.errors import ApprovalPending
from amplifier_hooks.ports import Unfinished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ApprovalRequest


class AskedElsewhere:
    """Every question stays open here, for good. Nothing is approved, so there is never anything to claim."""

    durable = True

    async def request(self, request: ApprovalRequest) -> NoReturn:
        """Raises `ApprovalPending`."""
        raise ApprovalPending(request.id)

    async def claim(self, request_id: str, digest: str) -> bool:  # noqa: ARG002  # nobody approved it here
        """False."""
        return False

    async def settle(self, request_id: str, outcome: str) -> None:
        """Nothing."""

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Nothing."""

    async def begin_session(self, tenant: str, session: str) -> Unfinished:  # noqa: ARG002  # it keeps none
        """Nothing was left behind."""
        return Unfinished()

    async def end_session(self, tenant: str, session: str, reason: str) -> None:
        """Nothing."""

    async def recorded(self, request_id: str, number: int = 0) -> None:
        """Nothing."""

    async def unrecorded(self, tenant: str, session: str) -> tuple[Mapping[str, Any], ...]:  # noqa: ARG002  # as above
        """Nothing."""
        return ()
