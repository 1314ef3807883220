"""Options that several commands have, each said once."""

from __future__ import annotations

from typing import Annotated

import typer

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
