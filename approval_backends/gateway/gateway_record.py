"""The gateway's own record, and the last lines of the sessions that clients follow.

A gateway records answers that did not count, and revoked grants; the asking session records the decisions that count.
Nothing waits for these records, so a failure is logged. The lines of a session come from its own record:

SessionCoordinator(approvals=web, audit=web.watched(log))
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.text.escape import clip, for_page
from approval_backends.gateway.wire.messages import TailLine
from approval_backends.stores.approval_store import LATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.ports import AuditSink
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


LINES: Final = 100
"""Lines kept of one session."""
SESSIONS: Final = 64
"""Sessions whose lines are kept; the one that was quiet for longest makes room."""
LONGEST: Final = 300
"""Bytes of the text of a line."""

SHOWN_FACTS: Final = ("hook", "hooks", "tool", "action", "status", "by", "reason", "error")
"""Facts that a line shows, in this order. Arguments and results are not among them."""


class Tails:
    """The last lines of every session that is followed."""

    def __init__(self) -> None:
        self.enabled = False
        self.on_line: Callable[[tuple[str, str], TailLine], None] | None = None
        self._lines: OrderedDict[tuple[str, str], deque[TailLine]] = OrderedDict()
        self._number = 0

    def last(self, by: Decider, session: str) -> list[TailLine]:
        """Return the last lines of a session, oldest first; none of a session that the approver may not see."""
        return [line for key, lines in self._lines.items() if may_see_lines(by, key, session) for line in lines]

    def add(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Add a line. Facts without a session belong to no tail."""
        key = (str(facts.get("tenant", "")), str(facts.get("session", "")))
        if not key[1]:
            return
        self._number += 1
        line = TailLine(number=self._number, at=_time(facts), kind=for_page(kind), text=_text(facts))
        self._lines.setdefault(key, deque(maxlen=LINES)).append(line)
        self._lines.move_to_end(key)
        if len(self._lines) > SESSIONS:
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
    return clip(" · ".join(for_page(word) for word in words), LONGEST)
