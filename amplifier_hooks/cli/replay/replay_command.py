"""`amplifier-hooks replay`: transcripts of past sessions come in; a configuration's decisions about them go out.

The findings are added up, and printed as text for people or as JSON for programs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from attrs import asdict, define, field

from amplifier_hooks.cli.common.terminal_io import AsJson, RulesFile, count_text, print_error, print_json, stop
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.escape import clip, for_log
from amplifier_hooks.text.secrets import Secrets, replace_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.cli.replay.replay_calls import Always, Answer, Finding, Replay, ReplayHooks
    from amplifier_hooks.programs.transcripts import Source, Transcript


MOST_ENTRIES: Final = 1_000_000
"""Entries that are read from a ledger, at most; the latest."""
REPLAY_CODES: Final = "Exit codes: 0 it was replayed, 1 a file cannot be used or has no call, 2 it was called wrongly."


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
    """Replay every transcript, and print the sums."""
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
    text = CallText()
    if as_json:
        value = {
            "read": reading_value(reading),
            "configurations": [sums_value(one, replay.hooks, text) for one, replay in zip(sums, replays, strict=True)],
            "differing": [[finding_value(one, text) for one in pair] for pair in differing],
        }
        print_json(value)
        return
    for line in reading_lines(reading, show):
        typer.echo(line)
    for one, replay in zip(sums, replays, strict=True):
        typer.echo(f"\n{replay.hooks.path.name}")
        for line in sums_lines(one, show, text):
            typer.echo(line)
        for number, line in enumerate(hooks_lines(replay.hooks)):
            typer.echo(f"\n{line}" if number == 0 else line)
    if len(replays) > 1:
        typer.echo()
        names = (replays[0].hooks.path.name, replays[1].hooks.path.name)
        for line in comparison_lines(differing, names, show, text):
            typer.echo(line)


ROOM: Final = 100
"""Bytes of a call, or of a reason, on a line."""
READ: Final = 80
"""Times as much of it is searched for secrets."""

WORDS: Final[Mapping[Answer, str]] = {
    "allowed": "would run unasked",
    "asked": "would be asked about",
    "denied": "would be denied",
    "covered": 'covered by an earlier "always"',
}


@define
class Sums:
    """The findings of one configuration, added up. Findings that ran unasked are only counted."""

    answers: Counter[Answer] = field(factory=Counter)
    hooks: dict[str, Counter[Answer]] = field(factory=dict)
    shapes: Counter[tuple[Answer, str, str]] = field(factory=Counter)
    """Asked and denied calls by answer, tool and reason."""
    differences: dict[str, list[Finding]] = field(factory=dict)
    would: Counter[tuple[str, str]] = field(factory=Counter)
    """Answers of report-only hooks and rules."""

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.answers[finding.answer] += 1
        for hook in finding.by:
            self.hooks.setdefault(hook, Counter())[finding.answer] += 1
        if finding.answer in ("asked", "denied"):
            self.shapes[finding.answer, finding.call.tool, finding.reason] += 1
        if finding.difference:
            self.differences.setdefault(finding.difference, []).append(finding)
        self.would.update(finding.would)


@define
class TranscriptSums:
    """The transcripts that were read."""

    files: int = 0
    sessions: int = 0
    calls: int = 0
    without_input: int = 0
    without_folder: int = 0
    problems: list[tuple[Path, int, str]] = field(factory=list)

    def add(self, transcript: Transcript, without_input: int) -> None:
        """Add a transcript, and the number of calls that were removed from it because their input is not known."""
        self.files += 1
        self.sessions += len({call.session for call in transcript.calls})
        self.calls += len(transcript.calls)
        self.without_input += without_input
        self.without_folder += sum(call.cwd is None for call in transcript.calls)
        self.problems += [(transcript.path, line, problem) for line, problem in transcript.problems]


@define(eq=False)
class CallText:
    """Writes calls on one line, without their secrets."""

    secrets: Secrets = field(factory=Secrets)

    def of(self, finding: Finding) -> str:
        """Return a call: its tool, and the argument that tells most."""
        given = finding.call.input
        names = ("command", "file_path", "path", "url", "pattern")
        telling = next((given[name] for name in names if isinstance(given.get(name), str)), None)
        text = json.dumps(given, ensure_ascii=False) if telling is None else telling
        return f"{self.cover(finding.call.tool)}  {self.cover(text)}"

    def cover(self, text: str) -> str:
        """Return the beginning of a text, escaped, with known secrets covered.

        A secret is known by its end, too, so that the text is read further than it is shown.
        """
        spans = [span for span in self.secrets.spans(text[: ROOM * READ]) if span[0] < ROOM]
        end = max([ROOM, *(span[1] for span in spans)])
        covered = for_log(replace_spans(text[:end], spans, ["(secret)"] * len(spans)))
        shown = clip(covered, ROOM)
        return f"{shown}…" if end < len(text) and shown == covered else shown


def place_of(finding: Finding) -> str:
    """Return the file and the line of a call."""
    return f"{for_log(finding.path.name)}:{finding.call.line}"


# -- for people --------------------------------------------------------------------------------------------------------


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
        for path, line, problem in reading.problems[:most]:
            yield f"  {for_log(path.name)}:{line}  {problem}"


def hooks_lines(hooks: ReplayHooks) -> Iterator[str]:
    """Return the lines about the hooks that take no part, and those that stop nothing."""
    for name in hooks.report_only:
        yield f"{for_log(name)} is {STOPS_NOTHING}"
    for why in dict.fromkeys(why for _, why in hooks.left_out):
        names = ", ".join(for_log(name) for name, reason in hooks.left_out if reason == why)
        yield f"not replayed, because {for_log(why)}: {names}"


def sums_lines(sums: Sums, most: int, text: CallText) -> Iterator[str]:
    """Return the lines about the decisions of one configuration."""
    total = sum(sums.answers.values())
    for answer in WORDS:
        if (count := sums.answers[answer]) or answer != "covered":
            yield f"  {count:>8,}  {count / max(total, 1):>6.1%}  {WORDS[answer]}"
    for number, (hook, counts) in enumerate(sorted(sums.hooks.items(), key=lambda item: -item[1].total())):
        yield from [""] * (number == 0)
        yield f"  {for_log(hook)}: {', '.join(f'{answer} {count:,}' for answer, count in counts.most_common())}"
    for (hook, action), count in sums.would.most_common():
        yield f"  {for_log(hook)} would have answered {action} {count_text(count, 'time')}, but is {STOPS_NOTHING}"
    for number, ((answer, tool, reason), count) in enumerate(sums.shapes.most_common(most)):
        yield from ["", "most often:"] * (number == 0)
        yield f"  {count:>8,}  {answer}  {text.cover(tool)}: {text.cover(reason)}"
    for difference, findings in sums.differences.items():
        yield from _difference_lines(difference, findings, most, text)


def _difference_lines(difference: str, findings: list[Finding], most: int, text: CallText) -> Iterator[str]:
    yield ""
    yield f"{count_text(len(findings), 'call')} {difference}:"
    for finding in findings[:most]:
        yield f"  {place_of(finding)}  {text.of(finding)}"
        if finding.by:
            yield f"      {', '.join(map(for_log, finding.by))}: {text.cover(finding.reason)}"


def comparison_lines(
    differing: Iterable[tuple[Finding, Finding]], names: tuple[str, str], most: int, text: CallText
) -> Iterator[str]:
    """Return the lines about calls on which two configurations differ."""
    found = list(differing)
    yield f"{len(found):,} {'call differs' if len(found) == 1 else 'calls differ'}:"
    for (one, other), count in Counter((a.answer, b.answer) for a, b in found).most_common():
        yield f"  {count:>8,}  {one} by {for_log(names[0])}, {other} by {for_log(names[1])}"
    for first, second in found[:most]:
        yield f"  {place_of(first)}  {text.of(first)}"
        for name, finding in zip(names, (first, second), strict=True):
            why = f", {', '.join(map(for_log, finding.by))}: {text.cover(finding.reason)}" if finding.by else ""
            yield f"      {for_log(name)}: {finding.answer}{why}"


# -- for programs ------------------------------------------------------------------------------------------------------


def sums_value(sums: Sums, hooks: ReplayHooks, text: CallText) -> dict[str, Any]:
    """Return the decisions of one configuration as a JSON value."""
    return {
        "hooks": str(hooks.path),
        "not_replayed": [{"hook": name, "why": why} for name, why in hooks.left_out],
        "report_only": list(hooks.report_only),
        "answers": {answer: sums.answers[answer] for answer in WORDS},
        "by_hook": {hook: dict(counts) for hook, counts in sums.hooks.items()},
        "would": [{"hook": hook, "action": action, "calls": count} for (hook, action), count in sums.would.items()],
        "most_often": [
            {"answer": answer, "tool": text.cover(tool), "reason": text.cover(reason), "calls": count}
            for (answer, tool, reason), count in sums.shapes.most_common()
        ],
        "differences": [
            {"difference": difference, **finding_value(one, text)}
            for difference, findings in sums.differences.items()
            for one in findings
        ],
    }


def finding_value(finding: Finding, text: CallText) -> dict[str, Any]:
    """Return a finding as a JSON value, with the beginning of the call."""
    return {
        "file": str(finding.path),
        "line": finding.call.line,
        "session": finding.call.session,
        "call": text.of(finding),
        "happened": finding.call.happened,
        "answer": finding.answer,
        "by": list(finding.by),
        "reason": text.cover(finding.reason),
        "risk": finding.risk,
    }


def reading_value(reading: TranscriptSums) -> dict[str, Any]:
    """Return the facts about the transcripts as a JSON value."""
    problems = [{"file": str(path), "line": line, "problem": problem} for path, line, problem in reading.problems]
    return {**asdict(reading, recurse=False), "problems": problems}
