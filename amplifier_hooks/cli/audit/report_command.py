"""`amplifier-hooks report`: a record comes in; the answers of report-only hooks and rules go out."""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from attrs import define, field

from amplifier_hooks.cli.audit.audit_commands import Record, print_lines, report_unreadable
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_hooks.cli.audit.find_record import Line


REPORT: Final = """Tell what report-only hooks and rules would have done. They stopped nothing.

\b
Examples:
  amplifier-hooks report
  amplifier-hooks report record.jsonl --last 20
  amplifier-hooks report record.jsonl --session 5f0c --json

The answers come from the record, which this command does not verify: amplifier-hooks audit verify does.
"""
REPORT_CODES: Final = "Exit codes: 0 it was read, 1 it cannot be read, 2 it was called wrongly."

DONE: Final = {
    "deny": "denied",
    "ask_user": "asked about",
    "modify": "changed",
    "inject_context": "added text at",
    "allow": "allowed without a question",
}
"""Each answer in the words of a report."""


@define
class HookReport:
    """The answers of one report-only hook or rule."""

    counts: Counter[str] = field(factory=Counter)
    latest: deque[dict[str, Any]] = field(factory=deque)


def report(
    record: Record = None,
    *,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only this session.", show_default=False)
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, metavar="N", help="The latest answers of each to print.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the answers that had no effect, by hook and rule."""
    from amplifier_hooks.cli.audit.find_record import RecordFiles

    with report_unreadable():
        found = read_answers(RecordFiles(record).lines(session=session), last)
    if as_json:
        rows = [
            {"hook": hook, "would": dict(one.counts), "latest": list(one.latest)} for hook, one in sorted(found.items())
        ]
        print_lines([json.dumps(rows, indent=1)])
    elif not print_lines(answer_lines(found)):
        typer.echo("The record has no answer of a report-only hook or of report-only rules.", err=True)


def read_answers(lines: Iterable[Line], last: int) -> dict[str, HookReport]:
    """Return the report-only answers on the lines of a record, by hook or rule, with the `last` ones of each."""
    from amplifier_hooks.cli.audit.record_text import would_answers

    found: dict[str, HookReport] = {}
    for line in lines:
        if line.entry is None:
            continue
        facts = line.entry.facts
        for hook, would in would_answers(facts):
            one = found.setdefault(hook, HookReport(latest=deque(maxlen=last)))
            action = str(would.get("action"))
            one.counts[action] += 1
            about = {name: facts.get(name) for name in ("session", "event", "tool")}
            one.latest.append({"time": line.entry.time, **about, "action": action, "reason": would.get("reason")})
    return found


def answer_lines(found: dict[str, HookReport]) -> Iterator[str]:
    """Return the report as lines, for people."""
    from amplifier_hooks.cli.audit.record_text import time_text
    from amplifier_hooks.result import STOPS_NOTHING

    for hook, one in sorted(found.items()):
        counts = ", ".join(f"{DONE.get(action, action)} {count:,}" for action, count in one.counts.most_common())
        yield f"{for_log(hook)} ({STOPS_NOTHING}) would have {for_log(counts)}"
        for answer in one.latest:
            did = DONE.get(answer["action"], answer["action"])
            about = answer["tool"] or answer["event"]
            why = f": {answer['reason']}" if answer["reason"] else ""
            yield f"  {time_text(answer['time'])}  {for_log(f'{did} {about}{why}')}"
