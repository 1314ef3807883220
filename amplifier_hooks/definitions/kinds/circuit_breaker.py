"""A service that is down is not asked every time: after some failures it is left alone for a while, then tried once.

Every tenant has a count of its own. A payload that a service stumbles over may be one tenant's doing, and must not
take the service away from the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define, field

from amplifier_hooks.errors import HookUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable


FAILURES: Final = 5
"""In a row, after which the circuit opens."""
COOLING: Final = 30.0
"""Seconds it stays open before one call may try again."""
MOST_TENANTS: Final = 1_024
"""Tenants with failures that are remembered; of more, those whose last failure is longest ago are forgotten."""


@define
class Row:
    """Failures of one tenant's calls, one after the other."""

    failures: int = 0
    until: float = 0.0
    """When an open circuit lets one call through."""


@define(eq=False)
class Circuit:
    """Counts the failures of one service, on a clock of seconds. Ask `enter` first, then say how it went."""

    clock: Callable[[], float]
    _rows: dict[str, Row] = field(factory=dict, init=False)
    """By tenant; none for one whose last call worked."""

    def __len__(self) -> int:
        """How many tenants have failures."""
        return len(self._rows)

    def enter(self, tenant: str = "") -> None:
        """Raises `HookUnavailable` while it is open for this tenant. Of the calls when it cools, one is the probe."""
        row = self._rows.get(tenant)
        if row is None or row.failures < FAILURES:
            return
        now = self.clock()
        if now < row.until:
            raise HookUnavailable(f"it failed {row.failures} times in a row; tried again in {row.until - now:.0f} s")
        row.until = now + COOLING

    def worked(self, tenant: str = "") -> None:
        """It answered."""
        self._rows.pop(tenant, None)

    def failed(self, tenant: str = "") -> None:
        """It did not."""
        row = self._rows.pop(tenant, None) or Row()
        row.failures += 1
        if row.failures >= FAILURES:
            row.until = self.clock() + COOLING
        self._rows[tenant] = row  # as the last one
        if len(self._rows) > MOST_TENANTS:
            del self._rows[next(iter(self._rows))]
