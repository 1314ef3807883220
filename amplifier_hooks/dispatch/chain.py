"""The hooks of one event in the order they run, and which of them one payload is for.

A chain is made once, when an event is first emitted after a registration, and then only looked at. What depends on
the payload (its tool's name, its tenant) is looked up by exactly those two, so a regular expression is run once for
each tool name and not once for each call.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn

from attrs import evolve, field, frozen

from amplifier_hooks.events import GOES_ON_WHEN_DENIED, IDENTITY_FIELDS, Event
from amplifier_hooks.text.matching import MatchTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from amplifier_hooks.dispatch.hook import Hook


MIN_TICK: Final = 0.001
MAX_TICK: Final = 0.05

SELECTIONS_KEPT: Final = 1024
"""Tool names come from models; a model that invents a new one for every call must not fill the memory."""


@frozen(eq=False)
class Selection:
    """The hooks that one payload is for, and what the dispatcher wants to know of them beforehand."""

    hooks: tuple[Hook, ...]
    event: str = ""
    keeps: frozenset[str] = frozenset()
    """Fields of the payload that are not for hooks to change."""
    names: tuple[str, ...] = field(init=False)
    patience: float = field(init=False)
    """The shortest time any of them may take, where the clock is not read for each."""
    tick: float = field(init=False)
    """How often to look at them while they wait."""

    def __attrs_post_init__(self) -> None:
        unclocked = (hook.timeout for hook in self.hooks if not hook.timed)
        shortest = min((hook.timeout for hook in self.hooks), default=inf)
        for name, value in {
            "names": tuple(hook.name for hook in self.hooks),
            "patience": min(unclocked, default=inf),
            "tick": min(MAX_TICK, max(MIN_TICK, shortest / 4)),
        }.items():
            object.__setattr__(self, name, value)  # frozen from here on


@frozen(eq=False)
class Chain:
    """Everybody who takes part in one event (`participants`), and everybody who is told about it (`observers`)."""

    event: Event
    participants: tuple[Hook, ...]
    observers: tuple[Hook, ...]
    required: bool = False
    """Somebody must gate here; without a gate for the payload it is denied."""
    stopped: bool = False
    """The registry is under an emergency stop."""
    completed: bool = False
    """Fields are added to every payload."""
    reported: bool = False
    """Somebody observes what becomes of the hooks."""
    name: str = field(init=False)
    stoppable: bool = field(init=False)
    """Denying here keeps something from happening (and does not keep an agent from stopping)."""
    careful: bool = field(init=False)
    """There is more to do after the hooks have answered."""
    watched: bool = field(init=False)
    """Somebody is to be told of the outcome."""
    silent: bool = field(init=False)
    """Nobody listens and nobody has to: the outcome is the payload as it came."""
    everybody: Selection | None = field(init=False)
    watched_by_all: Selection | None = field(init=False)
    _kept: dict[tuple[str, str | None], tuple[Selection, Selection]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        gated = any(hook.intent == "gate" for hook in self.participants)
        stoppable = self.event.gate and self.event.name not in GOES_ON_WHEN_DENIED
        heard = bool(self.participants or self.observers)
        for name, value in {
            "name": self.event.name,
            "stoppable": stoppable,
            "careful": gated or self.required,
            "watched": bool(self.observers) or (self.reported and heard),
            "silent": not heard and not self.required and not self.completed and not (self.stopped and stoppable),
            "everybody": self._of_all(self.participants),
            "watched_by_all": self._of_all(self.observers),
        }.items():
            object.__setattr__(self, name, value)  # frozen from here on

    def pick(self, data: Mapping[str, Any]) -> Selection:
        """The participants this payload is for."""
        return self.everybody or self._select(data)[0]

    def watchers(self, data: Mapping[str, Any]) -> Selection:
        """The observers this payload is for."""
        return self.watched_by_all or self._select(data)[1]

    def _select(self, data: Mapping[str, Any]) -> tuple[Selection, Selection]:
        key = whose(data)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= SELECTIONS_KEPT:
                self._kept.clear()
            found = (self._selected(self.participants, *key), self._selected(self.observers, *key))
            self._kept[key] = found
        return found

    def _of_all(self, hooks: tuple[Hook, ...]) -> Selection | None:
        """One selection for every payload, where no hook looks at tool or tenant."""
        return None if any(hook.match is not None or hook.tenant for hook in hooks) else self.only(hooks)

    def _selected(self, hooks: Iterable[Hook], tenant: str, tool: str | None) -> Selection:
        chosen = (reached(hook, tenant, tool) for hook in hooks)
        return self.only(tuple(hook for hook in chosen if hook is not None))

    def only(self, hooks: tuple[Hook, ...]) -> Selection:
        """These hooks, as a selection of this chain."""
        return Selection(hooks, self.event.name, self.event.keeps or IDENTITY_FIELDS)


def whose(data: Mapping[str, Any]) -> tuple[str, str | None]:
    """The tenant a payload is about, and its tool, as far as it says so in text."""
    tenant, tool = data.get("tenant_id"), data.get("tool_name")
    return (tenant if isinstance(tenant, str) else "", tool if isinstance(tool, str) else None)


def reached(hook: Hook, tenant: str, tool: str | None) -> Hook | None:
    """The hook, if this tenant's call of this tool is for it.

    A gate is for a payload whose tool nobody can name, because it might be the one it guards. A hook whose matcher
    ran out of time stands in as a failure of that hook, so that its `on_error` says what that means.
    """
    if hook.tenant and hook.tenant != tenant:
        return None
    if hook.match is None:
        return hook
    if tool is None:
        return hook if hook.gates or hook.intent == "gate" else None
    try:
        return hook if hook.match.matches(tool) else None
    except MatchTimedOut as error:
        return evolve(hook, call=_failing(error), awaits=False)


def _failing(error: MatchTimedOut) -> Callable[[str, object], NoReturn]:
    def fail(_event: str, _data: object) -> NoReturn:
        raise error

    return fail
