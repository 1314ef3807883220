"""`amplifier-hooks doctor`: the machine and the project come in; findings and their repairs go out."""

from __future__ import annotations

from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.cli.doctor.check_machine import Check, Symptom


DOCTOR: Final = """Find out what works on this machine and in this project, and how to repair the rest.

\b
Examples:
  amplifier-hooks doctor
  amplifier-hooks doctor --quiet
  amplifier-hooks doctor --json
  amplifier-hooks doctor --directory ../shop --store postgresql://127.0.0.1/shop

Nothing is changed. Plugins of installed packages are imported, in another process; no hook runs.
"""
DOCTOR_CODES: Final = "Exit codes: 0 everything works, 1 something does not, 2 it was called wrongly."
STYLES: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "failed": "bold red"}


def checks() -> dict[str, Check]:
    """Return every check by name, in the order of the report."""
    from amplifier_hooks.cli.doctor import check_machine, check_project

    return {
        "python": check_machine.python,
        "packages": check_machine.packages,
        "extras": check_machine.extras,
        "data": check_machine.data,
        "counters": check_machine.counters,
        "clock": check_machine.clock,
        "terminal": check_machine.terminal,
        "config": check_project.config,
        "hooks": check_project.hooks,
        "programs": check_project.other_programs,
        "plugins": check_project.plugins,
        "state": check_machine.state,
        "approvals": check_machine.approvals,
        "record": check_machine.record,
        "ports": check_machine.ports,
        "telemetry": check_machine.telemetry,
    }


def doctor(
    *,
    directory: Annotated[Path, typer.Option("--directory", "-C", metavar="DIR", help="The project.")] = Path(),
    store: Annotated[
        str | None,
        typer.Option(
            envvar="AMPLIFIER_HOOKS_STORE", metavar="ADDRESS", help="The store of approvals.", show_default=False
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The record; otherwise one of your own.", show_default=False)
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port of serve.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and failures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run all checks, and print the symptoms."""
    if not directory.is_dir():
        raise typer.BadParameter(f"{directory} is no folder", param_hint="--directory")
    from amplifier_hooks.cli.doctor.check_machine import Patient, run_checks
    from amplifier_hooks.cli.serve.serve_command import PORT

    patient = Patient(folder=directory.resolve(), store=store, record=record, port=port or PORT)
    found = list(run_checks(checks(), patient))
    failed = sum(finding.state == "failed" for finding in found)
    if as_json:
        print_symptoms_as_json(found, failed)
    else:
        print_symptoms([finding for finding in found if not quiet or finding.state in ("warning", "failed")])
        warned = sum(finding.state == "warning" for finding in found)
        typer.echo(f"{failed} failed, {warned} warnings, {len(found)} checked.", err=True)
    raise typer.Exit(1 if failed else 0)


def print_symptoms(found: Sequence[Symptom]) -> None:
    """Print each symptom on a line, and under it its repair, for people."""
    from rich.console import Console
    from rich.text import Text

    from amplifier_hooks.text.escape import for_log

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for one in found:
        console.print(Text.assemble((f"{one.state:<8}", STYLES[one.state]), f"{one.about:<10} {for_log(one.text)}"))
        if one.repair:
            console.print(f"{'':<19}repair: {for_log(one.repair)}")


def print_symptoms_as_json(found: Sequence[Symptom], failed: int) -> None:
    """Print the symptoms as JSON, for programs."""
    import json

    from attrs import asdict

    typer.echo(json.dumps({"ok": not failed, "checks": [asdict(finding) for finding in found]}, indent=1))
