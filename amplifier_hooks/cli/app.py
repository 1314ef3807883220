"""The `amplifier-hooks` command: arguments come in; answers go to standard output, messages to standard error.

Each command has a file or a directory of its name. It declares its options and loads what it needs when it runs, so
that `--help` stays quick. Exit codes: 0 success, 1 a finding or a failure, 2 a usage error.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from amplifier_hooks.cli import doctor, ledger, token
from amplifier_hooks.cli.approvals import approvals_commands, stop_commands
from amplifier_hooks.cli.audit import audit_commands, report_command
from amplifier_hooks.cli.chat import chat_command
from amplifier_hooks.cli.common import terminal_io
from amplifier_hooks.cli.demo import demo_command
from amplifier_hooks.cli.programs import bridge_command, programs_commands
from amplifier_hooks.cli.project import project_commands
from amplifier_hooks.cli.replay import replay_command
from amplifier_hooks.cli.runs import runs_commands
from amplifier_hooks.cli.serve import serve_command
from amplifier_hooks.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable


HELP: Final = """Hooks that watch, stop, change or ask: between an AI agent and what it does.

\b
Examples:
  amplifier-hooks demo               a tour; asks you once, in this terminal
  amplifier-hooks init               hooks for the project in this folder
  amplifier-hooks list               the hooks, their order, and what a failure of each means
  amplifier-hooks chat               try them; no key is needed
  amplifier-hooks doctor             what works here, and how to repair the rest
  amplifier-hooks approvals list     the requests that wait for an answer
  amplifier-hooks stop --why TEXT    no agent begins anything more, until resume
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

IN_SHORT: Final = {
    "demo": "Watch a scripted agent meet three hooks.",
    "init": "Write a file of hooks for the project in this folder.",
    "validate": "Find out whether a file of hooks is right.",
    "list": "List the hooks, their order, and what a failure of each means.",
    "test": "Try one event: the hooks that it reaches, and why.",
    "replay": "Tell what your hooks would have decided about calls of the past.",
    "chat": "Talk to a model that works in a folder, past your hooks.",
    "doctor": "Find out what works here, and how to repair the rest.",
    "ledger": "List the calls that the hook tool_ledger has kept.",
    "import": "Take over the hooks of another program.",
    "install": "Put our hook into the settings of another program.",
    "uninstall": "Take our hook out of another program's settings again.",
    "serve": "Serve other programs, the page where people approve, or both.",
    "bridge": "Pass one question of another program to serve, and its answer back.",
    "approvals": "Look at the requests that wait for an answer, and answer them.",
    "stop": "Stop the acts of a session, of a tenant, or all, in every process.",
    "resume": "End a stop.",
    "report": "Tell what report-only hooks and rules would have done.",
    "audit": "Read the record, and find out whether it is unchanged.",
    "runs": "Queue runs of agents, look at them, and run what is queued.",
    "token": "Say who may use the HTTP API, for which tenant, and for what.",
}
"""One line of at most 80 characters for each command, as the list of commands shows it."""


DECIDING: Final = {
    "": ("init", "chat", "import", "install", "uninstall", "serve", "stop", "resume"),
    "approvals": ("allow", "deny", "revoke", "purge", "watch"),
    "audit": ("accept", "purge"),
    "runs": ("serve", "work", "submit", "stop"),
    "token": ("create", "revoke"),
}
"""Commands, by their group, that decide in a person's place, and refuse to run inside a guarded session.

`validate --trust` refuses, too.
"""


def refusing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a command that decides in a person's place, with the refusal inside a session."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        terminal_io.refuse_inside_session(f"amplifier-hooks {name}")
        return function(*args, **options)

    return run


def command(name: str, help: str, epilog: str | None = None) -> Callable[[Callable[..., None]], object]:  # noqa: A002
    """Register the decorated function as a command."""
    register = app.command(name, help=help, epilog=epilog, short_help=IN_SHORT[name])
    return lambda function: register(refusing(name, function) if name in DECIDING[""] else function)


command("demo", demo_command.HELP)(demo_command.demo)
command("init", project_commands.INIT, project_commands.CODES)(project_commands.init)
command("validate", project_commands.VALIDATE, project_commands.CODES)(project_commands.validate)
command("list", project_commands.LIST, project_commands.CODES)(project_commands.list_hooks)
command("test", project_commands.TEST, project_commands.TRIED)(project_commands.try_event)
command("replay", replay_command.REPLAY, replay_command.REPLAY_CODES)(replay_command.replay)
command("chat", chat_command.CHAT, chat_command.ENDING)(chat_command.chat)
command("doctor", doctor.DOCTOR, doctor.DOCTOR_CODES)(doctor.doctor)
command("ledger", ledger.LEDGER)(ledger.ledger)
command("report", report_command.REPORT, report_command.REPORT_CODES)(report_command.report)
command("import", programs_commands.IMPORT)(programs_commands.import_hooks)
command("install", programs_commands.INSTALL)(programs_commands.install)
command("uninstall", programs_commands.UNINSTALL)(programs_commands.uninstall)
command("serve", serve_command.HELP)(serve_command.serve)
command("bridge", bridge_command.BRIDGE, bridge_command.BRIDGE_CODES)(bridge_command.bridge)
command("stop", stop_commands.STOP)(stop_commands.stop)
command("resume", stop_commands.RESUME)(stop_commands.resume)
for name, group in (
    ("approvals", approvals_commands.app),
    ("audit", audit_commands.audit_app),
    ("runs", runs_commands.runs_app),
    ("token", token.token_app),
):
    for one in group.registered_commands:
        function = one.callback
        if function is not None and (known := one.name or function.__name__) in DECIDING[name]:
            one.callback = refusing(f"{name} {known}", function)
    app.add_typer(group, name=name, short_help=IN_SHORT[name])


def show_version(wanted: bool) -> None:  # noqa: FBT001  # typer passes the option's value by position
    """Print the version and end, if `wanted`."""
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
    """Take the options that stand before the name of a command."""


def main() -> None:
    """Run the command; the entry point of the distribution."""
    terminal_io.prepare_streams()
    try:
        try:
            app(prog_name="amplifier-hooks")
        except ModuleNotFoundError as problem:
            raise MissingExtra.from_import(problem, "this command") or problem from None
        finally:
            sys.stdout.flush()
    except (OSError, MissingExtra) as problem:  # a full disk, another's folder, an extra: no traceback mends that
        terminal_io.print_system_error(problem)
        sys.exit(1)
