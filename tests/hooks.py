"""Hooks to test with, and what became of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks import Outcome

__all__ = ["hang", "saying", "statuses", "swallow"]


async def hang(event: str, data: Mapping[str, Any]) -> None:
    """Never return."""
    await asyncio.Event().wait()


async def swallow(event: str, data: Mapping[str, Any]) -> None:
    """Wait on for seconds, however often it is cancelled."""
    for _ in range(6):  # an end, or a broken dispatcher would hang the tests
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1.5)


def saying(answer: object) -> Callable[..., Any]:
    """A hook that answers at once, and always the same."""

    async def hook(event: str, data: Mapping[str, Any]) -> Any:
        return answer

    return hook


def statuses(outcome: Outcome) -> dict[str, str]:
    """What became of each hook."""
    return {answer.hook_name: answer.status for answer in outcome.hook_results}
