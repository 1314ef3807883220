"""One tool call, from the model's request to its result: decide, ask, record, run, notify.

The input is frozen at the beginning and after the last modification. The frozen bytes are shown, approved, claimed and
run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from amplifier_hooks.act import Call, digest_of, freeze, thaw
from amplifier_hooks.admission.admit import Pending, Permit, Refused
from amplifier_hooks.admission.judge import frozen_object, problem_of
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.middleware import Rests, ToolContext
from amplifier_hooks.errors import HookAbortError, InputNotFreezable
from amplifier_hooks.events import ERROR_TOOL, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.foreign_code import cancellations, finish_despite_cancel, was_cancelled_since, without_capture
from amplifier_hooks.ports import KeptResult
from amplifier_hooks.result import Cause, Outcome, UserMessage
from amplifier_hooks.session.display import show
from amplifier_hooks.session.session import metadata_of, notes_of, without_empty_metadata
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.act import Act
    from amplifier_hooks.ports import Settlement
    from amplifier_hooks.session.session import Session

    T = TypeVar("T")
    Returned: TypeAlias = "T | Awaitable[Returned[T]]"
    """A value, or an awaitable of it. The recursion makes mypy look inside of an awaitable first."""


T_co = TypeVar("T_co", covariant=True)

LARGEST_RESULT: Final = 65_536
"""Bytes of a result that a store keeps whole."""

SUCCEEDED: Final = "this call has run already and succeeded, so it is not run again; its result was not kept"

NO_TEXT: Final = "the text of this error was replaced by something that is no text"


class ToolOutcome(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """The end of one tool call: it is ok with a `value`, denied, pending, or failed with the tool's own `error`.

    Calling a pending call again, with its `call_id`, goes on from there: the call finds an answer given meanwhile, and
    the tool then runs once.
    """

    value: T_co | None = None
    """The value that the tool returned."""
    denied: bool = False
    """True if the call was denied; nothing ran."""
    reason: str | None = None
    """The text for the model: about a denial, escaped and ready for its context; about a failure, its message as the
    hooks left it."""
    by: str | None = None
    """The hook, rule or approver that denied."""
    cause: Cause | None = None
    """The kind of a denial: `denied_by_person` is a person's denial, `approval_expired` is not."""
    pending: str | None = None
    """The id of an undecided request; nothing ran."""
    error: BaseException | None = None
    """The exception that the tool raised."""
    call_id: str | None = None
    """The id under which a pending call may be made again, in another process, too."""

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


class ToolCall(msgspec.Struct, eq=False):
    """One call under way: it translates for admission, then runs the tool and reports the end."""

    session: Session
    tool: str
    call_id: str
    arguments: Mapping[str, Any] | bytes
    """The input; bytes are the sender's own JSON."""
    call: Callable[[Any], Awaitable[Any] | Any]
    cwd: str | None = None
    """The folder of this call; None is the session's root."""
    chosen: bool = True
    """True if the caller chose the id, so that an earlier attempt may have left a decision."""
    permit: Permit | None = None
    waiting: Act | None = None
    """The act about which a question stays open."""
    ran: bool = False
    over: bool = False
    """True if the end of the call is on record."""
    failure: BaseException | None = None
    """The exception that the tool itself raised."""
    notes: dict[str, Any] = {}
    """The custom fields that hooks set before the tool, for the event after it."""
    rests: Rests = msgspec.field(default_factory=partial(Rests, TOOL_PRE))
    """The hook objects that wait for the tool."""
    notifying: asyncio.Task[None] | None = None
    """The task that shows the observers of tool:pre the outcome, beside the tool."""

    async def carry_out(self) -> ToolOutcome[Any]:
        """Carry the call out. Nothing runs that was not recorded first, and it runs with exactly the approved input.

        Cancelling takes back the question or approval, or cancels the tool, and records that.
        """
        session = self.session
        try:
            with session.undecided:
                reason = session.stopped or session.denial_of_answer(self.call_id if self.chosen else "")
                if reason is not None:
                    return await self._refuse("session", reason)
                frozen = frozen_object(self.arguments)
                act = session.act(TOOL_PRE, self.tool, frozen, self.cwd)
                call = Call(id=self.call_id, chosen=self.chosen, rests=self.rests)
                verdict = await session.admission.admit(act, call, kind="tool")
                self.notifying = session.start_notifying(verdict.outcome, verdict.act)
                if isinstance(verdict, Pending):
                    return await self._leave_pending(verdict)
                if isinstance(verdict, Refused):
                    if verdict.used is not None and verdict.used.settlement == "done":
                        return await self._repeat(verdict, verdict.used.result)
                    return await self._refuse(verdict.by, verdict.outcome.reason, verdict.outcome)
                self.permit = verdict
            return await self._run(verdict)
        except InputNotFreezable as error:
            return await self._refuse(type(error).__name__, str(error))
        except (asyncio.CancelledError, KeyboardInterrupt):
            await finish_despite_cancel(self._give_up())
            raise
        finally:
            if self.rests.waiting:
                await self.rests.end()
            if self.notifying is not None:
                await self._await_notified()

    # -- running it ----------------------------------------------------------------------------------------------

    async def _run(self, permit: Permit) -> ToolOutcome[Any]:
        """Run the tool inside its around hooks, and report its result. The model reads injections after that."""
        session, act = self.session, permit.act
        if permit.outcome.modified:
            self.notes = notes_of(permit.outcome, TOOL_POST)
        began, before = perf_counter(), cancellations()
        try:
            if self.notifying is not None:
                await asyncio.sleep(0)  # observers that do not wait are notified before the tool starts
            value = await session.wrap(
                "tool",
                partial(self._context, act),
                partial(self._operate, act),
                self.rests.layers if self.rests.waiting else (),
                permit.stops,
            )
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if isinstance(error, asyncio.CancelledError) and was_cancelled_since(before):
                raise
            return await self._fail(permit, error, (perf_counter() - began) * 1e3)
        spent = (perf_counter() - began) * 1e3
        await self._settle(permit, "done", {"duration_ms": spent}, keep_result(value) if permit.allowed else None)
        if self.notifying is not None:
            await self._await_notified()
        if permit.outcome.injections:
            await session.injector.deliver(permit.outcome.injections)
        shown = await session.emit(TOOL_POST, self._event_data(act, result=value, duration_ms=spent), act.cwd)
        return ToolOutcome(value=shown.data["result"] if shown.modified else value)

    async def _operate(self, act: Act) -> Any:
        """Call the tool with a fresh copy of the approved input."""
        self.ran = True
        try:
            with without_capture():  # a hook may have called the tool, and hide its own output
                value = self.call(act.arguments())
                return await value if inspect.isawaitable(value) else value
        except BaseException as error:
            self.failure = error
            raise

    # -- ends without a value ------------------------------------------------------------------------------------

    async def _fail(self, permit: Permit, error: BaseException, spent: float) -> ToolOutcome[Any]:
        """Return the outcome of a call in which the tool raised, or an around hook stopped it."""
        session, act, injections = self.session, permit.act, permit.outcome.injections
        if isinstance(error, HookAbortError) and not self.ran:
            await session.admission.settle(permit, "failed")
            outcome = Outcome(TOOL_PRE, {}, injections=injections, cause=error.cause)
            return await self._refuse(error.hook or "around hook", error.reason, outcome)
        problem = problem_of(error)
        await self._settle(permit, "failed", {"error": problem, "duration_ms": spent})
        await self._await_notified()
        await session.injector.deliver(injections)
        data = self._event_data(act, error=problem, duration_ms=spent)
        shown = (await session.emit(TOOL_ERROR, data, act.cwd)).data["error"]
        text = shown.get("message") if isinstance(shown, Mapping) else shown
        problem["message"] = text if isinstance(text, str) else NO_TEXT
        await session.emit(
            ERROR_TOOL, {"tool_name": self.tool, "tool_call_id": self.call_id, "error": problem}, act.cwd
        )
        return ToolOutcome(error=error, reason=problem["message"])

    async def _repeat(self, refused: Refused, kept: KeptResult | None) -> ToolOutcome[Any]:
        """Return the result that an earlier attempt at this call left; deny the call if the result was not kept."""
        if kept is None or kept.json is None or refused.act is None:
            size = "" if kept is None else f" ({kept.size:,} bytes)"
            return await self._refuse(refused.by, f"{SUCCEEDED}{size}", refused.outcome)
        self.over = True
        act = refused.act
        facts = {"tool": self.tool, "call": self.call_id, "digest": act.digest, "result": kept.digest}
        await self.session.recorder.note("tool.repeated", facts, durable=True)
        data = self._event_data(act, result=thaw(kept.json.encode()), duration_ms=0.0)
        shown = await self.session.emit(TOOL_POST, data, act.cwd)
        return ToolOutcome(value=shown.data["result"] if shown.modified else data["result"])

    async def _refuse(self, by: str, reason: str | None, outcome: Outcome | None = None) -> ToolOutcome[Any]:
        """Record a denial, and return it as an outcome the model can read."""
        self.over = True
        facts = {"tool": self.tool, "call": self.call_id, "by": by, "reason": reason}
        cause = None if outcome is None else outcome.cause
        if cause is not None:
            facts["cause"] = cause
        await self.session.recorder.note("tool.denied", facts, durable=True)
        said = await self.session.denial_text(by, reason, outcome)
        self.rests.why = said
        return ToolOutcome(denied=True, by=by, reason=said, cause=cause)

    async def _leave_pending(self, verdict: Pending) -> ToolOutcome[Any]:
        """Record that the question stays open without a decision, and return a pending outcome."""
        self.over, self.waiting = True, verdict.act
        facts = {"tool": self.tool, "call": self.call_id, "request": verdict.request.id}
        await self.session.recorder.note("tool.pending", facts, durable=True)
        self.rests.why = reason = f"{for_model(self.tool)} waits for an approval"
        return ToolOutcome(pending=verdict.request.id, call_id=self.call_id, reason=reason)

    async def _give_up(self) -> None:
        """End a call that was cancelled: cancel its observers, and record the end."""
        notifying, self.notifying = self.notifying, None
        if notifying is not None:
            notifying.cancel()
            await asyncio.wait({notifying})
        if self.permit is not None and not self.over:
            await self._settle(self.permit, "cancelled", {})

    async def end_in_mismatch(self, permit: Permit, tool: str, given: object) -> None:
        """Record that this act ran instead of the permit's, and warn the user. The outcome of the permit is unknown."""
        act = permit.act
        try:
            reported = msgspec.structs.replace(act, name=tool, input=frozen_object(given)).digest
        except InputNotFreezable as error:
            reported = str(error)
        self.over = True
        facts = {"ran": self.ran, "reported_tool": tool, "reported": reported}
        await self.session.admission.settle(permit, "unknown", "mismatch", facts)
        text = f"{act.name} was decided about (digest {act.short}), and the program ran another call (tool {tool})"
        warning = UserMessage(text=text, level="warning", hook_name="session", source="session")
        await show(self.session.display, [warning])

    # -- reports -------------------------------------------------------------------------------------------------

    async def _await_notified(self) -> None:
        """Wait until the observers have been shown that the tool was to run."""
        telling, self.notifying = self.notifying, None
        if telling is not None:
            await telling

    def _settle(
        self, permit: Permit, end: str, facts: dict[str, Any], result: KeptResult | None = None
    ) -> Awaitable[None]:
        """Record the end of the call, and report it to the approver."""
        self.over = True
        became: Settlement = "done" if self.ran and self.failure is None else "failed"
        if end == "cancelled" and self.failure is not None:
            became = "unknown"  # the tool may or may not have had its effect
        return self.session.admission.settle(permit, became, end, {"ran": self.ran, **facts}, result)

    def _context(self, act: Act) -> ToolContext:
        return ToolContext(
            event_type=TOOL_PRE,
            tenant_id=self.session.tenant,
            metadata=metadata_of(self.notes),
            tool_name=self.tool,
            arguments=DataView(cast("dict[str, Any]", act.arguments())),  # an object, as it was frozen
            tool_context={"session_id": self.session.id, "tool_call_id": self.call_id, "cwd": act.cwd},
        )

    def _event_data(self, act: Act, **facts: Any) -> dict[str, Any]:
        notes = without_empty_metadata(self.notes) if self.notes else {}
        return {**notes, "tool_name": self.tool, "tool_call_id": self.call_id, "tool_input": act.arguments(), **facts}


def keep_result(value: object) -> KeptResult | None:
    """Return a result in the form that a store keeps; None for one that is no JSON."""
    try:
        data = freeze(value)
    except InputNotFreezable:
        return None
    text = data.decode("ascii") if len(data) <= LARGEST_RESULT else None
    return KeptResult(digest=digest_of(data), size=len(data), json=text)
