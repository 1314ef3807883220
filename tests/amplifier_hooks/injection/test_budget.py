"""The arithmetic of the injection budget."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.injection.budget import (
    INJECTION_BUDGET_PER_TURN,
    MAX_INJECTION_SIZE,
    Budget,
    InjectionLimits,
    Reservation,
)


@pytest.mark.rule("INJ-2", "INJ-3", "INJ-9")
def test_defaults() -> None:
    """10,240 bytes an injection, 1,000 tokens and 64 texts a turn, no limit for the session, and texts are trimmed."""
    assert (MAX_INJECTION_SIZE, INJECTION_BUDGET_PER_TURN) == (10_240, 1_000)
    limits = Budget().limits
    assert (limits.injection_size, limits.per_turn, limits.items_per_turn) == (10_240, 1_000, 64)
    assert limits.per_session is None
    assert limits.overflow == "trim"


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize("name", ["injection_size", "per_turn", "per_session", "items_per_turn"])
@pytest.mark.parametrize("value", [-1, 1.0, True, "10", float("nan")])
def test_limits_that_make_no_sense(name: str, value: Any) -> None:
    """A limit is a whole number of 0 or more; everything else is refused where it is set."""
    with pytest.raises(InvalidLimit, match="a whole number, 0 or more") as refused:
        InjectionLimits(**{name: value})
    assert (refused.value.name, refused.value.requirement) == (name, "a whole number, 0 or more")
    assert refused.value.value is value


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize("name", ["per_turn", "per_session", "items_per_turn"])
@pytest.mark.parametrize("value", [None, 0, 1])
def test_limits_that_make_sense(name: str, value: Any) -> None:
    """None is no limit, 0 is one, and what comes after a limit is checked too."""
    assert getattr(InjectionLimits(**{name: value}), name) is value
    with pytest.raises(InvalidLimit, match="overflow"):
        InjectionLimits(**{name: value}, overflow="shred")  # type: ignore[arg-type]  # the point


def test_a_size_is_always_limited() -> None:
    """One injection always has a limit."""
    assert InjectionLimits(injection_size=0).injection_size == 0
    with pytest.raises(InvalidLimit, match="injection_size is None"):
        InjectionLimits(injection_size=None)  # type: ignore[arg-type]  # the point


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize("overflow", ["trim", "reject", "warn"])
def test_policies(overflow: Any) -> None:
    """There are three policies, and anything else is refused with their names."""
    assert InjectionLimits(overflow=overflow).overflow == overflow
    with pytest.raises(InvalidLimit, match=r"^overflow is 'TRIM'; pass trim, reject or warn$"):
        InjectionLimits(overflow="TRIM")  # type: ignore[arg-type]  # the point


def test_what_is_given() -> None:
    """Limits are given by name, a budget begins with nothing used, and two budgets are two."""
    with pytest.raises(TypeError):
        InjectionLimits(10)  # type: ignore[call-arg]  # the point
    with pytest.raises(TypeError):
        Reservation(5, 0)  # type: ignore[call-arg]  # the point
    for name in ("turn_tokens", "turn_items", "session_tokens", "open"):
        with pytest.raises(TypeError):
            Budget(InjectionLimits(), **{name: 5})
    assert Budget() != Budget()


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize(
    ("limits", "room"),
    [
        ({"per_turn": 10}, 4),
        ({"per_turn": None, "per_session": 10}, 4),
        ({"per_turn": 10, "per_session": 7}, 1),
        ({"per_turn": 7, "per_session": 10}, 1),
        ({"per_turn": 6}, 0),
        ({"per_turn": None}, None),
    ],
)
def test_room(limits: Any, room: int | None) -> None:
    """The room is that of the narrower of the two limits; without a limit there is no number."""
    budget = Budget(InjectionLimits(**limits))
    budget.settle(budget.reserve(6), 6)
    assert budget.room == room


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize("overflow", ["trim", "reject"])
def test_reserving(overflow: Any) -> None:
    """A grant holds what was wanted, or what was left of it, and says how much was missing."""
    budget = Budget(InjectionLimits(per_turn=10, overflow=overflow))
    first = budget.reserve(10)
    assert (first.tokens, first.over, first.full) == (10, 0, True)
    assert (budget.room, budget.turn_tokens, budget.session_tokens) == (0, 10, 10)
    second = budget.reserve(3)
    assert (second.tokens, second.over, second.full) == (0, 3, False)
    budget.settle(first, 4)
    assert (budget.room, budget.turn_tokens, budget.session_tokens) == (6, 4, 4)
    third = budget.reserve(7)
    assert (third.tokens, third.over, third.full) == (6, 1, False)


@pytest.mark.rule("INJ-3")
def test_warning() -> None:
    """Under `warn` everything is granted, and how much of it was not there is known."""
    budget = Budget(InjectionLimits(per_turn=10, overflow="warn"))
    assert budget.reserve(10).full
    grant = budget.reserve(5)
    assert (grant.tokens, grant.over) == (5, 5)
    assert (budget.turn_tokens, budget.room) == (15, 0)
    assert budget.reserve(2).over == 2


@pytest.mark.rule("INJ-3")
def test_the_rest() -> None:
    """For a text that was not counted to its end, the rest is taken, and it is not enough."""
    budget = Budget(InjectionLimits(per_turn=10))
    budget.reserve(4)
    grant = budget.reserve_rest()
    assert (grant.tokens, grant.over, grant.full) == (6, 1, False)
    assert budget.room == 0
    assert budget.reserve_rest().tokens == 0
    unlimited = Budget(InjectionLimits(per_turn=None)).reserve_rest()
    assert (unlimited.tokens, unlimited.full) == (0, False)


@pytest.mark.rule("INJ-3")
def test_nothing_at_all() -> None:
    """Nothing can be reserved of any budget, also of an empty one."""
    grant = Budget(InjectionLimits(per_turn=0)).reserve(0)
    assert (grant.tokens, grant.full) == (0, True)


def test_fewer_than_nothing() -> None:
    """A count below zero is refused: it would hand out tokens that do not exist."""
    budget = Budget(InjectionLimits(per_turn=10))
    with pytest.raises(ValueError, match=r"^-1 tokens cannot be reserved$"):
        budget.reserve(-1)
    assert budget.room == 10


@pytest.mark.parametrize("used", [-1, 6])
def test_settling_what_was_not_taken(used: int) -> None:
    """More than was taken cannot have been used, nor less than nothing; the grant stays open."""
    budget = Budget(InjectionLimits(per_turn=10))
    grant = budget.reserve(5)
    with pytest.raises(ValueError, match=f"^{used} of 5 tokens cannot be settled$"):
        budget.settle(grant, used)
    assert budget.turn_tokens == 5
    budget.settle(grant, 0)
    assert budget.turn_tokens == 0


def test_settling_twice() -> None:
    """A grant is settled once, and by the budget it came from."""
    budget = Budget()
    grant = budget.reserve(5)
    budget.settle(grant, 5)
    for stranger in (grant, Reservation(tokens=5, over=0), Budget().reserve(5)):
        with pytest.raises(ValueError, match="cannot be settled"):
            budget.settle(stranger, 0)
    assert budget.turn_tokens == 5


def test_equal_grants() -> None:
    """Two grants over the same are two."""
    budget = Budget()
    first, second = budget.reserve(5), budget.reserve(5)
    budget.settle(first, 0)
    budget.settle(second, 0)
    assert budget.turn_tokens == 0


@pytest.mark.rule("INJ-3")
def test_a_new_turn() -> None:
    """A new turn has all of its tokens and texts; the session remembers what was used."""
    budget = Budget(InjectionLimits(per_turn=10, per_session=15, items_per_turn=1))
    budget.settle(budget.reserve(10), 10)
    assert budget.take_items(1) == 1
    budget.reset_turn()
    assert (budget.turn_tokens, budget.turn_items, budget.session_tokens, budget.room) == (0, 0, 10, 5)
    assert budget.take_items(1) == 1


@pytest.mark.rule("INJ-3")
def test_a_new_turn_meanwhile() -> None:
    """A reservation that is open when a turn ends counts in the next one too, and is returned to that."""
    budget = Budget(InjectionLimits(per_turn=10))
    grant = budget.reserve(8)
    budget.settle(budget.reserve(2), 2)
    budget.reset_turn()
    assert (budget.turn_tokens, budget.room, budget.session_tokens) == (8, 2, 10)
    budget.settle(grant, 3)
    assert (budget.turn_tokens, budget.room, budget.session_tokens) == (3, 7, 5)


@pytest.mark.rule("INJ-3")
def test_items() -> None:
    """A turn takes this number of texts, and no more until the next turn; without a limit, all of them."""
    budget = Budget(InjectionLimits(items_per_turn=3))
    assert [budget.take_items(2), budget.take_items(2), budget.take_items(2)] == [2, 1, 0]
    assert budget.turn_items == 3
    unlimited = Budget(InjectionLimits(items_per_turn=None))
    assert [unlimited.take_items(100), unlimited.take_items(100), unlimited.turn_items] == [100, 100, 200]
