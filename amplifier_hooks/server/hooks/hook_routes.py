"""`/v1/hooks`: definitions, and trials of them. `/v1/hooks/logs` and `/v1/hooks/stats`: the execution log.

A trial runs the hook alone, in a registry of its own, with its own timeout and fail mode, and with all its side
effects. A hook might call this API and so start trials from trials; therefore a hook has one trial at a time, and a
tenant has few.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from attrs import define, field
from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictBool

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.kinds.event_codec import HOPS_HEADER, note_hops
from amplifier_hooks.definitions.model import FailMode, HookChanges, Kind, NewHook
from amplifier_hooks.definitions.store import DefinitionCursor
from amplifier_hooks.errors import HookRefused
from amplifier_hooks.record.encode_facts import TooMuch, ValueSimplifier
from amplifier_hooks.record.journal import FactValues
from amplifier_hooks.registry.event_names import is_pattern
from amplifier_hooks.result import Risk
from amplifier_hooks.server.api import (
    MISSING,
    STALE,
    TAKEN,
    Cursor,
    EventFilter,
    Limit,
    NameFilter,
    Next,
    TenantFilter,
    cursor_of,
    read_cursor,
    response_description,
    wanted_event,
)
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.hooks.execution_log import HookExecutionLog, HookRun, HookStatistics, hook_run_of
from amplifier_hooks.server.hooks.stored_hooks import whose_list
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from amplifier_hooks.definitions.model import HookDefinition
    from amplifier_hooks.definitions.store import StoredHook
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.record.journal import Journal
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.server.hooks.stored_hooks import HookKeeper


AT_ONCE: Final = 4
"""Trials of one tenant at the same time."""

LARGEST: Final = 256 * 1024
MOST_VALUES: Final = 16_384


class HookBody(BaseModel):
    """A hook. Secrets in its config are hidden; a hidden secret that is sent back keeps its value."""

    hook_id: str
    version: int = Field(description="Number of changes; the ETag is this number in quotation marks.")
    name: str
    description: str
    event_type: str
    priority: int
    band: str = Field(description="Band of the priority.")
    kind: Kind
    handler_ref: str
    timeout_ms: int | None
    enabled: bool
    tenant_id: str
    config: dict[str, Any]
    fail_mode: FailMode | None
    tags: list[str]
    matcher: str | None
    risk: Risk | None
    risk_reason: str
    report_only: bool
    created_at: AwareDatetime
    updated_at: AwareDatetime
    problem: str | None = Field(
        None, description="Reason why the hook is not in force as written, such as a missing handler."
    )

    @classmethod
    def of(cls, hook: StoredHook) -> HookBody:
        """Return the body of a hook."""
        known = hook.definition
        dates = {"created_at": known.created_at, "updated_at": known.updated_at}
        facts = {"version": hook.version, "band": known.band.name, "kind": known.kind, **dates}
        return cls.model_construct(**known.public_fields() | facts)


@define(eq=False)
class HookBodies:
    """Bodies of hooks, made once for each version."""

    problem: Callable[[HookDefinition], str | None]
    """Returns the reason why a definition is not in force."""
    _made: WeakKeyDictionary[StoredHook, HookBody] = field(factory=WeakKeyDictionary, init=False)
    """Bodies by stored hook; one is dropped when the store drops its stored hook."""

    def of(self, hook: StoredHook) -> HookBody:
        """Return the body of a stored hook, with its current problem."""
        body = self._made.get(hook)
        if body is None:
            body = self._made[hook] = HookBody.of(hook)
        problem = self.problem(hook.definition)
        return body if problem is None else body.model_copy(update={"problem": problem})


class HookPage(BaseModel):
    """Hooks, in the order of their creation."""

    hooks: list[HookBody]
    next: Next = None


class Toggle(BaseModel):
    """A switch of a hook. Without `enabled`, it toggles the hook."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool | None = None


class Trial(BaseModel):
    """A payload to try a hook on. Its tenant is always the hook's."""

    model_config = ConfigDict(extra="forbid")

    sample_context: dict[str, Any]
    event_type: str | None = Field(
        None, min_length=1, max_length=100, description="The event, for a hook with a pattern."
    )


class TrialResult(BaseModel):
    """The result of a trial. It is null if the hook does not run for such a payload."""

    result: HookRun | None
    context_after: dict[str, Any] = Field(description="Payload after the hook.")


class LogPage(BaseModel):
    """Entries of the execution log, newest first."""

    logs: list[HookExecutionLog]
    next: Next = None


class StatisticsBody(BaseModel):
    """Statistics of each hook at each event, over the entries of the execution log."""

    statistics: list[HookStatistics]


@define(eq=False)
class Trials:
    """Runner of trials."""

    alone: Callable[[HookDefinition], AbstractAsyncContextManager[HookRegistry]]
    """Opens a registry with one hook."""
    clock: Clock = field(factory=SystemClock)
    _running: set[tuple[str, str]] = field(factory=set, init=False)
    """Tenant and hook of each trial."""
    _values: FactValues = field(factory=FactValues, init=False)

    async def run(
        self, definition: HookDefinition, sample: Mapping[str, Any], event: str | None
    ) -> tuple[HookRun | None, dict[str, Any]]:
        """Run a hook with a payload, even if it is switched off, and return its result and the payload after it.

        Raises `Problem` while the hook is already being tried, and if its event is a pattern and `event` is missing.
        """
        name = event or definition.event_type
        if is_pattern(name):
            raise Problem(422, "which_event", f"the hook is for {name!r}; name one event in event_type")
        with self._count_trial(definition):
            given = {"session_id": f"trial-{uuid4().hex[:12]}", "timestamp": stamp(self.clock)}
            payload = {**given, **sample, "tenant_id": definition.tenant_id or sample.get("tenant_id", "")}
            waited_for = {key: value for key, value in definition.config.items() if key != "mode"}
            async with self.alone(definition.model_copy(update={"enabled": True, "config": waited_for})) as registry:
                outcome = await registry.emit(name, payload)
        ran = outcome.hook_results
        return hook_run_of(ran[0], self._values) if ran else None, _plain(dict(outcome.data))

    @contextmanager
    def _count_trial(self, definition: HookDefinition) -> Iterator[None]:
        trial = definition.tenant_id, definition.hook_id
        tried = trial in self._running
        if tried or sum(tenant == trial[0] for tenant, _ in self._running) >= AT_ONCE:
            detail = "this hook is being tried already" if tried else f"{AT_ONCE} trials are running"
            raise Problem(429, "trial_running", f"{detail}; come back when it is over", headers={"retry-after": "1"})
        self._running.add(trial)
        try:
            yield
        finally:
            self._running.discard(trial)


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a payload in a form that JSON can hold."""
    try:
        tamed = ValueSimplifier(None, LARGEST, LARGEST, MOST_VALUES).simplify(payload)
    except TooMuch:
        tamed = None
    return tamed if isinstance(tamed, dict) else {"$omitted": "size"}


Managing = Annotated[Caller, Depends(require_scope("hooks:manage"))]

ETAG: Final = re.compile(r'(?:W/)?"([1-9][0-9]{0,9})"')

IfMatch = Annotated[str | None, Header(max_length=100, description="The ETag of the version that you have seen.")]
ETAGGED: Final[dict[str, Any]] = {"headers": {"ETag": {"description": "The version.", "schema": {"type": "string"}}}}


def hooks_router(keeper: HookKeeper, trials: Trials) -> APIRouter:
    """Return the routes of definitions."""
    router = APIRouter(prefix="/v1/hooks", tags=["hooks"])
    shown = HookBodies(keeper.in_force.problem).of

    def tagged(hook: StoredHook, response: Response) -> HookBody:
        response.headers["etag"] = f'"{hook.version}"'
        return shown(hook)

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
        place = read_cursor(cursor)
        after = DefinitionCursor(*place) if place else None
        found = await keeper.find(
            caller, tenant_id, event=wanted_event(event_type), enabled=enabled, after=after, limit=limit + 1
        )
        last = DefinitionCursor.of(found[limit - 1]) if len(found) > limit else None
        following = cursor_of(last.created, last.hook_id) if last else None
        return HookPage.model_construct(hooks=[shown(one) for one in found[:limit]], next=following)

    @router.post("", status_code=201, summary="A new hook, in force at once.", responses={201: ETAGGED, **TAKEN})
    async def create(caller: Managing, new: NewHook, response: Response) -> HookBody:
        made = await keeper.create(caller, new)
        response.headers["location"] = f"/v1/hooks/{made.definition.hook_id}"
        return tagged(made, response)

    @router.get("/{hook_id}", summary="One hook.", responses={200: ETAGGED, **MISSING})
    async def get(caller: Managing, hook_id: str, response: Response) -> HookBody:
        found = await keeper.get(caller, hook_id)
        return tagged(found, response)

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
        return tagged(made, response)

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
        return tagged(made, response)

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
        run, after = await trials.run(known.definition, trial.sample_context, wanted_event(trial.event_type))
        return TrialResult(result=run, context_after=after)

    return router


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
        found = await journal.find(
            "event",
            tenant=whose_list(caller, tenant_id),
            event=wanted_event(event_type),
            hook=hook_name,
            denied=None if aborted is None else int(aborted),
            after=read_cursor(cursor),
            limit=limit + 1,
        )
        last = found[limit - 1] if len(found) > limit else None
        following = cursor_of(last.at, last.id) if last else None
        return LogPage(logs=[HookExecutionLog.model_validate_json(fact.body) for fact in found[:limit]], next=following)

    @router.get("/logs/{log_id}", summary="One entry.", responses=MISSING)
    async def log(caller: Reading, log_id: str) -> HookExecutionLog:
        known = LOG_ID.fullmatch(log_id)
        found = await journal.find("event", id=log_id, tenant=caller.tenant_seen) if known else []
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
