"""Agents of the OpenAI Agents SDK.

    async with SessionCoordinator(hooks=registry) as session:
        result = await OpenAIAgents(session).run(agent, "Update the config")

The SDK asks `needs_approval` of a function tool first, and there the session decides about the call. A call that is
pending in a durable backend interrupts the run, whose state can be stored; running the state again, in another process
if need be, finds the decision made meanwhile. A denial is the answer of a tool guardrail. The tool runs exactly the
approved call, and the model is called inside `call_model`.

Extra `openai-agents`.
"""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from attrs import field, frozen

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.adapters import shared
from amplifier_hooks.admission.judge import frozen_or_none
from amplifier_hooks.errors import HookUsageError, MissingExtra
from amplifier_hooks.session.program_call import OpenCalls, ProgramToolCall

try:
    from agents import (
        Agent,
        FunctionTool,
        Handoff,
        Model,
        ModelProvider,
        RunConfig,
        Runner,
        RunState,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
    )
    from agents.tool import set_function_tool_failure_error_function, with_function_tool_failure_error_handler
except ModuleNotFoundError as error:
    raise MissingExtra.from_import(error, "this adapter") or error from None

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from agents import (
        ModelResponse,
        ModelRetryAdvice,
        ModelRetryAdviceRequest,
        RunContextWrapper,
        RunResult,
        Tool,
        ToolApprovalItem,
        ToolInputGuardrailData,
    )
    from agents.tool_context import ToolContext

    from amplifier_hooks.session.coordinator import SessionCoordinator

__all__ = ["OpenAIAgents"]


GUARDRAIL: Final = "amplifier-hooks"


@frozen
class RunCall:
    """A call of one run. A run has no id; its contexts share one usage object."""

    usage: Any = field(eq=id)
    id: str


class OpenAIAgents:
    """An adapter that runs agents inside a session.

    A tool that the provider runs, or that is no function tool, is out of reach: an agent with one is refused, unless
    `outside` names the tool. An agent used as a tool is one call; put it inside the session first:
    `adapter.agent(inner).as_tool(…)`.
    """

    def __init__(self, session: SessionCoordinator, *, outside: Collection[str] = ()) -> None:
        self.session = session
        self._outside = frozenset(outside)
        self.texts: shared.Texts[Any] = shared.Texts(session, shared.plain_message)
        self._unreadable: set[tuple[str, str]] = set()
        """Calls whose arguments are refused as JSON: the id, and the SDK's own reading of the arguments."""
        self._agents: dict[int, tuple[ref[Agent[Any]], Agent[Any]]] = {}
        self._calls: OpenCalls[RunCall] = OpenCalls()
        self._running = 0
        """Number of current runs."""
        shared.call_at_end(session, "openai-agents", self._calls.give_up_all)

    async def run(
        self, agent: Agent[Any], prompt: str | list[Any], *, run_config: RunConfig | None = None, **options: Any
    ) -> RunResult:
        """Run an agent as one turn of the session. The options are those of `Runner.run`.

        Args:
            prompt: Text of the user, or a list of the SDK's input items.
            options: Options of the SDK's `Runner.run`.

        Raise `HookAbortError` if a hook denies the prompt or a model call, and any error that `Runner.run` raises.
        """
        items = as_items(prompt)
        asked: Any = next((one for one in reversed(items) if one.get("role") == "user"), {})
        content = asked.get("content", "")
        async with self.session.turn(text_of(content)) as turn:
            if shared.check_turn(turn).outcome.modified:
                changed = {**asked, "content": with_text(content, turn.prompt)}
                items = [changed if one is asked else one for one in items]
            result = await self._run_in(self.agent(agent), items, run_config, options)
            turn.response = result.final_output
        return result

    async def resume(
        self,
        agent: Agent[Any],
        state: RunState[Any] | dict[str, Any] | str,
        *,
        run_config: RunConfig | None = None,
        **options: Any,
    ) -> RunResult:
        """Resume an interrupted run from its state, or from the state as `to_json` or `to_string` returned it.

        The run finds the decisions made meanwhile; a call without a decision interrupts it again. Load a stored state
        only from a place where nothing else can write: the SDK does not check it. Raise `HookUsageError` for the state
        of a run outside the session, and the errors of `run`.

        Args:
            state: State of the interrupted run, or its JSON.
            options: Options of the SDK's `Runner.run`.
        """
        own = self.agent(agent)
        if isinstance(state, str):
            state = await RunState.from_string(own, state)
        elif isinstance(state, dict):
            state = await RunState.from_json(own, state)
        if not isinstance(state._current_agent, InsideAgent):  # noqa: SLF001  # the SDK has no other name for it
            raise HookUsageError("the state is of a run outside the session; pass what its to_json() made of it")
        await self._decide(state)
        return await self._run_in(own, state, run_config, options)

    async def _run_in(
        self, own: Agent[Any], prompt: Any, config: RunConfig | None, options: dict[str, Any]
    ) -> RunResult:
        """Run once. Afterwards give up the calls that were admitted and that the SDK did not make.

        The SDK interrupts a run because of arguments that it cannot read, although no approver can decide about them.
        Such a call goes on as far as the guardrail, which answers the model.
        """
        self._running += 1
        try:
            result = await Runner.run(own, prompt, run_config=self.config(config), **options)
            while any(is_unreadable(item) for item in result.interruptions):
                state = result.to_state()
                for item in filter(is_unreadable, state.get_interruptions()):
                    state.approve(item)
                result = await Runner.run(own, state, run_config=self.config(config), **options)
            return result
        finally:
            self._running -= 1
            if not self._running:
                await self._calls.give_up_all()

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the agent with its function tools, its model and its handoff agents inside the session.

        Raise `HookUsageError` for an agent with a tool that is out of reach.
        """
        if isinstance(agent, InsideAgent):
            return agent
        known = self._agents.get(id(agent))
        if known is not None and known[0]() is agent:
            return known[1]
        own = copy.copy(agent)
        own.__class__ = type(type(agent).__name__, (InsideAgent, type(agent)), {"adapter": self})
        self._agents[id(agent)] = (ref(agent, partial(self._forget, id(agent))), own)
        own.tools = [self.tool(tool) for tool in agent.tools]
        own.handoffs = [self._handoff(handoff) for handoff in agent.handoffs]
        own.model = self.model(agent.model) if isinstance(agent.model, Model) else agent.model
        return own

    def _forget(self, agent: int, _gone: ref[Agent[Any]]) -> None:
        self._agents.pop(agent, None)

    def config(self, config: RunConfig | None = None) -> RunConfig:
        """Return the configuration of a run whose models are called inside the session.

        Args:
            config: Configuration of the host's own; the SDK's default if None.
        """
        own = copy.copy(config or RunConfig())
        own.model = self.model(own.model) if isinstance(own.model, Model) else own.model
        if not isinstance(own.model_provider, InsideProvider):
            own.model_provider = InsideProvider(self, own.model_provider)
        return own

    def model(self, model: Model) -> Model:
        """Return the model, called inside the session.

        Args:
            model: Model of the SDK.
        """
        return model if isinstance(model, InsideModel) else InsideModel(self, model)

    def tool(self, tool: Tool) -> Tool:
        """Return the tool, inside the session. Raise `HookUsageError` for a tool that is out of reach.

        Args:
            tool: Tool of the SDK.
        """
        if not isinstance(tool, FunctionTool):
            shared.check_reach(tool.name, "it is no function tool", "OpenAIAgents", self._outside)
            return tool
        if any(guardrail.name == GUARDRAIL for guardrail in tool.tool_input_guardrails or ()):
            return tool  # inside a session already
        plain = set_function_tool_failure_error_function(copy.copy(tool), None)
        own = copy.copy(tool)
        own.needs_approval = ToolApproval(self, tool)
        own.tool_input_guardrails = [
            *(tool.tool_input_guardrails or ()),
            ToolInputGuardrail(self._guard_call, GUARDRAIL),
        ]
        run: Any = self._run(plain)
        if hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__"):  # the SDK tells the model of its errors
            run = with_function_tool_failure_error_handler(run, lambda *_: None)
            own.on_invoke_tool = run.__agents_bind_function_tool__(own)
        else:
            own.on_invoke_tool = run
        return own

    def _handoff(self, handoff: Any) -> Any:
        if isinstance(handoff, Agent):
            return self.agent(handoff)
        if not isinstance(handoff, Handoff):
            return handoff
        own, invoke = copy.copy(handoff), handoff.on_invoke_handoff

        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> Any:
            return self.agent(await invoke(context, arguments))

        own.on_invoke_handoff = hand_over
        return own

    # -- one tool call, in the order in which the SDK asks -------------------------------------------------------

    async def is_undecided(self, context: RunContextWrapper[Any], tool: str, arguments: Any, call_id: str) -> bool:
        """Return True if the call has no decision yet. The arguments are a value, or the model's own JSON as bytes.

        A call whose JSON is refused has its decision: the guardrail tells the model of it.

        Args:
            context: Context of the run.
            tool: Name of the tool.
            arguments: Arguments as a value, or the model's own JSON as bytes.
            call_id: Id of the call, as the model gave it.
        """
        if not isinstance(arguments, bytes) and (call_id, json.dumps(arguments)) in self._unreadable:
            return False
        call = await self._call(context, tool, arguments, call_id)
        if await self._is_admitted(context, call) or call.outcome is None or call.outcome.pending is None:
            return False
        self._forget_call(context, call)  # the next time there may be a decision
        return True

    def note_unreadable(self, calls: Sequence[Any]) -> None:
        """Note which calls of a model's answer are refused as JSON. The SDK asks about its own reading of them.

        Args:
            calls: Tool calls of the model's answer.
        """
        for call in calls:
            with suppress(ValueError, RecursionError):  # the SDK cannot read these either
                read = call.call_id, json.dumps(json.loads(call.arguments or "{}"))
                readable = shared.is_readable(shared.as_bytes(call.arguments))
                (self._unreadable.discard if readable else self._unreadable.add)(read)

    async def _is_admitted(self, context: RunContextWrapper[Any], call: ProgramToolCall) -> bool:
        """Return True if the call may be made. If this is cancelled, the next question about the call begins anew."""
        try:
            return await call.admit()
        except BaseException:
            self._forget_call(context, call)
            raise

    async def _decide(self, state: RunState[Any]) -> None:
        """Let the calls of an interrupted run go on that have a decision now; the SDK does not ask a second time.

        A denied call goes on, too, as far as the guardrail. If only the tool itself wants an approval, the host gives
        it.
        """
        for item in state.get_interruptions():
            context, name, call_id = state._context, item.tool_name or "", item.call_id  # noqa: SLF001  # as above
            if call_id is None or context is None or not isinstance(item.agent, InsideAgent):
                continue
            if context.get_approval_status(name, call_id, existing_pending=item) is not None:
                continue
            tools = [tool for tool in await item.agent.get_all_tools(context) if isinstance(tool, FunctionTool)]
            own = next((tool.needs_approval for tool in tools if tool.name == name), None)
            given = shared.as_bytes(item.arguments)
            frozen = frozen_or_none(given)
            value = None if frozen is None else thaw(frozen)
            if not isinstance(own, ToolApproval) or await own.is_wanted(context, value, call_id):
                continue
            if not await self.is_undecided(context, name, given, call_id):
                state.approve(item)

    async def _guard_call(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        context = data.context
        given = shared.as_bytes(context.tool_arguments)
        call = await self._call(context, context.tool_name, given, context.tool_call_id)
        if await self._is_admitted(context, call) or (call.outcome is not None and call.outcome.ok):
            return ToolGuardrailFunctionOutput.allow()  # of a call that ran before, `run` returns the result
        self._forget_call(context, call)
        return ToolGuardrailFunctionOutput.reject_content(call.denial, output_info={"by": GUARDRAIL})

    def _run(self, plain: FunctionTool) -> Callable[[ToolContext[Any], str], Any]:
        async def run(context: ToolContext[Any], arguments: str) -> Any:
            call = await self._call(context, plain.name, shared.as_bytes(arguments), context.tool_call_id)
            self._forget_call(context, call)
            if not await call.admit():
                return call.outcome.value if call.outcome is not None and call.outcome.ok else call.denial
            try:
                value = await plain.on_invoke_tool(context, freeze(call.input).decode("ascii"))
            except Exception as error:
                await call.report_error(error)
                raise
            except BaseException:
                await call.give_up()
                raise
            outcome = await call.report_result(value)
            if outcome.error is not None:
                raise outcome.error
            return outcome.value if outcome.ok else outcome.reason

        return run

    async def _call(self, context: RunContextWrapper[Any], tool: str, arguments: Any, call_id: str) -> ProgramToolCall:
        """Return the call that was asked about already, if it is exactly this one; give up another with its id."""
        name = RunCall(context.usage, call_id)
        earlier = self._calls.get(name)
        if earlier is not None and earlier.asks_about(tool, arguments):
            return earlier
        call = ProgramToolCall(self.session, tool, arguments, id=call_id)
        await self._calls.put(name, call)
        return call

    def _forget_call(self, context: RunContextWrapper[Any], call: ProgramToolCall) -> None:
        name = RunCall(context.usage, call.id)
        if self._calls.get(name) is call:
            del self._calls[name]


class InsideAgent(Agent[Any]):
    """An agent whose tools are inside a session, those of MCP servers included."""

    adapter: OpenAIAgents

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return all tools that the SDK finds, inside the session."""
        return [self.adapter.tool(tool) for tool in await super().get_all_tools(run_context)]


class ToolApproval:
    """The condition that interrupts a run before a call.

    The tool's own wish for an approval comes first. Otherwise the run is interrupted if the call has no decision.
    """

    def __init__(self, adapter: OpenAIAgents, tool: FunctionTool) -> None:
        self._adapter = adapter
        self._tool = tool

    async def is_wanted(self, context: RunContextWrapper[Any], arguments: Any, call_id: str) -> bool:
        """Return True if the tool itself wants an approval."""
        wish = self._tool.needs_approval
        return wish if isinstance(wish, bool) else await wish(context, arguments, call_id)

    async def __call__(self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return await self.is_wanted(context, arguments, call_id) or await self._adapter.is_undecided(
            context, self._tool.name, arguments, call_id
        )


class InsideModel(Model):
    """A model whose calls pass the session's hooks."""

    def __init__(self, adapter: OpenAIAgents, model: Model) -> None:
        self._adapter = adapter
        self._inner = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Release the resources of the model."""
        await self._inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)  # noqa: SLF001  # what the SDK calls, handed on

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the model's advice about trying again."""
        return self._inner.get_retry_advice(request)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002  # the SDK passes it by name
        *arguments: Any,
        **options: Any,
    ) -> ModelResponse:
        """Call the model inside `call_model`. Raise `HookAbortError` if a hook denies the call."""
        items = as_items(input)
        response: ModelResponse = await self._adapter.texts.call_model(
            lambda messages: self._inner.get_response(system_instructions, messages, *arguments, **options),
            items,
            await self._model_input(items, options),
            model=name_of(self._inner),
            tool_calls=calls_in,
        )
        self._adapter.note_unreadable(calls_in(response))
        return response

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002  # the SDK passes it by name
        *arguments: Any,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """Call the model inside `stream_model`, and yield its answer in pieces.

        Raise `HookAbortError` if a hook denies the call; a denial after the last piece is raised then.
        """
        items = as_items(input)
        copies: shared.Copies[Any] = shared.Copies(await self._model_input(items, options))

        async def call(messages: list[Any]) -> AsyncIterator[Any]:
            ready = await self._adapter.texts.ready(copies.restore(messages), items)
            return self._inner.stream_response(system_instructions, ready, *arguments, **options)

        stream = self._adapter.session.stream_model(call, copies.shown, model=name_of(self._inner))
        async for piece in stream:
            if (whole := getattr(piece, "response", None)) is not None:
                self._adapter.note_unreadable(calls_in(whole))
                yield copy.deepcopy(piece)  # the SDK goes on with it, and hooks have yet to see the answer
            else:
                yield piece
        if stream.outcome is not None:
            shared.answer_of(stream.outcome)

    async def _model_input(self, items: list[Any], options: dict[str, Any]) -> list[Any]:
        """Return the input of the model. If the provider keeps the conversation, it has the earlier texts already."""
        texts = self._adapter.texts
        if options.get("conversation_id") or options.get("previous_response_id"):
            return items + await texts.new()
        return await texts.merge_into(items)


class InsideProvider(ModelProvider):
    """A provider that finds models by name, and puts them inside a session."""

    def __init__(self, adapter: OpenAIAgents, provider: ModelProvider) -> None:
        self._adapter = adapter
        self._inner = provider

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of this name."""
        return self._adapter.model(self._inner.get_model(model_name))

    async def aclose(self) -> None:
        """Release the resources of the provider."""
        await self._inner.aclose()


def as_items(prompt: str | list[Any]) -> list[Any]:
    """Return the input of a model as a list."""
    return [shared.plain_message("user", prompt)] if isinstance(prompt, str) else list(prompt)


def text_of(content: str | list[Any]) -> str:
    """Return the text of a prompt, without pictures and other parts."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)


def with_text(content: str | list[Any], text: str) -> str | list[Any]:
    """Return a prompt with this text; pictures and other parts stay."""
    others = [] if isinstance(content, str) else [part for part in content if "text" not in part]
    return [{"type": "input_text", "text": text}, *others] if others else text


def calls_in(response: ModelResponse) -> Sequence[Any]:
    """Return the tool calls in a response."""
    return [item for item in response.output if getattr(item, "type", "") == "function_call"]


def name_of(model: Model) -> str:
    """Return the name of the model, or an empty text if the model does not tell."""
    name = getattr(model, "model", "")
    return name if isinstance(name, str) else ""


def is_unreadable(item: ToolApprovalItem) -> bool:
    """Return True if `item` is about an agent inside the session, and the arguments are refused as JSON.

    Such a call cannot be admitted.
    """
    return isinstance(item.agent, InsideAgent) and not shared.is_readable(shared.as_bytes(item.arguments))
