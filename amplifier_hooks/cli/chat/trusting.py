"""Whether the hooks of a project may run: whoever opens it is shown what they would run, once for every change."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from amplifier_hooks.escape import for_log
from approval_backends.errors import BackendUnavailable
from approval_backends.terminal.device import terminal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from amplifier_hooks.definitions import DefinitionSet

__all__ = ["agreeing"]


def agreeing(*, ask: bool) -> Callable[[Path, DefinitionSet], bool]:
    """Asks at a terminal; says no where nobody can be asked. All of it is shown, however long it is.

    What was typed before the question does not answer it.
    """

    def agree(path: Path, found: DefinitionSet) -> bool:
        if not (ask and sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        typer.echo(f"{for_log(str(path))} has not been trusted as it is now. It switches on:", err=True)
        for entry in found.library:
            typer.echo(f"  {for_log(entry.name)}  {_said(dict(entry.config))}", err=True)
        for one in found.definitions:
            typer.echo(f"  {one.name} at {one.event_type}: {for_log(one.handler_ref)}  {_said(one.config)}", err=True)
        with suppress(BackendUnavailable):
            terminal_of(stdout=sys.stderr).forget_typed()
        return typer.confirm("Trust it to run as shown?", err=True)

    return agree


def _said(config: Mapping[str, Any]) -> str:
    return for_log(json.dumps(config, ensure_ascii=False, default=str)) if config else ""
