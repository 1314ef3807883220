"""`amplifier-hooks demo`: a scripted agent meets three hooks; the story and its record go out."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import Annotated

import typer

from amplifier_hooks.cli.common.terminal_io import NeverAsk  # noqa: TC001  # as above


def demo(
    *,
    web: Annotated[bool, typer.Option("--web", help="Answer in the browser, where the demo waits.")] = False,
    no_input: NeverAsk = False,
    fast: Annotated[bool, typer.Option("--fast", help="Do not rest between the scenes.")] = False,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the record in this new file.")] = None,
) -> None:
    """Watch a scripted agent meet three hooks.

    Offline, without keys, in a folder of its own. The agent mends a linter's findings in the same turn, a long report
    is cut, a hook asks you, another denies, and the record shows every change that is made to it.

    Examples:
      amplifier-hooks demo
      amplifier-hooks demo --web
      amplifier-hooks demo --no-input
      amplifier-hooks demo --record demo.jsonl
    """
    if web and no_input:
        raise typer.BadParameter("the page asks, and --no-input forbids it", param_hint="--web and --no-input")
    if record is not None and record.exists():
        raise typer.BadParameter(f"{record} exists; name a new file", param_hint="--record")
    import asyncio

    from amplifier_hooks.cli.demo.scenes import Telling, tell

    try:
        asyncio.run(tell(Telling(ask=not no_input, web=web, record=record, fast=fast)))
    except OSError as problem:
        typer.echo(f"The demo cannot go on: {problem}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(1) from None
