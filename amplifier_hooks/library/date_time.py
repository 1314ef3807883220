"""The date and the time at every prompt, because a model knows neither.

The text is for the next model call only, so old times do not pile up in the context. The hook fails open.

```python
from datetime import UTC, datetime
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import DateTime
from amplifier_hooks.testing import ManualClock

registry = HookRegistry()
DateTime(clock=ManualClock(datetime(2026, 1, 31, 12, 5, tzinfo=UTC))).register(registry)
print((await registry.emit("prompt:submit", {"prompt": "What day is it?"})).context_injection)
```

```output
It is Saturday, 31 January 2026, 12:05 (UTC).
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.events import PROMPT_SUBMIT
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade
from amplifier_hooks.result import HookResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import Clock


PRIORITY: Final = 420

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
"""English names. `strftime` would use the locale of the process."""


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(f"there is no time zone {name!r:.60}; write one such as 'UTC' or 'Europe/Berlin'") from None
    return name


class DateTimeSettings(HookSettings):
    """The time zone."""

    zone: Annotated[str, AfterValidator(_check_zone)] = Field(
        default="UTC", description="the time zone, by its IANA name, such as Europe/Berlin"
    )


class DateTime(ReadyMade[DateTimeSettings]):
    """Tells the model the date and the time with every prompt, for the next model call only."""

    name = "date_time"
    Settings = DateTimeSettings

    def __init__(self, settings: DateTimeSettings | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(settings)
        self._clock = SystemClock() if clock is None else clock

    def points(self) -> tuple[Point, ...]:
        """Return a hook at every prompt."""
        return (Point(event=PROMPT_SUBMIT, call=self.on_prompt, intent="on", priority=PRIORITY),)

    async def on_prompt(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Inject the date and the time."""
        now = self._clock.now().astimezone(ZoneInfo(self.settings.zone))
        day = f"{DAYS[now.weekday()]}, {now.day} {MONTHS[now.month - 1]} {now.year}"
        return HookResult.inject(f"It is {day}, {now:%H:%M} ({self.settings.zone}).", ephemeral=True)
