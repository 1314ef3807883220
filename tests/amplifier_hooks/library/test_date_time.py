"""The date and the time at every prompt."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.library import DateTime
from amplifier_hooks.library.date_time import DateTimeSettings
from amplifier_hooks.testing import ManualClock

pytestmark = pytest.mark.rule("LIB-6")


async def test_every_prompt() -> None:
    """Each prompt injects its current time, in the configured zone, and the text is gone after the next model call."""
    clock, registry, context = ManualClock(datetime(2026, 3, 28, 23, 59, tzinfo=UTC)), HookRegistry(), InMemoryContext()
    DateTime(DateTimeSettings(zone="Europe/Berlin"), clock=clock).register(registry)
    read: list[list[str]] = []

    def model(messages: list[dict[str, str]]) -> str:
        read.append([message["content"] for message in messages])
        return "fine"

    async with SessionCoordinator(hooks=registry, context=context, clock=clock) as session:
        for _ in range(2):
            async with session.turn("What time is it?"):
                await session.call_model(model)
            clock.advance(3_600)
    assert ["00:59" in text for text in read[0]].count(True) == 1
    assert any("Sunday, 29 March 2026" in text for text in read[0])
    assert not any("00:59" in text for text in read[1])
    assert any("01:59 (Europe/Berlin)" in text for text in read[1])


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "", "/etc/localtime"])
def test_no_such_zone(zone: str) -> None:
    """An unknown zone is refused, and the error shows how to write one."""
    with pytest.raises(InvalidHookSettings, match="Europe/Berlin"):
        DateTime.from_config({"zone": zone})
