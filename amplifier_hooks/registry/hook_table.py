"""The hooks of a registry: who is there, under which name, and for which events.

An event name, or a pattern: `*` is every event except what the system tells about its own hooks, `tool:*` is one
domain. Around hooks stand under the operation they wrap, or under its first or last event.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from amplifier_hooks.dispatch.middleware import OPERATIONS, operation_of
from amplifier_hooks.errors import TooManyHooks
from amplifier_hooks.registry.event_names import applies, is_pattern
from amplifier_hooks.registry.permissions import may_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.events import Event


@frozen(kw_only=True)
class RegistryChange:
    """One thing that happened to a registry, for whoever keeps the record."""

    what: Literal[
        "registered", "unregistered", "enabled", "disabled", "refused", "declared", "required", "relaxed", "stopped",
        "resumed", "broken", "defined", "redefined", "undefined",
    ]  # fmt: skip
    hook: str = ""
    event: str = ""
    owner: str = ""
    """The plugin it is about, if it is about one's."""
    tenant: str = ""
    detail: str = ""


class Roster:
    """The hooks in order of registration. Every change is told to `changed`.

    Whoever registers works on the list. Whoever emits, maybe in another thread, looks at what is public of it: the same
    list, but for what is changed at once, which is done to a copy.
    """

    def __init__(self, changed: Callable[[RegistryChange], None]) -> None:
        self._changed = changed
        self._hooks: list[Hook] = []
        self._by_name: dict[str, tuple[Hook, ...]] = {}
        self._untold: list[RegistryChange] | None = None
        self._public, self._public_names = self._hooks, self._by_name

    def __iter__(self) -> Iterator[Hook]:
        return iter(tuple(self._hooks))

    def __len__(self) -> int:
        return len(self._hooks)

    def __contains__(self, hook: object) -> bool:
        return hook in self._hooks

    @contextmanager
    def at_once(self, *, keep: bool = True) -> Iterator[None]:
        """All that is added and removed inside, or nothing of it if that raises or is not to be kept.

        It is told at the end.
        """
        hooks, by_name, outer = self._hooks, self._by_name, self._untold
        self._hooks, self._by_name = list(hooks), dict(by_name)
        untold = self._untold = [] if outer is None else outer
        told, kept = len(untold), False
        try:
            yield
            kept = keep
        finally:
            self._untold = outer
            if not kept:
                self._hooks, self._by_name = hooks, by_name
                del untold[told:]
        if outer is None:
            self._public, self._public_names = self._hooks, self._by_name
            for change in untold:
                self._changed(change)

    def tell(self, change: RegistryChange) -> None:
        """Tell of a change, or note it to be told at the end."""
        if self._untold is None:
            self._changed(change)
        else:
            self._untold.append(change)

    def add(self, hook: Hook, limit: int) -> None:
        """Put a hook on the list, under a name no other hook has that can be in the same chain.

        Raises `TooManyHooks` where hooks from definitions are over the limit of an event.
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
        """Take hooks off the list; those that are not on it are left out. Returns how many were."""
        there = [hook for hook in hooks if hook in self._hooks]
        for hook in there:
            self._hooks.remove(hook)
            self._by_name[hook.name] = tuple(other for other in self._by_name[hook.name] if other is not hook)
            if not self._by_name[hook.name]:
                del self._by_name[hook.name]
            self._tell("unregistered", hook)
        return len(there)

    def switch(self, hooks: Iterable[Hook], *, enabled: bool) -> int:
        """Turn hooks on or off, at once. Turning one on also ends its quarantine. Returns how many."""
        switched = list(hooks)
        for hook in switched:
            hook.enabled = enabled
            if enabled:
                hook.pardon()
            hook.settle()
            self._tell("enabled" if enabled else "disabled", hook)
        return len(switched)

    def find_by_name(self, name: str) -> tuple[Hook, ...]:
        """The hooks whose answers are told by this name."""
        return self._public_names.get(name, ())

    def hooks_for(self, row: Event) -> list[Hook]:
        """The hooks that are told of this event, in the order they run."""
        return _sort_hooks(hook for hook in tuple(self._public) if hook.enabled and may_join(hook, row))

    def watches_hooks(self) -> bool:
        """Whether somebody observes what becomes of the hooks."""
        return any(
            hook.intent == "observe" and hook.enabled and hook.event.startswith("hook:") for hook in tuple(self._public)
        )

    def layers_of(self, operation: str) -> list[Hook]:
        """The layers around an operation, the outermost first.

        What stands under the operation's last event runs right after it. The innermost layer has its turn first
        then, so these are in reverse.
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
        # A pattern is at several events; each of them has the limit.
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
    """The same for a hook, and whether it may: a pattern carries no plugin's or tenant's hook to privileged points."""
    if hook.intent == "around" or not applies(hook.event, row.name):
        return False
    return not is_pattern(hook.event) or may_change(hook.tier, hook.tenant, row)


def _may_meet(one: Hook, other: Hook) -> bool:
    """Whether two hooks can be in one chain."""
    if "around" in (one.intent, other.intent):
        return one.intent == other.intent and operation_of(one.event) == operation_of(other.event)
    return applies(one.event, other.event) or applies(other.event, one.event)


def _sort_hooks(hooks: Iterable[Hook]) -> list[Hook]:
    return sorted(hooks, key=lambda hook: hook.sort_key)
