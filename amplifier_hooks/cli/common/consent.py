"""Asking for a yes at the terminal. A command that changes something does so only with one, or with `--yes`."""

from __future__ import annotations

import sys
from contextlib import suppress

import typer


def somebody_here() -> bool:
    """Whether somebody reads what is asked, and can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(question: str) -> bool:
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
    if no_input or not somebody_here():
        raise typer.BadParameter(
            f"nobody can be asked to confirm here ({question}); with --yes nobody has to be", param_hint="--yes"
        )
    if not agreed(question):
        typer.echo("Nothing was done.", err=True)
        raise typer.Exit(1)
