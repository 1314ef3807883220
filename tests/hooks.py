"""Hooks to test with, and their statuses."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks import Outcome

__all__ = ["Hands", "hang", "saying", "statuses", "swallow"]


async def hang(event: str, data: Mapping[str, Any]) -> None:
    """Never return."""
    await asyncio.Event().wait()


async def swallow(event: str, data: Mapping[str, Any]) -> None:
    """Wait for seconds in spite of any cancellation."""
    for _ in range(6):  # an end, or a broken dispatcher would hang the tests
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1.5)


def saying(answer: object) -> Callable[..., Any]:
    """Return a hook that gives one answer at once, every time."""

    async def hook(event: str, data: Mapping[str, Any]) -> Any:
        return answer

    return hook


def statuses(outcome: Outcome) -> dict[str, str]:
    """Return the status of each hook."""
    return {answer.hook_name: answer.status for answer in outcome.hook_results}


class Hands:
    """A clock for the dispatcher. It stands still until a hook moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Read it."""
        return self.now

    def taking(self, seconds: float, answer: object = None) -> Callable[..., Any]:
        """Return a hook that takes so long, without waiting."""

        async def hook(event: str, data: Mapping[str, Any]) -> Any:
            self.now += seconds
            return answer

        return hook
