"""What ready-made hooks have in common: settings that explain themselves, and the points where they register.

What a hook remembers of each session it serves: bounded, and forgotten when the session ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Self, TypeVar, get_args

from attrs import frozen
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from amplifier_hooks.dispatch.chain import DEFAULT_TIMEOUT
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.text.matching import compile_matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from types import TracebackType

    from pydantic_core import ErrorDetails

    from amplifier_hooks.dispatch.chain import Intent
    from amplifier_hooks.registry.decorators import Registrar, Undo


LONGEST_FIELD: Final = 80

TYPE_PROBLEMS: Final = {
    "tuple_type": "write a list: [one, another]",
    "frozen_set_type": "write a list: [one, another]",
    "dict_type": "write a mapping: {name: value}",
}
"""What is wrong with values of some types, in the words of a file rather than in those of Python."""


def _check_match(spec: str) -> str:
    compile_matcher(spec)
    return spec


ToolMatch = Annotated[str, AfterValidator(_check_match)]
"""A setting that says which tools a hook is for, as `match` does; what could never match is refused."""


class HookSettings(BaseModel):
    """Settings of a ready-made hook: unknown fields are refused, and nothing can be assigned afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=HookSettings)


@frozen(kw_only=True)
class Point:
    """One place where a hook registers, with what the registry is told there."""

    event: str
    """The event; for `around`, the operation."""
    call: Callable[..., Any]
    """`async (event, data)`; `(event, data, outcome)` for observe, `(context, call_next)` for around."""
    intent: Intent
    priority: int
    match: str | None = None
    """The tools it is for; None is every call."""
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds; None never ends."""
    recheck: bool = True
    """Whether a gate looks again at data that was changed after its first look."""


class ReadyMade(ABC, Generic[S]):
    """A hook to switch on: `LinterFeedback().register(registry)`, or by its name through `registry.discover([…])`.

    A subclass has a `name` (that of its entry point), its `Settings`, and its `points`. What it needs from outside it
    takes as keyword arguments that have working defaults. One of it serves any number of sessions.
    """

    name: ClassVar[str]
    Settings: type[S]
    settings: S

    def __init__(self, settings: S | None = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The hook with settings from a file or another program.

        Raises `InvalidHookSettings`, which names the hook, every field that is wrong, and the remedy.
        """
        if not isinstance(config, Mapping):
            raise InvalidHookSettings(cls.name, (f"its settings are {shortened(config)}; pass a mapping of fields",))
        try:
            settings = cls.Settings.model_validate(dict(config))
        except ValidationError as error:
            raise InvalidHookSettings(
                cls.name, tuple(_problem(one, cls.Settings) for one in error.errors(include_url=False))
            ) from None
        return cls(settings)

    @abstractmethod
    def points(self) -> tuple[Point, ...]:
        """Where it registers, with these settings."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of what it holds open, if anything; what it needs again it opens again. Twice is harmless."""

    def register(self, registrar: Registrar, **options: Any) -> Undo:
        """Register all its points, or none of them, under the hook's name. Returns the undo.

        The options are those of every registration, and win over the hook's own: `tenant`, `priority`, `match`, ….
        Raises what registering raises.
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


def _problem(error: ErrorDetails, settings: type[BaseModel]) -> str:
    """One sentence for one thing that is wrong."""
    field = ".".join(str(part) for part in error["loc"])[:LONGEST_FIELD] or "settings"
    if error["type"] == "extra_forbidden":
        known = _fields_at(settings, error["loc"][:-1])
        near = get_close_matches(str(error["loc"][-1]), known, n=1)
        there = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}"
        return f"there is no setting {field!r}; {there}"
    if error["type"] == "value_error":
        return f"setting {field!r}: {error['ctx']['error']}"
    return f"setting {field!r}: {TYPE_PROBLEMS.get(error['type'], error['msg'])}"


def _fields_at(settings: type[BaseModel], place: tuple[int | str, ...]) -> tuple[str, ...]:
    """The fields there are at a place within settings, past lists and mappings."""
    model = settings
    for part in place:
        if part in model.model_fields:
            model = next(_models(model.model_fields[str(part)].annotation), model)
    return tuple(model.model_fields)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


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

    def is_first(self, data: Mapping[str, Any], *what: Hashable) -> bool:
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
