"""The tables of approvals, and records as columns and back.

Columns are for finding and comparing; requests and decisions stay whole, as JSON.

Times are whole microseconds, so that they compare alike everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from amplifier_hooks.clock import micros_of, moment_of
from amplifier_hooks.impacts import Impact
from amplifier_hooks.ports import ApprovalRequest, Decision, Grant, GrantKey, GrantUse, KeptResult, Stop
from amplifier_hooks.storage.database import CorruptStore
from approval_backends.lifecycle import Moment, RequestRecord
from approval_backends.stores.approval_store import RequestEvent

if TYPE_CHECKING:
    from amplifier_hooks.storage.database import Row


APPROVAL_TABLES: Final = (
    """CREATE TABLE {schema}.approval_request (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL, expires BIGINT NOT NULL,
        request TEXT NOT NULL, created BIGINT NOT NULL, age BIGINT NOT NULL, lifetime BIGINT NOT NULL,
        digest TEXT NOT NULL, status TEXT NOT NULL, version BIGINT NOT NULL,
        decision TEXT, decided BIGINT, decided_age BIGINT, reason TEXT NOT NULL, ended BIGINT, result TEXT
    )""",
    "CREATE INDEX approval_open ON {schema}.approval_request (tenant, session) WHERE ended IS NULL",
    "CREATE INDEX approval_call ON {schema}.approval_request (tenant, session, call) WHERE call <> ''",
    """CREATE TABLE {schema}.approval_event (
        request TEXT NOT NULL, number BIGINT NOT NULL, kind TEXT NOT NULL, at BIGINT NOT NULL, version BIGINT NOT NULL,
        by_whom TEXT NOT NULL, channel TEXT NOT NULL, note TEXT NOT NULL, recorded BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (request, number)
    )""",
    "CREATE INDEX approval_event_unrecorded ON {schema}.approval_event (at) WHERE recorded = 0",
    """CREATE TABLE {schema}.approval_grant (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL,
        agent TEXT NOT NULL, hook TEXT NOT NULL, version TEXT NOT NULL,
        tool TEXT NOT NULL, cwd TEXT NOT NULL, scope TEXT NOT NULL,
        allows BIGINT NOT NULL, ceiling TEXT NOT NULL, by_whom TEXT NOT NULL, channel TEXT NOT NULL,
        request TEXT NOT NULL, created BIGINT NOT NULL, expires BIGINT, ends BIGINT, impacts TEXT NOT NULL,
        times BIGINT, used BIGINT NOT NULL, revoked BIGINT
    )""",
    """CREATE TABLE {schema}.approval_use (
        grant_id TEXT NOT NULL, number BIGINT NOT NULL, at BIGINT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL,
        action TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (grant_id, number)
    )""",
    "CREATE INDEX approval_grant_session ON {schema}.approval_grant (tenant, session) WHERE revoked IS NULL",
    """CREATE TABLE {schema}.approval_clock (
        id BIGINT PRIMARY KEY, boot TEXT NOT NULL, uptime BIGINT NOT NULL, wall BIGINT NOT NULL,
        store_age BIGINT NOT NULL
    )""",
    "INSERT INTO {schema}.approval_clock VALUES (1, '', 0, 0, 0)",
    """CREATE TABLE {schema}.approval_stop (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, why TEXT NOT NULL, by_whom TEXT NOT NULL,
        at BIGINT NOT NULL, ended BIGINT, ended_by TEXT NOT NULL DEFAULT ''
    )""",
    "CREATE UNIQUE INDEX approval_stop_in_force ON {schema}.approval_stop (tenant, session) WHERE ended IS NULL",
)
"""`expires` of a request and `ends` of a grant are ages of the store: the time is over then."""


T = TypeVar("T")

QUESTION_COLUMNS: Final = "request, created, age, lifetime, digest, status, version"
"""Everything that a pending request has."""
COLUMNS: Final = f"{QUESTION_COLUMNS}, decision, decided, decided_age, reason, ended, result"
NO_END: Final[tuple[Any, ...]] = (None, None, None, "", None, None)
EVENT_COLUMNS: Final = "number, request, kind, at, version, by_whom, channel, note, recorded"
KEY_TEXTS: Final = ("agent", "hook", "version", "tool", "cwd", "scope")
GIVEN: Final = "allows, ceiling, by_whom, channel, request, created, expires, ends, impacts, times, used"
GRANT_COLUMNS: Final = ", ".join(("id", "tenant", "session", *KEY_TEXTS, GIVEN))
USE_COLUMNS: Final = "at, session, tool, action, digest"
STOP_COLUMNS: Final = "id, tenant, session, why, by_whom, at, ended, ended_by"
LONGEST_TOPIC: Final = 200

_request: Final = msgspec.json.Decoder(ApprovalRequest)
_decision: Final = msgspec.json.Decoder(Decision)
_impacts: Final = msgspec.json.Decoder(tuple[Impact, ...])
_result: Final = msgspec.json.Decoder(KeptResult)


# -- single values -----------------------------------------------------------------------------------------------------


def to_stored_text(text: str) -> str:
    r"""Return a text as every database can keep it: NUL and lone surrogates are spelt out.

    Only a text that was spelt out, or contains a backslash, begins with a backslash, so no two texts become one.
    """
    return text if text.isprintable() and "\\" not in text else f"\\{json.dumps(text)}"


def from_stored_text(text: str) -> str:
    """Return the original of a stored text."""
    return cast("str", json.loads(text[1:])) if text.startswith("\\") else text


def topic(request_id: str) -> str:
    """Return the topic of the wake-ups for this request; short enough for a notification."""
    kept = to_stored_text(request_id)
    return kept if len(kept) <= LONGEST_TOPIC else hashlib.sha256(kept.encode()).hexdigest()


def session_value(session: str | None) -> str:
    """Return the column of a grant's session. Every session is a word that no session's value can be."""
    return "*" if session is None else f"={to_stored_text(session)}"


def _json(value: Any) -> str:
    """Return the value as JSON, ASCII only, since a database may have an encoding that lacks other signs.

    The quick encoder refuses lone surrogates, huge numbers and subclasses of str; the slow one takes all of them.
    """
    with suppress(ValueError, OverflowError, TypeError):
        quick = _encoder.encode(value)
        if quick.isascii():
            return quick.decode()
    return json.dumps(value, separators=(",", ":"), default=_fields)


def _fields(value: object) -> object:
    """Return a value of JSON in place of one that is none. A mapping that is a view becomes what it shows."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept")


_encoder: Final = msgspec.json.Encoder(enc_hook=_fields)


def _decode(decoder: msgspec.json.Decoder[T], text: str) -> T:
    """Return the stored value. The quick decoder refuses lone surrogates and huge numbers; then the slow one reads."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        try:
            return msgspec.convert(json.loads(text), decoder.type)
        except (ValueError, msgspec.MsgspecError) as problem:
            raise CorruptStore(f"a row cannot be read: {problem}") from problem


# -- rows --------------------------------------------------------------------------------------------------------------


def record_values(record: RequestRecord) -> tuple[Any, ...]:
    """Return the values of `COLUMNS`."""
    lifetime = round(record.lifetime * 1e6)
    state = record.digest, record.status, record.version
    return request_value(record.request), *_moment_values(record.created), lifetime, *state, *end_values(record)


def request_value(request: ApprovalRequest) -> str:
    """Return a request as a column."""
    return _json(request)


def end_values(record: RequestRecord) -> tuple[Any, ...]:
    """Return the values of the last of `COLUMNS`, from `decision` on: the end of a request."""
    return (
        None if record.decision is None else decision_value(record.decision),
        *_moment_values(record.decided),
        to_stored_text(record.reason),
        None if record.ended is None else micros_of(record.ended),
        None if record.result is None else _json(record.result),
    )


def _moment_values(moment: Moment | None) -> tuple[int | None, int | None]:
    return (None, None) if moment is None else (micros_of(moment.wall), round(moment.age * 1e6))


def decision_value(decision: Decision) -> str:
    """Return a decision as a column; its time has a column of its own."""
    return _json(decision if decision.at is None else replace(decision, at=None))


def load_record(row: Row) -> RequestRecord:
    """Return a record from the values of `COLUMNS`, or of `QUESTION_COLUMNS` alone."""
    request, created, age, lifetime, digest, status, version, *end = row
    decision, decided, decided_age, reason, ended, result = end or NO_END
    return RequestRecord(
        request=_decode(_request, request),
        created=Moment(moment_of(created), age / 1e6),
        lifetime=lifetime / 1e6,
        digest=digest,
        status=status,
        version=version,
        decision=None if decision is None else replace(_decode(_decision, decision), at=moment_of(decided)),
        decided=None if decided is None else Moment(moment_of(decided), decided_age / 1e6),
        reason=from_stored_text(reason),
        ended=None if ended is None else moment_of(ended),
        result=None if result is None else _decode(_result, result),
    )


def load_event(row: Row) -> RequestEvent:
    """Return an event from the values of `EVENT_COLUMNS`."""
    number, request, kind, at, version, *texts, recorded = row
    by, channel, note = map(from_stored_text, texts)
    return RequestEvent(
        number, from_stored_text(request), kind, moment_of(at), version, by, channel, note, recorded=bool(recorded)
    )


def key_values(key: GrantKey) -> tuple[str, ...]:
    """Return a grant's key as columns."""
    texts = (to_stored_text(getattr(key, name)) for name in KEY_TEXTS)
    return to_stored_text(key.tenant), session_value(key.session), *texts


def grant_values(grant: Grant) -> tuple[Any, ...]:
    """Return the values of `GRANT_COLUMNS`."""
    by, channel, request = map(to_stored_text, (grant.by, grant.channel, grant.request))
    expires = None if grant.expires is None else micros_of(grant.expires)
    ends = None if grant.ends is None else round(grant.ends * 1e6)
    given = int(grant.allows), grant.ceiling, by, channel, request, micros_of(grant.created), expires, ends
    return to_stored_text(grant.id), *key_values(grant.key), *given, _json(grant.impacts), grant.times, grant.used


def load_grant(row: Row) -> Grant:
    """Return a grant from the values of `GRANT_COLUMNS`."""
    name, tenant, session, *rest = row
    texts, given = rest[: len(KEY_TEXTS)], rest[len(KEY_TEXTS) :]
    allows, ceiling, by, channel, request, created, expires, ends, impacts, times, used = given
    key = GrantKey(
        tenant=from_stored_text(tenant),
        session=None if session == "*" else from_stored_text(session[1:]),
        **dict(zip(KEY_TEXTS, map(from_stored_text, texts), strict=True)),
    )
    return Grant(
        id=from_stored_text(name),
        key=key,
        allows=bool(allows),
        ceiling=ceiling,
        by=from_stored_text(by),
        channel=from_stored_text(channel),
        request=from_stored_text(request),
        created=moment_of(created),
        expires=None if expires is None else moment_of(expires),
        ends=None if ends is None else ends / 1e6,
        impacts=_decode(_impacts, impacts),
        times=times,
        used=used,
    )


def use_values(use: GrantUse) -> tuple[Any, ...]:
    """Return the values of `USE_COLUMNS`."""
    return (
        micros_of(use.at),
        to_stored_text(use.session),
        to_stored_text(use.tool),
        to_stored_text(use.action),
        use.digest,
    )


def load_use(row: Row) -> GrantUse:
    """Return a use of a grant from the values of `USE_COLUMNS`."""
    at, session, tool, action, digest = row
    session, tool, action = map(from_stored_text, (session, tool, action))
    return GrantUse(at=moment_of(at), session=session, tool=tool, action=action, digest=digest)


def load_stop(row: Row) -> Stop:
    """Return a stop from the values of `STOP_COLUMNS`."""
    name, tenant, session, why, by, at, ended, ended_by = row
    return Stop(
        id=name,
        tenant=from_stored_text(tenant),
        session=from_stored_text(session),
        why=from_stored_text(why),
        by=from_stored_text(by),
        at=moment_of(at),
        ended=None if ended is None else moment_of(ended),
        ended_by=from_stored_text(ended_by),
    )
