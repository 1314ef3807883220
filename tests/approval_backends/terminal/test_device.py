"""Finding a terminal at which a person can answer, and restoring it."""

from __future__ import annotations

import io
import os
import pty
import select
import termios
from typing import TYPE_CHECKING, TextIO

import pytest

from approval_backends.errors import BackendUnavailable
from approval_backends.terminal.device import NO_TERMINAL, terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """Yield the person's end of a terminal, and the program's."""
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r+b", buffering=0) as raw, io.TextIOWrapper(raw, encoding="utf-8") as file:
        yield ours, file
    os.close(ours)


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-01")
def test_forget_typed(ends: tuple[int, TextIO]) -> None:
    """Keys that were typed before are gone from the kernel's queue."""
    ours, file = ends
    terminal = terminal_of(file, file)
    os.write(ours, b"a\n")
    assert select.select([file], [], [], 5)[0]
    terminal.forget_typed()
    assert not select.select([file], [], [], 0)[0]


@pytest.mark.rule("BCK-1")
def test_modes(ends: tuple[int, TextIO]) -> None:
    """The modes of a terminal can be set back to what they were."""
    _, file = ends
    set_back = terminal_of(file, file).save_modes()
    before = termios.tcgetattr(file)
    changed = termios.tcgetattr(file)
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(file, termios.TCSANOW, changed)
    set_back()
    assert termios.tcgetattr(file) == before


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-04")
@pytest.mark.parametrize("name", ["", "dumb", "unknown"])
def test_no_terminal(ends: tuple[int, TextIO], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one end is no terminal, or it cannot draw or show every letter, no person can be asked."""
    _, file = ends
    for stdin, stdout in ((io.StringIO(), file), (file, io.StringIO())):
        with pytest.raises(BackendUnavailable, match=NO_TERMINAL):
            terminal_of(stdin, stdout)
    latin = io.TextIOWrapper(os.fdopen(os.dup(file.fileno()), "wb", 0), encoding="latin-1")
    with latin, pytest.raises(BackendUnavailable, match="it speaks latin-1; use a UTF-8 locale"):
        terminal_of(file, latin)
    monkeypatch.setenv("TERM", name)
    with pytest.raises(BackendUnavailable, match="TERM says it cannot draw"):
        terminal_of(file, file)
