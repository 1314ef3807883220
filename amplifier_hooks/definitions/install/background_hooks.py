"""Hooks that nobody waits for: so many at once, each within its time, and none longer than their owner."""

from __future__ import annotations

import asyncio
import inspect
from math import inf
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from amplifier_hooks.abandoned_work import cancel_all
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


AT_ONCE: Final = 256
FAREWELL: Final = 1.0
"""Seconds that what still runs has to clean up when its owner closes."""

log = get_logger(__name__)


@define(eq=False)
class Background:
    """Starts hooks and forgets them. What is over the limit is not started, and logged; each tenant has its own."""

    at_once: int = AT_ONCE
    farewell: float = FAREWELL
    closed: bool = False
    dropped: int = 0
    """How many were not started."""
    _tasks: dict[str, set[asyncio.Task[None]]] = field(factory=dict)
    """What runs, by tenant."""

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    def observer(self, name: str, call: Callable[..., Any], timeout: float, tenant: str = "") -> Callable[..., None]:
        """What is registered in place of `call(event, data)`: an observer that starts it."""

        def start(event: str, data: Mapping[str, Any], _outcome: object) -> None:
            running = self._tasks.setdefault(tenant, set())
            if self.closed or len(running) >= self.at_once:
                self.dropped += 1
                log.warning("hook_dropped", hook=name, event=event, running=len(running))
                return
            task = asyncio.get_running_loop().create_task(_run(name, call, event, dict(data), timeout))
            running.add(task)
            task.add_done_callback(running.discard)

        return start

    async def close(self) -> None:
        """End what runs, and start nothing any more. Waits for it a moment; cancelling that leaves it behind."""
        self.closed = True
        left = await cancel_all(set().union(*self._tasks.values()), grace=self.farewell)
        if left:
            log.warning("hooks_left_behind", number=len(left))


async def _run(name: str, call: Callable[..., Any], event: str, data: dict[str, Any], timeout: float) -> None:
    try:
        async with asyncio.timeout(None if timeout == inf else timeout):
            answer = call(event, data)
            if inspect.isawaitable(answer):
                await answer
    except (Exception, SystemExit) as error:  # noqa: BLE001  # nobody waits who could be told
        status = "timeout" if isinstance(error, TimeoutError) else "error"
        log.warning("hook_failed", hook=name, error=describe(error), event=event, status=status)
