"""Agents of pydantic-ai.

    async with SessionCoordinator(hooks=registry) as session:
        result = await agent.run("Update the config", capabilities=[SessionCapability(session)])

The capability calls tools and models inside `call_tool` and `call_model`. A call without a decision in time is
deferred, like the SDK's own approvals: the run ends with `DeferredToolRequests`. A run with their results, in another
process if need be, finds the decision made meanwhile.

Extra `pydantic-ai`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from amplifier_hooks.act import freeze
from amplifier_hooks.adapters.shared import Texts, as_bytes, check_reach, check_turn, hosted_tools
from amplifier_hooks.errors import MissingExtra

try:
    from pydantic_ai import UserPromptNode
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.toolsets import WrapperToolset
except ModuleNotFoundError as error:
    raise MissingExtra.from_import(error, "this adapter") or error from None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from pydantic_ai import AgentRunResult, RunContext
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    from amplifier_hooks.result import Role
    from amplifier_hooks.session.coordinator import SessionCoordinator, Turn
    from amplifier_hooks.session.tool_call import ToolOutcome

__all__ = ["SessionCapability"]


PROVIDER: Final = "the provider runs it itself"
NATIVE: Final = ("_native_tools", "_builtin_tools")
"""Endings of the settings that give a model tools of its provider."""


class SessionCapability(AbstractCapability[Any]):
    """A capability that puts runs inside a session: all runs of an agent that has it, or one run that is given it.

    A tool that the provider runs, or that runs outside the agent's process, is out of reach: a run with one is refused,
    unless `outside` names the tool. An agent used by a tool is part of that tool call, unless its run is given the
    capability, too.
    """

    def __init__(self, session: SessionCoordinator, *, outside: Collection[str] = ()) -> None:
        self.session = session
        self._outside = frozenset(outside)
        self._texts: Texts[ModelMessage] = Texts(session, message)
        self._turn: Turn | None = None
        self.received: dict[str, tuple[Any, bytes | None]] = {}
        """The arguments of this run's calls by call id: as the model wrote them, and as JSON after their validation."""

    async def for_run(self, ctx: RunContext[Any]) -> SessionCapability:  # noqa: ARG002  # the SDK's signature
        """Return a copy for one run. The copies share the session and its texts."""
        own = copy.copy(self)
        own.received = {}
        return own

    def get_ordering(self) -> CapabilityOrdering:
        """Return the innermost position. Hooks then decide about a call as all other capabilities left it."""
        return CapabilityOrdering(position="innermost")

    # -- a run is a turn -----------------------------------------------------------------------------------------

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[AgentRunResult[Any]]]
    ) -> AgentRunResult[Any]:
        """Run as one turn of the session; a run without a prompt continues an earlier run without a new turn.

        Args:
            handler: Runs the agent.

        Raise `HookAbortError` if a hook denies the prompt.
        """
        if ctx.prompt is None:
            return await handler()
        async with self.session.turn(text_of(ctx.prompt)) as turn:
            self._turn = check_turn(turn)
            result = await handler()
            turn.response = result.output
        return result

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:  # noqa: ARG002  # as above
        """Return the node with the prompt as the hooks left it.

        Args:
            node: Node of the run, from Pydantic AI.
        """
        turn, self._turn = self._turn, None
        if turn is None or not turn.outcome.modified or not isinstance(node, UserPromptNode):
            return node
        given = node.user_prompt
        others = [] if given is None or isinstance(given, str) else [one for one in given if not isinstance(one, str)]
        return replace(node, user_prompt=[turn.prompt, *others] if others else turn.prompt)

    # -- the model -----------------------------------------------------------------------------------------------

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002  # as above
        *,
        request_context: ModelRequestContext,
        handler: Callable[[ModelRequestContext], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """Call the model inside `call_model`.

        Args:
            request_context: Messages and settings of the model call.
            handler: Calls the model.

        Raise `HookAbortError` if a hook denies the call, and `HookUsageError` for a tool that is out of reach.
        """
        for tool in request_context.model_request_parameters.native_tools:
            self.check_reach(tool.kind, PROVIDER)
        settings: Any = request_context.model_settings or {}
        native = [name for name, tools in settings.items() if tools and name.endswith(NATIVE)]
        for name in (*native, *hosted_tools(settings)):
            self.check_reach(name, PROVIDER)
        own = request_context.messages
        response: ModelResponse = await self._texts.call_model(
            lambda messages: handler(replace(request_context, messages=messages)),
            own,
            await self._texts.merge_into(own),
            model=request_context.model.model_name,
            tool_calls=lambda response: response.tool_calls,
        )
        return response

    # -- tools ---------------------------------------------------------------------------------------------------

    async def before_tool_validate(
        self,
        ctx: RunContext[Any],  # noqa: ARG002  # as above
        *,
        call: ToolCallPart,
        args: str | dict[str, Any],
        **_tool: Any,
    ) -> str | dict[str, Any]:
        """Return the arguments as the model wrote them, and keep them, before they become objects.

        Args:
            args: Arguments as the model wrote them.
        """
        self.received[call.tool_call_id] = as_bytes(args) if isinstance(args, str) else as_json(args), None
        return args

    async def after_tool_validate(
        self,
        ctx: RunContext[Any],  # noqa: ARG002  # as above
        *,
        call: ToolCallPart,
        args: dict[str, Any],
        **_tool: Any,
    ) -> dict[str, Any]:
        """Return the validated arguments, and keep them as JSON: a later change by another capability shows in it.

        Args:
            args: Arguments after validation.
        """
        if call.tool_call_id in self.received:
            self.received[call.tool_call_id] = self.received[call.tool_call_id][0], json_of(args)
        return args

    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],  # noqa: ARG002  # as above
        *,
        call: ToolCallPart,
        error: ValidationError | ModelRetry,
        **_tool: Any,
    ) -> dict[str, Any]:
        """Forget arguments that are not valid, and return nothing: their error is raised again.

        Another capability may put others in their place.

        Args:
            error: Error of the validation.
        """
        self.received.pop(call.tool_call_id, None)
        raise error

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Return the tools, inside the session.

        Args:
            toolset: Tools of the run, from Pydantic AI.
        """
        return InsideToolset(toolset, self)

    def check_reach(self, tool: str, why: str) -> None:
        """Raise `HookUsageError` for a tool that runs without a question to the hooks, unless the host has named it.

        Args:
            tool: Name of the tool.
        """
        check_reach(tool, why, "SessionCapability", self._outside)


@dataclass
class InsideToolset(WrapperToolset[Any]):
    """Tools that are called inside a session, after all changes that other capabilities make to a call."""

    capability: SessionCapability = field(repr=False)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools. Raise `HookUsageError` for a tool that is out of reach."""
        tools = await super().get_tools(ctx)
        for name, tool in tools.items():
            if tool.tool_def.kind == "external":
                self.capability.check_reach(name, "it runs outside the agent's process")
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool inside `call_tool`, with arguments that are validated from what was decided about.

        Raise `ToolFailed` with the reason of a denial for the model, `ApprovalRequired` while the call has no decision,
        and any error that the tool raises.
        """
        name = tool.tool_def.name  # another toolset may have called the tool by another name

        async def run(arguments: dict[str, Any]) -> Any:
            args = await validate_arguments(arguments, ctx, tool)
            return await super(InsideToolset, self).call_tool(name, args, ctx, tool)

        raw, validated = self.capability.received.get(ctx.tool_call_id or "", (None, None))
        given = raw if raw is not None and json_of(tool_args) == validated else as_json(tool_args)
        outcome = await self.capability.session.call_tool(name, given, run, call_id=ctx.tool_call_id)
        if outcome.pending is not None:
            raise ApprovalRequired(metadata={"request": outcome.pending, "reason": outcome.reason})
        if outcome.denied:
            raise ToolFailed(outcome.reason or "denied")
        if outcome.error is not None:
            raise error_of(outcome, outcome.error)
        return outcome.value


# -- in the format of the SDK ------------------------------------------------------------------------------------------


def as_json(arguments: dict[str, Any]) -> Any:
    """Return a tool's arguments as hooks and people see them.

    Arguments that are no JSON stay as they are, for the session to refuse.
    """
    try:
        return to_jsonable_python(arguments)
    except PydanticSerializationError:
        return arguments


def json_of(arguments: dict[str, Any]) -> bytes | None:
    """Return validated arguments as JSON; None if they cannot be written as JSON."""
    try:
        return to_json(arguments)
    except PydanticSerializationError:
        return None


def error_of(outcome: ToolOutcome[Any], error: BaseException) -> BaseException:
    """Return the error of a call. An error whose text the model reads has the text that the hooks left."""
    if not isinstance(error, (ModelRetry, ToolFailed, ValidationError)) or outcome.reason == str(error):
        return error
    return (ToolFailed if isinstance(error, ToolFailed) else ModelRetry)(outcome.reason or "")


async def validate_arguments(arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    """Return a tool's arguments, validated from those that were decided about.

    Raise the errors of the tool's validation.
    """
    args: dict[str, Any] = tool.args_validator.validate_json(freeze(arguments), context=ctx.validation_context)
    if tool.args_validator_func is not None:
        checked = tool.args_validator_func(ctx, **args)
        if isawaitable(checked):
            await checked
    return args


def message(role: Role, text: str) -> ModelMessage:
    """Return a message in the format of the SDK, which requires that the last message is a request."""
    return ModelRequest(parts=[SystemPromptPart(text) if role == "system" else UserPromptPart(text)])


def text_of(prompt: str | Sequence[Any]) -> str:
    """Return the text of a prompt, without pictures and other parts."""
    return prompt if isinstance(prompt, str) else "\n".join(part for part in prompt if isinstance(part, str))
