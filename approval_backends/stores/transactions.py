"""The transactions of a store over a database. SQLite and PostgreSQL run the same ones; both judge with the life cycle.

Each transaction begins by reading the record and locking it: SQLite's transaction keeps every other writer out,
PostgreSQL locks the row. The transaction then stores the result of `judge` or `move` if state and version are still
those it read.
"""

# ruff: noqa: S608  # statements consist of constants of this package; foreign text is a value

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from amplifier_hooks.approvals import grant_keys, kept_keys
from amplifier_hooks.storage.database import Openable, Script, Statement, Wake
from approval_backends.errors import RequestMismatch, SessionTakenOver, TooManyRequests
from approval_backends.lifecycle import Refusal, RequestRecord, grants_of, is_over, judge, move, new_record
from approval_backends.stores.approval_rows import (
    COLUMNS,
    EVENT_COLUMNS,
    GRANT_COLUMNS,
    end_values,
    grant_values,
    key_values,
    load_event,
    load_grant,
    load_record,
    micros,
    record_values,
    session_value,
    to_stored_text,
    topic,
)
from approval_backends.stores.approval_store import (
    ANSWERS,
    LATE,
    LATE_KEPT,
    NEW,
    RETENTION,
    EventKind,
    OpenRequestLimits,
    RequestCursor,
    RequestEvent,
    SessionTakeover,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantKey
    from amplifier_hooks.storage.change_signal import Watch
    from amplifier_hooks.storage.database import Database
    from approval_backends.lifecycle import ApprovalAnswer, Change, Moment


T = TypeVar("T")
Steps = Script[T]

CHUNK: Final = 1_000
"""Requests that one transaction purges."""


class DatabaseStore(Openable):
    """A store over a database. Subclasses define how to read the time and how to lock a row."""

    durable = True
    HOLD = ""
    """SQL that locks a row which was read until the transaction ends."""

    def __init__(self, database: Database, limits: OpenRequestLimits | None = None) -> None:
        self.database = database
        self._limits = limits or OpenRequestLimits()

    def _now(self) -> Steps[Moment]:
        """Return the store's time."""
        raise NotImplementedError

    def _lock_tenant(self, tenant: str) -> Steps[None]:
        """Keep other requests of this tenant from being counted at the same time."""
        raise NotImplementedError

    async def open(self) -> Self:
        """Open the database and bring its tables up to date."""
        await self.database.open()
        return self

    async def close(self) -> None:
        """Close the database."""
        await self.database.close()

    async def now(self) -> Moment:
        """Return the store's time."""
        raise NotImplementedError

    # -- requests ------------------------------------------------------------------------------------------------------

    async def submit(self, request: ApprovalRequest, *, epoch: int = 0) -> RequestRecord:
        """Keep a request; one that is there already is returned as it stands."""
        return await self.database.run(self._submit(request, epoch))

    async def look(self, request_id: str) -> tuple[RequestRecord | None, Moment]:
        """Return the record, or None, and the store's time when it was read."""
        raise NotImplementedError

    async def get(self, request_id: str) -> RequestRecord | None:
        """Return the record, or None."""
        rows = await self.database.fetch(GET, to_stored_text(request_id))
        return load_record(rows[0]) if rows else None

    async def answer(
        self, answer: ApprovalAnswer, *, four_eyes: bool = False, keep: float | None = None
    ) -> RequestRecord | Refusal:
        """Decide, if the answer counts."""
        return await self.database.run(self._answer(answer, four_eyes=four_eyes, keep=keep))

    async def change(
        self, request_id: str, change: Change, *, reason: str = "", digest: str | None = None, epoch: int | None = None
    ) -> RequestRecord | Refusal:
        """Make one other change, if the table allows it."""
        return await self.database.run(self._change(request_id, change, reason, digest, epoch))

    async def expire_due(self, limit: int = 1_000) -> list[RequestRecord]:
        """Expire every request whose time is over."""
        return await self.database.run(self._expire_due(limit))

    async def pending(
        self,
        *,
        tenant: str | None = None,
        sessions: Iterable[str] | None = None,
        limit: int = 10_000,
        after: RequestCursor | None = None,
    ) -> list[RequestRecord]:
        """Return the pending requests, oldest first."""
        return await self._select(PENDING, tenant, sessions, limit, after)

    async def history(
        self,
        *,
        tenant: str | None = None,
        sessions: Iterable[str] | None = None,
        limit: int = 100,
        after: RequestCursor | None = None,
    ) -> list[RequestRecord]:
        """Return the requests that are not pending any more, newest first."""
        return await self._select(HISTORY, tenant, sessions, limit, after)

    async def take_over(self, tenant: str, session: str) -> SessionTakeover:
        """Become the owner of a session."""
        return await self.database.run(self._take_over(tenant, session))

    async def end_session(self, tenant: str, session: str, reason: str = "the session ended") -> list[RequestRecord]:
        """Withdraw the open requests, and end the session's grants."""
        return await self.database.run(self._end_session(tenant, session, reason))

    # -- grants --------------------------------------------------------------------------------------------------------

    async def grants_for(self, request: ApprovalRequest) -> list[Grant]:
        """Return the grants in force that answer any hook of this request."""
        keys = zip(grant_keys(request), kept_keys(request), strict=True)
        return await self.database.run(self._grants_for(keys))

    async def grants(self, *, tenant: str | None = None, sessions: Iterable[str] | None = None) -> list[Grant]:
        """Return the grants in force, oldest first."""
        found = await self.database.run(self._grants(tenant))
        wanted = None if sessions is None else frozenset(sessions)
        return [grant for grant in found if wanted is None or grant.key.session is None or grant.key.session in wanted]

    async def revoke(self, grant_id: str, *, tenant: str | None = None) -> bool:
        """End a grant."""
        return await self.database.run(self._revoke(grant_id, tenant))

    # -- events --------------------------------------------------------------------------------------------------------

    async def events(self, request_id: str) -> list[RequestEvent]:
        """Return the events of a request, in order."""
        return [load_event(row) for row in await self.database.fetch(EVENTS, to_stored_text(request_id))]

    async def list_unrecorded(
        self, limit: int = 1_000, *, tenant: str | None = None, session: str | None = None
    ) -> list[RequestEvent]:
        """Return the events that the audit may lack."""
        whose = (None if one is None else to_stored_text(one) for one in (tenant, session))
        return [load_event(row) for row in await self.database.fetch(UNRECORDED, limit, *whose)]

    async def mark_recorded(self, request_id: str, *, version: int = 0, number: int = 0) -> None:
        """Note that the audit has every change of a request up to this version, and every event up to this number."""
        await self.database.fetch(RECORDED, to_stored_text(request_id), version, number)

    async def purge(self, older_than: float = RETENTION, *, unrecorded: bool = False) -> int:
        """Remove the requests that ended so long ago."""
        gone = 0
        while count := await self.database.run(self._purge(older_than, unrecorded=unrecorded)):
            gone += count  # in pieces, so that no other process waits long for the file
        return gone

    def watch(self, request_id: str | None = None) -> AbstractContextManager[Watch]:
        """Return a watch that wakes when this request, or any, changes."""
        return self.database.watch(None if request_id is None else topic(request_id))

    # -- the transactions ----------------------------------------------------------------------------------------------

    def _submit(self, request: ApprovalRequest, epoch: int) -> Steps[RequestRecord]:
        tenant, session = to_stored_text(request.tenant), to_stored_text(request.session)
        yield from self._lock_tenant(tenant)
        known = yield from self._hold(request.id)
        if known is not None:
            own = known.request
            if (own.tenant, own.session, own.digest) != (request.tenant, request.session, request.digest):
                raise RequestMismatch(request.id)
            return known
        rows = yield Statement(EPOCH_OF, (tenant, session))
        if rows and rows[0][0] > epoch:
            raise SessionTakenOver(request.session)
        now = yield from self._now()
        ((of_tenant, of_session),) = yield Statement(COUNT, (tenant, session, micros(now.wall)))
        if (of_session or 0) >= self._limits.per_session:
            raise TooManyRequests("session", self._limits.per_session)
        if of_tenant >= self._limits.per_tenant:
            raise TooManyRequests("tenant", self._limits.per_tenant)
        record = new_record(request, now, epoch)
        values = record_values(record)
        expires = micros(record.expires)
        rows = yield Statement(INSERT, (to_stored_text(request.id), tenant, session, expires, *values))
        if not rows:  # another tenant's, at the same instant
            raise RequestMismatch(request.id)
        yield from self._note(record, "submitted", now)
        return record

    def _answer(self, answer: ApprovalAnswer, *, four_eyes: bool, keep: float | None) -> Steps[RequestRecord | Refusal]:
        record = yield from self._hold(answer.request)
        now = yield from self._now()
        after = judge(record, answer, now, four_eyes=four_eyes)
        if isinstance(after, Refusal):
            if after.record is not None:
                kind: EventKind = "late_decision" if after.code in LATE else "refused"
                note = (to_stored_text(answer.by.name), to_stored_text(answer.by.channel), after.code)
                yield Statement(LATE_EVENT, (*_event(after.record, kind, now), *note, LATE_KEPT))
        elif record is not None and after is not record:
            yield from self._set(record, after)
            yield from self._note(after, "deny" if after.status == "denied" else "approve", now)
            for grant in grants_of(after, keep):
                yield Statement(GRANT, grant_values(grant))
        return after

    def _change(
        self, request_id: str, change: Change, reason: str, digest: str | None, epoch: int | None
    ) -> Steps[RequestRecord | Refusal]:
        record = yield from self._hold(request_id)
        now = yield from self._now()
        after = move(record, change, now, reason=reason, digest=digest, epoch=epoch)
        if record is not None and isinstance(after, RequestRecord):
            yield from self._store_change(record, after, change, now)
        return after

    def _store_change(self, record: RequestRecord, after: RequestRecord, change: Change, now: Moment) -> Steps[None]:
        yield from self._set(record, after)
        if change == "claim":
            yield Statement(RECORDED, (to_stored_text(record.id), record.version, 0))
        yield from self._note(after, change, now)

    def _expire_due(self, limit: int) -> Steps[list[RequestRecord]]:
        rows = yield Statement(f"{OPEN} ORDER BY expires LIMIT {int(limit)}{self.HOLD}")
        now = yield from self._now()
        found: list[RequestRecord] = []
        for row in rows:
            record = load_record(row)
            after = move(record, "expire", now) if is_over(record, now) else None
            if isinstance(after, RequestRecord):
                yield from self._store_change(record, after, "expire", now)
                found.append(after)
        return found

    def _take_over(self, tenant: str, session: str) -> Steps[SessionTakeover]:
        ((epoch,),) = yield Statement(NEXT_EPOCH, (to_stored_text(tenant), to_stored_text(session)))
        yield Statement(OWN, (to_stored_text(tenant), to_stored_text(session), epoch))
        rows = yield Statement(
            f"{OF_SESSION} ORDER BY created{self.HOLD}", (to_stored_text(tenant), to_stored_text(session))
        )
        now = yield from self._now()
        found: list[RequestRecord] = []
        for row in rows:
            record = load_record(row)
            after = move(record, "lose", now, reason="its owner is gone")
            if isinstance(after, RequestRecord):
                yield from self._store_change(record, after, "lose", now)
                record = after
            found.append(record)
        return SessionTakeover(
            epoch=epoch,
            pending=with_status(found, "pending"),
            approved=with_status(found, "approved"),
            unknown=with_status(found, "unknown"),
        )

    def _end_session(self, tenant: str, session: str, reason: str) -> Steps[list[RequestRecord]]:
        rows = yield Statement(
            f"{OF_SESSION} ORDER BY created{self.HOLD}", (to_stored_text(tenant), to_stored_text(session))
        )
        now = yield from self._now()
        found: list[RequestRecord] = []
        for row in rows:
            record = load_record(row)
            after = move(record, "withdraw", now, reason=reason)
            if isinstance(after, RequestRecord):
                yield from self._store_change(record, after, "withdraw", now)
                found.append(after)
        yield Statement(END_GRANTS, (to_stored_text(tenant), session_value(session), micros(now.wall)))
        return found

    def _grants_for(self, keys: Iterable[tuple[GrantKey, GrantKey]]) -> Steps[list[Grant]]:
        now = yield from self._now()
        found: list[Grant] = []
        for key, kept in keys:
            rows = yield Statement(GRANTS_FOR, (*key_values(key), to_stored_text(kept.scope), micros(now.wall)))
            found += [load_grant(row) for row in rows]
        return found

    def _grants(self, tenant: str | None) -> Steps[list[Grant]]:
        now = yield from self._now()
        whose = None if tenant is None else to_stored_text(tenant)
        rows = yield Statement(GRANTS, (micros(now.wall), whose))
        return [load_grant(row) for row in rows]

    def _revoke(self, grant_id: str, tenant: str | None) -> Steps[bool]:
        now = yield from self._now()
        whose = None if tenant is None else to_stored_text(tenant)
        rows = yield Statement(REVOKE, (to_stored_text(grant_id), micros(now.wall), whose))
        for (request,) in rows:
            yield Wake(request)
        return bool(rows)

    def _purge(self, older_than: float, *, unrecorded: bool) -> Steps[int]:
        now = yield from self._now()
        until = micros(now.wall) - round(older_than * 1e6)
        rows = yield Statement(PURGE, (until, int(unrecorded), CHUNK))
        for (request,) in rows:
            yield Statement("DELETE FROM {schema}.approval_event WHERE request = $1", (request,))
        yield Statement(PURGE_GRANTS, (until,))
        return len(rows)

    # -- their steps ---------------------------------------------------------------------------------------------------

    def _hold(self, request_id: str) -> Steps[RequestRecord | None]:
        rows = yield Statement(GET + self.HOLD, (to_stored_text(request_id),))
        return load_record(rows[0]) if rows else None

    def _set(self, before: RequestRecord, after: RequestRecord) -> Steps[None]:
        """Compare and set. The row is locked, so this can only fail if a foreign program writes to our tables."""
        held = (to_stored_text(after.id), before.status, before.version)
        rows = yield Statement(SET, (*held, after.digest, after.status, after.version, *end_values(after)))
        if not rows:
            raise AssertionError(f"request {after.id!r} changed while it was held")

    def _note(self, record: RequestRecord, kind: EventKind, now: Moment) -> Steps[None]:
        by, channel = "", ""
        if kind in ("approve", "deny") and record.decision:
            by, channel = to_stored_text(record.decision.by), to_stored_text(record.decision.channel)
        yield Statement(EVENT, (*_event(record, kind, now), by, channel, to_stored_text(record.reason)))
        yield Wake(NEW) if kind == "submitted" else Wake(topic(record.id), news=record)

    async def _select(
        self,
        sql: str,
        tenant: str | None,
        sessions: Iterable[str] | None,
        limit: int,
        after: RequestCursor | None,
    ) -> list[RequestRecord]:
        """Return records by tenant and sessions, each of them a value and never a part of the statement."""
        values: list[Any] = [limit]
        order, later = ORDERS[sql]
        if after is not None:
            values += micros(after.created), to_stored_text(after.id)
            sql += f" AND (created {later} $2 OR (created = $2 AND id > $3))"
        if tenant is not None:
            values.append(to_stored_text(tenant))
            sql += f" AND tenant = ${len(values)}"
        if sessions is not None:
            places = []
            for session in dict.fromkeys(sessions):
                values.append(to_stored_text(session))
                places.append(f"${len(values)}")
            sql += f" AND session IN ({', '.join(places)})" if places else " AND 1 = 0"
        sql += f" ORDER BY {order}, id LIMIT $1"
        return [load_record(row) for row in await self.database.fetch(sql, *values)]


def _event(record: RequestRecord, kind: EventKind, now: Moment) -> tuple[Any, ...]:
    return to_stored_text(record.id), kind, micros(now.wall), record.version


# -- statements --------------------------------------------------------------------------------------------------------
# Constants only; foreign text is always a value.

REQUESTS: Final = f"SELECT {COLUMNS} FROM {{schema}}.approval_request"
PENDING: Final = f"{REQUESTS} WHERE ended IS NULL AND status = 'pending'"
HISTORY: Final = f"{REQUESTS} WHERE status <> 'pending'"
ORDERS: Final = {PENDING: ("created", ">"), HISTORY: ("created DESC", "<")}
"""The order of a list, and the comparison that finds later rows of it."""
GET: Final = f"{REQUESTS} WHERE id = $1"
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
ALL_COLUMNS: Final = f"id, tenant, session, expires, {COLUMNS}"
INSERT: Final = (
    f"INSERT INTO {{schema}}.approval_request ({ALL_COLUMNS}) "
    f"VALUES ({', '.join(f'${n}' for n in range(1, len(ALL_COLUMNS.split(',')) + 1))}) "
    "ON CONFLICT (id) DO NOTHING RETURNING id"
)
SET: Final = (
    "UPDATE {schema}.approval_request SET digest = $4, status = $5, version = $6, decision = $7, decided = $8, "
    "decided_boot = $9, decided_reading = $10, reason = $11, ended = $12 "
    "WHERE id = $1 AND status = $2 AND version = $3 RETURNING id"
)
COUNT: Final = (
    "SELECT count(*), sum(CASE WHEN session = $2 THEN 1 ELSE 0 END) FROM {schema}.approval_request "
    "WHERE ended IS NULL AND status = 'pending' AND tenant = $1 AND expires > $3"
)
EPOCH_OF: Final = "SELECT epoch FROM {schema}.approval_session WHERE tenant = $1 AND session = $2"
NEXT_EPOCH: Final = (
    "INSERT INTO {schema}.approval_session AS s (tenant, session, epoch) VALUES ($1, $2, 1) "
    "ON CONFLICT (tenant, session) DO UPDATE SET epoch = s.epoch + 1 RETURNING epoch"
)
OWN: Final = "UPDATE {schema}.approval_request SET epoch = $3 WHERE ended IS NULL AND tenant = $1 AND session = $2"
NEXT: Final = "(SELECT coalesce(max(number), 0) + 1 FROM {schema}.approval_event WHERE request = $1)"
EVENT: Final = (
    "INSERT INTO {schema}.approval_event (request, number, kind, at, version, by_whom, channel, note) "
    f"VALUES ($1, {NEXT}, $2, $3, $4, $5, $6, $7)"
)
ANSWERS_LISTED: Final = f"({', '.join(map(repr, sorted(ANSWERS)))})"
LATE_EVENT: Final = (
    "INSERT INTO {schema}.approval_event (request, number, kind, at, version, by_whom, channel, note) "
    f"SELECT $1, {NEXT}, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM {{schema}}.approval_event "
    f"WHERE request = $1 AND kind IN {ANSWERS_LISTED}) < $8"
)
RECORDED: Final = (
    "UPDATE {schema}.approval_event SET recorded = 1 WHERE request = $1 AND recorded = 0 "
    f"AND (number <= $3 OR (version <= $2 AND kind NOT IN {ANSWERS_LISTED}))"
)
GRANT: Final = (
    f"INSERT INTO {{schema}}.approval_grant ({GRANT_COLUMNS}) "
    f"VALUES ({', '.join(f'${n}' for n in range(1, len(GRANT_COLUMNS.split(',')) + 1))}) ON CONFLICT (id) DO NOTHING"
)
GRANTS_FOR: Final = (
    f"SELECT {GRANT_COLUMNS} FROM {{schema}}.approval_grant WHERE tenant = $1 "
    "AND agent = $3 AND hook = $4 AND version = $5 AND tool = $6 AND cwd = $7 "
    "AND ((session = $2 AND scope = $8) OR (session = '*' AND scope = $9)) "
    "AND revoked IS NULL AND (expires IS NULL OR expires > $10)"
)
GRANTS: Final = (
    f"SELECT {GRANT_COLUMNS} FROM {{schema}}.approval_grant WHERE revoked IS NULL "
    "AND (expires IS NULL OR expires > $1) AND (CAST($2 AS TEXT) IS NULL OR tenant = $2) ORDER BY created, id"
)
REVOKE: Final = (
    "UPDATE {schema}.approval_grant SET revoked = $2 WHERE id = $1 AND revoked IS NULL "
    "AND (expires IS NULL OR expires > $2) AND (CAST($3 AS TEXT) IS NULL OR tenant = $3) RETURNING request"
)
END_GRANTS: Final = (
    "UPDATE {schema}.approval_grant SET revoked = $3 WHERE tenant = $1 AND session = $2 AND revoked IS NULL"
)
PURGE: Final = (
    "DELETE FROM {schema}.approval_request WHERE id IN (SELECT r.id FROM {schema}.approval_request r "
    "WHERE r.ended IS NOT NULL AND r.ended <= $1 AND ($2 = 1 OR NOT EXISTS "
    "(SELECT 1 FROM {schema}.approval_event e WHERE e.request = r.id AND e.recorded = 0)) LIMIT $3) RETURNING id"
)
PURGE_GRANTS: Final = "DELETE FROM {schema}.approval_grant WHERE coalesce(revoked, expires) <= $1"
