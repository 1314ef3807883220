"""A client for programs: the queue of a gateway, kept up to date over any number of connections.

    async with ApprovalsClient("http://127.0.0.1:8000", token) as client:
        async for news in client.news():
            for row in client.queue: ...
            await client.decide(row, "option-1")

It connects again whenever the connection is lost, waiting longer from attempt to attempt. It then
sends its unanswered calls again: every call can be sent twice, and a decision carries an id of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import uuid4

from amplifier_hooks.storage.database import Openable
from approval_backends.errors import BackendUnavailable, GatewayRefusal, TokenRefused
from approval_backends.gateway.wire.frames import Failure, GatewayCall, Malformed, Note, Result, read, write_frame
from approval_backends.gateway.wire.messages import (
    ACP_VERSION,
    META,
    NOTES,
    OURS,
    Added,
    Attached,
    CardView,
    Decided,
    Grants,
    History,
    RequestRow,
    Resolved,
    Revoked,
    Rights,
    Tailed,
    ViewPart,
    WireMessage,
    accept,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping

    from websockets.asyncio.client import ClientConnection


UNKNOWN_TOKEN: Final = 4401
UNAUTHORIZED: Final = 401
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a message of the gateway: a queue of thousands."""
CALL_TIMEOUT: Final = 10.0
"""Seconds that a call waits for its answer, over any number of connections."""
GOOD_AFTER: Final = 5.0
"""Seconds after which a connection counts as good, so that the next attempt begins with the first pause again."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 15.0
MOST_NEWS: Final = 1_024
"""News kept for the reader; beyond this number the oldest are dropped, and the queue is right all the same."""

M = TypeVar("M", bound=WireMessage)
T = TypeVar("T")


class Disconnected(WireMessage):
    """News: the connection is lost. `queue` may be out of date until the next `Attached`."""

    reason: str


class Lost(Exception):
    """The connection is lost; a new one may be possible."""


class ApprovalsClient(Openable):
    """One approver's view of a gateway. Use it as an async context manager, which waits until it is attached.

    Leaving ends the connection and everything that waits for it.

    Args:
        address: Address of the gateway, such as `http://127.0.0.1:8437`.
        token: Token of the approver.
        timeout: Seconds for the first connection, and for each answer of the gateway.
        proxy: Address of an HTTP proxy in front of the gateway; None uses none.
    """

    def __init__(self, address: str, token: str, *, timeout: float = CALL_TIMEOUT, proxy: str | None = None) -> None:
        base = address.partition("#")[0].rstrip("/")
        self._address = f"ws{base.removeprefix('http')}/acp"
        self._token = token
        self._timeout = timeout
        self._proxy = proxy
        self._number = 0
        self._attaching = 0
        self._connection: ClientConnection | None = None
        self._answers: dict[int, asyncio.Future[Result | Failure]] = {}
        self._attached = asyncio.Event()
        self._queue: dict[str, RequestRow] = {}
        self._rights: Rights | None = None
        self._news: asyncio.Queue[WireMessage] = asyncio.Queue(MOST_NEWS)
        self._tailing: str | None = None
        self._running: asyncio.Task[None] | None = None
        self._chance = random.Random()  # noqa: S311  # it spreads attempts, and keeps no secret

    async def open(self) -> Self:
        """Connect, and wait until the client is attached. Opening twice is harmless.

        Raises `TokenRefused` for a wrong token, and `BackendUnavailable` if no gateway was reached in time.
        """
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        try:
            await self._wait_until_ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End the connection. Calling `close` twice is harmless."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait({running})

    # -- the queue and its news ----------------------------------------------------------------------------------------

    @property
    def queue(self) -> list[RequestRow]:
        """The waiting requests, oldest first, as far as this client has heard."""
        return list(self._queue.values())

    @property
    def you(self) -> Rights:
        """The name and rights that the gateway gives this client."""
        if self._rights is None:
            raise BackendUnavailable("not connected yet; use it as: async with ApprovalsClient(…) as client")
        return self._rights

    @property
    def connected(self) -> bool:
        """True if the queue is as the gateway has it."""
        return self._attached.is_set()

    async def news(self) -> AsyncGenerator[WireMessage, None]:
        """Yield every notification of the gateway, `Attached` after a new connection, and `Disconnected` before it.

        The generator never ends by itself. Raises `TokenRefused` when the gateway does not take the token any more.
        Cancelling loses nothing.
        """
        while True:
            yield await self._or_over(self._news.get)

    # -- calls ---------------------------------------------------------------------------------------------------------
    # Each raises `GatewayRefusal` if the gateway refuses it, and `BackendUnavailable` without an answer in time. One
    # that is cancelled has happened or has not.

    async def show(self, request_id: str) -> CardView:
        """Return one request as a card."""
        return await self._call("show", CardView, requestId=request_id)

    async def whole(self, request_id: str, view: ViewPart) -> ViewPart:
        """Return a view with all its parts.

        Args:
            view: Part of a card that the gateway has cut.
        """
        while view.next is not None:
            more = await self._call("more", ViewPart, requestId=request_id, view=view.name, start=view.next)
            text = (view.text or "") + (more.text or "") if view.lines is None else None
            lines = None if view.lines is None else [*view.lines, *(more.lines or ())]
            view = view.model_copy(update={"text": text, "lines": lines, "next": more.next})
        return view

    async def decide(
        self,
        row: RequestRow,
        option_id: str,
        *,
        message: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Decided:
        """Answer a request, for the action shown in this row. The result says if the answer counted, and why not.

        Args:
            row: Row as the list shows it: the answer is bound to its digest.
            option_id: Id of one of the row's options.
        """
        wanted = {"requestId": row.request_id, "digest": row.digest, "optionId": option_id, "decisionId": uuid4().hex}
        if message is not None:
            wanted["message"] = message
        if arguments is not None:
            wanted["arguments"] = json.dumps(dict(arguments))
        return await self._call("decide", Decided, **wanted)

    async def history(self, limit: int = 100) -> History:
        """Return the finished requests, newest first."""
        return await self._call("history", History, limit=limit)

    async def grants(self) -> Grants:
        """Return the grants in force, oldest first."""
        return await self._call("grants", Grants)

    async def revoke(self, grant_id: str) -> bool:
        """End a grant. Return True if there was one."""
        return (await self._call("revoke", Revoked, grantId=grant_id)).revoked

    async def tail(self, session_id: str | None) -> Tailed:
        """Follow the events of a session, also after reconnecting; with None, stop following.

        Args:
            session_id: Id of the session; None stops following.
        """
        before, self._tailing = self._tailing, session_id
        return await self._call("tail", Tailed, sessionId=session_id or before or "-", on=session_id is not None)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _call(self, name: str, model: type[M], **params: Any) -> M:
        """Send a call until an answer comes; every call of ours may be sent twice."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    await self._wait_until_ready()
                    with suppress(Lost):
                        return accept(model, await self._ask(f"{OURS}{name}", params))
        except TimeoutError:
            raise BackendUnavailable(f"no answer from the gateway within {self._timeout:g} s") from None

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Any:
        from websockets.exceptions import ConnectionClosed

        connection = self._connection
        if connection is None:
            raise Lost
        self._number += 1
        number = self._number
        answer: asyncio.Future[Result | Failure] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await connection.send(write_frame(GatewayCall(number, method, params)))
            frame = await answer
        except ConnectionClosed:
            raise Lost from None
        finally:
            del self._answers[number]
        if isinstance(frame, Failure):
            raise GatewayRefusal(frame.code, frame.reason)
        return frame.value

    async def _wait_until_ready(self) -> None:
        """Wait until the client is attached, or raise if that cannot happen any more."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._or_over(self._attached.wait)
        except TimeoutError:
            raise BackendUnavailable(f"no gateway was reached at {self._address}") from None

    async def _or_over(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work`; if the connection is given up meanwhile, raise the reason."""
        running = self._running
        if running is None:
            raise BackendUnavailable("the client is closed")
        task = asyncio.ensure_future(work())
        try:
            await asyncio.wait({task, running}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if not running.cancelled():
                running.result()
            raise BackendUnavailable("the client is closed")
        finally:
            task.cancel()

    async def _run(self) -> None:
        """Connect, again and again. The loop ends with `TokenRefused`, or never."""
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            begun = loop.time()
            try:
                await self._connect_once()
            except Lost as lost:
                self._tell(Disconnected(reason=str(lost)))
            attempt = 0 if loop.time() - begun > GOOD_AFTER else attempt + 1
            await asyncio.sleep(self._pause(attempt))

    def _pause(self, attempt: int) -> float:
        """Return a pause that doubles from attempt to attempt. A random part spreads the clients of a lost gateway."""
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**attempt) * self._chance.uniform(0.5, 1.0)

    async def _connect_once(self) -> None:
        """Keep one connection, from its first message to its last. Raises `Lost` at its end, and `TokenRefused`."""
        await asyncio.to_thread(import_module, "websockets.asyncio.client")
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

        headers = {"Authorization": f"Bearer {self._token}"}
        options: dict[str, Any] = {"compression": None, "proxy": self._proxy, "max_size": LARGEST}
        try:
            async with connect(self._address, additional_headers=headers, **options) as connection:
                self._connection = connection
                greeting = asyncio.create_task(self._attach())
                try:
                    async for text in connection:
                        self._handle_message(text)
                finally:
                    greeting.cancel()
                    self._connection = None
                    self._attached.clear()
                    for answer in self._answers.values():
                        if not answer.done():
                            answer.set_exception(Lost())
        except InvalidStatus as refused:
            if refused.response.status_code == UNAUTHORIZED:
                raise TokenRefused from None
            raise Lost(f"the gateway answered {refused.response.status_code}") from None
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code == UNKNOWN_TOKEN:
                raise TokenRefused from None
            raise Lost(str(closed)) from None
        except (OSError, TimeoutError, WebSocketException) as problem:
            raise Lost(f"{type(problem).__name__}: {problem}") from None
        raise Lost("the gateway closed the connection")

    async def _attach(self) -> None:
        capabilities = {"_meta": {META: {"queue": True}}}
        with suppress(Lost, GatewayRefusal, Malformed):
            await self._ask("initialize", {"protocolVersion": ACP_VERSION, "clientCapabilities": capabilities})
            self._attaching = self._number + 1
            await self._ask(f"{OURS}attach", {})
            if self._tailing is not None:
                await self._ask(f"{OURS}tail", {"sessionId": self._tailing})
            self._attached.set()

    def _handle_message(self, text: str | bytes) -> None:
        """Handle one message. The client ignores a message that it does not understand: the gateway may be newer."""
        with suppress(Malformed):
            frame = read(text) if isinstance(text, str) else None
            if isinstance(frame, Note) and frame.method in NOTES:
                self._tell(accept(NOTES[frame.method], frame.params))
            elif isinstance(frame, Result | Failure) and isinstance(frame.id, int):
                if isinstance(frame, Result) and frame.id == self._attaching:
                    self._tell(accept(Attached, frame.value))  # at once: the messages after it change it
                answer = self._answers.get(frame.id)
                if answer is not None and not answer.done():
                    answer.set_result(frame)

    def _tell(self, news: WireMessage) -> None:
        """Update the queue, and pass the news on."""
        match news:
            case Attached():
                self._rights = news.you
                self._queue = {row.request_id: row for row in news.queue}
            case Added():
                self._queue[news.row.request_id] = news.row
            case Resolved():
                self._queue.pop(news.request_id, None)
            case _:
                pass
        if self._news.full():
            self._news.get_nowait()
        self._news.put_nowait(news)
