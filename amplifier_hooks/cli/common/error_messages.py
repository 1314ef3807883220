"""What is said about what was asked for: on standard error, with whatever others wrote escaped."""

from __future__ import annotations

from typing import NoReturn

import typer

from amplifier_hooks.text.escape import for_terminal


def complain(text: str) -> None:
    """One message. It may hold foreign parts."""
    typer.echo(for_terminal(text), err=True)


def stop(why: str, code: int = 1) -> NoReturn:
    """End with a message."""
    complain(why)
    raise typer.Exit(code) from None
