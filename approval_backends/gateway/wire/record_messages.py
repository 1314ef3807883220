"""Records and grants as messages. Pure: the time and how long grants are kept are arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import asdict, evolve

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.approvals import check_digest, offered
from amplifier_hooks.errors import NO_ANSWER
from amplifier_hooks.impacts import MEANINGS
from amplifier_hooks.text.escape import clip, for_page
from approval_backends.card.changes import edit_request, editable_text, word_changes
from approval_backends.card.contents import (
    agent_statement,
    group_member,
    headline,
    oddities,
    reach,
    reach_of,
    views,
    would_have_covered,
)
from approval_backends.card.impact_lines import NO_FACTS, impact_lines
from approval_backends.gateway.wire import messages
from approval_backends.lifecycle import sees_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantUse, Option, Stop
    from approval_backends.card.changes import ChangeLine
    from approval_backends.card.contents import ActionView, GrantReach
    from approval_backends.card.impact_lines import CardFacts
    from approval_backends.lifecycle import Decider, Refusal, RequestRecord, Status


PART: Final = 32_768
"""Characters of a view that are sent at a time."""
LONGEST_NAME: Final = 512
"""Bytes of a name in a row."""
WHOLE_INPUT: Final = 256 * 1024
"""Bytes of arguments that a client of the plain protocol is shown. Arguments that were not shown cannot be allowed."""

LINE_COSTS: Final = 40
"""Characters that a line of a diff takes beyond its text."""

USES_SHOWN: Final = 5
"""Most calls that are shown of those a grant has covered."""

UNDECIDED: Final[frozenset[Status]] = frozenset({"expired", "cancelled", "superseded"})


def rights(decider: Decider) -> messages.Rights:
    """Return the name and the rights of an approver."""
    return messages.Rights(
        name=for_page(decider.name),
        channel=for_page(decider.channel),
        may_decide=decider.may_decide,
        sessions=None if decider.sessions is None else sorted(map(_key, decider.sessions)),
    )


def row(record: RequestRecord) -> messages.RequestRow:
    """Return a request as a line."""
    request = record.request
    head, member = headline(request, for_page), group_member(request, for_page)
    return messages.RequestRow(
        request_id=_key(request.id),
        session_id=_key(request.session),
        session=clip(for_page(request.session), LONGEST_NAME),
        tenant=for_page(request.tenant),
        agent=clip(for_page(request.agent), LONGEST_NAME),
        tool=clip(for_page(request.tool), LONGEST_NAME),
        kind=head.kind,
        verb=head.verb,
        what=head.what,
        risk=request.risk,
        created=record.created.wall,
        expires=record.expires,
        default=request.default,
        resumable=request.wait is not None,
        digest=request.digest,
        summary=clip(freeze(dict(request.arguments)).decode("ascii"), LONGEST_NAME) if head.kind == "other" else None,
        group=None if member is None else member.group,
        line=None if member is None else member.line,
    )


def card_view(record: RequestRecord, facts: CardFacts = NO_FACTS) -> messages.CardView:
    """Return a request as a card; long views begin here and continue in parts."""
    request = record.request
    span = _reach(request)
    return messages.CardView(
        row=row(record),
        event=for_page(request.event),
        cwd=for_page(request.cwd),
        views=[_part_from(view, 0) for view in views(request, for_page)],
        questions=_questions(request),
        risk_reasons=_risk_reasons(request),
        impacts=_impacts(request),
        impact_lines=[messages.WireImpactLine(**asdict(one)) for one in impact_lines(request, for_page, facts)],
        claim=agent_statement(request, for_page),
        odd=[messages.Odd(**asdict(one)) for one in oddities(dict(request.arguments), for_page)],
        edit=editable_text(request.arguments),
        options=[_choice(option) for option in offered(request)],
        always=None
        if span is None
        else messages.ReachView(**asdict(span), so_far=would_have_covered(request, facts.earlier)),
        status=record.status,
        ending=None if record.status == "pending" else ending(record),
    )


def part(record: RequestRecord, view: str, start: int) -> messages.ViewPart | None:
    """Return a view from `start` on; None if there is no such view."""
    return next((_part_from(found, start) for found in views(record.request, for_page) if found.name == view), None)


def preview_message(record: RequestRecord, text: str) -> messages.Previewed:
    """Return the action that these arguments would make. Raises `BadArguments`, with a sentence for the approver."""
    change = edit_request(record.request, text)
    lines = [evolve(line, text=for_page(line.text)) for line in change.lines]
    return messages.Previewed(
        digest=change.digest,
        lines=list(_lines(lines)),
        added=sum(line.kind == "add" for line in lines),
        removed=sum(line.kind == "del" for line in lines),
    )


def ending(record: RequestRecord) -> messages.Ending:
    """Return the end of a request. An end without a decision has no name under it."""
    request, decision = record.request, record.decision
    if decision is None or record.status in UNDECIDED:
        chosen = _by_silence(request) if record.status == "expired" else None
        selected = messages.WireOutcome(outcome="selected", option_id=_key(chosen.id)) if chosen else None
        reason = record.reason or (NO_ANSWER if record.status == "expired" else "")
        return messages.Ending(
            status=record.status,
            outcome=selected or messages.WireOutcome(outcome="cancelled"),
            allowed=chosen is not None and chosen.allows,
            at=record.ended,
            reason=for_page(reason),
        )
    option = next((option for option in request.options if option.id == decision.option), None)
    return messages.Ending(
        status=record.status,
        outcome=messages.WireOutcome(outcome="selected", option_id=_key(decision.option)),
        allowed=option is not None and option.allows,
        kind=option.kind if option else None,
        label=for_page(option.label) if option else None,
        by=for_page(decision.by),
        channel=for_page(decision.channel),
        at=decision.at,
        took=record.took,
        message=None if decision.message is None else for_page(decision.message),
        edited=decision.arguments is not None,
        reason=for_page(record.reason),
    )


def history_row(record: RequestRecord) -> messages.HistoryRow:
    """Return a request that is not asked any more."""
    return messages.HistoryRow(row=row(record), ending=ending(record))


def refusal_message(refusal: Refusal) -> messages.Refused:
    """Return the reason why an answer did not count."""
    return messages.Refused(code=refusal.code, reason=for_page(refusal.reason))


def grant_row(grant: Grant, uses: Sequence[GrantUse] = ()) -> messages.GrantRow:
    """Return a grant as a sentence, its facts, and the last calls that it has covered."""
    key = grant.key
    return messages.GrantRow(
        grant_id=_key(grant.id),
        request_id=_key(grant.request),
        allows=grant.allows,
        covers=reach_of(key, for_page),
        hook=for_page(key.hook),
        version=for_page(key.version),
        agent=for_page(key.agent),
        session=None if key.session is None else for_page(key.session),
        by=for_page(grant.by),
        channel=for_page(grant.channel),
        since=grant.created,
        expires=grant.expires,
        times=grant.times,
        used=grant.used,
        uses=[
            messages.WireGrantUse(at=one.at, tool=for_page(one.tool), action=for_page(one.action))
            for one in uses[-USES_SHOWN:]
        ],
    )


def stop_rows(decider: Decider, stops: Iterable[Stop]) -> list[messages.StopRow]:
    """Return the stops that reach a session of the decider."""
    return [
        messages.StopRow(
            by=clip(for_page(stop.by), LONGEST_NAME),
            why=clip(for_page(stop.why), LONGEST_NAME),
            session=clip(for_page(stop.session), LONGEST_NAME) if stop.session else None,
            since=stop.at,
        )
        for stop in stops
        if sees_stop(decider, stop)
    ]


def permission(record: RequestRecord, now: datetime, facts: CardFacts = NO_FACTS) -> dict[str, Any]:
    """Return the question to a client of the plain protocol, with the arguments as they are.

    Arguments too large to be sent are not shown, and then only refusals are offered. Raises `ApprovalMismatch` for a
    request whose arguments do not have its digest.
    """
    request = record.request
    check_digest(request)
    head = headline(request, for_page)
    frozen = freeze(dict(request.arguments))
    whole = len(frozen) <= WHOLE_INPUT
    reasons = _risk_reasons(request)
    lines = [f"It {one.text}." for one in impact_lines(request, for_page, facts)]
    lines += [_marked(f"{why.hook} asks: {why.prompt}") for why in _questions(request)]
    lines += [_marked(f"{request.risk.capitalize()} risk, says {why.by}: {why.reason}") for why in reasons]
    if span := _reach(request):
        lines += [_marked(f"Always covers: {sentence}") for sentence in span.covers]
        lines += [f"Always ends: {span.ends}", *filter(None, [would_have_covered(request, facts.earlier)])]
    if not whole:
        lines.insert(
            0, f"The arguments are too large to be shown here ({len(frozen):,} bytes), so it cannot be allowed."
        )
    options = [_choice(option) for option in offered(request) if whole or not option.allows]
    return {
        "sessionId": _key(request.session),
        "toolCall": {
            "toolCallId": _key(request.id),
            "title": head.what if head.kind == "execute" else f"{head.verb}: {head.what}",
            "kind": head.kind,
            "status": "pending",
            "content": [{"type": "content", "content": {"type": "text", "text": "\n".join(lines)}}],
            **({"rawInput": thaw(frozen)} if whole else {}),
        },
        "options": list(map(messages.fields, options)),
        "_meta": {
            messages.META: {
                "requestId": _key(request.id),
                "digest": request.digest,
                "agent": for_page(request.agent),
                "tenant": for_page(request.tenant),
                "cwd": for_page(request.cwd),
                "risk": request.risk,
                "riskReasons": list(map(messages.fields, reasons)),
                "impacts": list(map(messages.fields, _impacts(request))),
                "default": request.default,
                "expires": record.expires.isoformat(),
                "serverTime": now.isoformat(),
            }
        },
    }


def _marked(text: str) -> str:
    """Return a line of ours with foreign text in it: further lines of that text stand behind a mark."""
    return text.replace("\n", "\n  | ")


def _key(text: str) -> str:
    """Return a key as it is. A lone surrogate cannot be sent, so it is spelt out; such a key then names no request."""
    return text.encode("utf-8", "backslashreplace").decode()


def _questions(request: ApprovalRequest) -> list[messages.WireQuestion]:
    return [
        messages.WireQuestion(hook=for_page(why.hook), version=for_page(why.version), prompt=for_page(why.prompt))
        for why in request.questions
    ]


def _risk_reasons(request: ApprovalRequest) -> list[messages.RiskReason]:
    return [messages.RiskReason(by=for_page(one.by), reason=for_page(one.reason)) for one in request.risk_reasons]


def _impacts(request: ApprovalRequest) -> list[messages.WireImpact]:
    return [
        messages.WireImpact(
            kind=one.kind, meaning=MEANINGS[one.kind], place=for_page(one.place), reason=for_page(one.reason)
        )
        for one in request.impacts
    ]


def _reach(request: ApprovalRequest) -> GrantReach | None:
    """Return the reach of an "always", if one is offered."""
    return reach(request, for_page) if any(option.lasts for option in offered(request)) else None


def _choice(option: Option) -> messages.Choice:
    return messages.Choice(option_id=_key(option.id), name=for_page(option.label), kind=option.kind)


def _by_silence(request: ApprovalRequest) -> Option | None:
    """Return the option that an expired request selects."""
    return next((option for option in request.options if option.allows == (request.default == "allow")), None)


def _part_from(view: ActionView, start: int) -> messages.ViewPart:
    """Return a view from `start` on, as much of it as is sent at a time."""
    whole = messages.ViewPart(name=view.name, added=view.added, removed=view.removed, characters=view.characters)
    if not view.lines:
        text = view.text[start : start + PART]
        end = start + len(text)
        return whole.model_copy(update={"text": text, "next": end if end < len(view.text) else None})
    room = PART
    end = start
    for line in view.lines[start:]:
        room -= len(line.text) + LINE_COSTS
        if room < 0 and end > start:
            break
        end += 1
    lines = list(_lines(view.lines[start:end]))
    return whole.model_copy(update={"lines": lines, "next": end if end < len(view.lines) else None})


def _lines(lines: Sequence[ChangeLine]) -> Iterator[messages.DiffLine]:
    marks = word_changes(lines)
    for number, line in enumerate(lines):
        pieces = list(marks[number]) if number in marks else None
        yield messages.DiffLine(kind=line.kind, text=line.text, old=line.old, new=line.new, pieces=pieces)
