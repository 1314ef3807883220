"""The loop of a chat orchestrator: prompt, model, tools, model again, until the model has nothing left to call.

The loop reaches hooks only through the session: `turn`, `stream_model`, `call_tool`, and `agent:stop` before it ends.
Texts that hooks inject are in the context when the model is called next.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from attrs import define, evolve, field, frozen

from amplifier_hooks.cli.chat.models import ModelFailed, join_pieces
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.events import AGENT_STOP
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_hooks.cli.chat.chat_tools import Tool
    from amplifier_hooks.cli.chat.models import ChatAnswer, ChatModel, ToolUse
    from amplifier_hooks.cli.chat.screen import ChatScreen
    from amplifier_hooks.session.coordinator import SessionCoordinator
    from amplifier_hooks.session.model_call import ModelOutcome
    from amplifier_hooks.session.tool_call import ToolOutcome


STEPS: Final = 100
"""Model calls in one turn."""
REFUSALS: Final = 8
"""The number of times in a row that hooks may keep the loop from stopping."""

TurnStatus = Literal["completed", "denied", "failed"]


@frozen
class TurnResult:
    """The result of a turn."""

    status: TurnStatus
    text: str = ""
    """The model's last text, or the reason that there is none."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Each tool call with its name, its input, its status and its result."""


@define
class Conversation:
    """One session, one model and its tools, with a screen."""

    session: SessionCoordinator
    model: ChatModel
    tools: Sequence[Tool]
    screen: ChatScreen
    _used: list[Mapping[str, Any]] = field(factory=list)

    async def turn(self, prompt: str) -> TurnResult:
        """Run one turn. Cancelling ends it: a running tool is cancelled, and an open request is withdrawn."""
        self._used = []
        async with self.session.turn(prompt, orchestrator="chat") as turn:
            if turn.denied:
                return TurnResult("denied", turn.reason or "the prompt was denied")
            self.session.context.add_message("user", turn.prompt)
            result = await self._work()
            turn.response = result.text
            if result.status != "completed":
                turn.status = "denied" if result.status == "denied" else "error"
            return result

    async def _work(self) -> TurnResult:
        """Call the model and its tools by turns, until the model calls no tool and no hook keeps it from stopping."""
        context, kept_going = self.session.context, 0
        for _ in range(STEPS):
            outcome = await self._ask_model()
            if not outcome.ok:
                return self._without_answer(outcome)
            answer: ChatAnswer = outcome.value
            if answer.uses:
                await self._use_tools(answer)
                continue
            context.add_message("assistant", answer.text)
            stops = {"agent_name": "chat", "response": answer.text, "stop_hook_active": kept_going > 0}
            if not (await self.session.emit(AGENT_STOP, stops)).denied or kept_going == REFUSALS:
                return TurnResult("completed", answer.text, tuple(self._used))
            kept_going += 1
        return TurnResult("failed", f"it was not done after {STEPS} calls of the model", tuple(self._used))

    async def _ask_model(self) -> ModelOutcome:
        """Call the model, and pass its text to the screen as it comes."""
        stream = self.session.stream_model(
            lambda messages: self.model.stream(messages, self.tools),
            join=join_pieces,
            model=self.model.name,
            tool_calls=lambda answer: [{"id": use.id, "name": use.name, "input": use.input} for use in answer.uses],
        )
        async for piece in stream:
            if isinstance(piece, str):
                self.screen.text(piece)
        self.screen.text_ended()
        assert stream.outcome is not None  # noqa: S101  # it is there once nothing more comes
        return stream.outcome

    def _without_answer(self, outcome: ModelOutcome) -> TurnResult:
        if outcome.denied:
            return TurnResult("denied", outcome.reason or "", tuple(self._used))
        error = outcome.error
        assert error is not None  # noqa: S101  # one that is not denied has failed
        why = str(error) if isinstance(error, ModelFailed) else describe(error)
        return TurnResult("failed", f"The model did not answer: {why}", tuple(self._used))

    # -- tools ---------------------------------------------------------------------------------------------------

    async def _use_tools(self, answer: ChatAnswer) -> None:
        """Run every tool that the answer calls, one after the other, and add the results in that order."""
        context, uses = self.session.context, with_unique_ids(answer.uses)
        calls = [{"id": use.id, "name": use.name or "?", "input": use.input or {}} for use in uses]
        context.add_tool_calls(calls, answer.text)
        for use in uses:
            result, failed = await self._use_tool(use)
            context.add_tool_result(use.id, result, is_error=failed)

    async def _use_tool(self, use: ToolUse) -> tuple[str, bool]:
        """Run one tool call; return the text for the model, and True if the text is no result."""
        tool = next((tool for tool in self.tools if tool.name == use.name), None)
        if tool is None:
            there = ", ".join(tool.name for tool in self.tools)
            return f"there is no tool {for_model(use.name)}; there are {there}", True
        if use.input is None:
            return "the arguments are no JSON object; nothing was run", True
        self.screen.calls(use.name, use.input)
        began = perf_counter()

        async def run(given: dict[str, Any]) -> str:
            with self.screen.running(use.name):
                value = tool.run(given)
                return value if isinstance(value, str) else await value

        outcome = await self.session.call_tool(use.name, use.input, run, call_id=use.id)
        self.screen.show_outcome(outcome, perf_counter() - began)
        result = outcome_text(outcome)
        self._used.append({"name": use.name, "input": use.input, "status": outcome.status, "result": result})
        return result, not outcome.ok


def with_unique_ids(uses: Sequence[ToolUse]) -> list[ToolUse]:
    """Return the tool calls, each with a unique id: some servers give none, or one id to all."""
    ids = [use.id for use in uses]
    return [use if use.id and ids.count(use.id) == 1 else evolve(use, id=f"call_{uuid4().hex[:16]}") for use in uses]


def outcome_text(outcome: ToolOutcome[Any]) -> str:
    """Return the text that the model reads about a tool call."""
    if outcome.error is not None:
        return f"{type(outcome.error).__name__}: {outcome.reason or ''}"
    return str(outcome.value) if outcome.ok else outcome.reason or outcome.status
