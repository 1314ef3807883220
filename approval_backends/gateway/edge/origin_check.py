"""The one check for page and socket alike: Host, Origin, token. Pure: headers and the time are arguments.

Host and Origin keep other pages out; the token keeps out everything else on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.text.host_names import turned_away
from amplifier_hooks.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from approval_backends.gateway.approvers import Approvers
    from approval_backends.lifecycle import Decider


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


@frozen
class Admitted:
    """An admission, with the approver of the token, if a token came."""

    decider: Decider | None = None


class Gate:
    """Admits requests by their headers. `names` are the hosts, with ports, under which the gateway is reached."""

    def __init__(self, approvers: Approvers, names: Iterable[str]) -> None:
        self._approvers = approvers
        self._names = frozenset(name.lower() for name in names)
        self._wrong = TokenBucket(WRONG_A_SECOND, WRONG_AT_ONCE)

    def admit(
        self, path: str, hosts: Sequence[str], origins: Sequence[str], authorizations: Sequence[str], now: float
    ) -> Admitted | TurnedAway:
        """Return the admission or the refusal of this request. Each header is given as often as it was sent."""
        foreign = turned_away(self._names, hosts, origins)
        if foreign is not None:
            return REFUSALS[foreign]
        if path != SOCKET:
            return Admitted()
        if authorizations:
            return self._by_token(authorizations, now)
        return Admitted() if origins else TurnedAway(401, "Send your token: Authorization: Bearer TOKEN")

    def decider_of(self, token: str) -> Decider | None:
        """Return the approver of this token, or None."""
        return self._approvers.decider_of(token)

    def wrong(self, now: float) -> TurnedAway:
        """Return the refusal of a wrong token."""
        if not self._wrong.seconds_to_wait(now):
            return TurnedAway(401, "Unknown token.")
        return TurnedAway(429, "Too many wrong tokens; wait a minute.")

    def _by_token(self, authorizations: Sequence[str], now: float) -> Admitted | TurnedAway:
        scheme, _blank, token = authorizations[0].partition(" ")
        decider = self._approvers.decider_of(token.strip())
        if len(authorizations) > 1 or scheme.lower() != "bearer" or decider is None:
            return self.wrong(now)
        return Admitted(decider)
