"""The gateway's own methods, answered for one approver over the broker. This module knows no socket.

The gateway's own record has answers that did not count, and revoked grants; the asking session records the decisions
that count. Nothing waits for these records, so a failure is logged. A tail shows the last lines of a session's record:

    SessionCoordinator(approvals=web, audit=web.watched_sink(log))
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.text.escape import clip, for_page
from approval_backends.card.changes import BadArguments
from approval_backends.card.count_files import find_card_facts
from approval_backends.gateway.wire import messages
from approval_backends.gateway.wire.frames import Malformed, parse_json
from approval_backends.gateway.wire.record_messages import (
    card_view,
    ending,
    grant_row,
    history_row,
    part,
    preview_message,
    refusal_message,
    rights,
    row,
    stop_rows,
)
from approval_backends.lifecycle import RequestRecord, sees
from approval_backends.stores.approval_store import LATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.ports import AuditSink
    from approval_backends.broker import Broker, Resolution
    from approval_backends.gateway.client_hub import WaitingRequests
    from approval_backends.lifecycle import Decider, Refusal


log = logging.getLogger(__name__)


class GatewayRecord:
    """Writes to the gateway's own record, if it has one."""

    def __init__(self, sink: AuditSink | None, now: Callable[[], datetime]) -> None:
        self._sink = sink
        self._now = now

    async def record_refusal(self, by: Decider, request_id: str, option: str, refusal: Refusal) -> None:
        """Record an answer that came late, without the right to give it, or for an unknown request."""
        late = refusal.code in LATE
        facts: dict[str, Any] = {"request": request_id, "option": option, "code": refusal.code}
        if refusal.record is not None:
            request = refusal.record.request
            facts |= {"session": request.session, "tenant": request.tenant, "digest": request.digest}
        await self._write("approval.late_decision" if late else "approval.refused", by, facts)

    async def record_revocation(self, by: Decider, grant_id: str) -> None:
        """Record that a grant was revoked."""
        await self._write("grant.revoked", by, {"grant": grant_id})

    async def _write(self, kind: str, by: Decider, facts: Mapping[str, Any]) -> None:
        if self._sink is None:
            return
        head = {"time": self._now().isoformat(), "by": by.name, "channel": by.channel}
        try:
            await self._sink.write(kind, {**head, **facts})
        except Exception as problem:  # noqa: BLE001  # a sink may raise anything
            log.error("audit_unavailable kind=%s error=%s", kind, type(problem).__name__)  # noqa: TRY400


LINES_KEPT: Final = 100
"""Lines kept of one session."""
SESSIONS_KEPT: Final = 64
"""Sessions whose lines are kept; the one that was quiet for longest makes room."""
LONGEST_LINE: Final = 300
"""Bytes of the text of a line."""

SHOWN_FACTS: Final = ("hook", "hooks", "tool", "action", "status", "by", "reason", "error")
"""Facts that a line shows, in this order. Arguments and results are not among them."""


class Tails:
    """The last lines of every session that is followed."""

    def __init__(self) -> None:
        self.enabled = False
        self.on_line: Callable[[tuple[str, str], messages.TailLine], None] | None = None
        self._lines: OrderedDict[tuple[str, str], deque[messages.TailLine]] = OrderedDict()
        self._number = 0

    def last(self, by: Decider, session: str) -> list[messages.TailLine]:
        """Return the last lines of a session, oldest first; none of a session that the approver may not see."""
        return [line for key, lines in self._lines.items() if may_see_lines(by, key, session) for line in lines]

    def add(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Add a line. Facts without a session belong to no tail."""
        key = (str(facts.get("tenant", "")), str(facts.get("session", "")))
        if not key[1]:
            return
        self._number += 1
        line = messages.TailLine(number=self._number, at=_time(facts), kind=for_page(kind), text=_text(facts))
        self._lines.setdefault(key, deque(maxlen=LINES_KEPT)).append(line)
        self._lines.move_to_end(key)
        if len(self._lines) > SESSIONS_KEPT:
            self._lines.popitem(last=False)
        if self.on_line is not None:
            self.on_line(key, line)


class WatchedSink:
    """A record that clients follow while it is written. A line that could not be written is not shown."""

    def __init__(self, sink: AuditSink, tails: Tails) -> None:
        self._sink = sink
        self._tails = tails
        tails.enabled = True

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Write, then show. Raises the errors of the sink."""
        await self._sink.write(kind, facts, durable=durable)
        self._tails.add(kind, facts)


def may_see_lines(by: Decider, key: tuple[str, str], session: str) -> bool:
    """Return True if the approver may see these lines, and they belong to the session that it follows."""
    return key[1] == session and by.tenant in (None, key[0]) and (by.sessions is None or session in by.sessions)


def _time(facts: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(facts["time"])
    except (KeyError, TypeError, ValueError):
        return datetime.now(UTC)


def _text(facts: Mapping[str, Any]) -> str:
    shown = (facts[name] for name in SHOWN_FACTS if facts.get(name))
    words = (", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value) for value in shown)
    return clip(" · ".join(for_page(word) for word in words), LONGEST_LINE)


RECENT: Final = 10
"""Ended requests that come with the queue."""


class RpcMethods:
    """Answers calls. The session that calls names the approver; the message never does.

    Raises `Malformed` for a call that cannot be answered, and `StoreUnavailable`.
    """

    def __init__(self, broker: Broker, waiting: WaitingRequests, witness: GatewayRecord, tails: Tails) -> None:
        self._broker = broker
        self._waiting = waiting
        self._witness = witness
        self._tails = tails

    async def attach(self, by: Decider, _params: messages.Nothing) -> messages.Attached:
        """Return all pending requests, and the approver's rights: the gateway's state at one instant."""
        recent = await self._broker.history(by, RECENT)
        return messages.Attached(
            you=rights(by),
            queue=[row(record) for record in self._waiting.visible_to(by)],
            recent=[history_row(record) for record in recent],
            stops=stop_rows(by, self._waiting.stops),
            features=messages.Features(tail=self._tails.enabled),
        )

    async def show(self, by: Decider, params: messages.Show) -> messages.CardView:
        """Return one request as a card."""
        record = await self._record(by, params.request_id)
        facts = await find_card_facts(record.request, await self._broker.session_requests(record.request))
        return card_view(record, facts)

    async def more(self, by: Decider, params: messages.More) -> messages.ViewPart:
        """Return the next part of a view."""
        found = part(await self._record(by, params.request_id), params.view, params.start)
        if found is None:
            raise Malformed(-32002, "no such view")
        return found

    async def preview(self, by: Decider, params: messages.Preview) -> messages.Previewed:
        """Return the action that other arguments would make of a request."""
        record = await self._record(by, params.request_id)
        if params.digest != record.request.digest:
            raise Malformed(-32602, "digest: this is another action")
        try:
            return preview_message(record, params.arguments)
        except BadArguments as problem:
            raise Malformed(-32602, str(problem)) from None

    async def decide(self, by: Decider, params: messages.Decide) -> messages.Decided:
        """Put an answer to the store, and return the result. An answer that does not count goes on record."""
        resolution = await self._broker.decide(
            params.request_id,
            params.digest,
            params.option_id,
            by,
            message=params.message,
            arguments=None if params.arguments is None else _parse_arguments(params.arguments),
            decision_id=params.decision_id,
            seconds=params.seconds,
            times=params.times,
        )
        if resolution.accepted:
            await asyncio.sleep(0)  # the task that waits for this decision goes first
        if resolution.refusal is not None:
            await self._witness.record_refusal(by, params.request_id, params.option_id, resolution.refusal)
        return self._decision_result(params.request_id, resolution)

    async def history(self, by: Decider, params: messages.HistoryWanted) -> messages.History:
        """Return the finished requests, newest first."""
        found = await self._broker.history(by, params.limit)
        return messages.History(entries=[history_row(record) for record in found])

    async def grants(self, by: Decider, _params: messages.Nothing) -> messages.Grants:
        """Return the grants in force, oldest first."""
        found = await self._broker.grants(by)
        uses = [await self._broker.store.grant_uses(grant.id) if grant.used else () for grant in found]
        return messages.Grants(grants=list(map(grant_row, found, uses)))

    async def revoke(self, by: Decider, params: messages.Revoke) -> messages.Revoked:
        """End a grant."""
        if not by.may_decide:
            raise Malformed(-32001, f"{by.name} may look, but not decide")
        revoked = await self._broker.revoke(params.grant_id, by)
        if revoked:
            await self._witness.record_revocation(by, params.grant_id)
        return messages.Revoked(revoked=revoked)

    async def tail(self, by: Decider, params: messages.Tail) -> messages.Tailed:
        """Return the last lines of a session."""
        return messages.Tailed(lines=self._tails.last(by, params.session_id) if params.on else [])

    async def ping(self, _by: Decider, _params: messages.Nothing) -> messages.Pong:
        """Return nothing but the store's time, which every answer has."""
        return messages.Pong()

    async def _record(self, by: Decider, request_id: str) -> RequestRecord:
        record = self._waiting.get(request_id) or await self._broker.store.get(request_id)
        if record is None or not sees(by, record.request):
            raise Malformed(-32002, "there is no such request")
        return record

    def _decision_result(self, request_id: str, resolution: Resolution) -> messages.Decided:
        record, refusal = resolution.record, resolution.refusal
        over = record is not None and record.status != "pending"
        return messages.Decided(
            request_id=request_id,
            accepted=resolution.accepted,
            ending=ending(record) if record is not None and over else None,
            refusal=None if refusal is None else refusal_message(refusal),
        )


def _parse_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments that the approver wrote instead of those shown."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise Malformed(-32602, "arguments: a JSON object")
    return value
