"""Approvals in a dictionary: for tests, and for programs that ask inline and keep nothing."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from datetime import timedelta
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from attrs import evolve
from msgspec.structs import replace

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.approvals import check_digest, grant_keys, kept_keys
from amplifier_hooks.ports import Stop, Unfinished
from amplifier_hooks.storage.change_signal import ChangeSignals, Watch
from amplifier_hooks.storage.database import StoreClosed
from approval_backends.errors import RequestMismatch, TooManyRequests
from approval_backends.lifecycle import (
    STANDING,
    Refusal,
    RequestRecord,
    grants_of,
    is_in_force,
    is_over,
    judge,
    move_request,
    new_record,
    refuse_stopped,
    refuse_uncovered,
    use_of,
)
from approval_backends.stores.approval_store import (
    ANSWERS,
    EVERY_REQUEST,
    LATE,
    LATE_KEPT,
    LOST,
    NEW,
    RETENTION,
    STOPS,
    STOPS_KEPT,
    USES_KEPT,
    ClockReading,
    EventKind,
    OpenRequestLimits,
    RequestEvent,
    RequestFilter,
    StoreClock,
    decider_of,
    system_reading,
    unfinished,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantUse, KeptResult
    from approval_backends.lifecycle import ApprovalAnswer, Moment, Move
    from approval_backends.stores.approval_store import AnswerCheck, Sessions


class MemoryStore:
    """The shortest store there is. Between two awaits no other code runs, so every method is a transaction."""

    durable = False

    def __init__(
        self, limits: OpenRequestLimits | None = None, clock: Callable[[], ClockReading] = system_reading
    ) -> None:
        self._limits = limits or OpenRequestLimits()
        self._clock = clock
        self._kept = StoreClock()
        self._signals = ChangeSignals()
        self._open = True
        self._records: dict[str, RequestRecord] = {}
        self._pending: dict[str, RequestRecord] = {}
        self._waiting: Counter[tuple[str, str | None]] = Counter()
        self._calls: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        """Ids of the requests of each call, oldest first."""
        self._events: dict[str, list[RequestEvent]] = {}
        self._grants: dict[str, Grant] = {}
        self._uses: dict[str, deque[GrantUse]] = {}
        self._stops: dict[str, Stop] = {}

    async def open(self) -> Self:
        """Open the store again, with its content; a new store is open already."""
        self._open = True
        return self

    async def close(self) -> None:
        """Refuse every call from here on, and wake every waiter."""
        self._open = False
        self._signals.notify_all()

    async def now(self) -> Moment:
        """Return the clock's time."""
        return self._now()

    async def submit(self, request: ApprovalRequest) -> RequestRecord:
        """Keep a copy of the request; one that is there already is returned as it stands.

        Raises `RequestMismatch` for an id that stands for another act, and `TooManyRequests` at the limit.
        """
        check_digest(request)
        known = self._find(request.id)
        if known is not None:
            if _identity(known.request) != _identity(request):
                raise RequestMismatch(request.id)
            return known
        now = self._now()
        self._within_limits(request, now)
        own: dict[str, object] = dict(thaw(freeze(dict(request.arguments))))  # type: ignore[call-overload]
        record = new_record(replace(request, arguments=own), now)
        self._put(record)
        if request.call:
            self._calls[_call_of(request)].append(request.id)
        self._note(record, "submitted", now)
        self._signals.notify(NEW)
        return record

    async def get(self, request_id: str) -> RequestRecord | None:
        """Return the record, or None."""
        return self._find(request_id)

    async def look(self, request_id: str) -> tuple[RequestRecord | None, Moment]:
        """Return the record, or None, and the time."""
        return self._find(request_id), self._now()

    async def find_call(self, tenant: str, session: str, call: str) -> RequestRecord | None:
        """Return the request that stands for a call, or None."""
        self._find("")
        there = [self._records[one] for one in reversed(self._calls.get((tenant, session, call), ()))]
        standing = (record for states in STANDING for record in there if record.status in states)
        return next(standing, None)

    async def answer(self, answer: ApprovalAnswer, *, check: AnswerCheck = None) -> RequestRecord | Refusal:
        """Decide, if the answer counts."""
        if check is not None:
            await check()
        record, now = self._find(answer.request), self._now()
        after = judge(record, answer, now)
        if isinstance(after, Refusal):
            self._note_refusal(after, answer, now)
        elif after is not record:
            self._put(after)
            self._note(after, "deny" if after.status == "denied" else "approve", now)
            self._grant(after)
            self._signals.notify(after.id)
        return after

    async def move(
        self,
        request_id: str,
        move: Move,
        *,
        reason: str = "",
        digest: str | None = None,
        result: KeptResult | None = None,
    ) -> RequestRecord | Refusal:
        """Make one other move, if the table allows it."""
        now = self._now()
        record = self._find(request_id)
        after = move_request(record, move, now, reason=reason, digest=digest, result=result)
        if isinstance(after, RequestRecord):
            if move == "claim" and (refusal := refuse_stopped(after, self._stops.values())) is not None:
                return refusal
            self._store_move(after, move, now)
        return after

    async def expire_due(self, limit: int = 1_000) -> list[RequestRecord]:
        """Expire every request whose time is over."""
        now = self._now()
        there = with_status(self._visible_records(), "pending", "approved")
        over = [record for record in there if is_over(record, now)]
        return [after for record in over[:limit] if (after := self._try_move(record, "expire", now))]

    async def pending(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        """Return the pending requests, oldest first."""
        self._find("")
        found, after = (r for r in self._pending.values() if among.passes(r.request)), among.after
        if after is not None:
            found = (r for r in found if (r.created.wall, r.id) > (after.created, after.id))
        return sorted(found, key=lambda r: (r.created.wall, r.id))[: among.limit]

    async def history(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        """Return the requests that are not pending any more, newest first."""
        after = among.after
        found = sorted((r for r in self._visible_records(among) if r.status != "pending"), key=lambda r: r.id)
        if after is not None:
            found = [r for r in found if (after.created, r.id) > (r.created.wall, after.id)]
        return sorted(found, key=lambda r: r.created.wall, reverse=True)[: among.limit]

    async def begin_session(self, tenant: str, session: str) -> Unfinished:
        """Return the open requests of a session; one that was claimed becomes unknown."""
        now = self._now()
        there = [r for r in self._visible_records(_session_filter(tenant, session)) if r.ended is None]
        return unfinished([self._try_move(record, "lose", now, LOST) or record for record in there])

    async def end_session(
        self, tenant: str, session: str, reason: str = "the session ended", *, final: bool = True
    ) -> list[RequestRecord]:
        """Withdraw the open requests, and end the session's grants."""
        now = self._now()
        found = with_status(self._visible_records(_session_filter(tenant, session)), "pending", "approved")
        if found and not final:
            return []
        for grant in self._grants.values():
            if (grant.key.tenant, grant.key.session) == (tenant, session) and grant.revoked is None:
                self._grants[grant.id] = replace(grant, revoked=now.wall)
        return [after for record in found if (after := self._try_move(record, "withdraw", now, reason))]

    async def grants_for(self, request: ApprovalRequest) -> list[Grant]:
        """Return the grants in force that answer any hook of this request."""
        keys = {*grant_keys(request), *kept_keys(request)}
        return [grant for grant in await self.grants(tenant=request.tenant) if grant.key in keys]

    async def use_grants(self, request: ApprovalRequest, grants: Sequence[str]) -> Refusal | None:
        """Count a call that these grants cover, unless a stop covers it, or one of them is over or used up."""
        self._find("")
        now = self._now()
        held = [self._grants[one] for one in grants if one in self._grants and is_in_force(self._grants[one], now)]
        refusal = refuse_uncovered(request, grants, held, self._stops.values())
        for grant in [] if refusal else held:
            self._grants[grant.id] = replace(grant, used=grant.used + 1)
            self._uses.setdefault(grant.id, deque(maxlen=USES_KEPT)).append(use_of(request, now))
        return refusal

    async def grant_uses(self, grant_id: str) -> list[GrantUse]:
        """Return the last calls that a grant has covered, oldest first."""
        self._find("")
        return list(self._uses.get(grant_id, ()))

    async def grants(self, *, tenant: str | None = None, sessions: Sessions = None) -> list[Grant]:
        """Return the grants in force, oldest first."""
        self._find("")
        now, wanted = self._now(), None if sessions is None else frozenset(sessions)
        return [
            grant
            for grant in self._grants.values()
            if is_in_force(grant, now)
            and tenant in (None, grant.key.tenant)
            and (wanted is None or grant.key.session is None or grant.key.session in wanted)
        ]

    async def revoke(self, grant_id: str, *, tenant: str | None = None) -> bool:
        """End a grant."""
        there = [grant for grant in await self.grants(tenant=tenant) if grant.id == grant_id]
        for grant in there:
            self._grants[grant.id] = replace(grant, revoked=self._now().wall)
            self._signals.notify(grant.request)
        return bool(there)

    async def stop(self, why: str, by: str, *, tenant: str = "", session: str = "") -> Stop:
        """Begin a stop; one in force for this tenant and session is returned as it stands."""
        self._find("")
        known = self._stop_for(tenant, session)
        if known is None:
            at = self._now().wall
            known = Stop(id=uuid4().hex, tenant=tenant, session=session, why=why, by=by, at=at)
            self._stops[known.id] = known
            self._signals.notify(STOPS)
        return known

    async def resume(self, by: str, *, tenant: str = "", session: str = "") -> Stop | None:
        """End the stop in force for this tenant and session."""
        self._find("")
        known = self._stop_for(tenant, session)
        if known is not None:
            known = self._stops[known.id] = replace(known, ended=self._now().wall, ended_by=by)
            self._signals.notify(STOPS)
        return known

    async def stops(self) -> list[Stop]:
        """Return the stops in force, and those that ended lately."""
        self._find("")
        since = self._now().wall - timedelta(seconds=STOPS_KEPT)
        return [stop for stop in self._stops.values() if stop.ended is None or stop.ended > since]

    def _stop_for(self, tenant: str, session: str) -> Stop | None:
        there = (stop for stop in self._stops.values() if stop.ended is None)
        return next((stop for stop in there if (stop.tenant, stop.session) == (tenant, session)), None)

    async def events(self, request_id: str) -> list[RequestEvent]:
        """Return the events of a request, in order."""
        self._find(request_id)
        return list(self._events.get(request_id, ()))

    async def list_unrecorded(
        self, limit: int = 1_000, *, tenant: str | None = None, session: str | None = None
    ) -> list[RequestEvent]:
        """Return the events that the audit may lack."""
        seen = self._visible_records(RequestFilter(tenant, None if session is None else frozenset({session})))
        found = [event for record in seen for event in self._events[record.id] if not event.recorded]
        return sorted(found, key=lambda event: (event.at, event.request, event.number))[:limit]

    async def mark_recorded(self, request_id: str, *, version: int = 0, number: int = 0) -> None:
        """Note that the audit has every change of a request up to this version, and every event up to this number."""
        if self._find(request_id) is not None:
            self._mark(request_id, version, number)

    async def purge(self, older_than: float = RETENTION, *, unrecorded: bool = False) -> int:
        """Remove the requests that ended so long ago."""
        now = self._now().wall

        def is_old(ended: datetime | None) -> bool:
            return ended is not None and (now - ended).total_seconds() >= older_than

        old = [record.id for record in self._visible_records() if is_old(record.ended)]
        gone = [one for one in old if unrecorded or all(event.recorded for event in self._events[one])]
        for request_id in gone:
            call = _call_of(self._records.pop(request_id).request)
            del self._events[request_id]
            if left := [one for one in self._calls.pop(call, ()) if one != request_id]:
                self._calls[call] = left
        self._grants = {name: one for name, one in self._grants.items() if not is_old(one.revoked or one.expires)}
        self._uses = {name: uses for name, uses in self._uses.items() if name in self._grants}
        self._stops = {name: one for name, one in self._stops.items() if not is_old(one.ended)}
        return len(gone)

    def watch(self, request_id: str | None = None) -> AbstractContextManager[Watch]:
        """Return a watch that wakes when this request, or any, changes."""
        return self._signals.watch(request_id)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now(self) -> Moment:
        reading = self._clock()
        self._kept = self._kept.at(reading)
        return self._kept.moment(reading)

    def _find(self, request_id: str) -> RequestRecord | None:
        if not self._open:
            raise StoreClosed("the store is closed")
        return self._records.get(request_id)

    def _visible_records(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        self._find("")
        return [record for record in self._records.values() if among.passes(record.request)]

    def _within_limits(self, request: ApprovalRequest, now: Moment) -> None:
        """Count the pending requests; requests whose time is over expire first, so that they count no more."""
        tenant, session = request.tenant, request.session
        rows = (
            ("session", (tenant, session), self._limits.per_session),
            ("tenant", (tenant, None), self._limits.per_tenant),
        )
        for scope, key, limit in rows:
            if self._waiting[key] >= limit:
                for record in with_status(self._visible_records(RequestFilter(tenant)), "pending"):
                    self._try_move(record, "expire", now)
                if self._waiting[key] >= limit:
                    raise TooManyRequests(scope, limit)

    def _put(self, record: RequestRecord) -> None:
        before = self._records.get(record.id)
        change = (record.status == "pending") - (before is not None and before.status == "pending")
        for key in ((record.request.tenant, record.request.session), (record.request.tenant, None)):
            self._waiting[key] += change
            if not self._waiting[key]:
                del self._waiting[key]
        self._records[record.id] = record
        if record.status == "pending":
            self._pending[record.id] = record
        else:
            self._pending.pop(record.id, None)

    def _try_move(self, record: RequestRecord, move: Move, now: Moment, reason: str = "") -> RequestRecord | None:
        after = move_request(record, move, now, reason=reason)
        if isinstance(after, Refusal):
            return None
        self._store_move(after, move, now)
        return after

    def _store_move(self, after: RequestRecord, move: Move, now: Moment) -> None:
        self._put(after)
        if move == "claim":
            self._mark(after.id, after.version - 1)
            self._grant(after)
        self._note(after, move, now)
        self._signals.notify(after.id)

    def _grant(self, record: RequestRecord) -> None:
        for grant in grants_of(record):
            self._grants[grant.id] = grant

    def _mark(self, request_id: str, version: int, number: int = 0) -> None:
        """Mark these events as recorded."""
        for index, event in enumerate(self._events[request_id]):
            if event.number <= number or (event.version <= version and event.kind not in ANSWERS):
                self._events[request_id][index] = evolve(event, recorded=True)

    def _note(self, record: RequestRecord, kind: EventKind, now: Moment) -> None:
        self._add(record, kind, now, (*decider_of(record, kind), record.reason))

    def _note_refusal(self, refusal: Refusal, answer: ApprovalAnswer, now: Moment) -> None:
        record = refusal.record
        if record is None or sum(event.kind in ANSWERS for event in self._events[record.id]) >= LATE_KEPT:
            return
        kind: EventKind = "late_decision" if refusal.code in LATE else "refused"
        self._add(record, kind, now, (answer.by.name, answer.by.channel, refusal.code))

    def _add(self, record: RequestRecord, kind: EventKind, now: Moment, texts: tuple[str, str, str]) -> None:
        events = self._events.setdefault(record.id, [])
        events.append(RequestEvent(len(events) + 1, record.id, kind, now.wall, record.version, *texts))


def _session_filter(tenant: str, session: str) -> RequestFilter:
    return RequestFilter(tenant, frozenset({session}))


def _call_of(request: ApprovalRequest) -> tuple[str, str, str]:
    return request.tenant, request.session, request.call


def _identity(request: ApprovalRequest) -> tuple[str, str, str]:
    return request.tenant, request.session, request.digest
