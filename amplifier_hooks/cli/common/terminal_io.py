"""Standard streams, confirmation, messages and shared options of the commands.

The parent process may have closed a standard stream, so that Python has None in its place; the next file to be opened
would then get the stream's number, and a message would end up in that file. Other streams have an encoding that lacks
some characters. A command that changes something does so only with a confirmation at the terminal, or with `--yes`.
Messages go to standard error, with foreign text escaped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL, EISDIR, ENOTDIR, EPERM, EROFS
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from amplifier_hooks.text.escape import for_terminal


class Output(TextIOWrapper):
    """Standard output that ends the command, without a word, when its reader has stopped reading (`| head`).

    It raises `SystemExit` in place of `BrokenPipeError`, so that no handler of other errors takes it for a failure.
    """

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            return super().write(text)
        except BrokenPipeError:
            _end_unread()

    def flush(self) -> None:
        """Write what waits."""
        try:
            super().flush()
        except BrokenPipeError:
            _end_unread()


def _end_unread() -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains about the unwritten rest, too
    raise SystemExit(1)


def prepare_streams() -> None:
    """Replace closed streams by the null device, and escape characters that a stream cannot read or write."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    if isinstance(sys.stdout, TextIOWrapper):  # standard error escapes already
        encoding, at_once = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = Output(sys.stdout.detach(), encoding, "backslashreplace", line_buffering=at_once)


def _nothing(mode: str) -> TextIOWrapper:
    return TextIOWrapper(Path(os.devnull).open(f"{mode}b"), encoding="utf-8")


REFUSED: Final = {
    EACCES: "you may not use {}; make it accessible to you, or name another",
    EPERM: "you may not use {}; make it accessible to you, or name another",
    EROFS: "{} is on a file system that is read-only; name another",
    ENOTDIR: "{} is below something that is no folder; name another",
    EISDIR: "{} is a folder; name a file",
}
"""Errors of the system about a file, in words that have the next step."""


def error_text(problem: Exception) -> str:
    """Return an error in words, with the file and the next step where the system refused a file."""
    if isinstance(problem, OSError) and isinstance(problem.filename, str) and problem.errno in REFUSED:
        return REFUSED[problem.errno].format(problem.filename)
    return str(problem)


def print_system_error(problem: Exception) -> None:
    """Print why the command could not go on, if standard error still takes it."""
    with suppress(OSError):
        print(for_terminal(f"The command could not go on: {error_text(problem)}"), file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains about the unwritten rest, too


def confirm(question: str, *, yes: bool, no_input: bool) -> None:
    """Go on only with a yes; end the program without one. Ctrl-C and Ctrl-D are a no.

    Keys typed before the question do not answer it. Where there is no terminal to ask at, and no `--yes`, the call is a
    wrong one.
    """
    if yes:
        return
    if no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        stop(f"Nothing was done, because there is no terminal to confirm at. {question} --yes confirms it.", 2)
    from approval_backends.errors import BackendUnavailable
    from approval_backends.terminal.device import terminal_of

    with suppress(BackendUnavailable):
        terminal_of(stdout=sys.stderr).forget_typed()
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        agreed = False
    if not agreed:
        stop("Nothing was done.")


def refuse_inside_session(what: str) -> None:
    """End the command if a process whose tool calls are guarded has started it: the command decides for a person."""
    from amplifier_hooks.programs.guarded_processes import guarded_parent

    if (guarded := guarded_parent()) is not None:
        stop(
            f"{what} decides in a person's place, and it was started by {guarded.name} (process {guarded.pid}), whose "
            "calls amplifier-hooks guards. Run it in a terminal of your own."
        )


LONGEST: Final = 1 << 20
"""Characters that are read from standard input, at most."""
TIME: Final = re.compile(r"(\d{1,6})([smhd])")
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def count_text(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, in the singular or in the plural."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def start_problem(problem: Exception, **ports: int | None) -> str:
    """Return why a server cannot start, and the next step. `ports` are the ports of its options, by their names."""
    if not isinstance(problem, OSError) or problem.errno not in (EADDRINUSE, EACCES, EADDRNOTAVAIL):
        return error_text(problem)
    place = problem.filename
    options = [name for name, port in ports.items() if port and str(place).endswith(f":{port}")]
    if not options:  # a file, or a socket that is one
        return error_text(problem)
    option = f"--{options[0].replace('_', '-')}"
    if problem.errno == EADDRINUSE:
        return f"another program listens at {place}; stop it, or name another port: {option} 0 takes a free one"
    if problem.errno == EACCES:
        return f"you may not listen at {place}; name a port above 1023 with {option}, and put a proxy in front"
    return f"this machine has no address {place}; name one of its own with --host"


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of a time such as `7d`. Raises `BadParameter`, with the option's name, for anything else."""
    found = TIME.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time; write 90s, 30m, 12h or 7d", param_hint=option)
    return int(found[1]) * SECONDS[found[2]]


def json_object(given: str, option: str, example: str) -> dict[str, Any]:
    """Return the JSON object of an option. `given` is JSON, a file of JSON, or `-` for standard input.

    Raises `BadParameter`, with the example, for anything else.
    """
    import json

    try:
        if given == "-":
            text = sys.stdin.read(LONGEST)
        else:
            text = given if given.lstrip().startswith(("{", "[")) else Path(given).read_text(encoding="utf-8")
        value = json.loads(text)
    except OSError as problem:
        text = f"{given:.80} is neither JSON nor a file that can be read ({problem.strerror})"
        raise typer.BadParameter(f"{text}; {example}", param_hint=option) from None
    except (ValueError, RecursionError) as problem:
        raise typer.BadParameter(f"{given:.80} is no JSON: {problem}; {example}", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{given:.80} is no JSON object; {example}", param_hint=option)
    return value


def print_text(text: str, *, err: bool = False) -> None:
    """Print lines that may quote foreign text, escaped."""
    typer.echo(for_terminal(text), err=err)


def print_lines(lines: Iterable[str]) -> int:
    """Print lines that are escaped already, and return their number."""
    count = 0
    for line in lines:
        typer.echo(line)
        count += 1
    return count


def print_error(text: str) -> None:
    """Print a message on standard error, escaped."""
    print_text(text, err=True)


def stop(why: str, code: int = 1) -> NoReturn:
    """Print a message, and end the command."""
    print_error(why)
    raise typer.Exit(code) from None


def print_json(value: object, indent: int | None = 1) -> None:
    """Print one JSON value of printable ASCII characters, which is safe on a terminal. Objects are their fields."""
    import json

    typer.echo(json.dumps(value, indent=indent, default=_plain).replace("\x7f", "\\u007f"))


def print_removed(count: int, noun: str, *, as_json: bool) -> None:
    """Print the number of things that a command has removed."""
    if as_json:
        print_json({"removed": count}, None)
    else:
        typer.echo(f"Removed {count_text(count, noun)}.")


def _plain(value: Any) -> Any:
    """Return a value that JSON does not have as one that it has."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    import attrs
    from msgspec import Struct, structs

    if isinstance(value, Struct):
        return structs.asdict(value)
    return attrs.asdict(value, recurse=False) if attrs.has(type(value)) else repr(value)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask; stop instead, without --yes.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask to confirm.")]
Directory = Annotated[
    Path, typer.Option("--directory", "-C", metavar="DIR", exists=True, file_okay=False, help="The project's folder.")
]
RecordFile = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="The record; otherwise one of your own.")
]
RulesFile = Annotated[Path | None, typer.Option("--rules", metavar="FILE", help="Rules that decide without a person.")]
NeverAsk = Annotated[bool, typer.Option("--no-input", help="Never ask; deny the calls that need an answer.")]
NoSelfProtection = Annotated[
    bool, typer.Option("--no-self-protection", help="Let agents change what guards them; the record says so.")
]
LAST_PORT: Final = 65_535
SERVE: Final = "amplifier-hooks serve --programs --web --hooks amplifier-hooks.yaml"
"""The whole command of a server for programs, with the file that `init` writes."""
Store = Annotated[
    str | None,
    typer.Option(
        envvar="AMPLIFIER_HOOKS_STORE",
        metavar="ADDRESS",
        help="A SQLite file, or postgresql://...#schema; otherwise yours.",
    ),
]


def user_name() -> str:
    """Return the name of the calling user from the system; environment variables do not count."""
    if sys.platform == "win32":
        return os.getlogin()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
