"""The gateway: approvals over WebSockets, and the page.

    backend      WebSocketApprovals: asking from the process that serves
    gateway      Gateway: serving, over any broker
    gate         Host, Origin and token, for page and socket alike      pure
    approvers    Approver: who may look, and who may decide
    visitor      one client, from its first words to its last
    desk         what it may want, answered
    waiting      what waits, read from the store
    outbox       what waits to be sent to one client
    tail         what happens in the sessions beside the gateway
    witness      what the gateway itself puts on record
    assets       the page's files
    connection   what the WebSocket library leaves open, bounded
    bounds       the numbers
    pace         how much of something there may be                     pure

The messages are in `approval_backends.wire`, and with examples in `specs/wire.md`.
"""

from typing import TYPE_CHECKING

from approval_backends.websocket.approvers import Approver, new_token
from approval_backends.websocket.backend import WebSocketApprovals
from approval_backends.websocket.bounds import Bounds

if TYPE_CHECKING:
    from approval_backends.websocket.gateway import Gateway

__all__ = ["Approver", "Bounds", "Gateway", "WebSocketApprovals", "new_token"]


def __getattr__(name: str) -> object:
    if name == "Gateway":
        from approval_backends.websocket.gateway import Gateway

        return Gateway
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
