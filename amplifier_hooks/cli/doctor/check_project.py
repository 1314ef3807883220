"""Checks of the project: its hook files, hooks of other programs, and plugins come in; symptoms and repairs go out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.cli.doctor.check_machine import NOTE, WARNING, Symptom, bad, good, reinstall
from amplifier_hooks.cli.project.read_project import make_importable
from amplifier_hooks.definitions import InvalidDefinitions, load_files
from amplifier_hooks.definitions.files.load_files import PROJECT_FILE
from amplifier_hooks.definitions.kinds.python import sources_of
from amplifier_hooks.errors import HookError, MissingExtra, SettingsError
from amplifier_hooks.registry.entry_points import GROUP, OURS, list_installed
from amplifier_hooks.text.error_sentences import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from amplifier_hooks.cli.doctor.check_machine import Patient
    from amplifier_hooks.definitions import DefinitionSet, HookDefinition
    from amplifier_hooks.definitions.files.load_files import ReadyMadeEntry


LOADING: Final = 20.0
"""Seconds a plugin may take to be imported."""
LOAD: Final = """
import sys
from importlib.metadata import entry_points
for point in entry_points(group=sys.argv[1]):
    print("begun", point.name, flush=True)
    try:
        point.load()
    except BaseException as error:
        print("problem", point.name, f"{type(error).__name__}: {error}".replace(chr(10), " "), flush=True)
print("over")
"""
"""A program that imports every plugin. If a plugin ends the process, its name is the last one after "begun"."""


def _file(patient: Patient) -> Path:
    return patient.folder / PROJECT_FILE


def config(patient: Patient) -> Iterator[Symptom]:
    """Return the settings in force, their sources, and the flaws of the project's file."""
    path = _file(patient)
    variables = sorted(name for name in patient.environment if name.startswith("AMPLIFIER_HOOKS"))
    if not path.exists():
        yield Symptom("config", NOTE, f"{path} is not there: no hooks come from a file", "amplifier-hooks init")
    else:
        try:
            found = load_files(path, environment=patient.environment)
        except InvalidDefinitions as problem:
            for flaw in problem.flaws:
                yield bad("config", str(flaw), f"mend it there, then: amplifier-hooks validate {quote(str(path))}")
        except (HookError, OSError) as problem:
            yield bad("config", str(problem), f"mend it, then: amplifier-hooks validate {quote(str(path))}")
        else:
            read = ", ".join(str(file) for file in found.files) or str(path)
            yield good("config", f"{len(found.definitions)} hooks, {len(found.library)} ready-made ones; read: {read}")
            if not found.settings.hooks_enabled:
                yield Symptom("config", WARNING, "hooks_enabled is false: nothing runs", "set hooks_enabled to true")
    given = f"; set here: {', '.join(variables)}" if variables else ""
    yield good("config", f"settings order: environment, then file, then defaults{given}")


def hooks(patient: Patient) -> Iterator[Symptom]:
    """Check that the commands of hooks exist, their addresses are allowed and their secrets are set.

    Matchers need no check: reading the file compiles them.
    """
    try:
        found = load_files(_file(patient), environment=patient.environment)
    except (HookError, OSError):
        return  # the check of the config reports it
    there = list_installed()
    for entry in found.library:
        if entry.name in there:
            yield from _ready_made(entry, there[entry.name])
        else:
            meant = suggestion(entry.name, there)
            text = f"{entry.spot}: no installed package has a hook called {entry.name!r}; {meant}"
            yield bad("hooks", text, f"mend it, then: amplifier-hooks validate {quote(str(_file(patient)))}")
    for definition in found.definitions:
        problems = list(_problems(definition, found, patient))
        for text, repair in problems:
            yield bad("hooks", f"{found.spot(definition)}: {definition.name}: {text}", repair)
        if not problems:
            what = definition.handler_ref if definition.kind == "python" else definition.kind
            off = "" if definition.enabled else ", switched off"
            yield good("hooks", f"{definition.name}: {what} at {definition.event_type}{off}")


def _ready_made(entry: ReadyMadeEntry, points: Sequence[EntryPoint]) -> Iterator[Symptom]:
    """Check a ready-made hook that the project uses; for one of this package, also its settings and its program."""
    if {point.dist.name for point in points if point.dist} != {OURS}:
        yield good("hooks", f"{entry.name}: ready-made, from another package")
        return
    try:
        settings = points[0].load().from_config(entry.config).settings
    except MissingExtra as missing:
        yield bad("hooks", f"{entry.spot}: {missing}", reinstall(missing.extra))
        return
    except HookError as problem:
        yield bad("hooks", f"{entry.spot}: {problem}", f"mend its settings in {entry.spot}")
        return
    command = getattr(settings, "command", ())
    beside = os.path.dirname(sys.executable)  # noqa: PTH120  # a search path is text
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), beside])  # as it is looked for when it runs
    if command and shutil.which(command[0], path=path) is None:
        text = f"{entry.spot}: {entry.name} is off: {command[0]} not found"
        yield Symptom("hooks", WARNING, text, f"install {command[0]}, or name another command in {entry.spot}")
    else:
        yield good("hooks", f"{entry.name}: ready-made")


def _problems(definition: HookDefinition, found: DefinitionSet, patient: Patient) -> Iterator[tuple[str, str]]:
    """Return each problem that would keep a hook from running, with its repair."""
    try:
        yield from _config_problems(definition, found, patient)
    except HookError as problem:
        yield str(problem), f"mend its config in {found.spot(definition)}"


def _config_problems(definition: HookDefinition, found: DefinitionSet, patient: Patient) -> Iterator[tuple[str, str]]:
    settings: dict[str, Any] = definition.config
    for name in _variables(settings):
        if not patient.environment.get(name):
            yield f"the variable {name} is not set", f"export {name}=…"
    if definition.kind == "python":
        make_importable(found.folder)
        if not sources_of(definition.handler_ref):
            text = f"nothing called {definition.handler_ref!r} is found beside the file or among what is installed"
            yield text, f"mend its handler_ref in {found.spot(definition)}"
    elif definition.kind == "command":
        from amplifier_hooks.definitions.kinds.command import CommandHook

        argv, cwd = settings.get("argv") or (), found.folder / (settings.get("cwd") or ".")
        for problem in CommandHook(argv=argv, cwd=str(cwd)).problems():
            yield problem, f"make it executable (chmod +x), or mend its argv in {found.spot(definition)}"
    elif definition.kind == "http":
        from amplifier_hooks.definitions.kinds.allowed_urls import AllowedUrls

        reach = AllowedUrls(
            networks=settings.get("networks") or (),
            ports=settings.get("ports") or (443,),
            http=settings.get("plain_http") is True,
        )
        if not settings.get("secret") and not settings.get("secret_env"):
            yield "it has no secret: any program that can reach the address could pose as it", "set secret_env"
        reach.check_url(str(settings.get("url")))


def _variables(settings: dict[str, Any]) -> Iterator[str]:
    """Return the names of the variables in a config."""
    for key in ("secret_env", "pass_env"):
        value = settings.get(key) or ()
        yield from [value] if isinstance(value, str) else map(str, value)
    yield from map(str, (settings.get("headers_env") or {}).values())


def other_programs(patient: Patient) -> Iterator[Symptom]:
    """Check that the hooks of other programs, in this project and this home, are trusted and could run."""
    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.programs.dialects import DIALECTS
    from amplifier_hooks.programs.import_settings import read_settings

    trust = TrustStore()
    for dialect in DIALECTS.values():
        name = dialect.name.replace("_", "-")
        for path in dialect.settings_files(patient.folder):
            if not path.exists():
                continue
            try:
                found = read_settings(path, dialect, project=patient.folder)
            except SettingsError as problem:
                yield bad("programs", str(problem), f"mend {path}")
                continue
            unread = [hook for hook in found.hooks if not trust.trusts(hook.digest)]
            count = f"{path}: {len(found.hooks)} hooks of {dialect.title}, {len(unread)} not trusted"
            if unread:
                yield Symptom("programs", NOTE, count, f"amplifier-hooks import {name} {quote(str(path))}")
            else:
                yield good("programs", count)
            for hook in found.hooks:
                for text in getattr(hook.handler, "problems", tuple)():
                    yield Symptom("programs", WARNING, f"{path}: {hook.where}: {text}", f"mend {path}")


def plugins(_patient: Patient) -> Iterator[Symptom]:
    """Check that the hooks of installed packages can be imported; another process imports them."""
    there = list_installed()
    problems = _import_problems(GROUP) if there else {}
    for name, points in sorted(there.items()):
        packages = sorted({point.dist.name if point.dist else "?" for point in points})
        if len(points) > 1:
            text = f"{name} comes with several packages: {', '.join(packages)}"
            yield bad("plugins", text, f"pip uninstall {packages[-1]}")
        elif name in problems:
            text = f"{name} of {packages[0]} cannot be imported: {problems[name]}"
            yield bad("plugins", text, f"pip install --force-reinstall {packages[0]}")
    yield good("plugins", f"{len(there)} in installed packages; none runs unless it is switched on")


def _import_problems(group: str) -> dict[str, str]:
    """Import the plugins of a group in another process, and return the problems by name."""
    command = [sys.executable, "-c", LOAD, group]
    try:
        tried = subprocess.run(  # noqa: S603  # our own program
            command, capture_output=True, text=True, timeout=LOADING, check=False, stdin=subprocess.DEVNULL
        )
        printed, ended = tried.stdout, f"the process ended with exit status {tried.returncode}"
    except subprocess.TimeoutExpired as late:
        printed, ended = (late.stdout or b"").decode(), f"it takes longer than {LOADING:g} s"
    lines = [line.split(" ", 2) for line in printed.splitlines() if line.startswith(("begun ", "problem ", "over"))]
    problems = {words[1]: words[2] for words in lines if words[0] == "problem"}
    if lines and lines[-1][0] == "begun":
        problems[lines[-1][1]] = ended
    return problems
