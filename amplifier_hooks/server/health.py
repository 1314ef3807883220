"""`/healthz`, the state of the parts that gates need, and `/metrics`, figures for Prometheus.

`/healthz` needs no token, so it names the parts that are down, but no reasons. It repeats a result for a moment, so
clients without a token cannot keep the store busy. `/metrics` shows no tenant, no name and no path of a caller.
"""

from __future__ import annotations

import asyncio
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Annotated, Final, Literal

from attrs import define, field
from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, Field

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.logs import get_logger
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


State = Literal["ok", "down"]

FRESH: Final = 1.0
"""Seconds for which a result is repeated."""
CHECK_TIMEOUT: Final = 5.0
"""Seconds after which a part that does not answer is down."""

log = get_logger(__name__)


class HealthBody(BaseModel):
    """Health of the server, as a whole and by its parts."""

    status: State
    parts: dict[str, State]
    stopped: bool = Field(description="True while a stop of acts is in force.")


@define(eq=False)
class Health:
    """Health check of a server. Each function in `parts` raises, with the reason, while its part is down."""

    parts: Mapping[str, Callable[[], Awaitable[object]]]
    stopped: Callable[[], Awaitable[bool]] | None = None
    fresh: float = FRESH
    timeout: float = CHECK_TIMEOUT
    clock: Callable[[], float] = monotonic
    _found: HealthBody | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)
    _looking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def now(self) -> HealthBody:
        """Check the parts, or return a result that is at most `fresh` seconds old. Cancelling is harmless."""
        async with self._looking:
            if self._found is None or self.clock() >= self._at + self.fresh:
                states = await asyncio.gather(*(self._state(name) for name in self.parts))
                whole: State = "down" if "down" in states else "ok"
                stopped = self.stopped is not None and await self.stopped()
                parts = dict(zip(self.parts, states, strict=True))
                self._found = HealthBody(status=whole, parts=parts, stopped=stopped)
                self._at = self.clock()
            return self._found

    async def _state(self, name: str) -> State:
        before = "ok" if self._found is None else self._found.parts[name]
        try:
            async with asyncio.timeout(self.timeout):
                await self.parts[name]()
        except Exception as problem:  # noqa: BLE001  # any error means that the part cannot be used
            if before == "ok":
                log.error("part_down", part=name, error=describe(problem))  # noqa: TRY400  # its message is enough
            return "down"
        if before == "down":
            log.warning("part_up", part=name)
        return "ok"


Reading = Annotated[Caller, Depends(require_scope("hooks:read"))]

UNKNOWN: Final = "none"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@define(eq=False)
class Meter:
    """Metrics of the server: counted requests, and gauges that are read at each scrape."""

    registry: CollectorRegistry = field(factory=CollectorRegistry)
    requests: Counter = field(init=False)
    seconds: Histogram = field(init=False)

    def __attrs_post_init__(self) -> None:
        labels = ("method", "route")
        name = "amplifier_hooks_http_requests"
        self.requests = Counter(name, "Requests answered.", (*labels, "status"), registry=self.registry)
        name = "amplifier_hooks_http_request_seconds"
        self.seconds = Histogram(name, "Duration of requests in seconds.", labels, registry=self.registry)

    def gauge(self, name: str, means: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value `read` returns at each scrape."""
        Gauge(f"amplifier_hooks_{name}", means, registry=self.registry).set_function(read)


@define
class MeasuringMiddleware:
    """ASGI middleware that counts requests by route and status."""

    app: ASGIApp
    meter: Meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and count the request with its status and duration."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = perf_counter()
        try:
            await self.app(scope, receive, note_status)
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN)
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            self.meter.requests.labels(method, route, str(status)).inc()
            self.meter.seconds.labels(method, route).observe(perf_counter() - began)


def metrics_router(meter: Meter) -> APIRouter:
    """Return the route of metrics. It is for the system: a tenant's token gets 403."""
    router = APIRouter(tags=["server"])

    @router.get(
        "/metrics",
        summary="For Prometheus.",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics(caller: Reading) -> Response:
        if caller.tenant:
            raise Problem(403, "refused", "metrics are for the system; use a token without a tenant")
        return Response(generate_latest(meter.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
