"""Bodies of the routes about runs: JSON of requests comes in; run records become JSON.

The events of a run become its timeline, and the differences between two sets of parameters become a list. Pure.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from msgspec.structs import asdict
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from amplifier_hooks.runs.blueprint import AgentType
from amplifier_hooks.runs.run_states import ENDED, STOP_REASON, RunEnding, RunStatus
from amplifier_hooks.server.api import Next

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.runs.blueprint import Blueprint
    from amplifier_hooks.runs.run_states import RunEvent, RunRecord


LONGEST_ERROR: Final = 8_192
Outcome = Literal["running", "complete", "failed", "blocked", "lost"]

STAYS: Final = frozenset({"queued", "starting", "ready", "running"})
"""Steps that last until the next one; all other steps take no time."""
KEY: Final = ("hook_type", "target_type", "target_name")
"""Fields of an event that name its hook."""
ENVELOPE: Final = ("event_type", "session_id", "run_id", "timestamp")

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


class ViewBody(BaseModel):
    """A part of the view of a run. Every field is in the answer."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class ChangeBody(ViewBody):
    """One place of the parameters that hooks changed. `path` is like `$.items[2].price`; a missing value is null."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


class HookBodyOfRun(ViewBody):
    """One hook of a run, with its outcome. `lost` means that its coordinator was gone before the hook ended."""

    hook_type: str
    target_type: str
    target_name: str
    started_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    outcome: Outcome = "running"
    duration_ms: float | None = None
    action: str | None = None
    error: str | None = None
    on_error_behavior: str | None = None
    block_reason: str | None = None


class StepBody(ViewBody):
    """One line of the timeline. Its duration is null if it takes no time or has not ended."""

    name: str = Field(description="queued, starting, hook, ready, running, result, child, lost, completed …")
    at: AwareDatetime
    offset_ms: float = Field(description="Time since the run was queued.")
    duration_ms: float | None = None
    hook: HookBodyOfRun | None = None
    facts: dict[str, Any] | None = None


class RunBody(BaseModel):
    """A run in a list."""

    run_id: str = Field(validation_alias="id")
    session_id: str = Field(validation_alias="session")
    tenant_id: str = Field(validation_alias="tenant")
    agent_name: str = Field(validation_alias="agent")
    status: RunStatus
    ready: bool = Field(description="True if its start hooks have passed and it waits for a runner.")
    created_at: AwareDatetime = Field(validation_alias="created")
    started_at: AwareDatetime | None = Field(
        validation_alias="started", description="Time of the first claim by a runner."
    )
    ended_at: AwareDatetime | None = Field(validation_alias="ended")
    duration_ms: float | None = Field(description="Time from the queue to the end.")
    runner: str | None = Field(description="Runner that holds the run, or held it last.")
    attempt: int = Field(validation_alias="handed", description="Number of runners that have held the run.")
    stop_requested: bool = Field(validation_alias="stopping")
    parent_run_id: str | None = Field(validation_alias="parent")
    parent_session_id: str | None = Field(validation_alias="parent_session")
    depth: int
    is_hook_agent: bool = Field(
        validation_alias="bare", description="True if a hook started the run, which then has no hooks of its own."
    )
    has_hooks: bool = Field(validation_alias="hooked")
    blocked: bool = Field(description="True if a hook stopped the run before it ran; `error` is the reason.")
    failed_hooks: int = Field(validation_alias="failures")
    parameters_changed: int = Field(description="Number of places in the parameters that hooks changed.")
    error: str | None

    @classmethod
    def of(cls, record: RunRecord, **more: Any) -> Self:
        """Return a run as a body, with further fields."""
        changed = [] if record.ran_with is None else parameter_changes(dict(record.parameters), dict(record.ran_with))
        facts = {
            "status": record.status,
            "ready": record.stage == "ready",
            "duration_ms": _ms(record.created, record.ended) if record.ended else None,
            "runner": record.holder if record.handed else None,
            "parameters_changed": len(changed),
            "parameter_changes": changed,
        }
        return cls.model_validate({**asdict(record), **facts, **more})


class RunPage(BaseModel):
    """Runs, newest first."""

    runs: list[RunBody]
    next: Next


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
    parent: RunBody | None = Field(validation_alias="parent_run")
    children: list[RunBody]


class AgentBody(BaseModel):
    """The facts about an agent that a runner needs."""

    name: str
    type: AgentType
    description: str
    system_prompt: str
    output_schema: Any


class ClaimedRun(BaseModel):
    """A claimed run. Renew it before the lease ends; send `runner` and `attempt` with every later request."""

    run_id: str = Field(validation_alias="id")
    session_id: str = Field(validation_alias="session")
    tenant_id: str = Field(validation_alias="tenant")
    parent_run_id: str | None = Field(validation_alias="parent")
    parent_session_id: str | None = Field(validation_alias="parent_session")
    agent_name: str = Field(validation_alias="agent")
    parameters: dict[str, Any]
    runner: str = Field(validation_alias="holder")
    attempt: int
    lease_seconds: float
    agent: AgentBody | None = Field(validation_alias="agent_body")

    @classmethod
    def of(cls, record: RunRecord, blueprint: Blueprint | None, lease: float) -> ClaimedRun:
        """Return a claimed run for its runner."""
        schema = blueprint.output_schema if blueprint else None
        shown = blueprint and {**dict(blueprint), "output_schema": schema and schema.document}
        facts = {"parameters": dict(record.effective), "lease_seconds": lease, "agent_body": shown}
        return cls.model_validate({**asdict(record), **facts})


def parameter_changes(before: Any, after: Any, path: str = "$") -> list[ChangeBody]:
    """Return the differences between two values, in the order of names; lists are compared by index."""
    if isinstance(before, dict) and isinstance(after, dict):
        parts = [(f"{path}.{name}", name) for name in sorted({*before, *after})]
        return _inside(parts, before, after)
    if isinstance(before, list) and isinstance(after, list):
        places = [(f"{path}[{place}]", place) for place in range(max(len(before), len(after)))]
        return _inside(places, dict(enumerate(before)), dict(enumerate(after)))
    same = type(before) is type(after) and before == after
    return [] if same else [ChangeBody(path=path, kind="changed", before=before, after=after)]


def _inside(parts: Iterable[tuple[str, Any]], before: Any, after: Any) -> list[ChangeBody]:
    found: list[ChangeBody] = []
    for path, name in parts:
        if name not in after:
            found.append(ChangeBody(path=path, kind="removed", before=before[name]))
        elif name not in before:
            found.append(ChangeBody(path=path, kind="added", after=after[name]))
        else:
            found += parameter_changes(before[name], after[name], path)
    return found


def timeline(events: Iterable[RunEvent]) -> list[StepBody]:
    """Return the steps of a run in order; a hook is one step, from its start to its end."""
    steps: list[StepBody] = []
    open_hooks: dict[tuple[Any, ...], StepBody] = {}
    staying: StepBody | None = None
    begun: datetime | None = None
    for event in events:
        at = datetime.fromisoformat(event["timestamp"])
        begun = begun or at
        about, _, kind = event["event_type"].partition("_")
        step = StepBody(name=kind if about == "run" else about, at=at, offset_ms=_ms(begun, at))
        key = tuple(map(event.get, KEY))
        if event["event_type"] == "hook_start":
            if key in open_hooks:  # it began again, so the end of its first run is unknown
                open_hooks[key].hook = _hook_of(event, open_hooks[key].at, outcome="lost")
            step.hook = _hook_of(event, at)
            open_hooks[key] = step
        elif about == "hook":
            if (begun_step := open_hooks.pop(key, None)) is not None:
                begun_step.hook = _hook_of(event, begun_step.at, ended_at=at, outcome=kind)
                begun_step.duration_ms = begun_step.hook.duration_ms
            continue
        else:
            if staying is not None and step.name in STAYS | ENDED | {"lost"}:
                staying.duration_ms = _ms(staying.at, at)
                staying = None
            if step.name in STAYS:
                staying = step
            step.facts = {name: value for name, value in event.items() if name not in ENVELOPE}
        steps.append(step)
    return steps


def _hook_of(event: RunEvent, started: datetime, **more: Any) -> HookBodyOfRun:
    return HookBodyOfRun.model_validate({**event, "started_at": started, **more})


def _ms(start: datetime, end: datetime) -> float:
    return round((end - start).total_seconds() * 1e3, 3)
