"""How much hooks may say: limits, and the arithmetic of what is left. Pure.

Tokens are reserved before anything is awaited and given back where fewer were used, so hooks that run side by side
cannot together spend more than there is.

    grant = budget.reserve(120)     taken; grant.over says how many of the 120 were not there
    budget.settle(grant, 90)        90 are spent, the others are there again
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import define, field, frozen

from amplifier_hooks.errors import InvalidLimit

Overflow = Literal["trim", "reject", "warn"]

MAX_INJECTION_SIZE: Final = 10_240
"""Bytes of UTF-8 one injection may have, inclusive."""
INJECTION_BUDGET_PER_TURN: Final = 1_000
"""Tokens all injections of one turn may have together."""
MAX_INJECTIONS_PER_TURN: Final = 64
"""How many there may be."""


@frozen(kw_only=True)
class InjectionLimits:
    """What a session allows its hooks. `None` is no limit.

    `overflow` says what becomes of a text that no longer fits into the tokens of the turn or the session: it is cut
    where that leaves something to read (`trim`), left out (`reject`), or put in all the same (`warn`). None of the
    three is silent.

    Raises `InvalidLimit` for a limit that is no whole number, or below 0.
    """

    injection_size: int = MAX_INJECTION_SIZE
    per_turn: int | None = INJECTION_BUDGET_PER_TURN
    per_session: int | None = None
    items_per_turn: int | None = MAX_INJECTIONS_PER_TURN
    overflow: Overflow = "trim"

    def __attrs_post_init__(self) -> None:
        numbers: dict[str, object] = {
            "injection_size": self.injection_size,
            "per_turn": self.per_turn,
            "per_session": self.per_session,
            "items_per_turn": self.items_per_turn,
        }
        for name, value in numbers.items():
            if value is None and name != "injection_size":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidLimit(name, value, "a whole number, 0 or more")
        if self.overflow not in ("trim", "reject", "warn"):
            raise InvalidLimit("overflow", self.overflow, "trim, reject or warn")


@frozen(kw_only=True, eq=False)
class Reservation:
    """Tokens taken out of a budget for one purpose. `over` is how many of those wanted were not there."""

    tokens: int
    over: int

    @property
    def full(self) -> bool:
        """Whether everything that was wanted was there."""
        return self.over == 0


@define(eq=False)
class Budget:
    """What the hooks of one session have used, this turn and altogether. Reserved tokens count as used."""

    limits: InjectionLimits = field(factory=InjectionLimits)
    turn_tokens: int = field(default=0, init=False)
    turn_items: int = field(default=0, init=False)
    session_tokens: int = field(default=0, init=False)
    _open: set[Reservation] = field(factory=set, init=False)

    @property
    def room(self) -> int | None:
        """Tokens left, now; `None` where there is no limit."""
        limits = self.limits
        lefts = [
            limit - used
            for limit, used in ((limits.per_turn, self.turn_tokens), (limits.per_session, self.session_tokens))
            if limit is not None
        ]
        return max(0, min(lefts)) if lefts else None  # below 0 after `warn`

    def reserve(self, wanted: int) -> Reservation:
        """Take so many tokens, or what is left of them; under `warn`, all of them whatever is left.

        Every grant is to be settled, once. Raises `ValueError` for fewer than 0.
        """
        if wanted < 0:
            raise ValueError(f"{wanted} tokens cannot be reserved")
        room = self.room
        there = wanted if room is None else min(wanted, room)
        return self._add_reservation(wanted if self.limits.overflow == "warn" else there, wanted - there)

    def reserve_rest(self) -> Reservation:
        """Take what is left, for more than that: what is wanted is over the limit, and nobody counted by how much.

        The session has a limit where this is called, so something is left, or nothing.
        """
        return self._add_reservation(self.room or 0, 1)

    def settle(self, grant: Reservation, used: int) -> None:
        """Say how many of the tokens taken were used; the others are there again.

        Raises `ValueError` for more than were taken, and for a grant that is settled or of another budget.
        """
        if grant not in self._open or not 0 <= used <= grant.tokens:
            raise ValueError(f"{used} of {grant.tokens} tokens cannot be settled")
        self._open.remove(grant)
        self._use(used - grant.tokens)

    def take_items(self, wanted: int) -> int:
        """How many of so many texts may come in; those count."""
        limit = self.limits.items_per_turn
        taken = wanted if limit is None else min(wanted, limit - self.turn_items)
        self.turn_items += taken
        return taken

    def reset_turn(self) -> None:
        """A new turn begins. What the session has used stays, and what is reserved now counts in both turns."""
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
