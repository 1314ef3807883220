"""Limits of a tenant's definitions, checked whenever a definition is created, changed, imported or installed.

A tenant's definition is untrusted: it runs no program of this machine, imports no code by its name, is at no privileged
event, not even by a pattern, and has no regular expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amplifier_hooks.definitions.kinds.allowed_urls import addresses_of, is_public
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.errors import HookRefused
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.permissions import PRIVILEGED_HOOKS

if TYPE_CHECKING:
    from collections.abc import Collection

    from amplifier_hooks.definitions.model import NewHook


TENANT_HANDLERS: Final = frozenset({"http"})
"""Handlers that a tenant's hooks may have, unless the operator names more: entry points, or kinds."""

OPERATORS_ONLY: Final = ("networks", "ports", "plain_http", "secret_env", "headers_env")
"""Keys of a config that reach into the machine or its networks."""


def is_tenant_allowed(event: str) -> bool:
    """Return True if a tenant's hook may be at an event, or at every event that a pattern matches."""
    wrapped = OPERATIONS.get(event)
    names = (event, wrapped.first) if wrapped else (event,)
    return not any(row.privileged and any(applies(name, row.name) for name in names) for row in CATALOGUE)


def check_tenant_hook(hook: NewHook, tenant_id: str, *, handlers: Collection[str] = TENANT_HANDLERS) -> None:
    """Check a hook against the limits of its tenant; the system (`""`) has none.

    Raises `HookRefused` with the field that breaks a limit.
    """
    if not tenant_id:
        return
    who = f"tenant {tenant_id!r}"
    if not is_tenant_allowed(hook.event_type):
        raise HookRefused(
            f"event_type {hook.event_type!r} takes in a privileged point, and {who} lacks {PRIVILEGED_HOOKS} permission"
        )
    if hook.handler_ref == "command" or hook.handler_ref not in handlers:
        known = ", ".join(sorted(set(handlers) - {"command"})) or "nothing"
        raise HookRefused(f"handler_ref {hook.handler_ref!r} is not for {who}; allowed: {known}")
    if hook.matcher is not None and hook.matcher.startswith("re:"):
        raise HookRefused(f"matcher {hook.matcher!r:.60}: {who} writes names, lists and globs, no regular expressions")
    for key in OPERATORS_ONLY:
        if key in hook.config:
            raise HookRefused(f"config.{key} can be set by the operator only, not by {who}")
    url = hook.config.get("url")
    if hook.handler_ref == "http" and isinstance(url, str):
        for address in addresses_of(url):
            if not is_public(address):
                raise HookRefused(f"config.url leads to {address}, which is not public; {who} names public services")
