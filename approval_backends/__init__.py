"""Where people decide, and where decisions live.

    terminal        TerminalApprovals: a person at the terminal
    websocket       WebSocketApprovals: everybody at the page, and every client of the Agent Client Protocol
    rules           Rules: allow, ask or deny, from a file
    base            InProcessBackend: what backends that decide inside this process share
    errors          BackendUnavailable: nobody can be asked here

Heavy parts load on first use: importing this package brings no terminal and no network library.
"""

from typing import TYPE_CHECKING

from approval_backends.base import InProcessBackend
from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from approval_backends.rules import Rules
    from approval_backends.terminal import TerminalApprovals
    from approval_backends.websocket import WebSocketApprovals

__all__ = ["BackendUnavailable", "InProcessBackend", "Rules", "TerminalApprovals", "WebSocketApprovals"]


def __getattr__(name: str) -> object:
    if name == "TerminalApprovals":
        from approval_backends.terminal import TerminalApprovals

        return TerminalApprovals
    if name == "Rules":
        from approval_backends.rules import Rules

        return Rules
    if name == "WebSocketApprovals":
        from approval_backends.websocket import WebSocketApprovals

        return WebSocketApprovals
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
