"""`amplifier-hooks import`, `install`, `uninstall` and `bridge`: settings and questions of other programs come in."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from attrs import evolve

from amplifier_hooks.cli.common.terminal_io import SERVE, NoInput, Yes, confirm, stop
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.programs.dialects import Dialect
    from amplifier_hooks.programs.import_settings import ImportedSettings
    from amplifier_hooks.programs.install_hook import Bridge


KEPT: Final = ".before-amplifier-hooks"
"""The ending of the name of the copy that keeps the settings as they were."""

COMMITTED: Final = "is a file that a team commits: each user of it needs amplifier-hooks on the PATH, and a server."
OWN: Final = "names paths of this machine: keep it out of version control."
HELD: Final = "holds a token, and is now for you alone to read: keep it out of version control."


ProgramName = Literal["claude-code", "codex", "gemini"]
Program = Annotated[ProgramName, typer.Argument(metavar="PROGRAM", help="claude-code, codex or gemini.")]
Project = Annotated[
    Path,
    typer.Option(
        metavar="DIR", exists=True, file_okay=False, resolve_path=True, help="The project; this folder by default."
    ),
]
User = Annotated[bool, typer.Option("--user", help="The settings in the home, for all projects.")]
WhenDown = Literal["deny", "ask", "allow"]
WhenDownOption = Annotated[WhenDown, typer.Option(help="At a gate, when no server answers.")]
HERE: Final = Path()


def dialect_of(program: ProgramName) -> Dialect:
    """Return the dialect of a program."""
    from amplifier_hooks.programs.dialects import DIALECTS

    return DIALECTS[program.replace("-", "_")]


# -- import ------------------------------------------------------------------------------------------------------------


def import_hooks(
    program: Program,
    settings: Annotated[Path, typer.Argument(metavar="FILE", help="The program's settings.")],
    *,
    project: Project = HERE,
    yes: Yes = False,
    no_input: NoInput = False,
) -> None:
    """Read another program's hooks, show what they would run, and trust them.

    Examples:
      amplifier-hooks import claude-code .claude/settings.json
      amplifier-hooks import codex ~/.codex/hooks.json --yes
      amplifier-hooks import gemini .gemini/settings.json --no-input    only shows them

    Nothing is run. Trust applies to the content, scripts included: after a change it is not trusted any more.
    """
    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.errors import SettingsError
    from amplifier_hooks.programs.import_settings import read_settings

    dialect = dialect_of(program)
    try:
        found = read_settings(settings, dialect, project=project)
    except SettingsError as error:
        place = dialect.settings[0]
        stop(f"{error}" + ("" if settings.is_file() else f"; {dialect.title} keeps them in {place}, or in ~/{place}"))
    trust = TrustStore()
    print_settings(found, trust)
    lists = [hook.files for hook in found.hooks]
    new = [one for one in lists if not trust.trusts(one)]
    if not new:
        print("Nothing here has to be trusted." if not found.hooks else "All of it is trusted already.")
        return
    confirm(f"Trust {'these hooks' if len(new) > 1 else 'this hook'} to run as shown?", yes=yes, no_input=no_input)
    trust.trust(os.path.abspath(settings), lists)  # noqa: PTH100
    print(f"Trusted: {len(new)}. Kept in {trust.path}.")


def print_settings(found: ImportedSettings, trust: TrustStore) -> None:
    """Print the hooks of a settings file, for people."""
    print(f"{found.dialect.title}, {for_terminal(os.fspath(found.path))}")
    for hook in found.hooks:
        state = "trusted" if trust.trusts(hook.files) else "not trusted yet"
        print(f"\n  {hook.spelling.theirs}  for {for_terminal(hook.matcher.spec)}  ({state})")
        print(f"    runs           {for_terminal(hook.runs)}")
        print(f"    when it fails  {hook.when_it_fails}; it has {hook.timeout:g} s")
    if found.skipped:
        print("\nNot run, or without effect:")
    for skipped in found.skipped:
        print(f"  {for_terminal(skipped.where)}: {for_terminal(skipped.why)}")
    print(f"\nNot the same here as in {found.dialect.title}:")
    for what, here in found.dialect.differs:
        print(f"  {what}: {here}")
    print()


# -- install and uninstall ---------------------------------------------------------------------------------------------


def install(
    program: Program,
    *,
    project: Project = HERE,
    user: User = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="The settings that a team commits; the command works on every machine.")
    ] = False,
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="Post to this server, with AMPLIFIER_HOOKS_TOKEN.")
    ] = None,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="Run the bridge at each event, also if the program can post.")
    ] = False,
    when_down: WhenDownOption = "deny",
    wait: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="Seconds that a person has to answer.")] = 300,
    yes: Yes = False,
    no_input: NoInput = False,
) -> None:
    """Put our hook into another program's settings: its tool calls pass through your hooks while `serve` runs.

    Examples:
      amplifier-hooks install claude-code              for you, in this project
      amplifier-hooks install claude-code --shared     for a team, in the file that it commits
      amplifier-hooks install codex --user             for you, in all projects
      amplifier-hooks install claude-code --http https://hooks.example.org

    Claude Code posts its tool calls to the server from version 2.1.295 on, and runs our command at the other events,
    which says how to start a server. An older one, the other programs and a file for a team run the command at each
    event. Codex and Gemini CLI have one file in a project, and a team commits it. The entry in such a file works on
    every machine with amplifier-hooks on its PATH; the one in a file of your own starts faster, and names paths of this
    machine. The change is shown first, and the settings as they were are kept beside them.
    """
    from amplifier_hooks.errors import InvalidRegistration
    from amplifier_hooks.programs.install_hook import has_bridge, with_bridge

    check_options(http, user=user, shared=shared)
    dialect = dialect_of(program)
    files = in_project(dialect, project)
    path = dialect.in_home() if user else files[0] if shared else files[-1]
    committed = path == files[0] and not user
    bridge = bridge_to(http, portable=committed, waits=wait, when_down=when_down)
    port = None
    if not (committed or no_http or http) and when_down == "deny":
        bridge, port = posting_bridge(bridge, dialect)
    before, text = read_file(path)
    try:
        after = with_bridge(before, dialect, bridge)
        others = [other for other in dialect.settings_files(project) if other != path]
        second = next((other for other in others if has_bridge(read_file(other)[0])), None)
    except InvalidRegistration as error:
        stop(f"{path}: {error}")
    if after == before:
        print(f"{path} has the hook already.")
        return
    if second is not None:
        remedy = f"first: amplifier-hooks uninstall {program}" + ("" if second in files else " --user")
        if second not in (dialect.in_home(), *files):
            remedy = "it is a file of the whole machine, so leave this one as it is"
        stop(f"{second} has the hook already, and with two of them every call is asked about twice; {remedy}")
    changed = file_text(after)
    difference(path, text or "", changed)
    confirm(f"Change {path}?", yes=yes, no_input=no_input)
    write_settings(path, None if has_bridge(before) else text, changed, port)
    print(f"{dialect.title} now asks amplifier-hooks. Start it: {SERVE}")
    if dialect.waits_for_review(path):
        print(f"{dialect.title} skips a hook that you have not reviewed, and says nothing: {dialect.review}.")
    if port is not None:
        print(f"It posts tool calls to port {port}; a server that runs already has to be started again.")
        print("Where other people use this machine, install it with --no-http.")
        print(f"{path.name} {HELD}")
    elif not http and not user:
        print(f"{path.name} {COMMITTED if committed else OWN}")
    if not user and (not committed or kept_of(path).exists()):
        ignored = kept_of(path) if committed else path.with_name(f"{path.name}*")  # its kept copy, too
        print(f"Add this line to .gitignore: {ignored.relative_to(project).as_posix()}")


def write_settings(path: Path, original: str | None, changed: str, port: int | None) -> None:
    """Write a settings file; first keep its original, and the port to which the program posts, for `serve`."""
    from amplifier_hooks.cli.common.posting import keep_port

    try:
        if original is not None and not kept_of(path).exists():
            replace(kept_of(path), original)  # as it was before us; never a file that has our hook
        if port is not None:
            keep_port(port)
        replace(path, changed, private=port is not None)
    except OSError as error:
        stop(
            f"{path} was left as it is: {error.strerror}. Make its folder writable, or name another: --project, --user"
        )


def posting_bridge(bridge: Bridge, dialect: Dialect) -> tuple[Bridge, int | None]:
    """Return a bridge of this machine that posts, with its port, if the program can; print the reason if it cannot."""
    from amplifier_hooks.cli.common.posting import posting_port, programs_token

    port, why_not = posting_port(dialect)
    if port is None:
        if why_not:
            print(why_not)
        return bridge, None
    return evolve(bridge, url=f"http://127.0.0.1:{port}", token=programs_token()), port


def check_options(http: str | None, *, user: bool, shared: bool) -> None:
    """Raise `BadParameter` for options that cannot be carried out."""
    if http is not None and not http.startswith(("http://", "https://")):
        raise typer.BadParameter(
            f"{http!r} is no address; write one such as http://127.0.0.1:8642", param_hint="--http"
        )
    if user and shared:
        raise typer.BadParameter(
            "the settings in a home belong to one user; leave out --shared, or --user", param_hint="--shared"
        )


def bridge_to(http: str | None, *, portable: bool, waits: float, when_down: WhenDown) -> Bridge:
    """Return the program's bridge to the server; a portable one names no local path."""
    from amplifier_hooks import bridge as bridge_module
    from amplifier_hooks.programs.install_hook import Bridge
    from amplifier_hooks.storage.state_folder import default_socket

    if http:
        return Bridge(url=http, waits=waits, when_down=when_down)
    if portable:
        return Bridge(waits=waits, when_down=when_down)
    return Bridge(
        python=sys.executable,
        file=bridge_module.__file__,
        socket=os.fspath(default_socket()),
        waits=waits,
        when_down=when_down,
    )


def uninstall(
    program: Program, *, project: Project = HERE, user: User = False, yes: Yes = False, no_input: NoInput = False
) -> None:
    """Take our hook out of another program's settings again, your own and those that a team commits.

    Examples:
      amplifier-hooks uninstall claude-code
      amplifier-hooks uninstall codex --user
    """
    dialect = dialect_of(program)
    files = [dialect.in_home()] if user else in_project(dialect, project)
    removals = [removal for path in files if (removal := removal_from(path)) is not None]
    if not removals:
        print(f"There is no hook of ours in {' or '.join(map(os.fspath, files))}.")
        return
    for path, text, changed in removals:
        difference(path, text, changed or "")
    confirm(f"Change {' and '.join(os.fspath(path) for path, _, _ in removals)}?", yes=yes, no_input=no_input)
    for path, _, changed in removals:
        try:
            if changed is None:
                remove(path)
            else:
                replace(path, changed)
            kept_of(path).unlink(missing_ok=True)
        except OSError as error:
            stop(f"{path} was left as it is: {error.strerror}. Make it and its folder writable")
    print(f"{dialect.title} decides for itself again.")


def removal_from(path: Path) -> tuple[Path, str, str | None] | None:
    """Return a file, its text, and its text without our hook, which is None if the file is removed, too.

    For a file without our hook, return None.
    """
    from amplifier_hooks.errors import InvalidRegistration
    from amplifier_hooks.programs.install_hook import has_bridge, without_bridge

    before, text = read_file(path)
    try:
        if not has_bridge(before):
            return None
        after = without_bridge(before)
        original, original_text = read_file(kept_of(path))
        same = without_bridge(original) == after and not has_bridge(original)
    except InvalidRegistration as error:
        stop(f"{path}: {error}")
    # Unless the settings have changed since, the file is byte for byte as before us, or gone if it was not there.
    return path, text or "", original_text if same else file_text(after)


def kept_of(path: Path) -> Path:
    """Return the path of the copy that keeps the settings as they were."""
    return path.with_name(path.name + KEPT)


# -- bridge ------------------------------------------------------------------------------------------------------------


def bridge(program: Program, *, when_down: WhenDownOption = "deny") -> None:
    """Pass one question of another program to `amplifier-hooks serve`, and its answer back.

    Examples:
      amplifier-hooks bridge claude-code < question.json
      amplifier-hooks bridge codex --when-down allow

    Another program runs this command as its hook: the question comes on standard input. `amplifier-hooks install`
    writes it into settings that a team commits, and a form of it that starts several times faster into your own.

    Exit codes are the program's: 0 it answered, 2 the call is blocked; 2 also for a wrong call.
    """
    from amplifier_hooks.bridge import carry
    from amplifier_hooks.storage.state_folder import default_socket

    raise typer.Exit(carry([os.fspath(default_socket()), program.replace("-", "_"), when_down]))


def in_project(dialect: Dialect, project: Path) -> list[Path]:
    """Return the settings files in a project: the one that a team commits, and the user's own if there is one."""
    return [project / name for name in dialect.settings]


def read_file(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return settings and their text; an empty object and None if there is no file. Ends the command on an error."""
    try:
        text = path.read_text("utf-8")
        value = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        stop(f"{path} cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        stop(f"{path} is no JSON: {error}; mend it first, nothing was changed")
    if not isinstance(value, dict):
        stop(f"{path} is no JSON object; mend it first, nothing was changed")
    return value, text


def file_text(settings: dict[str, Any]) -> str:
    """Return the text of settings, formatted as the other programs format it."""
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


TOKEN: Final = re.compile(r"(Bearer )[\w-]{20,}")


def difference(path: Path, before: str, after: str) -> None:
    """Print the change line by line, without tokens."""
    before, after = (TOKEN.sub(r"\1…", text) for text in (before, after))
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", os.fspath(path), lineterm="")
    for line in lines:
        print(for_terminal(line))


def replace(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file whole, or not at all. Its permissions stay as they are; a `private` one is for its owner alone."""
    from amplifier_hooks.storage.state_folder import write_private

    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    write_private(path, text.encode(), mode & 0o700 if private else mode)


def remove(path: Path) -> None:
    """Remove a file, and its folder if nothing else is in it."""
    path.unlink()
    with suppress(OSError):
        path.parent.rmdir()
