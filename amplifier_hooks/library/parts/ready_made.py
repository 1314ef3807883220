"""The base of ready-made hooks: settings, points to register, a memory per session, and the facts of a payload.

Settings have clear errors, and the memory is bounded. Payloads state texts, tokens and folders in many formats.
"""

from __future__ import annotations

import glob
import os
import stat
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Self, TypeVar, Unpack

from attrs import frozen
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from amplifier_hooks.dispatch.chain import DEFAULT_TIMEOUT
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.events import APPROVAL_DENIED, APPROVAL_EXPIRED, APPROVAL_GRANTED
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.text.strict_parsing import error_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
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
    """Settings of the hook; its defaults if None."""

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
"""Sessions that a hook remembers, also after their end. If there are more, the least recently used are forgotten."""

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

    def __len__(self) -> int:
        return len(self._entries)


class Once:
    """A memory of messages, so that each appears only once in a session."""

    def __init__(self) -> None:
        self._remarks: PerSession[dict[int, None]] = PerSession(dict)

    def is_first(self, data: Mapping[str, Any], *what: Hashable) -> bool:
        """Return True if `what` is new in the session of this payload, and remember its hash: texts may be long."""
        said, key = self._remarks.of(data), hash(what)
        if key in said:
            return False
        said[key] = None
        if len(said) > MOST_SAID:
            del said[next(iter(said))]
        return True


def _key(data: Mapping[str, Any]) -> tuple[str, str]:
    return str(data.get("tenant_id") or ""), str(data.get("session_id") or "")


# -- facts of a payload ------------------------------------------------------------------------------------------------


DECISIONS: Final = {APPROVAL_GRANTED: "granted", APPROVAL_DENIED: "denied", APPROVAL_EXPIRED: "expired"}
"""Events of a decided approval, each with its decision."""

DEEPEST: Final = 8


def text_of(response: object, depth: int = 0) -> str | None:
    """Return the text of a response: a string, its `content` or `text`, or a list of such. None if there is no text."""
    if isinstance(response, str):
        return response
    if depth > DEEPEST:
        return None
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray):
        texts = [text for part in response if (text := text_of(part, depth + 1)) is not None]
        return "\n".join(texts) if texts else None
    for name in ("content", "text", "message"):
        inner = response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)
        if inner is not None:
            return text_of(inner, depth + 1)
    return None


def find_files(folder: str, pattern: str, *, since: float = 0.0) -> list[tuple[str, int]]:
    """Return the non-empty files of this name or glob within a folder, with their sizes in bytes. Folders do not count.

    With `since`, return only files that were written at or after that time (seconds since 1970).
    """
    there = []
    for path in sorted(glob.iglob(pattern, root_dir=os.path.expanduser(folder), recursive=True)):  # noqa: PTH111, PTH207  # pathlib's refuses absolute patterns
        try:
            status = os.stat(os.path.join(os.path.expanduser(folder), path))  # noqa: PTH111, PTH116, PTH118  # as above
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_mtime >= since:
            there.append((path, status.st_size))
    return there


def missing_files(folder: str, patterns: Iterable[str], *, since: float = 0.0) -> list[str]:
    """Return the names or globs that match no file."""
    return [pattern for pattern in patterns if not find_files(folder, pattern, since=since)]


LONGEST: Final = 1e12
"""Longest duration in milliseconds. A longer one, or a value that is no number, is none."""


def duration_of(data: Mapping[str, Any]) -> float | None:
    """Return the milliseconds that an event states, or None if it states none."""
    spent = data.get("duration_ms")
    sound = isinstance(spent, int | float) and not isinstance(spent, bool) and 0 <= spent <= LONGEST
    return spent if sound else None


MOST: Final = 10**12
"""Most tokens that one answer may state; a larger number is ignored."""


def tokens_of(data: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the tokens of one answer by kind of price, from any provider's format, or None if it states none."""
    usage = data.get("usage") or _member(data.get("response"), "usage")
    read = _count(usage, "input_tokens", "prompt_tokens")
    wrote = _count(usage, "output_tokens", "completion_tokens")
    if read is None and wrote is None:
        return None
    details = _member(usage, "input_tokens_details") or _member(usage, "prompt_tokens_details")
    # Some providers include cached tokens in the number of tokens read, others count them separately.
    within = min(_count(details, "cached_tokens") or 0, read or 0)
    return {
        "input": (read or 0) - within,
        "output": wrote or 0,
        "cache_read": within + (_count(usage, "cache_read_input_tokens") or 0),
        "cache_write": _count(usage, "cache_creation_input_tokens") or 0,
    }


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: object, *names: str) -> int | None:
    for name in names:
        count = _member(usage, name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST:
            return count
    return None


def folder_of(cwd: str, data: Mapping[str, Any]) -> str:
    """Return the folder of a setting; if it is empty, the session's, and without one this program's."""
    told = data.get("cwd")
    known = told if isinstance(told, str) and os.path.isabs(told) else Path.cwd()  # noqa: PTH117  # text, on purpose
    return os.path.abspath(os.path.expanduser(cwd) or known)  # noqa: PTH100, PTH111  # links stay as they are written
