"""The approval page inside a FastAPI application: its port, its lifespan, its sign-in. Starlette does the same.

Try it in a terminal: sign in at the address that it prints, then press the button. Without a terminal a program signs
in as Mara and decides over the same socket. The output below is of that case.

Run it, with the extra server: python examples/mount_in_fastapi.py

Prints:
    Before the sign-in the page answers 401
    Mara sees: Use Deploy
    deployed, allowed by Mara
"""

import asyncio
import secrets
import socket
import sys
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qs

import httpx2
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.requests import HTTPConnection

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import ApprovalsClient, Decider, MountedApprovals

registry = HookRegistry()
SIGNED_IN: dict[str, str] = {}
"""The application's own sessions: a name for each secret."""

HOME = """<!doctype html><title>Shop</title><link rel="icon" href="data:,">
<form method="post" action="/sign-in"><label>Name <input name="name"></label><button>Sign in</button></form>
<form method="post" action="/deploy"><button>Deploy</button></form>
<a href="/approvals/">Approvals</a>"""


@registry.gate("tool:pre", match="Deploy")
async def ask_first(_event: str, _data: Any) -> HookResult:
    """Ask before each deployment."""
    return HookResult.ask("Deploy the shop?", options=["Allow once", "Deny"], timeout=60)


def user_of(connection: HTTPConnection) -> str | None:
    """Return the name of a signed-in user, by the application's cookie, or by the same secret in a header."""
    bearer = connection.headers.get("authorization", "").removeprefix("Bearer ")
    return SIGNED_IN.get(connection.cookies.get("session") or bearer)


def approver_of(scope: MutableMapping[str, Any]) -> Decider | None:
    """Tell the approvals who sent a request: everybody who is signed in may look, and Mara decides."""
    name = user_of(HTTPConnection(scope))
    return None if name is None else Decider(name=name, channel="web", may_decide=name == "Mara")


def create_app() -> FastAPI:
    """Return the application."""
    approvals = MountedApprovals(approver_of)
    app = FastAPI(lifespan=approvals.lifespan)
    app.mount("/approvals", approvals)

    @app.get("/")
    async def home() -> HTMLResponse:
        return HTMLResponse(HOME)

    @app.post("/sign-in")
    async def sign_in(request: Request) -> RedirectResponse:
        form = parse_qs((await request.body()).decode())
        secret = secrets.token_urlsafe()
        SIGNED_IN[secret] = form["name"][0]  # your application asks for a password first
        response = RedirectResponse("/", 303)
        response.set_cookie("session", secret, httponly=True, samesite="strict")
        return response

    @app.post("/deploy")
    async def deploy() -> dict[str, str]:
        async with SessionCoordinator(hooks=registry, approvals=approvals) as session:
            result = await session.call_tool("Deploy", {"what": "shop"}, lambda _: "deployed")
        if result.denied:
            raise HTTPException(403, result.reason)
        return {"shop": str(result.value)}

    return app


async def decide(address: str) -> None:
    """Do as a program what Mara does at the page: sign in, wait for the card, allow it."""
    SIGNED_IN["a-secret-of-the-application"] = "Mara"
    mara = ApprovalsClient(f"{address}/approvals", "a-secret-of-the-application")
    async with mara, httpx2.AsyncClient(base_url=address) as browser:
        page = await browser.get("/approvals/")
        print(f"Before the sign-in the page answers {page.status_code}")
        deploying = asyncio.create_task(browser.post("/deploy"))
        async for _news in mara.news():
            if mara.queue:
                break
        (row,) = mara.queue
        print(f"Mara sees: {row.verb} {row.what}")
        decided = await mara.decide(row, (await mara.show(row.request_id)).options[0].option_id)
        done = (await deploying).json()
        print(f"{done['shop']}, allowed by {decided.ending.by if decided.ending else None}")


async def main() -> None:
    """Serve the application."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    if sys.stdin.isatty():
        print(f"Open {address}")
    else:
        await decide(address)
        server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
