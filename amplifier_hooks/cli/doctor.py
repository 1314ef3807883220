"""`amplifier-hooks doctor`: the parts that are in use on this machine come in; findings and their repairs go out."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path  # typer reads the annotations
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from attrs import frozen

from amplifier_hooks.cli.common.posting import answers, is_free, programs_port
from amplifier_hooks.cli.common.terminal_io import SERVE, AsJson, Directory, RecordFile, Store, count_text, print_json
from amplifier_hooks.errors import MissingExtra, SettingsError
from amplifier_hooks.storage.state_folder import StateFolder, default_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.ports import Stop


STYLES: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "failed": "bold red"}
REACHING: Final = 10.0
"""Seconds to reach a store."""
CHECKING: Final = 60.0
"""Seconds for a command of ours in another process."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@frozen
class Symptom:
    """One finding of a check. Unless its state is ok, `repair` names the command or the step that repairs it."""

    about: str
    state: str
    """`ok`, `note`, `warning` or `failed`."""
    text: str
    repair: str = ""


@frozen(kw_only=True)
class Patient:
    """The subject of the checks: a project, and the store and the record of the user."""

    folder: Path
    store: str | None = None
    record: Path | None = None


Findings = Iterator[tuple[str, ...]]
"""For each finding its state, its text, and a repair unless its state is ok."""


def run_checks(checks: Mapping[str, Callable[[Patient], Findings]], patient: Patient) -> Iterator[Symptom]:
    """Return the symptoms of all checks. A check that raises is a symptom, too."""
    for about, check in checks.items():
        try:
            for finding in check(patient):
                yield Symptom(about, *finding)
        except Exception as error:  # noqa: BLE001  # the other checks have to run
            report = "report this, with the output of: amplifier-hooks doctor --json"
            repair = str(error).partition(": ")[2] if isinstance(error, MissingExtra) else report
            yield Symptom(about, "failed", f"the check itself failed: {type(error).__name__}: {error}", repair)


def run_command(folder: Path, *words: str) -> tuple[int, str]:
    """Run a command of ours in another process; return its exit status and output. Raises `TimeoutExpired`."""
    command = [sys.executable, "-P", "-m", "amplifier_hooks", *words]  # -P: nothing is imported from the folder
    ended = subprocess.run(  # noqa: S603  # our own program
        command, capture_output=True, text=True, timeout=CHECKING, check=False, cwd=folder, stdin=subprocess.DEVNULL
    )
    return ended.returncode, ended.stdout or ended.stderr


def check_python(_patient: Patient) -> Findings:
    """Return the versions of Python and of this package, and the limits on Windows."""
    ours = metadata.version("amplifier-hooks")
    yield "ok", f"Python {platform.python_version()}, amplifier-hooks {ours}, {platform.system()}"
    if sys.platform == "win32":
        yield "note", "on Windows there is no card in the terminal, no record in a file, no bridge"


def check_terminal(_patient: Patient) -> Findings:
    """Check that a terminal can ask the user."""
    from approval_backends.errors import BackendUnavailable
    from approval_backends.terminal.device import terminal_of

    try:
        terminal_of()
    except BackendUnavailable as problem:
        repair = "run it in a terminal, or approve in a browser: amplifier-hooks serve --web --open"
        yield "note", f"no terminal can ask you here: {problem}", repair
        return
    yield "ok", "the terminal can ask you"


def check_tokens(_patient: Patient) -> Findings:
    """Return the method that counts the tokens of each model that the environment names, and its precision."""
    from amplifier_hooks.injection.tokens.tokenizers import yardstick

    named = filter(None, map(os.environ.get, ("ANTHROPIC_MODEL", "OPENAI_MODEL")))
    for model in named:
        method = yardstick(model).method
        exact = "exact" if method.startswith("tiktoken:") else "an estimate, rather too high than too low"
        yield "ok", f"{model}: {method}, {exact}"


def check_hooks(patient: Patient) -> Findings:
    """Check the project's file of hooks with `validate`, which imports nothing of a file that is not trusted."""
    from amplifier_hooks.cli.project.read_project import is_removed, project_file
    from amplifier_hooks.result import STOPS_NOTHING

    path = project_file(folder=patient.folder)
    if not path.exists() and not is_removed(path):
        yield "note", f"{path} is not there: no hooks come from a file", "amplifier-hooks init"
        return
    code, output = run_command(patient.folder, "validate", str(path), "--json")
    validate = join(["amplifier-hooks", "validate", str(path)])
    repair = f"mend it there, then: {validate}"
    try:
        said: dict[str, Any] = json.loads(output)
    except ValueError:
        yield "failed", f"the process that builds the hooks of {path} ended with exit status {code}", repair
        return
    yield from (("failed", flaw, repair) for flaw in said["flaws"])
    yield from (("warning", text, repair) for text in said["warnings"])
    if not said["enabled"]:
        yield "warning", "hooks_enabled is false: nothing runs", "set hooks_enabled to true"
    if said["changed"]:
        change = f"{path} has changed since it was trusted: the trusted files stay in force"
        decide = f"read it, then: {validate} --trust; or decide, where a server asks: amplifier-hooks approvals list"
        yield "warning", change, decide
    elif path.exists() and not said["trusted"]:
        unread = f"{path} is not trusted as it is now: no Python of it was imported"
        yield "note", unread, f"read it, then: {validate} --trust"
    for name in said["report_only"]:
        repair = "amplifier-hooks report shows what it would have done; without report_only: true it is in force"
        yield "note", f"{path}: {name} is {STOPS_NOTHING}", repair
    if said["ok"]:
        yield "ok", f"{path}: {count_text(said['hooks'], 'hook')}"


def check_programs(patient: Patient) -> Findings:
    """Check that a server answers the programs that ask us, by their settings in this project and this home."""
    from amplifier_hooks.programs.dialects import DIALECTS
    from amplifier_hooks.programs.import_settings import read_settings

    for dialect, path in ((one, path) for one in DIALECTS.values() for path in one.settings_files(patient.folder)):
        if not path.exists():
            continue
        try:
            ours = read_settings(path, dialect, project=patient.folder).ours
        except SettingsError as problem:
            yield "failed", str(problem), f"mend {path}"
            continue
        if not ours:
            continue
        entries = count_text(ours, "entry", "entries")
        yield "ok", f"{path}: {dialect.title} asks amplifier-hooks, with {entries}"
        if dialect.waits_for_review(path):
            yield "warning", f"{path}: {dialect.title} skips hooks that were not reviewed, silently", dialect.review
        if not answers(default_socket()):
            yield "warning", f"no server answers {dialect.title}, so its calls are refused", SERVE


def check_protection(_patient: Patient) -> Findings:
    """Name the running commands of ours that protect themselves against agents, and those that do not."""
    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.programs.guarded_processes import running_commands

    for one, protects in running_commands():
        words = " ".join(one.command[1:])
        if protects:
            files = count_text(len(TrustStore().trusted_files()), "trusted file")
            yield "ok", f"process {one.pid} protects {files}: {words}"
        else:
            yield "warning", f"process {one.pid} protects nothing: {words}", "start it without --no-self-protection"


def check_state(_patient: Patient) -> Findings:
    """Check that the state folder of the user is writable, and closed to other users."""
    folder = StateFolder().path
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        repair = f"chmod u+rwx {quote(str(folder))}" if nearest == folder else "set XDG_STATE_HOME to a folder of yours"
        yield "failed", f"{nearest} cannot be written", repair
    elif nearest == folder and os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) & OTHERS:
        yield "warning", f"{folder} can be read by others", f"chmod 700 {quote(str(folder))}"
    else:
        yield "ok", f"{folder} is yours alone" if nearest == folder else f"{folder} is made on first use"


def check_approvals(patient: Patient) -> Findings:
    """Check that the store of approvals answers, count its open requests, and name the stops in force."""
    from amplifier_hooks.cli.approvals.approvals_commands import stop_line
    from amplifier_hooks.cli.approvals.open_store import StoreView, Trouble
    from approval_backends.errors import UnknownStore

    view = StoreView(patient.store)
    if patient.store is None and not StateFolder().approvals.exists():
        return

    async def look() -> tuple[int, list[Stop]]:
        async with asyncio.timeout(REACHING), view.open_store() as desk:
            return len(await desk.waiting()), await desk.broker.stops_in_force(desk.viewer)

    try:
        count, stops = asyncio.run(look())
    except (Trouble, UnknownStore, OSError) as problem:
        yield "failed", str(problem) or f"{view.name} does not answer", "mend it, or name the store you use: --store"
        return
    yield "note" if count else "ok", f"{view.name}: {count} open", "amplifier-hooks approvals list" * (count > 0)
    for stop in stops:
        options = (("--tenant", stop.tenant), ("--session", stop.session))
        reach = [word for option in options if option[1] for word in option]
        yield "warning", stop_line(stop), join(["amplifier-hooks", "resume", *reach])


def check_record(patient: Patient) -> Findings:
    """Verify the record, if there is one."""
    path = patient.record or StateFolder().record
    if not path.exists():
        return
    key = path.with_name("audit.key.pub")
    verify = ["audit", "verify", str(path), *(["--key", str(key)] if key.exists() else [])]
    again = join(["amplifier-hooks", *verify])
    code, output = run_command(patient.folder, *verify)
    said = f"{path}: {next(iter(output.splitlines()), f'its check ended with exit status {code}')}"
    if code == 1:
        yield "failed", said, f"keep the files as they are, and look: {again}"
    else:
        yield "note" if code else "ok", said, again * bool(code)


def check_socket(_patient: Patient) -> Findings:
    """Check that a server answers at the socket for programs, if there is one."""
    path = default_socket()
    if not path.exists():
        return
    if not answers(path):
        yield "warning", f"{path} was left behind, and no server answers there", f"rm {quote(str(path))}"
        return
    yield "ok", f"a server answers programs at {path}"
    port = programs_port()
    if port is not None and is_free(port):
        remedy = f"end the server, and start it again: {SERVE}"
        yield "failed", f"programs post to port {port}, where the server does not listen", remedy


CHECKS: Final[Mapping[str, Callable[[Patient], Findings]]] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        *(check_python, check_terminal, check_tokens, check_hooks, check_programs, check_protection),
        *(check_state, check_approvals, check_record, check_socket),
    )
}
"""Each check by name, in the order of the report."""


def doctor(
    *,
    directory: Directory = Path(),
    store: Store = None,
    record: RecordFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and failures.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find out what works on this machine and in this project, and how to repair the rest.

    Examples:
      amplifier-hooks doctor
      amplifier-hooks doctor --quiet
      amplifier-hooks doctor --json
      amplifier-hooks doctor --directory ../shop --store postgresql://127.0.0.1/shop

    Only what is in use is checked, and nothing is changed. Modules of a trusted project are imported, in another
    process; no hook runs.
    """
    patient = Patient(folder=directory.resolve(), store=store, record=record and record.resolve())
    found = list(run_checks(CHECKS, patient))
    failed = sum(finding.state == "failed" for finding in found)
    if as_json:
        print_json({"ok": not failed, "checks": found})
        raise typer.Exit(1 if failed else 0)
    from rich.console import Console
    from rich.text import Text

    from amplifier_hooks.text.escape import for_log

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for one in found:
        if not quiet or one.state in ("warning", "failed"):
            console.print(Text.assemble((f"{one.state:<8}", STYLES[one.state]), f"{one.about:<10} {for_log(one.text)}"))
            if one.repair:
                console.print(f"{'':<19}repair: {for_log(one.repair)}")
    warned = sum(finding.state == "warning" for finding in found)
    typer.echo(f"{failed} failed, {count_text(warned, 'warning')}, {len(found)} checked.", err=True)
    raise typer.Exit(1 if failed else 0)
