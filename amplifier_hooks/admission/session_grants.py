"""Standing answers in memory: for sessions whose backend keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.approvals.grants import grant_keys, granted, standing
from amplifier_hooks.ports import GrantStore

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalRequest, Clock, Decision, Standing, StandingAnswer


class SessionGrants:
    """What somebody allowed or denied for good, until the session ends. Implements `GrantStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, StandingAnswer] = {}

    async def standing(self, request: ApprovalRequest) -> Standing | None:
        """What they say to this request."""
        if not self._kept:
            return None
        keys = set(grant_keys(request))
        found = tuple(grant for grant in self._kept.values() if grant.key in keys)
        said = standing(request, found)
        return None if said is None else (said, tuple(grant for grant in found if grant.allows == (said == "allow")))

    async def remember(self, request: ApprovalRequest, decision: Decision, digest: str) -> None:
        """Keep what was decided for good."""
        for grant in granted(request, decision, decision.at or self._clock.now(), digest):
            self._kept[grant.id] = grant

    async def granted(self, tenant: str, session: str) -> list[StandingAnswer]:
        """Those in force, oldest first."""
        return [grant for grant in self._kept.values() if (grant.key.tenant, grant.key.session) == (tenant, session)]

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End one."""
        there = any(grant.id == grant_id for grant in await self.granted(tenant, session))
        if there:
            del self._kept[grant_id]
        return there

    async def end_grants(self, tenant: str, session: str) -> None:
        """Forget them all."""
        for grant in await self.granted(tenant, session):
            del self._kept[grant.id]


def kept_by(backend: object) -> GrantStore | None:
    """The backend, if it keeps standing answers itself."""
    return backend if isinstance(backend, GrantStore) else None
