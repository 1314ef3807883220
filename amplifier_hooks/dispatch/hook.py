"""One registered hook, and the hooks of one event in the order they run."""

from __future__ import annotations

from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from attrs import define, field

from amplifier_hooks.events import GOES_ON_WHEN_DENIED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.provenance import VoiceStanding
    from amplifier_hooks.result import Risk
    from amplifier_hooks.text.matching import Matcher


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

    def left_behind(self, tenant: str) -> None:
        """Count that it had to be left behind, in the turn of this tenant."""
        self.leaks_of = {**self.leaks_of, tenant: self.leaks_of.get(tenant, 0) + 1}
        self.quarantined = self.quarantined or self.leaks_of[tenant] >= LEAKS_ALLOWED or self._spread
        self.settle()

    def pardon(self) -> None:
        """End its quarantine, and forget what it was for. Settle it then."""
        self.leaks_of, self.quarantined = NOBODY, False

    def in_quarantine(self, tenant: str) -> bool:
        """Whether it is not to be called for this tenant."""
        return self.quarantined and (self._spread or self.leaks_of.get(tenant, 0) >= LEAKS_ALLOWED)

    @property
    def _spread(self) -> bool:
        """Whether so many tenants had to leave it behind that it is the hook's fault, and not one of theirs."""
        return len(self.leaks_of) >= TENANTS_ALLOWED

    def settle(self) -> None:
        """Derive the flags anew, after any change of the running state, so that it takes effect at once."""
        self.able = self.enabled and not self.quarantined and self.budget is None
        self.plain = self.awaits and self.intent != "register" and self.able and not self.timed

    @property
    def place(self) -> tuple[int, bool, int]:
        """Where it stands: lower priority first, then system before tenants, then in order of registration."""
        return (self.priority, bool(self.tenant), self.number)

    @property
    def origin(self) -> str:
        """What it speaks for outside of this process: the address of a service, a program."""
        origin = getattr(self.handler, "origin", "")
        return origin if isinstance(origin, str) else ""

    @property
    def standing(self) -> VoiceStanding:
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
