"""One session as its operations see it: its collaborators, and the effects of an outcome.

`emit` and the methods below it are the order of effects, and the only place that has it: record, screen, person,
context, observers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import msgspec
from attrs import define, field

from amplifier_hooks import events
from amplifier_hooks.act import Action, freeze
from amplifier_hooks.admission.apply_rules import apply_verdict, verdict_facts
from amplifier_hooks.admission.build_request import Origin
from amplifier_hooks.clock import stamp
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.timeouts import has_pending_cancellation, running_task
from amplifier_hooks.errors import HookAbortError, InputNotFreezable
from amplifier_hooks.events import GOES_ON_WHEN_DENIED, IDENTITY_FIELDS, SESSION_END, TOOL_PRE
from amplifier_hooks.ports import ActionFacts
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import Answer, Cause, ContextInjection, Outcome, UserMessage
from amplifier_hooks.session.display import show, transcript
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.admission.apply_rules import FailClosedRules
    from amplifier_hooks.admission.approval_result import Approval
    from amplifier_hooks.admission.ask_approver import Approver
    from amplifier_hooks.dispatch.middleware import HookContext
    from amplifier_hooks.injection.inject import Injector
    from amplifier_hooks.ports import Clock, ContextManager, DisplaySystem
    from amplifier_hooks.record.write.recorder import Recorder
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.session.hook_inventory import Inventory
    from amplifier_hooks.text.json_schema import Schema


OUTPUTS_KEPT: Final = 1_000
"""Outputs of hooks that a session keeps for review."""

CAUSE_OF: Final[Mapping[str, Cause]] = {
    "denied": "denied_by_person",
    "expired": "approval_expired",
    "unavailable": "approval_unavailable",
    "cancelled": "session_cancelled",
}
"""The cause of a denial, by the status of its approval."""

CHANGED: Final = "a hook that asked was changed before its question was answered"

EDITED: Final = "the approver changed the data, which can be done for tool calls only"

T = TypeVar("T")


class Stopped(Exception):
    """The session was stopped while it waited for hooks. This exception never leaves the session."""


class Undecided:
    """A counter of the decisions under way; closing the session waits until there is none."""

    def __init__(self) -> None:
        self._number = 0
        self._none: asyncio.Event | None = None

    def __enter__(self) -> None:
        self._number += 1

    def __exit__(self, *_error: object) -> None:
        self._number -= 1
        if not self._number and self._none is not None:
            self._none.set()

    async def wait_until_none(self) -> None:
        """Wait until no decision is under way."""
        while self._number:
            self._none = self._none or asyncio.Event()
            self._none.clear()
            await self._none.wait()


@define(eq=False, kw_only=True)
class Session:
    """The collaborators of one session, and the effects that an outcome has on them."""

    id: str
    tenant: str
    agent: str
    hooks: HookRegistry
    context: ContextManager
    display: DisplaySystem
    clock: Clock
    recorder: Recorder
    approver: Approver
    injector: Injector
    rules: FailClosedRules | None = None
    origin: Origin = field(factory=Origin)
    inventory: Inventory | None = None
    """The hooks on record; None without a record."""
    schemas: Mapping[str, Schema] = field(factory=dict)
    """The schemas of tools' inputs, where they are known."""
    parent: Session | None = None
    run: str | None = None
    turn: int = 0
    halted: str | None = None
    """The reason why this session runs nothing more in this turn; see `stopped`."""
    tools_denied: str | None = None
    """The reason why the tool calls of the last model response do not run."""
    closed: bool = False
    undecided: Undecided = field(factory=Undecided)
    deciding: dict[asyncio.Task[Any], int] = field(factory=dict)
    """Tasks that wait for hooks, with the number of cancellations that the session sent each."""
    unique: str = field(factory=lambda: uuid4().hex)
    number: int = 0
    printed: deque[tuple[str, str]] = field(factory=partial(deque, maxlen=OUTPUTS_KEPT))
    """The texts that hooks printed and do not hide, with the hook's name."""

    # -- going on, and stopping ----------------------------------------------------------------------------------

    @property
    def stopped(self) -> str | None:
        """The reason why nothing more runs, or None.

        The session, or one above it, was cancelled or closed, or its prompt was denied.
        """
        return self.halted or (self.parent.stopped if self.parent is not None else None)

    def begin_turn(self) -> None:
        """Forget the reason for the last stop, and begin the injection budget anew. A closed session stays closed."""
        if not self.closed:
            self.halted = None
        self.tools_denied = None
        self.injector.new_turn()

    def stop(self, reason: str) -> None:
        """Withdraw open questions and cancel the hooks that run; nothing more begins in this turn."""
        self.halted = reason
        self.approver.cancel(reason)
        for task in tuple(self.deciding):
            if task is not asyncio.current_task():  # a hook may stop its own session, and then still answers
                self.deciding[task] += 1
                task.cancel()

    async def deliberate(self, hooks: Awaitable[T]) -> T:
        """Wait for hooks, and return their result.

        Raises `Stopped` when the session is stopped meanwhile: that cancels the hooks, and not the task they run in.
        """
        task = running_task()
        if task is None or task in self.deciding:  # a hook of this session asks: cancelling the hook cancels this call
            return await hooks
        before = task.cancelling() - has_pending_cancellation(task)
        self.deciding[task] = 0
        try:
            return await hooks
        except asyncio.CancelledError:
            ours = self.deciding.get(task, 0)
            if not ours or task.cancelling() - ours > before:
                raise  # another party cancelled the task
            raise Stopped from None
        finally:
            if ours := self.deciding.pop(task, 0):
                for _ in range(ours):
                    task.uncancel()

    # -- from event to outcome -----------------------------------------------------------------------------------

    def payload(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of an event with the fields of every payload; the session's values replace the data's."""
        payload = {
            **data,
            "session_id": self.id,
            "timestamp": stamp(self.clock),
            "tenant_id": self.tenant,
            "turn": self.turn,
            "agent": self.agent,
            "cwd": self.origin.cwd,
            "event_id": self.new_id(),
        }
        if self.run is not None:
            payload["run_id"] = self.run
        if self.parent is not None:
            payload["parent_id"] = self.parent.id
        return payload

    def new_id(self) -> str:
        """Return a unique id: this session's random part, and a number."""
        self.number += 1
        return f"{self.unique}-{self.number}"

    async def emit(self, event: str, data: Mapping[str, Any]) -> Outcome:
        """Ask the hooks, carry out their answers, and return the outcome after its effects."""
        with self.undecided:
            outcome = await self.decide(event, data)
            if outcome.asks and not outcome.denied and self.hooks.can_be_stopped(outcome.event):
                outcome = await self.ask_about(outcome)
        if outcome.injections or outcome.denied:
            await self.inject(outcome)
        if self.hooks.is_watched(outcome.event):
            await self.notify(outcome)
        return outcome

    async def decide(self, event: str, data: Mapping[str, Any], *, durable: bool = True) -> Outcome:
        """Ask the hooks, record their answers, and show the messages for the user.

        With `durable` False the caller writes a durable record before anything follows from the outcome.
        """
        payload = self.payload(data)
        if self.rules is not None and events.canonical(event) == TOOL_PRE:
            return await self._decide_with_rules(self.rules, event, payload, durable=durable)
        return await self.record_outcome(await self._ask_hooks(event, payload), durable=durable)

    async def _decide_with_rules(
        self, rules: FailClosedRules, event: str, payload: dict[str, Any], *, durable: bool
    ) -> Outcome:
        """Judge a tool call by the rules, before and after the hooks, and return the outcome with the rules applied."""
        verdict = await rules.judge(self.action_facts(payload))
        if verdict is not None and verdict.effect == "deny":
            outcome = Outcome(TOOL_PRE, payload)
        else:
            outcome = await self._ask_hooks(event, payload)
            verdict = None if outcome.denied else await rules.judge(self.action_facts(outcome.data, outcome))
        outcome, answered = apply_verdict(outcome, verdict)
        outcome = await self.record_outcome(outcome, durable=durable)
        if verdict is None or not (answered or verdict.effect == "deny"):
            return outcome
        try:
            about = {"event": outcome.event, "tool": str(payload.get("tool_name"))}
            await self.recorder.write("approval.decided", verdict_facts(verdict, answered) | about, durable=durable)
        except RecordUnavailable as error:
            return deny_outcome(outcome, "record", str(error), "audit_unavailable")
        return outcome

    async def _ask_hooks(self, event: str, payload: dict[str, Any]) -> Outcome:
        """Return the hooks' outcome. A closed session denies an event that can be stopped, without asking."""
        if not (self.closed and self.hooks.can_be_stopped(event)):
            try:
                if self.inventory is not None and self.inventory.every_run:
                    return await self.inventory.run(event, payload, self.deliberate(self.hooks.decide(event, payload)))
                return await self.deliberate(self.hooks.decide(event, payload))
            except Stopped:
                pass
        outcome = Outcome(events.canonical(event), payload)
        return deny_outcome(outcome, "session", self.stopped or "cancelled", "session_cancelled")

    # -- the effects ---------------------------------------------------------------------------------------------

    async def record_outcome(self, outcome: Outcome, *, durable: bool = True) -> Outcome:
        """Record an outcome and show its messages. An event that can be stopped is denied if it cannot be recorded."""
        if self.inventory is not None and self.inventory.changes:
            await self.inventory.write()
        facts = outcome_facts(outcome)
        if self.hooks.can_be_stopped(outcome.event):
            try:
                await self.recorder.write("outcome", facts, durable=durable and outcome.action != "continue")
            except RecordUnavailable as error:
                outcome = deny_outcome(outcome, "record", str(error), "audit_unavailable")
        else:
            await self.recorder.note("outcome", facts, durable=outcome.event == SESSION_END)
        if outcome.messages:
            await show(self.display, outcome.messages)
        if outcome.answers:
            self.printed.extend(transcript(outcome))
        return outcome

    async def ask_about(self, outcome: Outcome) -> Outcome:
        """Let an approver decide about an event that is no tool call, and use the answer up."""
        try:
            action = self.action(outcome.event, outcome.data.get("tool_name"), freeze(arguments_of(outcome)))
        except InputNotFreezable as error:
            return deny_outcome(outcome, "InputNotFreezable", str(error))
        outcome, approval = await self.ask(outcome, action)
        if approval is None or outcome.denied:
            return outcome
        if approval.edited_arguments is not None:
            await self.approver.withdraw(approval.request, "edited")
            return deny_outcome(outcome, "session", EDITED, "approval_unavailable")
        if self.is_outdated(approval):
            await self.approver.withdraw(approval.request, "superseded")
            return deny_outcome(outcome, "session", CHANGED, "approval_unavailable")
        outcome = await self.claim(outcome, approval)
        await self.approver.settle(approval, "failed" if outcome.denied else "done")
        return outcome

    async def ask(
        self, outcome: Outcome, action: Action, *, call: str | None = None, attempt: int = 0
    ) -> tuple[Outcome, Approval | None]:
        """Return the outcome with the approver's decision, or with the default. A stopped session asks no approver.

        With the id of a `call` that can be made again, the approval may be pending; the outcome is then unchanged.
        """
        if self.stopped is not None:
            return deny_outcome(outcome, "session", self.stopped, "session_cancelled"), None
        try:
            approval = await self.approver.ask(outcome, action, call=call, attempt=attempt)
        except RecordUnavailable as error:
            return deny_outcome(outcome, "record", str(error), "audit_unavailable"), None
        if approval.status == "pending":
            return outcome, approval
        if approval.allowed:
            return msgspec.structs.replace(outcome, action="continue", reason=approval.reason), approval
        if approval.hook is not None:
            return deny_outcome(outcome, approval.hook, approval.reason, "denied_by_hook"), approval
        by = ", ".join(dict.fromkeys(ask.hook_name for ask in outcome.asks))
        cause = "approval_mismatch" if approval.mismatch else CAUSE_OF[approval.status]
        return deny_outcome(outcome, by, approval.message, cause), approval

    def is_outdated(self, approval: Approval) -> bool:
        """Return True if a hook that asked was changed, so that an allowance or a withdrawn question has no meaning."""
        if approval.status not in ("approved", "unavailable", "cancelled") or self.stopped is not None:
            return False
        return any(self.hooks.version_of(one.hook, self.tenant) != one.version for one in approval.request.questions)

    async def claim(self, outcome: Outcome, approval: Approval | None) -> Outcome:
        """Use the approval up; it is good for one run."""
        if approval is None or await self.approver.claim(approval):
            return outcome
        return deny_outcome(outcome, "session", "the approval no longer holds for this action", "approval_unavailable")

    async def inject(self, outcome: Outcome) -> None:
        """Inject the texts that hooks want the model to read, unless the denial of the event quotes them.

        An agent that may not stop goes on, and reads the reason.
        """
        if outcome.denied and self.hooks.can_be_stopped(outcome.event):
            return
        injections = outcome.injections
        if outcome.denied and outcome.event in GOES_ON_WHEN_DENIED and outcome.reason:
            why = ContextInjection(
                content=outcome.reason, role="user", hook_name=outcome.denied_by or "registry", event=outcome.event
            )
            injections = (why, *injections)
        await self.injector.deliver(injections)

    async def notify(self, outcome: Outcome) -> None:
        """Show the observers an outcome, after its effects."""
        with suppress(Stopped):
            await self.deliberate(self.hooks.notify(outcome))

    def start_notifying(self, outcome: Outcome) -> asyncio.Task[None] | None:
        """Show the observers an outcome in a task of its own, so that they never hold up the act."""
        return asyncio.create_task(self.notify(outcome)) if self.hooks.is_watched(outcome.event) else None

    # -- around an operation -------------------------------------------------------------------------------------

    async def wrap(self, operation: str, context: Callable[[], HookContext], call: Callable[[], Awaitable[T]]) -> T:
        """Run `call` inside the around hooks of this operation; without any, `context` is not used.

        Raises the errors of `call`, and `HookAbortError` when a hook stops it, or when the session is stopped before
        the operation has begun. From then on stopping the session leaves operation and hooks alone.
        """
        if not self.hooks.wraps(operation):
            if self.stopped is not None:
                raise HookAbortError(self.stopped, "session")
            return await call()
        task = running_task()
        inside_a_hook = task in self.deciding

        async def call_unless_stopped() -> T:
            if self.stopped is not None:
                raise HookAbortError(self.stopped, "session")
            if task is not None and not inside_a_hook:
                self.deciding.pop(task, None)
            return await call()

        around = context()
        try:
            result: T = await self.deliberate(self.hooks.wrap(operation, around, call_unless_stopped))
        except Stopped:
            raise HookAbortError(self.stopped or "cancelled", "session") from None
        return result

    def action_facts(self, data: Mapping[str, Any], outcome: Outcome | None = None) -> ActionFacts:
        """Return the facts of a tool call for the rules; with an outcome, the hooks' risk counts, too."""
        tool, given = data.get("tool_name"), data.get("tool_input")
        name = tool if isinstance(tool, str) else ""
        arguments = DataView(given) if isinstance(given, Mapping) else DataView()
        return ActionFacts(
            tool=name,
            arguments=arguments,
            event=TOOL_PRE,
            session=self.id,
            tenant=self.tenant,
            agent=self.agent,
            cwd=self.origin.cwd,
            risk=self.origin.risk(name, arguments, outcome),
        )

    # -- words and facts -----------------------------------------------------------------------------------------

    def action(self, event: str, tool: object, input_bytes: bytes) -> Action:
        """Return an action that is about to happen, bound to this session."""
        return Action(self.tenant, self.id, event, tool if isinstance(tool, str) else "", input_bytes)

    async def announce(self, event: str, data: dict[str, Any]) -> Outcome | None:
        """Emit an event about an approval, if any hook listens. Questions of its hooks are not asked."""
        if not self.hooks.is_heard(event):
            return None
        outcome = await self.decide(event, data)
        await self.inject(outcome)
        await self.notify(outcome)
        return outcome

    async def show_message(self, message: UserMessage) -> None:
        """Show one message of the session's own."""
        await show(self.display, [message])

    async def refusal(self, by: str, reason: str | None, outcome: Outcome | None = None) -> str:
        """Return a denial in words the model can read. It quotes the hooks' injections, which go nowhere else."""
        said = for_model(f"Operation denied by {by}: {reason or 'no reason given'}")
        return "\n\n".join([said, *(await self.quote_injections(outcome) if outcome else ())])

    async def quote_injections(self, outcome: Outcome) -> list[str]:
        """Return the injections of an outcome as its denial quotes them."""
        return await self.injector.quote(outcome.injections) if outcome.injections else []


def deny_outcome(outcome: Outcome, by: str, reason: str, cause: Cause | None = None) -> Outcome:
    """Return a copy of the outcome that is denied after the hooks have answered; their answers stay on record."""
    return msgspec.structs.replace(outcome, action="deny", denied_by=by, reason=reason, cause=cause)


def denial_line(what: str, outcome: Outcome) -> str:
    """Return one line about a denial, for the calls that it keeps from running."""
    by = outcome.denied_by or "registry"
    return f"{what} was denied by {by}" + (f": {outcome.reason}" if outcome.reason else "")


def frozen_object(value: object) -> bytes:
    """Return a tool's input as canonical bytes.

    Raises `InputNotFreezable`, also for an input that is no JSON object.
    """
    if not isinstance(value, Mapping):
        raise InputNotFreezable(f"$ is of type {type(value).__name__}, and a tool's input is an object")
    return freeze(value if isinstance(value, dict) else dict(value))


def arguments_of(outcome: Outcome) -> dict[str, Any]:
    """Return the subject of an approval of this event: its data without the identity fields."""
    return {name: value for name, value in outcome.data.items() if name not in IDENTITY_FIELDS}


def problem_of(error: BaseException) -> dict[str, str]:
    """Return an exception as events and records have it. Its text comes from foreign code, which may fail."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # see above
        message = ""
    return {"type": type(error).__name__, "message": message}


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as the record has it: its action, and every answer that is not a plain continue."""
    facts: dict[str, Any] = {"event": outcome.event, "action": outcome.action}
    if outcome.reason is not None:
        facts["reason"] = outcome.reason
    if outcome.denied_by is not None:
        facts |= {"denied_by": outcome.denied_by, "cause": outcome.cause}
    if outcome.answers:
        facts["answers"] = [answer_facts(answer) for answer in outcome.answers]
    return facts


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Return one answer as the record has it. The hook's output stands there by its digest, hidden or not."""
    facts: dict[str, Any] = {
        "hook": answer.hook_name,
        "action": answer.action,
        "status": answer.status,
        "error": answer.error,
        "duration_ms": answer.duration_ms,
    }
    if answer.assessments:
        facts["assessments"] = [{"risk": one.risk, "reason": one.reason} for one in answer.assessments]
    if answer.output:
        data = answer.output.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).hexdigest()
        facts["output"] = {"size": len(data), "digest": digest, "hidden": answer.effective_result.suppress_output}
    return facts


# -- cancellations -----------------------------------------------------------------------------------------------------


def cancellations() -> int:
    """Return the number of cancellations of the running task, without one that it has not met yet."""
    task = running_task()
    return 0 if task is None else task.cancelling() - has_pending_cancellation(task)


def was_cancelled_since(before: int) -> bool:
    """Return True if the running task was cancelled since then. If not, a `CancelledError` is an ordinary error."""
    task = running_task()
    return task is not None and task.cancelling() > before
