"""Connections of approvers come in; waiting requests go out to them, and their decisions come back."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from approval_backends.gateway.approvers import Approver, new_token
    from approval_backends.gateway.edge.limits import Bounds
    from approval_backends.gateway.gateway import Gateway
    from approval_backends.gateway.websocket_approvals import WebSocketApprovals

__all__ = [
    "Approver",
    "Bounds",
    "Gateway",
    "WebSocketApprovals",
    "new_token",
]

HOMES: Final = {
    "Approver": "approvers",
    "Bounds": "edge.limits",
    "Gateway": "gateway",
    "WebSocketApprovals": "websocket_approvals",
    "new_token": "approvers",
}
"""The module of each name; it loads on first use."""


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"approval_backends.gateway.{HOMES[name]}"), name)
