"""Permissions to register hooks, as a few small pure functions, and the scope that a plugin gets.

There are three tiers. The holder of the registry itself is `built-in`: the application and the hooks that ship with
this package. A plugin gets a scope of the registry; it is `trusted` if it was granted the permission, and `plugin`
otherwise.

A tenant's hooks have the rights of a plugin without permissions, whichever scope registers them: a tenant's
configuration is as foreign as an installed package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from amplifier_hooks.errors import HookRefused, PrivilegeRequired
from amplifier_hooks.events import LLM_PRE
from amplifier_hooks.registry.decorators import Registrar

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.dispatch.chain import Hook, Intent, Tier
    from amplifier_hooks.events import Event
    from amplifier_hooks.registry.hook_table import Roster
    from amplifier_hooks.registry.registration import Handler


PRIVILEGED_HOOKS: Final = "privileged_hooks"
"""The permission to take part in events that carry the model's input and output."""

PRIVILEGED_OPERATIONS: Final = frozenset({"model"})


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of registrations, with its permissions. With a `tenant`, all registrations are for that tenant."""

    owner: str = ""
    built_in: bool = False
    permissions: frozenset[str] = frozenset()
    tenant: str = ""
    report_only: bool = False
    """True if every hook of the owner that answers is report-only."""

    @property
    def tier(self) -> Tier:
        """Tier of the owner."""
        if self.built_in:
            return "built-in"
        return "trusted" if PRIVILEGED_HOOKS in self.permissions else "plugin"

    @property
    def privileged(self) -> bool:
        """True if the owner may register hooks at privileged events."""
        return self.tier != "plugin"


BUILT_IN: Final = Scope(built_in=True)


def may_change(tier: Tier, tenant: str, event: Event) -> bool:
    """Return True if a hook of this tier and tenant may take part in an event."""
    return not event.privileged or (tier != "plugin" and not tenant)


def check_access(scope: Scope, event: Event, intent: Intent, tenant: str = "") -> None:
    """Refuse a hook that may not take part in this event. Every plugin may observe `llm:pre`, if it names that event.

    Raises `PrivilegeRequired`, which names plugin, event and permission.
    """
    watches = event.name == LLM_PRE and intent == "observe" and not tenant
    if not watches and not may_change(scope.tier, tenant, event):
        raise PrivilegeRequired(_describe_scope(scope, tenant), event.name, PRIVILEGED_HOOKS)


def check_operation(scope: Scope, operation: str, tenant: str = "") -> None:
    """Refuse an around hook of a tenant or an unprivileged scope where the model is called.

    Raises `PrivilegeRequired`.
    """
    if operation in PRIVILEGED_OPERATIONS and (tenant or not scope.privileged):
        raise PrivilegeRequired(_describe_scope(scope, tenant), f"around {operation}", PRIVILEGED_HOOKS)


def check_tenant(scope: Scope, tenant: str) -> None:
    """Refuse a tenant that is not the scope's: only the application chooses the tenant of a hook.

    Raises `HookRefused`.
    """
    if tenant != scope.tenant and (scope.tenant or not scope.built_in):
        whose = f"tenant {scope.tenant!r}" if scope.tenant else "all tenants alike"
        raise HookRefused(f"Plugin {scope.owner} registers for {whose}, and may not name tenant {tenant!r}")


def _describe_scope(scope: Scope, tenant: str) -> str:
    return f"{scope.owner or 'hook'} of tenant {tenant!r}" if tenant else scope.owner


class RegistryScope(Registrar):
    """A plugin's view of the registry. It registers hooks within its permissions and removes only its own.

    Every hook is marked with the plugin as its owner. A scope lists and switches only the plugin's own hooks and emits
    nothing. It keeps honest plugins within their permissions; malicious code in this process has other ways, and
    belongs in another process.
    """

    def __init__(self, scope: Scope, roster: Roster, enter: Callable[..., Hook], row: Callable[[str], Event]) -> None:
        self._scope = scope
        self._roster = roster
        self._let_in = enter
        self._row_of = row
        self._own: list[Hook] = []

    @property
    def plugin(self) -> str:
        """Name of the plugin that owns the scope."""
        return self._scope.owner

    def hooks(self) -> tuple[Hook, ...]:
        """Return this plugin's hooks, in the order they were registered."""
        there = set(self._roster)
        self._own = [hook for hook in self._own if hook in there]
        return tuple(self._own)

    def close(self) -> int:
        """Remove every hook that the plugin registered. Return the number of removed hooks."""
        return self._roster.remove(self.hooks())

    def _enter(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Hook:
        hook = self._let_in(self._scope, intent, event, handler, **options)
        self._own.append(hook)
        return hook

    def _row(self, event: str) -> Event:
        return self._row_of(event)
