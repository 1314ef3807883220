"""Approvals in the browser, and by every client of the Agent Client Protocol, served by the process that asks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from amplifier_hooks.storage.database import Openable
from approval_backends.backend import StoreApprovals
from approval_backends.errors import BackendUnavailable
from approval_backends.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from amplifier_hooks.ports import ApprovalRequest, AuditSink, Decision
    from approval_backends.broker import Broker
    from approval_backends.gateway.approvers import Approver
    from approval_backends.gateway.client_hub import ClientHub
    from approval_backends.gateway.mounted_gateway import Receive, Scope, Send, SignIn
    from approval_backends.gateway.rpc_methods import WatchedSink
    from approval_backends.stores.approval_store import ApprovalStore


class GatewayApprovals(Openable, StoreApprovals):
    """Asks every approver connected to its gateway; the first valid answer wins.

    Questions are kept in memory, or in a given store or broker; then they outlive this process, and other gateways over
    the same store show them as well.
    """

    gateway: ClientHub

    def __init__(self, store: ApprovalStore | Broker | None = None) -> None:
        super().__init__(store or MemoryStore())
        self._opened = False

    async def open(self) -> Self:
        """Open the store and listen. Opening twice is harmless.

        Raises `OSError` if the address is taken and `StoreUnavailable`; then nothing is left open.
        """
        await self.broker.store.open()
        try:
            await self.gateway.open()
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
            await self.gateway.close()
            await self.broker.store.close()

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and wait. Raises `BackendUnavailable` before the gateway is open: no approver could see the question."""
        if not self._opened:
            raise BackendUnavailable(f"the gateway is not open; use it as: async with {type(self).__name__}(…) as web")
        return await super().request(request)

    def watched_sink(self, sink: AuditSink) -> WatchedSink:
        """Return a sink for a session's record that shows each line to the clients that follow that session.

        Args:
            sink: Sink of the session's record.
        """
        return self.gateway.watched_sink(sink)


class WebSocketApprovals(GatewayApprovals):
    """Asks every approver connected to its gateway, which listens at an address of its own.

        async with WebSocketApprovals() as web:
            print(web.link)
            async with SessionCoordinator(hooks=registry, approvals=web) as session: ...

    Questions are kept in memory, or in a given store or broker; then they outlive this process, and other gateways over
    the same store show them as well. The options are those of `Gateway`.

    Args:
        approvers: Approvers that may connect; one with a token of its own if there are none.
        options: Options of `Gateway`, such as `host`, `port` and `names`.
    """

    def __init__(
        self, store: ApprovalStore | Broker | None = None, approvers: Iterable[Approver] = (), **options: Any
    ) -> None:
        super().__init__(store)
        from approval_backends.gateway.gateway import Gateway

        self.gateway: Gateway = Gateway(self.broker, approvers, **options)

    @property
    def link(self) -> str:
        """The address to open in a browser, with the first approver's token."""
        return self.gateway.link()


class MountedApprovals(GatewayApprovals):
    """Asks every approver at a page inside your own ASGI application: its port, its lifespan, its sign-in.

        approvals = MountedApprovals(signed_in)            # def signed_in(scope) -> Decider | None
        app = FastAPI(lifespan=approvals.lifespan)
        app.mount("/approvals", approvals)

    `sign_in` gets the ASGI scope of a request and returns the `Decider` who sent it, or None; it may be async. Without
    a decider no page and no socket is served. Questions are kept in memory, or in a given store or broker. `names` are
    the hosts, with ports, under which browsers know the application; without them, those of this machine.

    Args:
        sign_in: Function from the scope of a request to its approver, or to None.
        store: Store or broker of the questions.
        names: Hosts of the application, such as `shop.example`.
        options: Options of the gateway: `bounds`, `audit`, `tails`, `sign_in_again`.

    Raises:
        TypeError: `sign_in` cannot be called.
    """

    def __init__(
        self,
        sign_in: SignIn,
        store: ApprovalStore | Broker | None = None,
        *,
        names: Iterable[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(store)
        from approval_backends.gateway.mounted_gateway import MountedGateway

        self.gateway: MountedGateway = MountedGateway(self.broker, sign_in, names=names, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, a socket, or the lifespan of a server that has nothing but this."""
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        else:
            await self.gateway(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Keep the approvals open for the lifespan of an application. Raises `StoreUnavailable`.

        Args:
            _app: Application, which is not read.
        """
        async with self:
            yield

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        try:
            await self.open()
        except Exception as error:  # noqa: BLE001  # the server prints it, and ends
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})
