"""How much hooks may say: limits, and the arithmetic of what is left. Pure.

A reservation is taken before anything is awaited and given back when less was used, so hooks that run side by side
cannot together spend more than there is.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import define, field, frozen

from amplifier_hooks.errors import InvalidLimit

__all__ = ["INJECTION_BUDGET_PER_TURN", "MAX_INJECTION_SIZE", "Budget", "Grant", "Limits", "Overflow"]

Overflow = Literal["trim", "reject", "warn"]

MAX_INJECTION_SIZE: Final = 10_240
"""Bytes of UTF-8 one injection may have, inclusive."""
INJECTION_BUDGET_PER_TURN: Final = 1_000
"""Tokens all injections of one turn may have together."""
MAX_INJECTIONS_PER_EMIT: Final = 64


@frozen(kw_only=True)
class Limits:
    """What a session allows its hooks. `None` is no limit; 0 lets nothing through.

    `overflow` says what becomes of a text that no longer fits: it is cut where that leaves something to read (`trim`),
    left out (`reject`), or put in all the same (`warn`). None of the three is silent.

    Raises `InvalidLimit` for a limit that is no whole number, or below 0.
    """

    injection_size: int = MAX_INJECTION_SIZE
    per_turn: int | None = INJECTION_BUDGET_PER_TURN
    per_session: int | None = None
    per_emit: int = MAX_INJECTIONS_PER_EMIT
    overflow: Overflow = "trim"

    def __attrs_post_init__(self) -> None:
        numbers: dict[str, object] = {
            "injection_size": self.injection_size,
            "per_turn": self.per_turn,
            "per_session": self.per_session,
            "per_emit": self.per_emit,
        }
        for name, value in numbers.items():
            optional = value is None and name in ("per_turn", "per_session")
            if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InvalidLimit(name, value, "a whole number, 0 or more")
        if self.overflow not in ("trim", "reject", "warn"):
            raise InvalidLimit("overflow", self.overflow, "trim, reject or warn")


@frozen(kw_only=True)
class Grant:
    """Tokens taken out of a budget for one purpose. `over` is how many of those wanted were not there."""

    tokens: int
    over: int

    @property
    def full(self) -> bool:
        """Whether everything that was wanted was there."""
        return self.over == 0


@define
class Budget:
    """What the hooks of one session have used, this turn and altogether."""

    limits: Limits = field(factory=Limits)
    turn_tokens: int = 0
    session_tokens: int = 0

    @property
    def room(self) -> int | None:
        """Tokens left, now; `None` where there is no limit."""
        limits = self.limits
        lefts = [
            limit - used
            for limit, used in ((limits.per_turn, self.turn_tokens), (limits.per_session, self.session_tokens))
            if limit is not None
        ]
        return max(0, min(lefts)) if lefts else None

    def reserve(self, wanted: int) -> Grant:
        """Take so many tokens, or what is left of them; under `warn`, all of them whatever is left."""
        room = self.room
        there = wanted if room is None else min(wanted, room)
        taken = wanted if self.limits.overflow == "warn" else there
        self._use(taken)
        return Grant(tokens=taken, over=wanted - there)

    def settle(self, grant: Grant, used: int) -> None:
        """Say how many of the tokens taken were used; the others are there again."""
        self._use(used - grant.tokens)

    def reset_turn(self) -> None:
        """A new turn begins. What the session has used stays."""
        self.turn_tokens = 0

    def _use(self, tokens: int) -> None:
        self.turn_tokens += tokens
        self.session_tokens += tokens
