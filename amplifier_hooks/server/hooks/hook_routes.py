"""`/v1/hooks`: definitions, and trials of them. `/v1/hooks/logs` and `/v1/hooks/stats`: the execution log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response

from amplifier_hooks.definitions.kinds.event_codec import HOPS_HEADER, note_hops
from amplifier_hooks.definitions.model import HookChanges, NewHook
from amplifier_hooks.definitions.store import DefinitionCursor
from amplifier_hooks.errors import HookRefused
from amplifier_hooks.server.api import STALE, response_description
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.hooks.change_hooks import whose_list
from amplifier_hooks.server.hooks.execution_log import HookExecutionLog, HookStatistics
from amplifier_hooks.server.hooks.try_hook import (
    HookBodies,
    HookBody,
    HookPage,
    LogPage,
    StatisticsBody,
    Toggle,
    Trial,
    TrialResult,
)
from amplifier_hooks.server.list_filters import (
    Cursor,
    EventFilter,
    Limit,
    NameFilter,
    TenantFilter,
    cursor_of,
    read_cursor,
    wanted_event,
)
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from amplifier_hooks.record.journal import Journal
    from amplifier_hooks.server.hooks.change_hooks import HookKeeper
    from amplifier_hooks.server.hooks.try_hook import Trials


Managing = Annotated[Caller, Depends(require_scope("hooks:manage"))]

ETAG: Final = re.compile(r'(?:W/)?"([1-9][0-9]{0,9})"')

IfMatch = Annotated[str | None, Header(max_length=100, description="The ETag of the version that you have seen.")]
ETAGGED: Final[dict[str, Any]] = {"headers": {"ETag": {"description": "The version.", "schema": {"type": "string"}}}}

MISSING: Final[dict[int | str, dict[str, Any]]] = {404: response_description(404)}
TAKEN: Final[dict[int | str, dict[str, Any]]] = {409: response_description(409)}


def hooks_router(keeper: HookKeeper, trials: Trials) -> APIRouter:
    """Return the routes of definitions."""
    router = APIRouter(prefix="/v1/hooks", tags=["hooks"])
    shown = HookBodies(keeper.in_force.problem).of

    @router.get("", summary="Hooks, in the order they were made.", responses=MISSING)
    async def find(
        caller: Managing,
        *,
        tenant_id: TenantFilter = None,
        event_type: EventFilter = None,
        enabled: Annotated[bool | None, Query(description="Only those switched on, or off.")] = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> HookPage:
        filters = ["hooks", tenant_id, event_type, enabled]
        after = DefinitionCursor(*read_cursor(cursor, caller.tenant, filters)) if cursor else None
        found = await keeper.find(
            caller, tenant_id, event=wanted_event(event_type), enabled=enabled, after=after, limit=limit + 1
        )
        last = DefinitionCursor.of(found[limit - 1]) if len(found) > limit else None
        following = cursor_of(caller.tenant, filters, last.created, last.hook_id) if last else None
        return HookPage.model_construct(hooks=[shown(one) for one in found[:limit]], next=following)

    @router.post("", status_code=201, summary="A new hook, in force at once.", responses={201: ETAGGED, **TAKEN})
    async def create(caller: Managing, new: NewHook, response: Response) -> HookBody:
        made = await keeper.create(caller, new)
        response.headers["location"] = f"/v1/hooks/{made.definition.hook_id}"
        response.headers["etag"] = _etag(made.version)
        return shown(made)

    @router.get("/{hook_id}", summary="One hook.", responses={200: ETAGGED, **MISSING})
    async def get(caller: Managing, hook_id: str, response: Response) -> HookBody:
        found = await keeper.get(caller, hook_id)
        response.headers["etag"] = _etag(found.version)
        return shown(found)

    @router.put(
        "/{hook_id}",
        summary="Change a hook: the fields that are given, and no others.",
        responses={200: ETAGGED, **STALE, **TAKEN},
    )
    async def change(
        caller: Managing, hook_id: str, changes: HookChanges, response: Response, if_match: IfMatch = None
    ) -> HookBody:
        await keeper.get(caller, hook_id)
        made = await keeper.change(caller, hook_id, changes, _version(if_match))
        response.headers["etag"] = _etag(made.version)
        return shown(made)

    @router.delete("/{hook_id}", status_code=204, summary="Remove a hook.", responses=STALE)
    async def delete(caller: Managing, hook_id: str, if_match: IfMatch = None) -> None:
        await keeper.get(caller, hook_id)
        await keeper.delete(caller, hook_id, _version(if_match))

    @router.put(
        "/{hook_id}/toggle",
        summary="Switch a hook on or off.",
        responses={200: ETAGGED, **MISSING, 412: response_description(412)},
    )
    async def toggle(
        caller: Managing,
        hook_id: str,
        response: Response,
        wanted: Annotated[Toggle | None, Body()] = None,
        if_match: IfMatch = None,
    ) -> HookBody:
        known = await keeper.get(caller, hook_id)
        on = wanted.enabled if wanted is not None and wanted.enabled is not None else not known.definition.enabled
        version = known.version if if_match is None else _version(if_match)
        made = await keeper.change(caller, hook_id, HookChanges(enabled=on), version)
        response.headers["etag"] = _etag(made.version)
        return shown(made)

    @router.post(
        "/{hook_id}/test",
        summary="Try a hook on a payload. The hook runs for real, with all its side effects.",
        responses={**MISSING, 508: response_description(508)},
    )
    async def test(caller: Managing, hook_id: str, trial: Trial, request: Request) -> TrialResult:
        known = await keeper.get(caller, hook_id)
        try:
            note_hops(request.headers.get(HOPS_HEADER))
        except HookRefused as circle:
            raise Problem(508, "hooks_in_a_circle", str(circle)) from None
        await keeper.note_trial(caller, known)
        return await trials.run(known.definition, trial.sample_context, wanted_event(trial.event_type))

    return router


def _etag(version: int) -> str:
    return f'"{version}"'


def _version(if_match: str | None) -> int:
    """Return the version in If-Match. Raises `Problem`: 428 without one, 412 for an unknown format."""
    if if_match is None:
        raise Problem(428, "if_match_missing", "send the ETag of the version you have seen in If-Match")
    found = ETAG.fullmatch(if_match.strip())
    if found is None:
        raise Problem(412, "changed_meanwhile", "If-Match is no ETag of this hook; read it again, and decide again")
    return int(found[1])


Reading = Annotated[Caller, Depends(require_scope("hooks:read"))]

LOG_ID: Final = re.compile(r"log_[0-9a-f]{24}")


def logs_router(journal: Journal) -> APIRouter:
    """Return the routes of the execution log. Include them before `hooks_router`, whose routes take an id here."""
    router = APIRouter(prefix="/v1/hooks", tags=["logs"])

    @router.get("/logs", summary="Entries of the execution log, newest first.", responses=MISSING)
    async def logs(
        caller: Reading,
        *,
        tenant_id: TenantFilter = None,
        event_type: EventFilter = None,
        hook_name: NameFilter = None,
        aborted: Annotated[bool | None, Query(description="Only entries that were denied, or only the others.")] = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> LogPage:
        filters = ["logs", tenant_id, event_type, hook_name, aborted]
        found = await journal.find(
            "event",
            tenant=whose_list(caller, tenant_id),
            event=wanted_event(event_type),
            hook=hook_name,
            denied=None if aborted is None else int(aborted),
            after=read_cursor(cursor, caller.tenant, filters) if cursor else None,
            limit=limit + 1,
        )
        last = found[limit - 1] if len(found) > limit else None
        following = cursor_of(caller.tenant, filters, last.at, last.id) if last else None
        return LogPage(logs=[HookExecutionLog.model_validate_json(fact.body) for fact in found[:limit]], next=following)

    @router.get("/logs/{log_id}", summary="One entry.", responses=MISSING)
    async def log(caller: Reading, log_id: str) -> HookExecutionLog:
        whose = None if caller.everywhere else caller.tenant
        found = await journal.find("event", id=log_id, tenant=whose) if LOG_ID.fullmatch(log_id) else []
        if not found:
            raise Problem(404, "not_found", "there is no such entry")
        return HookExecutionLog.model_validate_json(found[0].body)

    @router.get("/stats", summary="Statistics of each hook at each event.", responses=MISSING)
    async def stats(
        caller: Reading,
        *,
        tenant_id: TenantFilter = None,
        event_type: EventFilter = None,
        hook_name: NameFilter = None,
    ) -> StatisticsBody:
        rows = await journal.statistics(
            tenant=whose_list(caller, tenant_id), event=wanted_event(event_type), name=hook_name
        )
        counted = [dict(zip(HookStatistics.model_fields, row, strict=True)) for row in rows]
        return StatisticsBody(statistics=[HookStatistics.model_validate(one) for one in counted])

    return router
