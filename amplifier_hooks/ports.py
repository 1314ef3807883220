"""What a session needs from its host, as small protocols, and the values that pass through them.

Every port has a working default, so a host supplies only what it has: a context of its own, a way to ask a person, a
screen, a record. Methods may be plain or async where the protocol says `Awaitable[…] | …`.
"""

from __future__ import annotations

# Needed when the program runs: stores read requests and decisions back by these annotations.
from collections.abc import Awaitable, Mapping, Sequence  # noqa: TC003
from datetime import datetime  # noqa: TC003
from typing import Any, Literal, Protocol, SupportsIndex, runtime_checkable

from attrs import frozen

from amplifier_hooks.result import Default, Level, Role, Scope  # noqa: TC001

__all__ = [
    "ApprovalBackend",
    "ApprovalRequest",
    "AuditSink",
    "Clock",
    "ContextManager",
    "Decision",
    "DisplaySystem",
    "Head",
    "HeadStore",
    "Option",
    "OptionKind",
    "Question",
    "TokenCounter",
]

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


@frozen(kw_only=True)
class Option:
    """One answer a person can give. Its kind says what it means; the label is what they read."""

    id: str
    label: str
    kind: OptionKind

    @property
    def allows(self) -> bool:
        """Whether choosing it lets the operation happen."""
        return self.kind in ("allow_once", "allow_always")


@frozen(kw_only=True)
class Question:
    """Why a person is asked: one hook and its words.

    `scope` and `key` say what an "allow always" would cover for this hook: its prompt, this very action, or the key.
    """

    hook: str
    prompt: str
    version: str = ""
    scope: Scope = "prompt"
    key: str | None = None


@frozen(kw_only=True)
class ApprovalRequest:
    """One action, waiting for a person.

    `arguments` are the final ones, and `digest` is computed over exactly their bytes, the tool, the event, the session
    and the tenant: what is shown here is what runs.
    """

    id: str
    tenant: str
    session: str
    agent: str
    event: str
    tool: str
    arguments: Mapping[str, Any]
    digest: str
    questions: tuple[Question, ...]
    options: tuple[Option, ...]
    default: Default
    created: datetime
    expires: datetime
    risk: Literal["low", "medium", "high"] = "medium"
    cwd: str = ""
    wait: float | None = None
    """Seconds somebody waits inline. If they end before `expires`, a durable backend leaves the question open."""

    @property
    def prompt(self) -> str:
        """Every question, one a line."""
        return "\n".join(question.prompt for question in self.questions)


@frozen(kw_only=True)
class Decision:
    """What somebody chose, and who they are. It counts only if the option was offered and the time was not up.

    `id` makes sending the same decision twice harmless. `arguments` are those the approver wrote instead of the ones
    shown; they pass through the gates again, and `claim` then takes the digest of the action with them.
    """

    option: str
    by: str
    channel: str
    message: str | None = None
    id: str | None = None
    at: datetime | None = None
    arguments: Mapping[str, Any] | None = None


class ApprovalBackend(Protocol):
    """Where a person (or several, or a rule) decides.

    The session enforces the deadline whatever a backend does. A backend that cannot ask raises; the request is then
    denied and recorded as unavailable, never as somebody's refusal.
    """

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and wait for the answer.

        Raises `ApprovalTimeout` when its own time is up. Cancelling it withdraws the question from wherever it is
        shown; a later answer changes nothing.
        """
        ...

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval for running the action, right before it runs. True once, for the digest approved."""
        ...

    async def settle(self, request_id: str, outcome: Literal["done", "failed"]) -> None:
        """Say what became of the action that was claimed. Twice is harmless."""
        ...

    async def withdraw(self, request_id: str, reason: str) -> None:
        """The question is no longer asked. For one that is unknown or decided this does nothing."""
        ...


@runtime_checkable
class ContextManager(Protocol):
    """The messages an agent's model will read."""

    def add_message(
        self, role: Role, content: str, metadata: Mapping[str, Any] | None = None
    ) -> Awaitable[None] | None:
        """Append one message."""
        ...

    def get_messages(self) -> Awaitable[Sequence[Any]] | Sequence[Any]:
        """Every message, in order."""
        ...


class DisplaySystem(Protocol):
    """What the person at the screen sees. Never read by the agent."""

    def show_message(self, message: str, level: Level, source: str) -> Awaitable[None] | None:
        """Show one message. A failure is logged and goes no further."""
        ...


class AuditSink(Protocol):
    """Where the record goes."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record; with `durable`, return only once it would survive a power cut.

        Raises `OSError` when it cannot; what is waiting for a durable record is then denied.
        """
        ...

    async def close(self) -> None:
        """Finish. Twice is harmless."""
        ...


@frozen(kw_only=True)
class Head:
    """How far a log goes, and the hash of its last line there; `note` is signed, where it was."""

    log: str
    segment: int
    size: int
    head: str
    note: str = ""


class HeadStore(Protocol):
    """Where heads of logs are kept as well, out of reach of whoever can write the logs."""

    async def latest(self, log: str) -> Head | None:
        """The latest head of a log, if there is one. Raises when the store cannot be read."""
        ...

    async def put(self, head: Head) -> None:
        """Keep a head. One that is earlier than what is kept, or the same, changes nothing.

        Raises `HeadConflict` when another hash is kept for the same size: one of the two logs is not the other.
        """
        ...


class TokenCounter(Protocol):
    """How many tokens a text costs a model, as its provider counts them.

    It may fail, hang or be wrong: what it says is checked, and the number of UTF-8 bytes stands in for it.
    """

    def count(self, text: str) -> Awaitable[SupportsIndex] | SupportsIndex:
        """A whole number, never less than the model will see. A plain method is called in a thread."""
        ...


class Clock(Protocol):
    """The time of day, handed in so that a test can move it."""

    def now(self) -> datetime:
        """Now, in UTC."""
        ...
