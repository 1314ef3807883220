"""Standard input, output and error, made fit to be used before a command runs.

Whoever starts a program may have closed them, and Python has None in their place then; and the next file that is opened
would get their number, so that a message ends up in it. Others speak an alphabet that lacks what is to be said.

Asking for a yes at the terminal. A command that changes something does so only with one, or with `--yes`.

What is said about what was asked for: on standard error, with whatever others wrote escaped.

Options that several commands have, each said once.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from amplifier_hooks.text.escape import for_terminal


def prepare_streams() -> None:
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


def print_system_error(problem: Exception) -> None:
    """Print why the command could not go on, if standard error still takes it."""
    from amplifier_hooks.text.escape import for_terminal

    with suppress(OSError):
        if not isinstance(problem, BrokenPipeError):  # whoever stops reading knows it
            print(for_terminal(f"It could not go on: {problem}"), file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains about what is left over, too


def is_interactive() -> bool:
    """Whether somebody reads what is asked, and can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_yes_no(question: str) -> bool:
    """Ask. Ctrl-C and Ctrl-D are a no, and what was typed before the question does not answer it."""
    from approval_backends.errors import BackendUnavailable
    from approval_backends.terminal.device import terminal_of

    with suppress(BackendUnavailable):
        terminal_of(stdout=sys.stderr).forget_typed()
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        return False


def confirm(question: str, *, yes: bool, no_input: bool) -> None:
    """Go on only with a yes.

    Raises `typer.BadParameter` where nobody can be asked and nobody said `--yes`; without a yes the program ends.
    """
    if yes:
        return
    if no_input or not is_interactive():
        raise typer.BadParameter(
            f"nobody can be asked to confirm here ({question}); with --yes nobody has to be", param_hint="--yes"
        )
    if not ask_yes_no(question):
        typer.echo("Nothing was done.", err=True)
        raise typer.Exit(1)


def print_error(text: str) -> None:
    """One message. It may hold foreign parts."""
    typer.echo(for_terminal(text), err=True)


def stop(why: str, code: int = 1) -> NoReturn:
    """End with a message."""
    print_error(why)
    raise typer.Exit(code) from None


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask anything; without --yes it stops instead.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask to confirm.")]
Store = Annotated[
    str | None,
    typer.Option(
        envvar="AMPLIFIER_HOOKS_STORE",
        metavar="ADDRESS",
        help="A SQLite file, or postgresql://...#schema; otherwise yours.",
        show_default=False,
    ),
]
