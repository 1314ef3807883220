"""One client of a gateway, from its first message to its last, and the messages that wait to be sent to it.

The session speaks JSON-RPC, and knows no address. The outbox bounds what may wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.clock import TokenBucket
from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends.gateway.rpc_methods import may_see_lines
from approval_backends.gateway.wire import messages
from approval_backends.gateway.wire.frames import Failure, GatewayCall, Malformed, Note, Result, read, write_frame
from approval_backends.gateway.wire.record_messages import stop_rows
from approval_backends.lifecycle import sees

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from amplifier_hooks.ports import Stop
    from approval_backends.gateway.client_hub import ChangeKind, ClientHub
    from approval_backends.gateway.wire.frames import Frame, Id
    from approval_backends.lifecycle import Decider, RequestRecord


class MessageOutbox:
    """The messages to one client, in order, bounded in number and size; a single message may be of any size.

    `later` makes a message when there is nothing else to send; until then that message does not exist and takes no
    room.
    """

    def __init__(self, most: int, most_bytes: int, later: Callable[[], Awaitable[str | None]]) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._later = later
        self._texts: deque[str] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    def put(self, text: str) -> bool:
        """Add a message; return False if there is no room for it.

        All of our messages are ASCII, so a character is a byte.
        """
        if self._texts and (len(self._texts) >= self._most or self._bytes + len(text) > self._most_bytes):
            return False
        self._texts.append(text)
        self._bytes += len(text)
        self._wake.set()
        return True

    def wake(self) -> None:
        """Wake the sender, because `later` has a message to make."""
        self._wake.set()

    async def take(self) -> str:
        """Return the next message. Cancelling `take` loses nothing."""
        while True:
            self._wake.clear()
            if self._texts:
                text = self._texts.popleft()
                self._bytes -= len(text)
                return text
            made = await self._later()
            if made is not None:
                return made
            await self._wake.wait()

    def take_all(self) -> list[str]:
        """Return all waiting messages, and empty the outbox."""
        waits = list(self._texts)
        self._texts.clear()
        self._bytes = 0
        return waits


MOST_SENT: Final = 1_024
"""Questions whose answers still find their request, however late; ids are never used again."""
LAST_WORDS: Final = 8
UNKNOWN_TOKEN: Final = 4401
TOO_SLOW: Final = 1013
TOO_MUCH: Final = 4429

NO_AGENT: Final = "this is an approval gateway: sessions begin, and prompts go, to the agent itself"

log = logging.getLogger(__name__)


@frozen
class SentQuestion:
    """A question that was sent under an id of its own. Its answer counts for the action that was shown."""

    request_id: str
    digest: str


class ClientSession:
    """Reads the messages of one client, and holds the messages to it.

    `dismiss` ends the connection, with a code and a reason. The client's token identifies it, once.
    """

    def __init__(self, gateway: ClientHub, dismiss: Callable[[int, str], None], decider: Decider | None) -> None:
        self.decider = decider
        self.attached = False
        self.tailing: str | None = None
        self._gateway = gateway
        self.dismiss = dismiss
        self._plain: bool | None = None
        self._rate_limit = TokenBucket(gateway.bounds.rate, gateway.bounds.at_once)
        self._tolerance = gateway.bounds.at_once
        self._outbox = MessageOutbox(gateway.bounds.queued, gateway.bounds.queued_bytes, self._ask_next)
        self._nonce = secrets.token_hex(6)
        self._number = 0
        self._to_ask: OrderedDict[str, RequestRecord] = OrderedDict()
        self._sent: OrderedDict[str, SentQuestion] = OrderedDict()
        self._open: dict[str, str] = {}
        self._stops: list[messages.StopRow] = []

    # -- outgoing messages ---------------------------------------------------------------------------------------------

    async def next(self) -> str:
        """Return the next message to send. Cancelling `next` loses nothing."""
        return await self._outbox.take()

    def last_words(self) -> list[str]:
        """Return the waiting messages if they are few: a client that has to go still reads the reason."""
        waits = self._outbox.take_all()
        return waits if len(waits) <= LAST_WORDS else []

    def send(self, text: str) -> None:
        """Queue a message.

        The session dismisses a client for which too many messages wait; the client can connect again.
        """
        if not self._outbox.put(text):
            self.dismiss(TOO_SLOW, "too slow; connect and attach again")

    def tell(self, kind: ChangeKind, record: RequestRecord, text: str) -> None:
        """Tell the client of a change of a request. A question that was not put to it yet never is, once it ended."""
        if self.decider is None or not sees(self.decider, record.request):
            return
        if self.attached:
            self.send(text)
        elif self._plain and kind == "added":
            self._to_ask[record.id] = record
            self._outbox.wake()
        elif self._plain and kind == "resolved" and not self._to_ask.pop(record.id, None) and record.id in self._open:
            self.send(write_frame(Note("$/cancel_request", {"requestId": self._open.pop(record.id)})))
            self.send(text)

    def tell_stops(self, stops: Sequence[Stop], now: datetime) -> None:
        """Tell the client of the stops in force, if those that it may see have changed."""
        if self.attached and self.decider is not None:
            rows = stop_rows(self.decider, stops)
            if rows != self._stops:
                self._stops = rows
                self.send(messages.notification_text("stops", messages.Stops(stops=rows), now))

    def tell_line(self, key: tuple[str, str], text: str) -> None:
        """Tell the client of an event in the session that it follows."""
        if self.tailing is not None and self.decider is not None and may_see_lines(self.decider, key, self.tailing):
            self.send(text)

    async def _ask_next(self) -> str | None:
        """Return the next question to a client of the plain protocol, made when there is room to send it."""
        while self._to_ask:
            request_id = next(iter(self._to_ask))
            params = await self._gateway.question(request_id)
            record = self._to_ask.pop(request_id, None)  # it may have ended meanwhile
            if params is not None and record is not None:
                self._number += 1
                number = f"p-{self._nonce}-{self._number}"
                self._sent[number] = SentQuestion(request_id, record.request.digest)
                self._open[request_id] = number
                if len(self._sent) > MOST_SENT:
                    self._sent.popitem(last=False)
                return f'{{"jsonrpc":"2.0","id":"{number}","method":"session/request_permission","params":{params}}}'
        return None

    # -- incoming messages ---------------------------------------------------------------------------------------------

    async def handle_message(self, text: str) -> None:
        """Handle one message. Every message is answered or ignored; nothing is raised but cancellation."""
        if self._rate_limit.seconds_to_wait(asyncio.get_running_loop().time()):
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
        except ApprovalMismatch as refused:
            reply = Malformed(-32002, str(refused), number).failure
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
        """Return the result of a message. Raises the errors that `handle_message` turns into error responses."""
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
            return await self._initialize(messages.accept(messages.Initialize, params))
        if method == "authenticate":
            return await self._authenticate(messages.accept(messages.Authenticate, params))
        if self.decider is None or self._plain is None:
            raise Malformed(-32000, "send initialize and authenticate first")
        if method in messages.CALLS:
            return await self._call_own_method(method, params, self.decider)
        if method == "session/list":
            return {"sessions": await self._sessions(self.decider)}
        if method in ("session/load", "session/resume"):
            return await self._ask_again(messages.accept(messages.SessionNamed, params).session_id, self.decider)
        if method == "session/close":
            messages.accept(messages.SessionNamed, params)
            return {}
        raise Malformed(-32601, NO_AGENT if method.startswith("session/") else f"no method {method[:64]!r}")

    # -- the first messages --------------------------------------------------------------------------------------------

    async def _initialize(self, wanted: messages.Initialize) -> Any:
        if self._plain is not None:
            raise Malformed(-32600, "initialize comes once")
        self._plain = not wanted.wants_queue
        await self._begin()
        return GREETING

    async def _authenticate(self, wanted: messages.Authenticate) -> Any:
        decider = self._gateway.decider_of(wanted.token)
        if decider is None:
            self.dismiss(UNKNOWN_TOKEN, "unknown token")
            raise Malformed(-32000, "unknown token")
        if self.decider is None:
            self.decider = decider
            if not self._gateway.register_client(self):
                self.decider = None
                self.dismiss(TOO_SLOW, "all places are taken")
                raise Malformed(-32000, "all places are taken")
            await self._begin()
        elif decider != self.decider:
            raise Malformed(-32600, "this connection belongs to another approver")
        return {}

    async def _begin(self) -> None:
        """Ask a client of the plain protocol, once its approver and its capabilities are known."""
        if self._plain and self.decider is not None:
            for record in await self._gateway.waiting(self.decider):
                self._to_ask[record.id] = record
            self._outbox.wake()

    # -- our own methods -----------------------------------------------------------------------------------------------

    async def _call_own_method(self, method: str, params: Mapping[str, Any], decider: Decider) -> Any:
        wanted = messages.accept(messages.CALLS[method][0], params)
        name = method.removeprefix(messages.OURS)
        if name == "attach":
            await self._gateway.waiting(decider)
        answer = await getattr(self._gateway.methods, name)(decider, wanted)
        if isinstance(answer, messages.Attached):
            self.attached, self._stops = True, answer.stops
        if isinstance(answer, messages.Revoked) and answer.revoked:
            self._gateway.announce_grants()
        if isinstance(wanted, messages.Tail):
            self.tailing = wanted.session_id if wanted.on else None
        return messages.fields_at(answer, self._gateway.now)

    # -- the plain protocol --------------------------------------------------------------------------------------------

    async def _take_permission_answer(self, number: Id, value: Any) -> None:
        """Handle an answer to a question of ours. An answer to an unknown question is ignored."""
        sent = self._sent.get(str(number))
        if sent is None or self.decider is None:
            return
        self._let_go(str(number))
        answer = messages.accept(messages.PermissionAnswer, value)
        if not isinstance(answer.outcome, messages.Selected):
            return
        wanted = messages.Decide.model_construct(  # its parts are ours, or checked already
            request_id=sent.request_id,
            digest=sent.digest,
            option_id=answer.outcome.option_id,
            decision_id=str(number),
            message=answer.extra.message,
            arguments=answer.extra.arguments,
        )
        decided = await self._gateway.methods.decide(self.decider, wanted)
        if not decided.accepted:
            self._send_frame(Note(f"{messages.OURS}refused", messages.fields_at(decided, self._gateway.now)))

    def _let_go(self, number: str) -> None:
        """Note that this client will not answer the question; other approvers still may."""
        sent = self._sent.get(number)
        if sent is not None:
            self._open.pop(sent.request_id, None)

    async def _sessions(self, decider: Decider) -> list[dict[str, Any]]:
        found = {record.request.session: record.request for record in await self._gateway.waiting(decider)}
        return [{"sessionId": name, "cwd": request.cwd or "/"} for name, request in found.items()]

    async def _ask_again(self, session: str, decider: Decider) -> dict[str, Any]:
        """Put the questions of a session once more; a client may have dropped the earlier ones."""
        records = [one for one in await self._gateway.waiting(decider) if one.request.session == session]
        if not records:
            raise Malformed(-32002, "nothing waits in such a session")
        for record in records if self._plain else ():
            if record.id in self._open:
                self._send_frame(Note("$/cancel_request", {"requestId": self._open.pop(record.id)}))
            self._to_ask[record.id] = record
        self._outbox.wake()
        return {}


GREETING: Final[Mapping[str, Any]] = {
    "protocolVersion": messages.ACP_VERSION,
    "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"list": {}, "resume": {}, "close": {}}},
    "authMethods": [
        {"id": "token", "name": "Token", "description": "The token that the gateway printed when it started"}
    ],
    "agentInfo": {"name": "amplifier-hooks", "version": "1"},
}
