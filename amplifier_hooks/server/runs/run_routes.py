"""`/runs`, for clients that queue runs and read them, and `/runner/runs`, for runners.

A token's tenant owns the runs that the token submits, and limits the runs it can see. Tokens of the system (tenant
`""`) let runners claim runs of every tenant.

Server-sent events are numbered, so that a client can resume a broken stream. The stream sends a comment while nothing
happens, so that a dead connection is noticed.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from amplifier_hooks.clock import micros_of
from amplifier_hooks.runs.run_states import ENDED, Holder, RunStatus
from amplifier_hooks.server.api import MISSING, TAKEN, Cursor, cursor_of, read_cursor
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.runs.run_bodies import (
    ClaimedRun,
    Completion,
    NewRunBody,
    Renewal,
    RunBody,
    RunDetail,
    RunHold,
    RunPage,
    RunResultBody,
    StopBody,
    timeline,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from typing import Any

    from starlette.requests import Request

    from amplifier_hooks.runs.run_coordinator import RunCoordinator
    from amplifier_hooks.runs.run_store import RunStore


T = TypeVar("T")

EVENT_STREAM: Final = "text/event-stream"
QUIET: Final = 5.0
"""Seconds without an event after which the store is asked again, and a comment is sent."""
LONGEST_NUMBER: Final = 18
"""Digits of an event's number, at most."""
LONGEST_WAIT: Final = 60.0
MOST_EVENTS: Final = 2_000
"""Events of one run that are shown at once, at most; the stream has all of them."""

Reader = Annotated[Caller, Depends(require_scope("runs:read"))]
Creator = Annotated[Caller, Depends(require_scope("runs:create"))]
Runner = Annotated[Caller, Depends(require_scope("runs:claim"))]


def runs_router(runs: RunCoordinator) -> APIRouter:  # noqa: C901  # one function holds all routes of runs
    """Return the routes of runs over a coordinator."""
    router = APIRouter(tags=["runs"], responses=MISSING | TAKEN)

    @router.post("/runs", status_code=201, summary="Queue a run of an agent.")
    async def submit(caller: Creator, body: NewRunBody) -> RunBody:
        record = await runs.submit(
            body.agent_name,
            body.parameters,
            tenant=caller.tenant,
            parent=body.parent_run_id,
            session=body.session_id,
        )
        return RunBody.of(record)

    @router.get("/runs", summary="Runs, newest first.")
    async def list_runs(
        caller: Reader,
        *,
        has_hooks: Annotated[bool | None, Query(description="Only runs with hooks, or only those without.")] = None,
        hook_blocked: Annotated[
            bool | None, Query(description="Only runs that a hook stopped before they ran, or only the others.")
        ] = None,
        status: Annotated[RunStatus | None, Query(description="Only runs with this status.")] = None,
        agent_name: Annotated[str | None, Query(max_length=200)] = None,
        parent_run_id: Annotated[str | None, Query(max_length=200)] = None,
        session_id: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        cursor: Cursor = None,
    ) -> RunPage:
        found = await runs.store.select(
            limit + 1,
            before=read_cursor(cursor),
            tenant=caller.tenant_seen,
            hooked=has_hooks,
            blocked=hook_blocked,
            status=status,
            agent=agent_name,
            parent=parent_run_id,
            session=session_id,
        )
        last = found[limit - 1] if len(found) > limit else None
        following = cursor_of(micros_of(last.created), last.id) if last else None
        return RunPage(runs=[RunBody.of(record) for record in found[:limit]], next=following)

    @router.get("/runs/{run_id}", summary="One run: timeline, parameters, hooks, result and children.")
    async def show_run(caller: Reader, run_id: str) -> RunDetail:
        store, tenant = runs.store, caller.tenant_seen
        record = await runs.get(run_id, tenant=tenant)
        above = await store.select(1, id=record.parent, tenant=tenant) if record.parent else []
        below = await store.children(record.id, tenant=tenant)
        events = (await store.events(record.id))[:MOST_EVENTS]
        steps, blueprint = timeline(events), runs.agents.find(record.agent)
        return RunDetail.of(
            record,
            agent_type=blueprint.type if blueprint else None,
            parameters_as_run=dict(record.effective),
            block_reason=record.error if record.blocked else None,
            hooks=[step.hook for step in steps if step.hook is not None],
            timeline=steps,
            last_event=len(events),
            parent_run=RunBody.of(above[0]) if above else None,
            children=[RunBody.of(one) for one in below],
        )

    @router.get(
        "/runs/{run_id}/events",
        summary="The events of a run as they happen, as server-sent events; 204 when nothing can follow.",
        response_class=StreamingResponse,
    )
    async def follow_run(
        caller: Reader,
        run_id: str,
        last_event_id: Annotated[str | None, Header()] = None,
        after: Annotated[int, Query(ge=0, le=2**53, description="Begin after the event of this number.")] = 0,
    ) -> Response:
        tenant = caller.tenant_seen
        record = await runs.get(run_id, tenant=tenant)
        place = last_event(last_event_id) or after
        if record.stage in ENDED and not record.owes and place >= record.events:
            return Response(status_code=204)  # tells a browser not to come again
        return StreamingResponse(
            as_stream(runs.store, run_id, place),
            media_type=EVENT_STREAM,
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    @router.post("/runs/{run_id}/stop", summary="Stop a run, or tell its runner to.")
    async def stop(caller: Creator, run_id: str, body: StopBody | None = None) -> RunBody:
        reason = (body or StopBody()).reason
        return RunBody.of(await runs.stop(run_id, reason=reason, tenant=caller.tenant_seen))

    # -- runners -------------------------------------------------------------------------------------------------------

    @router.get(
        "/runner/runs",
        summary="Claim a run for this runner alone. 204 if there is none in time.",
        responses={204: {"description": "Nothing to do."}},
        response_model=ClaimedRun,
        tags=["runners"],
    )
    async def claim(
        request: Request,
        caller: Runner,
        runner: Annotated[str, Query(min_length=1, max_length=200)],
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a run.")] = 0.0,
        agents: Annotated[list[str] | None, Query(max_length=100, description="Only runs of these agents.")] = None,
    ) -> ClaimedRun | Response:
        names = None if agents is None else [name for name in agents if "\x00" not in name]
        record = await while_there(request, runs.claim(runner, tenant=tenant_served(caller), agents=names, wait=wait))
        if record is None:
            return Response(status_code=204)
        return ClaimedRun.of(record, runs.agents.find(record.agent), runs.runner_lease)

    @router.post("/runner/runs/{run_id}/renew", summary="Renew the lease of a run.", tags=["runners"])
    async def renew(caller: Runner, run_id: str, body: RunHold) -> Renewal:
        record = await runs.renew(run_id, holder(body), tenant=tenant_served(caller))
        return Renewal(stop=record.stopping, lease_seconds=runs.runner_lease)

    @router.post(
        "/runner/runs/{run_id}/result", summary="Post the result, before completing the run.", tags=["runners"]
    )
    async def result(caller: Runner, run_id: str, body: RunResultBody) -> Renewal:
        record = await runs.report(
            run_id, holder(body), text=body.result_text, data=body.result_data, tenant=tenant_served(caller)
        )
        return Renewal(stop=record.stopping, lease_seconds=runs.runner_lease)

    @router.post("/runner/runs/{run_id}/completed", summary="End a run. Idempotent.", tags=["runners"])
    async def complete_run(caller: Runner, run_id: str, body: Completion) -> RunBody:
        record = await runs.complete(run_id, holder(body), body.status, error=body.error, tenant=tenant_served(caller))
        return RunBody.of(record)

    return router


def tenant_served(caller: Caller) -> str | None:
    """Return the tenant whose runs a runner may claim; None is all tenants."""
    return caller.tenant or None


def holder(body: RunHold) -> Holder:
    """Return the runner and attempt that a body names."""
    return Holder(body.runner, body.attempt)


def last_event(given: str | None) -> int:
    """Return the number in `Last-Event-ID`, after which the stream begins; 0 for any other text."""
    return int(given) if given and given.isascii() and given.isdigit() and len(given) <= LONGEST_NUMBER else 0


async def as_stream(store: RunStore, run: str, after: int, quiet: float = QUIET) -> AsyncGenerator[str, None]:
    """Yield the text of a stream: the events after a number as they come, until none can follow.

    Events of a run that has ended may still come while its finish hooks run.
    """
    yield "retry: 1000\n\n"
    with store.watch(run) as watch:
        while True:
            record = await store.get(run)
            for number, event in enumerate(await store.events(run, after=after), start=after + 1):
                # ASCII JSON has no line breaks, whatever its strings contain.
                yield f"id: {number}\nevent: {event['event_type']}\ndata: {json.dumps(event)}\n\n"
                after = number
            if record.stage in ENDED and not record.owes:
                return
            if not await watch.wait(quiet):
                yield ": still here\n\n"


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of work; None if the client disconnects first, which cancels the work. Raises its errors."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    """Wait until the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
