"""Agents of LangChain.

    async with SessionCoordinator(hooks=registry) as session:
        agent = create_agent(model, tools, middleware=[SessionMiddleware(session)])
        result = await agent.ainvoke({"messages": [HumanMessage("Update the config")]})

The middleware calls tools and models inside `call_tool` and `call_model`. A call that waits for an approver interrupts
the run, which needs a checkpointer for that. Resuming the run, in another process if need be, finds the decision made
meanwhile.

Extra `langchain`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

from amplifier_hooks.adapters import shared
from amplifier_hooks.errors import HookUsageError, MissingExtra

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.human_in_the_loop import ApproveDecision, RejectDecision, ToolApprovalRequest
    from langchain.agents.middleware.types import AgentState
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import Command, interrupt
except ModuleNotFoundError as error:
    raise MissingExtra.from_import(error, "this adapter") or error from None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest

    from amplifier_hooks.result import Role
    from amplifier_hooks.session.coordinator import SessionCoordinator, Turn
    from amplifier_hooks.session.tool_call import ToolOutcome

__all__ = ["SessionMiddleware"]


T = TypeVar("T")
Result: TypeAlias = "ToolMessage | Command[Any] | list[ToolMessage | Command[Any]]"
"""The result of a tool call."""

ANSWERS: Final[Any] = ApproveDecision | RejectDecision
"""Answers that resume an interrupted run; LangGraph takes no others."""
SCRATCHPAD: Final = "__pregel_scratchpad"
PAIR: Final = 2
"""Key under which LangGraph keeps the answer that resumed a run.

The key is a private name. `interrupt` would give the answer only to a call that still waits, and would use it up.
"""
UNKNOWN_LANGGRAPH: Final = (
    "this version of LangGraph does not say what a run was resumed with (no `__pregel_scratchpad` with `resume` and "
    "`get_null_resume`), so that a rejection would not be seen; use one of those in docs/adapters.md"
)


class SessionMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Middleware that puts one agent's runs inside a session, one run at a time.

    Put it last, so that it sees what runs.

    A tool that the provider runs is out of reach: a model that is given one is refused, unless `outside` names the
    tool. An agent used as a tool is one call; its own calls are inside a session if it has its own middleware, for
    `session.child(…)`. Runs are asynchronous: `invoke` and `stream` fail before anything happens.
    """

    def __init__(self, session: SessionCoordinator, *, outside: Collection[str] = ()) -> None:
        super().__init__()
        self.session = session
        self._outside = frozenset(outside)
        self._texts: shared.Texts[Any] = shared.Texts(session, message)
        self._turn: tuple[AbstractAsyncContextManager[Turn], Turn] | None = None
        """The current turn, and the context manager that ends it."""
        self._failure: Exception | None = None
        """The error that a model or a tool raised in this turn."""
        shared.call_at_end(session, "langchain", self._end_left_turn)

    # -- a run is a turn -----------------------------------------------------------------------------------------

    async def abefore_agent(self, state: AgentState[Any], runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """Begin a turn with the user's last message. Raise `HookAbortError` if a hook denies the message.

        Args:
            state: State of the agent, from LangChain.
            runtime: Runtime of the graph, from LangChain.
        """
        await self._end_left_turn()
        asked = next((one for one in reversed(state["messages"]) if isinstance(one, HumanMessage)), None)
        manager = self.session.turn(text_of(asked))
        turn = await manager.__aenter__()
        self._turn = manager, turn
        if turn.denied:
            await self._end_turn()
        shared.check_turn(turn)
        if turn.outcome.modified and asked is not None:
            return {"messages": [asked.model_copy(update={"content": with_text(asked.content, turn.prompt)})]}
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Any) -> None:  # noqa: ARG002
        """End the turn with the model's last message.

        Args:
            state: State of the agent, from LangChain.
            runtime: Runtime of the graph, from LangChain.
        """
        if self._turn is not None:
            said = next((one for one in reversed(state["messages"]) if isinstance(one, AIMessage)), None)
            self._turn[1].response = text_of(said)
        await self._end_turn()

    async def _end_turn(self, error: BaseException | None = None) -> None:
        """End the turn, also if the run is cancelled or interrupted."""
        ended, self._turn, self._failure = self._turn, None, None
        if ended is not None:
            await ended[0].__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)

    async def _end_left_turn(self) -> None:
        """End the turn of a run that failed or was abandoned.

        LangGraph does not report such an end: a middleware before this one may have handled the failure. The adapter
        notices it when another run begins, or the session ends.
        """
        await self._end_turn(self._failure or asyncio.CancelledError())

    async def _run_step(self, step: Awaitable[T]) -> T:
        """Carry out one step of the run, and note its failure."""
        try:
            return await step
        except GraphBubbleUp:
            await self._end_turn()
            raise
        except Exception as error:
            self._failure = error
            raise
        except BaseException as error:
            await self._end_turn(error)
            raise

    # -- the model -----------------------------------------------------------------------------------------------

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model inside `call_model`.

        Args:
            request: Model call, from LangChain.
            handler: Calls the model.

        Raise `HookAbortError` if a hook denies the call, and `HookUsageError` for a tool that is out of reach.
        """
        for name in tools_out_of_reach(request):
            shared.check_reach(name, "the provider runs it itself", "SessionMiddleware", self._outside)
        own = request.messages

        async def step() -> ModelResponse[Any]:
            response: ModelResponse[Any] = await self._texts.call_model(
                lambda messages: handler(request.override(messages=messages)),
                own,
                await self._texts.merge_into(own),
                model=name_of(request.model),
                tool_calls=calls_in,
            )
            return response

        return await self._run_step(step())

    # -- tools ---------------------------------------------------------------------------------------------------

    def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Coroutine[Any, Any, Any]:
        """Call the tool inside `call_tool`, and interrupt the run until the approver has decided.

        The interrupt is a `ToolApprovalRequest`, like LangChain's own. An answer with `reject` ends the call. After any
        other answer the middleware looks for the session's decision again. Raise any error that the tool raises, and
        `HookUsageError` for a LangGraph version that does not say if a call was rejected.

        Args:
            request: Tool call, from LangChain.
            handler: Calls the tool.
        """
        # LangChain traces an `async def` in two hops through its thread pool.
        return self._decide_call(request, handler)

    async def _decide_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Any:
        rejected = rejection()
        if rejected is not None:
            return denial(request, rejected)
        if request.tool is not None and request.tool.name != request.tool_call["name"]:  # another middleware's doing
            request = request.override(tool_call={**request.tool_call, "name": request.tool.name})
        return await self._run_step(self._call_tool(request, handler))

    async def _call_tool(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Any:
        call = request.tool_call
        result: Result | None = None
        content: Any = None

        async def run(tool_input: dict[str, Any]) -> Any:
            nonlocal result, content
            result = change_messages(await handler(request.override(tool_call={**call, "args": tool_input})), as_object)
            answer = answer_in(result, call["id"])
            content = None if answer is None else answer.content
            if answer is not None and answer.status == "error":
                raise ToolAnswerFailed(content if isinstance(content, str) else json.dumps(content, default=str))
            return content

        given: Any = next((raw for raw in raw_arguments(request) if not shared.is_readable(raw)), call["args"])
        outcome = await self.session.call_tool(call["name"], given, run, call_id=call["id"])
        if outcome.pending is not None:
            interrupt_run(request, outcome)
        if outcome.denied:
            return denial(request, outcome.reason or "denied")
        failed = outcome.error
        if failed is not None and not (isinstance(failed, ToolAnswerFailed) and result is not None):
            raise failed
        if result is not None and (outcome.value is content if failed is None else outcome.reason == str(failed)):
            return result
        return replace_value(request, result, outcome.value if failed is None else outcome.reason, failed=bool(failed))


class ToolAnswerFailed(Exception):
    """A tool's answer that says it failed. The middleware never lets it out."""


# -- in the format of the SDK ------------------------------------------------------------------------------------------


def interrupt_run(request: ToolCallRequest, outcome: ToolOutcome[Any]) -> NoReturn:
    """Interrupt the run. An earlier answer that resumed the run is no decision of an approver, and is used up."""
    call = request.tool_call
    shown = ToolApprovalRequest(
        type="tool_approval",
        tool_call_id=call["id"] or "",
        name=call["name"],
        args=call["args"],
        description=outcome.reason or "",
    )
    while True:
        interrupt({**shown, "request": outcome.pending}, response_schema=ANSWERS)


def raw_arguments(request: ToolCallRequest) -> Iterator[bytes]:
    """Yield the call's arguments as the model wrote them, where LangChain keeps them beside the parsed ones.

    LangChain parses them leniently: a key twice keeps the last value, and JSON that breaks off is completed.
    """
    state: Any = request.state
    messages = state.get("messages", ()) if isinstance(state, dict) else getattr(state, "messages", ())
    for one in reversed(messages):
        if isinstance(one, AIMessage) and any(call["id"] == request.tool_call["id"] for call in one.tool_calls):
            kept = [*(one.additional_kwargs.get("tool_calls") or ()), *getattr(one, "tool_call_chunks", ())]
            for call in kept:
                written = call.get("function", {}).get("arguments", call.get("args"))
                if call.get("id") == request.tool_call["id"] and isinstance(written, str):
                    yield shared.as_bytes(written)
            return


def rejection() -> str | None:
    """Return the host's reason for rejecting the call, or None if the run was not resumed with a rejection.

    Raise `HookUsageError` for a LangGraph version that does not tell what resumed a run; no tool runs then.
    """
    try:
        scratchpad = get_config()["configurable"][SCRATCHPAD]
        answers = *scratchpad.resume, scratchpad.get_null_resume(False)  # noqa: FBT003  # LangGraph has it so
    except (KeyError, AttributeError, TypeError):
        raise HookUsageError(UNKNOWN_LANGGRAPH) from None
    for answer in answers:
        if isinstance(answer, dict) and answer.get("type") == "reject":
            return str(answer.get("message") or "rejected by the user; do not try again unless the user asks for it")
    return None


def tools_out_of_reach(request: ModelRequest[Any]) -> Iterator[str]:
    """Yield the names of the provider's tools that come with the agent, the model or its settings."""
    tools = list(request.tools)
    for settings in settings_of(request):
        yield from shared.hosted_tools(settings)
        tools += [tool for one in shared.with_nested(settings) for tool in one.get("tools") or ()]
    for tool in tools:
        if isinstance(tool, dict) and tool.get("type") != "function":
            yield str(tool.get("name") or tool.get("type") or next(iter(tool), "?"))


def settings_of(request: ModelRequest[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of a call, and the fields of its model and of every model that this one wraps."""
    yield request.model_settings
    model: Any = request.model
    while model is not None:
        yield {name: getattr(model, name, None) for name in (*shared.HOSTED, *shared.NESTED)}
        model = getattr(model, "bound", None)


def denial(request: ToolCallRequest, reason: str) -> ToolMessage:
    """Return the message that the model reads in place of a result."""
    call = request.tool_call
    return ToolMessage(content=reason, name=call["name"], tool_call_id=call["id"], status="error")


def change_messages(result: Any, change: Callable[[Any], Any]) -> Any:
    """Return a result with each of its messages changed, also those in an update of the agent's state.

    An update is a dict, a tuple of pairs, or anything else, which stays as it is.
    """
    if isinstance(result, list):
        return [change_messages(one, change) for one in result]
    if not isinstance(result, Command):
        return change(result)

    def changed(name: object, value: Any) -> Any:
        messages = value if isinstance(value, list | tuple) else [value]
        return [change(one) for one in messages] if name == "messages" else value

    update = result.update
    if isinstance(update, dict):
        return replace(result, update={name: changed(name, value) for name, value in update.items()})
    if isinstance(update, tuple) and all(isinstance(pair, tuple) and len(pair) == PAIR for pair in update):
        return replace(result, update=tuple((name, changed(name, value)) for name, value in update))
    return result


def as_object(message: Any) -> Any:
    """Return a message as an object. A tool may write the messages of an update as dicts, too."""
    return message if isinstance(message, BaseMessage) else convert_to_messages([message])[0]


def answer_in(result: Result, call: str | None) -> ToolMessage | None:
    """Return the tool's answer to a call, also if it is part of an update of the agent's state."""
    messages: list[Any] = []
    change_messages(result, messages.append)
    answers = (one for one in messages if isinstance(one, ToolMessage))
    return next((one for one in answers if one is result or one.tool_call_id == call), None)


def replace_value(request: ToolCallRequest, result: Result | None, value: Any, *, failed: bool) -> Result:
    """Return the result with the hooks' value in place of its own; the rest of the result stays."""
    call = request.tool_call
    content = value if isinstance(value, str | list) else json.dumps(value, default=str)
    answer = None if result is None else answer_in(result, call["id"])
    if result is None or answer is None:
        return ToolMessage(content=content, name=call["name"], tool_call_id=call["id"])
    own = answer.model_copy(update={"content": content, "artifact": None, "status": "error" if failed else "success"})
    whole: Result = change_messages(result, lambda one: own if one is answer else one)
    return whole


def message(role: Role, text: str) -> BaseMessage:
    """Return a message in the format of the SDK. Providers take system messages at the beginning only."""
    return AIMessage(text) if role == "assistant" else HumanMessage(text)


def calls_in(response: ModelResponse[Any]) -> Sequence[Any]:
    """Return the tool calls in a response."""
    return [call for one in response.result if isinstance(one, AIMessage) for call in one.tool_calls]


def name_of(model: Any) -> str:
    """Return the name of the model, or an empty text if the model does not tell."""
    names = (getattr(model, attribute, None) for attribute in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str)), "")


def text_of(one: BaseMessage | None) -> str:
    """Return the text of a message."""
    return "" if one is None else str(one.text)


def with_text(content: Any, text: str) -> Any:
    """Return a message's content with this text; pictures and other parts stay."""
    parts = [] if isinstance(content, str) else content
    others = [part for part in parts if isinstance(part, dict) and part.get("type") != "text"]
    return [{"type": "text", "text": text}, *others] if others else text
