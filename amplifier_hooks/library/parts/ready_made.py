"""The base of ready-made hooks: settings with clear errors, points to register, and a bounded memory per session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Self, TypeVar, Unpack

from attrs import frozen
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from amplifier_hooks.dispatch.chain import DEFAULT_TIMEOUT
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.text.error_sentences import error_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

    from amplifier_hooks.dispatch.chain import Intent
    from amplifier_hooks.registry.decorators import Registrar, Undo
    from amplifier_hooks.registry.registration import HookOptions


def _check_match(spec: str) -> str:
    compile_tool_matcher(spec)
    return spec


ToolMatch = Annotated[str, AfterValidator(_check_match)]
"""A setting that selects the tools of a hook, like `match`. A selector that can never match is refused."""


class HookSettings(BaseModel):
    """Settings of a ready-made hook. Unknown fields are refused, and a field cannot be assigned afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=HookSettings)


@frozen(kw_only=True)
class Point:
    """One point at which a hook registers, with the options of that registration."""

    event: str
    """The event; for `around`, the operation."""
    call: Callable[..., Any]
    """`async (event, data)`; `(event, data, outcome)` for observe, `(context, call_next)` for around."""
    intent: Intent
    priority: int
    match: str | None = None
    """The tools that the hook is for; None matches every call."""
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds; None means no timeout."""
    recheck: bool = True
    """True if a gate looks again at data that was changed after its first look."""


class ReadyMade(ABC, Generic[S]):
    """A hook to switch on: `LinterFeedback().register(registry)`, or by its name through `registry.discover([…])`.

    A subclass has a `name` (that of its entry point), its `Settings`, and its `points`. Its dependencies are keyword
    arguments that have working defaults. One instance serves any number of sessions.
    """

    name: ClassVar[str]
    replays: ClassVar[bool] = False
    """True if the hook decides before a tool call from the call alone: it runs, sends and writes nothing."""
    Settings: type[S]
    settings: S

    def __init__(self, settings: S | None = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the hook with settings from a file or another program.

        Raise `InvalidHookSettings`, which names the hook, every field that is wrong, and the remedy.
        """
        if not isinstance(config, Mapping):
            raise InvalidHookSettings(cls.name, (f"its settings are {shortened(config)}; pass a mapping of fields",))
        try:
            settings = cls.Settings.model_validate(dict(config))
        except ValidationError as error:
            raise InvalidHookSettings(
                cls.name, tuple(error_sentence(one, cls.Settings) for one in error.errors(include_url=False))
            ) from None
        return cls(settings)

    @abstractmethod
    def points(self) -> tuple[Point, ...]:
        """Return the points at which the hook registers with these settings."""

    def for_replay(self, now: Callable[[], float]) -> Self | None:  # for hooks that count by time
        """Return the hook that judges calls of the past, whose time `now` returns in seconds; None if none can."""
        return self if self.replays else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release open resources; the hook opens them again on its next use. A second call does nothing."""

    def register(self, registrar: Registrar, **options: Unpack[HookOptions]) -> Undo:
        """Register all points of the hook, or none of them, under the hook's name. Return the undo function.

        The options are those of every registration, and override the hook's own: `tenant`, `priority`, `match`, ….
        Raise the errors of registering.
        """
        with ExitStack() as undone:
            undos = []
            for point in self.points():
                given: dict[str, Any] = {"priority": point.priority, "timeout": point.timeout, "match": point.match}
                if point.intent == "gate":
                    given["recheck"] = point.recheck
                undo = getattr(registrar, point.intent)(
                    point.event, point.call, **{"name": self.name, **given, **options}
                )
                undone.callback(undo)
                undos.append(undo)
            undone.pop_all()

        def undo_all() -> None:
            for undo in undos:
                undo()

        return undo_all


SESSIONS_KEPT: Final = 10_000
"""Sessions that a hook remembers. If there are more, the least recently used are forgotten."""

MOST_SAID: Final = 1_000
"""Entries of one session that `Once` remembers. If there are more, the first are forgotten."""

T = TypeVar("T")


class PerSession(Generic[T]):
    """One value for each session, created by `make` on first use. Sessions of two tenants are separate."""

    def __init__(self, make: Callable[[], T], *, most: int = SESSIONS_KEPT) -> None:
        self._make = make
        self._most = most
        self._entries: OrderedDict[tuple[str, str], T] = OrderedDict()

    def of(self, data: Mapping[str, Any]) -> T:
        """Return the value of the session that a payload is from."""
        key = _key(data)
        kept = self._entries
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        value = kept[key] = self._make()
        while len(kept) > self._most:
            kept.popitem(last=False)
        return value

    def forget(self, data: Mapping[str, Any]) -> None:
        """Forget the session that a payload is from."""
        self._entries.pop(_key(data), None)

    def __len__(self) -> int:
        return len(self._entries)


class Once:
    """A memory of messages, so that each appears only once in a session."""

    def __init__(self) -> None:
        self._remarks: PerSession[dict[Hashable, None]] = PerSession(dict)

    def is_first(self, data: Mapping[str, Any], *what: Hashable) -> bool:
        """Return True if `what` is new in the session of this payload, and remember it."""
        said = self._remarks.of(data)
        if what in said:
            return False
        said[what] = None
        if len(said) > MOST_SAID:
            del said[next(iter(said))]
        return True

    def forget(self, data: Mapping[str, Any]) -> None:
        """Forget the session that a payload is from."""
        self._remarks.forget(data)


def _key(data: Mapping[str, Any]) -> tuple[str, str]:
    return str(data.get("tenant_id") or ""), str(data.get("session_id") or "")
