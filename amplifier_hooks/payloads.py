"""What each event carries: one model per shape, shared by the events that have it.

```
Payload                     who, where and when: part of every event
├── SessionPayload          session:start/end/resume        └── SessionForkPayload
├── PromptPayload           prompt:submit                   └── PromptCompletePayload
├── MessagesPayload         context:assembled               └── ModelCallPayload         llm:pre
├── ToolPayload             tool:pre                        ├── ToolResultPayload        tool:post
│                                                           └── ToolErrorPayload         tool:error
├── …                       one family for each domain, in the order of the catalogue
└── SessionlessPayload      request:*, run:*, hook:*, module:*: there may be no session, or not yet
```

The catalogue names these models, `events.payload_model(name)` hands them out. They describe what is there at least:
more fields are welcome and are kept. Hooks receive plain dicts; the models serve documentation, dry runs and
everything that comes from outside. Load this module through `payload_model`: it brings pydantic.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

__all__ = [
    "AgentPayload",
    "AgentResultPayload",
    "AgentStopPayload",
    "ApprovalDecisionPayload",
    "ApprovalPayload",
    "ArtifactPayload",
    "CancelPayload",
    "CompactionPayload",
    "ContextIncludePayload",
    "ErrorInfo",
    "ErrorPayload",
    "ExecutionPayload",
    "HookBlockedPayload",
    "HookCompletePayload",
    "HookFailedPayload",
    "HookPayload",
    "MemoryPayload",
    "MemoryResultPayload",
    "MessagesPayload",
    "ModelCallPayload",
    "ModelResponsePayload",
    "ModuleFailedPayload",
    "NotificationPayload",
    "OrchestratorPayload",
    "Payload",
    "PlanPayload",
    "PolicyViolationPayload",
    "PromptCompletePayload",
    "PromptPayload",
    "ProviderErrorPayload",
    "ProviderPayload",
    "RequestPayload",
    "ResponsePayload",
    "RunErrorPayload",
    "RunPayload",
    "RunResultPayload",
    "SessionForkPayload",
    "SessionPayload",
    "SessionlessPayload",
    "StreamPayload",
    "SubagentPayload",
    "SubagentStopPayload",
    "ToolErrorPayload",
    "ToolPayload",
    "ToolResolutionPayload",
    "ToolResultPayload",
    "WorkflowPayload",
    "WorkflowResultPayload",
]


def _check_utc(text: str) -> str:
    """Accept a moment in ISO 8601 and UTC, and keep its text: a payload is not rewritten by looking at it."""
    if datetime.fromisoformat(text).utcoffset() != timedelta(0):
        msg = "a timestamp is ISO 8601 in UTC, such as 2026-01-31T12:00:00+00:00"
        raise ValueError(msg)
    return text


Timestamp = Annotated[str, AfterValidator(_check_utc), Field(json_schema_extra={"format": "date-time"})]
Milliseconds = NonNegativeFloat


class _Described(BaseModel):
    """Frozen, open for more fields, and described by the texts under its fields."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)


class ErrorInfo(_Described):
    """What went wrong."""

    type: str
    """The exception's class, or a provider's error code."""
    message: str = Field(validation_alias=AliasChoices("message", "msg"))
    """For people. Orchestrators of the upstream kernel call it `msg`; both are read."""


# -- every event -----------------------------------------------------------------------------------------------------


class Payload(_Described):
    """Part of every event; the coordinator fills it in."""

    session_id: str = Field(min_length=1)
    """The session in which it happens."""
    timestamp: Timestamp
    """When it happened: ISO 8601, UTC."""
    tenant_id: str | None = None
    """On whose behalf."""
    run_id: str | None = None
    """The run the session belongs to."""
    turn: NonNegativeInt | None = None
    """Which turn of the session."""
    agent: str | None = None
    """The agent at work; a sub-agent is written with its parents."""
    cwd: str | None = None
    """The directory it works in: what relative paths are in."""
    event_id: str | None = None
    """This event, and no other."""
    parent_id: str | None = None
    """The parent session of a child, or the event this one follows from."""


class SessionlessPayload(Payload):
    """Happens where there may be no session yet."""

    session_id: str = ""
    """Empty when there is no session."""


# -- session ---------------------------------------------------------------------------------------------------------


class SessionPayload(Payload):
    """A session begins, ends or goes on."""

    source: str | None = None
    """What began it: startup, resume, clear …"""
    reason: str | None = None
    """Why it ended."""


class SessionForkPayload(SessionPayload):
    """A session starts as a child."""

    parent: str | None = None
    """The session it was forked from."""


# -- prompt and turn -------------------------------------------------------------------------------------------------


class PromptPayload(Payload):
    """What the user wants."""

    prompt: str
    """The user's words."""


class PromptCompletePayload(PromptPayload):
    """A turn is over and stored."""

    response: Any = None
    """The agent's last word."""


class ExecutionPayload(Payload):
    """An orchestrator's work on one prompt."""

    prompt: str | None = None
    """The prompt it works on."""
    response: Any = None
    """What it came to."""
    status: str | None = None
    """How it ended: completed, cancelled, failed."""


class PlanPayload(Payload):
    """Planning."""

    plan: Any = None
    """The plan, once there is one."""


# -- context ---------------------------------------------------------------------------------------------------------


class MessagesPayload(Payload):
    """What the model will read."""

    messages: list[Any]
    """The conversation, oldest first."""


class ContextIncludePayload(Payload):
    """A source becomes part of the context."""

    path: str | None = None
    """The file or address it comes from."""


class CompactionPayload(Payload):
    """The context gets shorter."""

    trigger: str | None = None
    """What asked for it: manual or auto."""
    messages_before: NonNegativeInt | None = None
    """Messages before."""
    messages_after: NonNegativeInt | None = None
    """Messages after; unknown before it was done."""
    tokens_before: NonNegativeInt | None = None
    """Tokens before."""
    tokens_after: NonNegativeInt | None = None
    """Tokens after; unknown before it was done."""


# -- model -----------------------------------------------------------------------------------------------------------


class ModelCallPayload(MessagesPayload):
    """A model is about to be called."""

    model: str
    """Which model."""


class ModelResponsePayload(Payload):
    """A model has answered."""

    response: Any
    """The answer, tool calls included."""
    model: str | None = None
    """Which model."""
    usage: dict[str, Any] | None = None
    """Tokens, as the provider counts them."""
    duration_ms: Milliseconds | None = None
    """How long the call took."""


class ProviderPayload(Payload):
    """A model call as the loop or the provider's adapter sees it."""

    provider: str | None = None
    """Which provider."""
    model: str | None = None
    """Which model."""
    iteration: NonNegativeInt | None = None
    """Which round of the loop."""
    request_id: str | None = None
    """Joins a request with its response, retries and errors."""
    usage: dict[str, Any] | None = None
    """Tokens: input_tokens and output_tokens, where cached ones are counted cache_read_tokens, cache_write_tokens."""
    duration_ms: Milliseconds | None = None
    """How long the call took."""


class ProviderErrorPayload(ProviderPayload):
    """A provider call failed."""

    error: ErrorInfo | str | None = None
    """What went wrong."""
    attempt: NonNegativeInt | None = None
    """How many times it was tried."""
    delay: NonNegativeFloat | None = None
    """Seconds until it is tried again."""


class StreamPayload(Payload):
    """A piece of what a model is saying or thinking."""

    block_index: NonNegativeInt | None = None
    """Which content block of the response."""
    block_type: str | None = None
    """What the block holds: text, thinking, tool_use."""
    delta: Any = None
    """The new piece."""
    block: Any = None
    """The complete block, when it is complete."""


# -- tool ------------------------------------------------------------------------------------------------------------


class ToolResolutionPayload(Payload):
    """Which tools a response calls."""

    tool_calls: list[Any]
    """The calls, in the model's order."""


class ToolPayload(Payload):
    """One tool call."""

    tool_name: str
    """Which tool."""
    tool_call_id: str
    """Which call, as the model's response names it."""
    tool_input: Any
    """The arguments."""
    parallel_group_id: str | None = None
    """Calls of one response that run side by side share it."""


class ToolResultPayload(ToolPayload):
    """A tool ran."""

    result: Any
    """What it returned, as the model will see it."""
    duration_ms: Milliseconds
    """How long it ran."""


class ToolErrorPayload(ToolPayload):
    """A tool raised."""

    tool_input: Any = None
    """The arguments."""
    error: ErrorInfo
    """What it raised."""
    duration_ms: Milliseconds | None = None
    """How long it ran until then."""


# -- artifact and memory ---------------------------------------------------------------------------------------------


class ArtifactPayload(Payload):
    """Something an agent keeps in a place of its own."""

    path: str
    """Where."""
    bytes: NonNegativeInt | None = None
    """How much."""


class MemoryPayload(Payload):
    """Something is to be remembered."""

    content: Any
    """What."""
    key: str | None = None
    """Under which name."""
    metadata: dict[str, Any] | None = None
    """What else is known about it."""


class MemoryResultPayload(MemoryPayload):
    """Something was remembered."""

    result: Any = None
    """What the store said."""
    duration_ms: Milliseconds | None = None
    """How long it took."""


# -- agent -----------------------------------------------------------------------------------------------------------


class OrchestratorPayload(Payload):
    """A turn's loop is done."""

    orchestrator: str
    """Which orchestrator."""
    turn_count: NonNegativeInt
    """How many rounds it took."""
    duration_ms: Milliseconds
    """How long it took."""
    status: str
    """How it ended: success, cancelled, incomplete, error."""


class AgentPayload(Payload):
    """An agent is about to be invoked."""

    agent_name: str
    """Which agent."""
    inputs: dict[str, Any]
    """What it is given, already checked."""
    system_prompt: str | None = None
    """Its instructions."""
    agent_definition: Any = None
    """What is known about it."""
    model: str | None = None
    """The model it uses."""


class AgentResultPayload(AgentPayload):
    """An agent was invoked."""

    result: Any = None
    """What it returned."""
    duration_ms: Milliseconds | None = None
    """How long it took."""


class AgentStopPayload(Payload):
    """An agent wants to stop."""

    agent_name: str | None = None
    """Which agent."""
    response: Any = None
    """Its last word."""
    stop_hook_active: bool = False
    """It goes on only because a hook refused an earlier stop: refusing for ever is a loop."""


class SubagentPayload(Payload):
    """A sub-agent."""

    agent_name: str | None = None
    """Which agent."""
    agent_id: str | None = None
    """This one among several of the same name."""
    agent_type: str | None = None
    """What kind of agent."""
    parent: str | None = None
    """The session that started it."""


class SubagentStopPayload(SubagentPayload, AgentStopPayload):
    """A sub-agent wants to stop."""


# -- workflow --------------------------------------------------------------------------------------------------------


class WorkflowPayload(Payload):
    """A step is about to run."""

    workflow_name: str
    """Which workflow."""
    step_id: str
    """Which step."""
    step_action: str | None = None
    """What the step does."""
    inputs: dict[str, Any]
    """What it is given."""
    state: dict[str, Any] | None = None
    """The workflow's state at this moment; a copy."""


class WorkflowResultPayload(WorkflowPayload):
    """A step is over."""

    result: Any = None
    """What came out."""
    status: str | None = None
    """How it ended."""
    duration_ms: Milliseconds | None = None
    """How long it took, retries included."""


# -- where there may be no session -----------------------------------------------------------------------------------


class RequestPayload(SessionlessPayload):
    """An HTTP request came in."""

    method: str
    """GET, POST …"""
    path: str
    """The path, without the query."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Header names in lower case."""
    body: Any = None
    """The body, where it was read."""


class ResponsePayload(RequestPayload):
    """An HTTP response is about to go out."""

    status_code: int
    """The status."""
    response_headers: dict[str, str] = Field(default_factory=dict)
    """Header names in lower case."""
    duration_ms: Milliseconds | None = None
    """How long it took."""


class RunPayload(SessionlessPayload):
    """A run."""

    run_id: str
    """Which run."""
    agent_name: str
    """The agent that runs."""
    parameters: dict[str, Any]
    """What it runs with."""


class RunResultPayload(RunPayload):
    """A run has a result."""

    result_text: str | None = None
    """The result of an agent without an output schema; `result_data` is null then."""
    result_data: Any = None
    """The result of an agent with one; `result_text` is null then."""
    status: str | None = None
    """completed, failed or stopped."""
    error: ErrorInfo | str | None = None
    """Why it failed."""


class RunErrorPayload(RunPayload):
    """A run failed or took too long."""

    error: ErrorInfo | str
    """Why."""


# -- people ----------------------------------------------------------------------------------------------------------


class NotificationPayload(Payload):
    """The user is needed or should know."""

    message: str
    """What to say."""
    level: str = "info"
    """info, warning or error."""
    source: str | None = None
    """Who says it."""


class PolicyViolationPayload(Payload):
    """A policy stopped something."""

    policy: str | None = None
    """Which policy, hook or rule."""
    reason: str | None = None
    """Why."""
    event: str | None = None
    """The event at which it was stopped."""
    tool_name: str | None = None
    """The tool, if it was a tool call."""


class ApprovalPayload(Payload):
    """Somebody has to decide."""

    approval_id: str | None = None
    """Which request."""
    hook: str | None = None
    """The hook that asks."""
    event: str | None = None
    """The event at which it asks."""
    tool_name: str | None = None
    """The tool, if it is a tool call."""
    tool_call_id: str | None = None
    """The call, if it is a tool call."""
    tool_input: Any = None
    """The arguments to be approved."""
    digest: str | None = None
    """Of exactly these arguments."""
    prompt: str | None = None
    """The question."""
    options: list[Any] | None = None
    """The answers offered."""
    risk: str | None = None
    """The risk: low, medium or high, the highest word of hooks, rules and the host."""
    risk_reasons: list[Any] | None = None
    """Every reason for the risk, each with `by` and `reason`."""
    expires: Timestamp | None = None
    """Until when it can be decided."""


class ApprovalDecisionPayload(ApprovalPayload):
    """Somebody has decided, or nobody has in time."""

    option: str | None = None
    """The answer chosen."""
    decided_by: str | None = None
    """Who, or which rule."""
    channel: str | None = None
    """Where: terminal, web …"""
    reason: str | None = None
    """Why."""
    duration_ms: Milliseconds | None = None
    """How long it took."""


class CancelPayload(Payload):
    """The session is to stop, or has stopped."""

    reason: str | None = None
    """Why."""
    was_immediate: bool | None = None
    """Whether running work was broken off."""
    error: ErrorInfo | str | None = None
    """What went wrong while stopping."""


class ErrorPayload(Payload):
    """Something went wrong."""

    error: ErrorInfo
    """What."""


# -- the system about itself -----------------------------------------------------------------------------------------


class HookPayload(SessionlessPayload):
    """A hook and what it is about to do."""

    hook_name: str | None = None
    """Which hook."""
    event: str | None = None
    """The event at which it runs."""
    event_type: str | None = None
    """What is told here, for readers of one stream of everything: hook_start, hook_complete …"""
    hook_type: str | None = None
    """For the hooks of a run which of the two: on_run_start, on_run_finish. Else the kind: python, command …"""
    target_type: str | None = None
    """What carries it out: agent, http, python …"""
    target_name: str | None = None
    """Which one: the agent's name, the address, the function."""


class HookCompletePayload(HookPayload):
    """A hook has answered."""

    duration_ms: Milliseconds
    """How long it took."""
    action: str | None = None
    """Its answer; None where it could give none."""


class HookFailedPayload(HookPayload):
    """A hook failed or took too long."""

    error: ErrorInfo | str
    """What went wrong."""
    on_error_behavior: str | None = None
    """What that means: the operation is denied or goes on."""
    duration_ms: Milliseconds | None = None
    """How long it ran until then."""


class HookBlockedPayload(HookPayload):
    """A hook stopped something."""

    block_reason: str | None = None
    """Why."""
    duration_ms: Milliseconds | None = None
    """How long it took."""


class ModuleFailedPayload(SessionlessPayload):
    """A module did not load or did not become ready."""

    module_id: str
    """Which module."""
    error: ErrorInfo | str | None = None
    """What went wrong."""
