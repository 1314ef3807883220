"""Who may register where. Pure; the rules are a few small functions.

Three tiers. Whoever holds the registry itself is `built-in`: the application and what ships with it. A plugin gets a
scope of the registry, and is `trusted` where it was granted a permission and `plugin` where it was not.

A tenant's hooks count as a plugin's without permissions, whoever brings them in: what a tenant configured is as foreign
as what somebody installed.

What a plugin gets instead of the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import field, frozen

from amplifier_hooks.errors import HookRefused, PrivilegeRequired
from amplifier_hooks.events import LLM_PRE
from amplifier_hooks.registry.decorators import Registrar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amplifier_hooks.dispatch.chain import Hook, Intent, Tier
    from amplifier_hooks.events import Event
    from amplifier_hooks.registry.hook_table import Roster
    from amplifier_hooks.registry.registration import Handler


PRIVILEGED_HOOKS: Final = "privileged_hooks"
"""The permission to take part where the model's input and output pass by."""

PRIVILEGED_OPERATIONS: Final = frozenset({"model"})


def _frozenset(permissions: Iterable[str]) -> frozenset[str]:
    return frozenset({permissions} if isinstance(permissions, str) else permissions)


@frozen(kw_only=True)
class Scope:
    """On whose behalf something is registered. With a `tenant`, all of it is for that tenant."""

    owner: str = ""
    built_in: bool = False
    permissions: frozenset[str] = field(default=frozenset(), converter=_frozenset)
    tenant: str = ""

    @property
    def tier(self) -> Tier:
        """How far it is trusted."""
        if self.built_in:
            return "built-in"
        return "trusted" if PRIVILEGED_HOOKS in self.permissions else "plugin"

    @property
    def privileged(self) -> bool:
        """Whether it may join privileged points."""
        return self.tier != "plugin"


BUILT_IN: Final = Scope(built_in=True)


def may_change(tier: Tier, tenant: str, event: Event) -> bool:
    """Whether such a hook may take part in an event."""
    return not event.privileged or (tier != "plugin" and not tenant)


def check_access(scope: Scope, event: Event, intent: Intent, tenant: str = "") -> None:
    """Refuse a hook that may not be at this event. At `llm:pre` every plugin may watch, if it says so by name.

    Raises `PrivilegeRequired`, naming plugin, point and permission.
    """
    watches = event.name == LLM_PRE and intent == "observe" and not tenant
    if not watches and not may_change(scope.tier, tenant, event):
        raise PrivilegeRequired(_describe_scope(scope, tenant), event.name, PRIVILEGED_HOOKS)


def check_operation(scope: Scope, operation: str, tenant: str = "") -> None:
    """Refuse an around hook where the model is called, under the same conditions.

    Raises `PrivilegeRequired`.
    """
    if operation in PRIVILEGED_OPERATIONS and (tenant or not scope.privileged):
        raise PrivilegeRequired(_describe_scope(scope, tenant), f"around {operation}", PRIVILEGED_HOOKS)


def check_tenant(scope: Scope, tenant: str) -> None:
    """Refuse a tenant that is not the scope's: nobody but the application says for whom a hook is.

    Raises `HookRefused`.
    """
    if tenant != scope.tenant and (scope.tenant or not scope.built_in):
        whose = f"tenant {scope.tenant!r}" if scope.tenant else "all tenants alike"
        raise HookRefused(f"Plugin {scope.owner} registers for {whose}, and may not name tenant {tenant!r}")


def _describe_scope(scope: Scope, tenant: str) -> str:
    return f"{scope.owner or 'hook'} of tenant {tenant!r}" if tenant else scope.owner


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
