"""The pages of hooks and runs. They are no secret: what they show they ask of the API, with the token of the reader."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request, Response

from amplifier_hooks.server.problem_details import Problem
from approval_backends.gateway.page_files import HEADERS, Assets

if TYPE_CHECKING:
    from approval_backends.gateway.page_files import Asset


OURS: Final = "/pages/"
SHARED: Final = "/assets/"


def pages() -> APIRouter:
    """The routes of the pages: the page itself at `/`, and what it loads."""
    router = APIRouter(include_in_schema=False)
    own, shared = Assets(files("amplifier_hooks.server").joinpath("web")), Assets()

    @router.get("/")
    async def index(request: Request) -> Response:
        return sent(own.find("/"), request)

    @router.get(OURS + "{name}")
    async def part(name: str, request: Request) -> Response:
        return sent(own.find(SHARED + name), request)

    @router.get(SHARED + "{name}")
    async def common(name: str, request: Request) -> Response:
        return sent(shared.find(SHARED + name), request)

    return router


def sent(asset: Asset | None, request: Request) -> Response:
    """One file, or that it has not changed since the browser had it."""
    if asset is None:
        raise Problem(404, "not_found", "there is no such file")
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers={**HEADERS, "ETag": asset.tag})
    content, headers = asset.sent(request.headers.get("accept-encoding", ""))
    return Response(content, headers={**HEADERS, **headers})
