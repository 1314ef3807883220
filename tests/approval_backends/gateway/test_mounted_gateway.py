"""The gateway below a path of another ASGI application, behind that application's sign-in."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from websockets.exceptions import InvalidStatus

from approval_backends import BackendUnavailable, Decider, MountedApprovals
from approval_backends.gateway.mounted_gateway import MountedGateway
from approval_backends.gateway.wire.frames import MAX_MESSAGE
from tests.gateways import Caller, asked, closed_with

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.rule("BCK-12")

MARA = Decider(name="Mara", channel="web")
KIM = Decider(name="Kim", channel="web", tenant="other", may_decide=False)


class Shop:
    """An application with sessions of its own, and the approvals mounted at /desk/approvals."""

    def __init__(self, **options: Any) -> None:
        self.sessions: dict[str, Any] = {"m": MARA, "k": KIM}
        self.approvals = MountedApprovals(self.sign_in, **options)
        self.app = Starlette(
            routes=[Mount("/desk", routes=[Mount("/approvals", self.approvals)])], lifespan=self.approvals.lifespan
        )
        self.port = 0

    def sign_in(self, scope: Any) -> Decider | None:
        """Return the approver of the application's cookie."""
        found = self.sessions.get(HTTPConnection(scope).cookies.get("session", ""))
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/desk/approvals/"

    def caller(self, session: str = "m", *, origin: str | None = "", host: str | None = None) -> Caller:
        """Return a client with the cookie of a session, as a page of this application opens it."""
        headers = {"Cookie": f"session={session}"} if session else {}
        own = f"http://127.0.0.1:{self.port}" if origin == "" else origin
        to: Any = SimpleNamespace(address=self.address if host is None else self.address.replace("127.0.0.1", host))
        return Caller(to, None, additional_headers=headers, origin=own)

    async def get(self, path: str = "", session: str = "", method: str = "GET", **headers: str) -> httpx2.Response:
        """Send a request below the mount."""
        more = {"Cookie": f"session={session}"} if session else {}
        async with httpx2.AsyncClient(trust_env=False) as client:
            return await client.request(method, self.address + path, headers={**more, **headers})


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """Serve an application on this machine; yield its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def shop(**options: Any) -> AsyncIterator[Shop]:
    """Open the shop."""
    one = Shop(**options)
    async with serving(one.app) as one.port:
        async with httpx2.AsyncClient(trust_env=False) as client:  # it answers once its lifespan has begun
            await client.get(one.address)
        yield one


async def test_deciding_below_a_path() -> None:
    """An approver whom the application signed in sees the question, and decides; a question comes from anywhere."""
    async with shop() as one, one.caller() as mara:
        assert (await mara.attach())["you"] == {"name": "Mara", "channel": "web", "mayDecide": True}
        question = asked()
        asking = asyncio.create_task(one.approvals.request(question))
        await mara.note("added")
        assert (await mara.decide(question, "allow"))["accepted"]
        decision = await asking
    assert (decision.by, decision.channel) == ("Mara", "web")


async def test_rights_of_the_sign_in() -> None:
    """The decider of the application bounds what a client sees and may do."""
    async with shop() as one, one.caller("k") as kim:
        request = asked()
        await one.approvals.broker.submit(request)
        attached = await kim.attach()
        assert (attached["you"]["mayDecide"], attached["queue"]) == (False, [])


@pytest.mark.parametrize("session", ["", "unknown", "broken", "wrong"])
async def test_no_sign_in(session: str) -> None:
    """Without an approver, after an error of the sign-in and for another value no page and no socket is served."""
    async with shop() as one:
        one.sessions |= {"broken": RuntimeError("no database"), "wrong": "Mara"}
        page = await one.get(session=session)
        assert (page.status_code, "Sign in" in page.text) == (401, True)
        async with one.caller(session) as stranger:
            assert await closed_with(stranger) == 4401
            assert not stranger.heard


async def test_page_and_parts() -> None:
    """The page and its parts have relative addresses and strict headers; the page is told to expect no token."""
    async with shop() as one:
        page = await one.get(session="m")
        assert page.status_code == 200
        assert '<meta name="sign-in" content="host">' in page.text
        assert not [part for part in page.text.split('"') if part.startswith(("/assets", "http"))]
        assert page.headers["x-frame-options"] == "DENY"
        script = await one.get("assets/page.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert (await one.get("assets/page.js", **{"If-None-Match": script.headers["etag"]})).status_code == 304
        assert (await one.get("assets/../acp")).status_code == 404
        assert (await one.get("nothing", session="m")).status_code == 404
        assert (await one.get(session="m", method="POST")).status_code == 405
        head = await one.get(session="m", method="HEAD")
        assert (head.status_code, head.content) == (200, b"")


async def test_missing_slash() -> None:
    """The mount's own path without its slash leads to the page, whatever the framework hands over."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    gateway = MountedApprovals(lambda _scope: MARA, names=["shop.example"])
    scope = {"type": "http", "method": "GET", "root_path": "/desk", "path": "/desk"}
    await gateway(scope | {"headers": [(b"host", b"shop.example")]}, send, send)  # type: ignore[arg-type]
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"location"]) == (308, b"/desk/")


@pytest.mark.rule("BCK-2", "WIR-1")
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1"])
async def test_foreign_origin(origin: str) -> None:
    """A page of another site gets neither page nor socket, although its browser sends the application's cookie."""
    async with shop() as one:
        assert (await one.get(session="m", Origin=origin)).status_code == 403
        with pytest.raises(InvalidStatus) as refused:
            await one.caller(origin=origin).__aenter__()
        assert refused.value.response.status_code == 403


async def test_foreign_host() -> None:
    """A name that is not the application's is refused, for page and socket; its own names are known."""
    async with shop(names=["Shop.example:8443"]) as one:
        assert (await one.get(session="m")).status_code == 421
        assert (await one.get(session="m", Host="shop.example:8443")).status_code == 200
        with pytest.raises(InvalidStatus):
            await one.caller().__aenter__()


async def test_insecure_origin() -> None:
    """Behind TLS the Origin has to be secure, too: another host on the network could send the other one."""
    gateway = MountedGateway(MountedApprovals(lambda _scope: MARA).broker, lambda _scope: MARA, names=["shop.example"])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message.get("status"))

    for scheme, origin in (("https", b"http://shop.example"), ("https", b"https://shop.example")):
        headers = [(b"host", b"shop.example"), (b"origin", origin)]
        scope = {"type": "http", "method": "GET", "path": "/", "scheme": scheme, "headers": headers}
        await gateway(scope, send, send)  # type: ignore[arg-type]
    assert [status for status in sent if status] == [403, 200]


@pytest.mark.parametrize("after", [None, KIM, RuntimeError("gone")])
async def test_signed_out_later(after: Any) -> None:
    """A connection ends soon after its approver is signed out, or is another one."""
    async with shop(sign_in_again=0.01) as one, one.caller() as mara:
        await mara.attach()
        one.sessions["m"] = after
        assert await closed_with(mara) == 4401


async def test_no_token_counts() -> None:
    """A mounted gateway knows no tokens: a client that sends one is turned away."""
    async with shop() as one, one.caller() as mara:
        await mara.greet()
        meta = {"amplifier-hooks": {"token": "t" * 43}}
        assert (await mara.ask("authenticate", methodId="token", _meta=meta))["error"]["code"] == -32000
        assert await closed_with(mara) == 4401


async def test_large_message() -> None:
    """A message that is too large ends the connection."""
    async with shop() as one, one.caller() as mara:
        await mara.attach()
        await mara.connection.send(json.dumps("x" * MAX_MESSAGE))
        assert await closed_with(mara) == 1009


async def test_end_of_the_application() -> None:
    """Clients are told to come again when the application ends; a question that is being asked is withdrawn."""
    async with shop() as one:
        mara = one.caller()
        async with mara:
            await mara.attach()
            await one.approvals.close()
            assert await closed_with(mara) == 1012
            with pytest.raises(BackendUnavailable, match="MountedApprovals"):
                await one.approvals.request(asked())
        with pytest.raises(InvalidStatus):
            await one.caller().__aenter__()


async def test_without_lifespan() -> None:
    """Mounted without its lifespan, it serves no socket, and a question is refused."""
    approvals = MountedApprovals(lambda _scope: MARA)
    async with serving(Starlette(routes=[Mount("/a", approvals)])) as port:
        to: Any = SimpleNamespace(address=f"http://127.0.0.1:{port}/a/")
        with pytest.raises(InvalidStatus):
            await Caller(to, None).__aenter__()
    with pytest.raises(BackendUnavailable, match="not open"):
        await approvals.request(asked())


async def test_lifespan_of_its_own() -> None:
    """A server that has nothing but the approvals opens and closes them itself."""
    approvals = MountedApprovals(lambda _scope: MARA)
    async with serving(approvals) as port:
        to: Any = SimpleNamespace(address=f"http://127.0.0.1:{port}/")
        async with Caller(to, None) as mara:
            assert (await mara.attach())["you"]["name"] == "Mara"


@pytest.mark.parametrize("sign_in", [None, "Mara", MARA])
def test_sign_in_is_required(sign_in: Any) -> None:
    """Without a function that signs in there is no gateway."""
    with pytest.raises(TypeError, match="Decider"):
        MountedApprovals(sign_in)


async def test_async_sign_in() -> None:
    """The sign-in may be async."""

    async def who(_scope: Any) -> Decider:
        await asyncio.sleep(0)
        return MARA

    async with serving(MountedApprovals(who)) as port:
        to: Any = SimpleNamespace(address=f"http://127.0.0.1:{port}/")
        async with Caller(to, None) as mara:
            assert (await mara.attach())["you"]["name"] == "Mara"
