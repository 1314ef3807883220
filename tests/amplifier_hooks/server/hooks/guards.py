"""Handlers that definitions in tests name."""

from __future__ import annotations

import asyncio
from typing import Any

from amplifier_hooks import HookResult

LEFT: list[str] = []
"""Marks that handlers leave for a test to see."""
GO = asyncio.Event()


def says(event: str, data: Any) -> HookResult:
    """Change the payload."""
    LEFT.append(event)
    return HookResult.modify({"note": "seen"})


def denies(event: str, data: Any) -> HookResult:
    """Say no."""
    return HookResult.deny("not today")


def asks(event: str, data: Any) -> HookResult:
    """Ask."""
    return HookResult.ask("May it?")


def fails(event: str, data: Any) -> None:
    """Fail."""
    raise RuntimeError("password=hunter2hunter2")


async def waits(event: str, data: Any) -> HookResult:
    """Wait until the test sets `GO`."""
    LEFT.append("began")
    await GO.wait()
    return HookResult.deny("it has waited")
