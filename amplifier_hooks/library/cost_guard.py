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

from datetime import timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from attrs import define, field, frozen
from pydantic import Field

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.events import LLM_POST, LLM_PRE
from amplifier_hooks.library.parts.hook_database import HookDatabase, StoreAddress, database_opener
from amplifier_hooks.library.parts.ready_made import (
    SESSIONS_KEPT,
    HookSettings,
    Once,
    PerSession,
    Point,
    ReadyMade,
    tokens_of,
)
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.storage.database import Migrations, Script, Statement, StoreUnavailable
from amplifier_hooks.storage.state_folder import StateFolder
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.storage.database import Database


BEFORE: Final = 95
AFTER: Final = 500

MILLION: Final = 1_000_000

DAYS_KEPT: Final = 7
"""Days that stay in the store. Clocks of several machines differ, and the current day of any of them must stay."""

TABLES: Final = Migrations(
    component="cost_guard",
    steps=(
        (
            """CREATE TABLE {schema}.cost_day (
                tenant TEXT NOT NULL,
                date TEXT NOT NULL,
                tokens BIGINT NOT NULL,
                money TEXT NOT NULL,
                PRIMARY KEY (tenant, date)
            )""",
        ),
    ),
)
ADD_TOKENS: Final = (
    "INSERT INTO {schema}.cost_day AS kept (tenant, date, tokens, money) VALUES ($1, $2, $3, '0') "
    "ON CONFLICT (tenant, date) DO UPDATE SET tokens = kept.tokens + excluded.tokens RETURNING tokens, money"
)
SET_MONEY: Final = "UPDATE {schema}.cost_day SET money = $3 WHERE tenant = $1 AND date = $2"
READ_DAY: Final = "SELECT tokens, money FROM {schema}.cost_day WHERE tenant = $1 AND date = $2"
PURGE: Final = "DELETE FROM {schema}.cost_day WHERE date < $1"

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
    then: Literal["ask", "deny"] = Field(default="ask", description="what happens at a limit")
    store: StoreAddress | None = Field(
        default=None,
        description="where days are kept over a restart, and shared: a file, `:memory:`, `postgresql://…`; "
        "empty, a file of yours; left out, nowhere",
    )


@frozen
class Usage:
    """Tokens and their cost."""

    tokens: int = 0
    money: Decimal = field(factory=Decimal)

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.tokens + other.tokens, self.money + other.money)


class _DailyUsage:
    """The days of all tenants, by the clock's date in UTC. Without a database they are those of this process."""

    def __init__(self, clock: Clock, database: HookDatabase | None = None) -> None:
        self._clock = clock
        self._database = database
        self._unwritten: dict[tuple[str, str], Usage] = {}
        """Usage that is not in the store, by tenant and date."""

    async def of(self, tenant: str) -> Usage:
        """Return a tenant's usage of today. Raise `StoreUnavailable`."""
        day = self._today(tenant)
        rows = [] if self._database is None else await self._database.fetch(READ_DAY, *day)
        stored = Usage(rows[0][0], Decimal(rows[0][1])) if rows else Usage()
        return stored + self._unwritten.get(day, Usage())

    async def add(self, tenant: str, usage: Usage) -> None:
        """Count this usage, and write it together with usage that could not be written before.

        Raise `StoreUnavailable`; the usage is counted nevertheless. If the call is cancelled, the usage is written once
        more with the next answer: it may then count twice, but never gets lost.
        """
        day = self._today(tenant)
        usage += self._unwritten.pop(day, Usage())
        written = False
        try:
            if self._database is not None:
                await self._database.run(self._add_usage(*day, usage))
                written = True
        finally:
            if not written:
                self._unwritten[day] = self._unwritten.pop(day, Usage()) + usage
            if len(self._unwritten) > SESSIONS_KEPT:
                del self._unwritten[next(iter(self._unwritten))]

    def _add_usage(self, tenant: str, date: str, usage: Usage) -> Script[None]:
        # The first statement locks the row, so that no other process changes the money between reading and writing.
        ((_, money),) = yield Statement(ADD_TOKENS, (tenant, date, usage.tokens))
        yield Statement(SET_MONEY, (tenant, date, str(Decimal(money) + usage.money)))
        oldest = self._clock.now().date() - timedelta(days=DAYS_KEPT)
        yield Statement(PURGE, (oldest.isoformat(),))

    def _today(self, tenant: str) -> tuple[str, str]:
        return for_log(tenant), self._clock.now().date().isoformat()


@define
class _Spending:
    """Tokens and money that one session has used."""

    session: Usage = field(factory=Usage)
    turn: Usage = field(factory=Usage)
    number: object = None
    """The turn that `turn` counts."""

    def in_turn(self, turn: object) -> _Spending:
        """Return this value with `turn` counting the given turn, which may be a new one."""
        if turn != self.number:
            self.number, self.turn = turn, Usage()
        return self


class CostGuard(ReadyMade[CostGuardSettings]):
    """Asks, or denies, before a model call once tokens or money of the turn, the session or the day are used up.

    The provider states in its answer how much was used. The call that reaches a limit is over by then, so calls that
    are under way can exceed a limit. If money is limited, a model without a price counts as a limit that is reached. An
    answer whose model has no name or no price is charged at the highest of all prices. Days are those of this process,
    which starts at zero, unless there is a `store`; if a day is limited and cannot be read from the store, the limit
    counts as reached.
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
        self._days = _DailyUsage(clock or SystemClock(), self._database)
        self._once = Once()
        self._daily = limits.tokens_per_day is not None or limits.money_per_day is not None
        self._priced = any(
            one is not None for one in (limits.money_per_turn, limits.money_per_session, limits.money_per_day)
        )

    def points(self) -> tuple[Point, ...]:
        """Return a gate before a model call, and a hook that counts its answer."""
        return (
            Point(event=LLM_PRE, call=self.before, intent="gate", priority=BEFORE),
            Point(event=LLM_POST, call=self.on_answer, intent="on", priority=AFTER),
        )

    async def usage_of(self, data: Mapping[str, Any]) -> dict[str, Usage]:
        """Return the usage of the payload's `turn` and `session`, and of its tenant in the `day` if days are limited.

        Raise `StoreUnavailable` if a limited day cannot be read.
        """
        spent = self._sessions.of(data).in_turn(data.get("turn"))
        spans = {"turn": spent.turn, "session": spent.session}
        return {**spans, "day": await self._days.of(_tenant(data))} if self._daily else spans

    async def close(self) -> None:
        """Close the store."""
        if self._database is not None:
            await self._database.close()

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Let a model be called while no limit is reached."""
        reached: tuple[str, str] | None
        try:
            reached = next(self._reached_limits(await self.usage_of(data), _model(data)), None)
        except StoreUnavailable as error:
            reached = "day", f"the usage of this day cannot be read: {error}"
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
        spent.turn += usage
        spent.session += usage
        try:
            await self._days.add(_tenant(data), usage)
        except StoreUnavailable as error:
            problem = f"cost_guard counts this day without its store, which cannot be written: {error}"
        return self._tell_user(data, problem) if problem else CONTINUE

    def _tell_user(self, data: Mapping[str, Any], problem: str) -> HookResult:
        """Tell the user, once in a session."""
        if not self._once.is_first(data, problem):
            return CONTINUE
        return HookResult.proceed(user_message=problem, user_message_level="warning")

    def _reached_limits(self, used: Mapping[str, Usage], model: str) -> Iterator[tuple[str, str]]:
        """Yield every limit that is reached, with a message."""
        limits = self.settings
        for span, usage in used.items():
            tokens, money = getattr(limits, f"tokens_per_{span}"), getattr(limits, f"money_per_{span}")
            whose = f"this {span}"
            if tokens is not None and usage.tokens >= tokens:
                yield f"tokens {span}", f"{whose} has used {usage.tokens:,} tokens, and the limit is {tokens:,}"
            if money is not None and usage.money >= money:
                cost = usage.money.quantize(Decimal("0.0001"))
                yield f"money {span}", f"{whose} has cost {cost}, and the limit is {money}"
        if self._priced and self._price(model) is None:
            what = f"for {model[:80]!r}" if model else "where no model is named"
            yield f"price {model}", f"there is no price {what}, so the cost cannot be limited; add it to prices"

    def _price_of(self, parts: Mapping[str, int], data: Mapping[str, Any]) -> tuple[Price | None, str]:
        """Return the price of an answer, and a message for the user if the price is not that of the model it names."""
        model = _model(data)
        price = self._price(model)
        if price is not None or not self.settings.prices:
            return price, ""
        dearest = max(self.settings.prices.values(), key=lambda price: _cost(parts, price))
        named = f"names {model[:80]!r}, which has no price" if model else "does not say which model it is from"
        return dearest, f"A model's answer {named}; cost_guard counts it as the dearest there is a price for."

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
