"""One connection below the messages. It bounds all that `websockets` leaves open, and its log holds no secrets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode, Frame, Opcode

from amplifier_hooks.token_bucket import TokenBucket

if TYPE_CHECKING:
    from websockets.http11 import Request
    from websockets.http11 import Response as HttpResponse


MOST_QUEUED: Final = 1024 * 1024
"""Bytes that may wait to be sent beside our own messages: answers to pings, which have no other bound."""
FRAGMENTS: Final = 1_024
"""Pieces of one message; empty pieces add nothing to its size."""
CONTROL_RATE: Final = 50
CONTROL_AT_ONCE: Final = 200


class BoundedConnection(ServerConnection):
    """A connection that pings, pieces of a message, or unread answers cannot flood."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pieces = 0
        self._control = TokenBucket(CONTROL_RATE, CONTROL_AT_ONCE)

    def cut(self) -> None:
        """Close at once, whatever the peer does. Calling `cut` twice is harmless."""
        transport = getattr(self, "transport", None)  # there is none before there is a peer
        if transport is not None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read, and abort the connection of a peer that makes us write and does not read."""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_QUEUED:
            self.transport.abort()

    def process_event(self, event: Frame | Request | HttpResponse) -> None:
        """Handle an event, and count pings and pieces, which have no size."""
        super().process_event(event)
        if not isinstance(event, Frame):
            return
        if event.opcode in (Opcode.PING, Opcode.PONG):
            if self._control.seconds_to_wait(self.loop.time()):
                self._refuse("too many pings")
        else:
            self._pieces = 0 if event.fin else self._pieces + 1
            if self._pieces > FRAGMENTS:
                self._refuse("a message in too many pieces")

    def _refuse(self, reason: str) -> None:
        self.protocol.fail(CloseCode.POLICY_VIOLATION, reason)
        self.send_data()


class QuietLog(logging.LoggerAdapter[logging.Logger]):
    """The library's log without what it read: at debug level it would print headers and messages, tokens included."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  # the name logging has
        """Return False for the debug level."""
        return level > logging.DEBUG and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Replace an exception by its type: its text may hold what was read."""
        problem = kwargs.pop("exc_info", None)
        if problem:
            import sys

            kind = sys.exc_info()[0]
            msg = f"{msg} ({kind.__name__ if kind else 'unknown'})"
        return msg, kwargs
