"""Who may register where. Pure; the rules are a few small functions.

Three tiers. Whoever holds the registry itself is `built-in`: the application and what ships with it. A plugin gets a
scope of the registry, and is `trusted` where it was granted a permission and `plugin` where it was not.

A tenant's hooks count as a plugin's without permissions, whoever brings them in: what a tenant configured is as foreign
as what somebody installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from amplifier_hooks.errors import HookRefused, PrivilegeRequired
from amplifier_hooks.events import LLM_PRE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.dispatch.hook import Intent, Tier
    from amplifier_hooks.events import Event


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
        raise PrivilegeRequired(_who(scope, tenant), event.name, PRIVILEGED_HOOKS)


def check_operation(scope: Scope, operation: str, tenant: str = "") -> None:
    """Refuse an around hook where the model is called, under the same conditions.

    Raises `PrivilegeRequired`.
    """
    if operation in PRIVILEGED_OPERATIONS and (tenant or not scope.privileged):
        raise PrivilegeRequired(_who(scope, tenant), f"around {operation}", PRIVILEGED_HOOKS)


def check_tenant(scope: Scope, tenant: str) -> None:
    """Refuse a tenant that is not the scope's: nobody but the application says for whom a hook is.

    Raises `HookRefused`.
    """
    if tenant != scope.tenant and (scope.tenant or not scope.built_in):
        whose = f"tenant {scope.tenant!r}" if scope.tenant else "all tenants alike"
        raise HookRefused(f"Plugin {scope.owner} registers for {whose}, and may not name tenant {tenant!r}")


def _who(scope: Scope, tenant: str) -> str:
    return f"{scope.owner or 'hook'} of tenant {tenant!r}" if tenant else scope.owner
