"""The payloads of events: one model per shape, shared by the events that have it.

```
Payload                     session, time and identity: part of every event
├── SessionPayload          session:start/end/resume        └── SessionForkPayload
├── PromptPayload           prompt:submit                   └── PromptCompletePayload
├── MessagesPayload         context:assembled               └── ModelCallPayload         llm:pre
├── ToolPayload             tool:pre                        ├── ToolResultPayload        tool:post
│                                                           └── ToolErrorPayload         tool:error
├── …                       one family for each domain, in the order of the catalogue
└── SessionlessPayload      request:*, run:*, hook:*, module:*: there may be no session, or not yet
```

The catalogue names these models, and `events.payload_model(name)` returns them. A model describes the least that a
payload holds: more fields are welcome and are kept. Hooks receive plain dicts; the models serve documentation, dry
runs and all data from outside. Load this module through `payload_model`, because it imports pydantic.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt


def _check_utc(text: str) -> str:
    """Accept a moment in ISO 8601 and UTC, and return its text unchanged."""
    if datetime.fromisoformat(text).utcoffset() != timedelta(0):
        msg = "a timestamp is ISO 8601 in UTC, such as 2026-01-31T12:00:00+00:00"
        raise ValueError(msg)
    return text


_Timestamp = Annotated[str, AfterValidator(_check_utc), Field(json_schema_extra={"format": "date-time"})]
_Milliseconds = NonNegativeFloat


class _Described(BaseModel):
    """A frozen model that is open for more fields. The text under a field becomes its description."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)


class ErrorInfo(_Described):
    """An error: its type and its message."""

    type: str
    """The exception's class, or a provider's error code."""
    message: str = Field(validation_alias=AliasChoices("message", "msg"))
    """The error's text, for people. Orchestrators of the upstream kernel call it `msg`; both are read."""


# -- every event -----------------------------------------------------------------------------------------------------


class Payload(_Described):
    """Fields of every event. The coordinator fills them in."""

    session_id: str = Field(min_length=1)
    """The session in which the event happens."""
    timestamp: _Timestamp
    """The time of the event: ISO 8601, UTC."""
    tenant_id: str | None = None
    """The tenant on whose behalf the session acts."""
    run_id: str | None = None
    """The run the session belongs to."""
    turn: NonNegativeInt | None = None
    """The number of the turn in the session."""
    agent: str | None = None
    """The agent at work; the path of a sub-agent begins with its parents."""
    cwd: str | None = None
    """The folder in which the event happens; the paths of a call are resolved there."""
    root: str | None = None
    """The session's root; the relative patterns of hooks and rules begin there."""
    event_id: str | None = None
    """The id of this event, and of no other."""
    parent_id: str | None = None
    """The parent session of a child, or the event from which this one follows."""


class SessionlessPayload(Payload):
    """Fields of an event that may happen without a session."""

    session_id: str = ""
    """The session, or empty if there is none."""


# -- session ---------------------------------------------------------------------------------------------------------


class SessionPayload(Payload):
    """A session begins, ends or goes on."""

    source: str | None = None
    """The cause of the beginning: startup, resume, clear …"""
    reason: str | None = None
    """The reason for the end."""


class SessionForkPayload(SessionPayload):
    """A session starts as a child."""

    parent: str | None = None
    """The session from which this one was forked."""


# -- prompt and turn -------------------------------------------------------------------------------------------------


class PromptPayload(Payload):
    """A prompt of the user."""

    prompt: str
    """The user's words."""


class PromptCompletePayload(PromptPayload):
    """A turn is over and stored."""

    response: Any = None
    """The agent's last words in the turn."""


class ExecutionPayload(Payload):
    """An orchestrator's work on one prompt."""

    prompt: str | None = None
    """The prompt under work."""
    response: Any = None
    """The result of the work."""
    status: str | None = None
    """The end of the work: completed, cancelled, failed."""


class PlanPayload(Payload):
    """A plan of an orchestrator, from its start to its end."""

    plan: Any = None
    """The plan, once there is one."""


# -- context ---------------------------------------------------------------------------------------------------------


class MessagesPayload(Payload):
    """The messages that the model will read."""

    messages: list[Any]
    """The conversation, oldest first."""


class ContextIncludePayload(Payload):
    """A source becomes part of the context."""

    path: str | None = None
    """The file or address of the source."""


class CompactionPayload(Payload):
    """The context gets shorter."""

    trigger: str | None = None
    """The trigger of the compaction: manual or auto."""
    messages_before: NonNegativeInt | None = None
    """Number of messages before the compaction."""
    messages_after: NonNegativeInt | None = None
    """Number of messages after the compaction; unknown until it is done."""
    tokens_before: NonNegativeInt | None = None
    """Number of tokens before the compaction."""
    tokens_after: NonNegativeInt | None = None
    """Number of tokens after the compaction; unknown until it is done."""


# -- model -----------------------------------------------------------------------------------------------------------


class ModelCallPayload(MessagesPayload):
    """A model is about to be called."""

    model: str
    """The name of the model."""


class ModelResponsePayload(Payload):
    """A model has answered."""

    response: Any
    """The answer, tool calls included."""
    model: str | None = None
    """The name of the model."""
    usage: dict[str, Any] | None = None
    """Tokens, as the provider counts them."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the call took."""


class ProviderPayload(Payload):
    """A model call as the loop or the provider's adapter sees it."""

    provider: str | None = None
    """The name of the provider."""
    model: str | None = None
    """The name of the model."""
    iteration: NonNegativeInt | None = None
    """The number of the round in the loop."""
    request_id: str | None = None
    """An id that joins a request with its response, retries and errors."""
    usage: dict[str, Any] | None = None
    """Tokens: input_tokens and output_tokens, where cached ones are counted cache_read_tokens, cache_write_tokens."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the call took."""


class ProviderErrorPayload(ProviderPayload):
    """A provider call failed."""

    error: ErrorInfo | str | None = None
    """The failure of the call."""
    attempt: NonNegativeInt | None = None
    """The number of attempts so far."""
    delay: NonNegativeFloat | None = None
    """Seconds until the next attempt."""


class StreamPayload(Payload):
    """A piece of a model's text or thinking."""

    block_index: NonNegativeInt | None = None
    """The index of the content block in the response."""
    block_type: str | None = None
    """The content of the block: text, thinking, tool_use."""
    delta: Any = None
    """The new piece."""
    block: Any = None
    """The complete block, once it is complete."""


# -- tool ------------------------------------------------------------------------------------------------------------


class ToolResolutionPayload(Payload):
    """The tool calls of a response."""

    tool_calls: list[Any]
    """The calls, in the model's order."""


class ToolPayload(Payload):
    """One tool call."""

    tool_name: str
    """The name of the tool."""
    tool_call_id: str
    """The id of the call, as in the model's response."""
    tool_input: Any
    """The arguments of the call."""
    parallel_group_id: str | None = None
    """An id that calls of one response share if they run side by side."""


class ToolResultPayload(ToolPayload):
    """A tool ran."""

    result: Any
    """The tool's return value, as the model will see it."""
    duration_ms: _Milliseconds
    """_Milliseconds that the tool ran."""


class ToolErrorPayload(ToolPayload):
    """A tool raised."""

    tool_input: Any = None
    """The arguments of the call."""
    error: ErrorInfo
    """The exception that the tool raised."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the tool ran until it raised."""


# -- artifact and memory ---------------------------------------------------------------------------------------------


class ArtifactPayload(Payload):
    """An artifact that an agent keeps in a store of its own."""

    path: str
    """The path of the artifact."""
    bytes: NonNegativeInt | None = None
    """The size of the artifact in bytes."""


class MemoryPayload(Payload):
    """A content that is about to be stored in memory."""

    content: Any
    """The content to store."""
    key: str | None = None
    """The name under which the content is stored."""
    metadata: dict[str, Any] | None = None
    """More facts about the content."""


class MemoryResultPayload(MemoryPayload):
    """A content that was stored in memory."""

    result: Any = None
    """The store's answer."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that storing took."""


# -- agent -----------------------------------------------------------------------------------------------------------


class OrchestratorPayload(Payload):
    """The loop of a turn is done."""

    orchestrator: str
    """The name of the orchestrator."""
    turn_count: NonNegativeInt
    """The number of rounds that the loop took."""
    duration_ms: _Milliseconds
    """_Milliseconds that the loop took."""
    status: str
    """The end of the loop: success, cancelled, incomplete, error."""


class AgentPayload(Payload):
    """An agent is about to be invoked."""

    agent_name: str
    """The name of the agent."""
    inputs: dict[str, Any]
    """The agent's inputs, already checked."""
    system_prompt: str | None = None
    """The agent's instructions."""
    agent_definition: Any = None
    """The agent's definition."""
    model: str | None = None
    """The model that the agent uses."""


class AgentResultPayload(AgentPayload):
    """An agent was invoked."""

    result: Any = None
    """The agent's return value."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the invocation took."""


class AgentStopPayload(Payload):
    """An agent wants to stop."""

    agent_name: str | None = None
    """The name of the agent."""
    response: Any = None
    """The agent's last words."""
    stop_hook_active: bool = False
    """True if the agent goes on only because a hook refused an earlier stop: refusing for ever is a loop."""


class SubagentPayload(Payload):
    """A sub-agent."""

    agent_name: str | None = None
    """The name of the sub-agent."""
    agent_id: str | None = None
    """The id of the sub-agent among several of its name."""
    agent_type: str | None = None
    """The type of the sub-agent."""
    parent: str | None = None
    """The session that started the sub-agent."""


class SubagentStopPayload(SubagentPayload, AgentStopPayload):
    """A sub-agent wants to stop."""


# -- workflow --------------------------------------------------------------------------------------------------------


class WorkflowPayload(Payload):
    """A workflow step is about to run."""

    workflow_name: str
    """The name of the workflow."""
    step_id: str
    """The id of the step."""
    step_action: str | None = None
    """The action of the step."""
    inputs: dict[str, Any]
    """The inputs of the step."""
    state: dict[str, Any] | None = None
    """A copy of the workflow's state at this moment."""


class WorkflowResultPayload(WorkflowPayload):
    """A workflow step is over."""

    result: Any = None
    """The result of the step."""
    status: str | None = None
    """The status at the end of the step."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the step took, retries included."""


# -- where there may be no session -----------------------------------------------------------------------------------


class RequestPayload(SessionlessPayload):
    """An HTTP request came in."""

    method: str
    """The HTTP method: GET, POST …"""
    path: str
    """The path, without the query."""
    headers: dict[str, str] = Field(default_factory=dict)
    """The headers of the request, with names in lower case."""
    body: Any = None
    """The body, where it was read."""


class ResponsePayload(RequestPayload):
    """An HTTP response is about to go out."""

    status_code: int
    """The HTTP status of the response."""
    response_headers: dict[str, str] = Field(default_factory=dict)
    """The headers of the response, with names in lower case."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that handling the request took."""


class RunPayload(SessionlessPayload):
    """A run."""

    run_id: str
    """The id of the run."""
    agent_name: str
    """The name of the agent that runs."""
    parameters: dict[str, Any]
    """The parameters of the run."""


class RunResultPayload(RunPayload):
    """A run has a result."""

    result_text: str | None = None
    """The result of an agent without an output schema; `result_data` is null then."""
    result_data: Any = None
    """The result of an agent with an output schema; `result_text` is null then."""
    status: str | None = None
    """The status of the run: completed, failed or stopped."""
    error: ErrorInfo | str | None = None
    """The reason for the failure."""


class RunErrorPayload(RunPayload):
    """A run failed or took too long."""

    error: ErrorInfo | str
    """The reason for the failure."""


# -- people ----------------------------------------------------------------------------------------------------------


class NotificationPayload(Payload):
    """The user is needed or should know something."""

    message: str
    """The text for the user."""
    level: str = "info"
    """The level of the message: info, warning or error."""
    source: str | None = None
    """The source of the message."""


class PolicyViolationPayload(Payload):
    """A policy stopped something."""

    policy: str | None = None
    """The policy, hook or rule that stopped it."""
    reason: str | None = None
    """The reason for stopping it."""
    event: str | None = None
    """The event at which it was stopped."""
    tool_name: str | None = None
    """The tool, if it was a tool call."""


class ApprovalPayload(Payload):
    """An approver has to decide."""

    approval_id: str | None = None
    """The id of the request."""
    hook: str | None = None
    """The hook that asks."""
    event: str | None = None
    """The event at which the hook asks."""
    tool_name: str | None = None
    """The tool, if it is a tool call."""
    tool_call_id: str | None = None
    """The call, if it is a tool call."""
    tool_input: Any = None
    """The arguments to be approved."""
    digest: str | None = None
    """The digest of exactly these arguments."""
    prompt: str | None = None
    """The question."""
    options: list[Any] | None = None
    """The options for the approver."""
    risk: str | None = None
    """The risk: low, medium or high, the highest word of hooks, rules and the host."""
    risk_reasons: list[Any] | None = None
    """Every reason for the risk, each with `by` and `reason`."""
    impacts: list[Any] | None = None
    """Everything that the call would do, each with `kind`, `place` and `reason`."""
    expires: _Timestamp | None = None
    """Time until which the request can be decided."""


class ApprovalDecisionPayload(ApprovalPayload):
    """An approver has decided, or the time to decide is up."""

    option: str | None = None
    """The option that was chosen."""
    decided_by: str | None = None
    """The approver or the rule that decided."""
    channel: str | None = None
    """The channel of the decision: terminal, web …"""
    reason: str | None = None
    """The reason for the decision."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds from the request to the decision."""


class CancelPayload(Payload):
    """The session is to stop, or has stopped."""

    reason: str | None = None
    """The reason for stopping."""
    was_immediate: bool | None = None
    """True if running work was broken off."""
    error: ErrorInfo | str | None = None
    """An error that happened while stopping."""


class ErrorPayload(Payload):
    """An error happened."""

    error: ErrorInfo
    """The error's type and message."""


# -- the system about itself -----------------------------------------------------------------------------------------


class HookPayload(SessionlessPayload):
    """A hook and its target."""

    hook_name: str | None = None
    """The name of the hook."""
    event: str | None = None
    """The event at which it runs."""
    event_type: str | None = None
    """The type of this report, for readers of one stream of everything: hook_start, hook_complete …"""
    hook_type: str | None = None
    """The event of a run's hook: on_run_start, on_run_finish. For other hooks the kind: python, command …"""
    target_type: str | None = None
    """The type of the target that runs the hook: agent, http, python …"""
    target_name: str | None = None
    """The target: the agent's name, the address, the function."""


class HookCompletePayload(HookPayload):
    """A hook has answered."""

    duration_ms: _Milliseconds
    """_Milliseconds that the hook took."""
    action: str | None = None
    """The action of the hook's answer; None where it could give none."""
    would: str | None = None
    """The action that a report-only hook would have taken; nothing followed from it."""


class HookFailedPayload(HookPayload):
    """A hook failed or took too long."""

    error: ErrorInfo | str
    """The failure of the hook."""
    on_error_behavior: str | None = None
    """The effect of the failure: the operation is denied or goes on."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the hook ran until it failed."""


class HookBlockedPayload(HookPayload):
    """A hook stopped something."""

    block_reason: str | None = None
    """The hook's reason."""
    duration_ms: _Milliseconds | None = None
    """_Milliseconds that the hook took."""


class ModuleFailedPayload(SessionlessPayload):
    """A module did not load or did not become ready."""

    module_id: str
    """The id of the module."""
    error: ErrorInfo | str | None = None
    """The failure of the module."""
