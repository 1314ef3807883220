from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library.cost_guard import TABLES, CostGuard, CostGuardSettings
from amplifier_hooks.storage.database import Script, StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase
from amplifier_hooks.testing import CollectingDisplay, ManualClock, ScriptedApprover

T = TypeVar("T")

pytestmark = pytest.mark.rule("LIB-6")

PRICES = {"small-*": {"input": "3", "output": "15", "cache_read": "0.3"}, "large": {"input": 15, "output": 75}}


def spending(**settings: Any) -> tuple[CostGuard, HookRegistry, ManualClock]:
    """Return the hook, its registry and its clock."""
    registry, clock = HookRegistry(), ManualClock(datetime(2026, 1, 1, 23, tzinfo=UTC))
    guard = CostGuard(CostGuardSettings.model_validate(settings), clock=clock)
    guard.register(registry)
    return guard, registry, clock


async def answer(registry: HookRegistry, usage: object, **more: Any) -> Any:
    """Emit the answer of a model."""
    payload = {"session_id": "s", "turn": 1, "model": "small-1", "response": {"usage": usage}}
    return await registry.emit("llm:post", {**payload, **more})


async def call(registry: HookRegistry, **more: Any) -> Any:
    """Return the outcome before a model is called."""
    return await registry.emit("llm:pre", {"session_id": "s", "turn": 1, "model": "small-1", "messages": [], **more})


async def test_each_span_for_itself() -> None:
    """Turn, session and day have limits of their own; a new one begins from nothing, and tenants are apart."""
    _, registry, clock = spending(tokens_per_turn=10, tokens_per_session=25, tokens_per_day=30, then="deny")
    use = {"input_tokens": 6, "output_tokens": 6}
    await answer(registry, use)
    assert (await call(registry)).reason == "this turn has used 12 tokens, and the limit is 10"
    assert not (await call(registry, turn=2)).denied
    await answer(registry, use, turn=2)
    await answer(registry, {"input_tokens": 1}, turn=3)
    assert (await call(registry, turn=4)).reason == "this session has used 25 tokens, and the limit is 25"
    assert not (await call(registry, session_id="t")).denied
    await answer(registry, {"output_tokens": 5}, session_id="t")
    assert (await call(registry, session_id="u")).reason == "this day has used 30 tokens, and the limit is 30"
    assert not (await call(registry, session_id="u", tenant_id="acme")).denied
    clock.advance(3_600)
    assert not (await call(registry, session_id="u")).denied


async def test_money_is_exact() -> None:
    """Prices are decimals by model; a tenth of a cent is a tenth of a cent, however often it is added."""
    guard, registry, _ = spending(money_per_session="0.01", prices=PRICES, then="deny")
    for _ in range(10):
        assert not (await call(registry)).denied
        await answer(
            registry, {"prompt_tokens": 100, "completion_tokens": 46, "prompt_tokens_details": {"cached_tokens": 0}}
        )
    assert (await guard.usage_of({"session_id": "s"}))["session"].money == Decimal("0.0099")
    await answer(registry, SimpleNamespace(input_tokens=0, output_tokens=0, cache_read_input_tokens=334))
    assert (await call(registry)).reason == "this session has cost 0.0100, and the limit is 0.01"


async def test_what_comes_from_a_cache() -> None:
    """Cached tokens cost their own price, whether a provider counts them among those it read or beside them."""
    for usage in (
        {"input_tokens": 1_000_000, "input_tokens_details": {"cached_tokens": 500_000}, "output_tokens": 0},
        {"input_tokens": 500_000, "cache_read_input_tokens": 500_000, "output_tokens": 0},
    ):
        guard, registry, _ = spending(prices=PRICES)
        await answer(registry, usage)
        spent = (await guard.usage_of({"session_id": "s"}))["session"]
        assert (spent.tokens, spent.money) == (1_000_000, Decimal("1.65"))


async def test_a_model_without_a_price() -> None:
    """With limited money, a model without a price counts as a limit that is reached; without a limit it does not."""
    _, registry, _ = spending(money_per_day=5, prices=PRICES, then="deny")
    assert "there is no price for 'huge'" in (await call(registry, model="huge")).reason
    assert not (await call(registry, model="large")).denied
    _, registry, _ = spending(tokens_per_day=5, then="deny")
    assert not (await call(registry, model="huge")).denied


@pytest.mark.parametrize(("model", "money"), [(None, "15"), ("unheard-of", "15"), ("small-1", "3")])
async def test_an_answer_without_a_price(model: str | None, money: str) -> None:
    """An answer of an unknown model costs as much as the dearest model; the user is told once."""
    guard, registry, _ = spending(money_per_session=1_000, prices=PRICES)
    messages = [(await answer(registry, {"input_tokens": 1_000_000}, model=model)).user_message for _ in range(2)]
    assert (await guard.usage_of({"session_id": "s"}))["session"].money == 2 * Decimal(money)
    assert (messages[0] is None) == (model == "small-1")
    assert "counts it as the dearest" in (messages[0] or "counts it as the dearest")
    assert messages[1] is None


async def test_a_day_over_a_restart(tmp_path: Path) -> None:
    """With a store a day goes on after a restart and across processes; a new day begins at zero."""
    place = str(tmp_path / "costs.db")
    settings = {"tokens_per_day": 20, "money_per_day": 1, "prices": PRICES, "store": place, "then": "deny"}
    first, registry, _ = spending(**settings)
    await answer(registry, {"input_tokens": 12})
    second, elsewhere, clock = spending(**settings)
    assert not (await call(elsewhere)).denied
    await answer(elsewhere, {"output_tokens": 8})
    assert (await call(registry)).reason == "this day has used 20 tokens, and the limit is 20"
    assert (await first.usage_of({}))["day"].money * 1_000_000 == 12 * 3 + 8 * 15
    clock.advance(3_600)
    assert not (await call(elsewhere)).denied
    for guard in (first, second):
        await guard.close()
        await guard.close()


async def test_a_day_that_cannot_be_read(tmp_path: Path) -> None:
    """While the store is away, a limited day counts as a limit that is reached, and no usage is forgotten."""
    place = tmp_path / "folder"
    place.mkdir()
    _, registry, _ = spending(tokens_per_day=20, store=str(place), then="deny")
    said = [(await answer(registry, {"input_tokens": 5})).user_message for _ in range(2)]
    assert "counts this day without its store" in (said[0] or "")
    assert "the usage of this day cannot be read" in ((await call(registry)).reason or "")
    _, registry, _ = spending(tokens_per_session=20, store=str(place), then="deny")
    assert not (await call(registry)).denied


class FullDisk(MemoryDatabase):
    """A database that cannot be written while it is full."""

    full = True

    async def run(self, script: Script[T]) -> T:
        """Run a script, unless the disk is full."""
        if self.full:
            raise StoreUnavailable("the disk is full")
        return await super().run(script)


async def test_usage_that_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage that the store did not take is written with the next answer, once."""
    monkeypatch.setattr("amplifier_hooks.library.parts.hook_database.AGAIN", 0.0)
    disk, registry = FullDisk(TABLES), HookRegistry()
    guard = CostGuard(CostGuardSettings(tokens_per_day=100), database=lambda _tables: disk)
    guard.register(registry)
    await answer(registry, {"input_tokens": 5})
    assert (await guard.usage_of({}))["day"].tokens == 5
    disk.full = False
    for tokens in (7, 1):
        await answer(registry, {"input_tokens": tokens})
    assert (await guard.usage_of({}))["day"].tokens == 13
    await guard.close()


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": -1}, {"input_tokens": True}, {"output_tokens": 10**15}, "x"]
)
async def test_an_answer_that_does_not_say(usage: object) -> None:
    """An answer without a plausible usage is not counted; the user is told so once a session."""
    guard, registry, _ = spending()
    messages = [(await answer(registry, usage)).user_message for _ in range(3)]
    assert messages == ["The model's answer does not say what it used, so cost_guard cannot count it.", None, None]
    assert (await guard.usage_of({"session_id": "s"}))["session"].tokens == 0


async def test_a_person_decides() -> None:
    """By default a person is asked at a limit; "allow always" is for this limit of the session."""
    _, registry, _ = spending(tokens_per_session=10)
    approver = ScriptedApprover("Allow once", "Allow always", "Deny")
    async with SessionCoordinator(hooks=registry, approvals=approver, display=CollectingDisplay()) as session:
        outcomes = [await session.call_model(lambda messages: {"usage": {"input_tokens": 10}}) for _ in range(4)]
    assert [outcome.ok for outcome in outcomes] == [True] * 4
    assert [request.prompt for request in approver.requests] == [
        "This session has used 10 tokens, and the limit is 10. Call the model all the same?",
        "This session has used 20 tokens, and the limit is 10. Call the model all the same?",
    ]


async def test_the_end_of_a_session() -> None:
    """A session that ended and is resumed goes on with its usage."""
    guard, registry, _ = spending(tokens_per_day=100)
    await answer(registry, {"input_tokens": 7})
    await registry.emit("session:end", {"session_id": "s"})
    used = await guard.usage_of({"session_id": "s"})
    assert (used["session"].tokens, used["day"].tokens) == (7, 7)


@pytest.mark.parametrize("money", ["NaN", "Infinity", "-1", "a lot"])
def test_money_that_is_none(money: str) -> None:
    """A limit or a price that is no amount of money is refused."""
    with pytest.raises(InvalidHookSettings):
        CostGuard.from_config({"money_per_day": money})
    with pytest.raises(InvalidHookSettings):
        CostGuard.from_config({"prices": {"m": {"input": money}}})


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=20))
async def test_totals_are_sums(calls: list[tuple[int, int]]) -> None:
    """For all calls, tokens and money are exactly their sums."""
    guard, registry, _ = spending(prices=PRICES, tokens_per_session=None)
    for read, wrote in calls:
        await answer(registry, {"input_tokens": read, "output_tokens": wrote})
    spent = (await guard.usage_of({"session_id": "s"}))["session"]
    assert spent.tokens == sum(read + wrote for read, wrote in calls)
    assert spent.money * 1_000_000 == sum(3 * read + 15 * wrote for read, wrote in calls)


async def test_a_model_that_a_later_hook_chooses() -> None:
    """A model without a price counts as a limit that is reached, also where a later hook chooses it."""
    _, registry, _ = spending(money_per_session="1", prices=PRICES, then="deny")
    registry.on("llm:pre", lambda event, data: HookResult.modify({"model": "unpriced"}), priority=400)
    async with SessionCoordinator(registry, model="large") as session:
        outcome = await session.call_model(lambda messages, model: pytest.fail(f"{model} was called"), [])
    assert (outcome.denied, outcome.by) == (True, "cost_guard")
