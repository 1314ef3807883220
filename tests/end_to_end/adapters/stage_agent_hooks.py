"""A host that speaks AGENT-HOOKS: an agent loop with an emitter, which knows this package only as an interceptor."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_hooks import AgentContextBuilder, InterceptionBlocked, InterceptionEmitter

from amplifier_hooks.adapters.agent_hooks import SessionInterceptor
from tests.end_to_end.adapters.stage import Ran, Say, Stage, Use

if TYPE_CHECKING:
    from amplifier_hooks import SessionCoordinator


class AgentHooksStage(Stage):
    """The loop of the contract: input, model, tools, output, each asked about first."""

    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run one session of the host."""
        emitter = InterceptionEmitter().register(SessionInterceptor(session))
        contexts = AgentContextBuilder(agent_id="writer", framework="stage", session_id="theirs")
        read: list[str] = []
        refused = None
        try:
            await self._worked(emitter, contexts, script, prompt, read)
        except InterceptionBlocked as blocked:
            refused = str(blocked.result.verdict.message)
        await emitter.emit_unchecked(contexts.agent_shutdown(reason="completed" if refused is None else "error"))
        return Ran(read=read, refused=refused, stored=script)

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Run the host anew, because the contract has no interruption. The model makes an equal call again."""
        return await self.run(session, *stored)

    async def _worked(
        self,
        emitter: InterceptionEmitter,
        contexts: AgentContextBuilder,
        script: tuple[Use | Say, ...],
        prompt: str,
        read: list[str],
    ) -> None:
        await emitter.emit(contexts.agent_startup(tools_registered=["write"]))
        asked = await emitter.emit(contexts.input(content=prompt))
        messages = [{"role": "user", "content": asked.target["content"]}]
        for number, step in enumerate(script):
            context = contexts.pre_model_call(model_id="scripted", messages=list(messages))
            messages = (await emitter.emit(context)).target
            read.append(json.dumps(messages))
            calls = [{"id": f"call-{number}", "name": step.tool, "args": step.input}] if isinstance(step, Use) else []
            text = step.text if isinstance(step, Say) else None
            reason = "tool_calls" if calls else "stop"
            await emitter.emit(
                contexts.post_model_call(model_id="scripted", content=text, tool_calls=calls, finish_reason=reason)
            )
            messages.append({"role": "assistant", "content": text or ""})
            for call in calls:
                messages.append({"role": "tool", "content": await self._called(emitter, contexts, call)})
            if text is not None:
                await emitter.emit(contexts.output(content=text))

    async def _called(self, emitter: InterceptionEmitter, contexts: AgentContextBuilder, call: dict[str, Any]) -> Any:
        try:
            context = contexts.pre_tool_call(call_id=call["id"], name=call["name"], args=call["args"])
            given = (await emitter.emit(context)).target
            value: Any = "failed"
            is_error = True
            with suppress(OSError):
                value, is_error = self.write(**given), False
            if is_error:
                value = "the disk is full"
            about = {"call_id": call["id"], "name": call["name"], "args": given}
            return (await emitter.emit(contexts.post_tool_call(**about, value=value, is_error=is_error))).target
        except InterceptionBlocked as blocked:
            return blocked.result.verdict.message
