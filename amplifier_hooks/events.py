"""The catalogue of events: one row per event, with its names in all five vocabularies.

```
find("PreToolUse")       the row of tool:pre                  CATALOGUE   all rows, in the order a session meets them
canonical("onIntake")    "prompt:submit"                      ALL_EVENTS  their canonical names
likely("tool:pree")      "tool:pre", for a warning            TOOL_PRE …  a constant for each
alike("TOOL:PRE")        "tool:pre", for a refusal
suggestion("tool:befor") "tool:pre", for a hint
spellings("tool:pre")    every name of that event
payload_model(name)      the pydantic model of its payload, loaded on first use
```

A row tells when the event fires, its payload, whether a hook can stop what comes next, the answers that have an effect
there, and the event's names in five vocabularies. Hooks always receive the canonical name.

Three columns depend on each other, and a test checks them: an event is a gate exactly when it accepts `deny`, accepts a
modification exactly when it names the field that is replaced, and can ask only where it can stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_hooks.payloads import Payload

# -- constants: one per row, named as the event is -------------------------------------------------------------------

SESSION_START: Final = "session:start"
SESSION_END: Final = "session:end"
SESSION_FORK: Final = "session:fork"
SESSION_RESUME: Final = "session:resume"
PROMPT_SUBMIT: Final = "prompt:submit"
PROMPT_COMPLETE: Final = "prompt:complete"
EXECUTION_START: Final = "execution:start"
EXECUTION_END: Final = "execution:end"
PLAN_START: Final = "plan:start"
PLAN_END: Final = "plan:end"
CONTEXT_ASSEMBLED: Final = "context:assembled"
CONTEXT_INCLUDE: Final = "context:include"
CONTEXT_PRE_COMPACT: Final = "context:pre_compact"
CONTEXT_COMPACTION: Final = "context:compaction"
CONTEXT_POST_COMPACT: Final = "context:post_compact"
LLM_PRE: Final = "llm:pre"
LLM_REQUEST: Final = "llm:request"
LLM_RESPONSE: Final = "llm:response"
LLM_POST: Final = "llm:post"
PROVIDER_RESOLVE: Final = "provider:resolve"
PROVIDER_REQUEST: Final = "provider:request"
PROVIDER_RESPONSE: Final = "provider:response"
PROVIDER_RETRY: Final = "provider:retry"
PROVIDER_THROTTLE: Final = "provider:throttle"
PROVIDER_ERROR: Final = "provider:error"
PROVIDER_TOOL_SEQUENCE_REPAIRED: Final = "provider:tool_sequence_repaired"
CONTENT_BLOCK_START: Final = "content_block:start"
CONTENT_BLOCK_DELTA: Final = "content_block:delta"
CONTENT_BLOCK_END: Final = "content_block:end"
THINKING_DELTA: Final = "thinking:delta"
THINKING_FINAL: Final = "thinking:final"
DECISION_TOOL_RESOLUTION: Final = "decision:tool_resolution"
TOOL_PRE: Final = "tool:pre"
TOOL_POST: Final = "tool:post"
TOOL_ERROR: Final = "tool:error"
ARTIFACT_READ: Final = "artifact:read"
ARTIFACT_WRITE: Final = "artifact:write"
MEMORY_PRE: Final = "memory:pre"
MEMORY_POST: Final = "memory:post"
ORCHESTRATOR_COMPLETE: Final = "orchestrator:complete"
AGENT_PRE: Final = "agent:pre"
AGENT_POST: Final = "agent:post"
AGENT_STOP: Final = "agent:stop"
SUBAGENT_START: Final = "subagent:start"
SUBAGENT_STOP: Final = "subagent:stop"
WORKFLOW_PRE: Final = "workflow:pre"
WORKFLOW_POST: Final = "workflow:post"
REQUEST_PRE: Final = "request:pre"
REQUEST_POST: Final = "request:post"
RUN_START: Final = "run:start"
RUN_RESULT: Final = "run:result"
RUN_FINISH: Final = "run:finish"
RUN_ERROR: Final = "run:error"
RUN_TIMEOUT: Final = "run:timeout"
USER_NOTIFICATION: Final = "user:notification"
POLICY_VIOLATION: Final = "policy:violation"
APPROVAL_REQUIRED: Final = "approval:required"
APPROVAL_GRANTED: Final = "approval:granted"
APPROVAL_DENIED: Final = "approval:denied"
APPROVAL_EXPIRED: Final = "approval:expired"
CANCEL_REQUESTED: Final = "cancel:requested"
CANCEL_COMPLETED: Final = "cancel:completed"
ERROR_TOOL: Final = "error:tool"
ERROR_PROVIDER: Final = "error:provider"
ERROR_ORCHESTRATOR: Final = "error:orchestrator"
HOOK_START: Final = "hook:start"
HOOK_COMPLETE: Final = "hook:complete"
HOOK_FAILED: Final = "hook:failed"
HOOK_BLOCKED: Final = "hook:blocked"
HOOK_TIMEOUT: Final = "hook:timeout"
MODULE_LOAD_FAILED: Final = "module:load_failed"
MODULE_ON_SESSION_READY_FAILED: Final = "module:on_session_ready_failed"

# -- constants of the middleware's names; hooks receive the canonical name, so a constant has it -----------------------

AGENT_INVOKE_PRE: Final = AGENT_PRE
AGENT_INVOKE_POST: Final = AGENT_POST
TOOL_EXECUTE_PRE: Final = TOOL_PRE
TOOL_EXECUTE_POST: Final = TOOL_POST
WORKFLOW_STEP_PRE: Final = WORKFLOW_PRE
WORKFLOW_STEP_POST: Final = WORKFLOW_POST
MEMORY_STORE_PRE: Final = MEMORY_PRE
MEMORY_STORE_POST: Final = MEMORY_POST
LLM_CALL_PRE: Final = LLM_PRE
LLM_CALL_POST: Final = LLM_POST

_EVERYWHERE: Final = (
    "session_id",
    "timestamp",
    "tenant_id",
    "run_id",
    "turn",
    "agent",
    "cwd",
    "root",
    "event_id",
    "parent_id",
)
_WHICH_ONE: Final = (
    *("tool_name", "tool_call_id", "parallel_group_id", "agent_id", "agent_name", "workflow_name", "step_id"),
    *("request_id", "approval_id"),
)
IDENTITY_FIELDS: Final = frozenset({*_EVERYWHERE, *_WHICH_ONE})
"""Payload fields that identify the event and its parts. A modification that changes one is an invalid answer."""

GOES_ON_WHEN_DENIED: Final = frozenset({AGENT_STOP, SUBAGENT_STOP})
"""Gates in front of a *stop*: if a hook denies the stop, the agent goes on with the reason as its instruction.

A denial for safety and not for a reason (an emergency stop, a gate that failed) must leave these events out, because it
would set the agent going again.
"""


class Event(msgspec.Struct, frozen=True):
    """One row of the catalogue.

    `privileged` events carry or change the texts that the model reads and writes; they are for built-in hooks and for
    plugins that were granted `privileged_hooks`. At `llm:pre`, and around the model call, only hooks that can change
    something there (`on`, `gate`, `register`, `around`) need the grant; at the other events every hook needs it.
    """

    name: str
    """The canonical name, `domain:phase`."""
    payload: str = "Payload"
    """The model in `payloads.py` that describes the data; extra fields are allowed."""
    answers: frozenset[str] = frozenset({"continue"})
    """The actions of a HookResult that have an effect at this event."""
    fires: str = ""
    """The moment at which the event fires, in one sentence."""
    replaces: str | None = None
    """The payload field that a modification replaces, and the one that a bare value stands for."""
    also_replaces: tuple[str, ...] = ()
    """More fields that a modification may set."""
    privileged: bool = False
    """True if only built-in hooks, and plugins that were granted `privileged_hooks`, may stand here."""
    keeps: frozenset[str] = frozenset()
    """Fields that a modification may not change, of identity or of the payload. All other fields are custom."""
    middleware: tuple[str, ...] = ()
    """The names in the middleware vocabulary."""
    loop: tuple[str, ...] = ()
    """The names in the vocabulary of agent loops."""
    run: tuple[str, ...] = ()
    """The names in the vocabulary of runs."""
    claude_code: tuple[str, ...] = ()
    """The names in the vocabulary of Claude Code."""

    def __post_init__(self) -> None:
        if not self.keeps:
            known = IDENTITY_FIELDS.union(_FIELDS.get(self.payload, "").split())
            force_setattr(self, "keeps", known.difference((self.replaces, *self.also_replaces)))

    @property
    def gate(self) -> bool:
        """True if a hook may stop what comes next."""
        return "deny" in self.answers

    @property
    def names(self) -> tuple[str, ...]:
        """The event's names in the five vocabularies, the canonical one first."""
        return (self.name, *self.middleware, *self.loop, *self.run, *self.claude_code)

    @property
    def spellings(self) -> tuple[str, ...]:
        """The names, and more spellings of the canonical one (`tool_pre`) and of Claude Code's (`preToolUse`)."""
        written = [self.name.replace(":", "_"), self.name.replace(":", ".")]
        for name in self.claude_code:
            written += [name[0].lower() + name[1:], _snake(name)]
        return tuple(dict.fromkeys((*self.names, *written)))


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


# The fields of each payload besides the identity fields. The models have them, too, but need pydantic.
# fmt: off
_FIELDS: Final[Mapping[str, str]] = {
    "SessionPayload": "source reason",
    "SessionForkPayload": "source reason parent",
    "PromptPayload": "prompt",
    "PromptCompletePayload": "prompt response",
    "ExecutionPayload": "prompt response status",
    "PlanPayload": "plan",
    "MessagesPayload": "messages",
    "ContextIncludePayload": "path",
    "CompactionPayload": "trigger messages_before messages_after tokens_before tokens_after",
    "ModelCallPayload": "messages model",
    "ProviderPayload": "provider model iteration usage duration_ms",
    "ModelResponsePayload": "response model usage duration_ms",
    "ProviderErrorPayload": "provider model iteration usage duration_ms error attempt delay",
    "StreamPayload": "block_index block_type delta block",
    "ToolResolutionPayload": "tool_calls",
    "ToolPayload": "tool_input",
    "ToolResultPayload": "tool_input result duration_ms",
    "ToolErrorPayload": "tool_input error duration_ms",
    "ArtifactPayload": "path bytes",
    "MemoryPayload": "content key metadata",
    "MemoryResultPayload": "content key metadata result duration_ms",
    "OrchestratorPayload": "orchestrator turn_count duration_ms status",
    "AgentPayload": "inputs system_prompt agent_definition model",
    "AgentResultPayload": "inputs system_prompt agent_definition model result duration_ms",
    "AgentStopPayload": "response stop_hook_active",
    "SubagentPayload": "agent_type parent",
    "SubagentStopPayload": "response stop_hook_active agent_type parent",
    "WorkflowPayload": "step_action inputs state",
    "WorkflowResultPayload": "step_action inputs state result status duration_ms",
    "RequestPayload": "method path headers body",
    "ResponsePayload": "method path headers body status_code response_headers duration_ms",
    "RunPayload": "parameters",
    "RunResultPayload": "parameters result_text result_data status error",
    "RunErrorPayload": "parameters error",
    "NotificationPayload": "message level source",
    "PolicyViolationPayload": "policy reason event",
    "ApprovalPayload": "hook event tool_input digest prompt options risk risk_reasons impacts expires",
    "ApprovalDecisionPayload":
        "hook event tool_input digest prompt options risk risk_reasons impacts expires option decided_by channel "
        "reason duration_ms",
    "CancelPayload": "reason was_immediate error",
    "ErrorPayload": "error",
    "HookPayload": "hook_name event event_type hook_type target_type target_name",
    "HookCompletePayload": "hook_name event event_type hook_type target_type target_name duration_ms action would",
    "HookFailedPayload":
        "hook_name event event_type hook_type target_type target_name error on_error_behavior duration_ms",
    "HookBlockedPayload": "hook_name event event_type hook_type target_type target_name block_reason duration_ms",
    "ModuleFailedPayload": "module_id error",
}
# fmt: on

# The actions of a hook at an event, from least to most. Messages for the user are shown everywhere.
_LISTEN: Final = frozenset({"continue"})
_TELL: Final = _LISTEN | {"inject_context"}
_STOP: Final = _TELL | {"deny"}
_ASK: Final = _STOP | {"ask_user"}
_ALL: Final = _ASK | {"modify"}
_CHANGE: Final = _TELL | {"modify"}  # an act that is over cannot be stopped
# The actions outside a session, where there is no context to add to and no approver to ask.
_ADMIT: Final = frozenset({"continue", "deny"})
_ADMIT_CHANGED: Final = _ADMIT | {"modify"}
_ANSWER: Final = frozenset({"continue", "modify"})

# A table, kept by hand: name, payload, actions of a hook, moment of firing, the field it replaces, other names.
# fmt: off
CATALOGUE: Final[tuple[Event, ...]] = (
    # session: never a gate, as in every agent program; prompt:submit is the first gate
    Event(SESSION_START, "SessionPayload", _TELL, "When a session begins, before its first prompt.",
          claude_code=("SessionStart",)),
    Event(SESSION_END, "SessionPayload", _LISTEN, "When a session ends, before its record is closed.",
          claude_code=("SessionEnd",)),
    Event(SESSION_FORK, "SessionForkPayload", _TELL, "When a session starts as the child of another."),
    Event(SESSION_RESUME, "SessionPayload", _TELL, "When an earlier session is continued."),

    # prompt: the two ends of a turn
    Event(PROMPT_SUBMIT, "PromptPayload", _ALL, "Before a prompt enters the context and a turn begins.", "prompt",
          loop=("onIntake",), claude_code=("UserPromptSubmit",)),
    Event(PROMPT_COMPLETE, "PromptCompletePayload", _TELL, "Last in a turn, after the turn is stored.",
          loop=("onTurnComplete",)),
    Event(EXECUTION_START, "ExecutionPayload", _TELL, "When an orchestrator starts working on a prompt."),
    Event(EXECUTION_END, "ExecutionPayload", _TELL, "When an orchestrator stops working on a prompt."),
    Event(PLAN_START, "PlanPayload", _TELL, "When an orchestrator starts to plan."),
    Event(PLAN_END, "PlanPayload", _TELL, "When a plan is ready."),

    # context: the messages that the model will read
    Event(CONTEXT_ASSEMBLED, "MessagesPayload", _ALL, "When the messages for a model call are put together.",
          "messages", privileged=True, loop=("onContextAssembled",)),
    Event(CONTEXT_INCLUDE, "ContextIncludePayload", _TELL,
          "When a file or another source becomes part of the context."),
    Event(CONTEXT_PRE_COMPACT, "CompactionPayload", _STOP, "Before the context is shortened.",
          claude_code=("PreCompact",)),
    Event(CONTEXT_COMPACTION, "CompactionPayload", _TELL, "When the context is being shortened."),
    Event(CONTEXT_POST_COMPACT, "CompactionPayload", _TELL, "After the context was shortened.",
          claude_code=("PostCompact",)),

    # llm: one model call. request and response report the traffic on the wire, too late to change or stop it
    Event(LLM_PRE, "ModelCallPayload", _ALL, "Before a model is called.", "messages",
          also_replaces=("model",), privileged=True, middleware=("llm.call.pre",)),
    Event(LLM_REQUEST, "ProviderPayload", _LISTEN, "When a request goes to a model's API."),
    Event(LLM_RESPONSE, "ProviderPayload", _LISTEN, "When a model's API has answered."),
    Event(LLM_POST, "ModelResponsePayload", _ALL, "After a model answered, before its tool calls run.", "response",
          privileged=True, middleware=("llm.call.post",), loop=("onModelResponse",)),

    # provider: a model call as seen by loops that talk to providers. At their request event hooks may add context or
    # stop the iteration, so it is a gate here, too
    Event(PROVIDER_RESOLVE, "ProviderPayload", _LISTEN, "When a provider and model are chosen."),
    Event(PROVIDER_REQUEST, "ProviderPayload", _ASK, "Before an orchestrator turns to its provider."),
    Event(PROVIDER_RESPONSE, "ProviderPayload", _TELL, "When a provider has answered."),
    Event(PROVIDER_RETRY, "ProviderErrorPayload", _LISTEN, "Before a failed provider call is tried again."),
    Event(PROVIDER_THROTTLE, "ProviderPayload", _LISTEN, "When a provider asks to slow down."),
    Event(PROVIDER_ERROR, "ProviderErrorPayload", _TELL, "When a provider call failed."),
    Event(PROVIDER_TOOL_SEQUENCE_REPAIRED, "ProviderPayload", _LISTEN,
          "When a provider mended a history whose tool calls and results did not match."),

    # content_block and thinking: many a second, so no hook may hold them up
    Event(CONTENT_BLOCK_START, "StreamPayload", _LISTEN, "When a model starts a content block."),
    Event(CONTENT_BLOCK_DELTA, "StreamPayload", _LISTEN, "When a piece of a content block arrives."),
    Event(CONTENT_BLOCK_END, "StreamPayload", _LISTEN, "When a content block is complete."),
    Event(THINKING_DELTA, "StreamPayload", _LISTEN, "When a piece of the model's thinking arrives."),
    Event(THINKING_FINAL, "StreamPayload", _LISTEN, "When the model's thinking is complete."),

    # tool: one call. The first event lists the calls of a response; each call is then stopped or let through by itself
    Event(DECISION_TOOL_RESOLUTION, "ToolResolutionPayload", _TELL, "When it is known which tools a response calls."),
    Event(TOOL_PRE, "ToolPayload", _ALL, "Before a tool runs.", "tool_input",
          middleware=("tool.execute.pre",), run=("on_tool_call",), claude_code=("PreToolUse",)),
    Event(TOOL_POST, "ToolResultPayload", _CHANGE, "After a tool ran, before the model sees the result.", "result",
          middleware=("tool.execute.post",), loop=("onToolResult",), claude_code=("PostToolUse",)),
    Event(TOOL_ERROR, "ToolErrorPayload", _CHANGE, "When a tool raised, before the model reads the error.", "error",
          claude_code=("PostToolUseFailure",)),

    # artifact and memory: data that an agent keeps
    Event(ARTIFACT_READ, "ArtifactPayload", _ASK, "Before a stored artifact is read."),
    Event(ARTIFACT_WRITE, "ArtifactPayload", _ASK, "Before an artifact is stored."),
    Event(MEMORY_PRE, "MemoryPayload", _ALL, "Before something is stored in memory.", "content",
          middleware=("memory.store.pre",)),
    Event(MEMORY_POST, "MemoryResultPayload", _TELL, "After something was stored in memory.",
          middleware=("memory.store.post",)),

    # agent: a whole loop. A stop can be refused, a start is refused at agent:pre
    Event(ORCHESTRATOR_COMPLETE, "OrchestratorPayload", _TELL, "When an orchestrator has finished a turn."),
    Event(AGENT_PRE, "AgentPayload", _ALL, "Before an agent is invoked, with its checked inputs.", "inputs",
          also_replaces=("system_prompt",), middleware=("agent.invoke.pre",)),
    Event(AGENT_POST, "AgentResultPayload", _TELL, "After an agent was invoked.", middleware=("agent.invoke.post",)),
    Event(AGENT_STOP, "AgentStopPayload", _STOP, "When an agent wants to stop.", claude_code=("Stop", "AgentStop")),
    Event(SUBAGENT_START, "SubagentPayload", _TELL, "When a sub-agent's session begins.",
          claude_code=("SubagentStart",)),
    Event(SUBAGENT_STOP, "SubagentStopPayload", _STOP, "When a sub-agent wants to stop.",
          claude_code=("SubagentStop",)),

    # workflow: one step, its retries included
    Event(WORKFLOW_PRE, "WorkflowPayload", _ALL, "Before a workflow step, once for all its retries.", "inputs",
          middleware=("workflow.step.pre",)),
    Event(WORKFLOW_POST, "WorkflowResultPayload", _TELL, "After a workflow step, its retries included.",
          middleware=("workflow.step.post",)),

    # request: HTTP, where there may be no session
    Event(REQUEST_PRE, "RequestPayload", _ADMIT, "Before an HTTP request is handled, once its user is known.",
          middleware=("request.pre",)),
    Event(REQUEST_POST, "ResponsePayload", _ANSWER, "Before an HTTP response is sent.", "response_headers",
          also_replaces=("status_code",), middleware=("request.post",)),

    # run: from the queue to the result
    Event(RUN_START, "RunPayload", _ADMIT_CHANGED, "When a run is claimed, before a runner gets it.", "parameters",
          run=("on_run_start",)),
    Event(RUN_RESULT, "RunResultPayload", _LISTEN, "When a runner posts a result, before the run is complete.",
          run=("on_result",)),
    Event(RUN_FINISH, "RunResultPayload", _LISTEN, "After a run's result and status are stored.",
          run=("on_run_finish",)),
    Event(RUN_ERROR, "RunErrorPayload", _LISTEN, "When a run failed.", run=("on_error",)),
    Event(RUN_TIMEOUT, "RunErrorPayload", _LISTEN, "When a run's time is up.", run=("on_timeout",)),

    # people: notifications and decisions. A hook may answer "no" before a person is asked, never "yes"
    Event(USER_NOTIFICATION, "NotificationPayload", _TELL, "When the user is needed or should know something.",
          claude_code=("Notification",)),
    Event(POLICY_VIOLATION, "PolicyViolationPayload", _TELL, "When a policy stopped something."),
    Event(APPROVAL_REQUIRED, "ApprovalPayload", _ADMIT, "Before a person is asked to approve an action.",
          claude_code=("PermissionRequest",)),
    Event(APPROVAL_GRANTED, "ApprovalDecisionPayload", _TELL, "When an action was approved."),
    Event(APPROVAL_DENIED, "ApprovalDecisionPayload", _TELL, "When an action was refused.",
          claude_code=("PermissionDenied",)),
    Event(APPROVAL_EXPIRED, "ApprovalDecisionPayload", _TELL, "When an approval request expired."),
    Event(CANCEL_REQUESTED, "CancelPayload", _LISTEN, "When the session is asked to stop."),
    Event(CANCEL_COMPLETED, "CancelPayload", _LISTEN, "When a cancelled session has stopped."),

    # error: failures, reported by any part of a session
    Event(ERROR_TOOL, "ErrorPayload", _TELL, "When a tool failed."),
    Event(ERROR_PROVIDER, "ErrorPayload", _TELL, "When a turn broke off because its provider failed.",
          claude_code=("StopFailure",)),
    Event(ERROR_ORCHESTRATOR, "ErrorPayload", _TELL, "When the orchestrator itself failed."),

    # hook and module: events about the system itself, for observers only, so that they cannot go in circles
    Event(HOOK_START, "HookPayload", _LISTEN, "When a hook starts.", run=("hook_start",)),
    Event(HOOK_COMPLETE, "HookCompletePayload", _LISTEN, "When a hook has answered.", run=("hook_complete",)),
    Event(HOOK_FAILED, "HookFailedPayload", _LISTEN, "When a hook failed or answered nonsense.", run=("hook_failed",)),
    Event(HOOK_BLOCKED, "HookBlockedPayload", _LISTEN, "When a hook stopped something.", run=("hook_blocked",)),
    Event(HOOK_TIMEOUT, "HookFailedPayload", _LISTEN, "When a hook's time is up.", run=("hook_timeout",)),
    Event(MODULE_LOAD_FAILED, "ModuleFailedPayload", _LISTEN, "When a module could not be loaded."),
    Event(MODULE_ON_SESSION_READY_FAILED, "ModuleFailedPayload", _LISTEN,
          "When a module failed as its session became ready."),
)
# fmt: on

ALL_EVENTS: Final[tuple[str, ...]] = tuple(event.name for event in CATALOGUE)
"""The canonical names, in the catalogue's order."""

_ROWS: Final[Mapping[str, Event]] = {spelling: event for event in CATALOGUE for spelling in event.spellings}
_CANONICAL: Final[Mapping[str, str]] = {spelling: event.name for spelling, event in _ROWS.items()}
_NAMES: Final = tuple(name for event in CATALOGUE for name in event.names)


def canonical(name: str) -> str:
    """Return the canonical name of an event in any spelling; an unknown name comes back unchanged.

    Args:
        name: Name in any spelling of the five vocabularies.
    """
    return _CANONICAL.get(name, name)


def find(name: str) -> Event | None:
    """Return the row of an event in any spelling; None for an unknown one.

    Args:
        name: Name in any spelling of the five vocabularies.
    """
    return _ROWS.get(name)


def spellings(name: str) -> tuple[str, ...]:
    """Return every name of an event, the canonical one first; for an unknown name, the name alone.

    Args:
        name: Name in any spelling of the five vocabularies.
    """
    event = find(name)
    return event.spellings if event else (name,)


def payload_model(name: str) -> type[Payload]:
    """Return the pydantic model that describes an event's payload; `Payload` for an unknown event.

    Args:
        name: Name in any spelling of the five vocabularies.
    """
    # Imported here, because pydantic takes longer to import than all the rest of the front door.
    from amplifier_hooks import payloads

    event = find(name)
    model: type[Payload] = getattr(payloads, event.payload) if event else payloads.Payload
    return model


def likely(name: str, also: Iterable[str] = ()) -> str | None:
    """Return the spelling that was probably meant, if `name` is a single typo away from it.

    A typo is one letter missing, added, changed or swapped with its neighbour; case and separators do not count. The
    result is None for a known name, which is no typo, and for a name further away, which is an event of the host.

    Args:
        name: Name that may have a typo.
        also: More names that are known, such as declared ones.
    """
    known = (*_NAMES, *also)
    if name in _ROWS or name in known:
        return None
    typed = _letters(name)
    return _closest(name, [one for one in known if _one_typo_apart(typed, _letters(one))])


def alike(name: str, also: Iterable[str] = ()) -> str | None:
    """Return the known name that differs from `name` only in case, separators and the form of its characters.

    `LLM:POST`, `llm::post` and one in full-width letters are all like `llm:post`; a pattern is compared by its domain.
    The result is None for a known name.

    Args:
        name: Name that may read like a known one.
        also: More names that are known, such as declared ones.
    """
    known = (*_NAMES, *also)
    if name in _ROWS or name in known:
        return None
    domain = name.removesuffix(":*")
    if domain != name:
        known = tuple({f"{one.partition(':')[0]}:*": None for one in known if ":" in one})
        if name in known:
            return None
    typed = _letters(name)
    return _closest(name, [one for one in known if _letters(one) == typed]) if typed else None


def suggestion(name: str, also: Iterable[str] = ()) -> str | None:
    """Return the known name that was most probably meant, to suggest it; None where none is near.

    The first choice is a name one typo away, the second a name with mostly equal words (`before_tool` and `tool:pre`),
    the third a name that looks much like it.

    Args:
        name: Name that is unknown.
        also: More names that are known, such as declared ones.
    """
    from difflib import get_close_matches  # for a mistake only

    known, words = (*_NAMES, *also), _words(name)
    shared = {one: len(words & _words(one)) / len(words | _words(one)) for one in known}
    near = [one for one in known if shared[one] == max(shared.values()) >= _MOSTLY]
    close = get_close_matches(name, known, n=1, cutoff=_LOOKS_LIKE)
    return likely(name, also) or _closest(name, near or close)


def _words(name: str) -> frozenset[str]:
    separated = "".join(letter if letter.isalnum() else " " for letter in _snake(name))
    return frozenset(_SYNONYMS.get(word, word) for word in separated.casefold().split())


def _closest(name: str, names: list[str]) -> str | None:
    from difflib import SequenceMatcher  # for a mistake only

    return max(names, key=lambda one: SequenceMatcher(a=name, b=one).ratio(), default=None)


_SYNONYMS: Final = {"before": "pre", "after": "post"}
"""Words that other programs use in place of the catalogue's words."""
_MOSTLY: Final = 0.5
_LOOKS_LIKE: Final = 0.75

_SHORTEST_TYPO: Final = 6
"""Fewest letters of a name in which one edit is a typo: `Step` is another word than `Stop`."""


def _letters(name: str) -> str:
    """Return a name without its case, separators, other forms of a character, and invisible characters."""
    if not name.isascii():
        from unicodedata import normalize  # no known name needs it

        name = normalize("NFKC", name)
    return "".join(filter(str.isalnum, name.casefold()))


def _one_typo_apart(word: str, name: str) -> bool:
    """Return True if two words are at most one edit apart (Damerau-Levenshtein)."""
    if word == name:
        return True
    if len(name) < _SHORTEST_TYPO:
        return False
    same = 0  # letters in front; the rest is compared from behind
    while same < min(len(word), len(name)) and word[same] == name[same]:
        same += 1
    word, name = word[same:], name[same:]
    return (
        word[1:] == name  # one too many
        or word == name[1:]  # one missing
        or word[1:] == name[1:]  # another one
        or (word[:2] == name[1::-1] and word[2:] == name[2:])  # two swapped
    )
