"""Another event loop for a whole run of pytest: `AMPLIFIER_LOOP=uvloop pytest -p tests.loops …`, or `eager`."""

from __future__ import annotations

import asyncio
import os
from typing import Any


class Eager(asyncio.DefaultEventLoopPolicy):
    """Loops whose tasks begin at once."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a standard loop with eager tasks."""
        loop = super().new_event_loop()
        factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009  # from Python 3.12 on
        loop.set_task_factory(factory)
        return loop


def pytest_configure() -> None:
    """Install the loop that `AMPLIFIER_LOOP` names."""
    wanted = os.environ.get("AMPLIFIER_LOOP", "")
    if wanted == "eager":
        asyncio.set_event_loop_policy(Eager())
    elif wanted == "uvloop":
        import uvloop  # type: ignore[import-not-found, unused-ignore]  # only where uvloop is installed

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
