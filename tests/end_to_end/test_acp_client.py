"""The client of `agent-client-protocol`, as it comes from the registry, answers requests of a gateway."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import WebSocketApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.postgres import PostgresStore
from tests.gateways import MARA, SOON, asked, gateway, served
from tests.stores import schema, server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

    from approval_backends.gateway.gateway import Gateway

pytestmark = [pytest.mark.agents, pytest.mark.rule("BCK-2", "WIR-7")]


class Person:
    """A client that answers with the first option of a kind, or not at all."""

    def __init__(self, kind: str | None = "allow_once") -> None:
        self.kind = kind
        self.asked: asyncio.Queue[tuple[str, ToolCallUpdate, dict[str, Any]]] = asyncio.Queue()
        self.told: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.thought = asyncio.Event()
        self.thought.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **meta: Any
    ) -> RequestPermissionResponse:
        """Answer with the option of the wanted kind."""
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        self.asked.put_nowait((session_id, tool_call, meta))
        await self.thought.wait()
        if self.kind is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = next(option for option in options if option.kind == self.kind)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Keep a notification that is outside the protocol."""
        self.told.put_nowait((method, params))


@asynccontextmanager
async def connected(to: Gateway, person: Person) -> AsyncIterator[Any]:
    """Yield the client, connected and initialized."""
    import acp
    from acp.ws import create_websocket_stream

    address = to.address.replace("http", "ws") + "acp"
    stream = await create_websocket_stream(address, headers={"Authorization": f"Bearer {MARA.token}"})
    async with acp.connect_to_agent(person, stream) as agent:
        assert (await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)).agent_capabilities.load_session
        yield agent


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic stays on loopback."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_a_call_waits_for_it() -> None:
    """A session's tool call that a hook asks about runs once the client has allowed it."""
    registry = HookRegistry()

    @registry.gate("tool:pre")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Write it?", options=["Allow once", "Deny"])

    async def write(arguments: Any) -> str:
        return f"wrote {arguments['file_path']}"

    person = Person()
    async with WebSocketApprovals(approvers=[MARA]) as web, connected(web.gateway, person):
        async with SessionCoordinator(hooks=registry, approvals=web) as session, session.turn("go"):
            done = await session.call_tool("Write", {"file_path": "a.py"}, write)
            assert (done.ok, done.value) == (True, "wrote a.py")
            person.kind = "reject_once"
            assert (await session.call_tool("Write", {"file_path": "b.py"}, write)).denied
        _session, call, meta = person.asked.get_nowait()
    assert call.raw_input == {"file_path": "a.py"}
    assert (call.kind, meta["amplifier-hooks"]["risk"]) == ("other", "medium")


async def test_pending_requests_are_put_on_connecting() -> None:
    """A new client is asked all pending questions; sessions can be listed and loaded, and then ask once more."""
    from acp.exceptions import RequestError

    person = Person(kind=None)
    async with gateway() as one:
        first, second = asked(1, session="a"), asked(2, session="b")
        for request in (first, second):
            await served(one).submit(request)
        async with connected(one, person) as agent, asyncio.timeout(SOON):
            assert {(await person.asked.get())[1].tool_call_id for _ in range(2)} == {first.id, second.id}
            assert {found.session_id for found in (await agent.list_sessions()).sessions} == {"a", "b"}
            person.kind = "reject_once"
            await agent.resume_session(session_id="a", cwd="/")
            assert (await served(one).wait(first.id)).status == "denied"
            await agent.load_session(session_id="b", cwd="/")
            assert (await served(one).wait(second.id)).status == "denied"
            with pytest.raises(RequestError, match="Resource not found"):
                await agent.load_session(session_id="none", cwd="/")
            with pytest.raises(RequestError, match="approval gateway"):
                await agent.new_session(cwd="/")


@pytest.mark.rule("APR-4", "APR-6")
@pytest.mark.parametrize("ended", ["expired", "cancelled", "denied"])
async def test_what_ended_without_it(ended: str) -> None:
    """A client learns how a request ended without it, and its late answer is harmless and gets a reason."""
    person = Person()
    person.thought.clear()
    async with gateway() as one, connected(one, person), asyncio.timeout(SOON):
        request = asked(lifetime=0.1 if ended == "expired" else 60)
        await served(one).submit(request)
        await person.asked.get()
        if ended == "cancelled":
            await served(one).withdraw(request.id, "the turn ended")
        if ended == "denied":
            await served(one).decide(request.id, request.digest, "deny", Decider(name="Jun", channel="cli"))
        method, told = await person.told.get()
        assert (method, told["ending"]["status"]) == ("amplifier-hooks/resolved", ended)
        person.thought.set()
        method, refused = await person.told.get()
        assert (method, refused["accepted"]) == ("amplifier-hooks/refused", False)
        codes = {"expired": "expired", "cancelled": "withdrawn", "denied": "already_resolved"}
        assert refused["refusal"]["code"] == codes[ended]
        assert refused["ending"] == told["ending"]


@pytest.mark.postgres
@pytest.mark.rule("APR-6", "BCK-8")
async def test_two_clients_on_two_gateways_race() -> None:
    """On one PostgreSQL store, of two clients on two gateways exactly one wins each request; nothing is lost."""
    dsn = await server()
    chance = random.Random(7)
    yes, no = Person("allow_once"), Person("reject_once")
    rounds = 50
    async with (
        schema() as name,
        PostgresStore(dsn, schema=name) as asking,
        PostgresStore(dsn, schema=name) as left,
        PostgresStore(dsn, schema=name) as right,
        gateway(Broker(left)) as one,
        gateway(Broker(right)) as other,
        connected(one, yes),
        connected(other, no),
        asyncio.timeout(60),
    ):
        asker = Broker(asking)
        requests = [asked(number, session=f"s{chance.randrange(8)}") for number in range(rounds)]
        records = await asyncio.gather(*(asker.ask(request) for request in requests))
        decided = {record.id: record for record in records}
        assert set(decided) == {request.id for request in requests}
        statuses = [record.status for record in records]
        assert statuses.count("approved") + statuses.count("denied") == rounds
        for request in requests:
            kinds = [event.kind for event in await asking.events(request.id)]
            assert [kind for kind in kinds if kind in ("approve", "deny")] == [
                "approve" if decided[request.id].status == "approved" else "deny"
            ]
        claims = [await asker.claim(record.id, record.digest) for record in records if record.status == "approved"]
        assert all(isinstance(claim, RequestRecord) for claim in claims)
