"""Authentication and rate limits of the API: a request comes in; its caller, or a problem, goes out.

Every route depends on the scope that it needs:

    Runner = Annotated[Caller, Depends(require_scope("runs:claim"))]

    @router.get("/runner/runs")
    async def claim(caller: Runner) -> ClaimedRun: ...

The rate limit is per tenant, so requests of one tenant do not slow down the others.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

from attrs import define, field, frozen
from fastapi import Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from amplifier_hooks.clock import SystemClock, TokenBucket, stamp
from amplifier_hooks.record.recorder import write_durably
from amplifier_hooks.server.edge.access_tokens import SCOPES, AccessToken, AccessTokens
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from amplifier_hooks.ports import AuditSink, Clock


MOST: Final = 4_096
"""Buckets that are kept, at most; the one unused longest is dropped, as it is full again by then."""


@define(eq=False)
class RateLimiter:
    """A rate limit of requests for each name: so many a second, and so many at once after a pause."""

    per_second: float
    at_once: int
    clock: Callable[[], float] = monotonic
    _buckets: OrderedDict[str, TokenBucket] = field(factory=OrderedDict, init=False)

    def seconds_to_wait(self, name: str) -> float:
        """Count a request and return 0 if it may go on; otherwise return the seconds until it may."""
        bucket = self._buckets.pop(name, None) or TokenBucket(self.per_second, self.at_once)
        self._buckets[name] = bucket
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
        return bucket.seconds_to_wait(self.clock())


SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})

bearer: Final = HTTPBearer(
    auto_error=False, description="A token made by `amplifier-hooks token create`.", scheme_name="token"
)


@frozen
class Caller:
    """The bearer of a token. The tenant comes from the token only, never from the request."""

    token: AccessToken

    @property
    def name(self) -> str:
        """Name of the caller in the record."""
        return self.token.name

    @property
    def tenant(self) -> str:
        """Tenant of the caller; `""` is the system."""
        return self.token.tenant

    @property
    def everywhere(self) -> bool:
        """True if the caller manages the system's hooks, and so those of every tenant."""
        return not self.tenant and self.may("hooks:admin")

    @property
    def tenant_seen(self) -> str | None:
        """Tenant whose data the caller sees; None is every tenant."""
        return None if self.everywhere else self.tenant

    def may(self, scope: str) -> bool:
        """Return True if the caller's token has a scope."""
        return self.token.allows(scope)

    def sees(self, tenant: str) -> bool:
        """Return True if the caller may see data of a tenant."""
        return tenant == self.tenant or self.everywhere

    async def record(self, sink: AuditSink, kind: str, facts: Mapping[str, Any], clock: Clock | None = None) -> None:
        """Record an act of the caller before it takes effect. Raises `RecordUnavailable`."""
        about = {"time": stamp(clock or SystemClock()), "tenant": self.tenant, "by": self.name, "bearer": self.token.id}
        await write_durably(sink, kind, {**about, **facts})


@define(eq=False)
class CallerCheck:
    """Check of tokens and rate limits. An application has one, as `app.state.caller_check`."""

    tokens: AccessTokens
    reads: RateLimiter = field(factory=lambda: RateLimiter(100.0, 200))
    writes: RateLimiter = field(factory=lambda: RateLimiter(20.0, 40))
    runners: RateLimiter = field(factory=lambda: RateLimiter(500.0, 1_000))
    """Rate limit of runners, which send two reports for each run, and renew the leases of all their runs."""

    async def admit(self, secret: str | None, scope: str, method: str) -> Caller:
        """Return the bearer of a token.

        Raises `Problem`: 401 without a valid token, 429 over the rate limit, 403 without the scope. Raises
        `StoreUnavailable` when the store cannot be used; no caller is admitted then.
        """
        token = await self.tokens.bearer(secret) if secret else None
        if token is None:
            raise unauthorized()
        rate_limit = self.runners if scope == "runs:claim" else self.reads if method in SAFE else self.writes
        seconds = rate_limit.seconds_to_wait(token.tenant)
        if seconds:
            detail = f"too many requests; at most {rate_limit.per_second:g} a second"
            raise Problem(429, "too_many_requests", detail, headers={"retry-after": str(math.ceil(seconds))})
        if not token.allows(scope):
            wanted = f'Bearer error="insufficient_scope", scope="{scope}"'
            detail = f"this token does not have the scope {scope} ({SCOPES.get(scope, scope)})"
            raise Problem(403, "insufficient_scope", detail, headers={"www-authenticate": wanted})
        return Caller(token)

    async def check_again(self, caller: Caller) -> None:
        """Raise `Problem` 401 if the caller's token is not in force any more."""
        if not await self.tokens.is_in_force(caller.token):
            raise unauthorized()


def unauthorized() -> Problem:
    """Return the problem of a request without a token in force."""
    detail = "send a token that is in force: Authorization: Bearer …"
    return Problem(401, "unauthorized", detail, headers={"www-authenticate": "Bearer"})


def require_scope(scope: str) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """Return a FastAPI dependency that gives the caller, if the caller's token has a scope."""

    async def admit(
        request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)] = None
    ) -> Caller:
        caller_check: CallerCheck = request.app.state.caller_check
        caller = await caller_check.admit(given.credentials if given else None, scope, request.method)
        refuse_unknown_parameters(request)
        return caller

    return admit


def refuse_unknown_parameters(request: Request) -> None:
    """Raise `RequestValidationError` for a query parameter that the route does not have, as for an unknown field."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    odd = [{"loc": ("query", name), "msg": "no such parameter"} for name in request.query_params if name not in known]
    if odd:
        raise RequestValidationError(odd)
