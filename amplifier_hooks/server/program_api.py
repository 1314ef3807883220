"""The HTTP application for agent programs: questions of programs come in; exit status and output go out.

Over the Unix socket, file permissions decide which users may ask. Over TCP a program needs a token, and the Host header
has to name this machine, so that no page in a browser can ask in the user's name.
"""

from __future__ import annotations

import asyncio
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from attrs import define
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amplifier_hooks.definitions.kinds.event_codec import BLOCKED, HOPS_HEADER, LARGEST_PAYLOAD, ProgramExit, note_hops
from amplifier_hooks.errors import HookRefused, InvalidPayload
from amplifier_hooks.programs.guarded_processes import mark, program_behind
from amplifier_hooks.server.edge.host_check import foreign_header
from amplifier_hooks.server.problem_details import problem
from amplifier_hooks.storage.database import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from amplifier_hooks.programs.program_session import ProgramSessions


DELIVERY: Final = "webhook-id"
"""Header with the id of a question, as in Standard Webhooks; a program that repeats a question sends the same id."""

BRIDGE: Final = frozenset({"bridge"})
"""Host header of our bridge, over the Unix socket."""


def create_app(
    sessions: ProgramSessions, trouble: Callable[[], Awaitable[str | None]] | None = None, *, token: str | None = None
) -> ASGIApp:
    """Return the application. With a `token`, every request has to bear it; without one, the socket limits access.

    `trouble` returns the reason why the server denies all calls, or None.
    """

    async def healthz(_request: Request) -> Response:
        found = None if trouble is None else await trouble()
        if found:  # the server denies every call
            return JSONResponse({"status": "red", "problem": found}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def bridge(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_PAYLOAD:
                break
        try:
            if request.client is not None and not request.client.host:
                mark_program(request.client.port)
            note_hops(request.headers.get(HOPS_HEADER))
            delivery = request.headers.get(DELIVERY)
            leaving = asyncio.create_task(cancel_at_hang_up(request))
            try:
                return exit_response(await sessions.answer_once(request.path_params["program"], body, delivery))
            finally:
                leaving.cancel()
        except (InvalidPayload, HookRefused, StoreUnavailable) as error:
            return refusal_response(error, over_bridge=request.headers.get("host") == "bridge")

    routes = [Route("/healthz", healthz), Route("/v1/bridge/{program}", bridge, methods=["POST"])]
    return ProgramCheck(Starlette(routes=routes), token)


@define
class ProgramCheck:
    """ASGI middleware that admits programs of this machine, with the token if there is one.

    The application has no more layers than this one and two of Starlette: a program waits for it before every call.
    """

    app: ASGIApp
    token: str | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with a problem."""
        refused = self._refusal(scope) if scope["type"] == "http" else None
        await (refused or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if foreign_header(scope, BRIDGE) or headers.get("origin") is not None:
            return problem(403, "forbidden", "this server answers programs on this machine, not pages in a browser")
        given = headers.get("authorization", "")
        if self.token is not None and not compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return problem(401, "unauthorized", "send the token in the header Authorization: Bearer …")
        return None


def cancel_at_hang_up(request: Request) -> Coroutine[None, None, None]:
    """Cancel the calling task when the program hangs up, so that an open question is taken back."""
    answering = asyncio.current_task()

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if answering is not None:
            answering.cancel()

    return wait()


def mark_program(pid: int) -> None:
    """Mark the program that has started this bridge as guarded, so that none of its children decides for a person.

    Raises `StoreUnavailable` if the mark cannot be kept.
    """
    if (program := program_behind(pid)) is not None:
        mark(program)


def exit_response(ended: ProgramExit) -> Response:
    """Return a program's exit as a response: its body for programs that post, its parts for the bridge."""
    return Response(
        ended.output + ended.errors,
        media_type="application/json",
        headers={"x-exit-status": str(ended.code), "x-output-length": str(len(ended.output))},
    )


def refusal_response(error: InvalidPayload | HookRefused | StoreUnavailable, *, over_bridge: bool) -> Response:
    """Return the response to an invalid question, or to one that cannot be answered now.

    The bridge can only pass on a program's exit, so it receives the error as one.
    """
    if over_bridge:
        return exit_response(ProgramExit(code=BLOCKED, errors=f"amplifier-hooks: {error}".encode()))
    if isinstance(error, StoreUnavailable):
        return problem(503, "store_unavailable", str(error))
    if isinstance(error, HookRefused):
        return problem(508, "hooks_in_a_circle", str(error))
    return problem(400, "no_question", str(error))
