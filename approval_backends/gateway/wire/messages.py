"""What the messages hold: what a client may want, and what it is told. Pure.

The names of the Agent Client Protocol are kept for what it has. Ours begin with `_amplifier-hooks/`, and what we add
to its messages stands in `_meta`, under the key `amplifier-hooks`. What clients send is read strictly; what the gateway
sends may grow by fields that an older client leaves alone.

A field whose name ends in `Id` is a key, as its owner wrote it, and never shown. Every other text is for showing: the
gateway has made visible in it what could not be seen.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from amplifier_hooks.ports import OptionKind
from amplifier_hooks.result import Default, Risk
from approval_backends.card.contents import ToolKind
from approval_backends.gateway.wire.frames import Malformed
from approval_backends.lifecycle import RefusalCode, Status

if TYPE_CHECKING:
    from collections.abc import Mapping


META: Final = "amplifier-hooks"
OURS: Final = "_amplifier-hooks/"
ACP_VERSION: Final = 1

LONGEST_MESSAGE: Final = 8_192
"""Characters that somebody may say with a decision."""


class WireMessage(BaseModel):
    """A message's fields, spelt `likeThis` on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True, extra="ignore")


class ClientMessage(WireMessage):
    """What a client sends. Types are taken as they are: a text is no number, and 1 is not true."""

    model_config = ConfigDict(strict=True)


M = TypeVar("M", bound=WireMessage)


def accept(model: type[M], params: object) -> M:
    """The fields of a message. Raises `Malformed` naming the first field that is wrong, and never its value."""
    try:
        return model.model_validate(params)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "params"
        raise Malformed(-32602, f"{where}: {first['msg']}") from None


def fields(message: WireMessage) -> dict[str, Any]:
    """A message as JSON has it; what is None is left out."""
    return message.model_dump(by_alias=True, exclude_none=True)


def notification_text(method: str, message: WireMessage) -> str:
    """A notification as text, at once: these go to everybody, while whoever asked waits."""
    params = message.model_dump_json(by_alias=True, exclude_none=True, ensure_ascii=True)
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'


Key = Annotated[str, Field(min_length=1, max_length=1_024)]
Time = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]


# -- what a client may want --------------------------------------------------------------------------------------------


class Nothing(ClientMessage):
    """No parameters."""


class OurCapabilities(ClientMessage):
    """`queue`: this client wants the queue and looks at requests itself, instead of being asked each of them."""

    queue: bool = False


class OurCapabilitiesMeta(ClientMessage):
    """Under `clientCapabilities._meta`."""

    ours: OurCapabilities = Field(default=OurCapabilities(), validation_alias=META, serialization_alias=META)


class ClientCapabilities(ClientMessage):
    """Of the protocol's own capabilities none matters to a gateway."""

    meta: OurCapabilitiesMeta | None = Field(default=None, validation_alias="_meta", serialization_alias="_meta")


class Initialize(ClientMessage):
    """`initialize`: the first message of every connection."""

    protocol_version: int | str
    client_capabilities: ClientCapabilities | None = None

    @property
    def wants_queue(self) -> bool:
        """Whether the client knows the messages of ours."""
        meta = self.client_capabilities.meta if self.client_capabilities else None
        return meta is not None and meta.ours.queue


class Token(ClientMessage):
    """The secret."""

    token: str = Field(max_length=1_024, repr=False)


class TokenMeta(ClientMessage):
    """Under `_meta`."""

    ours: Token = Field(validation_alias=META, serialization_alias=META)


class Authenticate(ClientMessage):
    """`authenticate`, with the method `token`."""

    method_id: Literal["token"]
    meta: TokenMeta = Field(validation_alias="_meta", serialization_alias="_meta")


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
    """`_amplifier-hooks/preview`: what would run with these arguments, before anybody decides that it may."""

    request_id: Key
    digest: Key
    arguments: str


class Decide(ClientMessage):
    """`_amplifier-hooks/decide`. `arguments` is the JSON text that is to run instead of what was shown."""

    request_id: Key
    digest: Key
    option_id: Key
    decision_id: Annotated[str, Field(min_length=8, max_length=128)]
    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)
    arguments: str | None = None


class HistoryWanted(ClientMessage):
    """`_amplifier-hooks/history`."""

    limit: int = Field(default=100, ge=1, le=200)


class Revoke(ClientMessage):
    """`_amplifier-hooks/revoke`."""

    grant_id: Key


class Tail(ClientMessage):
    """`_amplifier-hooks/tail`: be told what happens in one session, or, with `on` false, no longer."""

    session_id: Key
    on: bool = True


class Selected(ClientMessage):
    """One of the options."""

    outcome: Literal["selected"]
    option_id: Key


class Cancelled(ClientMessage):
    """No answer of this client. It decides nothing; others may still answer."""

    outcome: Literal["cancelled"]


class AnswerExtra(ClientMessage):
    """What a client may add to its choice."""

    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)
    arguments: str | None = None


class AnswerExtraMeta(ClientMessage):
    """Under `_meta`."""

    ours: AnswerExtra = Field(default=AnswerExtra(), validation_alias=META, serialization_alias=META)


class PermissionAnswer(ClientMessage):
    """The answer to `session/request_permission`. An outcome nobody knows is no answer, least of all a permit."""

    outcome: Annotated[Selected | Cancelled, Field(discriminator="outcome")]
    meta: AnswerExtraMeta | None = Field(default=None, validation_alias="_meta", serialization_alias="_meta")


# -- what it is told ---------------------------------------------------------------------------------------------------


class Rights(WireMessage):
    """Who the client is, as the gateway authenticated it. `sessions` None means all of them."""

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
    """The arguments in short, where `what` is no more than the tool."""


class WireOutcome(WireMessage):
    """What was decided, in the protocol's words. Silence selects the default; what was taken back is cancelled."""

    outcome: Literal["selected", "cancelled"]
    option_id: str | None = None


class Ending(WireMessage):
    """What became of a request. `by` is missing when nobody decided; `reason` then says why it ended."""

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
    """What this gateway can do beyond deciding."""

    tail: bool = False


class Attached(WireMessage):
    """The answer to `_amplifier-hooks/attach`: who you are, and everything that waits, oldest first."""

    you: Rights
    queue: list[RequestRow]
    recent: list[HistoryRow] = []
    features: Features = Features()
    server_time: Time


class DiffLine(WireMessage):
    """One line of a diff. `skip` counts unchanged lines left out, `part` says which edit follows, or what is special.

    A line that is very long goes on in the next one, which has no number.
    """

    kind: Literal["same", "add", "del", "skip", "part"]
    text: str
    old: int | None = None
    new: int | None = None
    pieces: list[str] | None = None
    """The text in three pieces, where it is much like the line it stands for: the one in the middle differs."""


class ViewPart(WireMessage):
    """One way to look at the action, or a part of it. With `next`, there is more: ask for it from there.

    A diff has `lines`, everything else `text`; sizes are those of the whole.
    """

    name: str
    text: str | None = None
    lines: list[DiffLine] | None = None
    added: int = 0
    removed: int = 0
    characters: int = 0
    next: int | None = None


class WireQuestion(WireMessage):
    """Why somebody is asked."""

    hook: str
    version: str
    prompt: str


class RiskReason(WireMessage):
    """A reason for the risk, and the hook, rule or host that gives it."""

    by: str
    reason: str


class Choice(WireMessage):
    """One of the answers that are offered."""

    option_id: str
    name: str
    kind: OptionKind


class Odd(WireMessage):
    """Something in the action that does not look like what it is; `mark` is how it appears in the texts."""

    what: str
    mark: str
    note: str


class ReachView(WireMessage):
    """What "always" would answer from now on: a sentence for each hook, what it leaves out, and when it ends."""

    covers: list[str]
    leaves: str
    ends: str


class CardView(WireMessage):
    """The answer to `_amplifier-hooks/show`: everything there is to know about one request."""

    row: RequestRow
    event: str
    cwd: str
    views: list[ViewPart]
    questions: list[WireQuestion]
    risk_reasons: list[RiskReason] = []
    claim: str | None = None
    odd: list[Odd] = []
    edit: str | None = None
    """The arguments to start an edit from; none if they are too large to be sent back."""
    options: list[Choice]
    always: ReachView | None = None
    status: Status
    ending: Ending | None = None
    server_time: Time


class Previewed(WireMessage):
    """The answer to `_amplifier-hooks/preview`: how the arguments differ, and the digest of the action with them."""

    digest: str
    lines: list[DiffLine]
    added: int
    removed: int
    server_time: Time


class Refused(WireMessage):
    """Why an answer did not count."""

    code: RefusalCode
    reason: str


class Decided(WireMessage):
    """The answer to `_amplifier-hooks/decide`. Refused or not, `ending` is what is so, if anything is decided."""

    request_id: str
    accepted: bool
    ending: Ending | None = None
    refusal: Refused | None = None
    server_time: Time


class Added(WireMessage):
    """`_amplifier-hooks/added`."""

    row: RequestRow
    server_time: Time


class Resolved(WireMessage):
    """`_amplifier-hooks/resolved`: nobody is asked any more."""

    request_id: str
    session_id: str
    ending: Ending
    server_time: Time


class Changed(WireMessage):
    """`_amplifier-hooks/changed`: what became of an approved action."""

    request_id: str
    status: Status
    server_time: Time


class History(WireMessage):
    """The answer to `_amplifier-hooks/history`, newest first."""

    entries: list[HistoryRow]
    server_time: Time


class GrantRow(WireMessage):
    """A standing answer."""

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


class Grants(WireMessage):
    """The answer to `_amplifier-hooks/grants`, oldest first."""

    grants: list[GrantRow]
    server_time: Time


class Revoked(WireMessage):
    """The answer to `_amplifier-hooks/revoke`."""

    revoked: bool
    server_time: Time


class TailLine(WireMessage):
    """One thing that happened in a session."""

    number: int
    at: Time
    kind: str
    text: str


class Tailed(WireMessage):
    """The answer to `_amplifier-hooks/tail`: what happened last."""

    lines: list[TailLine]
    server_time: Time


class TailNote(WireMessage):
    """`_amplifier-hooks/line`."""

    session_id: str
    line: TailLine
    server_time: Time


class Pong(WireMessage):
    """The answer to `_amplifier-hooks/ping`."""

    server_time: Time


# -- the same, to a client that knows only the Agent Client Protocol ---------------------------------------------------


class TextBlock(WireMessage):
    """A text in the content of a tool call."""

    type: Literal["text"] = "text"
    text: str


class TextContent(WireMessage):
    """Content of a tool call: a text."""

    type: Literal["content"] = "content"
    content: TextBlock


class WireToolCall(WireMessage):
    """What would run."""

    tool_call_id: str
    title: str
    kind: ToolKind
    status: Literal["pending"] = "pending"
    content: list[TextContent]
    raw_input: Any = None


class PermissionExtra(WireMessage):
    """What the protocol has no field for."""

    request_id: str
    digest: str
    agent: str
    tenant: str
    cwd: str
    risk: Risk
    risk_reasons: list[RiskReason] = []
    default: Default
    expires: Time
    server_time: Time


class PermissionMeta(WireMessage):
    """Under `_meta`."""

    ours: PermissionExtra = Field(validation_alias=META, serialization_alias=META)


class Permission(WireMessage):
    """`session/request_permission`."""

    session_id: str
    tool_call: WireToolCall
    options: list[Choice]
    meta: PermissionMeta = Field(validation_alias="_meta", serialization_alias="_meta")


# -- which is which ----------------------------------------------------------------------------------------------------


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
"""Our own calls: what they want, and what they are answered with."""

NOTES: Final[Mapping[str, type[WireMessage]]] = {
    f"{OURS}added": Added,
    f"{OURS}resolved": Resolved,
    f"{OURS}changed": Changed,
    f"{OURS}refused": Decided,
    f"{OURS}grants_changed": WireMessage,
    f"{OURS}line": TailNote,
}
"""Our own notifications; all go to the client."""
