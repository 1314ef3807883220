"""The HTTP API: routes come in; one application with edge, authentication, problem responses and pages goes out.

The pages of hooks and runs need no token: they read their data from the API, with the token of their user. Lists share
their filters. A cursor names the last item of a page, and says nothing about the caller or the filters: the next
request states those again.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import AfterValidator, Field

from amplifier_hooks.clock import moment_of
from amplifier_hooks.events import canonical
from amplifier_hooks.server.edge.authentication import refuse_unknown_parameters
from amplifier_hooks.server.edge.host_check import Edge, HttpLimits
from amplifier_hooks.server.health import Health, HealthBody
from amplifier_hooks.server.problem_details import PROBLEM, Mistake, Problem, ProblemDetails, install_problem_handlers
from approval_backends.gateway.page_files import HEADERS, Assets

if TYPE_CHECKING:
    from amplifier_hooks.server.edge.authentication import CallerCheck
    from approval_backends.gateway.page_files import Asset


DESCRIPTION: Final = """Hooks as data, their execution log, and pending approvals.

Every request bears a token: `Authorization: Bearer …`. The token determines the tenant; data of another tenant does not
exist for it (404). Every error is a problem document (RFC 9457).
"""

PROBLEMS: Final = {
    400: "The body is not plain JSON, or the cursor is invalid.",
    401: "The token is missing, unknown, expired or revoked.",
    403: "The token does not have the scope, or the request comes from a page of another origin.",
    404: "The resource does not exist, or it belongs to another tenant.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A value in the request is invalid.",
    409: "The name is taken, the limit is reached, or another client was faster.",
    412: "The resource has changed since you read it.",
    428: "If-Match is missing.",
    429: "Too many requests.",
    508: "Hooks ask in a circle.",
    503: "The store or the record cannot be used; nothing was changed.",
}
"""Description of a problem, by its status."""

ANY: Final = (400, 401, 403, 408, 413, 415, 422, 429, 503)
"""Problems that any route may answer."""


def create_api(
    caller_check: CallerCheck, *routers: APIRouter, bounds: HttpLimits | None = None, health: Health | None = None
) -> FastAPI:
    """Return the application with these routes. Each route names the scope it needs by `require_scope`.

    `health` checks the parts that the application needs; by default it checks the store of the tokens.
    """
    health = health or Health({"store": caller_check.tokens.check_store})
    app = FastAPI(
        title="amplifier-hooks",
        version="1",
        description=DESCRIPTION,
        docs_url=None,  # FastAPI's page would load its parts from other servers
        redoc_url=None,
        redirect_slashes=False,
        responses={status: response_description(status) for status in ANY},
    )
    app.state.caller_check = caller_check
    install_problem_handlers(app)
    app.add_middleware(Edge, bounds=bounds or HttpLimits())

    @app.get(
        "/healthz",
        dependencies=[Depends(refuse_unknown_parameters)],
        summary="Health of the parts that gates need.",
        tags=["server"],
        responses={503: {"model": HealthBody, "description": "A part is down."}},
    )
    async def healthz(response: Response) -> HealthBody:
        found = await health.now()
        if found.status != "ok":
            response.status_code = 503
        return found

    for router in routers:
        app.include_router(router)
    app.openapi = lambda: _openapi_schema(app)  # type: ignore[method-assign]  # as FastAPI documents it
    return app


def response_description(status: int) -> dict[str, Any]:
    """Return the OpenAPI entry of a problem, for `responses=` of a route."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {"description": PROBLEMS.get(status, "A problem."), "content": {PROBLEM: {"schema": schema}}}


MISSING: Final[dict[int | str, dict[str, Any]]] = {404: response_description(404)}
TAKEN: Final[dict[int | str, dict[str, Any]]] = {409: response_description(409)}
STALE: Final = MISSING | {status: response_description(status) for status in (412, 428)}
"""Problems of a change to a resource that the caller has to have seen as it is: `responses=` of a route."""


def _openapi_schema(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's OpenAPI schema of the routes, with the schema of a problem."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        shapes = described.setdefault("components", {}).setdefault("schemas", {})
        for model in (ProblemDetails, Mistake):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schema.pop("$defs", None)
            shapes[model.__name__] = schema
        app.openapi_schema = described
    return app.openapi_schema


OURS: Final = "/pages/"
SHARED: Final = "/assets/"


def pages_router() -> APIRouter:
    """Return the routes of the pages: the page itself at `/`, and the files it loads."""
    router = APIRouter(include_in_schema=False)
    own, shared = Assets(files("amplifier_hooks.server").joinpath("web")), Assets()

    @router.get("/")
    async def index(request: Request) -> Response:
        return asset_response(own.find("/"), request)

    @router.get(OURS + "{name}")
    async def part(name: str, request: Request) -> Response:
        return asset_response(own.find(SHARED + name), request)

    @router.get(SHARED + "{name}")
    async def common(name: str, request: Request) -> Response:
        return asset_response(shared.find(SHARED + name), request)

    return router


def asset_response(asset: Asset | None, request: Request) -> Response:
    """Return a file, or 304 if the browser has its current version. Raises `Problem` 404 without a file."""
    if asset is None:
        raise Problem(404, "not_found", "there is no such file")
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers={**HEADERS, "ETag": asset.tag})
    content, headers = asset.content_for(request.headers.get("accept-encoding", ""))
    return Response(content, headers={**HEADERS, **headers})


LONGEST: Final = 512

Cursor = Annotated[
    str | None, Query(max_length=LONGEST, description="The `next` of the page before, with the same filters.")
]
Next = Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Items of a page, at most.")]


def _storable(text: str | None) -> str | None:
    """Return a text without NUL, which no store can hold; the one with an escape in its place is in none."""
    return None if text is None else text.replace("\x00", "\\x00")


TenantFilter = Annotated[
    str | None,
    AfterValidator(_storable),
    Query(max_length=100, description="Only items of this tenant; '' is the system. By default all you can see."),
]
EventFilter = Annotated[str | None, Query(min_length=1, max_length=100, description="Only items of this event.")]
NameFilter = Annotated[
    str | None, Query(min_length=1, max_length=300, description="Only items of the hook with this name.")
]


def cursor_of(at: int, name: str) -> str:
    """Return the cursor of a page that begins after an item, by its time in microseconds and its id."""
    return f"{at}.{quote(name, errors='replace')}"


def read_cursor(cursor: str | None) -> tuple[int, str] | None:
    """Return the time and the id in a cursor; None without one. Raises `Problem` 400 for an invalid cursor."""
    if cursor is None:
        return None
    at, _, quoted = cursor.partition(".")
    name = unquote(quoted)
    try:
        moment_of(int(at))
    except (ValueError, OverflowError):
        name = ""
    if not name or "\x00" in name:
        raise Problem(400, "bad_cursor", "the cursor is invalid; begin again without one")
    return int(at), name


def wanted_event(name: str | None) -> str | None:
    """Return the canonical name of an event in any spelling, as a store can hold it."""
    return None if name is None else _storable(canonical(name))
