"""Microsoft Agent Framework, which asks AGENT-HOOKS interceptors at every point of a run."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    create_agent_hooks_middleware,
    tool,
)
from agent_hooks import InterceptionBlocked

from amplifier_hooks.adapters.agent_hooks import SessionInterceptor
from tests.end_to_end.adapters.stage import Ran, Say, Stage, Use

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from amplifier_hooks import SessionCoordinator


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]  # there or not
    """A model with a script."""

    def __init__(self, script: tuple[Use | Say, ...]) -> None:
        super().__init__()
        self.script = script
        self.read: list[str] = []

    def _inner_get_response(self, *, messages: Any, **_options: Any) -> Awaitable[Any]:
        return self._next(messages)

    async def _next(self, messages: Any) -> Any:
        number = len(self.read)
        self.read.append(json.dumps([[part.to_dict() for part in one.contents] for one in messages], default=str))
        step = self.script[number]
        if isinstance(step, Use):
            call = Content.from_function_call(
                call_id=f"call-{number}", name=step.tool, arguments=json.dumps(step.input)
            )
            return ChatResponse(messages=[Message(role="assistant", contents=[call])])
        return ChatResponse(messages=[Message(role="assistant", contents=[Content.from_text(step.text)])])


class AgentFrameworkStage(Stage):
    """One agent with one function tool."""

    failure: ClassVar[str] = "OSError"

    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run once."""

        @tool(name="write", approval_mode="never_require")  # type: ignore[untyped-decorator, unused-ignore]  # as above
        def write(path: str, text: str) -> str:
            """Write a file."""
            return self.write(path, text)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the class warns that it is experimental
            middleware = create_agent_hooks_middleware([SessionInterceptor(session)], timeout=60)
        client = Scripted(script)
        agent = Agent(client=client, tools=[write], middleware=[middleware])
        refused = None
        try:
            await agent.run(prompt)
        except InterceptionBlocked as blocked:
            refused = str(blocked.result.verdict.message)
        return Ran(read=client.read, refused=refused, stored=script)

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Run the agent anew, because the contract has no interruption. The model makes an equal call again."""
        return await self.run(session, *stored)
