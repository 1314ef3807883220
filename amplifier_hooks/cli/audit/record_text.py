"""A report and the lines of a record come in; text for people, JSON for programs, or one HTML page go out.

Foreign text goes through `for_log`, so that it stays on its line. The page, which loads nothing and runs nothing, has
the texts for people, set as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import TYPE_CHECKING, Any, Final

from attrs import asdict

from amplifier_hooks.record.report import LogVerdict, Observation
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.cli.audit.find_record import Line
    from amplifier_hooks.record.line import LogEntry
    from amplifier_hooks.record.report import HeadComparison, LogFinding, Report, SegmentReport


EXITS: Final = {
    LogVerdict.TAMPERED: 1,
    LogVerdict.TRUNCATED: 1,
    LogVerdict.CANNOT_TELL: 3,
    LogVerdict.UNBROKEN: 0,
    LogVerdict.INTACT: 0,
}
HEADLESS: Final = 4
"""Exit code of an unbroken record for a caller who requires a head."""

CHAIN_ENDS: Final = (Observation.LINE, Observation.CHECKPOINT)
"""Findings behind which the verifier does not read the rest of the segment."""

_TELLING: Final = ("event", "tool", "action", "status", "hook", "hook_name", "by", "reason", "error")
_EVERY_RECORD: Final = ("number", "time", "session", "tenant")
_BRIEF: Final = 160


# -- the report --------------------------------------------------------------------------------------------------------


def verdict(report: Report) -> str:
    """Return the verdict and its meaning on one line."""
    return for_log(f"{report.title}: {report.meaning}")


def report_lines(report: Report) -> Iterator[str]:
    """Return the lines of the report, for people."""
    yield verdict(report)
    yield ""
    yield f"{'log':<12} {for_log(report.log) or 'not known'}"
    yield f"{'tenant':<12} {for_log(report.tenant) or 'none'}"
    yield f"{'session':<12} {for_log(report.session) or 'none'}"
    for segment in report.segments:
        for name, text in zip((f"segment {segment.number}", "", ""), segment_texts(segment), strict=True):
            yield f"{name:<12} {text}"
    for one in report.comparisons:
        yield f"{one.source:<12} {comparison_text(one)}"
    for text in unchecked_lines(report):
        yield f"{'not checked':<12} {text}"
    for finding in report.findings:
        yield f"{finding.verdict or 'note':<12} {finding_text(finding)}"


def segment_texts(segment: SegmentReport) -> tuple[str, str, str]:
    """Return three texts about a segment: its lines, its times, and its signature."""
    key = f"the key {segment.key}, which is {'' if segment.pinned else 'not '}pinned"
    lines = f"{segment.lines:,} lines ({segment.first:,} to {segment.last:,}), {segment.bytes:,} bytes"
    return (
        f"{for_log(segment.file.name)}, {lines}{', complete' if segment.complete else ''}",
        f"written {time_text(segment.began)} to {time_text(segment.ended)} by its own clock",
        f"signed up to line {segment.signed:,} by {key}" if segment.signed else "not signed",
    )


def comparison_text(one: HeadComparison) -> str:
    """Return the result of comparing the log with a head."""
    place = f", kept in {for_log(one.store)}," if one.store else ""
    found = {True: "is in the log", False: "is not in the log", None: "was not compared: the log is broken before it"}
    return f"line {one.seq:,} of segment {one.segment}{place} {found[one.matches]}"


def unchecked_lines(report: Report) -> Iterator[str]:
    """Return a line for each thing that the verdict does not cover."""
    if not report.comparisons:
        yield "heads kept elsewhere, as none is known: a holder of the key could have rewritten all of it"
    for finding in report.findings:
        if finding.observation in CHAIN_ENDS:
            yield f"the rest of {for_log(finding.file)} from line {finding.line:,} on, as the chain ends there"


def finding_text(finding: LogFinding) -> str:
    """Return a finding with its place, on one line."""
    return for_log(": ".join(filter(None, (finding.location, finding.text))))


def report_facts(report: Report) -> dict[str, Any]:
    """Return the facts of the report, for programs."""
    names = ("verdict", "title", "meaning", "log", "tenant", "session", "proven")
    return {
        **{name: getattr(report, name) for name in names},
        "findings": [_finding(finding) for finding in report.findings],
        "first_bad": None if report.bad is None else _finding(report.bad),
        "segments": [{**asdict(segment), "file": segment.file.name} for segment in report.segments],
        "compared": report.comparisons,
        "unchecked": list(unchecked_lines(report)),
    }


def _finding(finding: LogFinding) -> dict[str, Any]:
    return {
        "found": finding.observation.name.lower(),
        "verdict": finding.verdict,
        "file": finding.file,
        "line": finding.line,
        "text": finding.text,
    }


# -- lines of the record -----------------------------------------------------------------------------------------------


def raw_text(line: Line) -> str:
    """Return a line as it is written; for an unreadable line, a JSON object with its problem."""
    if line.entry is None:
        return json.dumps({"file": line.file, "line": line.number, "problem": line.problem})
    return line.data.decode("ascii").removesuffix("\n")


def brief_text(line: Line) -> str:
    """Return a line of the record in brief, on one line."""
    if line.entry is None:
        return f"{for_log(line.file)}, line {line.number:,}: {for_log(line.problem)}"
    entry = line.entry
    when, kind, facts = time_text(entry.time), for_log(entry.kind), for_log(fact_summary(entry))
    return f"{when:<19}  {entry.seq:>6}  {kind:<20}  {facts}".rstrip()


def whole_text(line: Line) -> str:
    """Return a line of the record with all its facts, on several lines."""
    if line.entry is None:
        return f"{brief_text(line)}\n"
    entry = line.entry
    heading = f"{entry.seq}  {for_log(entry.kind)}  {for_log(entry.time or 'without a time')}"
    facts = (f"    {for_log(name):<14} {for_log(fact_text(value))}" for name, value in entry.facts.items())
    return "\n".join([heading, *facts, ""])


def kinds_text(lines: Iterable[Line]) -> str:
    """Return the kinds of lines that the record has, for a user who asked for a kind that it lacks."""
    kinds = sorted({line.entry.kind for line in lines if line.entry is not None})
    return f"its kinds are {for_log(', '.join(kinds))}" if kinds else "the record is empty"


def fact_summary(entry: LogEntry) -> str:
    """Return the main facts of a line, clipped. The caller escapes them."""
    facts = entry.facts
    if entry.kind == "log.checkpoint":
        return f"signed up to line {entry.seq - 1:,}"
    if entry.kind == "segment.opened":
        return clip(f"segment {facts.get('segment')} of the log {facts.get('log')}", _BRIEF)
    telling = [fact_text(facts[name]) for name in _TELLING if facts.get(name)]
    telling += would_texts(facts)
    rest = telling or [f"{name} {fact_text(value)}" for name, value in facts.items() if name not in _EVERY_RECORD]
    return clip("  ".join(rest), _BRIEF)


def would_answers(facts: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the report-only answers on a line of the record: the hook or rule, and its action with the reason."""
    answers = facts.get("answers")
    for one in [facts, *(answers if isinstance(answers, list) else ())]:
        if isinstance(one, dict) and isinstance(one.get("would"), dict):
            yield str(one.get("hook")), one["would"]


def would_texts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Return a text for each report-only answer on a line: it stopped nothing."""
    for hook, would in would_answers(facts):
        yield f"{hook} would have answered {would.get('action')}, but is {STOPS_NOTHING}"


def fact_text(value: object) -> str:
    """Return a fact that is a string as it is, and any other fact as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def time_text(time: str | None) -> str:
    """Return a time to the second, without its zone: all are in UTC."""
    return for_log((time or "")[:19].replace("T", " "))


# -- the page ----------------------------------------------------------------------------------------------------------


STYLE: Final = """
:root { color-scheme: light dark; }
body { max-width: 1120px; margin: 24px auto; padding: 0 16px; font: 14px/20px system-ui, sans-serif; }
h1 { font-size: 22px; line-height: 30px; }
h2 { font-size: 14px; }
summary, pre { font: 13px/20px ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { padding: 4px 0; cursor: pointer; }
details pre { margin: 0 0 8px 16px; }
"""
_DIGEST: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")


def page(report: Report, *, name: str, entries: Iterable[Line] | None = None) -> Iterator[str]:
    """Return the page piece by piece: the report as `report_lines` has it, and the entries if there are any."""
    title = html.escape(report.title.capitalize())
    policy = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} · {html.escape(for_log(name))}</title><style>{STYLE}</style></head><body><main>"
    )
    text = "\n".join(report_lines(report))
    yield f"<h1>{title}</h1><pre>{html.escape(text)}</pre>"
    if entries is not None:
        yield "<h2>Lines</h2>"
        yield from _entries(report, entries)
    yield "<p>Times are in UTC, by the clock of the program that wrote the record.</p></main></body></html>"


def _entries(report: Report, entries: Iterable[Line]) -> Iterator[str]:
    """Return each line, folded; a mark names the line at which the chain ends, and the lines behind it."""
    ends = {finding.file: finding.line or 0 for finding in report.findings if finding.observation in CHAIN_ENDS}
    shown = False
    for line in entries:
        shown = True
        behind = line.number - ends.get(line.file, line.number + 1)
        mark = "" if behind < 0 else " <mark>not checked</mark>" if behind else " <mark>the chain ends here</mark>"
        brief, whole = html.escape(brief_text(line)), html.escape(whole_text(line))
        yield f"<details><summary>{brief}{mark}</summary><pre>{whole}</pre></details>"
    if not shown:
        yield "<p>There is no such line.</p>"
