"""`/healthz`: whether every part is there that gates need. It has no token, so it says which part, and never why.

Whoever asks often learns what was found a moment ago: nobody without a token keeps the store busy.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, field
from pydantic import BaseModel

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


State = Literal["ok", "down"]

FRESH: Final = 1.0
"""Seconds in which nobody looks again."""
PATIENCE: Final = 5.0
"""Seconds after which a part that says nothing is down."""

log = get_logger(__name__)


class HealthBody(BaseModel):
    """Whether it is well, as a whole and by its parts."""

    status: State
    parts: dict[str, State]


@define(eq=False)
class Health:
    """Looks after the parts of a server. Each look of `parts` raises, with the reason, while its part is down."""

    parts: Mapping[str, Callable[[], Awaitable[object]]]
    fresh: float = FRESH
    patience: float = PATIENCE
    clock: Callable[[], float] = monotonic
    _found: HealthBody | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)
    _looking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def now(self) -> HealthBody:
        """How it is, or was a moment ago. Cancelling it is harmless."""
        async with self._looking:
            if self._found is None or self.clock() >= self._at + self.fresh:
                states = await asyncio.gather(*(self._state(name) for name in self.parts))
                whole: State = "down" if "down" in states else "ok"
                self._found = HealthBody(status=whole, parts=dict(zip(self.parts, states, strict=True)))
                self._at = self.clock()
            return self._found

    async def _state(self, name: str) -> State:
        before = "ok" if self._found is None else self._found.parts[name]
        try:
            async with asyncio.timeout(self.patience):
                await self.parts[name]()
        except Exception as problem:  # noqa: BLE001  # whatever it is, the part cannot be used
            if before == "ok":
                log.error("part_down", part=name, error=describe(problem))  # noqa: TRY400  # what it says is enough
            return "down"
        if before == "down":
            log.warning("part_up", part=name)
        return "ok"
