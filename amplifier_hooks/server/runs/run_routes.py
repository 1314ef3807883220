"""`/runs`, for clients that queue runs and read them, and `/runner/runs`, for runners.

A token's tenant owns the runs that the token submits, and limits the runs it can see. Tokens of the system (tenant
`""`) let runners claim runs of every tenant.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from amplifier_hooks.clock import micros_of, moment_of
from amplifier_hooks.runs.run_errors import (
    AgentsTooDeep,
    ParametersRefused,
    ResultRefused,
    RunMoved,
    RunRefused,
    UnknownAgent,
    UnknownRun,
    UnknownSession,
)
from amplifier_hooks.runs.run_states import ENDED, Holder, RunStatus
from amplifier_hooks.server.api import response_description
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.server.runs.event_stream import EVENT_STREAM, as_stream, last_event, while_there
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
)

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import datetime
    from typing import TypeVar

    from amplifier_hooks.runs.run_coordinator import RunCoordinator
    from amplifier_hooks.runs.run_states import RunRecord

    T = TypeVar("T")


LONGEST_WAIT: Final = 60.0
MOST_EVENTS: Final = 2_000
"""Events of one run that are shown at once, at most; the stream has all of them."""
LONGEST_CURSOR: Final = 16
"""Digits of a time in microseconds."""

Reader = Annotated[Caller, Depends(require_scope("runs:read"))]
Creator = Annotated[Caller, Depends(require_scope("runs:create"))]
Runner = Annotated[Caller, Depends(require_scope("runs:claim"))]

REFUSALS: Final[dict[type[RunRefused], tuple[int, str]]] = {
    UnknownRun: (404, "unknown_run"),
    UnknownAgent: (422, "unknown_agent"),
    UnknownSession: (422, "unknown_session"),
    ParametersRefused: (422, "parameters_refused"),
    ResultRefused: (422, "result_refused"),
    AgentsTooDeep: (409, "agents_too_deep"),
    RunMoved: (409, "run_moved"),
}


async def answer_or_problem(work: Awaitable[T]) -> T:
    """Return the result of the coordinator's work; raise its refusals as `Problem`."""
    try:
        return await work
    except RunRefused as refusal:
        status, code = REFUSALS.get(type(refusal), (409, "refused"))
        if isinstance(refusal, RunMoved):
            raise Problem(status, code, str(refusal), run_status=refusal.status) from None
        raise Problem(status, code, str(refusal)) from None


def runs_router(runs: RunCoordinator) -> APIRouter:  # noqa: C901  # one function holds all routes of runs
    """Return the routes of runs over a coordinator."""
    router = APIRouter(tags=["runs"], responses={404: response_description(404), 409: response_description(409)})

    @router.post("/runs", status_code=201, summary="Queue a run of an agent.")
    async def submit(caller: Creator, body: NewRunBody) -> RunBody:
        record = await answer_or_problem(
            runs.submit(
                body.agent_name,
                body.parameters,
                tenant=caller.tenant,
                parent=body.parent_run_id,
                session=body.session_id,
            )
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
        cursor: Annotated[str | None, Query(max_length=200, description="The `next` of the page before.")] = None,
    ) -> RunPage:
        found = await runs.store.select(
            limit + 1,
            before=None if cursor is None else read_cursor(cursor),
            tenant=tenant_seen(caller),
            hooked=has_hooks,
            blocked=hook_blocked,
            status=status,
            agent=agent_name,
            parent=parent_run_id,
            session=session_id,
        )
        more = cursor_after(found[limit - 1]) if len(found) > limit else None
        return RunPage(runs=[RunBody.of(record) for record in found[:limit]], next=more)

    @router.get("/runs/{run_id}", summary="One run: timeline, parameters, hooks, result and children.")
    async def show_run(caller: Reader, run_id: str) -> RunDetail:
        tenant = tenant_seen(caller)
        record = await answer_or_problem(runs.get(run_id, tenant=tenant))
        parent: RunRecord | None = None
        if record.parent is not None:
            with suppress(UnknownRun):
                parent = await runs.get(record.parent, tenant=tenant)
        return RunDetail.whole(
            record,
            events=await runs.store.events(record.id, limit=MOST_EVENTS),
            blueprint=runs.agents.find(record.agent),
            parent=parent,
            children=[one for one in await runs.store.children(record.id) if tenant in (None, one.tenant)],
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
        tenant = tenant_seen(caller)
        record = await answer_or_problem(runs.get(run_id, tenant=tenant))
        place = last_event(last_event_id) or after
        if record.stage in ENDED and not record.owes and place >= record.events:
            return Response(status_code=204)  # tells a browser not to come again
        return StreamingResponse(
            as_stream(runs.follow(run_id, after=place, tenant=tenant)),
            media_type=EVENT_STREAM,
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    @router.post("/runs/{run_id}/stop", summary="Stop a run, or tell its runner to.")
    async def stop(caller: Creator, run_id: str, body: StopBody | None = None) -> RunBody:
        reason = (body or StopBody()).reason
        return RunBody.of(await answer_or_problem(runs.stop(run_id, reason=reason, tenant=tenant_seen(caller))))

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
        record = await while_there(
            request, runs.claim(runner, tenant=tenant_served(caller), agents=names, wait=wait), runs.hand_back
        )
        if record is None:
            return Response(status_code=204)
        return ClaimedRun.of(record, runs.agents.find(record.agent), runs.leases.runner)

    @router.post("/runner/runs/{run_id}/renew", summary="Renew the lease of a run.", tags=["runners"])
    async def renew(caller: Runner, run_id: str, body: RunHold) -> Renewal:
        record = await answer_or_problem(runs.renew(run_id, holder(body), tenant=tenant_served(caller)))
        return Renewal(stop=record.stopping, lease_seconds=runs.leases.runner)

    @router.post(
        "/runner/runs/{run_id}/result", summary="Post the result, before completing the run.", tags=["runners"]
    )
    async def result(caller: Runner, run_id: str, body: RunResultBody) -> Renewal:
        record = await answer_or_problem(
            runs.report(
                run_id, holder(body), text=body.result_text, data=body.result_data, tenant=tenant_served(caller)
            )
        )
        return Renewal(stop=record.stopping, lease_seconds=runs.leases.runner)

    @router.post("/runner/runs/{run_id}/completed", summary="End a run. Idempotent.", tags=["runners"])
    async def complete_run(caller: Runner, run_id: str, body: Completion) -> RunBody:
        record = await answer_or_problem(
            runs.complete(run_id, holder(body), body.status, error=body.error, tenant=tenant_served(caller))
        )
        return RunBody.of(record)

    return router


def tenant_seen(caller: Caller) -> str | None:
    """Return the tenant whose runs a caller can see; None is all tenants."""
    return None if caller.everywhere else caller.tenant


def tenant_served(caller: Caller) -> str | None:
    """Return the tenant whose runs a runner may claim; None is all tenants."""
    return caller.tenant or None


def holder(body: RunHold) -> Holder:
    """Return the runner and attempt that a body names."""
    return Holder(body.runner, body.attempt)


def cursor_after(record: RunRecord) -> str:
    """Return the cursor of the page after a run."""
    return f"{micros_of(record.created)}.{record.id}"


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the time and id in a cursor. Raises `Problem` for an invalid cursor."""
    at, _, run = cursor.partition(".")
    if not at.isascii() or not at.isdigit() or len(at) > LONGEST_CURSOR or not run.isascii() or not run.isprintable():
        raise Problem(400, "bad_cursor", "the cursor is invalid; begin again without one")
    return moment_of(int(at)), run
