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


class Wire(BaseModel):
    """A message's fields, spelt `likeThis` on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True, extra="ignore")


class Wanted(Wire):
    """What a client sends. Types are taken as they are: a text is no number, and 1 is not true."""

    model_config = ConfigDict(strict=True)


M = TypeVar("M", bound=Wire)


def accept(model: type[M], params: object) -> M:
    """The fields of a message. Raises `Malformed` naming the first field that is wrong, and never its value."""
    try:
        return model.model_validate(params)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "params"
        raise Malformed(-32602, f"{where}: {first['msg']}") from None


def fields(message: Wire) -> dict[str, Any]:
    """A message as JSON has it; what is None is left out."""
    return message.model_dump(by_alias=True, exclude_none=True)


def told(method: str, message: Wire) -> str:
    """A notification as text, at once: these go to everybody, while whoever asked waits."""
    params = message.model_dump_json(by_alias=True, exclude_none=True, ensure_ascii=True)
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'


Key = Annotated[str, Field(min_length=1, max_length=1_024)]
Time = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]


# -- what a client may want --------------------------------------------------------------------------------------------


class Nothing(Wanted):
    """No parameters."""


class OurCapabilities(Wanted):
    """`queue`: this client wants the queue and looks at requests itself, instead of being asked each of them."""

    queue: bool = False


class OurCapabilitiesMeta(Wanted):
    """Under `clientCapabilities._meta`."""

    ours: OurCapabilities = Field(default=OurCapabilities(), validation_alias=META, serialization_alias=META)


class ClientCapabilities(Wanted):
    """Of the protocol's own capabilities none matters to a gateway."""

    meta: OurCapabilitiesMeta | None = Field(default=None, validation_alias="_meta", serialization_alias="_meta")


class Initialize(Wanted):
    """`initialize`: the first message of every connection."""

    protocol_version: int | str
    client_capabilities: ClientCapabilities | None = None

    @property
    def wants_queue(self) -> bool:
        """Whether the client knows the messages of ours."""
        meta = self.client_capabilities.meta if self.client_capabilities else None
        return meta is not None and meta.ours.queue


class Token(Wanted):
    """The secret."""

    token: str = Field(max_length=1_024, repr=False)


class TokenMeta(Wanted):
    """Under `_meta`."""

    ours: Token = Field(validation_alias=META, serialization_alias=META)


class Authenticate(Wanted):
    """`authenticate`, with the method `token`."""

    method_id: Literal["token"]
    meta: TokenMeta = Field(validation_alias="_meta", serialization_alias="_meta")


class SessionNamed(Wanted):
    """`session/load`, `session/resume` and others about one session."""

    session_id: Key


class Show(Wanted):
    """`_amplifier-hooks/show`: one request, as a card."""

    request_id: Key


class More(Wanted):
    """`_amplifier-hooks/more`: the next part of a view."""

    request_id: Key
    view: str
    start: int = Field(ge=0)


class Preview(Wanted):
    """`_amplifier-hooks/preview`: what would run with these arguments, before anybody decides that it may."""

    request_id: Key
    digest: Key
    arguments: str


class Decide(Wanted):
    """`_amplifier-hooks/decide`. `arguments` is the JSON text that is to run instead of what was shown."""

    request_id: Key
    digest: Key
    option_id: Key
    decision_id: Annotated[str, Field(min_length=8, max_length=128)]
    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)
    arguments: str | None = None


class HistoryWanted(Wanted):
    """`_amplifier-hooks/history`."""

    limit: int = Field(default=100, ge=1, le=200)


class Revoke(Wanted):
    """`_amplifier-hooks/revoke`."""

    grant_id: Key


class Tail(Wanted):
    """`_amplifier-hooks/tail`: be told what happens in one session, or, with `on` false, no longer."""

    session_id: Key
    on: bool = True


class Selected(Wanted):
    """One of the options."""

    outcome: Literal["selected"]
    option_id: Key


class Cancelled(Wanted):
    """No answer of this client. It decides nothing; others may still answer."""

    outcome: Literal["cancelled"]


class Said(Wanted):
    """What a client may add to its choice."""

    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)
    arguments: str | None = None


class SaidMeta(Wanted):
    """Under `_meta`."""

    ours: Said = Field(default=Said(), validation_alias=META, serialization_alias=META)


class PermissionAnswer(Wanted):
    """The answer to `session/request_permission`. An outcome nobody knows is no answer, least of all a permit."""

    outcome: Annotated[Selected | Cancelled, Field(discriminator="outcome")]
    meta: SaidMeta | None = Field(default=None, validation_alias="_meta", serialization_alias="_meta")


# -- what it is told ---------------------------------------------------------------------------------------------------


class Rights(Wire):
    """Who the client is, as the gateway authenticated it. `sessions` None means all of them."""

    name: str
    channel: str
    may_decide: bool
    sessions: list[str] | None = None


class Row(Wire):
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


class Outcome(Wire):
    """What was decided, in the protocol's words. Silence selects the default; what was taken back is cancelled."""

    outcome: Literal["selected", "cancelled"]
    option_id: str | None = None


class Ending(Wire):
    """What became of a request. `by` is missing when nobody decided; `reason` then says why it ended."""

    status: Status
    outcome: Outcome
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


class HistoryRow(Wire):
    """A request that is not asked any more."""

    row: Row
    ending: Ending


class Features(Wire):
    """What this gateway can do beyond deciding."""

    tail: bool = False


class Attached(Wire):
    """The answer to `_amplifier-hooks/attach`: who you are, and everything that waits, oldest first."""

    you: Rights
    queue: list[Row]
    recent: list[HistoryRow] = []
    features: Features = Features()
    server_time: Time


class DiffLine(Wire):
    """One line of a diff. `skip` counts unchanged lines left out, `part` says which edit follows, or what is special.

    A line that is very long goes on in the next one, which has no number.
    """

    kind: Literal["same", "add", "del", "skip", "part"]
    text: str
    old: int | None = None
    new: int | None = None
    pieces: list[str] | None = None
    """The text in three pieces, where it is much like the line it stands for: the one in the middle differs."""


class ViewPart(Wire):
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


class Question(Wire):
    """Why somebody is asked."""

    hook: str
    version: str
    prompt: str


class RiskReason(Wire):
    """A reason for the risk, and the hook, rule or host that gives it."""

    by: str
    reason: str


class Choice(Wire):
    """One of the answers that are offered."""

    option_id: str
    name: str
    kind: OptionKind


class Odd(Wire):
    """Something in the action that does not look like what it is; `mark` is how it appears in the texts."""

    what: str
    mark: str
    note: str


class ReachView(Wire):
    """What "always" would answer from now on: a sentence for each hook, what it leaves out, and when it ends."""

    covers: list[str]
    leaves: str
    ends: str


class CardView(Wire):
    """The answer to `_amplifier-hooks/show`: everything there is to know about one request."""

    row: Row
    event: str
    cwd: str
    views: list[ViewPart]
    questions: list[Question]
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


class Previewed(Wire):
    """The answer to `_amplifier-hooks/preview`: how the arguments differ, and the digest of the action with them."""

    digest: str
    lines: list[DiffLine]
    added: int
    removed: int
    server_time: Time


class Refused(Wire):
    """Why an answer did not count."""

    code: RefusalCode
    reason: str


class Decided(Wire):
    """The answer to `_amplifier-hooks/decide`. Refused or not, `ending` is what is so, if anything is decided."""

    request_id: str
    accepted: bool
    ending: Ending | None = None
    refusal: Refused | None = None
    server_time: Time


class Added(Wire):
    """`_amplifier-hooks/added`."""

    row: Row
    server_time: Time


class Resolved(Wire):
    """`_amplifier-hooks/resolved`: nobody is asked any more."""

    request_id: str
    session_id: str
    ending: Ending
    server_time: Time


class Changed(Wire):
    """`_amplifier-hooks/changed`: what became of an approved action."""

    request_id: str
    status: Status
    server_time: Time


class History(Wire):
    """The answer to `_amplifier-hooks/history`, newest first."""

    entries: list[HistoryRow]
    server_time: Time


class GrantRow(Wire):
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


class Grants(Wire):
    """The answer to `_amplifier-hooks/grants`, oldest first."""

    grants: list[GrantRow]
    server_time: Time


class Revoked(Wire):
    """The answer to `_amplifier-hooks/revoke`."""

    revoked: bool
    server_time: Time


class TailLine(Wire):
    """One thing that happened in a session."""

    number: int
    at: Time
    kind: str
    text: str


class Tailed(Wire):
    """The answer to `_amplifier-hooks/tail`: what happened last."""

    lines: list[TailLine]
    server_time: Time


class TailNote(Wire):
    """`_amplifier-hooks/line`."""

    session_id: str
    line: TailLine
    server_time: Time


class Pong(Wire):
    """The answer to `_amplifier-hooks/ping`."""

    server_time: Time


# -- the same, to a client that knows only the Agent Client Protocol ---------------------------------------------------


class TextBlock(Wire):
    """A text in the content of a tool call."""

    type: Literal["text"] = "text"
    text: str


class TextContent(Wire):
    """Content of a tool call: a text."""

    type: Literal["content"] = "content"
    content: TextBlock


class ToolCall(Wire):
    """What would run."""

    tool_call_id: str
    title: str
    kind: ToolKind
    status: Literal["pending"] = "pending"
    content: list[TextContent]
    raw_input: Any = None


class PermissionExtra(Wire):
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


class PermissionMeta(Wire):
    """Under `_meta`."""

    ours: PermissionExtra = Field(validation_alias=META, serialization_alias=META)


class Permission(Wire):
    """`session/request_permission`."""

    session_id: str
    tool_call: ToolCall
    options: list[Choice]
    meta: PermissionMeta = Field(validation_alias="_meta", serialization_alias="_meta")


# -- which is which ----------------------------------------------------------------------------------------------------


CALLS: Final[Mapping[str, tuple[type[Wanted], type[Wire]]]] = {
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

NOTES: Final[Mapping[str, type[Wire]]] = {
    f"{OURS}added": Added,
    f"{OURS}resolved": Resolved,
    f"{OURS}changed": Changed,
    f"{OURS}refused": Decided,
    f"{OURS}grants_changed": Wire,
    f"{OURS}line": TailNote,
}
"""Our own notifications; all go to the client."""
