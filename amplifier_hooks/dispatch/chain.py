"""The hooks of one event in the order they run, and which of them one payload is for.

A chain is made once, when an event is first emitted after a registration, and then only looked at. What depends on
the payload (its tool's name, its tenant) is looked up by exactly those two, so a regular expression is run once for
each tool name and not once for each call.

One registered hook, and the hooks of one event in the order they run.

The event data as hooks see it: a dict that reads as usual and refuses to be written.

A dict subclass rather than a mapping proxy, so that `json.dumps`, `**` and `isinstance(data, dict)` work for hooks;
the lists and dicts inside are the emitter's own (a session coordinator keeps its frozen, hashed copy beside them).
"""

from __future__ import annotations

from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn

from attrs import define, evolve, field, frozen

from amplifier_hooks.events import GOES_ON_WHEN_DENIED, IDENTITY_FIELDS, Event
from amplifier_hooks.text.matching import MatchTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from amplifier_hooks.provenance import TrustLevel
    from amplifier_hooks.result import Risk
    from amplifier_hooks.text.matching import Matcher


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
    shortest_timeout: float = field(init=False)
    """The shortest time any of them may take, where the clock is not read for each."""
    tick: float = field(init=False)
    """How often to look at them while they wait."""

    def __attrs_post_init__(self) -> None:
        unclocked = (hook.timeout for hook in self.hooks if not hook.timed)
        shortest = min((hook.timeout for hook in self.hooks), default=inf)
        for name, value in {
            "names": tuple(hook.name for hook in self.hooks),
            "shortest_timeout": min(unclocked, default=inf),
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
    _selections: dict[tuple[str, str | None], tuple[Selection, Selection]] = field(init=False, factory=dict)

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
            "everybody": self._selection_for_all(self.participants),
            "watched_by_all": self._selection_for_all(self.observers),
        }.items():
            object.__setattr__(self, name, value)  # frozen from here on

    def pick(self, data: Mapping[str, Any]) -> Selection:
        """The participants this payload is for."""
        return self.everybody or self._select(data)[0]

    def watchers(self, data: Mapping[str, Any]) -> Selection:
        """The observers this payload is for."""
        return self.watched_by_all or self._select(data)[1]

    def _select(self, data: Mapping[str, Any]) -> tuple[Selection, Selection]:
        key = tenant_and_tool(data)
        found = self._selections.get(key)
        if found is None:
            if len(self._selections) >= SELECTIONS_KEPT:
                self._selections.clear()
            found = (self._make_selection(self.participants, *key), self._make_selection(self.observers, *key))
            self._selections[key] = found
        return found

    def _selection_for_all(self, hooks: tuple[Hook, ...]) -> Selection | None:
        """One selection for every payload, where no hook looks at tool or tenant."""
        return None if any(hook.match is not None or hook.tenant for hook in hooks) else self.selection_of(hooks)

    def _make_selection(self, hooks: Iterable[Hook], tenant: str, tool: str | None) -> Selection:
        chosen = (hook_for_call(hook, tenant, tool) for hook in hooks)
        return self.selection_of(tuple(hook for hook in chosen if hook is not None))

    def selection_of(self, hooks: tuple[Hook, ...]) -> Selection:
        """These hooks, as a selection of this chain."""
        return Selection(hooks, self.event.name, self.event.keeps or IDENTITY_FIELDS)


def tenant_and_tool(data: Mapping[str, Any]) -> tuple[str, str | None]:
    """The tenant a payload is about, and its tool, as far as it says so in text."""
    tenant, tool = data.get("tenant_id"), data.get("tool_name")
    return (tenant if isinstance(tenant, str) else "", tool if isinstance(tool, str) else None)


def hook_for_call(hook: Hook, tenant: str, tool: str | None) -> Hook | None:
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
        return evolve(hook, call=_failing_call(error), awaits=False)


def _failing_call(error: MatchTimedOut) -> Callable[[str, object], NoReturn]:
    def fail(_event: str, _data: object) -> NoReturn:
        raise error

    return fail


Intent = Literal["register", "on", "gate", "observe", "around"]
OnError = Literal["continue", "deny"]
Tier = Literal["built-in", "trusted", "plugin"]
Source = Literal["code", "definition"]

DEFAULT_TIMEOUT: Final = 5.0

NOBODY: Final[Mapping[str, int]] = MappingProxyType({})
LEAKS_ALLOWED: Final = 3
"""How often a hook may be left behind, for one tenant, before it is quarantined for that tenant."""
TENANTS_ALLOWED: Final = 16
"""Tenants that may have to leave it behind before it is quarantined for all."""


class SharedTime(NamedTuple):
    """Seconds a hook shares with others of its chain: with those that came from definitions, and with all."""

    definitions: float = inf
    chain: float = inf


@define(eq=False, kw_only=True, weakref_slot=False)
class Hook:
    """A handler with everything that was said when it was registered.

    The second group is the hook's running state; only the registry and the dispatcher write it. `plain` is derived
    from the rest: the hook can be called and awaited with nothing else to look at, which is what most hooks are.
    """

    name: str
    """Unique among the hooks of an event, so that an answer can be told to its hook."""
    given_name: str
    """The name as it was registered; what `unregister`, `enable` and `disable` take."""
    event: str
    """Canonical name, or a pattern: `*`, `tool:*`; for `around`, the operation."""
    intent: Intent
    handler: Callable[..., Any]
    """What was registered."""
    call: Callable[..., Any]
    """What the dispatcher calls: `(event, data)`."""
    awaits: bool
    number: int
    """Counts registrations; hooks of equal priority run in this order."""
    priority: int = 0
    timeout: float = DEFAULT_TIMEOUT
    on_error: OnError = "continue"
    match: Matcher | None = None
    tenant: str = ""
    tier: Tier = "built-in"
    owner: str = ""
    recheck: bool = True
    concurrent: bool = False
    budget: SharedTime | None = None
    timing: bool = False
    source: Source = "code"
    risk: Risk | None = None
    """The risk of what it asks about, by its registration; its answers may say another, and the highest counts."""
    risk_reason: str = ""

    enabled: bool = True
    timed: bool = False
    leaks_of: Mapping[str, int] = NOBODY
    """How often it had to be left behind, by tenant; never changed in place: nearly all share the empty one."""
    quarantined: bool = False
    """It is in quarantine for somebody."""
    plain: bool = field(default=False, init=False)
    able: bool = field(default=False, init=False)
    """It can be called, and shares no budget that may be used up."""

    def __attrs_post_init__(self) -> None:
        self.timed = (
            self.timed or self.timing or self.intent == "gate" or self.on_error == "deny" or self.budget is not None
        )
        self.settle()

    @property
    def leaks(self) -> int:
        """How often it had to be left behind."""
        return sum(self.leaks_of.values())

    def count_leak(self, tenant: str) -> None:
        """Count that it had to be left behind, in the turn of this tenant."""
        self.leaks_of = {**self.leaks_of, tenant: self.leaks_of.get(tenant, 0) + 1}
        self.quarantined = self.quarantined or self.leaks_of[tenant] >= LEAKS_ALLOWED or self._is_widespread
        self.settle()

    def pardon(self) -> None:
        """End its quarantine, and forget what it was for. Settle it then."""
        self.leaks_of, self.quarantined = NOBODY, False

    def in_quarantine(self, tenant: str) -> bool:
        """Whether it is not to be called for this tenant."""
        return self.quarantined and (self._is_widespread or self.leaks_of.get(tenant, 0) >= LEAKS_ALLOWED)

    @property
    def _is_widespread(self) -> bool:
        """Whether so many tenants had to leave it behind that it is the hook's fault, and not one of theirs."""
        return len(self.leaks_of) >= TENANTS_ALLOWED

    def settle(self) -> None:
        """Derive the flags anew, after any change of the running state, so that it takes effect at once."""
        self.able = self.enabled and not self.quarantined and self.budget is None
        self.plain = self.awaits and self.intent != "register" and self.able and not self.timed

    @property
    def sort_key(self) -> tuple[int, bool, int]:
        """Where it stands: lower priority first, then system before tenants, then in order of registration."""
        return (self.priority, bool(self.tenant), self.number)

    @property
    def origin(self) -> str:
        """What it speaks for outside of this process: the address of a service, a program."""
        origin = getattr(self.handler, "origin", "")
        return origin if isinstance(origin, str) else ""

    @property
    def trust_level(self) -> TrustLevel:
        """How far its words are trusted."""
        if self.origin:
            return "external"
        if self.tenant:
            return "tenant"
        return "definition" if self.source == "definition" else self.tier

    @property
    def gates(self) -> bool:
        """Whether its answer is required: a failure counts as a denial."""
        return self.on_error == "deny"

    def denies(self, event: str) -> bool:
        """Whether a failure of it denies this event: in front of a stop only if it was registered there by name."""
        return self.gates and (self.event == event or event not in GOES_ON_WHEN_DENIED)


class DataView(dict[str, Any]):
    """A read-only dict. `copy()`, `|`, `copy.copy`, `copy.deepcopy` and pickling give plain dicts to work on.

    It stops what hooks do by habit or mistake. Whoever calls the methods of `dict` itself on it gets past it.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "event data is read-only; return HookResult.modify({...}) to change what the next hook sees"
        raise TypeError(message)

    __setitem__ = __delitem__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse  # all refuse alike
    __ior__ = _refuse

    def copy(self) -> dict[str, Any]:
        """A plain dict with the same items, free to change."""
        return dict(self)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)
