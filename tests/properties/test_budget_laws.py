"""A turn never has more injected than its budget: for the arithmetic alone, and for all that spends it."""

from __future__ import annotations

import asyncio
import random
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.injection.budget import Budget, InjectionLimits, Reservation
from amplifier_hooks.injection.inject import Injector
from amplifier_hooks.injection.tokens.counter import counter_for, guard_counter
from amplifier_hooks.provenance import SourceTrust
from amplifier_hooks.record.recorder import Recorder
from amplifier_hooks.result import ROLES, ContextInjection
from amplifier_hooks.testing import CollectingAudit, ManualClock, RecordingContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.result import UserMessage

amounts: Final = st.integers(0, 40)
limits: Final = st.builds(
    InjectionLimits,
    per_turn=st.none() | st.integers(0, 60),
    per_session=st.none() | st.integers(0, 120),
    items_per_turn=st.none() | st.integers(0, 8),
    overflow=st.sampled_from(["trim", "reject"]),
)


class Spending(RuleBasedStateMachine):
    """Reserving and settling in any order, with turns beginning in between."""

    grants = Bundle[Reservation]("grants")

    @initialize(limits=limits)
    def begin(self, limits: InjectionLimits) -> None:
        """Begin a session."""
        self.budget = Budget(limits)
        self.reserved: dict[Reservation, int] = {}
        self.written = self.ever_written = self.texts = 0

    @rule(target=grants, wanted=amounts)
    def reserve(self, wanted: int) -> Reservation:
        """Reserve some tokens."""
        grant = self.budget.reserve(wanted)
        assert grant.tokens + grant.over == wanted
        self.reserved[grant] = grant.tokens
        return grant

    @rule(target=grants)
    def reserve_rest(self) -> Reservation:
        """Reserve all tokens that are left."""
        grant = self.budget.reserve_rest()
        assert not grant.full
        self.reserved[grant] = grant.tokens
        return grant

    @rule(grant=consumes(grants), part=st.floats(0, 1))
    def settle(self, grant: Reservation, part: float) -> None:
        """Use some reserved tokens, as a delivery does when it writes."""
        used = int(self.reserved.pop(grant) * part)
        self.budget.settle(grant, used)
        self.written += used
        self.ever_written += used

    @rule(wanted=amounts)
    def take_items(self, wanted: int) -> None:
        """Take items for some texts."""
        taken = self.budget.take_items(wanted)
        assert 0 <= taken <= wanted
        self.texts += taken

    @rule()
    def new_turn(self) -> None:
        """Begin a new turn."""
        self.budget.reset_turn()
        self.written = self.texts = 0

    @invariant()
    def never_more(self) -> None:
        """Check that the written and the reserved tokens of a turn are within the limits, and the counters agree."""
        limits, reserved = self.budget.limits, sum(self.reserved.values())
        assert self.budget.turn_tokens == self.written + reserved
        assert self.budget.session_tokens == self.ever_written + reserved
        assert limits.per_turn is None or self.budget.turn_tokens <= limits.per_turn
        assert limits.per_session is None or self.budget.session_tokens <= limits.per_session
        assert limits.items_per_turn is None or self.texts <= limits.items_per_turn


class TestSpending(Spending.TestCase):  # type: ignore[misc, valid-type]  # Hypothesis makes the class
    """The state machine as a test case that pytest finds."""

    @pytest.mark.rule("INJ-3")
    def runTest(self) -> None:  # noqa: N802  # unittest's name
        """The limits hold for reserving, settling and new turns in any order."""
        super().runTest()


# -- all that spends it ------------------------------------------------------------------------------------------------


class Odd:
    """A counter of words and brackets: a whole may have more, or fewer, tokens than its parts."""

    def count(self, text: str) -> int:
        """Return a possible count: from 1 for 128 bytes to 1 for one."""
        size = len(text.encode("utf-8", "surrogatepass"))
        found = len(re.findall(r"\w+|⟦", text)) + 3 * text.count("\n\n⟦") - text.count("o\n")
        return min(size, max(-(-size // 128), found))


class Uneven:
    """A counter that answers at an unforeseeable moment."""

    def __init__(self, counter: Any, seed: int) -> None:
        self._counter = counter
        self._random = random.Random(seed)

    async def count_async(self, text: str, limit: int | None = None) -> Any:
        """Count after a random wait."""
        await self.dawdle()
        count = await self._counter.count_async(text, limit)
        await self.dawdle()
        return count

    async def fit_async(self, text: str, limit: int) -> Any:
        """Fit the text after a random wait."""
        await self.dawdle()
        return await self._counter.fit_async(text, limit)

    async def dawdle(self) -> None:
        """Let others go first, or not."""
        for _ in range(self._random.randrange(3)):
            await asyncio.sleep(0)


def any_source(_hook: str, _event: str) -> SourceTrust:
    """Return full trust: every hook speaks for its host."""
    return SourceTrust()


def counters() -> dict[str, Any]:
    """Return counters by name: exact, estimated, in bytes, and a host's own."""
    return {
        "o200k": counter_for(),
        "estimate": counter_for("claude-opus-4-7"),
        "bytes": counter_for("bytes"),
        "odd": guard_counter(Odd(), run=DaemonPool().run),
    }


contents: Final = st.one_of(
    st.text(min_size=1, max_size=40),
    st.lists(
        st.sampled_from(["one two", "漢字", "⟦x⟧", "\u202e", "\ud800", "foo", " ", "{}"]), min_size=1, max_size=60
    ).map("\n".join),
    st.tuples(st.sampled_from(["a", "word ", "é", "⟧", "\u200b", "😀"]), st.integers(1, 400)).map(
        lambda run: run[0] * run[1]
    ),
)
injections: Final = st.builds(
    ContextInjection,
    content=contents,
    role=st.sampled_from(ROLES),
    ephemeral=st.booleans(),
    append_to_last_tool_result=st.booleans(),
    hook_name=st.sampled_from(["lint", "types", "a ⟦b⟧", "Ω" * 30]),
    event=st.sampled_from(["tool:post", "prompt:submit"]),
)
emits: Final = st.lists(
    st.tuples(st.sampled_from(["deliver", "deliver", "quote"]), st.lists(injections, min_size=1, max_size=5)),
    max_size=8,
)


async def spend(injector: Injector, emits: Sequence[tuple[str, list[ContextInjection]]]) -> list[str]:
    """Deliver all these texts at once, and return the quoted ones."""

    async def one(way: str, items: list[ContextInjection]) -> str:
        if way == "deliver":
            await injector.deliver(items)
        else:
            return "\n\n".join(await injector.quote(items))
        return ""

    return list(await asyncio.gather(*(one(*emit) for emit in emits)))


@pytest.mark.rule("INJ-3")
@given(
    name=st.sampled_from(["o200k", "estimate", "bytes", "odd"]),
    limits=st.builds(
        InjectionLimits,
        per_turn=st.integers(0, 400),
        per_session=st.none() | st.integers(0, 400),
        overflow=st.sampled_from(["trim", "reject"]),
    ),
    emits=emits,
    seed=st.integers(0, 9),
)
def test_never_exceeded(name: str, limits: InjectionLimits, emits: Any, seed: int) -> None:
    """However many deliveries run at once, the messages they write have no more tokens than there were."""

    async def run() -> None:
        counter, context, audit, clock = counters()[name], RecordingContext(), CollectingAudit(), ManualClock()
        told: list[UserMessage] = []

        async def tell(message: UserMessage) -> None:
            told.append(message)

        budget = Budget(limits)
        injector = Injector(
            context,
            Recorder(audit, clock, "s", "t"),
            clock,
            "t",
            budget,
            Uneven(counter, seed),
            any_source,
            tell,
            "mark",
        )
        denials = await spend(injector, emits)
        written = [*context.texts, *denials, *(message["content"] for message in injector.take_ephemeral())]
        spent = sum([(await counter.count_async(text)).tokens for text in written])
        assert spent == budget.turn_tokens == budget.session_tokens
        assert spent <= min(
            budget.limits.per_turn or 0, limits.per_session if limits.per_session is not None else spent
        )
        # Every text is written, or its loss is reported; a text that is cut says so itself.
        wanted = sum(len(items) for _, items in emits)
        refused = sum(facts["count"] for facts in audit.facts("injection.refused"))
        assert len(audit.facts("injection")) + refused == wanted
        assert len(injector.injections) == len(audit.facts("injection"))
        cut = sum(text.count("⟦trimmed · kept ") for text in written)
        assert cut == len(audit.facts("injection.trimmed")) == sum(item.trimmed for item in injector.injections)
        assert (limits.overflow == "trim") or not cut
        assert bool(told) == bool(audit.facts("injection.refused") or audit.facts("injection.trimmed"))

    asyncio.run(run())


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize("overflow", ["trim", "reject"])
@pytest.mark.parametrize("name", ["o200k", "estimate", "bytes", "odd"])
async def test_many_at_once(name: str, overflow: Any) -> None:
    """A hundred deliveries at once, with turns beginning in between, never write more than the turns had."""
    counter, context, clock = counters()[name], RecordingContext(), ManualClock()

    async def tell(_message: UserMessage) -> None:
        await asyncio.sleep(0)

    budget = Budget(InjectionLimits(per_turn=300, items_per_turn=None, overflow=overflow))
    injector = Injector(
        context,
        Recorder(CollectingAudit(), clock, "s", "t"),
        clock,
        "t",
        budget,
        Uneven(counter, 1),
        any_source,
        tell,
        "mark",
    )
    for turn in range(1, 4):
        await asyncio.gather(
            *(
                injector.deliver([ContextInjection(content=f"finding {number}\n" * (number % 9 + 1), hook_name="lint")])
                for number in range(100)
            )
        )
        spent = sum([(await counter.count_async(text)).tokens for text in context.texts])
        assert 300 * turn * 0.5 < spent <= 300 * turn
        assert budget.turn_tokens <= 300
        injector.new_turn()
