"""Who may register where. Pure; the rule is one function.

Three tiers. Whoever holds the registry itself is `built-in`: the application and what ships with it. A plugin gets a
scope of the registry, and is `trusted` where it was granted a permission and `plugin` where it was not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import field, frozen

from amplifier_hooks.errors import PrivilegeRequired
from amplifier_hooks.events import LLM_PRE, Event
from amplifier_hooks.hook import Intent, Tier

__all__ = ["BUILT_IN", "PRIVILEGED_HOOKS", "Scope", "check_access", "may_see"]

PRIVILEGED_HOOKS: Final = "privileged_hooks"
"""The permission to take part where the model's input and output pass by."""

PRIVILEGED_OPERATIONS: Final = frozenset({"model"})


def _frozenset(permissions: Iterable[str]) -> frozenset[str]:
    return frozenset(permissions)


@frozen(kw_only=True)
class Scope:
    """On whose behalf something is registered."""

    owner: str = ""
    built_in: bool = False
    permissions: frozenset[str] = field(default=frozenset(), converter=_frozenset)

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


def check_access(scope: Scope, event: Event, intent: Intent, tenant: str = "") -> None:
    """Refuse a hook that may not be at this event.

    A tenant's hook never may, whoever registers it: the other tenants' texts pass there, too.

    Raises `PrivilegeRequired`, naming plugin, point and permission.
    """
    if tenant and not may_see(BUILT_IN, event, intent, tenant):
        raise PrivilegeRequired(f"of tenant {tenant!r}", event.name, PRIVILEGED_HOOKS)
    if not may_see(scope, event, intent, tenant):
        raise PrivilegeRequired(scope.owner, event.name, PRIVILEGED_HOOKS)


def may_see(scope: Scope, event: Event, intent: Intent, tenant: str = "") -> bool:
    """Whether a hook of this scope may be there. At `llm:pre` everybody may watch, and few may change."""
    if not event.privileged or (scope.privileged and not tenant):
        return True
    return event.name == LLM_PRE and intent == "observe" and not tenant


def check_operation(scope: Scope, operation: str) -> None:
    """Refuse an around hook of a plugin where the model is called.

    Raises `PrivilegeRequired`.
    """
    if operation in PRIVILEGED_OPERATIONS and not scope.privileged:
        raise PrivilegeRequired(scope.owner, f"around {operation}", PRIVILEGED_HOOKS)
