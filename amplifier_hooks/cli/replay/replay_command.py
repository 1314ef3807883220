"""`amplifier-hooks replay`: transcripts of past sessions come in; a configuration's decisions about them go out.

The findings are added up, and printed as text for people or as JSON for programs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from attrs import define, field

from amplifier_hooks.cli.common.terminal_io import (
    AsJson,
    RulesFile,
    count_text,
    print_error,
    print_json,
    print_lines,
    stop,
)
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amplifier_hooks.cli.replay.replay_calls import Always, Answer, Finding, Replay, ReplayHooks
    from amplifier_hooks.programs.transcripts import Source, Transcript


MOST_ENTRIES: Final = 1_000_000
"""Entries that are read from a ledger, at most; the latest."""


def replay(  # typer's options
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="A transcript or a folder; otherwise the program's own.")
    ] = None,
    *,
    source: Annotated[
        Literal["claude-code", "codex", "gemini", "record"],
        typer.Option("--from", metavar="SOURCE", help="claude-code, codex, gemini or record."),
    ],
    hooks: Annotated[
        Path | None, typer.Option("--hooks", metavar="FILE", help="The file; amplifier-hooks.yaml.")
    ] = None,
    rules: RulesFile = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="FILE", help="Hooks to compare with: calls that differ.")
    ] = None,
    always: Annotated[
        Literal["session", "project"] | None,
        typer.Option(
            "--always",
            metavar="REACH",
            help='Answer "always" where it is offered, and count what that covers: in its session or project.',
        ),
    ] = None,
    ledger: Annotated[
        str, typer.Option(metavar="STORE", help="The ledger with the inputs of a record's calls; otherwise yours.")
    ] = "",
    show: Annotated[int, typer.Option("--show", min=0, metavar="N", help="Calls of each list to print.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Tell what a file of hooks would have decided about calls of the past, before you switch it on.

    Examples:
      amplifier-hooks replay --from claude-code
      amplifier-hooks replay --from codex ~/.codex/sessions/2026/11 --always session
      amplifier-hooks replay --from gemini session.json --hooks strict.yaml --rules rules.yaml
      amplifier-hooks replay --from claude-code --compare strict.yaml
      amplifier-hooks replay --from record record.jsonl --json

    Nothing is carried out, and nothing leaves this machine: hooks that run a program, send a request or write a file
    are listed as "not replayed". Paths are looked up in the file system as it is now.
    """
    import asyncio

    from amplifier_hooks.errors import HookError
    from amplifier_hooks.programs.transcripts import SOURCES

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


def _replay_of(file: Path | None, source: Source, rules: Path | None, *, always: Always | None) -> Replay:
    """Return a replay with the hooks of a file. Raises the errors of files that cannot be used."""
    from amplifier_hooks.cli.project.read_project import existing_file, rules_in
    from amplifier_hooks.cli.replay.replay_calls import Replay, ReplayClock, replay_hooks

    found, clock = existing_file(file), ReplayClock()
    return Replay(
        source=source,
        hooks=replay_hooks(found, clock.seconds),
        clock=clock,
        folder=found.parent,
        rules=rules_in(rules),
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
    """Replay every transcript, and print the findings."""
    reading = TranscriptSums()
    found: list[list[Finding]] = [[] for _ in replays]
    for transcript in _transcripts(source, where):
        reading.add(transcript, transcript.take_inputs(inputs))
        for findings, replay in zip(found, replays, strict=True):
            findings += [one async for one in replay.run(transcript)]
    if as_json:
        results = zip(replays, found, strict=True)
        print_json({"read": reading, "configurations": [facts_of(one.hooks, calls) for one, calls in results]})
    else:
        print_results(reading, [one.hooks for one in replays], found, show)
    if not reading.calls:
        print_error(f"{where} has no call of a tool with its input.")
        raise typer.Exit(1)


def facts_of(hooks: ReplayHooks, found: list[Finding]) -> dict[str, Any]:
    """Return the decisions of one configuration as a JSON value, with every call."""
    left_out = [{"hook": name, "why": why} for name, why in hooks.left_out]
    about = {"hooks": str(hooks.path), "not_replayed": left_out, "report_only": hooks.report_only}
    return {**about, "answers": Counter(one.answer for one in found), "calls": found}


def ledger_inputs(store: str) -> dict[tuple[str, str], Any]:
    """Return the inputs that a ledger has, by session and call; none if the user's own ledger is not there."""
    from amplifier_hooks.cli.audit.audit_commands import ledger_entries
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


WORDS: Final[Mapping[Answer, str]] = {
    "allowed": "would run unasked",
    "asked": "would be asked about",
    "denied": "would be denied",
    "covered": 'covered by an earlier "always"',
}


@define
class TranscriptSums:
    """The transcripts that were read."""

    files: int = 0
    sessions: int = 0
    calls: int = 0
    without_input: int = 0
    without_folder: int = 0
    problems: list[dict[str, Any]] = field(factory=list)
    """Lines that could not be read, each with file, line and problem."""

    def add(self, transcript: Transcript, without_input: int) -> None:
        """Add a transcript, and the number of calls that were removed from it because their input is not known."""
        self.files += 1
        self.sessions += len({call.session for call in transcript.calls})
        self.calls += len(transcript.calls)
        self.without_input += without_input
        self.without_folder += sum(call.cwd is None for call in transcript.calls)
        file = str(transcript.path)
        self.problems += [{"file": file, "line": line, "problem": problem} for line, problem in transcript.problems]


# -- for people --------------------------------------------------------------------------------------------------------


def print_results(reading: TranscriptSums, hooks: list[ReplayHooks], found: list[list[Finding]], most: int) -> None:
    """Print the result of a replay for people, with at most so many calls in each list."""
    lines = [*reading_lines(reading, most)]
    for one, findings in zip(hooks, found, strict=True):
        lines += ["", one.path.name, *decision_lines(findings, most)]
        if about := [*hooks_lines(one)]:
            lines += ["", *about]
    if len(hooks) > 1:
        lines += ["", *comparison_lines(found, [for_log(one.path.name) for one in hooks], most)]
    print_lines(lines)


def reading_lines(reading: TranscriptSums, most: int) -> Iterator[str]:
    """Return the lines about the transcripts."""
    calls, sessions = count_text(reading.calls, "call"), count_text(reading.sessions, "session")
    yield f"{calls} of {sessions} in {count_text(reading.files, 'file')}"
    if reading.without_input:
        count = count_text(reading.without_input, "call")
        yield f"not replayed: {count} whose arguments are not kept: a record has only their digests,"
        yield "  and the hook tool_ledger keeps them in a ledger beside it (--ledger)"
    if reading.without_folder:
        yield f"without a folder in the transcript, and judged in that of the hooks: {reading.without_folder:,}"
    if reading.problems:
        yield f"{count_text(len(reading.problems), 'line')} could not be read:"
        for one in reading.problems[:most]:
            yield f"  {place_of(one['file'], one['line'])}  {one['problem']}"


def hooks_lines(hooks: ReplayHooks) -> Iterator[str]:
    """Return the lines about the hooks that take no part, and those that stop nothing."""
    for name in hooks.report_only:
        yield f"{for_log(name)} is {STOPS_NOTHING}"
    for why in dict.fromkeys(why for _, why in hooks.left_out):
        names = ", ".join(for_log(name) for name, reason in hooks.left_out if reason == why)
        yield f"not replayed, because {for_log(why)}: {names}"


def decision_lines(found: list[Finding], most: int) -> Iterator[str]:
    """Return the lines about the decisions of one configuration."""
    answers = Counter(one.answer for one in found)
    for answer, words in WORDS.items():
        if (count := answers[answer]) or answer != "covered":
            yield f"  {count:>8,}  {count / max(len(found), 1):>6.1%}  {words}"
    by_hook = Counter(hook for one in found for hook in one.by)
    yield from [""] * bool(by_hook)
    for hook, _ in by_hook.most_common():
        counts = Counter(one.answer for one in found if hook in one.by).most_common()
        yield f"  {for_log(hook)}: {', '.join(f'{answer} {count:,}' for answer, count in counts)}"
    for (hook, action), count in Counter(one for finding in found for one in finding.would).most_common():
        yield f"  {for_log(hook)} would have answered {action} {count_text(count, 'time')}, but is {STOPS_NOTHING}"
    shapes = Counter((one.answer, one.tool, one.reason) for one in found if one.answer in ("asked", "denied"))
    yield from ["", "most often:"] * bool(shapes and most)
    for (answer, tool, reason), count in shapes.most_common(most):
        yield f"  {count:>8,}  {answer}  {tool}: {reason}"
    for difference, count in Counter(one.difference for one in found if one.difference).items():
        yield from ["", f"{count_text(count, 'call')} {difference}:"]
        for one in [one for one in found if one.difference == difference][:most]:
            yield f"  {place_of(one.file, one.line)}  {one.call}"
            if one.by:
                yield f"      {reason_text(one)}"


def comparison_lines(found: list[list[Finding]], names: list[str], most: int) -> Iterator[str]:
    """Return the lines about calls on which two configurations differ."""
    differing = [pair for pair in zip(*found, strict=True) if pair[0].answer != pair[1].answer]
    yield f"{len(differing):,} {'call differs' if len(differing) == 1 else 'calls differ'}:"
    for (one, other), count in Counter((a.answer, b.answer) for a, b in differing).most_common():
        yield f"  {count:>8,}  {one} by {names[0]}, {other} by {names[1]}"
    for pair in differing[:most]:
        yield f"  {place_of(pair[0].file, pair[0].line)}  {pair[0].call}"
        for name, one in zip(names, pair, strict=True):
            yield f"      {name}: {one.answer}{f', {reason_text(one)}' if one.by else ''}"


def reason_text(finding: Finding) -> str:
    """Return the hooks that decided, with their reason."""
    return f"{', '.join(map(for_log, finding.by))}: {finding.reason}"


def place_of(file: str, line: int) -> str:
    """Return the name of a file, with a line."""
    return f"{for_log(Path(file).name)}:{line}"
