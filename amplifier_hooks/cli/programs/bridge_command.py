"""`amplifier-hooks bridge`: the hook command of other programs, by a name that is easy to write into settings."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import Annotated, Final

import typer

from amplifier_hooks.cli.programs.programs_commands import ProgramName, WhenDown

BRIDGE: Final = """Pass one question of another program to `amplifier-hooks serve`, and its answer back.

\b
Examples:
  amplifier-hooks bridge claude-code < question.json
  amplifier-hooks bridge codex --when-down allow

Another program runs this command as its hook: the question comes on standard input. `amplifier-hooks install` writes
it into settings that a team commits, and a form of it that starts several times faster into your own.
"""
BRIDGE_CODES: Final = "Exit codes are the program's: 0 it answered, 2 the call is blocked; 2 also for a wrong call."


def bridge(
    program: Annotated[ProgramName, typer.Argument(metavar="PROGRAM", help="claude-code, codex or gemini.")],
    *,
    socket: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The server's socket.", show_default=False)
    ] = None,
    when_down: Annotated[WhenDown, typer.Option(help="At a gate, when no server answers.")] = WhenDown.DENY,
) -> None:
    """Pass the question to the server, and end with the exit code of its answer."""
    import os

    from amplifier_hooks.bridge import carry
    from amplifier_hooks.storage.state_folder import default_socket

    path = os.fspath(socket or default_socket())
    raise typer.Exit(carry([path, program.value.replace("-", "_"), when_down.value]))
