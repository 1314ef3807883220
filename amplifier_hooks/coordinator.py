"""Carries what the hooks said to its effects: the record, the screen, a person, the context, and the operation itself.

`call_tool` is the whole way of one tool call; its steps stand below it in the order they are taken.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import msgspec
from attrs import frozen

from amplifier_hooks.action import Action, freeze, thaw
from amplifier_hooks.around import ToolContext
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.effects.approval import Approval, Approver
from amplifier_hooks.effects.audit import NoRecord, Recorder
from amplifier_hooks.effects.context import InMemoryContext, Injector
from amplifier_hooks.effects.display import LogDisplay, show
from amplifier_hooks.errors import HookAbortError, InjectionTooLarge, InputNotFreezable
from amplifier_hooks.events import PROMPT_SUBMIT, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalBackend, AuditSink, Clock, ContextManager, DisplaySystem
from amplifier_hooks.registry import HookRegistry
from amplifier_hooks.result import Cause, Outcome, UserMessage
from amplifier_hooks.view import DataView

__all__ = ["SessionCoordinator", "ToolOutcome"]

log = get_logger(__name__)

CAUSE_OF: Final[Mapping[str, Cause]] = {
    "denied": "denied_by_person",
    "expired": "approval_expired",
    "unavailable": "approval_unavailable",
}
"""Why an approval denies, by what became of its request."""


@frozen(kw_only=True)
class ToolOutcome:
    """What became of one tool call: `ok` with a `value`, `denied`, or failed with the tool's own `error`."""

    value: Any = None
    denied: bool = False
    reason: str | None = None
    by: str | None = None
    error: BaseException | None = None

    @property
    def ok(self) -> bool:
        """Whether the tool ran and returned."""
        return not self.denied and self.error is None


class SessionCoordinator:
    """One session: its hooks, its context, its screen, its approver and its record.

    Every collaborator has a working default, so `SessionCoordinator()` alone runs. Use it as an async context
    manager; leaving it closes the record.
    """

    def __init__(
        self,
        session_id: str | None = None,
        hooks: HookRegistry | None = None,
        context: ContextManager | None = None,
        approvals: ApprovalBackend | None = None,
        display: DisplaySystem | None = None,
        audit: AuditSink | None = None,
        *,
        tenant: str = "",
        agent: str = "agent",
        clock: Clock | None = None,
    ) -> None:
        self.session_id = session_id or uuid4().hex
        self.hooks = hooks or HookRegistry()
        self.context = context or InMemoryContext()
        self.tenant = tenant
        self._clock = clock or SystemClock()
        self._approvals = approvals
        self._display = display or LogDisplay()
        self._audit = audit or NoRecord()
        self._recorder = Recorder(self._audit, self._clock, self.session_id, tenant)
        self._injector = Injector(self.context, self._recorder, self._clock, tenant)
        self._approver = Approver(approvals, self._recorder, self._clock, agent)
        self._turn = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the record. Twice is harmless."""
        await self._audit.close()

    @asynccontextmanager
    async def turn(self, prompt: str) -> AsyncIterator[Outcome]:
        """One turn: the prompt passes its hooks first, and the outcome says whether it may go on."""
        self._turn += 1
        yield await self.emit(PROMPT_SUBMIT, {"prompt": prompt})

    async def emit(self, event: str, data: Mapping[str, Any]) -> Outcome:
        """Tell the hooks, carry their answers out, and return the outcome after its effects."""
        payload = {**self._who(), **data}
        outcome = await self.hooks.decide(event, payload)
        await self._record(outcome)
        await show(self._display, outcome.messages)
        if not outcome.denied:
            await self._inject(outcome)
        await self.hooks.notify(outcome)
        return outcome

    async def call_tool(
        self, name: str, tool_input: Mapping[str, Any], call: Callable[[Any], Awaitable[Any] | Any]
    ) -> ToolOutcome:
        """Run one tool call past the hooks: decide, ask, record, run, tell.

        A denial comes back as a `ToolOutcome` the model can read, and so does the tool's own exception. Nothing runs
        that was not recorded first, and what runs is exactly what was approved.
        """
        call_id = uuid4().hex
        try:
            frozen_input = freeze(tool_input)
        except InputNotFreezable as error:
            return await self._refused(name, "InputNotFreezable", str(error))
        payload = {**self._who(), "tool_name": name, "tool_call_id": call_id, "tool_input": thaw(frozen_input)}
        outcome = await self.hooks.decide(TOOL_PRE, payload)
        await self._record(outcome)
        await show(self._display, outcome.messages)
        if outcome.denied:
            await self.hooks.notify(outcome)
            return await self._refused(name, outcome.denied_by or "registry", outcome.reason, outcome)
        try:
            action = self._action(name, outcome)
        except InputNotFreezable as error:
            return await self._refused(name, "InputNotFreezable", str(error), outcome)
        if outcome.asks:
            approval = await self._approver.ask(outcome, action, DataView(outcome.data["tool_input"]))
            outcome = self._after(outcome, approval)
        await self.hooks.notify(outcome)
        if outcome.denied:
            return await self._refused(name, outcome.denied_by or "registry", outcome.reason, outcome)
        await self._inject(outcome)
        return await self._run(action, call_id, call)

    # -- the steps of a tool call ---------------------------------------------------------------------------------

    def _action(self, name: str, outcome: Outcome) -> Action:
        """The final input, frozen."""
        return Action(self.tenant, self.session_id, TOOL_PRE, name, freeze(outcome.data["tool_input"]))

    def _after(self, outcome: Outcome, approval: Approval) -> Outcome:
        """The outcome once somebody, or nobody, has decided."""
        if approval.allowed:
            return msgspec.structs.replace(outcome, action="continue", reason=approval.reason)
        by = ", ".join(dict.fromkeys(ask.hook_name for ask in outcome.asks))
        return msgspec.structs.replace(
            outcome, action="deny", reason=approval.reason, denied_by=by, cause=CAUSE_OF[approval.status]
        )

    async def _run(self, action: Action, call_id: str, call: Callable[[Any], Awaitable[Any] | Any]) -> ToolOutcome:
        """Record it, run it inside its around hooks, and tell what came of it."""
        facts = {"tool": action.tool, "call": call_id, "digest": action.digest}
        await self._recorder.write("tool.running", facts, durable=True)
        context = ToolContext(
            event_type=TOOL_PRE,
            tenant_id=self.tenant,
            tool_name=action.tool,
            arguments=DataView(thaw(action.input_bytes)),  # type: ignore[call-overload]  # an object, as it was frozen
        )

        async def operation() -> Any:
            value = call(thaw(action.input_bytes))
            return await value if inspect.isawaitable(value) else value

        began = perf_counter()
        about = {"tool_name": action.tool, "tool_call_id": call_id, "tool_input": thaw(action.input_bytes)}
        try:
            value = await self.hooks.wrap("tool", context, operation, tool=action.tool)
        except HookAbortError as abort:
            return await self._refused(action.tool, abort.hook or "around hook", abort.reason)
        except Exception as error:  # noqa: BLE001  # a tool's failure is a result like any other
            problem = {"type": type(error).__name__, "message": str(error)}
            await self._recorder.write("tool.failed", {**facts, "error": problem})
            await self.emit(TOOL_ERROR, {**about, "error": problem})
            return ToolOutcome(error=error)
        spent = (perf_counter() - began) * 1e3
        await self._recorder.write("tool.done", {**facts, "duration_ms": spent})
        told = await self.emit(TOOL_POST, {**about, "result": value, "duration_ms": spent})
        return ToolOutcome(value=told.data["result"] if told.modified else value)

    async def _refused(self, tool: str, by: str, reason: str | None, outcome: Outcome | None = None) -> ToolOutcome:
        """A denial the model can read; what hooks wanted to inject is told inside it, and nowhere else."""
        await self._recorder.write("tool.denied", {"tool": tool, "by": by, "reason": reason}, durable=True)
        said = f"Operation denied by {by}: {reason or 'no reason given'}"
        extra = [item.content for item in outcome.injections] if outcome else []
        return ToolOutcome(denied=True, by=by, reason="\n\n".join([said, *extra]))

    # -- effects -------------------------------------------------------------------------------------------------

    def _who(self) -> dict[str, Any]:
        """What every payload carries."""
        return {
            "session_id": self.session_id,
            "tenant_id": self.tenant,
            "timestamp": self._clock.now().isoformat(),
            "turn": self._turn,
        }

    async def _record(self, outcome: Outcome) -> None:
        """Every answer that is not a plain continue, and what they came to."""
        facts = {
            "event": outcome.event,
            "action": outcome.action,
            "reason": outcome.reason,
            "denied_by": outcome.denied_by,
            "cause": outcome.cause,
            "answers": [
                {
                    "hook": answer.hook_name,
                    "action": answer.action,
                    "status": answer.status,
                    "error": answer.error,
                    "duration_ms": answer.duration_ms,
                }
                for answer in outcome.answers
            ],
        }
        await self._recorder.write("outcome", facts)

    async def _inject(self, outcome: Outcome) -> None:
        """Texts for the model. One that is too large is told to the user, and the rest goes on."""
        for item in outcome.injections:
            try:
                await self._injector.inject([item])
            except InjectionTooLarge as error:
                message = UserMessage(text=str(error), level="warning", hook_name=item.hook_name, source="session")
                await self._recorder.write("injection.refused", {"hook": item.hook_name, "size": error.size})
                await show(self._display, [message])
