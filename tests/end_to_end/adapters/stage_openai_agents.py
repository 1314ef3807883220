"""The OpenAI Agents SDK, with the scripted model it brings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agents import Agent, FunctionTool, RunConfig, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from amplifier_hooks.adapters.openai_agents import OpenAIAgents
from amplifier_hooks.errors import HookAbortError
from tests.end_to_end.adapters.stage import Ran, Say, Stage, Use

if TYPE_CHECKING:
    from amplifier_hooks import SessionCoordinator


class OpenAIAgentsStage(Stage):
    """One agent with one function tool."""

    def _agent(self, *script: Use | Say) -> tuple[Agent[Any], ScriptedModel]:
        steps = [
            [function_call(step.tool, step.input, call_id=f"call_{number}_{len(self.wrote)}")]
            if isinstance(step, Use)
            else [assistant_message(step.text)]
            for number, step in enumerate(script)
        ]
        model = ScriptedModel(steps)
        return Agent(name="writer", tools=[self._tool()], model=model), model

    def _tool(self) -> FunctionTool:
        return function_tool(self.write, name_override="write", description_override="Writes a file.")

    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run once, from a prompt."""
        agent, model = self._agent(*script)
        try:
            result = await OpenAIAgents(session).run(agent, prompt, run_config=RunConfig(tracing_disabled=True))
        except HookAbortError as error:
            return Ran(read=read_by(model), refused=str(error))
        stored = result.to_state().to_string() if result.interruptions else None
        return Ran(read=read_by(model), stored=stored)

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Resume the run from its state."""
        agent, model = self._agent(*script)
        config = RunConfig(tracing_disabled=True)
        result = await OpenAIAgents(session).resume(agent, stored, run_config=config)
        again = result.to_state().to_string() if result.interruptions else None
        return Ran(read=read_by(model), stored=again)


def read_by(model: ScriptedModel) -> list[str]:
    """Return the input of the model."""
    return [json.dumps(call.input, default=str) for call in model.calls]
