"""Tokens and money: no further model call once a turn, a session or a day has used up its limit.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import CostGuard

registry = HookRegistry()
CostGuard.from_config({"tokens_per_turn": 1000, "then": "deny"}).register(registry)
await registry.emit("llm:post", {"response": {"usage": {"input_tokens": 900, "output_tokens": 200}}})
print((await registry.emit("llm:pre", {"messages": [], "model": "m"})).reason)
```

```output
this turn has used 1,100 tokens, and the limit is 1,000
```
"""

from __future__ import annotations

from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from attrs import define, field
from pydantic import Field

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.events import LLM_POST, LLM_PRE, SESSION_END
from amplifier_hooks.library.parts.daily_usage import TABLES, DailyUsage, Usage, tokens_of
from amplifier_hooks.library.parts.hook_database import HookDatabase, StoreAddress, database_opener
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, PerSession, Point, ReadyMade
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.storage.database import Database, Migrations


BEFORE: Final = 95
AFTER: Final = 500

MILLION: Final = 1_000_000

MODELS_KEPT: Final = 16
"""Models of one session that are considered if an answer does not name its model."""

Money = Annotated[Decimal, Field(ge=0, allow_inf_nan=False, max_digits=20)]


class Price(HookSettings):
    """Prices of a million tokens of a model."""

    input: Money = Field(default=Decimal(0), description="for a million tokens that the model reads")
    output: Money = Field(default=Decimal(0), description="for a million tokens that it writes")
    cache_read: Money | None = Field(default=None, description="for those it reads from a cache; left out, as `input`")
    cache_write: Money | None = Field(default=None, description="for those put into a cache; left out, as `input`")


class CostGuardSettings(HookSettings):
    """Limits of tokens and money."""

    tokens_per_turn: int | None = Field(default=None, ge=1, description="tokens in one turn")
    tokens_per_session: int | None = Field(default=2_000_000, ge=1, description="tokens in one session")
    tokens_per_day: int | None = Field(default=None, ge=1, description="tokens of a tenant in one day, UTC")
    money_per_turn: Money | None = Field(default=None, description="money in one turn")
    money_per_session: Money | None = Field(default=None, description="money in one session")
    money_per_day: Money | None = Field(default=None, description="money of a tenant in one day, UTC")
    prices: dict[str, Price] = Field(
        default_factory=dict, description="what models cost, by name or glob (`claude-*`); the first that fits counts"
    )
    currency: str = Field(default="USD", max_length=16, description="what the prices are in; only for what is said")
    then: Literal["ask", "deny"] = Field(default="ask", description="what happens at a limit")
    store: StoreAddress | None = Field(
        default=None,
        description="where days are kept over a restart, and shared: a file, `:memory:`, `postgresql://…`; "
        "empty, a file of yours; left out, nowhere",
    )


@define
class _Spending:
    """Tokens and money that one session has used."""

    session: Usage = field(factory=Usage)
    turn: Usage = field(factory=Usage)
    number: object = None
    """The turn that `turn` counts."""
    models: dict[str, None] = field(factory=dict)
    """Models that the session was about to call, the latest one last."""

    def in_turn(self, turn: object) -> _Spending:
        """Return this value with `turn` counting the given turn, which may be a new one."""
        if turn != self.number:
            self.number, self.turn = turn, Usage()
        return self


class CostGuard(ReadyMade[CostGuardSettings]):
    """Asks, or denies, before a model call once tokens or money of the turn, the session or the day are used up.

    The provider states in its answer how much was used. The call that reaches a limit is over by then, so calls that
    are under way can exceed a limit. If money is limited, a model without a price counts as a limit that is reached. An
    answer whose model has no name or no price is charged at the highest price among the models that its session has
    called; if none of those has a price, at the highest of all prices. Days are those of this process, which starts at
    zero, unless there is a `store`; if a day is limited and cannot be read from the store, the limit counts as reached.
    """

    name = "cost_guard"
    Settings = CostGuardSettings

    def __init__(
        self,
        settings: CostGuardSettings | None = None,
        *,
        clock: Clock | None = None,
        database: Callable[[Migrations], Database] | None = None,
    ) -> None:
        super().__init__(settings)
        limits = self.settings
        self._database: HookDatabase | None = None
        if database is not None or limits.store is not None:
            self._database = HookDatabase(
                self.name, TABLES, database or database_opener(limits.store or "", StateFolder().costs)
            )
        self._sessions: PerSession[_Spending] = PerSession(_Spending)
        self._days = DailyUsage(clock or SystemClock(), self._database)
        self._once = Once()
        self._daily = limits.tokens_per_day is not None or limits.money_per_day is not None
        self._priced = any(
            one is not None for one in (limits.money_per_turn, limits.money_per_session, limits.money_per_day)
        )

    def points(self) -> tuple[Point, ...]:
        """Return a gate before a model call, a hook that counts its answer, and an observer of the session's end."""
        return (
            Point(event=LLM_PRE, call=self.before, intent="gate", priority=BEFORE, recheck=False),
            Point(event=LLM_POST, call=self.on_answer, intent="on", priority=AFTER),
            Point(event=SESSION_END, call=self.on_session_end, intent="observe", priority=AFTER),
        )

    def usage_of(self, data: Mapping[str, Any]) -> dict[str, Usage]:
        """Return the usage of the payload's `turn` and `session`, and of its tenant in the `day`."""
        spent = self._sessions.of(data).in_turn(data.get("turn"))
        return {"turn": spent.turn, "session": spent.session, "day": self._days.known_usage(_tenant(data))}

    async def close(self) -> None:
        """Close the store."""
        if self._database is not None:
            await self._database.close()

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Let a model be called while no limit is reached."""
        self._note_model(data)
        reached = await self._unreadable_day(data) or next(self._reached_limits(data), None)
        if reached is None:
            return CONTINUE
        what, reason = reached
        if self.settings.then == "deny":
            return HookResult.deny(reason)
        return HookResult.ask(
            f"{reason[0].upper()}{reason[1:]}. Call the model all the same?",
            options=("Allow once", "Allow always", "Deny"),
            approval_key=f"{self.name} {what}",
        )

    async def on_answer(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Count the usage that an answer states."""
        parts = tokens_of(data)
        if parts is None:
            return self._tell_user(data, "The model's answer does not say what it used, so cost_guard cannot count it.")
        price, problem = self._price_of(parts, data)
        usage = Usage(sum(parts.values()), _cost(parts, price) if price else Decimal(0))
        spent = self._sessions.of(data).in_turn(data.get("turn"))
        spent.turn.add(usage)
        spent.session.add(usage)
        try:
            await self._days.add(_tenant(data), usage)
        except StoreUnavailable as error:
            problem = f"cost_guard counts this day without its store, which cannot be written: {error}"
        return self._tell_user(data, problem) if problem else CONTINUE

    async def on_session_end(self, event: str, data: Mapping[str, Any], outcome: object) -> None:
        """Forget the session; the day stays."""
        self._sessions.forget(data)
        self._once.forget(data)

    def _tell_user(self, data: Mapping[str, Any], problem: str) -> HookResult:
        """Tell the user, once in a session."""
        if not self._once.is_first(data, problem):
            return CONTINUE
        return HookResult.proceed(user_message=problem, user_message_level="warning")

    async def _unreadable_day(self, data: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return a limited day that cannot be read, with a message, or None."""
        if self._daily:
            try:
                await self._days.refresh(_tenant(data))
            except StoreUnavailable as error:
                return "day", f"the usage of this day cannot be read: {error}"
        return None

    def _reached_limits(self, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield every limit that is reached, with a message."""
        limits, currency = self.settings, self.settings.currency
        for span, usage in self.usage_of(data).items():
            tokens, money = getattr(limits, f"tokens_per_{span}"), getattr(limits, f"money_per_{span}")
            whose = f"this {span}"
            if tokens is not None and usage.tokens >= tokens:
                yield f"tokens {span}", f"{whose} has used {usage.tokens:,} tokens, and the limit is {tokens:,}"
            if money is not None and usage.money >= money:
                used = usage.money.quantize(Decimal("0.0001"))
                yield f"money {span}", f"{whose} has cost {used} {currency}, and the limit is {money} {currency}"
        model = _model(data)
        if self._priced and self._price(model) is None:
            what = f"for {model[:80]!r}" if model else "where no model is named"
            yield f"price {model}", f"there is no price {what}, so the cost cannot be limited; add it to prices"

    def _note_model(self, data: Mapping[str, Any]) -> None:
        """Remember the model that a session is about to call."""
        model, models = _model(data), self._sessions.of(data).models
        if model:
            models.pop(model, None)
            models[model] = None
        if len(models) > MODELS_KEPT:
            del models[next(iter(models))]

    def _price_of(self, parts: Mapping[str, int], data: Mapping[str, Any]) -> tuple[Price | None, str]:
        """Return the price of an answer, and a message for the user if the price is not that of the model it names."""
        model = _model(data)
        price = self._price(model)
        if price is not None or not self.settings.prices:
            return price, ""
        called = [price for name in self._sessions.of(data).models if (price := self._price(name))]
        dearest = max(called or self.settings.prices.values(), key=lambda price: _cost(parts, price))
        named = f"names {model[:80]!r}, which has no price" if model else "does not say which model it is from"
        which = "of the models this session has called" if called else "there is a price for"
        return dearest, f"A model's answer {named}; cost_guard counts it as the dearest {which}."

    def _price(self, model: str) -> Price | None:
        prices = self.settings.prices
        exact = prices.get(model)
        return exact or next((price for name, price in prices.items() if fnmatchcase(model, name)), None)


def _tenant(data: Mapping[str, Any]) -> str:
    return str(data.get("tenant_id") or "")


def _model(data: Mapping[str, Any]) -> str:
    """Return the model of a call, or an empty text if the call names none."""
    return str(data.get("model") or "")


def _cost(parts: Mapping[str, int], price: Price) -> Decimal:
    """Return the exact cost of these tokens."""
    per_million = {
        "input": price.input,
        "output": price.output,
        "cache_read": price.input if price.cache_read is None else price.cache_read,
        "cache_write": price.input if price.cache_write is None else price.cache_write,
    }
    return sum((count * per_million[part] for part, count in parts.items()), Decimal(0)) / MILLION
