"""A limit of tool calls within a sliding window of time.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import RateLimit

registry = HookRegistry()
RateLimit.from_config({"calls": 2, "seconds": 60}).register(registry)
for _ in range(3):
    outcome = await registry.emit("tool:pre", {"tool_name": "WebFetch", "tool_input": {}})
print(outcome.action, "-", outcome.reason)
```

```output
deny - 2 calls in 60 s are allowed; try again in 60 s, or go on without this call
```
"""

from __future__ import annotations

from collections import deque
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.library.parts.ready_made import HookSettings, PerSession, Point, ReadyMade, ToolMatch
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


PRIORITY: Final = 90


class RateLimitSettings(HookSettings):
    """The number of calls, and the window of time."""

    calls: int = Field(default=600, ge=1, le=100_000, description="how many calls may begin within the window")
    seconds: float = Field(default=60, gt=0, allow_inf_nan=False, description="the length of the window, which slides")
    match: ToolMatch = Field(default="*", description="which tools are counted and held to it")


class RateLimit(ReadyMade[RateLimitSettings]):
    """Denies a tool call that would be one too many in a sliding window of time.

    A call counts when it passes this hook, also if another hook stops it later; a call that this hook denies does not
    count. The hook fails closed, and looks at each call once, however often its input is changed.

    Args:
        now: Returns seconds that only grow.
    """

    name = "rate_limit"
    replays = True
    Settings = RateLimitSettings

    def __init__(self, settings: RateLimitSettings | None = None, *, now: Callable[[], float] = monotonic) -> None:
        super().__init__(settings)
        self._now = now
        self._starts: PerSession[deque[float]] = PerSession(deque)

    def for_replay(self, now: Callable[[], float]) -> Self:
        """Return a limit that counts by the time of the calls."""
        return type(self)(self.settings, now=now)

    def points(self) -> tuple[Point, ...]:
        """Return a gate before tools."""
        match = self.settings.match
        return (Point(event=TOOL_PRE, call=self.before, intent="gate", priority=PRIORITY, match=match, recheck=False),)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Count this call, or deny it."""
        limit, window, now = self.settings.calls, self.settings.seconds, self._now()
        begun = self._starts.of(data)
        while begun and begun[0] <= now - window:
            begun.popleft()
        if len(begun) < limit:
            begun.append(now)
            return CONTINUE
        wait = max(1, ceil(begun[0] + window - now))
        return HookResult.deny(
            f"{limit} calls in {window:g} s are allowed; try again in {wait} s, or go on without this call"
        )
