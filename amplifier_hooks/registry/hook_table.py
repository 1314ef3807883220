"""The hooks of a registry, with their unique names and the events that each one takes.

A hook has an event name, or a pattern: `*` is every event except `hook:*`, `tool:*` is one domain. An around hook has
the operation that it wraps, or the first or last event of that operation.

`explain` runs nothing: it names the hooks that would run, and the reasons why the others would not.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from amplifier_hooks.dispatch.chain import NOBODY, Hook, hook_for_call
from amplifier_hooks.dispatch.middleware import OPERATIONS, operation_of
from amplifier_hooks.errors import TooManyHooks
from amplifier_hooks.registry.event_names import applies, is_pattern
from amplifier_hooks.registry.permissions import may_change
from amplifier_hooks.result import STOPS_NOTHING, Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_hooks.dispatch.chain import Chain
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
        self._news: list[RegistryChange] | None = None
        self._public = self._hooks

    def __iter__(self) -> Iterator[Hook]:
        return iter(tuple(self._hooks))

    def __len__(self) -> int:
        return len(self._hooks)

    def named(self, name: str) -> list[Hook]:
        """Return the public hooks whose answers carry this name. An index of names would take as much as a function."""
        return [hook for hook in self._public if hook.name == name]

    def __contains__(self, hook: object) -> bool:
        return hook in self._hooks

    @contextmanager
    def at_once(self, *, keep: bool = True) -> Iterator[None]:
        """Apply all additions and removals of the block together; drop them if the block raises or `keep` is False.

        The changes are reported at the end of the outermost block.
        """
        hooks, outer = self._hooks, self._news
        self._hooks = list(hooks)
        changes = self._news = [] if outer is None else outer
        before, done = len(changes), False
        try:
            yield
            done = keep
        finally:
            self._news = outer
            if not done:
                self._hooks = hooks
                del changes[before:]
        if outer is None:
            self._public = self._hooks
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
        while any(other.name == hook.name and _may_meet(hook, other) for other in self._hooks):
            number += 1
            hook.name = f"{hook.given_name}#{number}"
        self._hooks.append(hook)
        self._tell("registered", hook, hook.intent)

    def remove(self, hooks: Iterable[Hook]) -> int:
        """Remove hooks from the list; ignore hooks that are not on it. Return the number of removed hooks."""
        there = [hook for hook in hooks if hook in self._hooks]
        for hook in there:
            self._hooks.remove(hook)
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


# -- explaining an event -----------------------------------------------------------------------------------------------


class HookExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """One hook, and its part in one payload."""

    name: str
    hook: Hook
    why: str
    """Reason why the hook would run, or would not."""
    on_failure: str
    """Effect of a failure of the hook."""

    @property
    def looks_twice(self) -> bool:
        """True if the hook looks again after a change of the data, and after a person's answer."""
        return self.hook.recheck

    def __str__(self) -> str:
        more = ", looks twice" * self.looks_twice + f", {STOPS_NOTHING}" * self.hook.report_only
        return f"{self.name} ({self.hook.intent}, priority {self.hook.priority}{more}): {self.why}"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Explanation of one event: hooks that answer, observers, hooks left out, and a denial by the registry."""

    event: str
    hooks: tuple[HookExplanation, ...] = ()
    """Hooks that answer, in order. A hook runs only if no hook before it denies."""
    observers: tuple[HookExplanation, ...] = ()
    others: tuple[HookExplanation, ...] = ()
    refusal: Cause | None = None
    """Cause of a denial by the registry itself, whatever the hooks answer."""

    def __str__(self) -> str:
        lines = [f"{self.event}: denied in any case ({self.refusal})" if self.refusal else f"{self.event}:"]
        for title, hooks in (("asked", self.hooks), ("told", self.observers)):
            lines += [f"  {title}: {one}; if it fails, {one.on_failure}" for one in hooks]
        lines += [f"  left out: {one}" for one in self.others]
        return "\n".join(lines)


def explain(chain: Chain, hooks: Iterable[Hook], tenant: str, tool: str | None, refusal: Cause | None) -> Explanation:
    """Explain one payload, by its tenant and tool, for all of these hooks."""
    in_turn: dict[Hook, str] = {}
    for hook in (*chain.participants, *chain.observers):
        chosen = hook_for_call(hook, tenant, tool)
        if chosen is not None:
            in_turn[hook] = _why_runs(hook, tenant, tool, timed_out=chosen is not hook)

    def explain_hook(hook: Hook, why: str) -> HookExplanation:
        return HookExplanation(name=hook.name, hook=hook, why=why, on_failure=_on_failure(hook, chain.name))

    return Explanation(
        event=chain.name,
        hooks=tuple(explain_hook(hook, in_turn[hook]) for hook in chain.participants if hook in in_turn),
        observers=tuple(explain_hook(hook, in_turn[hook]) for hook in chain.observers if hook in in_turn),
        others=tuple(
            explain_hook(hook, _why_skipped(hook, chain.event, tenant, tool)) for hook in hooks if hook not in in_turn
        ),
        refusal=refusal,
    )


def _why_runs(hook: Hook, tenant: str, tool: str | None, *, timed_out: bool) -> str:
    if hook.in_quarantine(tenant):
        return f"it is in quarantine, which counts as its failure: it had to be left behind {hook.leaks} times"
    if timed_out:
        return "its matcher gave no answer in time, which counts as its failure"
    if hook.match is None:
        return f"it is for {hook.event}"
    if tool is None:
        return f"the payload names no tool, and a gate for {hook.match.spec!r} is not opened by that"
    return f"it is for {hook.event}, and {hook.match.spec!r} matches {tool!r}"


def _why_skipped(hook: Hook, row: Event, tenant: str, tool: str | None) -> str:
    if hook.intent == "around":
        return f"it is around {hook.event}, and told of no event"
    if not applies(hook.event, row.name):
        return f"it is for {hook.event}"
    if not may_join(hook, row):
        return f"{row.name} is privileged, and a pattern of a plugin or a tenant leaves that out"
    if not hook.enabled:
        return "it is disabled"
    if hook.tenant and hook.tenant != tenant:
        return f"it is for tenant {hook.tenant!r}"
    spec = hook.match.spec if hook.match else ""
    return f"{spec!r} does not match {tool!r}" if tool else f"the payload names no tool, and it is for {spec!r}"


def _on_failure(hook: Hook, event: str) -> str:
    if hook.intent == "observe":
        return "that is logged"
    if hook.report_only:
        return "that is only on record"
    return "the event is denied" if hook.denies(event) else "it is skipped"
