"""One tool call, from the model's request to its result: decide, ask, record, run, notify.

The input is frozen at the beginning and after the last modification. The frozen bytes are shown, approved, claimed and
run.
"""

from __future__ import annotations

import asyncio
import inspect
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from attrs import define, frozen

from amplifier_hooks.act import Action, thaw, unchanged
from amplifier_hooks.dispatch.captured_output import without_capture
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.middleware import ToolContext
from amplifier_hooks.errors import HookAbortError, InputNotFreezable
from amplifier_hooks.events import ERROR_TOOL, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import Outcome
from amplifier_hooks.session.session import cancellations, deny_outcome, frozen_object, problem_of, was_cancelled_since
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.admission.approval_result import Approval
    from amplifier_hooks.ports import Settlement
    from amplifier_hooks.result import Ask, Assessment, Cause, ContextInjection
    from amplifier_hooks.session.session import Session


ROUNDS: Final = 3
"""Number of times that an approver's own arguments pass through the gates in one call."""

TOO_MANY_CHANGES: Final = "the hooks that asked were changed each time before their questions were answered"

TOO_MANY_EDITS: Final = f"the arguments were edited {ROUNDS} times, and no edit passed its gates as it was"

DOES_NOT_FIT: Final = "the input that a hook changed does not fit the tool's schema"

CHANGED_IN_PLACE: Final = "a hook changed the input in place; to change it, hooks answer HookResult.modify({...})"


@frozen(kw_only=True)
class ToolOutcome:
    """The end of one tool call: it is ok with a `value`, denied, pending, or failed with the tool's own `error`.

    `reason` is the text about a denial for the model, escaped and ready for its context, and `cause` the kind of
    reason: `denied_by_person` is a person's denial, `approval_expired` is not. `pending` is the id of an undecided
    request; nothing ran. Calling again with this `call_id` (in another process, if need be) goes on from there: the
    call finds an answer given meanwhile, and the tool then runs once.
    """

    value: Any = None
    denied: bool = False
    reason: str | None = None
    by: str | None = None
    cause: Cause | None = None
    pending: str | None = None
    error: BaseException | None = None
    call_id: str | None = None

    @property
    def ok(self) -> bool:
        """True if the tool ran and returned."""
        return not self.denied and self.error is None and self.pending is None

    @property
    def status(self) -> Literal["ok", "denied", "pending", "failed"]:
        """The end of the call in one word."""
        if self.denied:
            return "denied"
        if self.pending is not None:
            return "pending"
        return "ok" if self.error is None else "failed"


@define(eq=False)
class ToolCall:
    """One call under way. `carry_out` is the sequence; the steps stand below it in the order they are taken."""

    session: Session
    tool: str
    call_id: str
    given: Mapping[str, Any]
    call: Callable[[Any], Awaitable[Any] | Any]
    action: Action | None = None
    """The action that is about to happen, once the hooks have answered."""
    approval: Approval | None = None
    claimed: bool = False
    ran: bool = False
    over: bool = False
    """True if the end of the call is on record."""
    failure: BaseException | None = None
    """The exception that the tool itself raised."""
    notifying: asyncio.Task[None] | None = None
    """The task that shows the observers of tool:pre the outcome, beside the tool."""

    async def carry_out(self) -> ToolOutcome:
        """Carry the call out. Nothing runs that was not recorded first, and it runs with exactly the approved input.

        Cancelling takes back the question or approval, or cancels the tool, and records that.
        """
        session = self.session
        try:
            with session.undecided:
                reason = session.stopped or session.tools_denied
                if reason is not None:
                    return await self._refuse("session", reason)
                outcome = await self._decide(frozen_object(self.given))
                self.notifying = session.start_notifying(outcome)
                if self.approval is not None and self.approval.status == "pending":
                    return await self._leave_pending(self.approval)
                if self.action is None or outcome.denied:
                    return await self._refuse(outcome.denied_by or "registry", outcome.reason, outcome)
            return await self._run(self.action, outcome)
        except InputNotFreezable as error:
            return await self._refuse("InputNotFreezable", str(error))
        except (asyncio.CancelledError, KeyboardInterrupt):
            await self._give_up()
            raise
        finally:
            await self._await_notified()

    # -- before it runs ------------------------------------------------------------------------------------------

    async def _decide(self, before: bytes) -> Outcome:
        """Return the outcome for the input as the hooks leave it, decided by a person where a hook asks.

        An approver's own arguments pass through the hooks like the agent's. They are approved if the hooks leave them
        unchanged and ask nothing that the approver has not answered; otherwise the approver is asked again.
        """
        asked: tuple[Ask, ...] = ()
        assessed: tuple[Assessment, ...] = ()
        attempt, why = 0, TOO_MANY_EDITS
        while True:
            outcome = await self._judge(before)
            if self.action is None or outcome.denied:
                await self._withdraw(f"denied by {outcome.denied_by}")
                return outcome
            if self._is_approved(self.action, outcome, asked):
                return await self._admit(outcome, self.action)
            if attempt == ROUNDS:
                await self._withdraw("superseded")
                return deny_outcome(outcome, "session", why, "approval_unavailable")
            if self.approval is not None:
                await self._withdraw("superseded")
                if not outcome.asks:  # asked as before, so the earlier assessments still hold
                    said = dict.fromkeys((*assessed, *outcome.assessments))
                    outcome = msgspec.structs.replace(outcome, asks=asked, assessments=tuple(said))
            asked, assessed = outcome.asks, outcome.assessments
            outcome, self.approval = await self.session.ask(outcome, self.action, call=self.call_id, attempt=attempt)
            if self.approval is not None and self.session.is_outdated(self.approval):
                await self._withdraw("superseded")
                # An answer to the hook before its change does not count for the changed one.
                self.approval, asked, assessed = None, (), ()
                attempt, why = attempt + 1, TOO_MANY_CHANGES
                continue
            if self.approval is None or outcome.denied or self.approval.status == "pending":
                return outcome
            if self.approval.edited_arguments is None:
                return await self._admit(outcome, self.action)
            before = frozen_object(self.approval.edited_arguments)
            attempt, why = attempt + 1, TOO_MANY_EDITS

    def _is_approved(self, action: Action, outcome: Outcome, asked: tuple[Ask, ...]) -> bool:
        """Return True if no approver has to be asked, or asked again."""
        if self.approval is None:
            return not outcome.asks
        return self.approval.digest == action.digest and all(ask in asked for ask in outcome.asks)

    async def _judge(self, before: bytes) -> Outcome:
        """Return the hooks' outcome for this input, and set the action to the input as they left it."""
        given = thaw(before)
        outcome = await self.session.decide(TOOL_PRE, {**self._call_fields(), "tool_input": given}, durable=False)
        if outcome.denied:
            return outcome
        value = outcome.data["tool_input"]
        try:
            final = before if value is given and unchanged(given, before) else frozen_object(value)
        except InputNotFreezable as error:
            return deny_outcome(outcome, "InputNotFreezable", str(error), "hook_invalid_output")
        if value is given and final != before:  # the gates have judged the input before this change
            return deny_outcome(outcome, "session", CHANGED_IN_PLACE, "hook_invalid_output")
        if value is not given and final != before and self.tool in self.session.schemas:
            problem = self.session.schemas[self.tool].problem(thaw(final))
            if problem is not None:
                return deny_outcome(outcome, _changer(outcome), f"{DOES_NOT_FIT}: {problem}", "hook_invalid_output")
        self.action = self.session.action(TOOL_PRE, self.tool, final)
        return outcome

    async def _admit(self, outcome: Outcome, action: Action) -> Outcome:
        """Record that the tool is about to run, then claim its approval; if either fails, the outcome is denied."""
        session = self.session
        try:
            await session.recorder.keep(action.digest, action.input_bytes)
            await session.recorder.write("tool.running", self._facts(action))
        except RecordUnavailable as error:
            await self._withdraw("the record cannot be written")
            return deny_outcome(outcome, "record", str(error), "audit_unavailable")
        if session.stopped is not None:
            await self._withdraw(session.stopped)
            return deny_outcome(outcome, "session", session.stopped, "session_cancelled")
        self.claimed = True
        return await session.claim(outcome, self.approval)

    # -- running it ----------------------------------------------------------------------------------------------

    async def _run(self, action: Action, outcome: Outcome) -> ToolOutcome:
        """Run the tool inside its around hooks, and report its result. The model reads injections after that."""
        session = self.session
        began, before = perf_counter(), cancellations()
        try:
            if self.notifying is not None:
                await asyncio.sleep(0)  # observers that do not wait are notified before the tool starts
            value = await session.wrap("tool", lambda: self._context(action), lambda: self._operate(action))
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if isinstance(error, asyncio.CancelledError) and was_cancelled_since(before):
                raise
            return await self._fail(action, error, outcome.injections, (perf_counter() - began) * 1e3)
        spent = (perf_counter() - began) * 1e3
        await self._record("tool.done", action, {"duration_ms": spent})
        await self._await_notified()
        if outcome.injections:
            await session.injector.deliver(outcome.injections)
        told = await session.emit(TOOL_POST, {**self._event_data(action), "result": value, "duration_ms": spent})
        return ToolOutcome(value=told.data["result"] if told.modified else value)

    async def _operate(self, action: Action) -> Any:
        """Call the tool with a fresh copy of the approved input."""
        self.ran = True
        try:
            with without_capture():  # a hook may have called the tool, and hide its own output
                value = self.call(action.input())
                return await value if inspect.isawaitable(value) else value
        except BaseException as error:
            self.failure = error
            raise

    # -- ends without a value ------------------------------------------------------------------------------------

    async def _fail(
        self, action: Action, error: BaseException, injections: tuple[ContextInjection, ...], spent: float
    ) -> ToolOutcome:
        """Return the outcome of a call in which the tool raised, or an around hook stopped it."""
        session = self.session
        if isinstance(error, HookAbortError) and not self.ran:
            await self._settle()
            outcome = Outcome(TOOL_PRE, {}, injections=injections)
            return await self._refuse(error.hook or "around hook", error.reason, outcome)
        problem = problem_of(error)
        await self._record("tool.failed", action, {"error": problem, "duration_ms": spent})
        await self._await_notified()
        await session.injector.deliver(injections)
        await session.emit(TOOL_ERROR, {**self._event_data(action), "error": problem, "duration_ms": spent})
        await session.emit(ERROR_TOOL, {**self._call_fields(), "error": problem})
        return ToolOutcome(error=error)

    async def _refuse(self, by: str, reason: str | None, outcome: Outcome | None = None) -> ToolOutcome:
        """Record a denial, and return it as an outcome the model can read."""
        self.over = True
        facts = {"tool": self.tool, "call": self.call_id, "by": by, "reason": reason}
        cause = None if outcome is None else outcome.cause
        if cause is not None:
            facts["cause"] = cause
        await self.session.recorder.note("tool.denied", facts, durable=True)
        said = await self.session.refusal(by, reason, outcome)
        return ToolOutcome(denied=True, by=by, reason=said, cause=cause)

    async def _leave_pending(self, approval: Approval) -> ToolOutcome:
        """Record that the question stays open without a decision, and return a pending outcome."""
        self.over = True
        facts = {"tool": self.tool, "call": self.call_id, "request": approval.request.id}
        await self.session.recorder.note("tool.pending", facts, durable=True)
        reason = f"{for_model(self.tool)} waits for an approval"
        return ToolOutcome(pending=approval.request.id, call_id=self.call_id, reason=reason)

    async def _give_up(self) -> None:
        """End a call that was cancelled: cancel its observers, record the end, withdraw an unclaimed approval."""
        telling, self.notifying = self.notifying, None
        if telling is not None:
            telling.cancel()
            await asyncio.wait({telling})
        if self.action is None or self.over:
            return
        await self._record("tool.cancelled", self.action, {})
        if not self.claimed:
            await self._withdraw("cancelled")

    # -- reports -------------------------------------------------------------------------------------------------

    async def _await_notified(self) -> None:
        """Wait until the observers have been shown that the tool was to run."""
        telling, self.notifying = self.notifying, None
        if telling is not None:
            await telling

    async def _record(self, kind: str, action: Action, facts: dict[str, Any]) -> None:
        """Record the end of the call, and report it to the approver."""
        self.over = True
        await self.session.recorder.note(kind, {**self._facts(action), "ran": self.ran, **facts})
        await self._settle(stopped=kind == "tool.cancelled")

    async def _settle(self, *, stopped: bool = False) -> None:
        if self.claimed:
            became: Settlement = "done" if self.ran and self.failure is None else "failed"
            if stopped and self.failure is not None:
                became = "unknown"  # the tool may or may not have had its effect
            await self.session.approver.settle(self.approval, became)

    async def _withdraw(self, why: str) -> None:
        if self.approval is not None:
            await self.session.approver.withdraw(self.approval.request, why)

    def _context(self, action: Action) -> ToolContext:
        return ToolContext(
            event_type=TOOL_PRE,
            tenant_id=self.session.tenant,
            tool_name=self.tool,
            arguments=DataView(cast("dict[str, Any]", action.input())),  # an object, as it was frozen
            tool_context={"session_id": self.session.id, "tool_call_id": self.call_id},
        )

    def _call_fields(self) -> dict[str, Any]:
        return {"tool_name": self.tool, "tool_call_id": self.call_id}

    def _event_data(self, action: Action) -> dict[str, Any]:
        return {**self._call_fields(), "tool_input": action.input()}

    def _facts(self, action: Action) -> dict[str, Any]:
        return {"tool": self.tool, "call": self.call_id, "digest": action.digest}


def _changer(outcome: Outcome) -> str:
    """Return the name of the hook that last changed the input."""
    words = (one for one in reversed(outcome.answers) if one.effective_result.data is not None and not one.recheck)
    return next((one.hook_name for one in words if "tool_input" in (one.effective_result.data or {})), "session")
