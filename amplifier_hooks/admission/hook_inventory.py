"""The hooks of a session on record: a snapshot when it begins, and each change since.

A record of decisions says little without the hooks that made them. The snapshot opens the session; a change is
written before the next outcome, the first in which the changed hook can have had a part.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from amplifier_hooks.registry.handler_version import version_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.record.recorder import Recorder
    from amplifier_hooks.registry.hook_table import RegistryChange
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Outcome


MOST_HOOKS: Final = 200
"""Hooks in one record; the records after it hold the rest."""

MOST_CHANGES: Final = 1_000
"""Changes that wait to be written; of further changes only the number is kept."""


@define(eq=False)
class Inventory:
    """The hooks that can take part in the sessions of one tenant."""

    hooks: HookRegistry
    recorder: Recorder
    tenant: str
    every_run: bool = False
    """True if the record has every run of hooks as well, with its start and its end."""
    changes: list[RegistryChange] = field(factory=list)
    """The changes that are not on record yet."""
    _more: int = 0
    _unwatch: Callable[[], None] | None = None

    async def open(self) -> None:
        """Record the hooks that are registered, and watch for changes from now on."""
        self._unwatch = self.hooks.watch(self._note_change)
        there = [hook_facts(hook) for hook in self.hooks.hooks() if hook.tenant in ("", self.tenant)]
        pages = [there[start : start + MOST_HOOKS] for start in range(0, len(there), MOST_HOOKS)] or [[]]
        for number, page in enumerate(pages, 1):
            facts = {"hooks": page} if len(pages) == 1 else {"hooks": page, "page": number, "pages": len(pages)}
            await self.recorder.note("registry.snapshot", facts)

    async def write(self) -> None:
        """Record the changes."""
        changes, self.changes, more, self._more = self.changes, [], self._more, 0
        for change in changes:
            about = ((name, getattr(change, name)) for name in ("what", "hook", "event", "owner", "tenant", "detail"))
            await self.recorder.note("registry.changed", {name: value for name, value in about if value})
        if more:
            await self.recorder.note("registry.changed", {"what": "more", "number": more})

    async def run(self, event: str, payload: Mapping[str, Any], deciding: Awaitable[Outcome]) -> Outcome:
        """Record the hooks of an event before they are asked, and the end of the run after their answers.

        Raises the errors of `deciding`; the end of a run that raised is on record as well.
        """
        told = self.hooks.explain(event, payload)
        about = {"event": told.event, "event_id": payload.get("event_id")}
        asked = [one.name for one in told.hooks]
        await self.recorder.note("hooks.asked", {**about, "hooks": asked, "observers": len(told.observers)})
        began, answers = perf_counter(), None
        try:
            outcome = await deciding
            answers = len(outcome.answers)
        finally:
            spent = (perf_counter() - began) * 1e3
            await self.recorder.note("hooks.answered", {**about, "answers": answers, "duration_ms": spent})
        return outcome

    async def close(self) -> None:
        """Write the remaining changes, and stop watching."""
        if self._unwatch is not None:
            self._unwatch()
            await self.write()

    def _note_change(self, change: RegistryChange) -> None:
        if change.tenant not in ("", self.tenant):
            return
        if len(self.changes) < MOST_CHANGES:
            self.changes.append(change)
        else:
            self._more += 1


def hook_facts(hook: Hook) -> dict[str, Any]:
    """Return one hook as the record has it, without the fields that have their usual value."""
    facts: dict[str, Any] = {
        "hook": hook.name,
        "event": hook.event,
        "intent": hook.intent,
        "priority": hook.priority,
        "on_error": hook.on_error,
        "tier": hook.tier,
        "version": version_of(hook),
    }
    usual = {"match": hook.match.spec if hook.match else "", "tenant": hook.tenant, "owner": hook.owner}
    facts |= {name: value for name, value in usual.items() if value}
    if hook.report_only:
        facts["report_only"] = True
    return facts if hook.enabled else {**facts, "enabled": False}
