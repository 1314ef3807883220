r"""A report and the lines of a record come in; text for people, JSON for programs, or one HTML page go out.

Foreign text goes through `for_log`, so that it stays on its line. On the page, which loads nothing and runs nothing, it
goes through `for_page` and is set as text; the escapes of that function, such as `\u{202E}`, stand in a box.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import TYPE_CHECKING, Any, Final

from attrs import asdict

from amplifier_hooks.record.report import LogVerdict, Observation
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.escape import clip, for_log, for_page

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


TONES: Final = {
    LogVerdict.TAMPERED: "high",
    LogVerdict.TRUNCATED: "high",
    LogVerdict.CANNOT_TELL: "mid",
    LogVerdict.UNBROKEN: "low",
    LogVerdict.INTACT: "good",
    None: "low",
}
_SHAPES: Final = {
    "high": '<path fill="currentColor" stroke="none" fill-rule="evenodd" '
    'd="M8 1.2 15.4 14.4H.6L8 1.2zM7.2 6v4.2h1.6V6H7.2zm0 5.4v1.5h1.6v-1.5H7.2z"/>',
    "mid": '<path fill="currentColor" stroke="none" d="M8 1.8 14.2 8 8 14.2 1.8 8z"/>',
    "good": '<path d="m3 8.6 3.4 3.4L13 4.6"/>',
    "low": '<circle fill="currentColor" stroke="none" cx="8" cy="8" r="2.2"/>',
    "no": '<circle cx="8" cy="8" r="6"/><path d="m4 4 8 8"/>',
}
_HOOK: Final = '<path d="M13.5 3v9.2a4.3 4.3 0 0 1-8.6 0V10l-2 2.4M4.9 10l2.1 2.2"/><circle cx="13.5" cy="3" r=".6"/>'

_MOST_BYTES: Final = 2_000
_MARKS: Final = re.compile(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩")
_ALLOWED: Final = {"approved", "allowed", "allow"}
_DENIED: Final = {"deny", "denied", "unavailable", "cancelled", "timeout", "expired", "failed"}

STYLE: Final = """
:root { color-scheme: light dark;
  --paper: light-dark(#f3f2ee, #131518); --surface: light-dark(#ffffff, #1b1e23); --well: light-dark(#faf9f6, #15181c);
  --ink: light-dark(#1a1d21, #ecebe6); --ink-2: light-dark(#4b5159, #b6b9bd); --ink-3: light-dark(#63686f, #969ba3);
  --line: light-dark(#e0ded7, #2b2f36); --accent: light-dark(#17606d, #7fc6d0);
  --mid: light-dark(#7d5200, #e2b45f); --mid-soft: light-dark(#faf0da, #30270f);
  --high: light-dark(#a3271d, #f39a90); --high-soft: light-dark(#fbebe8, #311f1f);
  --good: light-dark(#1c6538, #8ad0a0); --good-soft: light-dark(#e7f3e9, #17281f);
  --sans: -apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; }
*, *::before { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 14px/20px var(--sans);
  font-variant-numeric: tabular-nums; }
h1, h2, p, ol, ul, dl, dd { margin: 0; padding: 0; }
ol, ul { list-style: none; }
svg { width: 16px; height: 16px; flex: none; fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linecap: round;
  stroke-linejoin: round; }
a { color: inherit; text-decoration: underline; text-underline-offset: 3px; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; border-radius: 4px; }
.u { font-family: var(--mono); font-size: 13px; font-variant-ligatures: none; font-variant-numeric: slashed-zero;
  unicode-bidi: isolate; direction: ltr; overflow-wrap: anywhere; white-space: pre-wrap; }
.esc { font-size: .86em; padding: 0 4px; margin: 0 1px; border-radius: 3px; background: var(--mid-soft);
  color: var(--mid); box-shadow: inset 0 0 0 1px currentColor; }
.bar { display: flex; align-items: center; gap: 8px; height: 52px; padding: 0 24px; background: var(--surface);
  border-bottom: 1px solid var(--line); font-weight: 600; }
.bar svg { width: 20px; height: 20px; color: var(--accent); stroke-width: 2; }
.bar .u { font-weight: 400; color: var(--ink-2); }
main { max-width: 1120px; margin: 0 auto; padding: 24px; }
h1 { font-size: 22px; line-height: 30px; font-weight: 600; letter-spacing: -.01em; }
h2 { display: flex; align-items: baseline; gap: 8px; margin: 24px 0 8px; font-size: 13px; font-weight: 600; }
h2 small { margin-left: auto; font-size: 12px; font-weight: 400; color: var(--ink-3); }
.sheet { border: 1px solid var(--line); border-radius: 8px; background: var(--surface); overflow: hidden; }
.sheet > * + * { border-top: 1px solid var(--line); }
.verdict { display: grid; grid-template-columns: 20px minmax(0, 1fr); gap: 2px 12px; padding: 16px;
  border: 1px solid var(--line); border-radius: 8px; background: var(--surface); }
.verdict svg { width: 20px; height: 20px; margin-top: 5px; }
.verdict p { grid-column: 2; color: var(--ink-2); }
.verdict.high { background: var(--high-soft); } .verdict.mid { background: var(--mid-soft); }
.verdict.good { background: var(--good-soft); }
.high > svg, .high > b { color: var(--high); } .mid > svg, .mid > b { color: var(--mid); }
.good > svg, .good > b { color: var(--good); } .low > svg, .no > svg { color: var(--ink-3); }
.verdict.high h1 { color: var(--high); } .verdict.mid h1 { color: var(--mid); } .verdict.good h1 { color: var(--good); }
.fact { display: grid; grid-template-columns: 112px minmax(0, 1fr); gap: 12px; padding: 9px 16px; }
.fact dt { color: var(--ink-3); }
.fact p { color: var(--ink-2); font-size: 13px; }
.found { display: grid; grid-template-columns: 16px 104px minmax(0, 1fr); gap: 12px; padding: 9px 16px; }
.found svg { margin-top: 2px; } .found b { font-size: 13px; font-weight: 600; }
.found p { color: var(--ink-2); font-size: 12px; line-height: 18px; }
details summary { display: grid; grid-template-columns: 56px 150px 16px 184px minmax(0, 1fr); gap: 12px;
  padding: 9px 16px; cursor: pointer; list-style: none; }
details summary::-webkit-details-marker { display: none; }
summary svg { margin-top: 2px; }
summary .seq { color: var(--ink-3); text-align: right; } summary time { color: var(--ink-2); font-size: 13px; }
summary .kind { font-weight: 600; overflow-wrap: anywhere; }
summary .u { color: var(--ink-2); }
details[open] summary, summary:hover { background: var(--well); }
details dl { display: grid; grid-template-columns: 136px minmax(0, 1fr); gap: 4px 12px; padding: 8px 16px 14px 84px;
  background: var(--well); }
details dt { color: var(--ink-3); font-size: 12px; } details dt, details dd { overflow-wrap: anywhere; }
.bad, .bad summary { background: var(--high-soft); }
.behind .kind, .behind .u { color: var(--ink-3); font-weight: 400; }
.empty { padding: 16px; color: var(--ink-2); }
footer { margin-top: 16px; color: var(--ink-3); font-size: 12px; }
@media (max-width: 720px) {
  main { padding: 16px; } .bar { padding: 0 16px; }
  .fact, .found { grid-template-columns: 16px minmax(0, 1fr); } .fact { grid-template-columns: 1fr; gap: 2px; }
  .found > div { grid-column: 2; } .found, details summary { row-gap: 2px; }
  details summary { grid-template-columns: 16px minmax(0, 1fr) auto; } summary .seq { order: 3; }
  summary time { order: 4; grid-column: 2; } summary .u { order: 5; grid-column: 2 / -1; }
  details dl { grid-template-columns: 1fr; padding-left: 16px; gap: 0; } details dd { margin-bottom: 8px; }
}
@media print { body { background: none; } .sheet, .verdict { break-inside: avoid-page; } }
"""
_DIGEST: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")


def page(report: Report, *, name: str, entries: Iterable[Line] | None = None) -> Iterator[str]:
    """Return the page piece by piece: the verdict, the findings, the checks, and the entries if there are any."""
    tone = TONES[report.verdict]
    policy = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(report.title.capitalize())} · {_text(name, marks=False)}</title>"
        f"<style>{STYLE}</style></head><body>"
    )
    hook = f'<svg viewBox="0 0 20 20" aria-hidden="true">{_HOOK}</svg>'
    yield f'<header class="bar">{hook}Record {_untrusted_text(name)}</header><main>'
    yield (
        f'<section class="verdict {tone}">{_shape(tone)}<h1>{html.escape(report.title.capitalize())}</h1>'
        f"<p>{_text(report.meaning)}</p></section>"
    )
    yield from _findings_section(report)
    yield from _checks_section(report)
    if entries is not None:
        yield from _lines(report, entries)
    yield "<footer>Times are in UTC, by the clock of the program that wrote the record.</footer></main></body></html>"


def _findings_section(report: Report) -> Iterator[str]:
    if not report.findings:
        return
    yield '<h2>Findings</h2><ul class="sheet">'
    for finding in report.findings:
        tone = TONES[finding.verdict]
        yield (
            f'<li class="found {tone}">{_shape(tone)}<b>{html.escape((finding.verdict or "note").capitalize())}</b>'
            f"<div>{_text(finding.text[:1].upper() + finding.text[1:])}{_location_text(finding)}</div></li>"
        )
    yield "</ul>"


def _location_text(finding: LogFinding) -> str:
    return f"<p>{_text(finding.location)}</p>" if finding.location else ""


def _checks_section(report: Report) -> Iterator[str]:
    yield '<h2>Checks</h2><dl class="sheet">'
    yield _fact("Log", _untrusted_text(report.log or "not known"))
    yield _fact("Tenant", _untrusted_text(report.tenant or "none"))
    yield _fact("Session", _untrusted_text(report.session or "none"))
    for segment in report.segments:
        yield _fact(f"Segment {segment.number}", _segment(segment))
    for one in report.comparisons:
        yield _fact(one.source.capitalize(), html.escape(comparison_text(one)))
    for text in unchecked_lines(report):
        yield _fact("Not checked", html.escape(text))
    yield "</dl>"


def _segment(segment: SegmentReport) -> str:
    first, *others = map(html.escape, segment_texts(segment))
    return "".join([first, *(f"<p>{text}</p>" for text in others)])


def _fact(name: str, value: str) -> str:
    return f'<div class="fact"><dt>{html.escape(name)}</dt><dd>{value}</dd></div>'


def _lines(report: Report, entries: Iterable[Line]) -> Iterator[str]:
    bad = {finding.file: finding.line or 0 for finding in report.findings if finding.observation in CHAIN_ENDS}
    shown = 0
    yield '<h2>Lines<small>open a line to see all of it</small></h2><div class="sheet">'
    behind = ""
    for line in entries:
        shown += 1
        if line.number > bad.get(line.file, line.number) and line.file != behind:
            behind = line.file
            yield f'<p class="empty">{_text(f"Lines of {line.file} from here on were not checked.")}</p>'
        yield _line(line, place=line.number - bad.get(line.file, line.number + 1))
    yield "</div>" if shown else '<p class="empty">There is no such line.</p></div>'


def _line(line: Line, *, place: int) -> str:
    """Return a line as HTML. Its place is zero for the line at which the chain ends, and positive behind that line."""
    entry = line.entry
    state = "bad" if place == 0 else "behind" if place > 0 else ""
    if entry is None:
        brief = f"{line.file}, line {line.number:,}: {line.problem}"
        facts = {"it begins": line.data[:_MOST_BYTES].decode("ascii", "backslashreplace")}
        return _details(seq="", time="", tone="high", kind="cannot be read", brief=brief, facts=facts, state=state)
    tone = "high" if place == 0 else _tone(entry)
    facts = {name: fact_text(value) for name, value in entry.facts.items()}
    time, brief = time_text(entry.time), fact_summary(entry)
    return _details(seq=f"{entry.seq:,}", time=time, tone=tone, kind=entry.kind, brief=brief, facts=facts, state=state)


def _details(*, seq: str, time: str, tone: str, kind: str, brief: str, facts: dict[str, str], state: str) -> str:
    rest = "".join(f"<dt>{_text(name)}</dt><dd>{_untrusted_text(value)}</dd>" for name, value in facts.items())
    return (
        f'<details class="{state}"><summary class="{tone}"><span class="seq">{seq}</span>'
        f'<time>{html.escape(time)}</time>{_shape(tone)}<span class="kind">{_text(kind)}</span>{_untrusted_text(brief)}'
        f"</summary><dl>{rest}</dl></details>"
    )


def _tone(entry: LogEntry) -> str:
    """Return the tone of a line: good for an allowed call, no for a denied or failed one, low for anything else."""
    words = {str(entry.facts.get("action")), str(entry.facts.get("status")), entry.kind.rpartition(".")[2]}
    return "good" if words & _ALLOWED else "no" if words & _DENIED else "low"


def _untrusted_text(text: str) -> str:
    return f'<span class="u">{_text(text)}</span>'


def _text(text: str, *, marks: bool = True) -> str:
    shown = html.escape(for_page(text))
    return _MARKS.sub(r'<span class="esc">\g<0></span>', shown) if marks else shown


def _shape(tone: str) -> str:
    return f'<svg viewBox="0 0 16 16" aria-hidden="true">{_SHAPES[tone]}</svg>'
