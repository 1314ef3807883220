"""Where people decide, and where decisions live.

    terminal        a person at the terminal

Heavy parts load on first use: importing this package brings no terminal library.
"""

from typing import TYPE_CHECKING, Any

from approval_backends.base import InProcessBackend
from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from approval_backends.terminal import TerminalApprovals

__all__ = ["BackendUnavailable", "InProcessBackend", "TerminalApprovals"]


def __getattr__(name: str) -> Any:
    if name == "TerminalApprovals":
        from approval_backends.terminal import TerminalApprovals

        return TerminalApprovals
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
