"""The terminal itself: finding one at which a person can answer, restoring it, and holding back other output.

The program's output is held back while a card is on screen, and printed when the card has gone. It is held back where
it leaves the process, at the file descriptors: neither a log handler nor another thread nor a program started
meanwhile can write over the card, or draw one of their own. Nothing is lost: the later output of such a program is
passed on for as long as this process lives.
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

TERMINAL_OF: Final[dict[int, int]] = {}
"""Streams that are held back, each with the number of the terminal to which it leads otherwise."""
LOCK: Final = threading.Lock()


def device_of(stream: TextIO) -> int | None:
    """Return the device number of the terminal to which a stream leads, held back or not; None if it leads to none.

    Raises `OSError` or `ValueError` for a stream without a file, and `AttributeError` for None.
    """
    with LOCK:
        file = stream.fileno()
        return TERMINAL_OF[file] if file in TERMINAL_OF else os.fstat(file).st_rdev if stream.isatty() else None


@contextmanager
def hold_back_output(terminal: int) -> Iterator[None]:
    """Hold back the output to this terminal (its device number) through standard output and standard error."""
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
                TERMINAL_OF[stream] = terminal
        os.close(pipe.sink)
        yield
    finally:
        _flush()
        with LOCK:
            for stream, before in saved.items():
                os.dup2(before, stream)
                os.close(before)
                TERMINAL_OF.pop(stream, None)
        pipe.release()


class Pipe:
    """The pipe that takes the output. A thread empties it, so that a writer never waits for the event loop."""

    def __init__(self, terminal: int) -> None:
        self._terminal = os.dup(terminal)
        self._source, self.sink = os.pipe()
        os.set_blocking(self._source, False)
        self._lock = threading.Lock()
        self._buffer: IO[bytes] | None = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # `release` closes it
        threading.Thread(target=self._pump, name="held-output", daemon=True).start()

    def release(self) -> None:
        """Print the kept output, and from now on pass on what comes."""
        with self._lock, contextlib.suppress(OSError):  # a terminal that is gone takes nothing any more
            self._read()
            buffer, self._buffer = self._buffer, None
            if buffer is not None:
                with buffer:
                    buffer.seek(0)
                    while chunk := buffer.read(CHUNK):
                        _write(self._terminal, chunk)

    def _pump(self) -> None:
        """Read until the last writer has closed its end."""
        going = True
        while going:
            select.select([self._source], [], [])
            with self._lock, contextlib.suppress(OSError):
                going = self._read()
        with self._lock:
            os.close(self._source)
            self._source = -1
        if self._buffer is None:
            os.close(self._terminal)

    def _read(self) -> bool:
        """Read all available output. Return True if more can come."""
        while self._source >= 0:
            try:
                chunk = os.read(self._source, CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            if self._buffer is None:
                _write(self._terminal, chunk)
            else:
                self._buffer.write(chunk)
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

    @contextmanager
    def screen(self) -> Iterator[TextIO]:
        """Open a separate way to the screen: standard output may lead to the pipe meanwhile."""
        file = os.fdopen(os.dup(self.stdout.fileno()), "w", encoding=self.stdout.encoding)
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):  # output that could not be written to a terminal that is gone
                file.close()

    def save_modes(self) -> Callable[[], None]:
        """Return a function that sets the terminal's modes back to those of now."""
        import termios

        stream = self.stdin.fileno()
        modes = termios.tcgetattr(stream)

        def set_back() -> None:
            with contextlib.suppress(termios.error, OSError):  # of a terminal that is gone nothing can be restored
                termios.tcsetattr(stream, termios.TCSANOW, modes)

        return set_back

    def forget_typed(self) -> None:
        """Drop the keys that were typed, in the kernel's queue, before there was a question."""
        import termios

        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)

    def print_line(self, line: str) -> None:
        """Print one line that stays on the screen, wherever the program's standard output leads."""
        with contextlib.suppress(OSError, ValueError):
            os.write(self.stdout.fileno(), f"{line}\n".encode(self.stdout.encoding or "utf-8", "backslashreplace"))


def terminal_of(stdin: TextIO | None = None, stdout: TextIO | None = None) -> Terminal:
    """Return the terminal at both ends of these streams, by default of the program's own.

    Raises `BackendUnavailable` if a person can neither read nor answer there.
    """
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    try:
        import termios  # noqa: F401  # there is none on Windows

        number = device_of(stdout)  # while a card is on the screen, standard output leads to the pipe
        if number is None or not stdin.isatty():
            raise BackendUnavailable(NO_TERMINAL)
    except (ImportError, AttributeError, ValueError, OSError):  # None, closed, or no real file
        raise BackendUnavailable(NO_TERMINAL) from None
    if os.environ.get("TERM", "").lower() in DUMB:
        raise BackendUnavailable(f"{NO_TERMINAL}: TERM says it cannot draw")
    if (stdout.encoding or "").lower().replace("-", "") != "utf8":
        raise BackendUnavailable(f"{NO_TERMINAL}: it speaks {stdout.encoding}; use a UTF-8 locale")
    if _in_background(stdin.fileno()):
        raise BackendUnavailable(f"{NO_TERMINAL}: the program runs in the background")
    return Terminal(stdin, stdout, number)


@contextmanager
def redirect_signals(loop: AbstractEventLoop, tell: Mapping[int, Callable[[], object]]) -> Iterator[None]:
    """Call these functions for signals that would end or stop the program with the terminal as it is.

    Only signals without another handler are redirected, and only where handlers can be set: in the main thread.
    """
    handled = []
    if threading.current_thread() is threading.main_thread():
        handled = [number for number in tell if signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in handled:
            loop.add_signal_handler(number, tell[number])
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _in_background(stream: int) -> bool:
    try:
        return os.tcgetpgrp(stream) != os.getpgrp()
    except OSError:  # not the terminal that controls this program
        return False
