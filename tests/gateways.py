"""Gateways to test with, scripted clients, and requests as they come from sessions."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from approval_backends.broker import Broker
from approval_backends.gateway.approvers import Approver
from approval_backends.gateway.gateway import Gateway
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import a_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from amplifier_hooks.ports import ApprovalRequest

__all__ = ["MARA", "SOON", "WATCHER", "Caller", "asked", "closed_with", "gateway", "http", "served"]

MARA: Final = Approver(name="Mara", token="mara-" + "m" * 40)
WATCHER: Final = Approver(name="Ines", token="ines-" + "i" * 40, may_decide=False)
SOON: Final = 60.0
"""Seconds that no step in these tests takes."""


def asked(number: int = 1, **changes: Any) -> ApprovalRequest:
    """Return a request that is made now and lives for a minute."""
    now = datetime.now(UTC)
    return a_request(number, created=now, expires=now + timedelta(seconds=changes.pop("lifetime", 60)), **changes)


@asynccontextmanager
async def gateway(broker: Broker | None = None, **options: Any) -> AsyncIterator[Gateway]:
    """Open a gateway with two approvers, one of whom may only look; over memory by default."""
    options.setdefault("approvers", (MARA, WATCHER))
    async with Gateway(broker or Broker(MemoryStore()), **options) as one:
        yield one


def served(one: Gateway) -> Broker:
    """Return the broker behind a gateway."""
    return one._broker


class Caller:
    """A client that speaks JSON-RPC by hand. It keeps notifications of the gateway in `heard`."""

    def __init__(self, to: Gateway, approver: Approver | None = MARA, **options: Any) -> None:
        headers = {"Authorization": f"Bearer {approver.token}"} if approver else None
        address = to.address.replace("http", "ws") + "acp"
        options = {"additional_headers": headers, "compression": None, "proxy": None, **options}
        self._connecting = connect(address, **options)
        self.connection: ClientConnection
        self.heard: deque[dict[str, Any]] = deque()
        self._number = 0

    async def __aenter__(self) -> Self:
        self.connection = await self._connecting.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connecting.__aexit__(kind, error, traceback)

    async def say(self, **message: Any) -> None:
        """Send a message."""
        await self.connection.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def read(self) -> dict[str, Any]:
        """Return the next message."""
        async with asyncio.timeout(SOON):
            message = json.loads(await self.connection.recv())
        assert isinstance(message, dict)
        return message

    async def reply(self, number: int | str | None) -> dict[str, Any]:
        """Return the answer with this id; keep messages that come before it."""
        while (message := await self.read()).get("id") != number or "method" in message:
            self.heard.append(message)
        return message

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Call a method and return the whole answer, an error included."""
        self._number += 1
        await self.say(id=self._number, method=method, params=params)
        return await self.reply(self._number)

    async def call(self, method: str, /, **params: Any) -> Any:
        """Call one of our methods and return its result."""
        answer = await self.ask(f"_amplifier-hooks/{method}", **params)
        assert "result" in answer, answer
        return answer["result"]

    async def note(self, method: str, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Return the parameters of the next unread message of this method, with its id if it has one."""
        while True:
            message = self.heard.popleft() if self.heard else await self.read()
            if message.get("method") in (method, f"_amplifier-hooks/{method}"):
                found: dict[str, Any] = {**message["params"], **({"id": message["id"]} if "id" in message else {})}
                if wanted(found):
                    return found

    async def greet(self, *, queue: bool = True) -> Self:
        """Send `initialize`."""
        ours = {"_meta": {"amplifier-hooks": {"queue": queue}}}
        answer = await self.ask("initialize", protocolVersion=1, clientCapabilities=ours)
        assert answer["result"]["protocolVersion"] == 1
        return self

    async def attach(self) -> Any:
        """Greet, attach and return the pending requests."""
        await self.greet()
        return await self.call("attach")

    async def decide(self, request: ApprovalRequest, option: str, **more: Any) -> Any:
        """Answer a request."""
        wanted = {"requestId": request.id, "digest": request.digest, "optionId": option, **more}
        return await self.call("decide", **{"decisionId": f"decision-{id(self)}-{self._number}", **wanted})


async def closed_with(caller: Caller) -> int | None:
    """Return the code with which the gateway closes the connection; None if it is cut off without a code."""
    async with asyncio.timeout(SOON):
        with suppress(ConnectionClosed):
            while True:
                caller.heard.append(json.loads(await caller.connection.recv()))
    return caller.connection.close_code


async def http(port: int, text: str) -> tuple[int, dict[str, str], bytes]:
    """Send these lines to a port, and return status, headers and body of the reply; the status is 0 without a reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text.replace("\n", "\r\n").encode("latin-1"))
        async with asyncio.timeout(SOON):
            head, _blank, body = (await reader.read(2**20)).partition(b"\r\n\r\n")
            body += await reader.read() if b"101 Switching" not in head else b""
    finally:
        writer.close()
    if not head:
        return 0, {}, b""
    first, *lines = head.decode("latin-1").split("\r\n")
    return (
        int(first.split()[1]),
        {name.lower(): value for name, _colon, value in (line.partition(": ") for line in lines)},
        body,
    )
