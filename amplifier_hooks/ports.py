"""The parts that a session needs from its host, as small protocols, and the values that pass through them.

Every port has a working default, so a host supplies only the parts it has: a context of its own, an approver, a
screen, a record. Methods may be plain or async where the protocol says `Awaitable[…] | …`.
"""

from __future__ import annotations

# Needed when the program runs: stores read requests and decisions back by these annotations.
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, SupportsIndex, runtime_checkable

import msgspec

from amplifier_hooks.errors import AlreadyRun
from amplifier_hooks.impacts import Impact
from amplifier_hooks.result import Assessment, Default, Level, Risk, Role, Scope

__all__ = [
    "ActionFacts",
    "ApprovalBackend",
    "ApprovalRequest",
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
    "KeptResult",
    "Option",
    "OptionKind",
    "Question",
    "Risk",
    "RuleAction",
    "RulePolicy",
    "RuleVerdict",
    "Settlement",
    "Stop",
    "StopSource",
    "TokenCounter",
    "Unfinished",
    "UpstreamMethod",
]

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
RuleAction = Literal["allow", "ask", "deny"]
Settlement = Literal["done", "failed", "unknown"]
"""The end of an action: it returned (`done`), it raised or was kept from running (`failed`), or it is `unknown`."""


class KeptResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of an act, as a store keeps it."""

    digest: str
    """The SHA-256 of the result's JSON."""
    size: int
    """The size of the result's JSON, in bytes."""
    json: str | None = None
    """The result as JSON; None for one that is too large."""


class Option(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer that an approver can give."""

    id: str
    """The id, which a decision names."""
    label: str
    """The text that people read."""
    kind: OptionKind
    """The meaning: to allow or to reject, once or always."""
    session_only: bool = False
    """True if an "always" ends with its session, also where the store keeps grants for a project."""

    @property
    def allows(self) -> bool:
        """True if choosing this option lets the operation happen."""
        return self.kind in ("allow_once", "allow_always")

    @property
    def lasts(self) -> bool:
        """True if choosing this option makes a grant."""
        return self.kind in ("allow_always", "reject_always")


class Question(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The reason why a person is asked: one hook and its words."""

    hook: str
    """The hook or rule that asks."""
    prompt: str
    """The words that the person reads."""
    version: str = ""
    """The version of the hook."""
    scope: Scope = "prompt"
    """The subject of an "always": the prompt of the hook, or this very action."""
    key: str | None = None
    """The hook's own key, which an "always" is limited to; None uses the scope."""


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One action that waits for a person: the action that runs is the one that is shown here."""

    id: str
    """The id under which the request is claimed and withdrawn."""
    tenant: str
    """The tenant whose session asks."""
    session: str
    """The id of the session that asks."""
    agent: str
    """The name of the agent that acts."""
    event: str
    """The event at which the act was stopped."""
    tool: str
    """The tool, or the name of the agent, step or model of another operation."""
    arguments: Mapping[str, Any]
    """The final arguments, as they would run."""
    digest: str
    """The digest over exactly the arguments' bytes, the tool, the event, the folder, the session and the tenant."""
    questions: tuple[Question, ...]
    """The questions of the hooks and rules."""
    options: tuple[Option, ...]
    """The answers that count."""
    default: Default
    """The answer that counts when the time is up."""
    created: datetime
    """The time of the question."""
    expires: datetime
    """The end of its time."""
    risk: Risk = "medium"
    """The highest of the assessments."""
    cwd: str = ""
    """The folder in which the agent works."""
    project: str = ""
    """The session's root. A grant that outlives its session holds there, in every folder of a call."""
    call: str = ""
    """The id of the call that asks, if the call can be made again: it selects this request, and is never hashed."""
    given: str = ""
    """The digest of the act as the caller gave it. A call that is made again has to match it."""
    wait: float | None = None
    """Seconds to wait inline. If they end before `expires`, a durable backend leaves the question open."""
    keep: float | None = None
    """Seconds for which the backend keeps an "always", in every session; None keeps it until this session ends."""
    assessments: tuple[Assessment, ...] = ()
    """Every assessment of the risk by hooks, rules and the host."""
    impacts: tuple[Impact, ...] = ()
    """Everything that the call would do. A card shows it, and an "always" covers nothing beyond it."""

    @property
    def prompt(self) -> str:
        """Every question, one a line."""
        return "\n".join(question.prompt for question in self.questions)

    @property
    def risk_reasons(self) -> tuple[Assessment, ...]:
        """Every assessment of the highest risk that gives a reason."""
        return tuple(one for one in self.assessments if one.risk == self.risk and one.reason)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The option that an approver chose, and the approver. It counts only if it was offered and the time was not up.

    `id` makes sending a decision twice harmless. `arguments` are those the approver wrote instead of the ones shown;
    they pass through the gates again, and `claim` then takes the digest of the action with them. `message` is the
    approver's comment; for a refusal, the model reads it.
    """

    option: str
    """The id of one of the options of the request."""
    by: str
    """The approver, as the channel authenticated it."""
    channel: str
    """The kind of place where the approver answered, such as "terminal"."""
    message: str | None = None
    id: str | None = None
    at: datetime | None = None
    """The time of the answer."""
    arguments: Mapping[str, Any] | None = None
    took: float | None = None
    """Seconds from the question to this answer, where the backend knows both times."""
    digest: str | None = None
    """The digest of the act that was shown, where the backend knows it: an answer about another act does not count."""
    keep: float | None = None
    """Seconds for which an "always" lasts, in every session of the project; None keeps it until its session ends."""
    seconds: float | None = None
    """The approver's own limit: seconds after which an "always" ends, if it has not ended before."""
    times: int | None = None
    """The approver's own limit: the number of calls that an "always" covers."""


class ApprovalBackend(Protocol):
    """The place where a person (or several, or a rule) decides.

    The session enforces the deadline whatever a backend does. A backend that cannot ask raises; the request is then
    denied and recorded as unavailable, never as a person's refusal. A backend that keeps questions over a restart is a
    `DurableApprovals`, too; one that keeps grants is a `GrantStore`.
    """

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and wait for the answer.

        Raises `ApprovalTimeout` when the backend's own time is up. Cancelling withdraws the question from every place
        that shows it; a later answer changes nothing.
        """
        ...

    async def claim(self, request_id: str, digest: str) -> bool:
        """Use the approval up, right before the action runs. Return True once, for the digest approved.

        If the approver edited the arguments, that is the digest of the action with the edited ones.
        Raises `StopInForce` while a stop covers the session; the approval stays unused.
        """
        ...

    async def settle(self, request_id: str, outcome: Settlement, result: KeptResult | None = None) -> None:
        """Store the end of the action that was claimed, and its result. A second call is harmless.

        A backend that keeps results raises `AlreadyRun` with them when the same request is asked again.
        """
        ...

    async def withdraw(self, request_id: str, reason: str) -> Decision | None:
        """Take the question back, and with it an approval that is not claimed. An unknown one is left alone.

        The session gives two reasons a meaning. With `superseded` another question takes the place of this one. With
        `expired` the time is up, and a backend that keeps answers takes back only a question without one: an answer in
        time counts.

        Returns the answer it found, if it keeps answers: a denial, an approval that this call has voided, or, with
        `expired`, the answer that counts. None means that there is no answer, and that nothing can be claimed any more.
        """
        ...


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that other workers of a session left."""

    pending: tuple[ApprovalRequest, ...] = ()
    """Requests that are undecided."""
    approved: tuple[ApprovalRequest, ...] = ()
    """Requests that are approved, and not begun."""
    unknown: tuple[ApprovalRequest, ...] = ()
    """Requests that were begun, and have no result."""


@runtime_checkable
class DurableApprovals(Protocol):
    """The port of a backend whose questions and answers may outlive the program that asks."""

    @property
    def durable(self) -> bool:
        """True if they outlive it. `request` may then raise `ApprovalPending` when the inline `wait` is over."""
        ...

    async def begin_session(self, tenant: str, session: str) -> Unfinished:
        """Return what other workers of a session left. Any number of workers may serve one session at a time."""
        ...

    async def end_session(self, tenant: str, session: str, reason: str, *, final: bool) -> None:
        """Take back the open questions of a session, and end its grants.

        Unless `final`, a session with open questions does not end, because they belong to other workers.
        """
        ...

    async def mark_recorded(self, request_id: str, number: int = 0) -> None:
        """Note that the record has everything about a request that this backend has returned.

        With a number, note that the record has the request's facts from `list_unrecorded` up to that number.
        """
        ...

    async def list_unrecorded(self, tenant: str, session: str) -> Sequence[Mapping[str, Any]]:
        """Return facts that a session's record may lack, oldest first; each has `request` and `event_number`."""
        ...


class KnownCall(msgspec.Struct, frozen=True, kw_only=True):
    """The request that stands for a call, and its end so far. An end that is none of these may be asked about again."""

    request: ApprovalRequest
    is_open: bool = False
    """True if it is undecided, or approved and not claimed."""
    denial: Decision | None = None
    """The answer of an approver who denied."""
    begun: AlreadyRun | None = None
    """The end of the act, if it has begun."""

    @property
    def is_final(self) -> bool:
        """True if the call has an end that no rule, grant or new question changes."""
        return self.denial is not None or self.begun is not None


@runtime_checkable
class CallStore(Protocol):
    """The port of an approval backend that finds the request of a call by the call's id."""

    async def find_call(self, tenant: str, session: str, call: str) -> KnownCall | None:
        """Return the request that stands for a call, whichever worker asked, or None.

        That is one whose act has begun; otherwise one that was denied, one that is open, or the newest that expired or
        was cancelled. A request that another took the place of stands for no call.
        """
        ...


class UpstreamMethod(Protocol):
    """The upstream kernel's approver: one method, four arguments by keyword, plain or async."""

    def request_approval(
        self, prompt: str, options: list[str], timeout: float, default: Default
    ) -> Awaitable[str] | str:
        """Return one of the options. Raises the upstream kernel's `ApprovalTimeoutError` when the time is up.

        Args:
            prompt: Question that the person reads.
            options: Labels of the answers.
            timeout: Seconds that the person has.
            default: Answer that counts when the time is over.
        """
        ...


class GrantKey(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a grant. Every field has to be equal; no field is a pattern."""

    tenant: str
    session: str | None
    """The id of the session; None for a grant that outlives its session, and holds in every one."""
    agent: str
    hook: str
    """The hook that asked."""
    version: str
    """The version of the hook; another version asks anew."""
    tool: str
    """The tool of the call."""
    cwd: str
    """The folder: of the call, or of the project for a grant that outlives its session."""
    scope: str
    """The prompt, the digest of the action, or the hook's own key, by the scope of the question."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """An "allow always" or "deny always" that an approver gave to one hook's question."""

    id: str
    """The id, by which a grant is revoked."""
    key: GrantKey
    """The subject: tenant, session, agent, hook, tool, folder and scope."""
    allows: bool
    """True for an "allow always", False for a "deny always"."""
    ceiling: Risk
    """The risk of the request that was answered: the grant allows nothing of a higher risk."""
    by: str
    """The approver."""
    channel: str
    """The kind of place where the approver answered."""
    request: str
    """The id of the request that was answered."""
    created: datetime
    """The time of the answer."""
    expires: datetime | None = None
    """The end of the grant; None for one that ends with its session."""
    ends: float | None = None
    """The age of the store, in seconds, at which the grant ends, where it has an end and the store has an age."""
    revoked: datetime | None = None
    """The time of its revocation; None while it is in force."""
    impacts: tuple[Impact, ...] = ()
    """The impacts that the card named: an "allow always" covers no call with another one."""
    times: int | None = None
    """The most calls that it covers; None sets no number."""
    used: int = 0
    """The number of calls that it has covered."""


class GrantUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call that a grant has covered. `action` is the beginning of its arguments, as JSON."""

    at: datetime
    session: str
    tool: str
    action: str
    digest: str


GrantMatch = tuple[Literal["allow", "deny"], tuple[Grant, ...]]
"""The verdict that grants give on a request, and the grants that give it."""


@runtime_checkable
class GrantStore(Protocol):
    """The store of grants, which last as long as their session, or longer if the request says so.

    A session that is given no store uses its approval backend if that is one, and memory otherwise.
    """

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """Judge a request by the grants: allows have to cover every hook that asks, one deny is enough."""
        ...

    async def remember(self, request: ApprovalRequest, decision: Decision) -> None:
        """Keep the grants that a decision makes, if it makes any.

        Called with a refusal when it is given, and with an approval when it is claimed. If the store keeps the decision
        itself, it keeps the grants in the same transaction, and this call does nothing.
        """
        ...

    async def use_grants(self, request: ApprovalRequest, grants: Sequence[Grant]) -> bool:
        """Count a call that these grants cover, right before it runs.

        Returns False, and counts nothing, if one of them is over or used up. Raises `StopInForce` while a stop covers
        the session.
        """
        ...

    async def list_grants(self, tenant: str, session: str) -> Sequence[Grant]:
        """Return the grants in force in a session, oldest first."""
        ...

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End a grant in force in this session; return True if there was one."""
        ...

    async def end_grants(self, tenant: str, session: str) -> None:
        """End the grants of a session that has ended."""
        ...


@runtime_checkable
class ProjectGrants(Protocol):
    """The port of a store of grants that may keep an "always" longer than its session."""

    @property
    def keep_grants(self) -> float | None:
        """Seconds for which an "always" for a project lasts; None if the store keeps none beyond its session."""
        ...


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A stop of acts. An empty `tenant` or `session` covers every one."""

    id: str
    """The id of the stop."""
    tenant: str
    """The tenant whose acts are stopped; empty for every one."""
    session: str
    """The session whose acts are stopped; empty for every one."""
    why: str
    by: str
    at: datetime
    """The time of its begin."""
    ended: datetime | None = None
    """The time of its end; None while it is in force."""
    ended_by: str = ""
    """The name of the person or program that ended it."""

    def covers(self, tenant: str, session: str) -> bool:
        """Return True if the acts of a session are stopped."""
        return self.ended is None and self.tenant in ("", tenant) and self.session in ("", session)

    @property
    def reason(self) -> str:
        """The reason for a refused act: author and words of the stop."""
        return f"stopped by {self.by}: {self.why}"


@runtime_checkable
class StopSource(Protocol):
    """The port of an approval backend that knows the stops of acts, which any process may begin and end."""

    async def stops(self) -> Sequence[Stop]:
        """Return the stops in force, and those that ended lately, at most one second old.

        While they cannot be read, the result is that of the last reading.
        """
        ...


class ActionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts by which a rule may judge an event.

    `cwd` is the folder of the act, and `root` the session's folder, at which relative patterns begin.

    `risk` is the host's assessment before the hooks run; after that, the highest of the host's and theirs.
    """

    tool: str
    """The tool; at an operation, the name of the agent, step or request; at any other event, `tool_name` or empty."""
    arguments: Mapping[str, Any]
    """The arguments as a read-only copy; at an event that is no tool call, its payload without its identity fields.

    A value in such a payload may be an object of the host.
    """
    event: str
    """The event; it tells tool calls from all others."""
    session: str
    tenant: str
    agent: str = ""
    cwd: str = ""
    """The folder of the call, in which its paths are resolved."""
    root: str = ""
    """The session's root, at which relative patterns begin; empty for the folder of the call."""
    risk: Risk = "medium"


class RuleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's verdict on an event, and the name of the rule.

    `deny` overrides every hook. `ask` puts a question of the rule's own beside those of the hooks. `allow` answers the
    questions of the hooks it names, and nothing else: no hook's denial, and no other hook's question.
    """

    action: RuleAction
    """The verdict: to allow, to ask, or to deny."""
    rule: str
    """The name of the rule."""
    reason: str = ""
    """The reason for a denial or a question."""
    answers: tuple[str, ...] = ()
    """The hooks whose questions an `allow` answers; `*` for all."""
    risk: Risk | None = None
    """The rule's assessment of the call; None for a rule without one."""
    risk_reason: str = ""
    """The reason for the assessment."""


class RulePolicy(Protocol):
    """Rules that decide without a person.

    A session calls the policy at every event that can be stopped but `approval:required`: before the hooks with the
    input as the agent wrote it, where only a denial counts, and after them with the input as they left it, before any
    grant and any person.

    A policy whose attribute `report_only` is True decides nothing; its verdicts are only on record.
    """

    def judge(self, facts: ActionFacts) -> Awaitable[RuleVerdict | None] | RuleVerdict | None:
        """Return the verdict, or None if no rule applies. A policy that raises, or takes too long, denies the call."""
        ...


@runtime_checkable
class ContextManager(Protocol):
    """The messages an agent's model will read.

    A context may have a `mark`, a text that nothing the model reads can guess; it ends the headings of hooks' texts.
    """

    def add_message(
        self, role: Role, content: str, metadata: Mapping[str, Any] | None = None
    ) -> Awaitable[None] | None:
        """Append one message."""
        ...

    def get_messages(self) -> Awaitable[Sequence[Any]] | Sequence[Any]:
        """Return every message, in order."""
        ...


class DisplaySystem(Protocol):
    """The screen of a person. The agent never reads it."""

    def show_message(self, message: str, level: Level, source: str) -> Awaitable[None] | None:
        """Show one message. A failure is logged and goes no further.

        Args:
            message: Text for the user.
            level: Level of the message: info, warning or error.
            source: Hook or part that speaks, such as `hook:lint`.
        """
        ...


class AuditSink(Protocol):
    """The destination of the record. A session only writes to it: the program that opened a record closes it."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record; with `durable`, return only once the record would survive a power cut.

        Raises `OSError` if it cannot; an act that waits for a durable record is then denied.
        """
        ...


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a log, and the hash of its last line at that size."""

    log: str
    """The id of the log."""
    segment: int
    """The number of the log's segment."""
    size: int
    """The number of lines."""
    head: str
    """The hash of the last line."""
    note: str = ""
    """The signed note; empty for a log without a signer."""
    place: str = ""
    """The host and the file of the log, so that a store finds a log that is gone."""


class StoreMark(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a store, and its count at a moment: the number only grows."""

    store: str
    number: int


class HeadStore(Protocol):
    """A second store for the heads of logs, out of reach of a program that can write the logs."""

    async def latest(self, log: str) -> Head | None:
        """Return the latest head of a log, or None. Raises if the store cannot be read.

        Args:
            log: Id of the log.
        """
        ...

    async def put(self, head: Head) -> None:
        """Keep a head. An earlier head than the one in the store, or an equal one, changes nothing.

        Args:
            head: Size and hash of the log now.

        Raises `HeadConflict` if the store has another hash for this size: then one of the two logs is not the other.
        """
        ...


@runtime_checkable
class MarkedStore(HeadStore, Protocol):
    """A store of heads that counts. The log keeps the count, and so detects an older copy in the store's place."""

    async def at(self, place: str) -> Head | None:
        """Return the latest head of the log that was last written at a place, or None. Raises as `latest` does."""
        ...

    async def latest_mark(self) -> StoreMark | None:
        """Return the latest mark; None if the store never counted. Raises if the store cannot be read."""
        ...

    async def mark(self) -> StoreMark:
        """Count once more, durably. Raises if the store cannot be written; the count may then have grown or not."""
        ...


class TokenCounter(Protocol):
    """A counter of the tokens that a text costs a model, as the provider counts them.

    A counter may fail, hang or be wrong: its result is checked, and the number of UTF-8 bytes replaces a bad one.
    """

    def count(self, text: str) -> Awaitable[SupportsIndex] | SupportsIndex:
        """Return a whole number, never less than the model will see. A plain method is called in a thread.

        Args:
            text: Text whose tokens are counted.
        """
        ...


class Clock(Protocol):
    """The time of day, handed in so that a test can move it."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        ...
