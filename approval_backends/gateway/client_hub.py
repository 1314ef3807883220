"""The clients of a gateway, and the news for them, whatever the connections are made of.

    store ── wakes ──▶ WaitingRequests ── changes ──▶ every ClientSession ── one sender each ──▶ its client
    client ── calls, answers ──▶ ClientSession ──▶ RpcMethods ──▶ broker ──▶ store

The store is the truth. Nothing is decided here, and nothing is remembered that a second gateway would have to know.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

from attrs import define, frozen
from msgspec.structs import replace
from websockets.exceptions import ConnectionClosed

from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.storage.database import Openable, StoreUnavailable
from approval_backends.card.count_files import find_card_facts
from approval_backends.gateway.client_session import TOO_SLOW, UNKNOWN_TOKEN, ClientSession
from approval_backends.gateway.rpc_methods import GatewayRecord, RpcMethods, Tails, WatchedSink
from approval_backends.gateway.wire.frames import Note, encode_json, write_frame
from approval_backends.gateway.wire.messages import OURS, Added, Changed, Resolved, TailNote, notification_text
from approval_backends.gateway.wire.record_messages import ending, permission, row
from approval_backends.lifecycle import FINAL, Moment, RequestRecord, seconds_left, sees

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
    from datetime import datetime

    from amplifier_hooks.ports import AuditSink, Stop
    from approval_backends.broker import Broker
    from approval_backends.gateway.wire.messages import TailLine, TimedMessage
    from approval_backends.lifecycle import Decider
    from approval_backends.stores.approval_store import ApprovalStore


RECHECK: Final = 5.0
"""Seconds after which the gateway reads the store again, woken or not."""
MOST_FOLLOWED: Final = 16
"""Approved requests whose end the gateway looks for; of more, it drops the oldest."""


ChangeKind = Literal["added", "resolved", "changed"]


@frozen
class RequestChange:
    """A change: a request that is new, is not asked any more, or has moved on since."""

    kind: ChangeKind
    record: RequestRecord


class WaitingRequests:
    """The pending requests of a store, oldest first, its stops, and the store's time."""

    def __init__(self, store: ApprovalStore) -> None:
        self._store = store
        self._alone = asyncio.Lock()
        self._pending: dict[str, RequestRecord] = {}
        self._versions: dict[str, int] = {}
        self._stops: list[Stop] = []
        self._moment: Moment | None = None
        self._read_at = 0.0
        self._seconds_left = RECHECK

    async def refresh(self) -> list[RequestChange]:
        """Read the store, expire every request whose time is over, and return the changes since the last read.

        Raises `StoreUnavailable`, and then nothing has changed here. Cancelling `refresh` may lose changes, never the
        truth.
        """
        async with self._alone:
            if self._moment is None or time.monotonic() - self._read_at > RECHECK:
                self._moment, self._read_at = await self._store.now(), time.monotonic()
            found, stops, moment = await self._store.pending(), await self._store.stops(), self.moment
            self._seconds_left = _seconds_to_next_end(found, moment)
            if self._seconds_left <= 0:
                await self._store.expire_due()
                found = await self._store.pending()
                self._seconds_left = _seconds_to_next_end(found, moment)
            pending = {record.id: record for record in found}
            news = [RequestChange("added", record) for record in found if record.id not in self._pending]
            for record in [record for record in self._pending.values() if record.id not in pending]:
                after = await self._store.get(record.id)
                news.append(RequestChange("resolved", after or replace(record, status="cancelled", reason="removed")))
            if not news:  # so another change woke the gateway
                news = [one for request_id in list(self._versions) async for one in self._progress_of(request_id)]
            self._pending, self._stops = pending, [stop for stop in stops if stop.ended is None]
            for one in news:
                self._follow(one.record)
            return news

    def _follow(self, record: RequestRecord) -> None:
        """Remember a request that is approved and not at its end, to announce its next changes."""
        self._versions.pop(record.id, None)
        if record.status != "pending" and record.status not in FINAL:
            self._versions[record.id] = record.version
        if len(self._versions) > MOST_FOLLOWED:
            del self._versions[next(iter(self._versions))]

    async def _progress_of(self, request_id: str) -> AsyncIterator[RequestChange]:
        record = await self._store.get(request_id)
        if record is None:
            del self._versions[request_id]
        elif record.version != self._versions[request_id]:
            yield RequestChange("changed", record)

    @property
    def moment(self) -> Moment:
        """The store's time, counted on from the last reading."""
        if self._moment is None:
            raise RuntimeError("nothing was read yet")
        passed = time.monotonic() - self._read_at
        return Moment(self._moment.wall + timedelta(seconds=passed), self._moment.age + passed)

    @property
    def now(self) -> datetime:
        """The store's time by its wall clock."""
        return self.moment.wall

    @property
    def pause(self) -> float:
        """Seconds until the store has to be read again at the latest."""
        return min(RECHECK, max(self._seconds_left, 0.0) + 0.01)

    def visible_to(self, decider: Decider) -> Iterator[RequestRecord]:
        """Return the pending requests that the approver may see, oldest first."""
        return (record for record in self._pending.values() if sees(decider, record.request))

    @property
    def stops(self) -> Sequence[Stop]:
        """The stops in force, oldest first."""
        return self._stops

    def get(self, request_id: str) -> RequestRecord | None:
        """Return a pending request, or None."""
        return self._pending.get(request_id)


def _seconds_to_next_end(pending: Iterable[RequestRecord], moment: Moment) -> float:
    """Return the seconds until the time of the first of these requests is over."""
    return min((seconds_left(one.created, one.lifetime, moment) for one in pending), default=RECHECK)


@frozen(kw_only=True)
class GatewayLimits:
    """Counts, and times in seconds.

    `strangers` unauthenticated clients may be connected; of more, the oldest has to go, so that no client can keep the
    others out by coming first. `queued` messages, or so many bytes of them, may wait for a slow client. The rate limit
    of a client is `rate` messages a second, and `at_once` of them after a pause.
    """

    clients: int = 32
    strangers: int = 64
    authenticate_within: float = 5.0
    lifetime: float = 12 * 3_600.0
    queued: int = 256
    queued_bytes: int = 1024 * 1024
    rate: float = 50.0
    at_once: int = 100
    ping_every: float = 20.0
    stop_within: float = 2.0


RESTARTS: Final = 1012
GOODBYE: Final = 1.5
"""Seconds for telling a client why it has to go."""
AFTER_TROUBLE: Final = 1.0
QUESTION_AGE: Final = 1.0
"""Seconds for which the time in a question counts as the time now."""
GONE: Final = (ConnectionClosed, OSError)
"""Errors of a connection whose client has left."""

log = logging.getLogger(__name__)


class Peer(Protocol):
    """One connection, as the hub uses it. Sending to a client that has left raises one of `GONE`."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Return the messages of the client, until it leaves."""
        ...

    async def send(self, message: str, /) -> None:
        """Send a message."""
        ...

    async def close(self, code: int, reason: str, /) -> None:
        """Close the connection, with a code and a reason."""
        ...

    def cut(self) -> None:
        """Close at once, whatever the peer does."""
        ...


class ClientHub(Openable):
    """Serves the clients of one store. A subclass accepts the connections.

    `open` follows the store, and `close` dismisses the clients. `audit` receives the gateway's own records.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        bounds: GatewayLimits | None = None,
        audit: AuditSink | None = None,
        tails: Tails | None = None,
    ) -> None:
        self.bounds = bounds or GatewayLimits()
        self._broker = broker
        self._waiting = WaitingRequests(broker.store)
        self._tails = tails or Tails()
        self._tails.on_line = self._line
        self.methods = RpcMethods(broker, self._waiting, GatewayRecord(audit, lambda: self._waiting.now), self._tails)
        self._clients: dict[ClientSession, _ClientConnection] = {}
        self._questions: dict[str, tuple[float, str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Follow the store, which has to be open. Raises `StoreUnavailable`; opening twice is harmless."""
        if self._watching is None:
            await self._waiting.refresh()
            self._follow()
        return self

    async def close(self) -> None:
        """Tell every client to come again later, and end within `bounds.stop_within`. Closing twice is harmless."""
        watching, self._watching = self._watching, None
        if watching is None:
            return
        watching.cancel()
        self.dismiss_all()
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=self.bounds.stop_within)
        for seat in list(self._clients.values()):
            seat.connection.cut()
        await asyncio.wait({watching})

    def _follow(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    def dismiss_all(self) -> None:
        """Tell every client to come again later."""
        for client in list(self._clients):
            self._dismiss(client, RESTARTS, "the gateway stops")

    def watched_sink(self, sink: AuditSink) -> WatchedSink:
        """Return a sink that writes to `sink`, and shows each line to the clients that follow its session."""
        return WatchedSink(sink, self._tails)

    # -- for client sessions -------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The store's time by its wall clock."""
        return self._waiting.now

    def decider_of(self, token: str) -> Decider | None:  # noqa: ARG002  # a subclass may know tokens
        """Return the approver of this token, or None. A hub knows no tokens."""
        return None

    def register_client(self, client: ClientSession) -> bool:
        """Return True if the client may have one of the places for authenticated clients; False if all are taken."""
        others = sum(one.decider is not None for one in self._clients if one is not client)
        return others < self.bounds.clients

    async def waiting(self, by: Decider) -> list[RequestRecord]:
        """Return the pending requests that the approver may see, read from the store just now.

        Raises `StoreUnavailable`.
        """
        self._tell(await self._waiting.refresh())
        return list(self._waiting.visible_to(by))

    async def question(self, request_id: str) -> str | None:
        """Return the parameters of `session/request_permission`, or None for a request that cannot be shown.

        Clients that ask within one second share one text.
        """
        record = self._waiting.get(request_id)
        if record is None:
            return None
        made, text = self._questions.get(request_id, (float("-inf"), ""))
        if time.monotonic() - made > QUESTION_AGE:
            facts = await find_card_facts(record.request, await self._broker.session_requests(record.request))
            try:
                text = encode_json(permission(record, self.now, facts))
            except ApprovalMismatch:
                log.exception("gateway_failed")
                return None
            if self._waiting.get(request_id) is None:  # it has ended meanwhile
                return None
            self._questions[request_id] = (time.monotonic(), text)
        return text

    def announce_grants(self) -> None:
        """Tell every client that a grant was made or ended."""
        text = write_frame(Note(f"{OURS}grants_changed"))
        for client in [one for one in self._clients if one.attached]:
            client.send(text)

    # -- news ----------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Read the store whenever it changed, and now and then."""
        trouble = False
        with self._broker.watch() as watch:
            while True:
                pause = AFTER_TROUBLE
                try:
                    self._tell(await self._waiting.refresh())
                    pause, trouble = self._waiting.pause, False
                except StoreUnavailable as problem:
                    if not trouble:  # once, not every second
                        log.warning("gateway_store_unavailable error=%s", problem)
                    trouble = True
                except Exception:
                    log.exception("gateway_failed")
                await watch.wait(pause)

    def _tell(self, news: Iterable[RequestChange]) -> None:
        for one in news:
            try:
                text = self._note(one)
            except Exception:  # one odd request that cannot be announced must not silence the others
                log.exception("gateway_failed")
                continue
            for client in list(self._clients):
                client.tell(one.kind, one.record, text)
            if one.kind == "resolved":
                self._questions.pop(one.record.id, None)
            if _makes_grant(one.record):
                self.announce_grants()
        for client in list(self._clients):
            client.tell_stops(self._waiting.stops, self.now)

    def _note(self, one: RequestChange) -> str:
        record = one.record
        message: TimedMessage
        if one.kind == "added":
            message = Added(row=row(record))
        elif one.kind == "changed":
            message = Changed(request_id=record.id, status=record.status)
        else:
            message = Resolved(request_id=record.id, session_id=record.request.session, ending=ending(record))
        return notification_text(one.kind, message, self.now)

    def _line(self, key: tuple[str, str], line: TailLine) -> None:
        if self._watching is None or all(client.tailing is None for client in self._clients):
            return
        text = notification_text("line", TailNote(session_id=key[1], line=line), self.now)
        for client in list(self._clients):
            client.tell_line(key, text)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def serve_client(self, connection: Peer, decider: Decider | None) -> None:
        """Serve one client until it leaves or its time is over. Without a decider it has to send a token."""
        loop = asyncio.get_running_loop()
        client = ClientSession(self, lambda code, reason: self._dismiss(client, code, reason), decider)
        sender = asyncio.create_task(self._send(client, connection))
        self._clients[client] = _ClientConnection(connection, sender)
        if decider is not None and not self.register_client(client):
            client.dismiss(TOO_SLOW, "all places are taken")
        self._make_room()
        timers = [
            loop.call_later(self.bounds.authenticate_within, self._dismiss_unknown, client),
            loop.call_later(self.bounds.lifetime, client.dismiss, UNKNOWN_TOKEN, "send your token again"),
        ]
        try:
            async for message in connection:
                if isinstance(message, str):
                    await client.handle_message(message)
        except GONE:
            pass
        finally:
            for timer in timers:
                timer.cancel()
            sender.cancel()
            del self._clients[client]

    async def _send(self, client: ClientSession, connection: Peer) -> None:
        with suppress(*GONE):
            while True:
                await connection.send(await client.next())

    def _dismiss_unknown(self, client: ClientSession) -> None:
        if client.decider is None:
            client.dismiss(UNKNOWN_TOKEN, "no token came in time")

    def _make_room(self) -> None:
        """Dismiss the oldest unauthenticated client if there are too many of them."""
        strangers = [one for one, seat in self._clients.items() if one.decider is None and not seat.leaving]
        if len(strangers) > self.bounds.strangers:
            strangers[0].dismiss(TOO_SLOW, "too many connections without a token")

    def _dismiss(self, client: ClientSession, code: int, reason: str) -> None:
        """Close a connection. Its sender may be stuck, and would keep the closing frame back."""
        seat = self._clients.get(client)
        if seat is not None and not seat.leaving:
            seat.leaving = True
            seat.sender.cancel()
            task = asyncio.create_task(self._say_goodbye(seat.connection, client, code, reason))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _say_goodbye(self, connection: Peer, client: ClientSession, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(GOODBYE):
                for text in client.last_words():
                    await connection.send(text)
                await connection.close(code, reason)
        except (TimeoutError, *GONE):
            connection.cut()


@define
class _ClientConnection:
    """A client's connection, the task that sends to it, and whether it was told to go."""

    connection: Peer
    sender: asyncio.Task[None]
    leaving: bool = False


def _makes_grant(record: RequestRecord) -> bool:
    decision = None if record.status == "approved" else record.decision
    return decision is not None and any(one.lasts for one in record.request.options if one.id == decision.option)
