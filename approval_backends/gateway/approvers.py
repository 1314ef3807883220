"""The approvers of a gateway, and the one check of a request for page and socket alike: Host, Origin, token.

Host and Origin keep other pages out; the token keeps out everything else on the machine, and alone identifies an
approver with the rights to look and to decide. The check is pure: headers and the time are arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from attrs import Attribute, field, frozen

from amplifier_hooks.clock import TokenBucket
from amplifier_hooks.text.host_names import turned_away
from approval_backends.lifecycle import Decider

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


SHORTEST: Final = 32
"""Characters that a token needs at least: it has to be beyond guessing."""


def new_token() -> str:
    """Return a token of 256 random bits."""
    return secrets.token_urlsafe(32)


def _as_set(names: Iterable[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


@frozen(kw_only=True)
class Approver:
    """An approver that may connect, with the token that proves it.

    `tenant` and `sessions` bound what the approver sees (None: all). Looking and deciding are separate rights. Raises
    `ValueError` for a token that could be guessed.
    """

    name: str
    """Name of the approver, for the record and for other approvers."""
    token: str = field(factory=new_token, repr=False)
    """Secret of the approver; a random one by default."""
    channel: str = "web"
    """Kind of place where the approver answers, for the record."""
    tenant: str | None = None
    """Tenant whose requests the approver sees; None stands for all."""
    sessions: frozenset[str] | None = field(default=None, converter=_as_set)
    """Ids of the sessions that the approver sees; None stands for all."""
    may_decide: bool = True
    """True if the approver may answer, and not only look."""

    @token.validator
    def _check_token(self, _attribute: Attribute[str], token: str) -> None:
        if len(token) < SHORTEST:
            raise ValueError(f"the token of {self.name} is shorter than {SHORTEST} characters; use new_token()")

    @property
    def decider(self) -> Decider:
        """The approver as the life cycle knows it."""
        return Decider(
            name=self.name,
            channel=self.channel,
            tenant=self.tenant,
            sessions=self.sessions,
            may_decide=self.may_decide,
        )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


SOCKET: Final = "/acp"
WRONG_AT_ONCE: Final = 20
WRONG_A_SECOND: Final = 20 / 60
"""Tokens are far too long to be guessed; this bounds what guessing costs."""


@frozen
class TurnedAway:
    """A refusal, with the status and the reason of its response."""

    status: int
    reason: str


REFUSALS: Final = {
    "host": TurnedAway(421, "This gateway is not reached under that name."),
    "origin": TurnedAway(403, "Requests of other sites are refused."),
}


class Gate:
    """Admits requests by their headers. `names` are the hosts, with ports, under which the gateway is reached."""

    def __init__(self, approvers: Iterable[Approver], names: Iterable[str]) -> None:
        self._hashes = [(_hash(approver.token), approver.decider) for approver in approvers]
        self._names = frozenset(name.lower() for name in names)
        self._wrong = TokenBucket(WRONG_A_SECOND, WRONG_AT_ONCE)

    def admit(
        self, path: str, hosts: Sequence[str], origins: Sequence[str], authorizations: Sequence[str], now: float
    ) -> Decider | TurnedAway | None:
        """Return the approver of the token, None without one, or a refusal. Each header is given as often as sent."""
        foreign = turned_away(self._names, hosts, origins)
        if foreign is not None:
            return REFUSALS[foreign]
        if path != SOCKET:
            return None
        if authorizations:
            return self._by_token(authorizations, now)
        return None if origins else TurnedAway(401, "Send your token: Authorization: Bearer TOKEN")

    def decider_of(self, token: str) -> Decider | None:
        """Return the approver of this token, or None. A wrong token takes as long as a right one."""
        hashed, found = _hash(token), None
        for known, decider in self._hashes:
            if hmac.compare_digest(known, hashed):
                found = decider
        return found

    def wrong(self, now: float) -> TurnedAway:
        """Return the refusal of a wrong token."""
        if not self._wrong.seconds_to_wait(now):
            return TurnedAway(401, "Unknown token.")
        return TurnedAway(429, "Too many wrong tokens; wait a minute.")

    def _by_token(self, authorizations: Sequence[str], now: float) -> Decider | TurnedAway:
        scheme, _blank, token = authorizations[0].partition(" ")
        decider = self.decider_of(token.strip())
        if len(authorizations) > 1 or scheme.lower() != "bearer" or decider is None:
            return self.wrong(now)
        return decider
