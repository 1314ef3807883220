"""`/v1/hooks/logs` and `/v1/hooks/stats`: what hooks did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, Query

from amplifier_hooks.definitions.execution_log import HookExecutionLog, LogPlace
from amplifier_hooks.server.api import documented
from amplifier_hooks.server.edge.authentication import Caller, admitted
from amplifier_hooks.server.hooks.change_hooks import whose_list
from amplifier_hooks.server.hooks.hook_bodies import LogPage, StatisticsBody
from amplifier_hooks.server.pagination import (
    Cursor,
    EventFilter,
    Limit,
    NameFilter,
    TenantFilter,
    cursor_of,
    place_in,
    storable,
    wanted_event,
)
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from amplifier_hooks.definitions.execution_log import ExecutionStore


Reading = Annotated[Caller, Depends(admitted("hooks:read"))]

LOG_ID: Final = re.compile(r"log_[0-9a-f]{24}")
MISSING: Final[dict[int | str, dict[str, Any]]] = {404: documented(404)}


def executions_router(executions: ExecutionStore) -> APIRouter:
    """The routes. They come before those that take an id in the same place."""
    router = APIRouter(prefix="/v1/hooks", tags=["logs"])

    @router.get("/logs", summary="What hooks did, newest first.", responses=MISSING)
    async def logs(
        caller: Reading,
        *,
        tenant: TenantFilter = None,
        event: EventFilter = None,
        hook: NameFilter = None,
        aborted: Annotated[bool | None, Query(description="Only what was stopped, or what was not.")] = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> LogPage:
        whose = whose_list(caller, tenant)
        filters = ["logs", tenant, event, hook, aborted]
        after = LogPlace(*place_in(cursor, caller.tenant, filters)) if cursor else None
        found = await executions.find(
            tenant=whose,
            event=wanted_event(event),
            hook=storable(hook),
            aborted=aborted,
            after=after,
            limit=limit + 1,
        )
        last = LogPlace.of(found[limit - 1]) if len(found) > limit else None
        following = cursor_of(caller.tenant, filters, last.at, last.log_id) if last else None
        return LogPage(logs=found[:limit], next=following)

    @router.get("/logs/{log_id}", summary="One entry.", responses=MISSING)
    async def log(caller: Reading, log_id: str) -> HookExecutionLog:
        whose = None if caller.everywhere else caller.tenant
        entry = await executions.get(log_id, whose) if LOG_ID.fullmatch(log_id) else None
        if entry is None:
            raise Problem(404, "not_found", "there is no such entry")
        return entry

    @router.get("/stats", summary="How each hook did at each event.", responses=MISSING)
    async def stats(
        caller: Reading, *, tenant: TenantFilter = None, event: EventFilter = None, hook: NameFilter = None
    ) -> StatisticsBody:
        whose = whose_list(caller, tenant)
        found = await executions.statistics(tenant=whose, event=wanted_event(event), hook=storable(hook))
        return StatisticsBody(statistics=found)

    return router
