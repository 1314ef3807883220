"""`/agents`: the hooks that blueprints name, and overrides of them. A change is on record before it is made.

Blueprints belong to the operator, so that only tokens of the system have the scope `runs:write`.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import field, frozen
from fastapi import APIRouter, Depends, Header
from fastapi.exceptions import RequestValidationError
from pydantic import AwareDatetime, BaseModel, Field

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.runs.blueprint import AgentType, HookOverride, HookTarget, OnError, apply_overrides
from amplifier_hooks.runs.run_hooks import BlueprintHook
from amplifier_hooks.runs.run_states import HookPoint
from amplifier_hooks.server.api import STALE
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.server.runs.run_bodies import RequestBody

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.runs.blueprint import Blueprint, HookEntry
    from amplifier_hooks.runs.run_coordinator import RunCoordinator


Writer = Annotated[Caller, Depends(require_scope("runs:write"))]
IfMatch = Annotated[str | None, Header(max_length=100, description="The `tag` of the hook as you have seen it.")]


class OverrideBody(RequestBody):
    """The fields that replace those of a blueprint's hook."""

    type: HookTarget = Field(description="python only for a hook that is python in the file, with its function.")
    agent_name: str | None = Field(None, max_length=200, description="For the type agent.")
    url: str | None = Field(None, max_length=2_048, description="For the type http.")
    on_error: OnError = Field(description="ignore only at the finish.")
    timeout_seconds: float


class EntryBody(BaseModel):
    """A hook of a blueprint, without its headers."""

    type: HookTarget
    agent_name: str | None
    url: str | None
    handler_ref: str | None
    on_error: OnError
    timeout_seconds: float

    @classmethod
    def of(cls, entry: HookEntry) -> EntryBody:
        """Return a hook as it is shown."""
        return cls(**entry.model_dump(include=set(cls.model_fields)))

    @classmethod
    def of_override(cls, entry: HookEntry, override: HookOverride) -> EntryBody:
        """Return an override as it is shown. A hook in Python keeps its function."""
        function = entry.handler_ref if override.type == "python" else None
        return cls(**override.model_dump(include=set(cls.model_fields)), handler_ref=function)


class BlueprintHookBody(BaseModel):
    """A hook of a blueprint, in its file and in force."""

    hook_type: HookPoint
    state: Literal["file", "overridden", "outdated"] = Field(
        description="outdated: the override was made for another content of the blueprint. A start hook then fails if "
        "its failure blocks, in the file or in the override; any other hook is that of the file."
    )
    file: EntryBody
    override: EntryBody | None
    changed_by: str | None
    changed_at: AwareDatetime | None
    tag: str = Field(description="For If-Match: it names the blueprint's content and the override.")


class AgentHooksBody(BaseModel):
    """An agent and its hooks."""

    agent_name: str
    agent_type: AgentType
    description: str
    hooks: list[BlueprintHookBody]


class AgentPage(BaseModel):
    """All agents, by name."""

    agents: list[AgentHooksBody]


@frozen(eq=False)
class OverrideKeeper:
    """Manager of overrides on behalf of callers."""

    runs: RunCoordinator
    record: AuditSink
    clock: Clock = field(factory=SystemClock)

    async def agent(self, blueprint: Blueprint) -> AgentHooksBody:
        """Return an agent and its hooks, as they are shown."""
        found = await self.runs.store.overrides(blueprint.name) if blueprint.entries else ()
        hooks = [hook_body(blueprint, point, found) for point in blueprint.entries]
        name, description = blueprint.name, blueprint.description
        return AgentHooksBody(agent_name=name, agent_type=blueprint.type, description=description, hooks=hooks)

    async def find(self, agent: str, point: HookPoint, tag: str | None) -> tuple[Blueprint, HookOverride | None]:
        """Return a blueprint, and the override of its hook. Raises `Problem` if the caller has not seen them so."""
        blueprint = self.runs.agents.find(agent)
        if blueprint is None or point not in blueprint.entries:
            raise Problem(404, "not_found", "there is no such hook in a blueprint")
        if tag is None:
            raise Problem(428, "if_match_missing", "send the tag of the hook as you have seen it in If-Match")
        found = await self.runs.store.overrides(agent)
        if tag.strip().strip('"') != hook_body(blueprint, point, found).tag:
            raise changed_meanwhile()
        return blueprint, _override_at(point, found)

    def check(self, blueprint: Blueprint, override: HookOverride) -> None:
        """Raise the error of an override that would fail at every run: pydantic's, FastAPI's, or a `HookError`."""
        after, _ = apply_overrides(blueprint, (override,))
        if override.agent_name is not None and self.runs.agents.find(override.agent_name) is None:
            raise RequestValidationError([{"loc": ("body", "agent_name"), "msg": "there is no such agent"}])
        BlueprintHook(self.runs.run_hooks, after, override.point, after.entries[override.point]).load()

    async def replace(self, caller: Caller, before: HookOverride | None, after: HookOverride | None) -> None:
        """Record a change, and make it. Raises `RecordUnavailable`, and `Problem` if another caller was faster."""
        about = after or before
        if about is None:
            return
        facts = {
            "agent": about.agent,
            "hook": about.point,
            "before": None if before is None else _facts(before),
            "after": None if after is None else _facts(after),
        }
        kind = "run_hook.restored" if after is None else "run_hook.overridden"
        await caller.record(self.record, kind, facts, self.clock)
        done = False
        try:
            done = await self.runs.store.replace_override(before, after)
        finally:
            if not done:
                with suppress(RecordUnavailable):  # a change that was not made needs no proof
                    await caller.record(self.record, "run_hook.unchanged", facts, self.clock)
        if not done:
            raise changed_meanwhile()


def agents_router(runs: RunCoordinator, record: AuditSink) -> APIRouter:
    """Return the routes of blueprints' hooks over a coordinator."""
    router = APIRouter(prefix="/agents", tags=["agents"])
    keeper = OverrideKeeper(runs, record)

    @router.get("", summary="Agents and their hooks.")
    async def find(_caller: Writer) -> AgentPage:
        known = sorted(runs.agents, key=lambda blueprint: blueprint.name)
        return AgentPage(agents=[await keeper.agent(one) for one in known])

    @router.put("/{agent_name}/hooks/{hook_type}", summary="Override a hook of a blueprint.", responses=STALE)
    async def override(
        caller: Writer, agent_name: str, hook_type: HookPoint, body: OverrideBody, if_match: IfMatch = None
    ) -> BlueprintHookBody:
        blueprint, before = await keeper.find(agent_name, hook_type, if_match)
        after = HookOverride(
            agent=agent_name,
            point=hook_type,
            digest=blueprint.digest,
            by=caller.name,
            at=keeper.clock.now(),
            **body.model_dump(),
        )
        keeper.check(blueprint, after)
        await keeper.replace(caller, before, after)
        return hook_body(blueprint, hook_type, (after,))

    @router.delete("/{agent_name}/hooks/{hook_type}", summary="Remove an override.", responses=STALE)
    async def restore(
        caller: Writer, agent_name: str, hook_type: HookPoint, if_match: IfMatch = None
    ) -> BlueprintHookBody:
        blueprint, before = await keeper.find(agent_name, hook_type, if_match)
        await keeper.replace(caller, before, None)
        return hook_body(blueprint, hook_type, ())

    return router


def hook_body(blueprint: Blueprint, point: HookPoint, found: Iterable[HookOverride]) -> BlueprintHookBody:
    """Return a hook of a blueprint, with its override if there is one."""
    entry, override = blueprint.entries[point], _override_at(point, found)
    seen = sha256(blueprint.digest.encode() + (b"" if override is None else override.model_dump_json().encode()))
    current = override is not None and override.digest == blueprint.digest
    return BlueprintHookBody(
        hook_type=point,
        state="file" if override is None else "overridden" if current else "outdated",
        file=EntryBody.of(entry),
        override=None if override is None else EntryBody.of_override(entry, override),
        changed_by=None if override is None else override.by,
        changed_at=None if override is None else override.at,
        tag=seen.hexdigest()[:24],
    )


def changed_meanwhile() -> Problem:
    """Return the problem of a caller that has not seen the hook as it is."""
    return Problem(412, "changed_meanwhile", "the hook has changed since you read it; read it again, and decide again")


def _override_at(point: HookPoint, found: Iterable[HookOverride]) -> HookOverride | None:
    return next((one for one in found if one.point == point), None)


def _facts(override: HookOverride) -> dict[str, Any]:
    """Return an override for the record; of a URL without its query, which may hold a secret."""
    fields = {name: getattr(override, name) for name in ("digest", "type", "on_error", "timeout_seconds")}
    return {**fields, "target": override.agent_name or (override.url or "").partition("?")[0] or None}
