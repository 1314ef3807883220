"""Stand-ins for what a session needs from its host: small, real, and with a script. For tests, yours and ours.

    RecordingContext     keeps messages; can be told to fail
    ScriptedApprover     answers by label, in order; can hang, fail, run out of time
    CollectingDisplay    keeps what the person at the screen would see
    CollectingAudit      keeps the record; can be told to fail
    ManualClock          stands still until it is moved
    unchanged_process    fails where hooks leave the process different from how they found it

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

from amplifier_hooks.approvals import Claims
from amplifier_hooks.ports import ApprovalRequest, Decision, Settlement
from amplifier_hooks.session.display import CollectingDisplay

if TYPE_CHECKING:
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
    "unchanged_process",
]


ARITHMETIC: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "flags", "traps")
"""What a decimal context consists of."""


@contextmanager
def unchanged_process() -> Iterator[None]:
    """What runs inside must leave alone what all hooks of a process share; if it does not, that is put back.

    Looked at are the working directory, the environment, the locale, the recursion limit and the decimal context.

    Raises `AssertionError`, naming what was changed. Not for hooks that run meanwhile in other threads.
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
                setattr(arithmetic, name, getattr(before, name))  # others outside of us may hold the same one
    if changed:
        raise AssertionError(f"hooks changed {'; '.join(changed)}")


class ManualClock:
    """A clock that shows the time it was set to; `advance` moves it. Deadlines that somebody waits for are not its."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        """The time it was set to."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move it, also back: real clocks do that, too."""
        self._now += timedelta(seconds=seconds)


@frozen
class Message:
    """One message as a context was given it."""

    role: Role
    content: str
    metadata: Mapping[str, Any]


class RecordingContext:
    """Keeps messages. While `error` is set, adding one raises it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.error: Exception | None = None

    async def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append one message."""
        if self.error is not None:
            raise self.error
        self.messages.append(Message(role, content, dict(metadata or {})))

    async def get_messages(self) -> list[Message]:
        """Every message, in order."""
        return list(self.messages)

    @property
    def texts(self) -> list[str]:
        """What the messages say."""
        return [message.content for message in self.messages]


@frozen
class Record:
    """One record as a sink was given it."""

    kind: str
    facts: Mapping[str, Any]
    durable: bool


class CollectingAudit:
    """Keeps the record. While `error` is set, writing raises it; with `only`, for records of that kind alone."""

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
        """What kinds of record there are, in order."""
        return [record.kind for record in self.records]

    def facts(self, kind: str) -> list[Mapping[str, Any]]:
        """The facts of every record of one kind."""
        return [record.facts for record in self.records if record.kind == kind]


class Hang(Enum):
    """The type of `HANG`."""

    HANG = "hang"


HANG: Final = Hang.HANG
"""In a script: wait for ever, or until cancelled."""

ScriptedAnswer = str | Hang | Exception | Callable[[ApprovalRequest], Awaitable[Decision]]
Step = tuple[Literal["request", "claim", "settle", "withdraw"], str]


class ScriptedApprover:
    """Answers requests from a script, in order.

    Each entry is the label of an option, `HANG`, an exception to raise (`ApprovalTimeout()` for one whose time is up),
    or an async function of the request whose result is given as it is. A label that was not offered is answered all
    the same, and when the script has ended, asking raises `IndexError`: neither may become a permit.

    `requests` has what was asked, `steps` what a session did with it, and `became` how actions ended; `asked` is set
    with the first request.
    """

    def __init__(self, *script: ScriptedAnswer, by: str = "Robin", channel: str = "script") -> None:
        self._script = list(script)
        self._by = by
        self._channel = channel
        self._claims = Claims()
        self.requests: list[ApprovalRequest] = []
        self.steps: list[Step] = []
        self.became: list[Settlement] = []
        self.asked = asyncio.Event()

    async def request(self, request: ApprovalRequest) -> Decision:
        """Give the next answer of the script."""
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
            self._claims.note(request, decision)
        return decision

    async def claim(self, request_id: str, digest: str) -> bool:
        """Give out an approval: once, and for the digest it was given for."""
        self.steps.append(("claim", request_id))
        return self._claims.take(request_id, digest)

    async def settle(self, request_id: str, outcome: Settlement) -> None:
        """Note that the action is over, and how; see `became`."""
        self.steps.append(("settle", request_id))
        self.became.append(outcome)

    async def withdraw(self, request_id: str, reason: str) -> None:  # noqa: ARG002  # the port's
        """Note that nobody needs to answer any more; an approval that was given is void."""
        self._claims.drop(request_id)
        self.steps.append(("withdraw", request_id))

    @property
    def step_names(self) -> list[str]:
        """The steps without the ids."""
        return [step for step, _ in self.steps]
