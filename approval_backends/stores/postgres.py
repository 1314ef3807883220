"""Approvals in PostgreSQL, for many machines. Its clock is the one that counts."""

# ruff: noqa: S608  # statements consist of constants of this package; foreign text is a value

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from amplifier_hooks.approvals import check_digest
from amplifier_hooks.clock import EPOCH, moment_of
from amplifier_hooks.storage.database import Migrations
from amplifier_hooks.storage.postgres import PostgresDatabase
from approval_backends.lifecycle import Moment, RequestRecord, decision_of, new_record, outcomes
from approval_backends.stores.approval_rows import (
    APPROVAL_TABLES,
    COLUMNS,
    decision_value,
    load_record,
    request_value,
    to_stored_text,
    topic,
)
from approval_backends.stores.approval_store import NEW, SECOND, ClockReading
from approval_backends.stores.transactions import DatabaseStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ApprovalRequest
    from approval_backends.lifecycle import ApprovalAnswer, Refusal, Status
    from approval_backends.stores.approval_store import AnswerCheck, OpenRequestLimits


POSTGRES_TABLES = Migrations(
    component="approvals",
    steps=(
        (
            *APPROVAL_TABLES,
            "ALTER TABLE {schema}.approval_request ADD COLUMN outcomes JSONB NOT NULL DEFAULT '{}'",
            """CREATE FUNCTION {schema}.approval_now() RETURNS BIGINT LANGUAGE SQL VOLATILE AS
                'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT'""",
            # In PL/pgSQL, which plans a statement once for each connection; SQL plans it in each call.
            """CREATE FUNCTION {schema}.approval_age(p_wall BIGINT) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $body$
            BEGIN
                RETURN (SELECT CASE WHEN p_wall >= wall - 1000000 THEN store_age + greatest(p_wall - wall, 0) END
                    FROM {schema}.approval_clock);
            END $body$""",
            """CREATE FUNCTION {schema}.approval_submit(
                p_id TEXT, p_tenant TEXT, p_session TEXT, p_call TEXT, p_lifetime BIGINT, p_request TEXT, p_digest TEXT,
                p_outcomes TEXT, p_per_session INTEGER, p_per_tenant INTEGER
            ) RETURNS BIGINT[] LANGUAGE plpgsql AS $body$
            DECLARE
                v_now BIGINT;
                v_age BIGINT;
                v_tenant BIGINT;
                v_session BIGINT;
            BEGIN
                PERFORM pg_advisory_xact_lock(hashtextextended(p_tenant, 0));
                v_now := {schema}.approval_now();
                v_age := {schema}.approval_age(v_now);
                SELECT count(*), count(*) FILTER (WHERE r.session = p_session) INTO v_tenant, v_session
                    FROM {schema}.approval_request r
                    WHERE r.ended IS NULL AND r.status = 'pending' AND r.tenant = p_tenant AND r.expires > v_age;
                IF v_age IS NULL OR v_tenant >= p_per_tenant OR v_session >= p_per_session THEN
                    RETURN NULL;
                END IF;
                INSERT INTO {schema}.approval_request (id, tenant, session, call, expires, request, created, age,
                        lifetime, digest, status, version, reason, outcomes)
                    VALUES (p_id, p_tenant, p_session, p_call, v_age + p_lifetime, p_request, v_now, v_age, p_lifetime,
                        p_digest, 'pending', 1, '', p_outcomes::JSONB)
                    ON CONFLICT (id) DO NOTHING;
                IF NOT FOUND THEN
                    RETURN NULL;
                END IF;
                INSERT INTO {schema}.approval_event (request, number, kind, at, version, by_whom, channel, note)
                    VALUES (p_id, 1, 'submitted', v_now, 1, '', '', '');
                RETURN ARRAY[v_now, v_age];
            END $body$""",
            """CREATE FUNCTION {schema}.approval_decide(
                p_id TEXT, p_digest TEXT, p_option TEXT, p_decision TEXT, p_tenant TEXT, p_sessions TEXT[],
                p_by TEXT, p_by_channel TEXT
            ) RETURNS SETOF {schema}.approval_request LANGUAGE plpgsql AS $body$
            DECLARE
                v_now BIGINT := {schema}.approval_now();
                v_age BIGINT := {schema}.approval_age(v_now);
                v_row {schema}.approval_request;
            BEGIN
                UPDATE {schema}.approval_request r SET status = r.outcomes ->> p_option, decision = p_decision,
                        decided = v_now, decided_age = v_age, version = r.version + 1,
                        ended = CASE r.outcomes ->> p_option WHEN 'denied' THEN v_now END
                    WHERE r.id = p_id AND r.status = 'pending' AND v_age IS NOT NULL
                        AND r.expires > {schema}.approval_age({schema}.approval_now())
                        AND r.digest = p_digest AND r.outcomes ? p_option
                        AND (p_tenant IS NULL OR r.tenant = p_tenant)
                        AND (p_sessions IS NULL OR r.session = ANY (p_sessions))
                    RETURNING r.* INTO v_row;
                IF NOT FOUND THEN
                    RETURN;
                END IF;
                INSERT INTO {schema}.approval_event (request, number, kind, at, version, by_whom, channel, note)
                    SELECT p_id, coalesce(max(e.number), 0) + 1,
                        CASE v_row.status WHEN 'denied' THEN 'deny' ELSE 'approve' END,
                        v_now, v_row.version, p_by, p_by_channel, ''
                    FROM {schema}.approval_event e WHERE e.request = p_id;
                RETURN NEXT v_row;
            END $body$""",
        ),
    ),
)


class PostgresStore(DatabaseStore):
    """Approvals in a schema of their own, in a PostgreSQL database that any number of machines share.

    Submitting and deciding take one round trip each, by two functions in the schema that do the work of the scripts in
    the plain case; in any other case they change nothing, and the script runs. The request's row keeps the status that
    each option leads to, so deciding needs no reading first: a decision with one of these options, for this digest, in
    time, by an approver with the right to decide, sets that status; `judge` decides about any other.

    Args:
        options: Options of the database, such as `schema` and `connections`.
    """

    HOLD = " FOR UPDATE"
    SKIP = " FOR UPDATE SKIP LOCKED"
    WALL = "{schema}.approval_now()"
    LOCK_TENANT = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
    LOCK_STOPS = "LOCK TABLE {schema}.approval_stop IN EXCLUSIVE MODE"

    def __init__(self, dsn: str, limits: OpenRequestLimits | None = None, **options: Any) -> None:
        self._postgres = PostgresDatabase(dsn, POSTGRES_TABLES, **options)
        super().__init__(self._postgres, limits)

    async def submit(self, request: ApprovalRequest) -> RequestRecord:
        """Keep a request; one that is there already is returned as it stands."""
        check_digest(request)
        draft = new_record(request, NEVER)
        ((made,),) = await self.database.fetch(
            SUBMIT,
            to_stored_text(request.id),
            to_stored_text(request.tenant),
            to_stored_text(request.session),
            to_stored_text(request.call),
            round(draft.lifetime * 1e6),
            request_value(request),
            request.digest,
            _outcomes_value(outcomes(request)),
            self._limits.per_session,
            self._limits.per_tenant,
        )
        if made is None:
            return await super().submit(request)
        self._postgres.tell(NEW, late=True)
        created, age = made
        return replace(draft, created=Moment(moment_of(created), age / SECOND))

    async def answer(self, answer: ApprovalAnswer, *, check: AnswerCheck = None) -> RequestRecord | Refusal:
        """Decide, if the answer counts."""
        by = answer.by
        special = check is not None or not by.may_decide or answer.arguments is not None
        if special or not _is_ordinary(answer.digest) or not _is_ordinary(answer.option):
            return await super().answer(answer, check=check)
        rows = await self.database.fetch(
            DECIDE,
            to_stored_text(answer.request),
            answer.digest,
            answer.option,
            decision_value(decision_of(answer)),
            None if by.tenant is None else to_stored_text(by.tenant),
            None if by.sessions is None else [to_stored_text(session) for session in by.sessions],
            to_stored_text(by.name),
            to_stored_text(by.channel),
        )
        if not rows:
            return await super().answer(answer)
        record = load_record(rows[0])
        self._postgres.tell(topic(answer.request), news=record)
        return record

    def _reading(self, wall: int) -> ClockReading:
        return ClockReading(moment_of(wall))


def _is_ordinary(text: str) -> bool:
    """Return True if the database keeps this text unchanged, also inside a document."""
    return text.isascii() and to_stored_text(text) == text


def _outcomes_value(found: Mapping[str, Status]) -> str:
    return json.dumps({option: status for option, status in found.items() if _is_ordinary(option)})


NEVER: Final = Moment(EPOCH)
"""Placeholder for a time that the database sets."""

SUBMIT: Final = "SELECT {schema}.approval_submit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
DECIDE: Final = f"SELECT {COLUMNS} FROM {{schema}}.approval_decide($1, $2, $3, $4, $5, $6, $7, $8)"
