"""Carries what the hooks said to its effects: the record, the screen, a person, the context, and the operation itself.

`call_tool` is the whole way of one tool call; its steps stand below it in the order they are taken.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self, cast
from uuid import uuid4

import msgspec
from attrs import frozen

from amplifier_hooks import events
from amplifier_hooks.action import Action, freeze, thaw
from amplifier_hooks.around import ToolContext
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.effects.approval import Approval, Approver
from amplifier_hooks.effects.audit import NoRecord, Recorder, RecordUnavailable
from amplifier_hooks.effects.context import Injector, InMemoryContext
from amplifier_hooks.effects.display import LogDisplay, show
from amplifier_hooks.errors import HookAbortError, InjectionTooLarge, InputNotFreezable
from amplifier_hooks.escape import for_model
from amplifier_hooks.events import IDENTITY_FIELDS, PROMPT_SUBMIT, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry import HookRegistry
from amplifier_hooks.result import Cause, ContextInjection, Outcome, UserMessage
from amplifier_hooks.view import DataView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType

    from amplifier_hooks.ports import ApprovalBackend, AuditSink, Clock, ContextManager, DisplaySystem

__all__ = ["SessionCoordinator", "ToolOutcome"]

log = get_logger(__name__)

CAUSE_OF: Final[Mapping[str, Cause]] = {
    "denied": "denied_by_person",
    "expired": "approval_expired",
    "unavailable": "approval_unavailable",
}
"""Why an approval denies, by what became of its request."""

CHANGED_IN_PLACE: Final = "a hook changed the input in place; to change it, hooks answer HookResult.modify({...})"


@frozen(kw_only=True)
class ToolOutcome:
    """What became of one tool call: `ok` with a `value`, `denied`, or failed with the tool's own `error`.

    `reason` is what the model is to read about a denial, escaped and ready for its context.
    """

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

    def __init__(  # noqa: PLR0917  # the collaborators, in the order in which they are named everywhere
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
        # Compared with None, not asked whether they are true: a context with a length is false while it is empty.
        self.session_id = session_id or uuid4().hex
        self.hooks = HookRegistry() if hooks is None else hooks
        self.context: ContextManager = InMemoryContext() if context is None else context
        self.tenant = tenant
        self._clock: Clock = SystemClock() if clock is None else clock
        self._display: DisplaySystem = LogDisplay() if display is None else display
        self._audit: AuditSink = NoRecord() if audit is None else audit
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
        """Tell the hooks, carry their answers out, and return the outcome after its effects.

        Where the event can be stopped, the outcome is denied when an asked person does not allow it and when the
        record cannot be written. Injections of what was denied stay in the outcome, for the denial to quote.
        """
        outcome = await self._decide(event, data)
        stoppable = can_be_stopped(outcome.event)
        if outcome.asks and stoppable and not outcome.denied:
            try:
                action = self._action(outcome.event, outcome.data.get("tool_name"), freeze(arguments_of(outcome)))
            except InputNotFreezable as error:
                outcome = denied(outcome, "InputNotFreezable", str(error))
            else:
                outcome, approval = await self._ask(outcome, action)
                if not outcome.denied:
                    outcome = await self._claim(outcome, approval)
        if not (outcome.denied and stoppable):
            await self._inject(outcome.injections)
        await self.hooks.notify(outcome)
        return outcome

    async def call_tool(
        self, name: str, tool_input: Mapping[str, Any], call: Callable[[Any], Awaitable[Any] | Any]
    ) -> ToolOutcome:
        """Run one tool call past the hooks: decide, ask, record, run, tell.

        A denial comes back as a `ToolOutcome` the model can read, and so does the tool's own exception. Nothing runs
        that was not recorded first, and what runs is exactly what was approved.

        Cancelling it takes back an open question, or cancels the tool; the record says which.
        """
        call_id = uuid4().hex
        try:
            before = frozen_object(tool_input)
        except InputNotFreezable as error:
            return await self._refused(name, "InputNotFreezable", str(error))
        given = thaw(before)
        payload = {"tool_name": name, "tool_call_id": call_id, "tool_input": given}
        outcome = await self._decide(TOOL_PRE, payload, durable=False)  # what follows from it is
        action: Action | None = None
        approval: Approval | None = None
        if not outcome.denied:
            outcome, action = self._final(name, outcome, given, before)
        if action is not None and outcome.asks:
            outcome, approval = await self._ask(outcome, action)
        if action is not None and not outcome.denied:
            outcome = await self._admit(outcome, action, call_id, approval)
        await self.hooks.notify(outcome)
        if action is None or outcome.denied:
            return await self._refused(name, outcome.denied_by or "registry", outcome.reason, outcome.injections)
        return await self._run(action, call_id, call, outcome.injections, approval)

    # -- the steps of a tool call --------------------------------------------------------------------------------------

    async def _decide(self, event: str, data: Mapping[str, Any], *, durable: bool = True) -> Outcome:
        """Ask the hooks, put what they said on record, and show what is for the user."""
        outcome = await self.hooks.decide(event, {**self._who(), **data})
        if can_be_stopped(outcome.event):
            try:
                await self._recorder.write("outcome", recorded(outcome), durable=durable)
            except RecordUnavailable as error:
                outcome = denied(outcome, "record", str(error))
        else:
            await self._recorder.note("outcome", recorded(outcome))
        await show(self._display, outcome.messages)
        return outcome

    def _final(self, name: str, outcome: Outcome, given: object, before: bytes) -> tuple[Outcome, Action | None]:
        """The action as the hooks left it.

        A hook that reaches into the input changes it behind the gates that have looked already, so that is refused.
        """
        value = outcome.data["tool_input"]
        try:
            final = frozen_object(value)
        except InputNotFreezable as error:
            return denied(outcome, "InputNotFreezable", str(error)), None
        if value is given and final != before:
            return denied(outcome, "session", CHANGED_IN_PLACE, "hook_invalid_output"), None
        return outcome, self._action(TOOL_PRE, name, final)

    async def _ask(self, outcome: Outcome, action: Action) -> tuple[Outcome, Approval | None]:
        """The outcome once somebody, or nobody, has decided."""
        try:
            approval = await self._approver.ask(outcome, action)
        except RecordUnavailable as error:
            return denied(outcome, "record", str(error)), None
        if approval.allowed:
            return msgspec.structs.replace(outcome, action="continue", reason=approval.reason), approval
        by = ", ".join(dict.fromkeys(ask.hook_name for ask in outcome.asks))
        return denied(outcome, by, approval.reason, CAUSE_OF[approval.status]), approval

    async def _admit(self, outcome: Outcome, action: Action, call_id: str, approval: Approval | None) -> Outcome:
        """Record that it is about to run, then claim the approval it has; without either it does not run."""
        try:
            await self._recorder.write("tool.running", facts_of(action, call_id))
        except RecordUnavailable as error:
            if approval is not None:
                await self._approver.withdraw(approval.request, "the record cannot be written")
            return denied(outcome, "record", str(error))
        return await self._claim(outcome, approval)

    async def _claim(self, outcome: Outcome, approval: Approval | None) -> Outcome:
        """Use the approval up; it is good for one run."""
        if approval is None or await self._approver.claim(approval):
            return outcome
        return denied(outcome, "session", "the approval no longer holds for this action", "approval_unavailable")

    async def _run(
        self,
        action: Action,
        call_id: str,
        call: Callable[[Any], Awaitable[Any] | Any],
        injections: tuple[ContextInjection, ...],
        approval: Approval | None,
    ) -> ToolOutcome:
        """Run it inside its around hooks, and tell what came of it. The model reads injections after that."""
        facts = facts_of(action, call_id)
        began, ran, failure = perf_counter(), False, None

        async def operation() -> object:
            nonlocal ran, failure
            ran = True
            try:
                value = call(action.input())
                return await value if inspect.isawaitable(value) else value
            except Exception as error:
                failure = error
                raise

        context = ToolContext(
            event_type=TOOL_PRE,
            tenant_id=self.tenant,
            tool_name=action.tool,
            arguments=DataView(cast("dict[str, Any]", action.input())),  # an object, as it was frozen
        )
        about = {"tool_name": action.tool, "tool_call_id": call_id, "tool_input": action.input()}
        try:
            value = await self.hooks.wrap("tool", context, operation, tool=action.tool)
        except asyncio.CancelledError:
            await self._recorder.note("tool.cancelled", {**facts, "ran": ran})
            raise
        except Exception as error:  # noqa: BLE001  # a tool's failure is a result like any other
            await self._approver.settle(approval, "failed")
            if isinstance(error, HookAbortError) and not ran:
                return await self._refused(action.tool, error.hook or "around hook", error.reason, injections)
            problem = {"type": type(error).__name__, "message": text_of(error)}
            await self._recorder.note("tool.failed", {**facts, "error": problem})
            await self._inject(injections)
            await self.emit(TOOL_ERROR, {**about, "error": problem})
            return ToolOutcome(error=error)
        spent = (perf_counter() - began) * 1e3
        await self._approver.settle(approval, "failed" if failure else "done")
        await self._recorder.note("tool.done", {**facts, "ran": ran, "duration_ms": spent})
        await self._inject(injections)
        told = await self.emit(TOOL_POST, {**about, "result": value, "duration_ms": spent})
        return ToolOutcome(value=told.data["result"] if told.modified else value)

    async def _refused(
        self, tool: str, by: str, reason: str | None, injections: Iterable[ContextInjection] = ()
    ) -> ToolOutcome:
        """A denial the model can read; what hooks wanted to inject is told inside it, and nowhere else."""
        await self._recorder.note("tool.denied", {"tool": tool, "by": by, "reason": reason}, durable=True)
        parts = [for_model(f"Operation denied by {by}: {reason or 'no reason given'}")]
        for item in injections:
            try:
                parts.append(await self._injector.quote(item))
            except InjectionTooLarge as error:
                await self._left_out(item, error)
        return ToolOutcome(denied=True, by=by, reason="\n\n".join(parts))

    # -- effects -------------------------------------------------------------------------------------------------------

    def _who(self) -> dict[str, Any]:
        """What every payload carries."""
        return {
            "session_id": self.session_id,
            "tenant_id": self.tenant,
            "timestamp": self._clock.now().isoformat(),
            "turn": self._turn,
        }

    def _action(self, event: str, tool: object, input_bytes: bytes) -> Action:
        return Action(self.tenant, self.session_id, event, tool if isinstance(tool, str) else "", input_bytes)

    async def _inject(self, injections: Iterable[ContextInjection]) -> None:
        """Texts for the model. One that cannot be delivered is told to the user, and the rest goes on."""
        for item in injections:
            try:
                await self._injector.inject(item)
            except Exception as error:  # noqa: BLE001  # the context is the host's and may raise anything
                await self._left_out(item, error)

    async def _left_out(self, item: ContextInjection, error: Exception) -> None:
        problem = str(error) if isinstance(error, InjectionTooLarge) else f"the context failed: {text_of(error)}"
        log.warning("injection_left_out", hook=item.hook_name, error=problem)
        await self._recorder.note("injection.left_out", {"hook": item.hook_name, "problem": problem})
        text = f"a text of hook {item.hook_name!r} did not reach the model: {problem}"
        await show(self._display, [UserMessage(text=text, level="warning", hook_name=item.hook_name, source="session")])


def can_be_stopped(event: str) -> bool:
    """Whether a denial keeps something from happening; of an event nobody described, that is assumed."""
    row = events.find(event)
    return row is None or row.gate


def denied(outcome: Outcome, by: str, reason: str, cause: Cause | None = None) -> Outcome:
    """The same outcome, denied after the hooks had their say; what they said stays on record."""
    return msgspec.structs.replace(outcome, action="deny", denied_by=by, reason=reason, cause=cause)


def frozen_object(value: object) -> bytes:
    """A tool's input as canonical bytes.

    Raises `InputNotFreezable`, also for what is no JSON object.
    """
    if not isinstance(value, Mapping):
        raise InputNotFreezable(f"$ is of type {type(value).__name__}, and a tool's input is an object")
    return freeze(value if isinstance(value, dict) else dict(value))


def arguments_of(outcome: Outcome) -> dict[str, Any]:
    """What an approval of this event is about: its data, without who, where and which."""
    return {name: value for name, value in outcome.data.items() if name not in IDENTITY_FIELDS}


def recorded(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the record has it: every answer that is not a plain continue, and what they came to."""
    return {
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


def facts_of(action: Action, call_id: str) -> dict[str, Any]:
    """An action as the record has it: its input by digest."""
    return {"tool": action.tool, "call": call_id, "digest": action.digest}


def text_of(error: BaseException) -> str:
    """What an exception says, if it can say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # its __str__ is somebody else's code
        return ""
