"""Who may use the HTTP API: tokens, each with a tenant, scopes and an end.

A token is 256 random bits that mean nothing by themselves. Only its digest is kept, so whoever reads the store can use
none; and since it cannot be guessed, a plain hash is enough. Which tenant a request is for is said here, and nowhere
else.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.model import tenant_id_or_error
from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.record.write.recorder import NoRecord
from amplifier_hooks.storage.database import Migrations, Script, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.storage.database import Database, Row


SCOPES: Final = {
    "hooks:read": "what hooks did: logs and statistics",
    "hooks:manage": "the tenant's hooks, and trying them out",
    "hooks:admin": "the system's hooks, and those of every tenant; for tokens without a tenant",
    "approvals:view": "what waits for an answer",
    "approvals:decide": "answering it",
    "runs:read": "runs, and what became of them",
    "runs:create": "putting runs into the queue",
    "runs:claim": "taking runs out of the queue, and saying what became of them",
}
"""What a token may allow."""

IMPLIED: Final = {"hooks:admin": ("hooks:manage", "hooks:read"), "approvals:decide": ("approvals:view",)}

PREFIX: Final = "ahk_"
SECRET_BYTES: Final = 32
LONGEST_SECRET: Final = 128
LONGEST_NAME: Final = 100
LONGEST_LIFE: Final = timedelta(days=3_660)

ACCESS_TABLES: Final = Migrations(
    component="access",
    steps=(
        (
            """CREATE TABLE {schema}.access_token (
                id TEXT PRIMARY KEY,
                digest TEXT NOT NULL UNIQUE,
                name TEXT NOT NULL,
                tenant TEXT NOT NULL,
                scopes TEXT NOT NULL,
                created BIGINT NOT NULL,
                expires BIGINT,
                revoked BIGINT
            )""",
        ),
    ),
)


class InvalidToken(HookUsageError, ValueError):
    """A token that would make no sense; the message says what to write instead."""


@frozen(kw_only=True)
class AccessToken:
    """What a token stands for; not the token itself, which nobody keeps but its bearer."""

    id: str
    name: str
    tenant: str
    """Whose data it opens; `""` is the system."""
    scopes: frozenset[str]
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def allows(self, scope: str) -> bool:
        """Whether it was given this scope, or one that includes it."""
        return scope in self.scopes or any(scope in IMPLIED.get(held, ()) for held in self.scopes)

    def is_in_force(self, now: datetime) -> bool:
        """Whether it counts at this time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class AccessTokens:
    """The tokens of a store. All methods raise `StoreUnavailable` when it cannot be used.

    What makes or ends one is in the `record` before it happens, and does not happen without it.
    """

    def __init__(self, database: Database, clock: Clock | None = None, *, record: AuditSink | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._record = record or NoRecord()

    async def create(
        self, name: str, *, scopes: Iterable[str], tenant: str = "", lifetime: timedelta | None = None, by: str = ""
    ) -> tuple[AccessToken, str]:
        """Make a token. The text returned with it is the only copy there will ever be.

        Raises `InvalidToken` for scopes nobody knows, for the system's scope together with a tenant, and for a name, a
        tenant or a lifetime that is none; `RecordUnavailable`, when nothing was made. `by` is who the record says did
        it.
        """
        token = self._new_token(name, frozenset(scopes), tenant, lifetime)
        await self._note("token.created", token, by)
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        ends = None if token.expires is None else _micros(token.expires)
        said = " ".join(sorted(token.scopes))
        values = (token.id, digest(secret), token.name, tenant, said, _micros(token.created), ends)
        await self._database.fetch(INSERT, *values)
        return token, secret

    async def check_store(self) -> None:
        """Return if the store answers."""
        await self._database.fetch(BY_ID, "")

    async def bearer(self, secret: str) -> AccessToken | None:
        """What this token stands for, as long as it is in force; None for any other text."""
        if not secret.startswith(PREFIX) or len(secret) > LONGEST_SECRET:
            return None
        rows = await self._database.fetch(BY_DIGEST, digest(secret))
        token = _token(rows[0]) if rows else None
        return token if token is not None and token.is_in_force(self._clock.now()) else None

    async def tokens(self, tenant: str | None = None) -> list[AccessToken]:
        """All of them, or one tenant's, oldest first; those that ended included."""
        return [_token(row) for row in await self._database.fetch(ALL, tenant)]

    async def revoke(self, token_id: str, *, by: str = "") -> AccessToken | None:
        """End a token for good, from the next request on. Returns it; None if there is none. Twice is harmless.

        Raises `RecordUnavailable`; the token is in force then as before.
        """
        rows = await self._database.fetch(BY_ID, token_id)
        if not rows:
            return None
        await self._note("token.revoked", _token(rows[0]), by)
        return await self._database.run(self._revoke(token_id))

    async def _note(self, kind: str, token: AccessToken, by: str) -> None:
        facts = {
            "time": stamp(self._clock),
            "by": by,
            "bearer": token.id,  # under the name of a secret it would be hidden
            "name": token.name,
            "tenant": token.tenant,
            "scopes": sorted(token.scopes),
            "expires": token.expires and token.expires.isoformat(),
        }
        try:
            await self._record.write(kind, facts, durable=True)
        except Exception as error:
            raise RecordUnavailable(error) from error

    def _revoke(self, token_id: str) -> Script[AccessToken | None]:
        yield Statement(REVOKE, (token_id, _micros(self._clock.now())))
        rows = yield Statement(BY_ID, (token_id,))
        return _token(rows[0]) if rows else None

    def _new_token(self, name: str, scopes: frozenset[str], tenant: str, lifetime: timedelta | None) -> AccessToken:
        unknown = sorted(scopes.difference(SCOPES))
        if unknown or not scopes:
            wrong = f"no scope is called {unknown[0]!r}" if unknown else "a token without a scope opens nothing"
            raise InvalidToken(f"{wrong}; there are {', '.join(SCOPES)}")
        if tenant and "hooks:admin" in scopes:
            raise InvalidToken("hooks:admin is about the system's hooks, and a tenant's token cannot have it")
        if not (name.isascii() and name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_NAME):
            raise InvalidToken(
                f"the name of a token is plain printable ASCII, at most {LONGEST_NAME} characters, "
                "without blanks around it, and not empty"
            )
        try:
            tenant_id_or_error(tenant)
        except ValueError as problem:
            raise InvalidToken(str(problem)) from None
        if lifetime is not None and not timedelta() < lifetime <= LONGEST_LIFE:
            raise InvalidToken(
                f"a token lasts longer than no time, and at most {LONGEST_LIFE.days:,} days; "
                "without a lifetime it lasts until it is revoked"
            )
        now = self._clock.now()
        ends = None if lifetime is None else now + lifetime
        return AccessToken(
            id=f"tok_{secrets.token_hex(6)}", name=name, tenant=tenant, scopes=scopes, created=now, expires=ends
        )


def digest(secret: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + micros * MICROSECOND


def _token(row: Row) -> AccessToken:
    token_id, name, tenant, scopes, created, expires, revoked = row
    return AccessToken(
        id=token_id,
        name=name,
        tenant=tenant,
        scopes=frozenset(scopes.split()),
        created=EPOCH + created * MICROSECOND,
        expires=_moment(expires),
        revoked=_moment(revoked),
    )


COLUMNS: Final = "id, name, tenant, scopes, created, expires, revoked"
INSERT: Final = (
    "INSERT INTO {schema}.access_token (id, digest, name, tenant, scopes, created, expires) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7)"
)
BY_DIGEST: Final = f"SELECT {COLUMNS} FROM {{schema}}.access_token WHERE digest = $1"  # noqa: S608  # constants only
BY_ID: Final = f"SELECT {COLUMNS} FROM {{schema}}.access_token WHERE id = $1"  # noqa: S608  # the same
ALL: Final = (
    f"SELECT {COLUMNS} FROM {{schema}}.access_token WHERE (CAST($1 AS TEXT) IS NULL OR tenant = $1) "  # noqa: S608  # the same
    "ORDER BY created, id"
)
REVOKE: Final = "UPDATE {schema}.access_token SET revoked = $2 WHERE id = $1 AND revoked IS NULL"
