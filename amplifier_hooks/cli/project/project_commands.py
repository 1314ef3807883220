"""`amplifier-hooks init`, `validate`, `list` and `test`: hook files of a project come in; findings go out."""

from __future__ import annotations

from pathlib import Path  # typer reads the annotations
from shlex import join
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from amplifier_hooks.cli.common.terminal_io import (
    AsJson,
    Directory,
    count_text,
    json_object,
    print_json,
    print_lines,
    print_text,
    refuse_inside_session,
    stop,
)

if TYPE_CHECKING:
    from amplifier_hooks.cli.project.read_project import Project
    from amplifier_hooks.definitions.trust import ListedFile


CHANGED: Final = "has changed since it was trusted: the trusted files stay in force, and the change waits to be trusted"
SUCH: Final = """write such as '{"tool_input": {"command": "ls"}}'"""

File = Annotated[Path | None, typer.Argument(metavar="FILE", help="The file; amplifier-hooks.yaml in this folder.")]


def init(
    *,
    directory: Directory = Path(),
    preset: Annotated[
        Literal["careful", "balanced", "open"],
        typer.Option("--preset", help="The amount of questions that the hook guard asks."),
    ] = "balanced",
) -> None:
    """Write amplifier-hooks.yaml: ready-made hooks that are useful anywhere, each with a comment.

    Examples:
      amplifier-hooks init
      amplifier-hooks init --preset careful --directory ../shop

    A file that is there already is left as it is.
    """
    from amplifier_hooks.cli.project.read_project import trust_content
    from amplifier_hooks.definitions import load_files
    from amplifier_hooks.definitions.files.load_files import PROJECT_FILE
    from amplifier_hooks.text.strict_parsing import yaml_library

    yaml_library()  # without it the file could be written, and not read
    text = template(preset)
    path = directory.resolve() / PROJECT_FILE
    try:
        if path.exists():
            if path.read_text("utf-8", "replace") == text:
                typer.echo(f"{path} is as init writes it already.", err=True)
                raise typer.Exit
            stop(f"{path} is there already, and was left as it is. For a new one, rename it first.")
        path.write_text(text, encoding="utf-8")
        trust_content(load_files(path), path)
    except OSError as problem:
        stop(f"{path} cannot be written: {problem.strerror or problem}; make it and its folder writable")
    typer.echo(f"Wrote {path}.")
    typer.echo("Next: amplifier-hooks list, then amplifier-hooks chat.", err=True)
    offer_replay()


def offer_replay() -> None:
    """Name the command that shows decisions about past sessions, for each program that keeps transcripts here."""
    from amplifier_hooks.programs.transcripts import SOURCES

    for source in SOURCES.values():
        if source.folder().is_dir():
            text = f"amplifier-hooks replay --from {source.name} shows what they would have decided about your sessions"
            typer.echo(f"{text} with {source.title}.", err=True)


def print_listed(listed: tuple[ListedFile, ...]) -> None:
    """Print the files that are about to be trusted, each with its digest."""
    print_text("Trusting these files as they are now:")
    for one in listed:
        below = one.path.removeprefix(f"{Path.cwd()}/")
        print_text(f"  {one.digest[:16] or 'missing':16}  {one.role:9}  {below}")


def validate(
    file: File = None,
    *,
    trust: Annotated[bool, typer.Option("--trust", help="If it is right, let it run as it is now.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find out whether a file of hooks is right: every mistake with its line, and hooks that cannot run.

    Examples:
      amplifier-hooks validate
      amplifier-hooks validate hooks/production.yaml --json
      amplifier-hooks validate --trust
      amplifier-hooks validate guards:registry --trust     the modules that define a registry
      amplifier-hooks validate blueprints/ --trust         the functions that the hooks of blueprints name

    Modules of a project are imported only once they are trusted. --trust shows all files that the hooks run or read,
    and lets them run as they are now, from private copies; after a change they are not trusted any more.
    """
    if trust:
        refuse_inside_session("amplifier-hooks validate --trust")
    from amplifier_hooks.cli.project.read_project import (
        Project,
        existing_file,
        list_trusted,
        project_file,
        trust_content,
    )

    if file is not None and validate_modules(file, trust=trust, as_json=as_json):
        return
    if trust and validate_removal(file, as_json=as_json):
        return
    from amplifier_hooks.definitions import InvalidDefinitions, load_files
    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.errors import HookError
    from amplifier_hooks.result import STOPS_NOTHING

    flaws: list[str] = []
    warnings: list[str] = []
    report_only: tuple[str, ...] = ()
    count, enabled = 0, True
    project: Project | None = None
    path = project_file(file)
    listed: tuple[ListedFile, ...] = ()
    try:
        path = existing_file(file)
        found = load_files(path)
        count, enabled = len(found.definitions) + len(found.library), found.settings.hooks_enabled
        report_only = found.report_only
        listed = list_trusted(found, path, TrustStore()).listed.files
        if trust and not as_json:
            print_listed(listed)
        project = trust_content(found, path) if trust else Project.build(path)
        warnings = [str(flaw) for flaw in project.plan.warnings]
    except InvalidDefinitions as problem:
        flaws = [str(flaw) for flaw in problem.flaws]
    except HookError as problem:
        flaws = [str(problem)]
    except OSError as problem:
        flaws = [f"{path} cannot be read, or trust in it cannot be kept: {problem}; doctor says what to do"]
    if as_json:
        facts = {
            "ok": not flaws,
            "hooks": count,
            "enabled": enabled,
            "report_only": report_only,
            "trusted": project is not None and project.trusted,
            "changed": project is not None and project.changed,
            "flaws": flaws,
            "warnings": warnings,
        }
        print_json({"file": str(path), **facts, "files": listed})
    else:
        told = (f"{text} (a warning: it could not run as things are)" for text in warnings)
        for text in (*flaws, *told, *(f"{name} is {STOPS_NOTHING}" for name in report_only)):
            print_text(text)
        verdict = count_text(len(flaws), "mistake") if flaws else f"{count_text(count, 'hook')}, all right"
        where = str(path).removeprefix(f"{Path.cwd()}/")  # as list shows it
        state = "" if project is None else f", {'' if project.trusted else 'not '}trusted as it is now"
        print_text(f"{where}: {verdict}{state}.", err=bool(flaws))
        tell_state(project)
    raise typer.Exit(1 if flaws else 0)


def validate_modules(name: Path, *, trust: bool, as_json: bool) -> bool:
    """Show the modules that `MODULE:NAME` or a folder of blueprints needs, and trust them if asked to.

    Returns False for any other name. Nothing is imported.
    """
    from amplifier_hooks.cli.project.read_project import pinned_by
    from amplifier_hooks.errors import HookError

    try:
        found = pinned_by(name)
        if found is None:
            return False
        if trust and found.waiting is not None:
            if not as_json:
                print_listed(found.waiting.files)
            found.accept()
    except (HookError, OSError) as problem:
        stop(str(problem))
    files = found.current.files
    if as_json:
        facts = {"ok": True, "trusted": found.waiting is None, "changed": found.waiting is not None}
        print_json({"file": str(name), **facts, "files": files})
    else:
        state = "trusted as they are now" if found.waiting is None else CHANGED
        print_text(f"{name}: {len(files)} module{'' if len(files) == 1 else 's'} of this folder, {state}.")
    return True


def validate_removal(file: Path | None, *, as_json: bool) -> bool:
    """Trust the removal of a file whose hooks are in force. Returns False if the file is there, or was not trusted."""
    from amplifier_hooks.cli.project.read_project import is_removed, project_file, trust_removal

    path = project_file(file)
    if not is_removed(path):
        return False
    try:
        trust_removal(path)
    except OSError as problem:
        stop(f"trust in {path} cannot be kept: {problem}; doctor says what to do")
    if as_json:
        print_json({"file": str(path), "ok": True, "removed": True})
    else:
        print_text(f"{path} is gone, and that is trusted: none of its hooks is in force any more.")
    return True


def list_hooks(
    file: File = None,
    *,
    event: Annotated[str | None, typer.Option(metavar="EVENT", help="Only those of this event.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the hooks of a project in the order of their run, and the effect of a failure of each.

    Examples:
      amplifier-hooks list
      amplifier-hooks list hooks/production.yaml --event tool:pre
      amplifier-hooks list --json
    """
    from amplifier_hooks.cli.project.hook_listing import event_named, hook_lines, rows
    from amplifier_hooks.registry.event_names import applies

    project = load_project(file)
    wanted = None if event is None else event_named(event, project.found.events)
    found = [row for row in rows(project) if wanted is None or applies(row["event"], wanted)]
    if as_json:
        print_json(found)
        return
    if not print_lines(hook_lines(found)):
        typer.echo("There are no hooks" + (f" at {wanted}." if wanted else "."), err=True)


def try_event(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="In any spelling: tool:pre, PreToolUse, …")],
    file: Annotated[
        Path | None, typer.Option("--hooks", metavar="FILE", help="The file; amplifier-hooks.yaml.")
    ] = None,
    *,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE|JSON", help="The event's data: JSON, a file of it, or - to read it."),
    ] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="The tool; short for tool_name in --input.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the hooks, and show their answers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try one event: the hooks that it would reach, in their order, and why it would not reach the others.

    Examples:
      amplifier-hooks test tool:pre --tool Write
      amplifier-hooks test tool:pre --tool Bash --input '{"tool_input": {"command": "git push"}}' --run
      amplifier-hooks test tool:pre --input call.json
      echo '{"prompt": "hello"}' | amplifier-hooks test prompt:submit --input - --json

    Without --run no hook runs. With --run the hooks run, and their answers are shown and not carried out.
    """
    import asyncio

    from amplifier_hooks.cli.project import hook_listing

    data = {} if given is None else json_object(given, "--input", SUCH)
    if tool is not None:
        data["tool_name"] = tool
    project = load_project(file)
    name = hook_listing.event_named(event, project.found.events)
    if run and not project.trusted:
        trusting = join(["amplifier-hooks", "validate", str(project.path), "--trust"])
        stop(f"{project.path} is not trusted as it is now, so none of its hooks runs; read it, then: {trusting}")
    explained = project.registry.explain(name, data)
    outcome = asyncio.run(project.registry.decide(name, data)) if run else None
    if as_json:
        print_json(hook_listing.trial_facts(explained, outcome))
    else:
        print_text(str(explained))
        print_lines([] if outcome is None else hook_listing.outcome_lines(outcome))
    denied = explained.refusal is not None or (outcome is not None and outcome.denied)
    raise typer.Exit(1 if denied else 0)


# -- shared ------------------------------------------------------------------------------------------------------------


def load_project(file: Path | None) -> Project:
    """Return the project's hooks; if they cannot be built, print the reason and end the command."""
    from amplifier_hooks.cli.project.read_project import Project, existing_file
    from amplifier_hooks.errors import HookError

    try:
        project = Project.build(existing_file(file))
    except (HookError, OSError) as problem:
        stop(str(problem))
    tell_state(project)
    return project


def tell_state(project: Project | None) -> None:
    """Print on standard error why the hooks in force may be others than those of the file, or were not read."""
    if project is None or project.trusted:
        return
    unread = "is not trusted as it is now" + ": no Python of it was imported" * project.unread
    trusting = join(["amplifier-hooks", "validate", str(project.path), "--trust"])
    print_text(f"{project.path} {CHANGED if project.changed else unread}; read it, then: {trusting}", err=True)


PRESET: Final = "preset: balanced # or careful, or open"


def template(preset: str = "balanced") -> str:
    """Return the text of the file with a preset of `guard`."""
    others = " or ".join(f"{name}," for name in ("careful", "balanced", "open") if name != preset).rstrip(",")
    return TEMPLATE.replace(PRESET, f"preset: {preset} # or {others}")


TEMPLATE: Final = """\
# Hooks of this project: they watch, deny, change or ask when an agent works here.
#
#   amplifier-hooks validate      is all of it right?
#   amplifier-hooks list          the hooks, their order, and what a failure of each means
#   amplifier-hooks test tool:pre --tool Write     which hooks would see a write?
#   amplifier-hooks chat          try it; no key is needed
version: 1

# Ready-made hooks, by name. Each has settings of its own; {} are its defaults.
library:
  # Predicts what a tool call would do, and runs nothing. Most calls pass; a person is asked about lost work, secrets,
  # files that start programs, all that leaves the machine, and what cannot be read. No sandbox: tests and scripts of
  # the project may do anything.
  guard:
    preset: balanced # or careful, or open
    trusted_hosts: [] # ".example.org" covers every name below
    trusted_folders: [] # folders outside the project that agents may write
    trusted_programs: [] # programs that no table names, as harmless as code of the project

  # Keys and passwords are taken out of prompts, tool inputs and tool results.
  redact_secrets: {}

  # Stops a loop that runs away: at most so many tool calls of a session begin within so many seconds. The busiest
  # minute in transcripts of real agents (18,203 calls) had 128 calls, those of subagents in parallel included.
  rate_limit:
    calls: 600
    seconds: 60

  # The linter reads each written file, and the agent mends its findings in the same turn. Fails open.
  linter_feedback: {} # ruff, unless a command is named

  # Text in results that means to steer the agent is pointed out to it; a person is asked about prompts and
  # inputs of agents with such text. No defence: text it misses may be harmful.
  injection_scan:
    inputs: ask # or deny, or leave

  # The agent reads a usual remedy when a tool fails.
  recovery_hint: {}

# Hooks of your own: functions, commands or web services. Take the "#:" of the example away, and it is one. Lower
# priorities run first; from 0 to 99 a hook that fails denies, from 100 on it is skipped.
hooks:
#:  # Python: a function in a file beside this one. For example, in my_hooks.py:
#:  #
#:  #   from amplifier_hooks import HookResult
#:  #
#:  #   def no_publishing(event, data):
#:  #       if "git push" in data["tool_input"]["command"]:
#:  #           return HookResult.ask("Publish this?")
#:  #
#:  - name: no publishing
#:    event_type: tool:pre
#:    matcher: kind:shell
#:    priority: 10
#:    handler_ref: my_hooks:no_publishing

# Settings for all hooks of your own; a variable such as AMPLIFIER_HOOKS_ENABLED wins over the file.
settings:
  hooks_enabled: true
"""
