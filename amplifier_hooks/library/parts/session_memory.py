"""What a hook remembers of each session it serves: bounded, and forgotten when the session ends."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping


SESSIONS_KEPT: Final = 10_000
"""Sessions a hook remembers; of more, those it has not heard of for longest are forgotten."""

MOST_SAID: Final = 1_000
"""Things of one session that `Once` remembers; of more, the first are forgotten."""

T = TypeVar("T")


class PerSession(Generic[T]):
    """One value for each session, made by `make` when it is first asked for. Sessions of two tenants are two."""

    def __init__(self, make: Callable[[], T], *, most: int = SESSIONS_KEPT) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[tuple[str, str], T] = OrderedDict()

    def of(self, data: Mapping[str, Any]) -> T:
        """The value of the session that a payload is from."""
        key = _key(data)
        kept = self._kept
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        value = kept[key] = self._make()
        while len(kept) > self._most:
            kept.popitem(last=False)
        return value

    def forget(self, data: Mapping[str, Any]) -> None:
        """Forget the session that a payload is from."""
        self._kept.pop(_key(data), None)

    def __len__(self) -> int:
        return len(self._kept)


class Once:
    """Says whether something is said for the first time in a session."""

    def __init__(self) -> None:
        self._said: PerSession[dict[Hashable, None]] = PerSession(dict)

    def first(self, data: Mapping[str, Any], *what: Hashable) -> bool:
        """Whether this was not said before in the session of this payload; from now on it was."""
        said = self._said.of(data)
        if what in said:
            return False
        said[what] = None
        if len(said) > MOST_SAID:
            del said[next(iter(said))]
        return True

    def forget(self, data: Mapping[str, Any]) -> None:
        """Forget the session that a payload is from."""
        self._said.forget(data)


def _key(data: Mapping[str, Any]) -> tuple[str, str]:
    return str(data.get("tenant_id") or ""), str(data.get("session_id") or "")
