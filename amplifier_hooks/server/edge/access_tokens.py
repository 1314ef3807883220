"""Access to the HTTP API: the text of a token comes in; its tenant, scopes and end go out.

A token is 256 random bits without meaning. The store keeps only its digest, so a reader of the store can use no token;
since a token cannot be guessed, a plain hash is enough. The token alone determines the tenant of a request.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.clock import SystemClock, micros_of, moment_of, stamp
from amplifier_hooks.definitions.model import tenant_id_or_error
from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.record.recorder import NoRecord, write_durably
from amplifier_hooks.storage.database import Migrations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.storage.database import Database, Row


SCOPES: Final = {
    "hooks:read": "read the logs and statistics of hooks",
    "hooks:manage": "read, change and try the tenant's hooks",
    "hooks:admin": "read, change and try the system's hooks, and those of every tenant; for tokens without a tenant",
    "approvals:view": "see requests that wait for a decision",
    "approvals:decide": "decide requests",
    "runs:read": "read runs and their results",
    "runs:create": "queue runs, and stop them",
    "runs:claim": "claim runs from the queue, and report their results",
    "runs:write": "change the hooks of blueprints; for tokens without a tenant",
}
"""Scopes that a token may have, each with the acts it allows."""

OF_THE_SYSTEM: Final = ("hooks:admin", "runs:write")
"""Scopes that no token of a tenant has."""
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
    """An invalid token was to be made; the message names valid values."""


@frozen(kw_only=True)
class AccessToken:
    """The facts of a token, without its text, which only its bearer has."""

    id: str
    name: str
    tenant: str
    """Tenant whose data the token opens; `""` is the system."""
    scopes: frozenset[str]
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def allows(self, scope: str) -> bool:
        """Return True if the token has a scope, or one that includes it."""
        return scope in self.scopes or any(scope in IMPLIED.get(held, ()) for held in self.scopes)

    def is_in_force(self, now: datetime) -> bool:
        """Return True if the token is neither revoked nor expired at a time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class AccessTokens:
    """The tokens of a store. All methods raise `StoreUnavailable` when the store cannot be used.

    Creating or revoking a token is written to `record` first, and does not happen if the record cannot be written.
    """

    def __init__(self, database: Database, clock: Clock | None = None, *, record: AuditSink | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._record = record or NoRecord()

    async def create(
        self, name: str, *, scopes: Iterable[str], tenant: str = "", lifetime: timedelta | None = None, by: str = ""
    ) -> tuple[AccessToken, str]:
        """Create a token. The text returned with it is the only copy.

        Raises `InvalidToken` for unknown scopes, for the system's scope together with a tenant, and for an invalid
        name, tenant or lifetime; raises `RecordUnavailable`, and creates nothing, if the record cannot be written. `by`
        names the creator in the record.
        """
        token = self._new_token(name, frozenset(scopes), tenant, lifetime)
        await self._note("token.created", token, by)
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        ends = None if token.expires is None else micros_of(token.expires)
        said = " ".join(sorted(token.scopes))
        values = (token.id, digest(secret), token.name, tenant, said, micros_of(token.created), ends)
        await self._database.fetch(INSERT, *values)
        return token, secret

    async def check_store(self) -> None:
        """Raise `StoreUnavailable` if the store does not answer."""
        await self._database.fetch(BY_ID, "")

    async def bearer(self, secret: str) -> AccessToken | None:
        """Return the facts of a token by its text, while it is in force; None for any other text."""
        if not secret.startswith(PREFIX) or len(secret) > LONGEST_SECRET:
            return None
        rows = await self._database.fetch(BY_DIGEST, digest(secret))
        token = _token(rows[0]) if rows else None
        return token if token is not None and token.is_in_force(self._clock.now()) else None

    async def is_in_force(self, token: AccessToken) -> bool:
        """Return True if a token that was in force is so still."""
        rows = await self._database.fetch(BY_ID, token.id)
        return bool(rows) and _token(rows[0]).is_in_force(self._clock.now())

    async def tokens(self, tenant: str | None = None) -> list[AccessToken]:
        """Return all tokens, or one tenant's, oldest first, including expired and revoked ones."""
        return [_token(row) for row in await self._database.fetch(ALL, tenant)]

    async def revoke(self, token_id: str, *, by: str = "") -> AccessToken | None:
        """Revoke a token from the next request on, and return it; None if there is none. Idempotent.

        Raises `RecordUnavailable` if the record cannot be written; the token then stays in force.
        """
        rows = await self._database.fetch(BY_ID, token_id)
        if not rows:
            return None
        await self._note("token.revoked", _token(rows[0]), by)
        rows = await self._database.fetch(REVOKE, token_id, micros_of(self._clock.now()))
        return _token(rows[0]) if rows else None

    async def _note(self, kind: str, token: AccessToken, by: str) -> None:
        facts = {
            "time": stamp(self._clock),
            "by": by,
            "bearer": token.id,  # the record would hide a field with the name of a secret
            "name": token.name,
            "tenant": token.tenant,
            "scopes": sorted(token.scopes),
            "expires": token.expires and token.expires.isoformat(),
        }
        await write_durably(self._record, kind, facts)

    def _new_token(self, name: str, scopes: frozenset[str], tenant: str, lifetime: timedelta | None) -> AccessToken:
        unknown = sorted(scopes.difference(SCOPES))
        if unknown or not scopes:
            wrong = f"no scope is called {unknown[0]!r}" if unknown else "a token without a scope opens nothing"
            raise InvalidToken(f"{wrong}; there are {', '.join(SCOPES)}")
        if tenant and (foreign := scopes.intersection(OF_THE_SYSTEM)):
            raise InvalidToken(f"{min(foreign)} is for the system's hooks, and a tenant's token cannot have it")
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
    """Return the digest that the store keeps of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else moment_of(micros)


def _token(row: Row) -> AccessToken:
    token_id, name, tenant, scopes, created, expires, revoked = row
    return AccessToken(
        id=token_id,
        name=name,
        tenant=tenant,
        scopes=frozenset(scopes.split()),
        created=moment_of(created),
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
REVOKE: Final = f"UPDATE {{schema}}.access_token SET revoked = coalesce(revoked, $2) WHERE id = $1 RETURNING {COLUMNS}"  # noqa: S608  # the same
