"""What backends raise: `BackendUnavailable` when nobody can be asked here."""

from __future__ import annotations

from amplifier_hooks.errors import HookError

__all__ = ["BackendUnavailable"]


class BackendUnavailable(HookError):
    """Nobody can be asked through this backend now; the reason says why.

    The request is denied, and it is on record that nobody denied it.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
