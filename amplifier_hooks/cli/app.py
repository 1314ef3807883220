"""The `amplifier-hooks` command: arguments come in; answers go to standard output, messages to standard error.

Each command has a file or a directory of its name, and a row in `COMMANDS`. Its module is loaded when the command is
used, so that `--help` and all other commands stay quick. Exit codes: 0 success, 1 a finding or a failure, 2 a usage
error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from amplifier_hooks.cli.common import terminal_io
from amplifier_hooks.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


class Entry(NamedTuple):
    """A command: the line that the list of commands shows, and the names of its parts in its module below `cli`."""

    short: str
    """One line of at most 80 characters."""
    module: str
    function: str
    """The function, whose docstring is its help, or the `typer.Typer` of a group."""


COMMANDS: Final = {
    "demo": Entry("Watch a scripted agent meet three hooks.", "demo.demo_command", "demo"),
    "init": Entry("Write a file of hooks for the project in this folder.", "project.project_commands", "init"),
    "validate": Entry("Find out whether a file of hooks is right.", "project.project_commands", "validate"),
    "list": Entry(
        "List the hooks, their order, and what a failure of each means.",
        *("project.project_commands", "list_hooks"),
    ),
    "test": Entry("Try one event: the hooks that it reaches, and why.", "project.project_commands", "try_event"),
    "replay": Entry(
        "Tell what your hooks would have decided about calls of the past.",
        *("replay.replay_command", "replay"),
    ),
    "chat": Entry("Talk to a model that works in a folder, behind your hooks.", "chat.chat_command", "chat"),
    "doctor": Entry("Find out what works here, and how to repair the rest.", "doctor", "doctor"),
    "ledger": Entry("List the calls that the hook tool_ledger has kept.", "audit.audit_commands", "ledger"),
    "report": Entry(
        "Tell what report-only hooks and rules would have done.",
        *("audit.audit_commands", "report"),
    ),
    "import": Entry("Take over the hooks of another program.", "programs.programs_commands", "import_hooks"),
    "install": Entry("Put our hook into the settings of another program.", "programs.programs_commands", "install"),
    "uninstall": Entry(
        "Take our hook out of another program's settings again.",
        *("programs.programs_commands", "uninstall"),
    ),
    "serve": Entry("Serve other programs, the page where people approve, or both.", "serve.serve_command", "serve"),
    "bridge": Entry(
        "Pass one question of another program to serve, and its answer back.",
        *("programs.programs_commands", "bridge"),
    ),
    "stop": Entry(
        "Stop the acts of a session, of a tenant, or all, in every process.",
        "approvals.approvals_commands",
        "stop",
    ),
    "resume": Entry("End a stop.", "approvals.approvals_commands", "resume"),
    "approvals": Entry(
        "Look at the requests that wait for an answer, and answer them.", "approvals.approvals_commands", "app"
    ),
    "audit": Entry("Read the record, and find out whether it is unchanged.", "audit.audit_commands", "audit_app"),
    "runs": Entry("Queue runs of agents, look at them, and run what is queued.", "runs.runs_commands", "runs_app"),
    "token": Entry("Say who may use the HTTP API, for which tenant, and for what.", "token", "token_app"),
}
"""The commands, in the order of the list of commands."""

DECIDING: Final = {
    "": ("init", "chat", "import", "install", "uninstall", "serve", "stop", "resume"),
    "approvals": ("allow", "deny", "revoke", "purge", "watch"),
    "audit": ("accept",),
    "runs": ("serve", "work", "submit", "stop", "purge"),
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


def describe(group: typer.Typer) -> None:
    """Make the docstring of each function the help of its command. Its examples are not wrapped.

    A command that names no exit codes of its own has those of all commands.
    """
    for command in group.registered_commands:
        command.help = (inspect.getdoc(command.callback) or "").replace("Examples:\n", "\b\nExamples:\n")
        command.epilog = None if "Exit codes" in command.help else ENDING
    for one in group.registered_groups:
        if one.typer_instance is not None:
            describe(one.typer_instance)


@cache
def load_command(name: str) -> Any:
    """Return a command, a function or a group, loaded from its module once."""
    entry = COMMANDS[name]
    module = import_module(f"amplifier_hooks.cli.{entry.module}")
    loaded: Any = getattr(module, entry.function)
    parent = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(loaded, typer.Typer):
        describe(loaded)
        for one in loaded.registered_commands:
            function = one.callback
            if function is not None and (known := one.name or function.__name__) in DECIDING[name]:
                one.callback = refusing(f"{name} {known}", function)
        parent.add_typer(loaded, name=name, short_help=entry.short)
        return get_group(parent).commands[name]
    register = parent.command(name, short_help=entry.short)
    register(refusing(name, loaded) if name in DECIDING[""] else loaded)
    describe(parent)
    return get_group(parent).commands[name]


class LoadedOnUse(Mapping[str, Any]):
    """The commands by name. A command is loaded when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The group of all commands. Its list of commands loads none of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = LoadedOnUse()

    def invoke(self, ctx: Any) -> Any:
        """Carry out a command. The message about a wrong option begins with the option's fault, not with its type."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as problem:
            problem.message = problem.message.removeprefix("Value error, ")
            raise

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the signature is typer's
        """Return the names of all commands."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the signature is typer's
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short) for name, entry in COMMANDS.items()])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # it prints local variables, which hold what tools and hooks were given
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
