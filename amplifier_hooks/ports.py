"""What a session needs from its host, as small protocols, and the values that pass through them.

Every port has a working default, so a host supplies only what it has: a context of its own, a way to ask a person, a
screen, a record. Methods may be plain or async where the protocol says `Awaitable[…] | …`.
"""

from __future__ import annotations

# Needed when the program runs: stores read requests and decisions back by these annotations.
from collections.abc import Awaitable, Mapping, Sequence  # noqa: TC003
from datetime import datetime  # noqa: TC003
from typing import Any, Literal, Protocol, SupportsIndex, runtime_checkable

import msgspec
from attrs import frozen

from amplifier_hooks.result import Assessment, Default, Level, Risk, Role, Scope

__all__ = [
    "ActionFacts",
    "ApprovalBackend",
    "ApprovalRequest",
    "ArgumentStore",
    "Assessment",
    "AuditSink",
    "Clock",
    "ContextManager",
    "Decision",
    "DisplaySystem",
    "DurableApprovals",
    "Grant",
    "GrantKey",
    "GrantMatch",
    "GrantStore",
    "Head",
    "HeadStore",
    "Option",
    "OptionKind",
    "Question",
    "Risk",
    "RuleEffect",
    "RulePolicy",
    "RuleVerdict",
    "Settlement",
    "TokenCounter",
    "Unfinished",
    "UpstreamMethod",
]

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
RuleEffect = Literal["allow", "ask", "deny"]
Settlement = Literal["done", "failed", "unknown"]
"""What became of an action: it returned, it raised or was kept from running, or nobody knows whether it happened."""


class Option(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer a person can give. Its kind says what it means; the label is what they read."""

    id: str
    label: str
    kind: OptionKind

    @property
    def allows(self) -> bool:
        """Whether choosing it lets the operation happen."""
        return self.kind in ("allow_once", "allow_always")

    @property
    def lasts(self) -> bool:
        """Whether it is a standing answer."""
        return self.kind in ("allow_always", "reject_always")


class Question(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    risk: Risk = "medium"
    """The highest of the assessments."""
    cwd: str = ""
    wait: float | None = None
    """Seconds somebody waits inline. If they end before `expires`, a durable backend leaves the question open."""
    keep: float | None = None
    """Seconds for which the backend keeps an "always", in every session; None keeps it until this session ends."""
    assessments: tuple[Assessment, ...] = ()
    """Everything that hooks, rules and the host said about the risk."""

    @property
    def prompt(self) -> str:
        """Every question, one a line."""
        return "\n".join(question.prompt for question in self.questions)

    @property
    def risk_reasons(self) -> tuple[Assessment, ...]:
        """Every assessment that gives a reason for the risk as high as it is."""
        return tuple(one for one in self.assessments if one.risk == self.risk and one.reason)


@frozen(kw_only=True)
class Decision:
    """What somebody chose, and who they are. It counts only if the option was offered and the time was not up.

    `id` makes sending the same decision twice harmless. `arguments` are those the approver wrote instead of the ones
    shown; they pass through the gates again, and `claim` then takes the digest of the action with them. `message` is
    what the approver has to say: to the model, if this is a refusal.
    """

    option: str
    by: str
    channel: str
    message: str | None = None
    id: str | None = None
    at: datetime | None = None
    arguments: Mapping[str, Any] | None = None
    took: float | None = None
    """Seconds from the question to this answer, where the backend knows both."""


class ApprovalBackend(Protocol):
    """Where a person (or several, or a rule) decides.

    The session enforces the deadline whatever a backend does. A backend that cannot ask raises; the request is then
    denied and recorded as unavailable, never as somebody's refusal. One that keeps questions over a restart is a
    `DurableApprovals`, too; one that keeps standing answers is a `GrantStore`.
    """

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and wait for the answer.

        Raises `ApprovalTimeout` when its own time is up. Cancelling it withdraws the question from wherever it is
        shown; a later answer changes nothing.
        """
        ...

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval for running the action, right before it runs. True once, for the digest approved.

        Where the approver edited the arguments, that is the digest of the action with theirs.
        """
        ...

    async def settle(self, request_id: str, outcome: Settlement) -> None:
        """Say what became of the action that was claimed. Twice is harmless."""
        ...

    async def withdraw(self, request_id: str, reason: str) -> Decision | None:
        """Take the question back, and with it an approval that is not claimed. An unknown one is left alone.

        Two reasons are words of the session's. With `superseded` another question takes its place. With `expired` the
        time is up, and a backend that keeps answers takes back only what has none: an answer in time stands.

        Returns the answer it found, if it keeps answers: a denial, an approval that this has voided, or, with
        `expired`, the answer that stands. None says that there is none, and that nothing can be claimed any more.
        """
        ...


@frozen(kw_only=True)
class Unfinished:
    """What an earlier owner of a session left behind: undecided, approved and not begun, begun without a result."""

    pending: tuple[ApprovalRequest, ...] = ()
    approved: tuple[ApprovalRequest, ...] = ()
    unknown: tuple[ApprovalRequest, ...] = ()


@runtime_checkable
class DurableApprovals(Protocol):
    """What a backend has besides, when its questions and answers may outlive the program that asks."""

    @property
    def durable(self) -> bool:
        """Whether they do. Then `request` may raise `ApprovalPending` when the inline `wait` of a request is over."""
        ...

    async def begin_session(self, tenant: str, session: str) -> Unfinished:
        """Become the owner of a session. An earlier owner can neither ask nor claim from here on."""
        ...

    async def end_session(self, tenant: str, session: str, reason: str) -> None:
        """Take back what is open in a session, and end its standing answers."""
        ...

    async def mark_recorded(self, request_id: str, number: int = 0) -> None:
        """The record has what `unrecorded` names of a request up to this number; or, without one, what was returned."""
        ...

    async def list_unrecorded(self, tenant: str, session: str) -> Sequence[Mapping[str, Any]]:
        """Facts that the record of a session may lack, oldest first; `request` and `event_number` are among them."""
        ...


class UpstreamMethod(Protocol):
    """The upstream kernel's approver: one method, four arguments by position, plain or async."""

    def request_approval(
        self, prompt: str, options: list[str], timeout: float, default: Default, /
    ) -> Awaitable[str] | str:
        """One of the options. Raises an `ApprovalTimeoutError` of theirs when the time is up."""
        ...


@frozen(kw_only=True)
class GrantKey:
    """What a standing answer is for. All of it has to be equal; nothing in it is a pattern.

    A `session` of None stands for every session; only grants that are kept longer than theirs have it.
    """

    tenant: str
    session: str | None
    agent: str
    hook: str
    version: str
    tool: str
    cwd: str
    scope: str


@frozen(kw_only=True)
class Grant:
    """A grant: somebody's "allow always", or "deny always", to one hook's question."""

    id: str
    key: GrantKey
    allows: bool
    by: str
    channel: str
    request: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None


GrantMatch = tuple[Literal["allow", "deny"], tuple[Grant, ...]]
"""What standing answers say to a request, and which ones say it."""


@runtime_checkable
class GrantStore(Protocol):
    """Where standing answers are, for as long as their session lasts, or longer where it was told so.

    Without one of its own a session keeps them in memory, unless its approval backend is one.
    """

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """What they say to this request: an allowance has to cover every hook that asks, one denial is enough."""
        ...

    async def remember(self, request: ApprovalRequest, decision: Decision, digest: str) -> None:
        """Keep what was decided for good, if it was; `digest` is of the action that was decided about.

        Where the decision itself is kept, they were kept together, and this does nothing.
        """
        ...

    async def list_grants(self, tenant: str, session: str) -> Sequence[Grant]:
        """Those in force in a session, oldest first."""
        ...

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End one that is in force in this session; whether there was one."""
        ...

    async def end_grants(self, tenant: str, session: str) -> None:
        """The session has ended, and with it what was granted for it."""
        ...


@frozen(kw_only=True)
class ActionFacts:
    """The facts by which a rule may judge a tool call. `arguments` is a read-only copy.

    `risk` is the host's word before the hooks have looked; after that, the highest of the host's and theirs.
    """

    tool: str
    arguments: Mapping[str, Any]
    event: str
    session: str
    tenant: str
    agent: str = ""
    cwd: str = ""
    risk: Risk = "medium"


@frozen(kw_only=True)
class RuleVerdict:
    """What a rule says to a tool call, and which rule it is.

    `deny` holds against every hook. `ask` puts a question of the rule's own beside those of the hooks. `allow` answers
    the questions of the hooks it names in `answers`, `*` for all of them, and nothing else: no hook's denial, and no
    other hook's question. `risk` says how much is at stake in what is asked, and `risk_reason` why.
    """

    effect: RuleEffect
    rule: str
    reason: str = ""
    answers: tuple[str, ...] = ()
    risk: Risk | None = None
    risk_reason: str = ""


class RulePolicy(Protocol):
    """Rules that decide without a person.

    A session asks at every `tool:pre`, before the hooks about the input as the agent wrote it, where only a denial
    counts, and after them about the input as they left it, before any standing grant and any person.
    """

    def judge(self, facts: ActionFacts) -> Awaitable[RuleVerdict | None] | RuleVerdict | None:
        """The verdict, or None where no rule speaks. A policy that raises, or takes too long, has denied the call."""
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
    """Where the record goes. A session only writes to it: the program that opened a record closes it."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record; with `durable`, return only once it would survive a power cut.

        Raises `OSError` when it cannot; what is waiting for a durable record is then denied.
        """
        ...


@frozen(kw_only=True)
class Head:
    """How far a log goes, and the hash of its last line there; `note` is signed, where it was."""

    log: str
    segment: int
    size: int
    head: str
    note: str = ""


@frozen(kw_only=True)
class StoreMark:
    """Which store it is, and how far it was: the number only grows."""

    store: str
    number: int


class ArgumentStore(Protocol):
    """Where the arguments of tool calls are kept beside the record, which has only their digests."""

    async def keep(self, digest: str, tenant: str, arguments: bytes) -> None:
        """Keep them, as canonical JSON. Raises when it cannot; that is logged, and the call goes on."""
        ...


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


@runtime_checkable
class MarkedStore(HeadStore, Protocol):
    """A store of heads that counts. The log keeps the count, so that it is noticed when an older copy replaces it."""

    async def latest_mark(self) -> StoreMark | None:
        """How far it has counted; None if it never did. Raises when the store cannot be read."""
        ...

    async def mark(self) -> StoreMark:
        """Count once more, durably. Raises when the store cannot be written; it has counted then, or not."""
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
