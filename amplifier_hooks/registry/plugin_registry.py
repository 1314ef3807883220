"""What a plugin gets instead of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amplifier_hooks.registry.decorators import Registrar

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.dispatch.hook import Hook, Intent
    from amplifier_hooks.events import Event
    from amplifier_hooks.registry.hook_table import Roster
    from amplifier_hooks.registry.permissions import Scope
    from amplifier_hooks.registry.registration import Handler


class Enter(Protocol):
    """How a registry lets somebody's hook in."""

    def __call__(self, scope: Scope, intent: Intent, event: str, handler: Handler, /, **options: Any) -> Hook:
        """Register a hook on behalf of the scope."""
        ...


class RegistryScope(Registrar):
    """A plugin's way to a registry. Everything it registers is marked as its own and held to its permissions.

    It sees, switches and removes its own hooks and nobody else's, and emits nothing. It keeps honest plugins to what
    they were granted; code in this process that means harm has other ways, and belongs into another process.
    """

    def __init__(self, scope: Scope, roster: Roster, enter: Enter, row: Callable[[str], Event]) -> None:
        self._scope = scope
        self._roster = roster
        self._let_in = enter
        self._row_of = row
        self._own: list[Hook] = []

    @property
    def plugin(self) -> str:
        """Whose it is."""
        return self._scope.owner

    def hooks(self) -> tuple[Hook, ...]:
        """This plugin's hooks, in the order they were registered."""
        there = set(self._roster)
        self._own = [hook for hook in self._own if hook in there]
        return tuple(self._own)

    def close(self) -> int:
        """Remove everything the plugin registered. Returns how many hooks that were."""
        return self._roster.remove(self.hooks())

    def _enter(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Hook:
        hook = self._let_in(self._scope, intent, event, handler, **options)
        self._own.append(hook)
        return hook

    def _row(self, event: str) -> Event:
        return self._row_of(event)
