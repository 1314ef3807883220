"""The transactions of a store over a database. SQLite and PostgreSQL run the same ones; both judge with the life cycle.

Each transaction begins by reading the record and locking it: SQLite's transaction keeps every other writer out,
PostgreSQL locks the row. The transaction then stores the result of `judge` or `move` if state and version are still
those it read.
"""

# ruff: noqa: S608  # statements consist of constants of this package; foreign text is a value

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import uuid4

from attrs import astuple

from amplifier_hooks.approvals import check_digest, grant_keys, kept_keys
from amplifier_hooks.clock import micros_of
from amplifier_hooks.storage.database import Check, Openable, Script, Statement, StoreUnavailable, Wake, transaction
from approval_backends.errors import RequestMismatch, TooManyRequests
from approval_backends.lifecycle import (
    STANDING,
    Refusal,
    RequestRecord,
    grants_of,
    is_in_force,
    judge,
    move_request,
    new_record,
    refuse_stopped,
    refuse_uncovered,
    use_of,
)
from approval_backends.stores.approval_rows import (
    COLUMNS,
    EVENT_COLUMNS,
    GRANT_COLUMNS,
    QUESTION_COLUMNS,
    STOP_COLUMNS,
    USE_COLUMNS,
    end_values,
    grant_values,
    key_values,
    load_event,
    load_grant,
    load_record,
    load_stop,
    load_use,
    record_values,
    session_value,
    to_stored_text,
    topic,
    use_values,
)
from approval_backends.stores.approval_store import (
    ANSWERS,
    EVERY_REQUEST,
    LATE,
    LATE_KEPT,
    LOST,
    NEW,
    RETENTION,
    SECOND,
    STOPS,
    STOPS_KEPT,
    USES_KEPT,
    EventKind,
    OpenRequestLimits,
    RequestEvent,
    RequestFilter,
    StoreClock,
    decider_of,
    unfinished,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantUse, KeptResult, Stop, Unfinished
    from amplifier_hooks.storage.change_signal import Watch
    from amplifier_hooks.storage.database import Database, Row
    from approval_backends.lifecycle import ApprovalAnswer, Moment, Move
    from approval_backends.stores.approval_store import AnswerCheck, ClockReading, Sessions


T = TypeVar("T")
Steps = Script[T]

CHUNK: Final = 1_000
"""Requests that one transaction purges."""


class DatabaseStore(Openable):
    """A store over a database. The locks do nothing here, because a transaction of SQLite has the file to itself."""

    durable = True
    HOLD = SKIP = ""
    """SQL that locks a row which was read until the transaction ends; `SKIP` passes over a locked one."""
    WALL = "0"
    """SQL of the database's clock, in microseconds."""
    LOCK_TENANT = "SELECT $1"
    """Statement that keeps other requests of a tenant from being counted at the same time."""
    LOCK_STOPS = "SELECT 1"
    """Statement that waits for claims under way, and keeps others from reading the stops."""

    def __init__(self, database: Database, limits: OpenRequestLimits | None = None) -> None:
        self.database = database
        self._limits = limits or OpenRequestLimits()

    def _reading(self, wall: int) -> ClockReading:
        """Return the clocks' reading. `wall` is the value of `WALL`."""
        raise NotImplementedError

    def _now(self) -> Steps[Moment]:
        """Return the store's time, and keep it if that is due."""
        ((wall, *kept),) = yield Statement(f"SELECT {self.WALL}, {CLOCK_COLUMNS} FROM {{schema}}.approval_clock")
        now, keep = self._moment(wall, kept)
        if keep is not None:
            yield keep
        return now

    def _moment(self, wall: int, kept: Iterable[Any]) -> tuple[Moment, Statement | None]:
        """Return the store's time, and the statement that keeps it, if that is due.

        A clock that another transaction is keeping is left to it.
        """
        reading, before = self._reading(wall), StoreClock(*kept)
        after = before.at(reading)
        keep = Statement(f"{KEEP_CLOCK}{self.SKIP})", (*astuple(before), *astuple(after)))
        return after.moment(reading), keep if before.is_due(after) else None

    @property
    def _look(self) -> str:
        return f"SELECT {self.WALL}, {CLOCK_COLUMNS}, {COLUMNS} FROM {{schema}}.approval_clock LEFT JOIN "

    def _load_look(self, row: Row) -> tuple[RequestRecord | None, Moment, Statement | None]:
        """Return the record of a row, if there is one, and the time of that look, with the statement that keeps it."""
        wall, boot, uptime, seen, age, *columns = row
        now, keep = self._moment(wall, (boot, uptime, seen, age))
        return (None if columns[0] is None else load_record(columns)), now, keep

    async def open(self) -> Self:
        """Open the database and bring its tables up to date."""
        await self.database.open()
        return self

    async def close(self) -> None:
        """Close the database."""
        await self.database.close()

    async def now(self) -> Moment:
        """Return the store's time."""
        return (await self.look(""))[1]

    # -- requests ------------------------------------------------------------------------------------------------------

    @transaction
    def submit(self, request: ApprovalRequest) -> Steps[RequestRecord]:
        """Keep a request; one that is there already is returned as it stands.

        Raises `RequestMismatch` for an id that stands for another act, and `TooManyRequests` at the limit.
        """
        check_digest(request)
        tenant, session = to_stored_text(request.tenant), to_stored_text(request.session)
        yield Statement(self.LOCK_TENANT, (tenant,))
        known, now = yield from self._hold(request.id)
        if known is not None:
            own = known.request
            if (own.tenant, own.session, own.digest) != (request.tenant, request.session, request.digest):
                raise RequestMismatch(request.id)
            return known
        ((of_tenant, of_session),) = yield Statement(COUNT, (tenant, session, _age(now)))
        if (of_session or 0) >= self._limits.per_session:
            raise TooManyRequests("session", self._limits.per_session)
        if of_tenant >= self._limits.per_tenant:
            raise TooManyRequests("tenant", self._limits.per_tenant)
        record = new_record(request, now)
        values = record_values(record)
        expires = round((now.age + record.lifetime) * SECOND)
        call = to_stored_text(request.call)
        rows = yield Statement(INSERT, (to_stored_text(request.id), tenant, session, call, expires, *values))
        if not rows:  # another tenant's, at the same instant
            raise RequestMismatch(request.id)
        yield from self._note(record, "submitted", now)
        return record

    async def look(self, request_id: str) -> tuple[RequestRecord | None, Moment]:
        """Return the record, or None, and the store's time when it was read."""
        (row,) = await self.database.fetch(f"{self._look}{LOOK}", to_stored_text(request_id))
        record, now, keep = self._load_look(row)
        if keep is not None:
            with suppress(StoreUnavailable):  # a store that can be read is enough for a look
                await self.database.fetch(keep.sql, *keep.values)
        return record, now

    async def get(self, request_id: str) -> RequestRecord | None:
        """Return the record, or None."""
        rows = await self.database.fetch(GET, to_stored_text(request_id))
        return load_record(rows[0]) if rows else None

    async def find_call(self, tenant: str, session: str, call: str) -> RequestRecord | None:
        """Return the request that stands for a call, or None."""
        rows = await self.database.fetch(OF_CALL, *map(to_stored_text, (tenant, session, call)))
        return load_record(rows[0]) if rows else None

    @transaction
    def answer(self, answer: ApprovalAnswer, *, check: AnswerCheck = None) -> Steps[RequestRecord | Refusal]:
        """Decide, if the answer counts."""
        record, now = yield from self._hold(answer.request)
        if check is not None:
            yield Check(check)
            now = yield from self._now()
        after = judge(record, answer, now)
        if isinstance(after, Refusal):
            if after.record is not None:
                kind: EventKind = "late_decision" if after.code in LATE else "refused"
                note = (to_stored_text(answer.by.name), to_stored_text(answer.by.channel), after.code)
                yield Statement(LATE_EVENT, (*_event(after.record, kind, now), *note, LATE_KEPT))
        elif record is not None and after is not record:
            yield from self._set(record, after)
            yield from self._grant(after)
            yield from self._note(after, "deny" if after.status == "denied" else "approve", now)
        return after

    @transaction
    def move(
        self,
        request_id: str,
        move: Move,
        *,
        reason: str = "",
        digest: str | None = None,
        result: KeptResult | None = None,
    ) -> Steps[RequestRecord | Refusal]:
        """Make one other move, if the table allows it."""
        record, now = yield from self._hold(request_id)
        after = move_request(record, move, now, reason=reason, digest=digest, result=result)
        if move == "claim" and record is not None and isinstance(after, RequestRecord):
            if (refusal := (yield from self._stopped(record))) is not None:
                return refusal
            now = yield from self._now()  # a stop under way holds claims up
            after = move_request(record, move, now, reason=reason, digest=digest, result=result)
        if record is not None and isinstance(after, RequestRecord):
            yield from self._store_move(record, after, move, now)
        return after

    @transaction
    def expire_due(self, limit: int = 1_000) -> Steps[list[RequestRecord]]:
        """Expire every request whose time is over."""
        rows = yield Statement(f"{OPEN} ORDER BY expires LIMIT {int(limit)}{self.HOLD}")
        return (yield from self._move_all([load_record(row) for row in rows], "expire"))

    async def pending(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        """Return the pending requests, oldest first."""
        return await self._select(PENDING, among)

    async def history(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        """Return the requests that are not pending any more, newest first."""
        return await self._select(HISTORY, among)

    @transaction
    def begin_session(self, tenant: str, session: str) -> Steps[Unfinished]:
        """Return the open requests of a session; one that was claimed becomes unknown."""
        found = yield from self._of_session(tenant, session)
        lost = yield from self._move_all(found, "lose", LOST)
        moved = {record.id: record for record in lost}
        return unfinished([moved.get(record.id, record) for record in found])

    @transaction
    def end_session(
        self, tenant: str, session: str, reason: str = "the session ended", *, final: bool = True
    ) -> Steps[list[RequestRecord]]:
        """Withdraw the open requests, and end the session's grants."""
        found = yield from self._of_session(tenant, session)
        if not final and any(record.status in ("pending", "approved") for record in found):
            return []
        now = yield from self._now()
        yield Statement(END_GRANTS, (to_stored_text(tenant), session_value(session), micros_of(now.wall)))
        return (yield from self._move_all(found, "withdraw", reason))

    # -- grants --------------------------------------------------------------------------------------------------------

    async def grants_for(self, request: ApprovalRequest) -> list[Grant]:
        """Return the grants in force that answer any hook of this request."""
        keys = zip(grant_keys(request), kept_keys(request), strict=True)
        now = await self.now()
        found: list[Grant] = []
        for key, kept in keys:
            wide = to_stored_text(kept.cwd), to_stored_text(kept.scope)
            rows = await self.database.fetch(GRANTS_FOR, *key_values(key), *wide, micros_of(now.wall), _age(now))
            found += [load_grant(row) for row in rows]
        return found

    @transaction
    def use_grants(self, request: ApprovalRequest, grants: Sequence[str]) -> Steps[Refusal | None]:
        """Count a call that these grants cover, unless a stop covers it, or one of them is over or used up."""
        held: list[Grant] = []
        for grant_id in sorted(set(grants)):  # in one order, so that two transactions never wait for each other
            rows = yield Statement(HELD_GRANT + self.HOLD, (to_stored_text(grant_id),))
            held += [load_grant(row) for row in rows]
        of = to_stored_text(request.tenant), to_stored_text(request.session)
        stops = yield Statement(STOPS_OVER + self.HOLD, of)
        now = yield from self._now()  # a stop under way holds this up
        held = [grant for grant in held if is_in_force(grant, now)]
        refusal = refuse_uncovered(request, grants, held, [load_stop(row) for row in stops])
        for grant in () if refusal else held:
            name, number = to_stored_text(grant.id), grant.used + 1
            yield Statement(COUNT_USE, (name, number))
            yield Statement(USE, (name, number, *use_values(use_of(request, now))))
            yield Statement(DROP_USES, (name, number - USES_KEPT))
        return refusal

    async def grant_uses(self, grant_id: str) -> list[GrantUse]:
        """Return the last calls that a grant has covered, oldest first."""
        return [load_use(row) for row in await self.database.fetch(USES, to_stored_text(grant_id))]

    async def grants(self, *, tenant: str | None = None, sessions: Sessions = None) -> list[Grant]:
        """Return the grants in force, oldest first."""
        now = await self.now()
        owner = None if tenant is None else to_stored_text(tenant)
        rows = await self.database.fetch(GRANTS, micros_of(now.wall), _age(now), owner)
        wanted = None if sessions is None else frozenset(sessions)
        found = [load_grant(row) for row in rows]
        return [grant for grant in found if wanted is None or grant.key.session is None or grant.key.session in wanted]

    @transaction
    def revoke(self, grant_id: str, *, tenant: str | None = None) -> Steps[bool]:
        """End a grant."""
        now = yield from self._now()
        owner = None if tenant is None else to_stored_text(tenant)
        rows = yield Statement(REVOKE, (to_stored_text(grant_id), micros_of(now.wall), owner, _age(now)))
        for (request,) in rows:
            yield Wake(request)
        return bool(rows)

    # -- stops ---------------------------------------------------------------------------------------------------------

    @transaction
    def stop(self, why: str, by: str, *, tenant: str = "", session: str = "") -> Steps[Stop]:
        """Begin a stop; one in force for this tenant and session is returned as it stands."""
        yield Statement(self.LOCK_STOPS)
        now = yield from self._now()
        of = to_stored_text(tenant), to_stored_text(session)
        rows = yield Statement(STOP_FOR, of)
        if not rows:
            words = to_stored_text(why), to_stored_text(by)
            rows = yield Statement(STOP, (uuid4().hex, *of, *words, micros_of(now.wall)))
            yield Wake(STOPS)
        return load_stop(rows[0])

    @transaction
    def resume(self, by: str, *, tenant: str = "", session: str = "") -> Steps[Stop | None]:
        """End the stop in force for this tenant and session."""
        now = yield from self._now()
        of = to_stored_text(tenant), to_stored_text(session)
        rows = yield Statement(RESUME, (*of, micros_of(now.wall), to_stored_text(by)))
        if rows:
            yield Wake(STOPS)
        return load_stop(rows[0]) if rows else None

    async def stops(self) -> list[Stop]:
        """Return the stops in force, and those that ended lately."""
        since = micros_of((await self.now()).wall) - round(STOPS_KEPT * 1e6)
        return [load_stop(row) for row in await self.database.fetch(LATE_STOPS, since)]

    # -- events --------------------------------------------------------------------------------------------------------

    async def events(self, request_id: str) -> list[RequestEvent]:
        """Return the events of a request, in order."""
        return [load_event(row) for row in await self.database.fetch(EVENTS, to_stored_text(request_id))]

    async def list_unrecorded(
        self, limit: int = 1_000, *, tenant: str | None = None, session: str | None = None
    ) -> list[RequestEvent]:
        """Return the events that the audit may lack."""
        owner = (None if one is None else to_stored_text(one) for one in (tenant, session))
        return [load_event(row) for row in await self.database.fetch(UNRECORDED, limit, *owner)]

    async def mark_recorded(self, request_id: str, *, version: int = 0, number: int = 0) -> None:
        """Note that the audit has every change of a request up to this version, and every event up to this number."""
        await self.database.fetch(RECORDED, to_stored_text(request_id), version, number)

    async def purge(self, older_than: float = RETENTION, *, unrecorded: bool = False) -> int:
        """Remove the requests that ended so long ago."""
        gone = 0
        while count := await self._purge_chunk(older_than, unrecorded=unrecorded):
            gone += count  # in pieces, so that no other process waits long for the file
        return gone

    @transaction
    def _purge_chunk(self, older_than: float, *, unrecorded: bool) -> Steps[int]:
        now = yield from self._now()
        until = micros_of(now.wall) - round(older_than * 1e6)
        rows = yield Statement(PURGE, (until, int(unrecorded), CHUNK))
        for (request,) in rows:
            yield Statement("DELETE FROM {schema}.approval_event WHERE request = $1", (request,))
        yield Statement(PURGE_USES, (until,))
        yield Statement(PURGE_GRANTS, (until,))
        yield Statement(PURGE_STOPS, (until,))
        return len(rows)

    def watch(self, request_id: str | None = None) -> AbstractContextManager[Watch]:
        """Return a watch that wakes when this request, or any, changes."""
        return self.database.watch(None if request_id is None else topic(request_id))

    # -- steps of transactions -----------------------------------------------------------------------------------------

    def _of_session(self, tenant: str, session: str) -> Steps[list[RequestRecord]]:
        of = to_stored_text(tenant), to_stored_text(session)
        rows = yield Statement(f"{OF_SESSION} ORDER BY created{self.HOLD}", of)
        return [load_record(row) for row in rows]

    def _move_all(self, records: list[RequestRecord], move: Move, reason: str = "") -> Steps[list[RequestRecord]]:
        """Make a move for all requests that the table allows it for, and return these."""
        now = yield from self._now()
        found: list[RequestRecord] = []
        for record in records:
            after = move_request(record, move, now, reason=reason)
            if isinstance(after, RequestRecord):
                yield from self._store_move(record, after, move, now)
                found.append(after)
        return found

    def _store_move(self, record: RequestRecord, after: RequestRecord, move: Move, now: Moment) -> Steps[None]:
        yield from self._set(record, after)
        if move == "claim":
            yield Statement(RECORDED, (to_stored_text(record.id), record.version, 0))
            yield from self._grant(after)
        yield from self._note(after, move, now)

    def _stopped(self, record: RequestRecord) -> Steps[Refusal | None]:
        """Return the refusal of a claim that a stop covers. No stop can begin until the transaction ends."""
        of = to_stored_text(record.request.tenant), to_stored_text(record.request.session)
        rows = yield Statement(STOPS_OVER + self.HOLD, of)
        return refuse_stopped(record, [load_stop(row) for row in rows])

    def _hold(self, request_id: str) -> Steps[tuple[RequestRecord | None, Moment]]:
        """Lock a request, and return it with the store's time since then."""
        held = f"WITH held AS ({GET}{self.HOLD}) {self._look}held ON 1 = 1"
        (row,) = yield Statement(held, (to_stored_text(request_id),))
        record, now, keep = self._load_look(row)
        if keep is not None:
            yield keep
        return record, now

    def _set(self, before: RequestRecord, after: RequestRecord) -> Steps[None]:
        """Compare and set. The row is locked, so this can only fail if a foreign program writes to our tables."""
        held = (to_stored_text(after.id), before.status, before.version)
        rows = yield Statement(SET, (*held, after.digest, after.status, after.version, *end_values(after)))
        if not rows:
            raise AssertionError(f"request {after.id!r} changed while it was held")

    def _grant(self, record: RequestRecord) -> Steps[None]:
        for grant in grants_of(record):
            yield Statement(GRANT, grant_values(grant))

    def _note(self, record: RequestRecord, kind: EventKind, now: Moment) -> Steps[None]:
        texts = map(to_stored_text, (*decider_of(record, kind), record.reason))
        yield Statement(EVENT, (*_event(record, kind, now), *texts))
        yield Wake(NEW) if kind == "submitted" else Wake(topic(record.id), news=record)

    async def _select(self, sql: str, among: RequestFilter) -> list[RequestRecord]:
        """Return records by tenant and sessions, each of them a value and never a part of the statement."""
        values: list[Any] = [among.limit]
        order, later = ORDERS[sql]
        if among.after is not None:
            values += micros_of(among.after.created), to_stored_text(among.after.id)
            sql += f" AND (created {later} $2 OR (created = $2 AND id > $3))"
        if among.tenant is not None:
            values.append(to_stored_text(among.tenant))
            sql += f" AND tenant = ${len(values)}"
        if among.sessions is not None:
            names = [f"${number}" for number, _ in enumerate(among.sessions, len(values) + 1)]
            values += map(to_stored_text, among.sessions)
            sql += f" AND session IN ({', '.join(names)})" if names else " AND 1 = 0"
        sql += f" ORDER BY {order}, id LIMIT $1"
        return [load_record(row) for row in await self.database.fetch(sql, *values)]


def _age(now: Moment) -> int:
    return round(now.age * SECOND)


def _event(record: RequestRecord, kind: EventKind, now: Moment) -> tuple[Any, ...]:
    return to_stored_text(record.id), kind, micros_of(now.wall), record.version


# -- statements --------------------------------------------------------------------------------------------------------
# Constants only; foreign text is always a value.

REQUESTS: Final = f"SELECT {COLUMNS} FROM {{schema}}.approval_request"
PENDING: Final = (
    f"SELECT {QUESTION_COLUMNS} FROM {{schema}}.approval_request WHERE ended IS NULL AND status = 'pending'"
)
HISTORY: Final = f"{REQUESTS} WHERE status <> 'pending'"
ORDERS: Final = {PENDING: ("created", ">"), HISTORY: ("created DESC", "<")}
"""The order of a list, and the comparison that finds later rows of it."""
GET: Final = f"{REQUESTS} WHERE id = $1"
CLOCK_COLUMNS: Final = "boot, uptime, wall, store_age"
LOOK: Final = "{schema}.approval_request r ON r.id = $1"
KEEP_CLOCK: Final = (
    "UPDATE {schema}.approval_clock SET boot = $5, uptime = $6, wall = $7, store_age = $8 WHERE id = (SELECT id FROM "
    "{schema}.approval_clock WHERE boot = $1 AND uptime = $2 AND wall = $3 AND store_age = $4"
)
OPEN: Final = f"{REQUESTS} WHERE ended IS NULL AND status IN ('pending', 'approved')"
OF_SESSION: Final = f"{REQUESTS} WHERE ended IS NULL AND tenant = $1 AND session = $2"
EVENTS: Final = f"SELECT {EVENT_COLUMNS} FROM {{schema}}.approval_event WHERE request = $1 ORDER BY number"
UNRECORDED: Final = (
    f"SELECT {EVENT_COLUMNS} FROM {{schema}}.approval_event e WHERE recorded = 0 "
    "AND ((CAST($2 AS TEXT) IS NULL AND CAST($3 AS TEXT) IS NULL) OR EXISTS "
    "(SELECT 1 FROM {schema}.approval_request r WHERE r.id = e.request "
    "AND (CAST($2 AS TEXT) IS NULL OR r.tenant = $2) AND (CAST($3 AS TEXT) IS NULL OR r.session = $3))) "
    "ORDER BY at, e.request, number LIMIT $1"
)
STRENGTH: Final = " ".join(
    f"WHEN status IN ({', '.join(map(repr, sorted(states)))}) THEN {place}" for place, states in enumerate(STANDING)
)
OF_CALL: Final = (
    f"{REQUESTS} WHERE tenant = $1 AND session = $2 AND call = $3 AND call <> '' AND status <> 'superseded' "
    f"ORDER BY CASE {STRENGTH} END, created DESC LIMIT 1"
)
ALL_COLUMNS: Final = f"id, tenant, session, call, expires, {COLUMNS}"
INSERT: Final = (
    f"INSERT INTO {{schema}}.approval_request ({ALL_COLUMNS}) "
    f"VALUES ({', '.join(f'${n}' for n in range(1, len(ALL_COLUMNS.split(',')) + 1))}) "
    "ON CONFLICT (id) DO NOTHING RETURNING id"
)
SET: Final = (
    "UPDATE {schema}.approval_request SET digest = $4, status = $5, version = $6, decision = $7, decided = $8, "
    "decided_age = $9, reason = $10, ended = $11, result = $12 "
    "WHERE id = $1 AND status = $2 AND version = $3 RETURNING id"
)
COUNT: Final = (
    "SELECT count(*), sum(CASE WHEN session = $2 THEN 1 ELSE 0 END) FROM {schema}.approval_request "
    "WHERE ended IS NULL AND status = 'pending' AND tenant = $1 AND expires > $3"
)
NEXT: Final = "(SELECT coalesce(max(number), 0) + 1 FROM {schema}.approval_event WHERE request = $1)"
EVENT: Final = (
    "INSERT INTO {schema}.approval_event (request, number, kind, at, version, by_whom, channel, note) "
    f"SELECT $1, {NEXT}, $2, $3, $4, $5, $6, $7"
)
ANSWER_LIST: Final = f"({', '.join(map(repr, sorted(ANSWERS)))})"
LATE_EVENT: Final = (
    f"{EVENT} WHERE (SELECT count(*) FROM {{schema}}.approval_event WHERE request = $1 AND kind IN {ANSWER_LIST}) < $8"
)
RECORDED: Final = (
    "UPDATE {schema}.approval_event SET recorded = 1 WHERE request = $1 AND recorded = 0 "
    f"AND (number <= $3 OR (version <= $2 AND kind NOT IN {ANSWER_LIST}))"
)
GRANT: Final = (
    f"INSERT INTO {{schema}}.approval_grant ({GRANT_COLUMNS}) "
    f"VALUES ({', '.join(f'${n}' for n in range(1, len(GRANT_COLUMNS.split(',')) + 1))}) ON CONFLICT (id) DO NOTHING"
)
GRANTS_FOR: Final = (
    f"SELECT {GRANT_COLUMNS} FROM {{schema}}.approval_grant WHERE tenant = $1 "
    "AND agent = $3 AND hook = $4 AND version = $5 AND tool = $6 "
    "AND ((session = $2 AND cwd = $7 AND scope = $8) OR (session = '*' AND cwd = $9 AND scope = $10)) "
    "AND revoked IS NULL AND (expires IS NULL OR expires > $11) AND (ends IS NULL OR ends > $12) "
    "AND (times IS NULL OR used < times) ORDER BY created, id"
)
HELD_GRANT: Final = f"SELECT {GRANT_COLUMNS} FROM {{schema}}.approval_grant WHERE id = $1 AND revoked IS NULL"
COUNT_USE: Final = "UPDATE {schema}.approval_grant SET used = $2 WHERE id = $1"
USE: Final = (
    f"INSERT INTO {{schema}}.approval_use (grant_id, number, {USE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)"
)
USES: Final = f"SELECT {USE_COLUMNS} FROM {{schema}}.approval_use WHERE grant_id = $1 ORDER BY number"
DROP_USES: Final = "DELETE FROM {schema}.approval_use WHERE grant_id = $1 AND number <= $2"
GRANTS: Final = (
    f"SELECT {GRANT_COLUMNS} FROM {{schema}}.approval_grant WHERE revoked IS NULL "
    "AND (expires IS NULL OR expires > $1) AND (ends IS NULL OR ends > $2) AND (times IS NULL OR used < times) "
    "AND (CAST($3 AS TEXT) IS NULL OR tenant = $3) ORDER BY created, id"
)
REVOKE: Final = (
    "UPDATE {schema}.approval_grant SET revoked = $2 WHERE id = $1 AND revoked IS NULL "
    "AND (expires IS NULL OR expires > $2) AND (ends IS NULL OR ends > $4) "
    "AND (CAST($3 AS TEXT) IS NULL OR tenant = $3) RETURNING request"
)
END_GRANTS: Final = (
    "UPDATE {schema}.approval_grant SET revoked = $3 WHERE tenant = $1 AND session = $2 AND revoked IS NULL"
)
PURGE: Final = (
    "DELETE FROM {schema}.approval_request WHERE id IN (SELECT r.id FROM {schema}.approval_request r "
    "WHERE r.ended IS NOT NULL AND r.ended <= $1 AND ($2 = 1 OR NOT EXISTS "
    "(SELECT 1 FROM {schema}.approval_event e WHERE e.request = r.id AND e.recorded = 0)) LIMIT $3) RETURNING id"
)
STOPPED: Final = f"SELECT {STOP_COLUMNS} FROM {{schema}}.approval_stop"
STOP_FOR: Final = f"{STOPPED} WHERE ended IS NULL AND tenant = $1 AND session = $2"
STOPS_OVER: Final = f"{STOPPED} WHERE ended IS NULL AND tenant IN ('', $1) AND session IN ('', $2)"
LATE_STOPS: Final = f"{STOPPED} WHERE ended IS NULL OR ended > $1 ORDER BY at, id"
STOP: Final = (
    "INSERT INTO {schema}.approval_stop (id, tenant, session, why, by_whom, at) VALUES ($1, $2, $3, $4, $5, $6) "
    f"RETURNING {STOP_COLUMNS}"
)
RESUME: Final = (
    "UPDATE {schema}.approval_stop SET ended = $3, ended_by = $4 "
    f"WHERE ended IS NULL AND tenant = $1 AND session = $2 RETURNING {STOP_COLUMNS}"
)
PURGE_STOPS: Final = "DELETE FROM {schema}.approval_stop WHERE ended <= $1"
PURGE_USES: Final = (
    "DELETE FROM {schema}.approval_use WHERE grant_id IN "
    "(SELECT id FROM {schema}.approval_grant WHERE coalesce(revoked, expires) <= $1)"
)
PURGE_GRANTS: Final = "DELETE FROM {schema}.approval_grant WHERE coalesce(revoked, expires) <= $1"
