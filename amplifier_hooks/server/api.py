"""The HTTP API as one application: its edge, its callers, its problems, and the routes it is given.

The pages of hooks and runs. They are no secret: what they show they ask of the API, with the token of the reader.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from amplifier_hooks.server.edge.host_check import Edge, HttpLimits
from amplifier_hooks.server.health import Health, HealthBody
from amplifier_hooks.server.problem_details import PROBLEM, Mistake, Problem, ProblemDetails, install_problem_handlers
from approval_backends.gateway.page_files import HEADERS, Assets

if TYPE_CHECKING:
    from amplifier_hooks.server.edge.authentication import Admission
    from approval_backends.gateway.page_files import Asset


DESCRIPTION: Final = """Hooks as data, what they did, and what waits for an answer.

Every request bears a token: `Authorization: Bearer …`. The token says for which tenant it is; what belongs to another
tenant is not there (404). Every error is a problem as RFC 9457 has it.
"""

PROBLEMS: Final = {
    400: "The body is no plain JSON, or the cursor is none.",
    401: "There is no token, or none that is in force.",
    403: "The token does not have the scope, or the request comes from a page of another origin.",
    404: "It is not there, or it is another tenant's.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "Something in the request is not what it has to be.",
    409: "A name that is taken, no more room, or somebody was faster.",
    412: "It has changed since you saw it.",
    428: "If-Match is missing.",
    429: "Too many requests.",
    508: "Hooks ask in a circle.",
    503: "The store or the record cannot be used; nothing was changed.",
}
"""What a problem means, by its status."""

ANY: Final = (400, 401, 403, 408, 413, 415, 422, 429, 503)
"""What any route may answer."""


def create_api(
    admission: Admission, *routers: APIRouter, bounds: HttpLimits | None = None, health: Health | None = None
) -> FastAPI:
    """The application with these routes. Each of them names who may use it by `admitted`.

    `health` looks after the parts it stands on; by default that is the store of the tokens.
    """
    health = health or Health({"store": admission.tokens.check_store})
    app = FastAPI(
        title="amplifier-hooks",
        version="1",
        description=DESCRIPTION,
        docs_url=None,  # the page that would be served there loads its parts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses={status: response_description(status) for status in ANY},
    )
    app.state.admission = admission
    install_problem_handlers(app)
    app.add_middleware(Edge, bounds=bounds or HttpLimits())

    @app.get(
        "/healthz",
        summary="Whether everything that gates need is there.",
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
    app.openapi = lambda: _openapi_schema(app)  # type: ignore[method-assign]  # how FastAPI says this is done
    return app


def response_description(status: int) -> dict[str, Any]:
    """How the description speaks of a problem, for `responses=` of a route."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {"description": PROBLEMS.get(status, "A problem."), "content": {PROBLEM: {"schema": schema}}}


def _openapi_schema(app: FastAPI) -> dict[str, Any]:
    """What FastAPI says of its routes, and the shape of a problem."""
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
    """The routes of the pages: the page itself at `/`, and what it loads."""
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
    """One file, or that it has not changed since the browser had it."""
    if asset is None:
        raise Problem(404, "not_found", "there is no such file")
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers={**HEADERS, "ETag": asset.tag})
    content, headers = asset.content_for(request.headers.get("accept-encoding", ""))
    return Response(content, headers={**HEADERS, **headers})
