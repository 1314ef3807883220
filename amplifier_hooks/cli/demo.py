"""`amplifier-hooks demo`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import Annotated, Final

import typer

__all__ = ["HELP", "demo"]

HELP: Final = """Watch a scripted agent meet three hooks.

Offline, without keys, in a folder of its own. One hook denies, one gives feedback, one asks you.

\b
Examples:
  amplifier-hooks demo
  amplifier-hooks demo --no-input
  amplifier-hooks demo --record demo.jsonl
"""


def demo(
    *,
    no_input: Annotated[bool, typer.Option("--no-input", help="Ask nobody; what would be asked is denied.")] = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the record in this new file.", show_default=False)
    ] = None,
) -> None:
    """Check what can be checked beforehand, then tell the story."""
    if record is not None and record.exists():
        raise typer.BadParameter(f"{record} exists; name a new file", param_hint="--record")
    import asyncio

    from amplifier_hooks.cli.story import tell

    try:
        asyncio.run(tell(ask=not no_input, record=record))
    except OSError as problem:
        typer.echo(f"The demo cannot go on: {problem}", err=True)
        raise typer.Exit(1) from None
