"""The hooks of one event in the order they run, and the read-only event data that they receive.

A registry builds a `Chain` when an event is first emitted after a registration; from then on the chain is only read.
The chain selects hooks by the tool name and the tenant of a payload and caches each selection, so a regular expression
runs once for each tool name and not once for each call.

`DataView` subclasses dict instead of being a mapping proxy, so that `json.dumps`, `**` and `isinstance(data, dict)`
work for hooks. `run_hooks.py` makes a view for each hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import msgspec
from msgspec.structs import force_setattr, replace

from amplifier_hooks.errors import InvalidPayload
from amplifier_hooks.events import GOES_ON_WHEN_DENIED, IDENTITY_FIELDS, Event
from amplifier_hooks.logs import get_logger
from amplifier_hooks.text.matching import MatchTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amplifier_hooks.payloads import Payload
    from amplifier_hooks.provenance import TrustLevel
    from amplifier_hooks.result import Risk
    from amplifier_hooks.text.matching import Matcher

    PayloadData = Mapping[str, Any] | Payload
    """Data of an event, as the emitter passes it."""


MIN_TICK: Final = 0.001
MAX_TICK: Final = 0.05

SELECTIONS_KEPT: Final = 1024
"""Maximum of cached selections. Models choose tool names; new names must not fill the memory."""

log = get_logger(__name__)


class Selection(msgspec.Struct, frozen=True, eq=False):
    """The hooks that take one payload, with the facts that the dispatcher needs about them.

    The fields from `names` on follow from the hooks.
    """

    hooks: tuple[Hook, ...]
    event: str = ""
    keeps: frozenset[str] = frozenset()
    """Fields of the payload that hooks may not change."""
    names: tuple[str, ...] = ()
    shortest_timeout: float = inf
    """Shortest timeout, in seconds, among the hooks that are not timed one by one."""
    tick: float = MAX_TICK
    """Seconds between two looks of the watchdog while one of these hooks waits."""

    def __post_init__(self) -> None:
        unclocked = (hook.timeout for hook in self.hooks if not hook.timed)
        shortest = min((hook.timeout for hook in self.hooks), default=inf)
        for name, value in {
            "names": tuple(hook.name for hook in self.hooks),
            "shortest_timeout": min(unclocked, default=inf),
            "tick": min(MAX_TICK, max(MIN_TICK, shortest / 4)),
        }.items():
            force_setattr(self, name, value)  # frozen from here on


class Chain(msgspec.Struct, frozen=True, eq=False):
    """The hooks that answer one event (`participants`), and the hooks that only see its outcome (`observers`).

    The fields from `name` on follow from those before it.
    """

    event: Event
    participants: tuple[Hook, ...]
    observers: tuple[Hook, ...]
    required: bool = False
    """True if the event needs a gate; a payload that no gate takes is denied."""
    stopped: bool = False
    """True while the registry is under an emergency stop."""
    completed: bool = False
    """True if the registry adds default fields to every payload."""
    reported: bool = False
    """True if an observer of `hook:*` follows how hooks run."""
    name: str = ""
    stoppable: bool = False
    """True if a denial keeps the act from happening (and does not keep an agent from stopping)."""
    careful: bool = False
    """True if an outcome needs further checks after the hooks have answered."""
    guarded: bool = False
    """True if a gate that can deny takes part, or has to."""
    watched: bool = False
    """True if an observer receives the outcome."""
    silent: bool = False
    """True if no hook runs and no rule of the registry applies: the outcome is the unchanged payload."""
    everybody: Selection | None = None
    watched_by_all: Selection | None = None
    _selections: dict[tuple[str, str | None], tuple[Selection, Selection]] = {}

    def __post_init__(self) -> None:
        gates = [hook for hook in self.participants if hook.intent == "gate"]
        stoppable = self.event.gate and self.event.name not in GOES_ON_WHEN_DENIED
        heard = bool(self.participants or self.observers)
        for name, value in {
            "name": self.event.name,
            "stoppable": stoppable,
            "careful": bool(gates) or self.required,
            "guarded": self.required or not all(hook.report_only for hook in gates),
            "watched": bool(self.observers) or (self.reported and heard),
            "silent": not heard and not self.required and not self.completed and not (self.stopped and stoppable),
            "everybody": self._selection_for_all(self.participants),
            "watched_by_all": self._selection_for_all(self.observers),
        }.items():
            force_setattr(self, name, value)  # frozen from here on

    def pick(self, data: Mapping[str, Any]) -> Selection:
        """Return the participants that take this payload."""
        return self.everybody or self._select(data)[0]

    def watchers(self, data: Mapping[str, Any]) -> Selection:
        """Return the observers that take this payload."""
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
        """Return one selection for every payload, or None if a hook selects by tool or tenant."""
        return None if any(hook.match is not None or hook.tenant for hook in hooks) else self.selection_of(hooks)

    def _make_selection(self, hooks: Iterable[Hook], tenant: str, tool: str | None) -> Selection:
        chosen = (hook_for_call(hook, tenant, tool) for hook in hooks)
        return self.selection_of(tuple(hook for hook in chosen if hook is not None))

    def selection_of(self, hooks: tuple[Hook, ...]) -> Selection:
        """Return these hooks as a selection of this chain."""
        return Selection(hooks, self.event.name, self.event.keeps or IDENTITY_FIELDS)


def tenant_and_tool(data: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the tenant ID and the tool name of a payload; a value that is not a str counts as absent."""
    tenant, tool = data.get("tenant_id"), data.get("tool_name")
    return (tenant if isinstance(tenant, str) else "", tool if isinstance(tool, str) else None)


def hook_for_call(hook: Hook, tenant: str, tool: str | None) -> Hook | None:
    """Return the hook if it takes this tenant's call of this tool, otherwise None.

    If a payload names no tool, every gate takes it, because the call may be one that the gate guards. If the matcher of
    a hook times out, the returned hook fails when it is called, so that the hook's `on_error` decides.
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
        timed_out = error

        def fail(_event: str, _data: object) -> NoReturn:
            raise timed_out

        return replace(hook, call=fail, awaits=False)


Intent = Literal["register", "on", "gate", "observe", "around"]
OnError = Literal["continue", "deny"]
Tier = Literal["built-in", "trusted", "plugin"]
Source = Literal["code", "definition"]

DEFAULT_TIMEOUT: Final = 5.0

NOBODY: Final[Mapping[str, int]] = MappingProxyType({})
LEAKS_ALLOWED: Final = 3
"""Calls of a hook that one tenant may abandon before the hook is quarantined for that tenant."""
TENANTS_ALLOWED: Final = 16
"""Tenants that may have abandoned a hook before it is quarantined for all tenants."""


class SharedTime(msgspec.Struct, frozen=True):
    """Seconds that a hook shares: with the other definitions of its chain, and with all hooks of its chain."""

    definitions: float = inf
    chain: float = inf


class Hook(msgspec.Struct, eq=False, kw_only=True):
    """A registered handler with all its options.

    The second group of fields is the running state; only the registry and the dispatcher write it. `direct`, `plain`,
    `able` and `lean` follow from the other fields. Most hooks are plain.
    """

    name: str
    """Name that is unique among the hooks of an event, so that each answer names exactly one hook."""
    given_name: str
    """Name as registered; `unregister`, `enable` and `disable` take it."""
    event: str
    """Canonical event name, or a pattern: `*`, `tool:*`. For `around`, the operation."""
    intent: Intent
    handler: Callable[..., Any]
    """Handler as registered."""
    version: str
    """Digest of the handler's code and values, as registered."""
    call: Callable[..., Any]
    """Callable that the dispatcher calls with `(event, data)`."""
    awaits: bool
    number: int
    """Registration number; hooks of equal priority run in this order."""
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
    """Risk of the hook's questions, as registered. An answer may give another risk; the highest counts."""
    risk_reason: str = ""
    report_only: bool = False
    """True if no answer and no failure of the hook has an effect; both are only on record."""

    enabled: bool = True
    timed: bool = False
    leaks_of: Mapping[str, int] = NOBODY
    """Abandoned calls by tenant. Never changed in place: nearly all hooks share the empty mapping."""
    quarantined: bool = False
    """True if the hook is in quarantine for at least one tenant."""
    direct: bool = False
    """True if the dispatcher can call and await the hook without further checks, but for its time."""
    plain: bool = False
    """True if the hook is direct, and not timed."""
    able: bool = False
    """True if the hook is enabled, is in no quarantine, and shares no budget that other hooks may use up."""
    lean: bool = False
    """True if only an answer, a failure or a delay of the hook needs a record: its time is neither shared nor kept."""

    def __post_init__(self) -> None:
        gated = self.intent == "gate" or self.on_error == "deny"
        self.timed = self.timed or self.timing or gated or self.budget is not None or self.report_only
        self.settle()

    @property
    def leaks(self) -> int:
        """Number of abandoned calls, for all tenants together."""
        return sum(self.leaks_of.values())

    def count_leak(self, tenant: str) -> None:
        """Count an abandoned call of this tenant, and quarantine the hook if the limit is reached."""
        self.leaks_of = {**self.leaks_of, tenant: self.leaks_of.get(tenant, 0) + 1}
        self.quarantined = self.quarantined or self.leaks_of[tenant] >= LEAKS_ALLOWED or self._is_widespread
        self.settle()

    def in_quarantine(self, tenant: str) -> bool:
        """Return True if the hook must not be called for this tenant."""
        return self.quarantined and (self._is_widespread or self.leaks_of.get(tenant, 0) >= LEAKS_ALLOWED)

    @property
    def _is_widespread(self) -> bool:
        """True if so many tenants abandoned the hook that the hook is at fault, and not one tenant."""
        return len(self.leaks_of) >= TENANTS_ALLOWED

    def settle(self) -> None:
        """Derive the flags again. Call it after any change of the running state, so that the change applies at once."""
        self.able = self.enabled and not self.quarantined and self.budget is None
        self.direct = self.awaits and self.intent != "register" and self.able
        self.plain = self.direct and not self.timed
        self.lean = self.budget is None and not self.timing

    @property
    def sort_key(self) -> tuple[int, bool, int]:
        """Position in the chain: lower priority first, then system before tenants, then order of registration."""
        return (self.priority, bool(self.tenant), self.number)

    @property
    def origin(self) -> str:
        """Address of the service or program that the hook speaks for; empty for a hook of this process."""
        origin = getattr(self.handler, "origin", "")
        return origin if isinstance(origin, str) else ""

    @property
    def current_version(self) -> str:
        """The `hook_version` that the handler has now, or the digest of its registration."""
        return stated_version(self.handler) or self.version

    @property
    def trust_level(self) -> TrustLevel:
        """Trust level of the hook's texts."""
        if self.origin:
            return "external"
        if self.tenant:
            return "tenant"
        return "definition" if self.source == "definition" else self.tier

    @property
    def gates(self) -> bool:
        """True if the hook's answer is required: a failure counts as a denial."""
        return self.on_error == "deny"

    def denies(self, event: str) -> bool:
        """Return True if a failure of the hook denies this event; that of a report-only hook never does."""
        return self.fails_closed(event) and not self.report_only

    def fails_closed(self, event: str) -> bool:
        """Return True if a failure of the hook would deny this event if the hook were in force.

        In front of a stop, only the failure of a hook that was registered there by name denies.
        """
        return self.gates and (self.event == event or event not in GOES_ON_WHEN_DENIED)


def stated_version(handler: object) -> str:
    """Return the `hook_version` of a handler, or of the object whose method it is; nothing if there is none."""
    try:
        for one in (handler, getattr(handler, "__self__", None)):
            if isinstance(version := getattr(one, "hook_version", None), str):
                return version
    except BaseException:  # noqa: BLE001  # a property is the hook's code
        log.warning("hook_version_failed", hook=type(handler).__qualname__)
    return ""


class DataView(dict[str, Any]):
    """A read-only dict. `copy()`, `|`, `copy.copy`, `copy.deepcopy` and pickling give plain dicts that can be changed.

    The view stops changes made by habit or mistake. It does not stop a hook that calls the methods of `dict` itself.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "event data is read-only; return HookResult.modify({...}) to change what the next hook sees"
        raise TypeError(message)

    __setitem__ = __delitem__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse  # all refuse alike
    __ior__ = _refuse

    def copy(self) -> dict[str, Any]:
        """Return a plain dict with the same items."""
        return dict(self)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def as_payload(event: str, data: PayloadData) -> Mapping[str, Any]:
    """Return the data of an event as a mapping: a mapping as it is, and a model (`model_dump`) by its fields.

    Raises `InvalidPayload` for anything else.
    """
    if isinstance(data, Mapping):
        return data
    dump = getattr(data, "model_dump", None)
    fields = dump() if callable(dump) and not isinstance(data, type) else None
    if not isinstance(fields, Mapping):
        raise InvalidPayload(f"{event}: data of type {type(data).__name__}; pass a mapping of field to value")
    return fields
