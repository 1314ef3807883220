"""Requests and grants come in; text for people goes out. Foreign text is escaped here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from amplifier_hooks.approvals import check_digest
from amplifier_hooks.cli.common.terminal_io import count_text
from amplifier_hooks.text.escape import clip, for_terminal
from approval_backends.card.contents import oddities, reach, scope_text
from approval_backends.card.impact_lines import impact_lines
from approval_backends.lifecycle import seconds_left
from approval_backends.terminal.card_pages import names_secret, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantUse, Option
    from approval_backends.lifecycle import Moment, RequestRecord
    from approval_backends.stores.approval_store import RequestEvent


SHORT: Final = 8
"""Characters of an id that a list shows, if they are enough to tell it apart."""
ROOM: Final = 72
"""Bytes of foreign text in a line of a list."""
USES_SHOWN: Final = 5
"""Most calls that a list shows of those a grant has covered."""
MARK: Final = "    | "
"""The mark before every line of foreign text, so that none of it can pass for a line of ours."""


def line_of(record: RequestRecord, now: Moment, ids: Iterable[str]) -> Iterator[str]:
    """Return the lines of one request in a list: action, worst impact, agent, time left, questions and risk."""
    request = record.request
    label = short_id(record.id, ids)
    said = sorted(
        (f"{inline(name)}={_cover_secret(name, value)}" for name, value in request.arguments.items()), key=len
    )
    arguments = ", ".join(said)  # the short ones first: a path tells more than the beginning of a text
    yield f"{label}  {inline(request.tool)}  {clip(arguments, ROOM)}"
    blank = " " * len(label)
    if impacts := impact_lines(request, inline):
        more = f" (and {len(impacts) - 1:,} more)" if len(impacts) > 1 else ""
        yield f"{blank}  it {clip(impacts[0].text, ROOM)}{more}"
    who = f"{inline(request.agent)} in session {inline(request.session)}"
    yield f"{blank}  {who} · {inline(status_text(record, now))} · digest {record.digest[:12]}"
    for question in request.questions:
        yield f"{blank}  {inline(question.hook)}: {clip(inline(question.prompt), ROOM)}"
    whys = [f", says {inline(one.by)}: {clip(inline(one.reason), ROOM)}" for one in request.risk_reasons]
    yield from (f"{blank}  {request.risk} risk{why}" for why in whys or [""])
    if odd := " ".join(one.sentence(arguments) for one in oddities(dict(request.arguments), inline)):
        yield f"{blank}  look twice: {clip(odd, ROOM)}"


def action(record: RequestRecord) -> Iterator[str]:
    """Return the lines of the exact action that would run, or ran: impacts, tool, then every argument whole.

    An action that the approver edited has no impacts here: those of the request belong to the agent's arguments.

    Raises `ApprovalMismatch` for a request whose arguments do not have its digest.
    """
    request = record.request
    check_digest(request)
    decision = record.decision
    edited = decision.arguments if decision else None
    arguments = dict(request.arguments if edited is None else edited)
    if edited is None:
        yield from (f"It {one.text}." for one in impact_lines(request, inline))
    yield f"Tool {inline(request.tool)}, with {count_text(len(arguments), 'argument')}:"
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        kind = "" if isinstance(value, str) else " (JSON)"
        lines = for_terminal(text).split("\n")
        count = f", {len(lines):,} lines" if len(lines) > 1 else ""
        yield f"  {inline(name)}{kind}{count}:"
        yield from (f"{MARK}{line}" for line in lines)
    if edited is not None:
        yield "  (as the approver wrote them)"
    for odd in oddities(arguments, inline):
        yield f"  look twice: {odd.sentence(odd.mark)}"
    yield f"  digest {record.digest}"


def always(request: ApprovalRequest, option: Option | None = None) -> Iterator[str]:
    """Return the lines about the reach of an "always", and its end; of this option alone, if one is given."""
    scope = reach(request, inline, option)
    yield 'An "always" covers:'
    yield from (f"{MARK}{covered}" for covered in scope.covers)
    yield f"  Not covered: {scope.leaves}"
    yield f"  It ends: {scope.ends}"


def card(record: RequestRecord, now: Moment, events: Iterable[RequestEvent] = ()) -> Iterator[str]:
    """Return the lines of a whole request."""
    request = record.request
    yield f"Request {inline(record.id)}: {inline(status_text(record, now))}"
    yield from action(record)
    yield f"Agent {inline(request.agent)}, session {inline(request.session)}" + (
        f", tenant {inline(request.tenant)}" if request.tenant else ""
    )
    if request.cwd:
        yield f"Directory {inline(request.cwd)}"
    yield f"Risk {request.risk}. Without an answer it is {'allowed' if request.default == 'allow' else 'denied'}."
    for question in request.questions:
        yield from quotation(f"{inline(question.hook)} asks:", question.prompt)
    for one in request.risk_reasons:
        yield from quotation(f"{one.risk.capitalize()} risk, says {inline(one.by)}:", one.reason)
    yield f"Answers: {', '.join(inline(option.label) for option in request.options)}"
    if any(option.lasts for option in request.options):
        yield from always(request)
    if record.decision is not None and record.decision.message:
        yield from quotation(f"{inline(record.decision.by)} says:", record.decision.message)
    for number, event in enumerate(events):
        if number == 0:
            yield "History:"
        who = f" by {inline(event.by)} ({inline(event.channel)})" if event.by else ""
        note = f": {clip(inline(event.note), ROOM)}" if event.note else ""
        yield f"  {_clock(event.at)}  {event.kind}{who}{note}"


def quotation(heading: str, text: str) -> list[str]:
    """Return a heading of ours and the lines of a foreign text below it."""
    return [heading, *(f"{MARK}{line}" for line in for_terminal(text).split("\n"))]


def grant_lines(grant: Grant, ids: Iterable[str], uses: Sequence[GrantUse] = ()) -> Iterator[str]:
    """Return the lines of one grant in a list, with the last calls that it has covered."""
    key = grant.key
    label = short_id(grant.id, ids)
    scope = clip(scope_text(key, inline), ROOM)
    yield f"{label}  {'allow' if grant.allows else 'deny'} always  {inline(key.tool) or 'any tool'}  {scope}"
    blank = " " * len(label)
    where = f"session {inline(key.session)}" if key.session is not None else f"every session in {inline(key.cwd)}"
    until = f", until {_clock(grant.expires)}" if grant.expires else ""
    yield f"{blank}  asked by {inline(key.hook)}, for {inline(key.agent)} in {where}{until}"
    yield f"{blank}  given by {inline(grant.by)} ({inline(grant.channel)}) at {_clock(grant.created)}"
    if grant.allows:
        most = f" of {grant.times:,}" if grant.times is not None else ""
        yield f"{blank}  covered {grant.used:,}{most} {'call' if (grant.times or grant.used) == 1 else 'calls'}"
    for use in uses[-USES_SHOWN:]:
        yield f"{blank}    {_clock(use.at)}  {inline(use.tool)}  {clip(inline(use.action), ROOM)}"


def status_text(record: RequestRecord, now: Moment) -> str:
    """Return the status of a request in a few words: its time left, or its end. The caller escapes it."""
    if record.status == "pending":
        left = seconds_left(record.created, record.lifetime, now)
        silence = "allowed" if record.request.default == "allow" else "denied"
        return f"{_span(left)} left, then {silence}" if left > 0 else f"expired, {silence}"
    return end_text(record)


def end_text(record: RequestRecord) -> str:
    """Return the end of a request in a few words, with the decider or the reason. The caller escapes it."""
    who = f" by {record.decision.by} ({record.decision.channel})" if record.decision else ""
    why = f": {clip(record.reason, ROOM)}" if record.reason and not record.decision else ""
    return f"{record.status}{who}{why}"


def inline(text: str) -> str:
    """Return foreign text, escaped to be part of one line."""
    return for_terminal(text).replace("\n", "\\u{0A}").replace("\t", "\\u{09}")


def short_id(given: str, ids: Iterable[str]) -> str:
    """Return as much of an id as tells it from the others, escaped."""
    length = SHORT
    others = [one for one in ids if one != given]
    while length < len(given) and any(one.startswith(given[:length]) for one in others):
        length += 1
    return inline(given[:length])


def _cover_secret(name: str, value: object) -> str:
    """Return a value for a list, escaped, with known secrets covered: no approver decides by a list."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    found = [(text, True)] if isinstance(value, str) and names_secret(name, value) else pieces(text)
    return "".join(f"⟨secret, {len(one):,} characters⟩" if secret else inline(one) for one, secret in found)


def _span(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _clock(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
