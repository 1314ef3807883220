"""AGENT-HOOKS both ways: our hooks in a host that speaks it, and an interceptor written for it in front of a session.

Microsoft Agent Framework is such a host: `create_agent_hooks_middleware([SessionInterceptor(session)], timeout=600)`.

Run it, with the extra agent-hooks: python examples/adapters/with_agent_hooks.py

Prints:
    their host: pre_tool_call blocked: deny (denied:guard)
    our session: Operation denied by agent-hooks:tool:pre: not_today: ask again tomorrow
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from agent_hooks import AgentContextBuilder, InterceptionBlocked, InterceptionEmitter, Verdict

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.agent_hooks import AgentHooksHost, SessionInterceptor

registry = HookRegistry()


@registry.gate("tool:pre", match="write_file")
async def guard(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Keep the agent out of production."""
    return HookResult.deny("not in production") if "production" in data["tool_input"]["path"] else None


async def in_their_host() -> None:
    """Act as such a host before a tool call: ask the interceptors, of which ours is one."""
    async with SessionCoordinator(hooks=registry) as session:
        emitter = InterceptionEmitter().register(SessionInterceptor(session))
        contexts = AgentContextBuilder(agent_id="writer", framework="theirs", session_id="s")
        try:
            await emitter.emit(contexts.pre_tool_call(call_id="1", name="write_file", args={"path": "production.cfg"}))
        except InterceptionBlocked as blocked:
            print(f"their host: {blocked}")


class NotToday:
    """A foreign interceptor."""

    def intercept(self, context: dict[str, Any], /) -> Verdict:
        """Allow everything but tools."""
        if context["interception_point"] == "pre_tool_call":
            return Verdict.deny(reason="not_today", message="ask again tomorrow")
        return Verdict.allow()


async def in_our_session() -> None:
    """Their interceptor as a gate of a session."""
    session = SessionCoordinator(hooks=registry)
    AgentHooksHost(session, InterceptionEmitter().register(NotToday()))
    async with session:
        result = await session.call_tool("write_file", {"path": "notes.txt"}, lambda _: "written")
        print(f"our session: {result.reason}")


async def main() -> None:
    """Try both."""
    await in_their_host()
    await in_our_session()


if __name__ == "__main__":
    asyncio.run(main())
