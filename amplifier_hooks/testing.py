"""Stand-ins for the parts that a session needs from its host: small, real, and with a script. For tests of any project.

    RecordingContext     keeps messages; fails on demand
    ScriptedApprover     answers by label, in order; hangs, fails, runs out of time
    CollectingDisplay    keeps the messages that the person at the screen would see
    CollectingAudit      keeps the record; fails on demand
    ManualClock          stands still until it is moved
    SpoilingHook         spoils every object that it was given; finds emitters that share objects between hooks
    spoil_events         runs a test with spoiling hooks at every event of every registry
    unchanged_process    fails if hooks leave the process different from how they found it

```python
approver = ScriptedApprover("Allow", HANG, RuntimeError("line is down"))
session = SessionCoordinator(approvals=approver, audit=CollectingAudit(), clock=ManualClock())
```
"""

from __future__ import annotations

import asyncio
import decimal
import locale
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from unittest.mock import patch

from attrs import frozen
from msgspec.structs import replace

from amplifier_hooks.approvals import Claims
from amplifier_hooks.dispatch.run_hooks import Run
from amplifier_hooks.ports import ApprovalRequest, Decision, KeptResult, Settlement
from amplifier_hooks.registry import registry
from amplifier_hooks.registry.hook_table import Explanation, Roster, explain
from amplifier_hooks.registry.permissions import BUILT_IN
from amplifier_hooks.registry.registration import make_hook
from amplifier_hooks.result import Answer, HookResult, Outcome
from amplifier_hooks.session.display import CollectingDisplay

if TYPE_CHECKING:
    from amplifier_hooks.dispatch.chain import Hook, Intent
    from amplifier_hooks.events import Event
    from amplifier_hooks.registry.decorators import Registrar
    from amplifier_hooks.result import Role

__all__ = [
    "HANG",
    "CollectingAudit",
    "CollectingDisplay",
    "Hang",
    "ManualClock",
    "Message",
    "Record",
    "RecordingContext",
    "ScriptedApprover",
    "SpoilingHook",
    "spoil_events",
    "unchanged_process",
]


ARITHMETIC: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "flags", "traps")
"""The attributes of a decimal context."""


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Check that the body changes nothing that all hooks of a process share, and put back any change.

    The check covers the working directory, the environment, the locale, the recursion limit and the decimal context. Do
    not use it while hooks run in other threads.

    Raises `AssertionError`, naming each change.
    """
    directory, environment, limit = Path.cwd(), dict(os.environ), sys.getrecursionlimit()
    language, arithmetic = locale.setlocale(locale.LC_ALL), decimal.getcontext()
    before = arithmetic.copy()
    changed = []
    try:
        yield
    finally:
        if Path.cwd() != directory:
            changed.append(f"the working directory to {Path.cwd()}")
            os.chdir(directory)
        if dict(os.environ) != environment:
            names = sorted(name for name, _ in environment.items() ^ os.environ.items())
            changed.append(f"the environment: {', '.join(dict.fromkeys(names))}")
            os.environ.clear()
            os.environ.update(environment)
        if locale.setlocale(locale.LC_ALL) != language:
            changed.append(f"the locale to {locale.setlocale(locale.LC_ALL)}")
            locale.setlocale(locale.LC_ALL, language)
        if sys.getrecursionlimit() != limit:
            changed.append(f"the recursion limit to {sys.getrecursionlimit()}")
            sys.setrecursionlimit(limit)
        if repr(arithmetic) != repr(before):
            changed.append(f"the decimal context to {arithmetic}")
            for name in ARITHMETIC:
                setattr(arithmetic, name, getattr(before, name))  # code outside of the body may hold the same context
    if changed:
        raise AssertionError(f"hooks changed {'; '.join(changed)}")


class ManualClock:
    """A clock that shows the time it was set to; `advance` moves it. It does not move deadlines under way.

    Args:
        start: Time that the clock shows first.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        """Return the time that the clock shows."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock, also back: real clocks do that, too."""
        self._now += timedelta(seconds=seconds)


@frozen
class Message:
    """One message as a context received it."""

    role: Role
    content: str
    metadata: Mapping[str, Any]
    """Facts about the message that the model does not read."""


class RecordingContext:
    """A context that keeps messages. While `error` is set, adding a message raises it."""

    mark = "mark"
    """The mark in the headings of hooks' texts, always the same here."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.error: Exception | None = None

    async def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append one message."""
        if self.error is not None:
            raise self.error
        self.messages.append(Message(role, content, dict(metadata or {})))

    async def get_messages(self) -> list[Message]:
        """Return every message, in order."""
        return list(self.messages)

    @property
    def texts(self) -> list[str]:
        """The contents of the messages."""
        return [message.content for message in self.messages]


@frozen
class Record:
    """One record as a sink received it."""

    kind: str
    facts: Mapping[str, Any]
    durable: bool
    """True if the writer waited for the disk."""


class CollectingAudit:
    """A sink that keeps the record. While `error` is set, writing raises it; with `only`, for that kind alone.

    Args:
        error: Exception that `write` raises; None lets it work.
        only: Kind of record at which `error` is raised; None stands for all.
    """

    def __init__(self, error: Exception | None = None, *, only: str | None = None) -> None:
        self.records: list[Record] = []
        self.error = error
        self.only = only

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record."""
        if self.error is not None and self.only in (None, kind):
            raise self.error
        self.records.append(Record(kind, dict(facts), durable))

    @property
    def kinds(self) -> list[str]:
        """The kinds of the records, in order."""
        return [record.kind for record in self.records]

    def facts(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the facts of every record of one kind."""
        return [record.facts for record in self.records if record.kind == kind]


class Hang(Enum):
    """The type of `HANG`."""

    HANG = "hang"


HANG: Final = Hang.HANG
"""An entry of a script: wait for ever, or until cancelled."""

ScriptedAnswer = str | Hang | Exception | Callable[[ApprovalRequest], Awaitable[Decision]]
Step = tuple[Literal["request", "claim", "settle", "withdraw"], str]


class ScriptedApprover(Claims):
    """An approver that answers requests from a script, in order.

    Each entry is the label of an option, `HANG`, an exception to raise (`ApprovalTimeout()` for an approver whose time
    is up), or an async function of the request that returns the decision. A label that was not offered is answered
    unchanged, and when the script has ended, asking raises `IndexError`: neither may become a permit.

    `requests` lists the requests, `steps` the calls that a session made, and `became` the ends of actions; `asked` is
    set with the first request.

    Args:
        script: Answers, in order.
        by: Name of the approver.
        channel: Kind of place where the approver answers.
    """

    def __init__(self, *script: ScriptedAnswer, by: str = "Robin", channel: str = "script") -> None:
        super().__init__()
        self._script = list(script)
        self._by = by
        self._channel = channel
        self.requests: list[ApprovalRequest] = []
        self.steps: list[Step] = []
        self.became: list[Settlement] = []
        self.asked = asyncio.Event()

    async def request(self, request: ApprovalRequest) -> Decision:
        """Return the next answer of the script."""
        self.requests.append(request)
        self.steps.append(("request", request.id))
        self.asked.set()
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is HANG:
            await asyncio.Event().wait()
        if callable(answer):
            decision = await answer(request)
        else:
            chosen = next((option.id for option in request.options if option.label == answer), str(answer))
            decision = Decision(option=chosen, by=self._by, channel=self._channel)
        if isinstance(decision, Decision):
            self.note(request, decision)
        return decision

    async def claim(self, request_id: str, digest: str) -> bool:
        """Give out an approval: once, and only for its own digest."""
        self.steps.append(("claim", request_id))
        return await super().claim(request_id, digest)

    async def settle(self, request_id: str, outcome: Settlement, result: KeptResult | None = None) -> None:  # noqa: ARG002  # the port's
        """Note the end of an action in `became`."""
        self.steps.append(("settle", request_id))
        self.became.append(outcome)

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Note that the question is taken back, and void an approval that was given."""
        await super().withdraw(request_id, reason)
        self.steps.append(("withdraw", request_id))

    @property
    def step_names(self) -> list[str]:
        """The names of the steps, without the ids."""
        return [step for step, _ in self.steps]


SPOILT: Final = (dict, list, tuple, set, bytearray, Outcome, Answer, HookResult)
"""Types of the values that are overwritten, and of those whose parts are."""


class SpoilingHook:
    """A hook that keeps every object that it is given, and spoils them all in place at its next call.

    Every value in a dict, list, set or bytearray is overwritten, at any depth, also in a read-only dict and in the
    fields of an outcome. The hook never answers. `spoil_events` runs a whole test under it.

    ```python
    spoiling = SpoilingHook.attach(registry)
    outcome = await registry.emit("tool:pre", data)
    spoiling.spoil()
    assert data == {"tool_name": "Bash", "tool_input": {"command": "ls"}}
    ```
    """

    MARK: Final = "spoilt"
    """The text in the place of every value."""

    hook_version = "1"
    """Its version as a hook: not a digest of what it was given, which would be read at each emit."""

    def __init__(self) -> None:
        self.given: list[object] = []

    @classmethod
    def attach(cls, registry: Registrar, event: str = "*", **options: Any) -> SpoilingHook:
        """Register one hook as `register`, `on`, `gate` and `observe` for an event, by default for all, and return it.

        The options are those of every registration. The hook of a lower priority number runs before others, whose
        objects it then spoils at the next of its four calls.

        Args:
            registry: Registry or scope that takes the hooks.
            options: Options of every registration.
        """
        hook = cls()
        for way in ("register", "on", "gate", "observe"):
            getattr(registry, way)(event, hook, **{"name": f"spoiling {way}", **options})
        return hook

    def __call__(self, event: str, *given: object) -> None:  # noqa: ARG002  # a hook's
        """Spoil everything that was given before, and keep what is given now."""
        self.spoil()
        self.given.extend(given)

    def spoil(self) -> None:
        """Overwrite everything in all objects that were given, and forget them."""
        todo, found = self.given, dict[int, object]()
        self.given = []
        while todo:
            value = todo.pop()
            if isinstance(value, SPOILT) and id(value) not in found:
                found[id(value)] = value
                todo.extend(_parts(value))
        for one in found.values():
            _overwrite(one)


SPOILER: Final = "spoiling"


@contextmanager
def spoil_events() -> Iterator[None]:
    """Run the body with a `SpoilingHook` before and after the hooks of every event, in all registries made meanwhile.

    No list of hooks, no outcome and no explanation names the spoiling hooks. Where the code under test reads an object
    that was given to a hook, it reads "spoilt". Run your whole suite so:

    ```python
    @pytest.fixture(autouse=True)
    def spoiled():
        with spoil_events():
            yield
    ```
    """
    spoiling = SpoilingHook()
    hooks_for, outcome = Roster.hooks_for, Run.outcome
    record = Run._record  # noqa: SLF001  # the one place that keeps answers

    @cache
    def make(intents: tuple[Intent, ...], event: str) -> list[Hook]:
        return [
            make_hook(one, event, spoiling, BUILT_IN, -1, chain_timeout=inf, name=SPOILER, timeout=None)
            for one in intents
        ]

    def surrounded(roster: Roster, row: Event) -> list[Hook]:
        hooks = hooks_for(roster, row)
        intents: tuple[Intent, ...] = ("observe",) if any(hook.intent == "observe" for hook in hooks) else ()
        if any(hook.intent != "observe" for hook in hooks):
            intents = ("on", "register", *intents)
        return [*make(intents, row.name), *hooks, *make(intents, row.name)]

    def unseen(run: Run) -> Outcome:
        found = outcome(run)
        return replace(found, ran=tuple(name for name in found.ran if name != SPOILER))

    def keep(run: Run, answer: Answer) -> None:
        if answer.hook_name != SPOILER:
            record(run, answer)

    def leave_out(*about: Any) -> Explanation:
        found = explain(*about)
        hooks, observers = (tuple(one for one in ran if one.name != SPOILER) for ran in (found.hooks, found.observers))
        return replace(found, hooks=hooks, observers=observers)

    try:
        with (
            patch.object(Roster, "hooks_for", surrounded),
            patch.object(Run, "outcome", unseen),
            patch.object(Run, "_record", keep),
            patch.object(registry, "explain", leave_out),
        ):
            yield
    finally:
        spoiling.spoil()


def _parts(value: Any) -> list[object]:
    """Return the members of a container, or the fields of an outcome. Foreign objects are passed by reference."""
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, list | tuple):
        return [*value]
    if isinstance(value, Outcome | Answer | HookResult):
        return [getattr(value, name) for name in value.__struct_fields__]
    return []


def _overwrite(value: object) -> None:
    """Replace all members of a container, whatever its own methods refuse."""
    mark = SpoilingHook.MARK
    if isinstance(value, dict):
        for key in [*value]:
            dict.__setitem__(value, key, mark)
        dict.__setitem__(value, mark, mark)
    elif isinstance(value, list):
        list.__setitem__(value, slice(None), [mark] * (len(value) + 1))
    elif isinstance(value, set):
        set.clear(value)
        set.add(value, mark)
    elif isinstance(value, bytearray):
        bytearray.__setitem__(value, slice(None), mark.encode())
