"""A service that is down is not asked every time: after some failures it is left alone for a while, then tried once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define, field

from amplifier_hooks.errors import HookUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Circuit"]

FAILURES: Final = 5
"""In a row, after which the circuit opens."""
COOLING: Final = 30.0
"""Seconds it stays open before one call may try again."""


@define(eq=False)
class Circuit:
    """Counts the failures of one service, on a clock of seconds. Ask `enter` first, then say how it went."""

    clock: Callable[[], float]
    failures: int = field(default=0, init=False)
    until: float = field(default=0.0, init=False)
    """When an open circuit lets one call through."""

    def enter(self) -> None:
        """Raises `HookUnavailable` while the circuit is open. Of those that come when it cools, one is the probe."""
        if self.failures < FAILURES:
            return
        now = self.clock()
        if now < self.until:
            raise HookUnavailable(f"it failed {self.failures} times in a row; tried again in {self.until - now:.0f} s")
        self.until = now + COOLING

    def worked(self) -> None:
        """It answered."""
        self.failures = 0

    def failed(self) -> None:
        """It did not."""
        self.failures += 1
        if self.failures >= FAILURES:
            self.until = self.clock() + COOLING
