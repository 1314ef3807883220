"""One card at a time on each terminal, first come, first served, whichever thread or event loop it comes from."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turns:
    """Whose turn it is. Cancelling whoever waits takes them out of the row."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._row: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait behind whose turn it is."""
        return len(self._row)

    @asynccontextmanager
    async def mine(self) -> AsyncIterator[None]:
        """Wait for the turn, and keep it for the body."""
        with self._lock:
            turn = asyncio.get_running_loop().create_future()
            if self._taken:
                self._row.append(turn)
            else:
                self._taken = True
                turn.set_result(None)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                waiting = turn in self._row
                if waiting:
                    self._row.remove(turn)
            if not waiting:
                self._pass_on()
            raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while True:
            with self._lock:
                if not self._row:
                    self._taken = False
                    return
                turn = self._row.popleft()
            try:
                turn.get_loop().call_soon_threadsafe(_give, turn)
            except RuntimeError:  # its loop is closed: nobody waits there any more
                continue
            return


def turns_at(terminal: int) -> Turns:
    """Whose turn it is at the terminal of this number."""
    with ROWS_LOCK:
        return ROWS.setdefault(terminal, Turns())


def _give(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


ROWS: Final[dict[int, Turns]] = {}
ROWS_LOCK: Final = threading.Lock()
