"""Whether the hooks of a project may run: whoever opens it is shown what they would run, once for every change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from amplifier_hooks.cli.common.consent import agreed, somebody_here
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from amplifier_hooks.definitions import DefinitionSet


def agreeing(*, ask: bool) -> Callable[[Path, DefinitionSet], bool]:
    """Asks at a terminal; says no where nobody can be asked. All of it is shown, however long it is."""

    def agree(path: Path, found: DefinitionSet) -> bool:
        if not (ask and somebody_here()):
            return False
        typer.echo(f"{for_log(str(path))} has not been trusted as it is now. It switches on:", err=True)
        for entry in found.library:
            typer.echo(f"  {for_log(entry.name)}  {_said(dict(entry.config))}", err=True)
        for one in found.definitions:
            where = f"{for_log(one.name)} at {for_log(one.event_type)}{'' if one.enabled else ' (switched off)'}"
            typer.echo(f"  {where}: {for_log(one.handler_ref)}  {_said(one.config)}", err=True)
        return agreed("Trust it to run as shown?")

    return agree


def _said(config: Mapping[str, Any]) -> str:
    return for_log(json.dumps(config, ensure_ascii=False, default=str)) if config else ""
