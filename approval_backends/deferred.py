"""Decisions by another program, another process, another day: everything goes through the store.

    approvals = DeferredApprovals(SqliteStore("approvals.db"))                 # where the action runs
    await approvals.decide(record.id, record.digest, option, Decider(…))       # anywhere else, over the same store

`request` waits inline for as long as the request says; then the question stays open, and a caller that comes back with
the same id (after a restart, say) gets the decision that was made meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from amplifier_hooks.storage.database import Openable
from approval_backends.backend import StoreApprovals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import Grant
    from approval_backends.broker import Resolution
    from approval_backends.lifecycle import Decider, RequestRecord
    from approval_backends.stores.approval_store import UnfinishedRequests


class DeferredApprovals(Openable, StoreApprovals):
    """An approval backend without a screen of its own. Use it as an async context manager, or `open` and `close` it."""

    async def open(self) -> Self:
        """Open the store. Calling `open` twice is harmless."""
        await self.broker.store.open()
        return self

    async def close(self) -> None:
        """Withdraw the questions that are being asked here at this moment, then close the store.

        Closing twice is harmless. A question whose inline wait is over stays open: the store is there for that.
        """
        try:
            await self.cancel_all("the program that asked has ended")
        finally:
            await self.broker.store.close()

    async def pending(self, viewer: Decider) -> list[RequestRecord]:
        """Return the pending requests that the viewer may see, oldest first."""
        return await self.broker.pending(viewer)

    async def decide(
        self,
        request_id: str,
        digest: str,
        option: str,
        by: Decider,
        *,
        message: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        decision_id: str | None = None,
    ) -> Resolution:
        """Answer a request; see `Broker.decide`."""
        return await self.broker.decide(
            request_id, digest, option, by, message=message, arguments=arguments, decision_id=decision_id
        )

    async def grants(self, viewer: Decider) -> list[Grant]:
        """Return the grants in force that the viewer may see."""
        return await self.broker.grants(viewer)

    async def resume(self, tenant: str, session: str) -> UnfinishedRequests:
        """Return what other workers of a session left; see `Broker.resume`."""
        return await self.broker.resume(tenant, session)
