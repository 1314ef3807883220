"""Explains an event without running anything: the hooks that would run, and the reasons why the others would not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from amplifier_hooks.dispatch.chain import Chain, hook_for_call
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.hook_table import may_join
from amplifier_hooks.result import STOPS_NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.events import Event
    from amplifier_hooks.result import Cause


@frozen(kw_only=True)
class HookExplanation:
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


@frozen(kw_only=True)
class Explanation:
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
