"""The hooks of a registry, with their unique names and the events that each one takes.

A hook has an event name, or a pattern: `*` is every event except `hook:*`, `tool:*` is one domain. An around hook has
the operation that it wraps, or the first or last event of that operation.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from amplifier_hooks.dispatch.chain import NOBODY
from amplifier_hooks.dispatch.middleware import OPERATIONS, operation_of
from amplifier_hooks.errors import TooManyHooks
from amplifier_hooks.registry.event_names import applies, is_pattern
from amplifier_hooks.registry.permissions import may_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.events import Event


class RegistryChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a registry, for its listeners and the record."""

    what: Literal[
        "registered", "unregistered", "enabled", "disabled", "refused", "declared", "required", "relaxed", "stopped",
        "resumed", "broken", "defined", "redefined", "undefined",
    ]  # fmt: skip
    hook: str = ""
    event: str = ""
    owner: str = ""
    """Plugin that the change belongs to; empty for a change of no plugin."""
    tenant: str = ""
    detail: str = ""


class Roster:
    """The hooks in order of registration. It reports every change to `changed`.

    Registrations work on a private list. Emits, maybe in another thread, read the public list. Both are one list,
    except inside `at_once`, which works on a copy.
    """

    def __init__(self, report: Callable[[RegistryChange], None]) -> None:
        self._report = report
        self._hooks: list[Hook] = []
        self._by_name: dict[str, tuple[Hook, ...]] = {}
        self._news: list[RegistryChange] | None = None
        self._public, self._public_names = self._hooks, self._by_name

    def __iter__(self) -> Iterator[Hook]:
        return iter(tuple(self._hooks))

    def __len__(self) -> int:
        return len(self._hooks)

    def __contains__(self, hook: object) -> bool:
        return hook in self._hooks

    @contextmanager
    def at_once(self, *, keep: bool = True) -> Iterator[None]:
        """Apply all additions and removals of the block together; drop them if the block raises or `keep` is False.

        The changes are reported at the end of the outermost block.
        """
        hooks, by_name, outer = self._hooks, self._by_name, self._news
        self._hooks, self._by_name = list(hooks), dict(by_name)
        changes = self._news = [] if outer is None else outer
        before, done = len(changes), False
        try:
            yield
            done = keep
        finally:
            self._news = outer
            if not done:
                self._hooks, self._by_name = hooks, by_name
                del changes[before:]
        if outer is None:
            self._public, self._public_names = self._hooks, self._by_name
            for change in changes:
                self._report(change)

    def tell(self, change: RegistryChange) -> None:
        """Report a change; inside `at_once`, at the end of the block."""
        if self._news is None:
            self._report(change)
        else:
            self._news.append(change)

    def add(self, hook: Hook, limit: int) -> None:
        """Append a hook, under a name that no other hook of the same chain can have.

        Raises `TooManyHooks` if the hooks from definitions exceed the limit of an event.
        """
        if hook.source == "definition":
            self._count_definitions(hook, limit)
        number = 1
        while any(_may_meet(hook, other) for other in self._by_name.get(hook.name, ())):
            number += 1
            hook.name = f"{hook.given_name}#{number}"
        self._hooks.append(hook)
        self._by_name[hook.name] = (*self._by_name.get(hook.name, ()), hook)
        self._tell("registered", hook, hook.intent)

    def remove(self, hooks: Iterable[Hook]) -> int:
        """Remove hooks from the list; ignore hooks that are not on it. Return the number of removed hooks."""
        there = [hook for hook in hooks if hook in self._hooks]
        for hook in there:
            self._hooks.remove(hook)
            self._by_name[hook.name] = tuple(other for other in self._by_name[hook.name] if other is not hook)
            if not self._by_name[hook.name]:
                del self._by_name[hook.name]
            self._tell("unregistered", hook)
        return len(there)

    def switch(self, hooks: Iterable[Hook], *, enabled: bool) -> int:
        """Enable or disable hooks at once. Enabling a hook also ends its quarantine. Return the number of hooks."""
        switched = list(hooks)
        for hook in switched:
            hook.enabled = enabled
            if enabled:
                hook.leaks_of, hook.quarantined = NOBODY, False
            hook.settle()
            self._tell("enabled" if enabled else "disabled", hook)
        return len(switched)

    def find_by_name(self, name: str) -> tuple[Hook, ...]:
        """Return the hooks whose answers carry this name."""
        return self._public_names.get(name, ())

    def hooks_for(self, row: Event) -> list[Hook]:
        """Return the enabled hooks that take this event, in the order they run."""
        return _sort_hooks(hook for hook in tuple(self._public) if hook.enabled and may_join(hook, row))

    def watches_hooks(self) -> bool:
        """Return True if an enabled hook observes `hook:*`."""
        return any(
            hook.intent == "observe" and hook.enabled and hook.event.startswith("hook:") for hook in tuple(self._public)
        )

    def has_tenants(self) -> bool:
        """Return True if a hook of a tenant is on the list."""
        return any(hook.tenant for hook in self._public)

    def layers_of(self, operation: str) -> list[Hook]:
        """Return the layers around an operation, the outermost first.

        A layer registered at the operation's last event runs right after the operation. The innermost layer runs first
        there, so these layers are in reverse order.
        """
        layers = _sort_hooks(
            hook
            for hook in tuple(self._public)
            if hook.enabled and hook.intent == "around" and operation_of(hook.event) == operation
        )
        last = OPERATIONS[operation].last
        after = [hook for hook in layers if hook.event == last]
        return [*(hook for hook in layers if hook.event != last), *reversed(after)]

    def _count_definitions(self, hook: Hook, limit: int) -> None:
        others = [
            other
            for other in self._hooks
            if other.source == "definition" and other.tenant == hook.tenant and _may_meet(other, hook)
        ]
        # A pattern takes several events; the limit applies to each of them.
        for event in {hook.event, *(other.event for other in others if applies(hook.event, other.event))}:
            if sum(applies(other.event, event) for other in others) >= limit:
                raise TooManyHooks(event, limit)

    def _tell(
        self, what: Literal["registered", "unregistered", "enabled", "disabled"], hook: Hook, detail: str = ""
    ) -> None:
        self.tell(
            RegistryChange(
                what=what, hook=hook.name, event=hook.event, owner=hook.owner, tenant=hook.tenant, detail=detail
            )
        )


def may_join(hook: Hook, row: Event) -> bool:
    """Return True if `hook` takes part in `row`.

    A wildcard never takes a plugin's or tenant's hook to a privileged event.
    """
    if hook.intent == "around" or not applies(hook.event, row.name):
        return False
    return not is_pattern(hook.event) or may_change(hook.tier, hook.tenant, row)


def _may_meet(one: Hook, other: Hook) -> bool:
    """Return True if two hooks can be in one chain."""
    if "around" in (one.intent, other.intent):
        return one.intent == other.intent and operation_of(one.event) == operation_of(other.event)
    return applies(one.event, other.event) or applies(other.event, one.event)


def _sort_hooks(hooks: Iterable[Hook]) -> list[Hook]:
    return sorted(hooks, key=lambda hook: hook.sort_key)
