"""Limits for the texts of hooks, and the arithmetic of the remaining budget. Pure.

Tokens are reserved before the first await and returned if fewer were used, so hooks that run side by side cannot
together spend more than the budget.

    grant = budget.reserve(120)     120 are taken; grant.over is the number that was not available
    budget.settle(grant, 90)        90 are spent, the others are available again
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from amplifier_hooks.errors import InvalidLimit

Overflow = Literal["trim", "reject", "warn"]

MAX_INJECTION_SIZE: Final = 10_240
"""Bytes of UTF-8 one injection may have, inclusive."""
INJECTION_BUDGET_PER_TURN: Final = 1_000
"""Tokens all injections of one turn may have together."""
MAX_INJECTIONS_PER_TURN: Final = 64
"""Number of injections one turn may have."""


class InjectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a session for the injections of its hooks. `None` is no limit.

    `overflow` decides about a text that no longer fits into the tokens of the turn or the session: it is cut if a
    readable part remains (`trim`), left out (`reject`), or injected in spite of the limit (`warn`). Each of the three
    is reported.

    Raises `InvalidLimit` for a limit that is no whole number, or below 0.
    """

    injection_size: int = MAX_INJECTION_SIZE
    per_turn: int | None = INJECTION_BUDGET_PER_TURN
    per_session: int | None = None
    items_per_turn: int | None = MAX_INJECTIONS_PER_TURN
    overflow: Overflow = "trim"

    def __post_init__(self) -> None:
        for name in ("injection_size", "per_turn", "per_session", "items_per_turn"):
            value: object = getattr(self, name)
            if value is None and name != "injection_size":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidLimit(name, value, "a whole number, 0 or more")
        if self.overflow not in ("trim", "reject", "warn"):
            raise InvalidLimit("overflow", self.overflow, "trim, reject or warn")


class Reservation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Tokens taken out of a budget for one purpose. `over` is the number of wanted tokens that were not available."""

    tokens: int
    over: int

    @property
    def full(self) -> bool:
        """True if all wanted tokens were available."""
        return self.over == 0


class Budget:
    """Tokens and texts that the hooks of one session have used, this turn and altogether.

    Reserved tokens count as used.
    """

    __slots__ = ("_open", "limits", "session_tokens", "turn_items", "turn_tokens")

    def __init__(self, limits: InjectionLimits | None = None) -> None:
        self.limits = limits or InjectionLimits()
        self.turn_tokens = 0
        self.turn_items = 0
        self.session_tokens = 0
        self._open: set[Reservation] = set()

    @property
    def room(self) -> int | None:
        """Number of tokens left now; `None` without a limit."""
        limits = self.limits
        lefts = [
            limit - used
            for limit, used in ((limits.per_turn, self.turn_tokens), (limits.per_session, self.session_tokens))
            if limit is not None
        ]
        return max(0, min(lefts)) if lefts else None  # below 0 after `warn`

    def reserve(self, tokens: int) -> Reservation:
        """Take this number of tokens, or the rest if fewer are left; under `warn`, all of them in any case.

        Every reservation must be settled, once. Raises `ValueError` for a number below 0.
        """
        if tokens < 0:
            raise ValueError(f"{tokens} tokens cannot be reserved")
        room = self.room
        there = tokens if room is None else min(tokens, room)
        return self._add_reservation(tokens if self.limits.overflow == "warn" else there, tokens - there)

    def reserve_rest(self) -> Reservation:
        """Take the rest of the tokens, for a text that is over the limit and was not counted to its end.

        The session has a limit where this is called, so there is a rest, which may be 0.
        """
        return self._add_reservation(self.room or 0, 1)

    def settle(self, grant: Reservation, tokens: int) -> None:
        """Release the tokens of a reservation that were not used.

        Raises `ValueError` for more tokens than were taken, and for a reservation that is settled or of another budget.
        """
        if grant not in self._open or not 0 <= tokens <= grant.tokens:
            raise ValueError(f"{tokens} of {grant.tokens} tokens cannot be settled")
        self._open.remove(grant)
        self._use(tokens - grant.tokens)

    def take_items(self, count: int) -> int:
        """Take up to this number of texts from the turn's limit. Return the number taken."""
        limit = self.limits.items_per_turn
        taken = count if limit is None else min(count, limit - self.turn_items)
        self.turn_items += taken
        return taken

    def reset_turn(self) -> None:
        """Start a new turn. The session's use stays, and open reservations count in both turns."""
        self.turn_tokens = sum(grant.tokens for grant in self._open)
        self.turn_items = 0

    def _add_reservation(self, tokens: int, over: int) -> Reservation:
        grant = Reservation(tokens=tokens, over=over)
        self._open.add(grant)
        self._use(tokens)
        return grant

    def _use(self, tokens: int) -> None:
        self.turn_tokens += tokens
        self.session_tokens += tokens
