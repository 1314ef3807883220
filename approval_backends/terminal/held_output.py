"""What the program prints while a card is on screen is held back, and printed when the card has gone.

Held back where it leaves the process, at the file descriptors: neither a log handler nor another thread nor a program
started meanwhile can write over the card, or write one of their own. Nothing is lost: what such a program writes later
is passed on for as long as this one lives.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import tempfile
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


STREAMS: Final = (1, 2)
IN_MEMORY: Final = 1 << 20
"""Bytes kept in memory; more go to a file that has no name."""
CHUNK: Final = 1 << 16

HELD: Final[dict[int, int]] = {}
"""Streams that are held back, with the number of the terminal to which they lead otherwise."""
LOCK: Final = threading.Lock()


def device_of(stream: TextIO) -> int | None:
    """The device number of the terminal that a stream leads to, held back or not; None if it leads to no terminal.

    Raises `OSError` or `ValueError` for a stream without a file, and `AttributeError` for None.
    """
    with LOCK:
        file = stream.fileno()
        return HELD[file] if file in HELD else os.fstat(file).st_rdev if stream.isatty() else None


@contextmanager
def held_back(terminal: int) -> Iterator[None]:
    """Hold back what goes to this terminal (its device number) through standard output and standard error."""
    ours = [stream for stream in STREAMS if _leads_to(stream, terminal)]
    if not ours:
        yield
        return
    _flush()
    pipe = Pipe(ours[0])
    saved = {stream: os.dup(stream) for stream in ours}
    try:
        with LOCK:
            for stream in ours:
                os.dup2(pipe.sink, stream)
                HELD[stream] = terminal
        os.close(pipe.sink)
        yield
    finally:
        _flush()
        with LOCK:
            for stream, before in saved.items():
                os.dup2(before, stream)
                os.close(before)
                HELD.pop(stream, None)
        pipe.release()


class Pipe:
    """Where the output goes instead. A thread empties it, so that whoever writes never waits for the event loop."""

    def __init__(self, terminal: int) -> None:
        self._terminal = os.dup(terminal)
        self._source, self.sink = os.pipe()
        os.set_blocking(self._source, False)
        self._lock = threading.Lock()
        self._kept: IO[bytes] | None = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # `release` closes it
        threading.Thread(target=self._pump, name="held-output", daemon=True).start()

    def release(self) -> None:
        """Print what was kept, and from now on pass on what comes."""
        with self._lock, contextlib.suppress(OSError):  # a terminal that is gone takes nothing any more
            self._read()
            kept, self._kept = self._kept, None
            if kept is not None:
                with kept:
                    kept.seek(0)
                    while chunk := kept.read(CHUNK):
                        _write(self._terminal, chunk)

    def _pump(self) -> None:
        """Until the last one that writes here has closed its end."""
        going = True
        while going:
            select.select([self._source], [], [])
            with self._lock, contextlib.suppress(OSError):
                going = self._read()
        with self._lock:
            os.close(self._source)
            self._source = -1
        if self._kept is None:
            os.close(self._terminal)

    def _read(self) -> bool:
        """Everything that is there; whether more can come."""
        while self._source >= 0:
            try:
                chunk = os.read(self._source, CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            if self._kept is None:
                _write(self._terminal, chunk)
            else:
                self._kept.write(chunk)
        return False


def _leads_to(stream: int, terminal: int) -> bool:
    try:
        return os.isatty(stream) and os.fstat(stream).st_rdev == terminal
    except OSError:  # closed
        return False


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, gone or closed
            stream.flush()


def _write(terminal: int, data: bytes) -> None:
    while data:
        data = data[os.write(terminal, data) :]
