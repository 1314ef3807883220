"""The approvers of a gateway, and their rights to look and to decide. A token alone identifies an approver."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from attrs import Attribute, field, frozen

from approval_backends.lifecycle import Decider

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    token: str = field(factory=new_token, repr=False)
    channel: str = "web"
    tenant: str | None = None
    sessions: frozenset[str] | None = field(default=None, converter=_as_set)
    may_decide: bool = True

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


class Approvers:
    """All approvers that may connect."""

    def __init__(self, approvers: Iterable[Approver]) -> None:
        self._hashes = [(_hash(approver.token), approver.decider) for approver in approvers]

    def decider_of(self, token: str) -> Decider | None:
        """Return the approver of this token, or None. A wrong token takes as long as a right one."""
        hashed, found = _hash(token), None
        for known, decider in self._hashes:
            if hmac.compare_digest(known, hashed):
                found = decider
        return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
