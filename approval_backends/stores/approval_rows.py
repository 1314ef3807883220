"""Records as columns and back. Columns are for finding and comparing; requests and decisions are kept whole, as JSON.

Times are whole microseconds, so that they compare alike everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from attrs import evolve
from attrs import fields as fields_of

from amplifier_hooks.ports import ApprovalRequest, Decision, GrantKey
from amplifier_hooks.storage.database import CorruptStore
from approval_backends.lifecycle import Grant, Moment, Record
from approval_backends.stores.approval_store import Event

if TYPE_CHECKING:
    from amplifier_hooks.storage.database import Row


T = TypeVar("T")

COLUMNS: Final = (
    "request, created, boot, reading, lifetime, digest, status, epoch, version, "
    "decision, decided, decided_boot, decided_reading, reason, ended"
)
EVENT_COLUMNS: Final = "number, request, kind, at, version, by_whom, channel, note, recorded"
GRANT_COLUMNS: Final = (
    "id, tenant, session, agent, hook, version, tool, cwd, scope, allows, by_whom, channel, request, created, expires"
)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_TOPIC: Final = 200

_request: Final = msgspec.json.Decoder(ApprovalRequest)
_decision: Final = msgspec.json.Decoder(Decision)


# -- single values -----------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    r"""Text as every database can keep it: NUL and halves of characters are spelt out.

    What is spelt out begins with a backslash, and what has a backslash is spelt out, so no two texts become one.
    """
    return text if text.isprintable() and "\\" not in text else f"\\{json.dumps(text)}"


def whole(text: str) -> str:
    """The text again."""
    return cast("str", json.loads(text[1:])) if text.startswith("\\") else text


def topic(request_id: str) -> str:
    """What is called out when this request changes; short enough for a notification."""
    kept = plain(request_id)
    return kept if len(kept) <= LONGEST_TOPIC else hashlib.sha256(kept.encode()).hexdigest()


def session_value(session: str | None) -> str:
    """A grant's session; every session is a word that no session's value can be."""
    return "*" if session is None else f"={plain(session)}"


def micros(at: datetime) -> int:
    """A time as a number."""
    return (at - EPOCH) // timedelta(microseconds=1)


def _at(value: int) -> datetime:
    return EPOCH + timedelta(0, 0, value)


def _json(value: Any) -> str:
    """The fields, ASCII only. Mappings that are views become what they show."""
    return json.dumps(value, separators=(",", ":"), default=_fields)


def _fields(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, ApprovalRequest | Decision):
        return {field.name: getattr(value, field.name) for field in fields_of(type(value))}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept")


def _decoded(decoder: msgspec.json.Decoder[T], text: str) -> T:
    """What was kept. The quick reader refuses halves of characters and huge numbers; then the patient one reads."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        try:
            return msgspec.convert(json.loads(text), decoder.type)
        except (ValueError, msgspec.MsgspecError) as problem:
            raise CorruptStore(f"a row cannot be read: {problem}") from problem


# -- rows --------------------------------------------------------------------------------------------------------------


def record_values(record: Record) -> tuple[Any, ...]:
    """The values of `COLUMNS`."""
    return (
        request_value(record.request),
        micros(record.created.wall),
        record.created.boot,
        round(record.created.reading * 1e6),
        round(record.lifetime * 1e6),
        record.digest,
        record.status,
        record.epoch,
        record.version,
        *end_values(record),
    )


def request_value(request: ApprovalRequest) -> str:
    """A request as a column."""
    return _json(request)


def end_values(record: Record) -> tuple[Any, ...]:
    """The values of the last of `COLUMNS`, from `decision` on: what became of a request."""
    decided = record.decided
    return (
        None if record.decision is None else decision_value(record.decision),
        None if decided is None else micros(decided.wall),
        None if decided is None else decided.boot,
        None if decided is None else round(decided.reading * 1e6),
        plain(record.reason),
        None if record.ended is None else micros(record.ended),
    )


def decision_value(decision: Decision) -> str:
    """A decision as a column; when it was made is one of its own."""
    return _json(decision if decision.at is None else evolve(decision, at=None))


def load_record(row: Row) -> Record:
    """A record from the values of `COLUMNS`."""
    (
        request,
        created,
        boot,
        reading,
        lifetime,
        digest,
        status,
        epoch,
        version,
        decision,
        decided,
        decided_boot,
        decided_reading,
        reason,
        ended,
    ) = row
    return Record(
        request=_decoded(_request, request),
        created=Moment(_at(created), boot, reading / 1e6),
        lifetime=lifetime / 1e6,
        digest=digest,
        status=status,
        epoch=epoch,
        version=version,
        decision=None if decision is None else evolve(_decoded(_decision, decision), at=_at(decided)),
        decided=None if decided is None else Moment(_at(decided), decided_boot, decided_reading / 1e6),
        reason=whole(reason),
        ended=None if ended is None else _at(ended),
    )


def load_event(row: Row) -> Event:
    """An event from the values of `EVENT_COLUMNS`."""
    number, request, kind, at, version, by, channel, note, recorded = row
    return Event(
        number=number,
        request=whole(request),
        kind=kind,
        at=_at(at),
        version=version,
        by=whole(by),
        channel=whole(channel),
        note=whole(note),
        recorded=bool(recorded),
    )


def key_values(key: GrantKey) -> tuple[str, ...]:
    """A grant's key as columns."""
    return (
        plain(key.tenant),
        session_value(key.session),
        *(plain(text) for text in (key.agent, key.hook, key.version, key.tool, key.cwd, key.scope)),
    )


def grant_values(grant: Grant) -> tuple[Any, ...]:
    """The values of `GRANT_COLUMNS`."""
    return (
        plain(grant.id),
        *key_values(grant.key),
        int(grant.allows),
        plain(grant.by),
        plain(grant.channel),
        plain(grant.request),
        micros(grant.created),
        None if grant.expires is None else micros(grant.expires),
    )


def grant_from(row: Row) -> Grant:
    """A grant from the values of `GRANT_COLUMNS`."""
    name, tenant, session, agent, hook, version, tool, cwd, scope, allows, by, channel, request, created, expires = row
    key = GrantKey(
        tenant=whole(tenant),
        session=None if session == "*" else whole(session[1:]),
        agent=whole(agent),
        hook=whole(hook),
        version=whole(version),
        tool=whole(tool),
        cwd=whole(cwd),
        scope=whole(scope),
    )
    return Grant(
        id=whole(name),
        key=key,
        allows=bool(allows),
        by=whole(by),
        channel=whole(channel),
        request=whole(request),
        created=_at(created),
        expires=None if expires is None else _at(expires),
    )
