"""`amplifier-hooks replay`: transcripts of past sessions come in; a configuration's decisions about them go out."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from amplifier_hooks.cli.common.terminal_io import AsJson, print_error, stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amplifier_hooks.cli.replay.replay_calls import Finding, Replay
    from amplifier_hooks.cli.replay.replay_text import Sums, TranscriptSums
    from amplifier_hooks.programs.transcripts import Source, Transcript


REPLAY: Final = """Tell what a file of hooks would have decided about calls of the past, before you switch it on.

\b
Examples:
  amplifier-hooks replay --from claude-code
  amplifier-hooks replay --from codex ~/.codex/sessions/2026/11 --always
  amplifier-hooks replay --from gemini session.json --hooks strict.yaml --rules rules.yaml
  amplifier-hooks replay --from claude-code --compare strict.yaml
  amplifier-hooks replay --from record record.jsonl --json

Nothing is carried out, and nothing leaves this machine: hooks that run a program, send a request or write a file are
listed as "not replayed". Paths are looked up in the file system as it is now.
"""
MOST_ENTRIES: Final = 1_000_000
"""Entries that are read from a ledger, at most; the latest."""
REPLAY_CODES: Final = "Exit codes: 0 it was replayed, 1 a file cannot be used or has no call, 2 it was called wrongly."


def replay(  # typer's options
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH", help="A transcript or a folder; otherwise the program's own.", show_default=False
        ),
    ] = None,
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="SOURCE", help="claude-code, codex, gemini or record.", show_default=False)
    ],
    hooks: Annotated[
        Path | None, typer.Option("--hooks", metavar="FILE", help="The file; amplifier-hooks.yaml.", show_default=False)
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="Rules that decide without a person.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", metavar="FILE", help="Hooks to compare with: calls that differ.", show_default=False),
    ] = None,
    always: Annotated[
        bool, typer.Option("--always", help='Answer "always" where it is offered, and count what that covers.')
    ] = False,
    ledger: Annotated[
        str,
        typer.Option(
            metavar="STORE", help="The ledger with the inputs of a record's calls; otherwise yours.", show_default=False
        ),
    ] = "",
    show: Annotated[int, typer.Option("--show", min=0, metavar="N", help="Calls of each list to print.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Replay transcripts through the hooks of a file, or of two."""
    import asyncio

    from amplifier_hooks.errors import HookError
    from amplifier_hooks.programs.transcripts import SOURCES

    if source not in SOURCES:
        raise typer.BadParameter(f"{source!r} is none of {', '.join(SOURCES)}", param_hint="--from")
    chosen = SOURCES[source]
    where = path or chosen.folder()
    if not where.exists():
        raise typer.BadParameter(f"{where} is not there; name a transcript, or a folder of them", param_hint="PATH")
    try:
        files = [hooks] if compare is None else [hooks, compare]
        replays = [_replay_of(one, chosen, rules, always=always) for one in files]
        inputs = ledger_inputs(ledger) if source == "record" else {}
        asyncio.run(_run(chosen, where, replays, inputs, show=show, as_json=as_json))
    except (HookError, OSError) as problem:
        stop(str(problem))


def _replay_of(file: Path | None, source: Source, rules: Path | None, *, always: bool) -> Replay:
    """Return a replay with the hooks of a file. Raises the errors of files that cannot be used."""
    from amplifier_hooks.cli.project.read_project import existing_file
    from amplifier_hooks.cli.replay.configuration import replay_hooks
    from amplifier_hooks.cli.replay.replay_calls import Replay, ReplayClock
    from approval_backends.rules.policy import Rules

    found, clock = existing_file(file), ReplayClock()
    return Replay(
        source=source,
        hooks=replay_hooks(found, clock.seconds),
        clock=clock,
        folder=found.parent,
        rules=None if rules is None else Rules.load(rules),
        always=always,
    )


async def _run(
    source: Source,
    where: Path,
    replays: list[Replay],
    inputs: Mapping[tuple[str, str], Any],
    *,
    show: int,
    as_json: bool,
) -> None:
    """Replay every transcript, and print the sums."""
    from amplifier_hooks.cli.replay.replay_text import Sums, TranscriptSums

    reading, sums = TranscriptSums(), [Sums() for _ in replays]
    differing: list[tuple[Finding, Finding]] = []
    for transcript in _transcripts(source, where):
        reading.add(transcript, transcript.take_inputs(inputs))
        found = [[one async for one in replay.run(transcript)] for replay in replays]
        for sum_, findings in zip(sums, found, strict=True):
            for finding in findings:
                sum_.add(finding)
        if len(found) > 1:
            differing += [(one, other) for one, other in zip(*found, strict=True) if one.answer != other.answer]
    _print(reading, replays, sums, differing, show=show, as_json=as_json)
    if not reading.calls:
        print_error(f"{where} has no call of a tool with its input.")
        raise typer.Exit(1)


def ledger_inputs(store: str) -> dict[tuple[str, str], Any]:
    """Return the inputs that a ledger has, by session and call; none if the user's own ledger is not there."""
    from amplifier_hooks.cli.ledger import ledger_entries
    from amplifier_hooks.storage.state_folder import StateFolder

    if not store and not StateFolder().ledger.exists():
        return {}
    return {(one.session, one.call): one.input for one in ledger_entries(store, limit=MOST_ENTRIES)}


def _transcripts(source: Source, where: Path) -> Iterator[Transcript]:
    """Yield the transcripts, with a bar of progress on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    files, seen = source.files(where), set[str]()
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=sum(file.stat().st_size for file in files))
        for file in files:
            try:
                yield source.read(file, seen)
            except OSError as problem:
                print_error(f"{file} cannot be read: {problem.strerror or problem}")
            progress.advance(task, file.stat().st_size if file.exists() else 0)


def _print(
    reading: TranscriptSums,
    replays: list[Replay],
    sums: list[Sums],
    differing: list[tuple[Finding, Finding]],
    *,
    show: int,
    as_json: bool,
) -> None:
    """Print the result of a replay."""
    import json

    from amplifier_hooks.cli.replay import replay_text

    text = replay_text.CallText()
    if as_json:
        value = {
            "read": replay_text.reading_value(reading),
            "configurations": [
                replay_text.sums_value(one, replay.hooks, text) for one, replay in zip(sums, replays, strict=True)
            ],
            "differing": [[replay_text.finding_value(one, text) for one in pair] for pair in differing],
        }
        typer.echo(json.dumps(value, indent=1))
        return
    for line in replay_text.reading_lines(reading, show):
        typer.echo(line)
    for one, replay in zip(sums, replays, strict=True):
        typer.echo(f"\n{replay.hooks.path.name}")
        for line in replay_text.sums_lines(one, show, text):
            typer.echo(line)
        for number, line in enumerate(replay_text.hooks_lines(replay.hooks)):
            typer.echo(f"\n{line}" if number == 0 else line)
    if len(replays) > 1:
        typer.echo()
        names = (replays[0].hooks.path.name, replays[1].hooks.path.name)
        for line in replay_text.comparison_lines(differing, names, show, text):
            typer.echo(line)
