"""LangChain, with a chat model that has a script."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from amplifier_hooks.adapters.langchain import SessionMiddleware
from amplifier_hooks.errors import HookAbortError
from tests.end_to_end.adapters.stage import Ran, Say, Stage, Use

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from amplifier_hooks import SessionCoordinator

__all__ = ["THREAD", "LangChainStage", "Scripted", "kept", "stored_again"]

THREAD: RunnableConfig = {"configurable": {"thread_id": "story"}}


class Scripted(BaseChatModel):
    """A model with a script."""

    script: list[Use | Say]
    read: list[str]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
        """Return the model, which knows the tools already."""
        return self

    def _generate(self, messages: list[BaseMessage], *_arguments: Any, **_options: Any) -> ChatResult:
        step = self.script[len(self.read)]
        number = f"call-{len(messages)}-{len(self.read)}"
        given: Any = step.input if isinstance(step, Use) else None
        self.read.append(json.dumps([one.model_dump(mode="json") for one in messages]))
        if isinstance(step, Say):
            answer = AIMessage(step.text)
        elif isinstance(given, str):  # LangChain parses the model's own text
            call = {"id": number, "type": "function", "function": {"name": step.tool, "arguments": given}}
            answer = AIMessage("", additional_kwargs={"tool_calls": [call]})
        else:
            answer = AIMessage("", tool_calls=[{"name": step.tool, "args": step.input, "id": number}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


class LangChainStage(Stage):
    """One agent with one tool."""

    def _agent(self, session: SessionCoordinator, saver: InMemorySaver, *script: Use | Say) -> tuple[Any, Scripted]:
        def write(path: str, text: str) -> str:
            """Write a file."""
            return self.write(path, text)

        model = Scripted(script=list(script), read=[])
        tools = [StructuredTool.from_function(write)]
        return create_agent(model, tools, middleware=[SessionMiddleware(session)], checkpointer=saver), model

    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run once, from a prompt. In LangChain an error of a tool ends the run."""
        saver = InMemorySaver()
        agent, model = self._agent(session, saver, *script)
        refused = None
        try:
            await agent.ainvoke({"messages": [HumanMessage(prompt)]}, THREAD)
        except (HookAbortError, OSError) as error:
            refused = str(error)
        return Ran(read=model.read, stored=kept(saver), refused=refused)

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Resume the thread from its checkpoints."""
        saver = stored_again(stored)
        agent, model = self._agent(session, saver, *script)
        await agent.ainvoke(Command(resume={"type": "approve"}), THREAD)
        return Ran(read=model.read, stored=kept(saver))


def kept(saver: InMemorySaver) -> bytes:
    """Return the checkpoints, as they would be stored."""
    threads = {thread: {place: dict(one) for place, one in kept.items()} for thread, kept in saver.storage.items()}
    return pickle.dumps((threads, dict(saver.writes), dict(saver.blobs)))


def stored_again(stored: bytes) -> InMemorySaver:
    """Return checkpoints as another process finds them."""
    saver = InMemorySaver()
    threads, writes, blobs = pickle.loads(stored)
    for thread, places in threads.items():
        for place, one in places.items():
            saver.storage[thread][place] = one
    saver.writes.update(writes)
    saver.blobs.update(blobs)
    return saver
