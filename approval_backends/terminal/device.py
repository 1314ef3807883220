"""The terminal itself: whether there is one a person can answer at, and how it is left.

What the program prints while a card is on screen is held back, and printed when the card has gone.

Held back where it leaves the process, at the file descriptors: neither a log handler nor another thread nor a program
started meanwhile can write over the card, or write one of their own. Nothing is lost: what such a program writes later
is passed on for as long as this one lives.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import tempfile
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final, TextIO

from attrs import frozen

from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator, Mapping


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
def hold_back_output(terminal: int) -> Iterator[None]:
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


NO_TERMINAL: Final = "no interactive terminal to ask in"
DUMB: Final = frozenset({"", "dumb", "unknown"})


@frozen
class Terminal:
    """A terminal with a person at it. `number` is the device: two streams of one number are one screen."""

    stdin: TextIO
    stdout: TextIO
    number: int

    @property
    def utf8(self) -> bool:
        """Whether it was said to show more than ASCII."""
        return (self.stdout.encoding or "").lower().replace("-", "") == "utf8"

    @contextmanager
    def screen(self) -> Iterator[TextIO]:
        """A way to the screen of its own: standard output may lead elsewhere meanwhile."""
        file = os.fdopen(os.dup(self.stdout.fileno()), "w", encoding=self.stdout.encoding)
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):  # what could not be written to a terminal that is gone
                file.close()

    def save_modes(self) -> Callable[[], None]:
        """What it takes to set the terminal's modes to what they are now."""
        import termios

        stream = self.stdin.fileno()
        modes = termios.tcgetattr(stream)

        def set_back() -> None:
            with contextlib.suppress(termios.error, OSError):  # of a terminal that is gone nothing can be restored
                termios.tcsetattr(stream, termios.TCSANOW, modes)

        return set_back

    def forget_typed(self) -> None:
        """Drop what was typed before there was anything to answer, in the kernel's queue."""
        import termios

        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)

    def print_line(self, line: str) -> None:
        """One line that stays on the screen, whatever the program does with its standard output."""
        with contextlib.suppress(OSError, ValueError):
            os.write(self.stdout.fileno(), f"{line}\n".encode(self.stdout.encoding or "utf-8", "backslashreplace"))


def terminal_of(stdin: TextIO | None = None, stdout: TextIO | None = None) -> Terminal:
    """The terminal at both ends of these streams, by default of the program's own.

    Raises `BackendUnavailable` when nobody can read there what is asked, or nobody can answer.
    """
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    try:
        import termios  # noqa: F401  # there is none on Windows

        number = device_of(stdout)  # while a card is on the screen, standard output leads elsewhere
        if number is None or not stdin.isatty():
            raise BackendUnavailable(NO_TERMINAL)
    except (ImportError, AttributeError, ValueError, OSError):  # None, closed, or no real file
        raise BackendUnavailable(NO_TERMINAL) from None
    if os.environ.get("TERM", "").lower() in DUMB:
        raise BackendUnavailable(f"{NO_TERMINAL}: TERM says it cannot draw")
    if _in_background(stdin.fileno()):
        raise BackendUnavailable(f"{NO_TERMINAL}: the program runs in the background")
    return Terminal(stdin, stdout, number)


@contextmanager
def redirect_signals(loop: AbstractEventLoop, tell: Mapping[int, Callable[[], object]]) -> Iterator[None]:
    """Have these signals told instead of ending or stopping the program with the terminal as it is.

    Only those nobody else handles, and only where handlers can be set: in the main thread.
    """
    told = []
    if threading.current_thread() is threading.main_thread():
        told = [number for number in tell if signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in told:
            loop.add_signal_handler(number, tell[number])
        yield
    finally:
        for number in told:
            loop.remove_signal_handler(number)


def _in_background(stream: int) -> bool:
    try:
        return os.tcgetpgrp(stream) != os.getpgrp()
    except OSError:  # not the terminal that controls this program
        return False
