"""Approvals in the browser, and by every client of the Agent Client Protocol, served by the process that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from amplifier_hooks.storage.database import Openable
from approval_backends.backend import StoreApprovals
from approval_backends.errors import BackendUnavailable
from approval_backends.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.ports import ApprovalRequest, AuditSink, Decision
    from approval_backends.broker import Broker
    from approval_backends.gateway.approvers import Approver
    from approval_backends.gateway.gateway_record import WatchedSink
    from approval_backends.stores.approval_store import ApprovalStore


class WebSocketApprovals(Openable, StoreApprovals):
    """Asks every approver connected to its gateway; the first valid answer wins.

        async with WebSocketApprovals() as web:
            print(web.link)
            async with SessionCoordinator(hooks=registry, approvals=web) as session: ...

    Questions are kept in memory, or in a given store or broker; then they outlive this process, and other gateways over
    the same store show them as well. The options are those of `Gateway`.
    """

    def __init__(
        self, store: ApprovalStore | Broker | None = None, approvers: Iterable[Approver] = (), **options: Any
    ) -> None:
        super().__init__(store or MemoryStore())
        from approval_backends.gateway.gateway import Gateway

        self.gateway = Gateway(self.broker, approvers, **options)
        self._opened = False

    @property
    def link(self) -> str:
        """The address to open in a browser, with the first approver's token."""
        return self.gateway.link()

    async def open(self) -> Self:
        """Open the store and listen. Opening twice is harmless.

        Raises `OSError` if the address is taken and `StoreUnavailable`; then nothing is left open.
        """
        await self.broker.store.open()
        try:
            await self.gateway.start()
        except BaseException:
            await self.broker.store.close()
            raise
        self._opened = True
        return self

    async def close(self) -> None:
        """Withdraw the questions that are being asked here, tell every client, then stop. Closing twice is harmless.

        A question whose inline wait is over stays open in a store that outlives the process.
        """
        self._opened = False
        try:
            await self.cancel_all("the program that asked has ended")
        finally:
            await self.gateway.stop()
            await self.broker.store.close()

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and wait. Raises `BackendUnavailable` before the gateway is open: no approver could see the question."""
        if not self._opened:
            raise BackendUnavailable("the gateway is not open; use it as: async with WebSocketApprovals() as web")
        return await super().request(request)

    def watched_sink(self, sink: AuditSink) -> WatchedSink:
        """Return a sink for a session's record that shows each line to the clients that follow that session."""
        return self.gateway.watched_sink(sink)
