"""The `amplifier-hooks` command.

    __init__    the command itself: what it is called with, and how it ends
    demo        `amplifier-hooks demo`; one file for each command
    story       what the demo tells
    project/    `amplifier-hooks init`, `validate`, `list` and `test`
    chat/       `amplifier-hooks chat`
    doctor/     `amplifier-hooks doctor`
    streams     standard input, output and error
    consent     asking for a yes
    hooks       which hooks a command works with
    programs    `amplifier-hooks import`, `install` and `uninstall`
    bridge      `amplifier-hooks bridge`
    approvals/  `amplifier-hooks approvals`: its commands, and what they share
    audit/      `amplifier-hooks audit`: the same
    runs/       `amplifier-hooks runs`: the queue of runs, and everybody around it
    ledger      `amplifier-hooks ledger`: calls that were kept
    token       `amplifier-hooks token`: who may use the HTTP API
    serve       `amplifier-hooks serve`
    hosting     what it answers other programs with
    handover    its token, for programs of the same user

A command's file declares its options and loads what it needs when it runs, so that `--help` stays quick. What was
asked for goes to standard output, messages about it to standard error. Exit codes: 0 it worked, 1 it found something
or could not go on, 2 it was called wrongly.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from amplifier_hooks.cli import (
    approvals,
    audit,
    bridge,
    chat,
    demo,
    doctor,
    ledger,
    programs,
    project,
    runs,
    serve,
    streams,
    token,
)

__all__ = ["main"]

HELP: Final = """Hooks that watch, stop, change or ask: between an AI agent and what it does.

\b
Examples:
  amplifier-hooks demo               a tour; asks you once, in this terminal
  amplifier-hooks init               hooks for the project in this folder
  amplifier-hooks list               which they are, in which order, and what a failure means
  amplifier-hooks chat               try them; no key is needed
  amplifier-hooks doctor             what works here, and what repairs the rest
  amplifier-hooks approvals list     what waits for an answer
  amplifier-hooks audit verify record.jsonl --key audit.key.pub
  amplifier-hooks install codex      put it in front of a program you already use
  amplifier-hooks serve --web        the page where people approve
"""
ENDING: Final = "Exit codes: 0 it worked, 1 it found something or could not go on, 2 it was called wrongly."

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # it prints local variables, which hold what tools and hooks were given
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(help=demo.HELP)(demo.demo)
app.command(help=project.INIT, epilog=project.CODES)(project.init)
app.command(help=project.VALIDATE, epilog=project.CODES)(project.validate)
app.command("list", help=project.LIST, epilog=project.CODES)(project.list_hooks)
app.command("test", help=project.TEST, epilog=project.TRIED)(project.try_event)
app.command(help=chat.CHAT, epilog=chat.ENDING)(chat.chat)
app.command(help=doctor.DOCTOR, epilog=doctor.DOCTOR_CODES)(doctor.doctor)
app.add_typer(approvals.app, name="approvals")
app.add_typer(audit.audit_app, name="audit")
app.add_typer(runs.runs_app, name="runs")
app.add_typer(token.token_app, name="token")
app.command(help=ledger.LEDGER)(ledger.ledger)
app.command("import", help=programs.IMPORT)(programs.import_hooks)
app.command(help=programs.INSTALL)(programs.install)
app.command(help=programs.UNINSTALL)(programs.uninstall)
app.command(help=serve.HELP)(serve.serve)
app.command(help=bridge.BRIDGE, epilog=bridge.BRIDGE_CODES)(bridge.bridge)


def show_version(wanted: bool) -> None:  # noqa: FBT001  # typer passes the option's value by position
    """Print the version and end, if that is what was asked for."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"amplifier-hooks {version('amplifier-hooks')}")
        raise typer.Exit


@app.callback(help=HELP, epilog=ENDING)
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What stands before the name of a command."""


def main() -> None:
    """Run the command; the entry point of the distribution."""
    streams.made_fit()
    try:
        try:
            app(prog_name="amplifier-hooks")
        finally:
            sys.stdout.flush()
    except OSError as problem:  # a disk that is full, a folder that is another's: no traceback mends that
        streams.last_word(problem)
        sys.exit(1)
