"""The messages, as models: the calls of a client, and the gateway's answers and notifications. Pure.

Messages that the Agent Client Protocol has keep its names. Our own methods begin with `_amplifier-hooks/`, and our
additions to its messages stand in `_meta`, under the key `amplifier-hooks`. Messages of clients are read strictly;
messages of the gateway may gain fields, which an older client ignores.

A field whose name ends in `Id` is a key, as its owner wrote it, and never shown. Every other text is for showing: the
gateway has escaped its invisible characters.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from amplifier_hooks.impacts import ImpactKind
from amplifier_hooks.ports import OptionKind
from amplifier_hooks.result import Default, Risk
from approval_backends.card.contents import ToolKind
from approval_backends.gateway.wire.frames import Malformed, Note, write_frame
from approval_backends.lifecycle import RefusalCode, Status

if TYPE_CHECKING:
    from collections.abc import Mapping


META: Final = "amplifier-hooks"
OURS: Final = "_amplifier-hooks/"
ACP_VERSION: Final = 1

LONGEST_MESSAGE: Final = 8_192
"""Characters of the message that an approver may send with a decision."""


Key = Annotated[str, Field(min_length=1, max_length=1_024)]
Time = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]


class WireMessage(BaseModel):
    """A message's fields, spelt `likeThis` on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True, extra="ignore")


class TimedMessage(WireMessage):
    """A message of ours. It carries the store's time at the moment at which it is sent."""

    server_time: Time | None = None


class ClientMessage(WireMessage):
    """A message of a client. Types are strict: a text is no number, and 1 is not true."""

    model_config = ConfigDict(strict=True)


M = TypeVar("M", bound=WireMessage)


def accept(model: type[M], params: object) -> M:
    """Return the fields of a message. Raises `Malformed` naming the first field that is wrong, and never its value."""
    try:
        return model.model_validate(params)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "params"
        raise Malformed(-32602, f"{where}: {first['msg']}") from None


def fields(message: WireMessage) -> dict[str, Any]:
    """Return a message as JSON has it, without the fields that are None."""
    return message.model_dump(by_alias=True, exclude_none=True)


def fields_at(message: TimedMessage, now: datetime) -> dict[str, Any]:
    """Return a message as JSON has it, with the time at which it is sent."""
    return {**fields(message), "serverTime": now.isoformat()}


def notification_text(name: str, message: TimedMessage, now: datetime) -> str:
    """Return one of our notifications as text, made once: every client gets it, while the caller waits."""
    return write_frame(Note(f"{OURS}{name}", fields_at(message, now)))


# -- messages of clients -----------------------------------------------------------------------------------------------


class Nothing(ClientMessage):
    """No parameters."""


class Meta(ClientMessage, Generic[M]):
    """Under `_meta`: our additions to a message of the protocol."""

    ours: M | None = Field(default=None, alias=META)


class OurCapabilities(ClientMessage):
    """`queue`: this client wants the queue and looks at requests itself, instead of being asked each of them."""

    queue: bool = False


class ClientCapabilities(ClientMessage):
    """The client's capabilities. None of the protocol's own matters to a gateway."""

    meta: Meta[OurCapabilities] | None = Field(default=None, alias="_meta")


class Initialize(ClientMessage):
    """`initialize`: the first message of every connection."""

    protocol_version: int | str
    client_capabilities: ClientCapabilities | None = None

    @property
    def wants_queue(self) -> bool:
        """True if the client knows our own messages."""
        meta = self.client_capabilities.meta if self.client_capabilities else None
        return meta is not None and meta.ours is not None and meta.ours.queue


class Token(ClientMessage):
    """The secret."""

    token: str = Field(max_length=1_024, repr=False)


class Authenticate(ClientMessage):
    """`authenticate`, with the method `token`."""

    method_id: Literal["token"]
    meta: Meta[Token] = Field(alias="_meta")

    @property
    def token(self) -> str:
        """The secret; empty if the client sent none, and then no approver's."""
        return self.meta.ours.token if self.meta.ours else ""


class SessionNamed(ClientMessage):
    """`session/load`, `session/resume` and others about one session."""

    session_id: Key


class Show(ClientMessage):
    """`_amplifier-hooks/show`: one request, as a card."""

    request_id: Key


class More(ClientMessage):
    """`_amplifier-hooks/more`: the next part of a view."""

    request_id: Key
    view: str
    start: int = Field(ge=0)


class Preview(ClientMessage):
    """`_amplifier-hooks/preview`: the action that these arguments would make, before an approver allows it."""

    request_id: Key
    digest: Key
    arguments: str


LONGEST_LIMIT: Final = 366 * 86_400.0
"""Most seconds to which an approver can limit an "always"."""
MOST_TIMES: Final = 1_000_000
"""Most calls to which an approver can limit an "always"."""


class Decide(ClientMessage):
    """`_amplifier-hooks/decide`. `arguments` is the JSON text that is to run instead of the arguments shown.

    `seconds` and `times` limit an "always".
    """

    request_id: Key
    digest: Key
    option_id: Key
    decision_id: Annotated[str, Field(min_length=8, max_length=128)]
    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)
    arguments: str | None = None
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_LIMIT)
    times: int | None = Field(default=None, ge=1, le=MOST_TIMES)


class HistoryWanted(ClientMessage):
    """`_amplifier-hooks/history`."""

    limit: int = Field(default=100, ge=1, le=200)


class Revoke(ClientMessage):
    """`_amplifier-hooks/revoke`."""

    grant_id: Key


class Tail(ClientMessage):
    """`_amplifier-hooks/tail`: follow the events of one session, or, with `on` false, stop following."""

    session_id: Key
    on: bool = True


class Selected(ClientMessage):
    """The chosen option."""

    outcome: Literal["selected"]
    option_id: Key


class Cancelled(ClientMessage):
    """No answer of this client. It decides nothing; others may still answer."""

    outcome: Literal["cancelled"]


class AnswerExtra(ClientMessage):
    """A client's additions to its choice."""

    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)
    arguments: str | None = None


class PermissionAnswer(ClientMessage):
    """The answer to `session/request_permission`. An unknown outcome is no answer, least of all a permit."""

    outcome: Annotated[Selected | Cancelled, Field(discriminator="outcome")]
    meta: Meta[AnswerExtra] | None = Field(default=None, alias="_meta")

    @property
    def extra(self) -> AnswerExtra:
        """The client's additions, if it made any."""
        return (self.meta.ours if self.meta else None) or AnswerExtra()


# -- messages of the gateway -------------------------------------------------------------------------------------------


class Rights(WireMessage):
    """The client's name and rights, as the gateway authenticated it. `sessions` None means all of them."""

    name: str
    channel: str
    may_decide: bool
    sessions: list[str] | None = None


class RequestRow(WireMessage):
    """One request, in a line."""

    request_id: str
    session_id: str
    session: str
    tenant: str
    agent: str
    tool: str
    kind: ToolKind
    verb: str
    what: str
    risk: Risk
    created: Time
    expires: Time
    default: Default
    resumable: bool
    digest: str
    summary: str | None = None
    """The arguments in short, where `what` names only the tool."""
    group: str | None = None
    """The key of the group of alike requests of low risk; None for a request that is answered alone."""
    line: str | None = None
    """The whole action in a line, for a member of a group."""


class WireOutcome(WireMessage):
    """The decision, in the protocol's words. Silence selects the default; a withdrawn request is cancelled."""

    outcome: Literal["selected", "cancelled"]
    option_id: str | None = None


class Ending(WireMessage):
    """The end of a request. Without a decision `by` is missing, and `reason` says why the request ended."""

    status: Status
    outcome: WireOutcome
    allowed: bool
    kind: OptionKind | None = None
    label: str | None = None
    by: str | None = None
    channel: str | None = None
    at: Time | None = None
    took: float | None = None
    message: str | None = None
    edited: bool = False
    reason: str = ""


class HistoryRow(WireMessage):
    """A request that is not asked any more."""

    row: RequestRow
    ending: Ending


class Features(WireMessage):
    """The abilities of this gateway beyond deciding."""

    tail: bool = False


class StopRow(WireMessage):
    """A stop of acts in force. Without a `session` it reaches every session."""

    by: str
    why: str
    session: str | None = None
    since: Time


class Attached(TimedMessage):
    """The answer to `_amplifier-hooks/attach`: the client's rights, the pending requests and stops, oldest first."""

    you: Rights
    queue: list[RequestRow]
    recent: list[HistoryRow] = []
    stops: list[StopRow] = []
    features: Features = Features()


class DiffLine(WireMessage):
    """One line of a diff.

    `skip` counts unchanged lines left out, `part` names the edit that follows, or something special. A very long line
    continues in the next one, which has no number.
    """

    kind: Literal["same", "add", "del", "skip", "part"]
    text: str
    old: int | None = None
    new: int | None = None
    pieces: list[str] | None = None
    """The text in three pieces, if it is much like the line it replaces: the middle one differs."""


class ViewPart(TimedMessage):
    """One way to look at the action, or a part of it. With `next`, there is more: ask for it from there.

    A diff has `lines`, any other view `text`; sizes are those of the whole view.
    """

    name: str
    text: str | None = None
    lines: list[DiffLine] | None = None
    added: int = 0
    removed: int = 0
    characters: int = 0
    next: int | None = None


class WireQuestion(WireMessage):
    """A hook's question."""

    hook: str
    version: str
    prompt: str


class RiskReason(WireMessage):
    """A reason for the risk, and the hook, rule or host that gives it."""

    by: str
    reason: str


class WireImpact(WireMessage):
    """One thing that the call would do. `meaning` says the kind in words."""

    kind: ImpactKind
    meaning: str
    place: str = ""
    reason: str = ""


class WireImpactLine(WireMessage):
    """A sentence about one impact, or about all of a kind whose meaning bounds the harm."""

    text: str
    bounded: bool


class Choice(WireMessage):
    """One of the offered answers."""

    option_id: str
    name: str
    kind: OptionKind


class Odd(WireMessage):
    """Something in the action that does not look like what it is; `mark` is its form in the texts."""

    what: str
    mark: str
    note: str


class ReachView(WireMessage):
    """The reach of an "always" from now on: a sentence for each hook, what the grant leaves out, and when it ends."""

    covers: list[str]
    leaves: str
    ends: str
    so_far: str | None = None
    """The number of calls of this session that the grant would have covered, in a sentence."""


class CardView(TimedMessage):
    """The answer to `_amplifier-hooks/show`: all facts about one request."""

    row: RequestRow
    event: str
    cwd: str
    views: list[ViewPart]
    questions: list[WireQuestion]
    risk_reasons: list[RiskReason] = []
    impacts: list[WireImpact] = []
    impact_lines: list[WireImpactLine] = []
    claim: str | None = None
    odd: list[Odd] = []
    edit: str | None = None
    """The arguments to start an edit from; None if they are too large to be sent back."""
    options: list[Choice]
    always: ReachView | None = None
    status: Status
    ending: Ending | None = None


class Previewed(TimedMessage):
    """The answer to `_amplifier-hooks/preview`: the differences, and the digest of the edited action."""

    digest: str
    lines: list[DiffLine]
    added: int
    removed: int


class Refused(WireMessage):
    """The reason why an answer did not count."""

    code: RefusalCode
    reason: str


class Decided(TimedMessage):
    """The answer to `_amplifier-hooks/decide`. Refused or not, `ending` is the request's end, if it has one."""

    request_id: str
    accepted: bool
    ending: Ending | None = None
    refusal: Refused | None = None


class Added(TimedMessage):
    """`_amplifier-hooks/added`: a request is new."""

    row: RequestRow


class Resolved(TimedMessage):
    """`_amplifier-hooks/resolved`: a request is not asked any more."""

    request_id: str
    session_id: str
    ending: Ending


class Changed(TimedMessage):
    """`_amplifier-hooks/changed`: an approved action has moved on."""

    request_id: str
    status: Status


class Stops(TimedMessage):
    """`_amplifier-hooks/stops`: a stop has begun or ended; these are in force now, oldest first."""

    stops: list[StopRow]


class History(TimedMessage):
    """The answer to `_amplifier-hooks/history`, newest first."""

    entries: list[HistoryRow]


class WireGrantUse(WireMessage):
    """One call that a grant has covered."""

    at: Time
    tool: str
    action: str


class GrantRow(WireMessage):
    """A grant. `used` counts the calls that it has covered, and `uses` has the last ones, oldest first."""

    grant_id: str
    request_id: str
    allows: bool
    covers: str
    hook: str
    version: str
    agent: str
    session: str | None = None
    by: str
    channel: str
    since: Time
    expires: Time | None = None
    times: int | None = None
    used: int = 0
    uses: list[WireGrantUse] = []


class Grants(TimedMessage):
    """The answer to `_amplifier-hooks/grants`, oldest first."""

    grants: list[GrantRow]


class Revoked(TimedMessage):
    """The answer to `_amplifier-hooks/revoke`."""

    revoked: bool


class TailLine(WireMessage):
    """One event of a session."""

    number: int
    at: Time
    kind: str
    text: str


class Tailed(TimedMessage):
    """The answer to `_amplifier-hooks/tail`: the last lines of the session."""

    lines: list[TailLine]


class TailNote(TimedMessage):
    """`_amplifier-hooks/line`: the next line of a session."""

    session_id: str
    line: TailLine


class Pong(TimedMessage):
    """The answer to `_amplifier-hooks/ping`."""


# -- the methods -------------------------------------------------------------------------------------------------------


CALLS: Final[Mapping[str, tuple[type[ClientMessage], type[WireMessage]]]] = {
    f"{OURS}attach": (Nothing, Attached),
    f"{OURS}show": (Show, CardView),
    f"{OURS}more": (More, ViewPart),
    f"{OURS}preview": (Preview, Previewed),
    f"{OURS}decide": (Decide, Decided),
    f"{OURS}history": (HistoryWanted, History),
    f"{OURS}grants": (Nothing, Grants),
    f"{OURS}revoke": (Revoke, Revoked),
    f"{OURS}tail": (Tail, Tailed),
    f"{OURS}ping": (Nothing, Pong),
}
"""Our own calls: the parameters and the answer of each."""

NOTES: Final[Mapping[str, type[WireMessage]]] = {
    f"{OURS}added": Added,
    f"{OURS}resolved": Resolved,
    f"{OURS}changed": Changed,
    f"{OURS}refused": Decided,
    f"{OURS}stops": Stops,
    f"{OURS}grants_changed": WireMessage,
    f"{OURS}line": TailNote,
}
"""Our own notifications; all go to the client."""
