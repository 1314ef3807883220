"""The event names of one registry: those of the catalogue, those that were declared, and what was meant by others."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Final

from amplifier_hooks import events
from amplifier_hooks.errors import EventNameWarning, InvalidRegistration, UnknownEvent
from amplifier_hooks.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_hooks.payloads import Payload

__all__ = ["EVERYTHING", "Vocabulary", "applies", "is_pattern"]

EVERYTHING: Final = "*"


class Vocabulary:
    """Which names are known, in any spelling."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._declared: dict[str, Event] = {}
        self._models: dict[str, type[Payload]] = {}

    def __iter__(self) -> Iterator[Event]:
        yield from events.CATALOGUE
        yield from self._declared.values()

    def __contains__(self, event: str) -> bool:
        return self.find(event) is not None

    def find(self, event: str) -> Event | None:
        """What is known of an event; None of one that nobody declared."""
        return events.find(event) or self._declared.get(event)

    def row(self, event: str) -> Event:
        """The same; of one that nobody declared, its name."""
        return self.find(event) or Event(name=event, fires="")

    def payload_model(self, event: str) -> type[Payload]:
        """The model of an event's payload."""
        return self._models.get(event) or events.payload_model(event)

    def declare(self, row: Event, model: type[Payload] | None) -> None:
        """Add an event. Twice the same is harmless.

        Raises `InvalidRegistration` for a name that is taken, and for declaring it differently: a gate must not stop
        being one.
        """
        name = row.name
        if not name or "*" in name or events.find(name):
            raise InvalidRegistration(f"{name!r} cannot be declared: choose a name nobody uses, as 'domain:phase'")
        if self._declared.get(name, row) != row:
            raise InvalidRegistration(f"event {name!r} was declared before, and differently")
        self._declared[name] = row
        if model is not None:
            self._models[name] = model

    def known(self, event: object, *, patterns: bool = False) -> str:
        """The canonical name. A misspelt one is warned about, where the caller of this package wrote it.

        Raises `UnknownEvent` for an unknown name where only known ones may be, and `InvalidRegistration` for what is
        no name at all, or stands for several events where one is meant.
        """
        if not isinstance(event, str) or not event:
            raise InvalidRegistration(f"event {event!r} is not a name; pass one such as 'tool:pre'")
        name = events.canonical(event)
        if name in self:
            return name
        if "*" in name:
            if not is_pattern(name):
                raise InvalidRegistration(
                    f"event {name!r}: write '*' for all events, or 'tool:*' for those of a domain"
                )
            if not patterns:
                raise InvalidRegistration(f"event {name!r} stands for several; name one of them")
            if any(applies(name, row.name) for row in self):
                return name
            likely = self._likely_domain(name)
        else:
            likely = events.likely(name, self._declared)
        if self._strict:
            raise UnknownEvent(name, likely)
        if likely:
            message = f"event {name!r} is unknown; did you mean {likely!r}?"
            warnings.warn(message, EventNameWarning, stacklevel=_frames_of_ours())
        return name

    def _likely_domain(self, pattern: str) -> str | None:
        domains = {row.name.partition(":")[0] for row in self}
        from difflib import get_close_matches  # for a mistake only

        near = get_close_matches(pattern[:-2], domains, n=1, cutoff=0.8)
        return f"{near[0]}:*" if near else None


def is_pattern(event: str) -> bool:
    """Whether an event name stands for several: `*`, or `domain:*`."""
    return event == EVERYTHING or (event.endswith(":*") and event.index("*") == len(event) - 1 and event != ":*")


def applies(spec: str, event: str) -> bool:
    """Whether `spec`, a name or a pattern, is for this event. `*` leaves out what is told about hooks themselves."""
    if spec == EVERYTHING:
        return not event.startswith("hook:")
    return spec == event or (is_pattern(spec) and event.startswith(spec[:-1]))


def _frames_of_ours() -> int:
    """How far up from our caller the first frame is that is not this package's."""
    ours = __name__.partition(".")[0]
    frame, count = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == ours:
        frame, count = frame.f_back, count + 1
    return count
