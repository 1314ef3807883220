"""Bodies of the routes about runs: JSON of requests comes in; run records become JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from attrs import asdict
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from amplifier_hooks.runs.blueprint import AgentType
from amplifier_hooks.runs.run_states import STOP_REASON, RunEnding, RunStatus
from amplifier_hooks.server.runs.run_view import parameter_changes, run_hooks, timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.runs.blueprint import Blueprint
    from amplifier_hooks.runs.run_states import RunEvent, RunRecord


LONGEST_ERROR: Final = 8_192

Text = Annotated[str, Field(min_length=1, max_length=200)]


class RequestBody(BaseModel):
    """Body of a request; an unknown field is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewRunBody(RequestBody):
    """A run to queue."""

    agent_name: Text
    parameters: dict[str, Any] = Field(default_factory=dict)
    parent_run_id: Text | None = Field(default=None, description="The run that starts this one.")
    session_id: Text | None = Field(default=None, description="A session to continue; a new one by default.")


class StopBody(RequestBody):
    """Reason for stopping a run."""

    reason: Annotated[str, Field(min_length=1, max_length=2_000)] = STOP_REASON


class RunHold(RequestBody):
    """The runner that holds a run, and its attempt, as in the claim."""

    runner: Text
    attempt: int


class RunResultBody(RunHold):
    """A result: a text for an autonomous agent without an output schema, otherwise data; the other field is null."""

    result_text: str | None = None
    result_data: Any = None


class Completion(RunHold):
    """End of a run."""

    status: RunEnding
    error: Annotated[str, Field(max_length=LONGEST_ERROR)] | None = Field(
        default=None, description="Reason of a failure."
    )


class Renewal(BaseModel):
    """A renewed lease: the runner holds the run for `lease_seconds` more, unless `stop` is true."""

    stop: bool = Field(description="True if a stop was requested: end the run, and complete it as stopped.")
    lease_seconds: float


class RunBody(BaseModel):
    """A run in a list."""

    run_id: str
    session_id: str
    tenant_id: str
    agent_name: str
    status: RunStatus
    ready: bool = Field(description="True if its start hooks have passed and it waits for a runner.")
    created_at: AwareDatetime
    started_at: AwareDatetime | None = Field(description="Time of the first claim by a runner.")
    ended_at: AwareDatetime | None
    duration_ms: float | None = Field(description="Time from the queue to the end.")
    runner: str | None = Field(description="Runner that holds the run, or held it last.")
    attempt: int = Field(description="Number of runners that have held the run.")
    stop_requested: bool
    parent_run_id: str | None
    parent_session_id: str | None
    depth: int
    is_hook_agent: bool = Field(description="True if a hook started the run, which then has no hooks of its own.")
    has_hooks: bool
    blocked: bool = Field(description="True if a hook stopped the run before it ran; `error` is the reason.")
    failed_hooks: int
    parameters_changed: int = Field(description="Number of places in the parameters that hooks changed.")
    error: str | None

    @classmethod
    def fields_of(cls, record: RunRecord) -> dict[str, Any]:
        """Return the fields of a run in a list."""
        took = (record.ended - record.created).total_seconds() * 1e3 if record.ended else None
        changed = [] if record.ran_with is None else parameter_changes(dict(record.parameters), dict(record.ran_with))
        return {
            "run_id": record.id,
            "session_id": record.session,
            "tenant_id": record.tenant,
            "agent_name": record.agent,
            "status": record.status,
            "ready": record.stage == "ready",
            "created_at": record.created,
            "started_at": record.started,
            "ended_at": record.ended,
            "duration_ms": None if took is None else round(took, 3),
            "runner": record.holder if record.handed else None,
            "attempt": record.handed,
            "stop_requested": record.stopping,
            "parent_run_id": record.parent,
            "parent_session_id": record.parent_session,
            "depth": record.depth,
            "is_hook_agent": record.bare,
            "has_hooks": record.hooked,
            "blocked": record.blocked,
            "failed_hooks": record.failures,
            "parameters_changed": len(changed),
            "error": record.error,
        }

    @classmethod
    def of(cls, record: RunRecord) -> RunBody:
        """Return a run for a list."""
        return cls(**cls.fields_of(record))


class RunPage(BaseModel):
    """Runs, newest first."""

    runs: list[RunBody]
    next: str | None = Field(description="The cursor of the next page; null on the last.")


class ChangeBody(BaseModel):
    """One place of the parameters that hooks changed."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any


class HookBodyOfRun(BaseModel):
    """One hook of a run, with its outcome."""

    hook_type: str
    target_type: str
    target_name: str
    started_at: AwareDatetime
    ended_at: AwareDatetime | None
    outcome: Literal["running", "complete", "failed", "blocked", "lost"]
    duration_ms: float | None
    action: str | None
    error: str | None
    on_error_behavior: str | None
    block_reason: str | None


class StepBody(BaseModel):
    """One line of the timeline."""

    name: str = Field(description="queued, starting, hook, ready, running, result, child, lost, completed …")
    at: AwareDatetime
    offset_ms: float = Field(description="Time since the run was queued.")
    duration_ms: float | None
    hook: HookBodyOfRun | None
    facts: dict[str, Any] | None


class RunDetail(RunBody):
    """All details of one run."""

    agent_type: AgentType | None = Field(description="Null if the agent does not exist any more.")
    parameters: dict[str, Any] = Field(description="Parameters as sent.")
    parameters_as_run: dict[str, Any] = Field(description="Parameters after the start hooks.")
    parameter_changes: list[ChangeBody]
    result_text: str | None
    result_data: Any
    block_reason: str | None
    hooks: list[HookBodyOfRun]
    timeline: list[StepBody]
    last_event: int = Field(description="Number of the last event, after which to follow the run.")
    parent: RunBody | None
    children: list[RunBody]

    @classmethod
    def whole(
        cls,
        record: RunRecord,
        *,
        events: list[RunEvent],
        blueprint: Blueprint | None,
        parent: RunRecord | None,
        children: Iterable[RunRecord],
    ) -> RunDetail:
        """Return a run with its events, agent, parent and children."""
        before, after = dict(record.parameters), dict(record.effective)
        return cls(
            **cls.fields_of(record),
            agent_type=blueprint.type if blueprint else None,
            parameters=before,
            parameters_as_run=after,
            parameter_changes=[ChangeBody(**asdict(one)) for one in parameter_changes(before, after)],
            result_text=record.result_text,
            result_data=record.result_data,
            block_reason=record.error if record.blocked else None,
            hooks=[HookBodyOfRun(**asdict(one)) for one in run_hooks(events)],
            timeline=[StepBody(**asdict(one)) for one in timeline(events)],
            last_event=events[-1].number if events else 0,
            parent=None if parent is None else RunBody.of(parent),
            children=[RunBody.of(one) for one in children],
        )


class AgentBody(BaseModel):
    """The facts about an agent that a runner needs."""

    name: str
    type: AgentType
    description: str
    system_prompt: str
    output_schema: Any


class ClaimedRun(BaseModel):
    """A claimed run. Renew it before the lease ends; send `runner` and `attempt` with every later request."""

    run_id: str
    session_id: str
    tenant_id: str
    parent_run_id: str | None
    parent_session_id: str | None
    agent_name: str
    parameters: dict[str, Any]
    runner: str
    attempt: int
    lease_seconds: float
    agent: AgentBody | None

    @classmethod
    def of(cls, record: RunRecord, blueprint: Blueprint | None, lease: float) -> ClaimedRun:
        """Return a claimed run for its runner."""
        schema = blueprint.output_schema if blueprint else None
        return cls(
            run_id=record.id,
            session_id=record.session,
            tenant_id=record.tenant,
            parent_run_id=record.parent,
            parent_session_id=record.parent_session,
            agent_name=record.agent,
            parameters=dict(record.effective),
            runner=record.holder or "",
            attempt=record.attempt,
            lease_seconds=lease,
            agent=None
            if blueprint is None
            else AgentBody(
                name=blueprint.name,
                type=blueprint.type,
                description=blueprint.description,
                system_prompt=blueprint.system_prompt,
                output_schema=None if schema is None else schema.document,
            ),
        )
