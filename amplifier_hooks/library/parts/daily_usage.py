"""The usage of tenants in a day, and the tokens of one answer as its provider states them.

Usage is counted in this process. With a store a day survives a restart, and processes that share the store share the
day. Usage that could not be written is counted here, and written with the next answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from amplifier_hooks.library.parts.ready_made import SESSIONS_KEPT
from amplifier_hooks.storage.database import Migrations, Script, Statement
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from amplifier_hooks.library.parts.hook_database import HookDatabase
    from amplifier_hooks.ports import Clock


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
READ: Final = "SELECT tokens, money FROM {schema}.cost_day WHERE tenant = $1 AND date = $2"
PURGE: Final = "DELETE FROM {schema}.cost_day WHERE date < $1"


@define
class Usage:
    """Tokens and their cost."""

    tokens: int = 0
    money: Decimal = field(factory=Decimal)

    def add(self, other: Usage) -> None:
        """Add other usage to this."""
        self.tokens += other.tokens
        self.money += other.money

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.tokens + other.tokens, self.money + other.money)


@define
class _Day:
    """One day of one tenant."""

    date: str
    stored: Usage = field(factory=Usage)
    """Usage in the store at the last look."""
    own: Usage = field(factory=Usage)
    """Usage that is not in the store, or not yet."""
    moving: Usage = field(factory=Usage)
    """Usage that is being written to the store."""


class DailyUsage:
    """The days of all tenants, by the clock's date in UTC. Without a database they are those of this process."""

    def __init__(self, clock: Clock, database: HookDatabase | None = None) -> None:
        self._clock = clock
        self._database = database
        self._days: OrderedDict[str, _Day] = OrderedDict()

    def known_usage(self, tenant: str) -> Usage:
        """Return a tenant's usage of today, as far as this process knows."""
        day = self._today(tenant)
        return day.stored + day.own + day.moving

    async def refresh(self, tenant: str) -> None:
        """Read from the store the usage that others have added. Raise `StoreUnavailable`."""
        if self._database is not None:
            day = self._today(tenant)
            rows = await self._database.fetch(READ, for_log(tenant), day.date)
            if rows:
                _note_total(day, Usage(rows[0][0], Decimal(rows[0][1])))

    async def add(self, tenant: str, usage: Usage) -> None:
        """Count this usage, and write it together with usage that could not be written before.

        Raise `StoreUnavailable`; the usage is counted nevertheless. If the call is cancelled, the usage is written once
        more with the next answer: it may then count twice, but never gets lost.
        """
        day = self._today(tenant)
        day.own.add(usage)
        if self._database is None:
            return
        moved, day.own = day.own, Usage()
        day.moving.add(moved)
        try:
            total = await self._database.run(self._add_usage(tenant, day.date, moved))
        except BaseException:
            day.own.add(moved)
            raise
        finally:
            day.moving = Usage(day.moving.tokens - moved.tokens, day.moving.money - moved.money)
        _note_total(day, total)

    def _add_usage(self, tenant: str, date: str, usage: Usage) -> Script[Usage]:
        whose = for_log(tenant), date
        # The first statement locks the row, so that no other process changes the money between reading and writing.
        ((tokens, money),) = yield Statement(ADD_TOKENS, (*whose, usage.tokens))
        total = Usage(tokens, Decimal(money) + usage.money)
        yield Statement(SET_MONEY, (*whose, str(total.money)))
        oldest = self._clock.now().date() - timedelta(days=DAYS_KEPT)
        yield Statement(PURGE, (oldest.isoformat(),))
        return total

    def _today(self, tenant: str) -> _Day:
        today = self._clock.now().date().isoformat()
        day = self._days.pop(tenant, None)
        if day is None or day.date != today:
            day = _Day(today)
        self._days[tenant] = day
        if len(self._days) > SESSIONS_KEPT:
            self._days.popitem(last=False)
        return day


def _note_total(day: _Day, total: Usage) -> None:
    """Note the total in the store. If two looks overtook each other, keep the later total."""
    if total.tokens >= day.stored.tokens:
        day.stored = total


MOST: Final = 10**12
"""Most tokens that one answer may state; a larger number is ignored."""


def tokens_of(data: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the tokens of one answer by kind of price, from any provider's format, or None if it states none."""
    usage = data.get("usage") or _member(data.get("response"), "usage")
    read = _count(usage, "input_tokens", "prompt_tokens")
    wrote = _count(usage, "output_tokens", "completion_tokens")
    if read is None and wrote is None:
        return None
    details = _member(usage, "input_tokens_details") or _member(usage, "prompt_tokens_details")
    # Some providers include cached tokens in the number of tokens read, others count them separately.
    within = min(_count(details, "cached_tokens") or 0, read or 0)
    return {
        "input": (read or 0) - within,
        "output": wrote or 0,
        "cache_read": within + (_count(usage, "cache_read_input_tokens") or 0),
        "cache_write": _count(usage, "cache_creation_input_tokens") or 0,
    }


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: object, *names: str) -> int | None:
    for name in names:
        count = _member(usage, name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST:
            return count
    return None
