"""Another event loop for a whole run of pytest: `AMPLIFIER_LOOP=uvloop pytest -p tests.loops …`, or `eager`."""

from __future__ import annotations

import asyncio
import os
from typing import Any


class Eager(asyncio.DefaultEventLoopPolicy):
    """Loops whose tasks begin at once."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop like any other, but for its tasks."""
        loop = super().new_event_loop()
        factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009  # from Python 3.12 on
        loop.set_task_factory(factory)
        return loop


def pytest_configure() -> None:
    """Put the loop in place that is wanted."""
    wanted = os.environ.get("AMPLIFIER_LOOP", "")
    if wanted == "eager":
        asyncio.set_event_loop_policy(Eager())
    elif wanted == "uvloop":
        import uvloop  # type: ignore[import-not-found, unused-ignore]  # where somebody has put it

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
