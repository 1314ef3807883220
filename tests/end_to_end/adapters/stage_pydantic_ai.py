"""pydantic-ai, with its model that is a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from amplifier_hooks.adapters.pydantic_ai import SessionCapability
from amplifier_hooks.errors import HookAbortError
from tests.end_to_end.adapters.stage import Ran, Say, Stage, Use

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo

    from amplifier_hooks import SessionCoordinator


class PydanticAIStage(Stage):
    """One agent with one tool."""

    def _agent(self, read: list[str], *script: Use | Say) -> Agent[None, Any]:
        def model(messages: list[ModelMessage], _about: AgentInfo) -> ModelResponse:
            step, number = script[len(read)], f"call-{len(messages)}-{len(read)}"
            read.append(ModelMessagesTypeAdapter.dump_json(messages).decode())
            part = ToolCallPart(step.tool, step.input, number) if isinstance(step, Use) else TextPart(step.text)
            return ModelResponse(parts=[part])

        agent: Agent[None, Any] = Agent(FunctionModel(model), output_type=[str, DeferredToolRequests])

        @agent.tool_plain
        def write(path: str, text: str) -> str:
            """Write a file."""
            return self.write(path, text)

        return agent

    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run once, from a prompt. In pydantic-ai an error of a tool ends the run."""
        read: list[str] = []
        agent = self._agent(read, *script)
        try:
            result = await agent.run(prompt, capabilities=[SessionCapability(session)])
        except (HookAbortError, OSError) as error:
            return Ran(read=read, refused=str(error))
        waiting = result.output if isinstance(result.output, DeferredToolRequests) else DeferredToolRequests()
        calls = [call.tool_call_id for call in waiting.approvals]
        return Ran(read=read, stored=(result.all_messages_json(), calls))

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Resume the conversation from its messages."""
        messages, calls = stored
        read: list[str] = []
        result = await self._agent(read, *script).run(
            message_history=ModelMessagesTypeAdapter.validate_json(messages),
            deferred_tool_results=DeferredToolResults(approvals=dict.fromkeys(calls, True)),
            capabilities=[SessionCapability(session)],
        )
        return Ran(read=read, stored=(result.all_messages_json(), calls))
