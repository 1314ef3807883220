"""The event names of one registry: from the catalogue, declared, the host's own, and unknown ones."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Final

from amplifier_hooks import events
from amplifier_hooks.errors import EventNameWarning, InvalidRegistration, MisspeltEvent, UnknownEvent
from amplifier_hooks.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_hooks.payloads import Payload


EVERYTHING: Final = "*"


class Vocabulary:
    """The known event names, in any spelling."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._declarations: dict[str, Event] = {}
        self._models: dict[str, type[Payload]] = {}
        self._own: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Event]:
        yield from events.CATALOGUE
        yield from self._declarations.values()

    def __contains__(self, event: str) -> bool:
        """Return True if an event, or one that a pattern stands for, is catalogued, declared, or the host's own."""
        return self._is_described(event) or any(applies(event, own) for own in self._own)

    def find(self, event: str) -> Event | None:
        """Return the description of an event; None for an event that is not described."""
        return events.find(event) or self._declarations.get(event)

    def row(self, event: str) -> Event:
        """Return the description of an event; for an event that is not described, its name alone."""
        return self.find(event) or Event(event)

    def payload_model(self, event: str) -> type[Payload]:
        """Return the model of an event's payload."""
        return self._models.get(event) or events.payload_model(event)

    def declare(self, row: Event, model: type[Payload] | None) -> None:
        """Add an event. Repeating a declaration is harmless.

        Raises `InvalidRegistration` for a name that is taken, and for a different declaration of the same name: a gate
        must not stop being one.
        """
        name = row.name
        if not name or "*" in name or events.find(name):
            raise InvalidRegistration(f"{name!r} cannot be declared: choose an unused name, as 'domain:phase'")
        self._refuse_alike(name)
        if self._declarations.get(name, row) != row:
            raise InvalidRegistration(f"event {name!r} was declared before, and differently")
        self._declarations[name] = row
        if model is not None:
            self._models[name] = model

    def add_own(self, names: Iterable[str]) -> None:
        """Make names known without a description. Each stays known until it is removed as often as it was added.

        Raises `MisspeltEvent`.
        """
        added = [name for name in names if not self._is_described(name)]
        for name in added:
            self._refuse_alike(name)
        self._own.update(added)

    def remove_own(self, names: Iterable[str]) -> None:
        """Remove names that `add_own` added."""
        self._own -= Counter(names)

    def require(self, event: str, hook: str, remedy: str = "") -> None:
        """Refuse an unknown event, at which the hook would never run. Raises `UnknownEvent`."""
        if event not in self:
            self._refuse_alike(event)
            likely = self._likely_domain(event) if is_pattern(event) else events.suggestion(event, self._names())
            remedy = remedy or f"declare it with registry.declare({event!r}), or pass own_event=True"
            raise UnknownEvent(event, likely, hook=hook, remedy=remedy)

    def resolve_name(self, event: object, *, patterns: bool = False, warn: bool = True) -> str:
        """Return the canonical name. A name that is a typo away from a known one gives a warning at the caller's line.

        Raises `UnknownEvent` for an unknown name where only known names are accepted, `MisspeltEvent` for a known name
        in another writing, and `InvalidRegistration` for a value that is no name, or for a pattern where one event is
        meant.
        """
        if not isinstance(event, str) or not event:
            raise InvalidRegistration(f"event {event!r} is not a name; pass one such as 'tool:pre'")
        name = events.canonical(event)
        if "*" in name:
            if not is_pattern(name):
                raise InvalidRegistration(
                    f"event {name!r}: write '*' for all events, or 'tool:*' for those of a domain"
                )
            if not patterns:
                raise InvalidRegistration(f"event {name!r} stands for several; name one of them")
        if name in self:
            return name
        self._refuse_alike(name)
        likely = self.likely(name)
        if self._strict:
            raise UnknownEvent(name, likely)
        if likely and warn:
            message = f"event {name!r} is unknown; did you mean {likely!r}?"
            warnings.warn(message, EventNameWarning, stacklevel=_frames_of_ours())
        return name

    def likely(self, event: str) -> str | None:
        """Return the known name, or pattern, that an unknown name is a typo away from."""
        return self._likely_domain(event) if is_pattern(event) else events.likely(event, self._names())

    def _is_described(self, event: str) -> bool:
        return self.find(event) is not None or (is_pattern(event) and any(applies(event, row.name) for row in self))

    def _names(self) -> tuple[str, ...]:
        """Return the names that are known besides those of the catalogue."""
        return (*self._declarations, *(name for name in self._own if not is_pattern(name)))

    def _refuse_alike(self, name: str) -> None:
        known = events.alike(name, self._names())
        if known:
            raise MisspeltEvent(name, known)

    def _likely_domain(self, pattern: str) -> str | None:
        domains = {row.name.partition(":")[0] for row in self}
        from difflib import get_close_matches  # for a mistake only

        near = get_close_matches(pattern[:-2], domains, n=1, cutoff=0.8)
        return f"{near[0]}:*" if near else None


def is_pattern(event: str) -> bool:
    """Return True if an event name stands for several events: `*`, or `domain:*`."""
    return event == EVERYTHING or (event.endswith(":*") and event.index("*") == len(event) - 1 and event != ":*")


def applies(spec: str, event: str) -> bool:
    """Return True if `spec`, a name or a pattern, includes this event. `*` leaves out `hook:*`."""
    if spec == EVERYTHING:
        return not event.startswith("hook:")
    return spec == event or (is_pattern(spec) and event.startswith(spec[:-1]))


def _frames_of_ours() -> int:
    """Return the distance from the caller to the first frame outside this package."""
    ours = __name__.partition(".")[0]
    frame, count = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == ours:
        frame, count = frame.f_back, count + 1
    return count
