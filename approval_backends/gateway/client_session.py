"""One client of a gateway, from its first words to its last. It talks JSON-RPC, and knows no address.

What waits to be sent to one client, and how much of it may.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import frozen

from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends.gateway.edge.message_rate_limit import MessageRateLimit
from approval_backends.gateway.gateway_record import may_see_lines
from approval_backends.gateway.wire.frames import Failure, GatewayCall, Malformed, Note, Result, read, write_frame
from approval_backends.gateway.wire.messages import (
    ACP_VERSION,
    CALLS,
    OURS,
    AnswerExtra,
    Authenticate,
    Initialize,
    PermissionAnswer,
    Revoked,
    Selected,
    SessionNamed,
    Tail,
    accept,
    fields,
)
from approval_backends.lifecycle import sees

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from approval_backends.gateway.edge.limits import GatewayLimits
    from approval_backends.gateway.rpc_methods import RpcMethods
    from approval_backends.gateway.wire.frames import Frame, Id
    from approval_backends.lifecycle import Decider, RequestRecord


class MessageOutbox:
    """Messages in order, at most so many and so large together; one that is alone may be of any size.

    `later` makes messages when there is nothing else to send: they are not made, and take no room, before.
    """

    def __init__(self, most: int, most_bytes: int, later: Callable[[], str | None]) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._later = later
        self._texts: deque[str] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    def put(self, text: str) -> bool:
        """One more; False if there is no room for it. All of our messages are ASCII, so a character is a byte."""
        if self._texts and (len(self._texts) >= self._most or self._bytes + len(text) > self._most_bytes):
            return False
        self._texts.append(text)
        self._bytes += len(text)
        self._wake.set()
        return True

    def wake(self) -> None:
        """There is something to make later."""
        self._wake.set()

    async def take(self) -> str:
        """The next one. Cancelling it loses nothing."""
        while True:
            if self._texts:
                text = self._texts.popleft()
                self._bytes -= len(text)
                return text
            made = self._later()
            if made is not None:
                return made
            self._wake.clear()
            await self._wake.wait()

    def take_all(self) -> list[str]:
        """All that waits, and then nothing does."""
        waits = list(self._texts)
        self._texts.clear()
        self._bytes = 0
        return waits


REMEMBERED: Final = 1_024
"""Questions whose answers still find their request, however late; ids are never used again."""
LAST_WORDS: Final = 8
UNKNOWN_TOKEN: Final = 4401
TOO_SLOW: Final = 1013
TOO_MUCH: Final = 4429

NO_AGENT: Final = "this is an approval gateway: sessions begin, and prompts go, to the agent itself"

log = logging.getLogger(__name__)


class ClientHost(Protocol):
    """What a visitor needs of the gateway it visits."""

    bounds: GatewayLimits
    methods: RpcMethods

    def decider_of(self, token: str) -> Decider | None:
        """Whose token this is."""
        ...

    def register_client(self, visitor: ClientSession) -> bool:
        """Take a place among those who are known; False if all are taken."""
        ...

    async def waiting(self, by: Decider) -> list[RequestRecord]:
        """What waits and may be seen, read from the store just now."""
        ...

    def announce_grants(self) -> None:
        """A standing answer was made or ended."""
        ...

    def question(self, request_id: str) -> str | None:
        """The parameters of `session/request_permission`, as JSON; None if it does not wait any more."""
        ...


@frozen
class SentQuestion:
    """A question as it was sent under an id of its own. What is answered is what was shown."""

    request_id: str
    digest: str


class ClientSession:
    """Reads what one client sends, and holds what is sent to it.

    `dismiss` ends the connection, with a code and a reason. Who the client is, is said once, by its token.
    """

    def __init__(self, house: ClientHost, dismiss: Callable[[int, str], None], decider: Decider | None) -> None:
        self.decider = decider
        self.attached = False
        self.tailing: str | None = None
        self._host = house
        self.dismiss = dismiss
        self._plain: bool | None = None
        self._pace = MessageRateLimit(house.bounds.rate, house.bounds.at_once)
        self._tolerance = house.bounds.at_once
        self._outbox = MessageOutbox(house.bounds.queued, house.bounds.queued_bytes, self._ask_next)
        self._nonce = secrets.token_hex(6)
        self._number = 0
        self._to_ask: OrderedDict[str, RequestRecord] = OrderedDict()
        self._put: OrderedDict[str, SentQuestion] = OrderedDict()
        self._open: dict[str, str] = {}

    # -- what goes out -------------------------------------------------------------------------------------------------

    async def next(self) -> str:
        """The next message to send. Cancelling it loses nothing."""
        return await self._outbox.take()

    def last_words(self) -> list[str]:
        """What waits, if it is little: a client that has to go is still told why."""
        waits = self._outbox.take_all()
        return waits if len(waits) <= LAST_WORDS else []

    def send(self, text: str) -> None:
        """One more message; a client for which too many wait has to go, and can come again."""
        if not self._outbox.put(text):
            self.dismiss(TOO_SLOW, "too slow; connect and attach again")

    def tell_added(self, record: RequestRecord, text: str) -> None:
        """A request is new."""
        if not self._sees(record):
            return
        if self.attached:
            self.send(text)
        elif self._plain:
            self._to_ask[record.id] = record
            self._outbox.wake()

    def tell_resolved(self, record: RequestRecord, text: str) -> None:
        """A request is not asked any more. One that was not put yet never is."""
        if not self._sees(record):
            return
        if self.attached:
            self.send(text)
        elif self._plain and self._to_ask.pop(record.id, None) is None and record.id in self._open:
            self.send(write_frame(Note("$/cancel_request", {"requestId": self._open.pop(record.id)})))
            self.send(text)

    def tell_changed(self, record: RequestRecord, text: str) -> None:
        """An approved action went on."""
        if self.attached and self._sees(record):
            self.send(text)

    def tell_grants_changed(self, text: str) -> None:
        """A standing answer was made or ended."""
        if self.attached:
            self.send(text)

    def tell_line(self, place: tuple[str, str], text: str) -> None:
        """Something happened in a session."""
        if self.tailing is not None and self.decider is not None and may_see_lines(self.decider, place, self.tailing):
            self.send(text)

    def _sees(self, record: RequestRecord) -> bool:
        return self.decider is not None and sees(self.decider, record.request)

    def _ask_next(self) -> str | None:
        """The next question to a client of the plain protocol, made when there is room to send it."""
        while self._to_ask:
            request_id, record = self._to_ask.popitem(last=False)
            params = self._host.question(request_id)
            if params is not None:
                self._number += 1
                number = f"p-{self._nonce}-{self._number}"
                self._put[number] = SentQuestion(request_id, record.request.digest)
                self._open[request_id] = number
                if len(self._put) > REMEMBERED:
                    self._put.popitem(last=False)
                return f'{{"jsonrpc":"2.0","id":"{number}","method":"session/request_permission","params":{params}}}'
        return None

    # -- what comes in -------------------------------------------------------------------------------------------------

    async def handle_message(self, text: str) -> None:
        """One message. Whatever it is, it is answered or passed over, and nothing is raised but cancellation."""
        if not self._pace.allows(asyncio.get_running_loop().time()):
            self._refuse_flood()
            return
        try:
            frame = read(text)
        except Malformed as refused:
            self._send_frame(refused.failure)
            return
        number = frame.id if isinstance(frame, GatewayCall) else None
        reply: Frame | None
        try:
            value = await self._handle_frame(frame)
            reply = None if number is None else Result(number, value)
        except Malformed as refused:
            reply = Malformed(refused.code, refused.reason, number).failure
        except StoreUnavailable:
            reply = Malformed(-32003, "nothing was changed; try again", number).failure
        except Exception:
            log.exception("gateway_failed")
            reply = Malformed(-32603, "the gateway's log has the details", number).failure
        if reply is not None:
            self._send_frame(reply)

    def _refuse_flood(self) -> None:
        self._tolerance -= 1
        if self._tolerance < 0:
            self.dismiss(TOO_MUCH, "too many messages")
        else:
            self._send_frame(Malformed(-32029, "this one was not read").failure)

    def _send_frame(self, frame: Frame) -> None:
        self.send(write_frame(frame))

    async def _handle_frame(self, frame: Frame) -> Any:
        """What a message comes to. Raises what `received` turns into errors."""
        match frame:
            case GatewayCall(_, method, params):
                return await self._call(method, params)
            case Result(number, value):
                await self._take_permission_answer(number, value)
            case Failure(number):
                self._let_go(str(number))
            case Note():
                pass  # session/cancel and others: there is no turn of ours to cancel
        return None

    async def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "initialize":
            return await self._initialize(accept(Initialize, params))
        if method == "authenticate":
            return await self._authenticate(accept(Authenticate, params))
        if self.decider is None or self._plain is None:
            raise Malformed(-32000, "send initialize and authenticate first")
        if method in CALLS:
            return await self._call_own_method(method, params, self.decider)
        if method == "session/list":
            return {"sessions": await self._sessions(self.decider)}
        if method in ("session/load", "session/resume"):
            return await self._ask_again(accept(SessionNamed, params).session_id, self.decider)
        if method == "session/close":
            accept(SessionNamed, params)
            return {}
        raise Malformed(-32601, NO_AGENT if method.startswith("session/") else f"no method {method[:64]!r}")

    # -- first words ---------------------------------------------------------------------------------------------------

    async def _initialize(self, wanted: Initialize) -> Any:
        if self._plain is not None:
            raise Malformed(-32600, "initialize comes once")
        self._plain = not wanted.wants_queue
        await self._begin()
        return GREETING

    async def _authenticate(self, wanted: Authenticate) -> Any:
        decider = self._host.decider_of(wanted.meta.ours.token)
        if decider is None:
            self.dismiss(UNKNOWN_TOKEN, "unknown token")
            raise Malformed(-32000, "unknown token")
        if self.decider is None:
            self.decider = decider
            if not self._host.register_client(self):
                self.decider = None
                self.dismiss(TOO_SLOW, "all places are taken")
                raise Malformed(-32000, "all places are taken")
            await self._begin()
        elif decider != self.decider:
            raise Malformed(-32600, "this connection is somebody else's")
        return {}

    async def _begin(self) -> None:
        """Once it is known who it is and what it understands, a client of the plain protocol is asked."""
        if self._plain and self.decider is not None:
            for record in await self._host.waiting(self.decider):
                self._to_ask[record.id] = record
            self._outbox.wake()

    # -- ours ----------------------------------------------------------------------------------------------------------

    async def _call_own_method(self, method: str, params: Mapping[str, Any], decider: Decider) -> Any:
        wanted = accept(CALLS[method][0], params)
        name = method.removeprefix(OURS)
        if name == "attach":
            await self._host.waiting(decider)
        answer = await getattr(self._host.methods, name)(decider, wanted)
        if name == "attach":
            self.attached = True
        if isinstance(answer, Revoked) and answer.revoked:
            self._host.announce_grants()
        if isinstance(wanted, Tail):
            self.tailing = wanted.session_id if wanted.on else None
        return fields(answer)

    # -- the plain protocol --------------------------------------------------------------------------------------------

    async def _take_permission_answer(self, number: Id, value: Any) -> None:
        """An answer to a question of ours. One to a question that never was is passed over."""
        put = self._put.get(str(number))
        if put is None or self.decider is None:
            return
        self._let_go(str(number))
        answer = accept(PermissionAnswer, value)
        if not isinstance(answer.outcome, Selected):
            return
        said = answer.meta.ours if answer.meta else AnswerExtra()
        decided = await self._host.methods.answer(
            self.decider,
            put.request_id,
            put.digest,
            answer.outcome.option_id,
            decision_id=str(number),
            message=said.message,
            arguments=said.arguments,
        )
        if not decided.accepted:
            self._send_frame(Note(f"{OURS}refused", fields(decided)))

    def _let_go(self, number: str) -> None:
        """This client will not answer it; whoever else is asked may."""
        put = self._put.get(number)
        if put is not None:
            self._open.pop(put.request_id, None)

    async def _sessions(self, decider: Decider) -> list[dict[str, Any]]:
        found = {record.request.session: record.request for record in await self._host.waiting(decider)}
        return [{"sessionId": name, "cwd": request.cwd or "/"} for name, request in found.items()]

    async def _ask_again(self, session: str, decider: Decider) -> dict[str, Any]:
        """Put the questions of a session once more; a client may have let go of those that came before it."""
        records = [one for one in await self._host.waiting(decider) if one.request.session == session]
        if not records:
            raise Malformed(-32002, "nothing waits in such a session")
        for record in records if self._plain else ():
            if record.id in self._open:
                self._send_frame(Note("$/cancel_request", {"requestId": self._open.pop(record.id)}))
            self._to_ask[record.id] = record
        self._outbox.wake()
        return {}


GREETING: Final[Mapping[str, Any]] = {
    "protocolVersion": ACP_VERSION,
    "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"list": {}, "resume": {}, "close": {}}},
    "authMethods": [
        {"id": "token", "name": "Token", "description": "The token that the gateway printed when it started"}
    ],
    "agentInfo": {"name": "amplifier-hooks", "version": "1"},
}
