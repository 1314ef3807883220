"""Standard input, output and error, made fit to be used before a command runs.

Whoever starts a program may have closed them, and Python has None in their place then; and the next file that is opened
would get their number, so that a message ends up in it. Others speak an alphabet that lacks what is to be said.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path


def made_fit() -> None:
    """Put nothing in the place of what is closed; what cannot be read or spelt is escaped instead of raised."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    if isinstance(sys.stdout, TextIOWrapper):  # standard error is so already
        sys.stdout.reconfigure(errors="backslashreplace")


def _nothing(mode: str) -> TextIOWrapper:
    return TextIOWrapper(Path(os.devnull).open(f"{mode}b"), encoding="utf-8")


def last_word(problem: Exception) -> None:
    """Print why the command could not go on, if standard error still takes it."""
    from amplifier_hooks.text.escape import for_terminal

    with suppress(OSError):
        if not isinstance(problem, BrokenPipeError):  # whoever stops reading knows it
            print(for_terminal(f"It could not go on: {problem}"), file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains about what is left over, too
