"""The terminal itself: whether there is one a person can answer at, and how it is left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from attrs import frozen

from approval_backends.errors import BackendUnavailable
from approval_backends.terminal.held_output import device_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator, Mapping


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

    def modes(self) -> Callable[[], None]:
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

    def say(self, line: str) -> None:
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
def signals_told(loop: AbstractEventLoop, tell: Mapping[int, Callable[[], object]]) -> Iterator[None]:
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
