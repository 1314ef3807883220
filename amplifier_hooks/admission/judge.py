"""Asks hooks and rules about events and acts, puts their answers on record, and shows their messages.

A judge runs nothing. `judge` is the first look at an act, with every hook; `look_again` is a later look at the same
bytes, with the rules, the gates, and the hooks that have not seen the act.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from amplifier_hooks import events
from amplifier_hooks.act import MAX_DEPTH, MAX_INPUT, Act, Call, freeze, freeze_input
from amplifier_hooks.admission.approval_request import Origin
from amplifier_hooks.admission.rules import apply_verdict, report_facts, verdict_facts
from amplifier_hooks.clock import stamp
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.run_hooks import error_message
from amplifier_hooks.errors import InputNotFreezable, InputTooLarge
from amplifier_hooks.events import APPROVAL_REQUIRED, IDENTITY_FIELDS, SESSION_END, TOOL_PRE
from amplifier_hooks.foreign_code import running_task
from amplifier_hooks.ports import ActionFacts
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import Answer, Cause, Outcome
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.admission.rules import FailClosedRules
    from amplifier_hooks.dispatch.chain import Chain, Hook
    from amplifier_hooks.ports import Clock, RuleVerdict
    from amplifier_hooks.record.recorder import Recorder
    from amplifier_hooks.registry.hook_table import RegistryChange
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.text.json_schema import Schema


DOES_NOT_FIT: Final = "the input that a hook changed does not fit the tool's schema"

MOST_HOOKS: Final = 200
"""Hooks in one record; the records after it hold the rest."""

MOST_CHANGES: Final = 1_000
"""Changes that wait to be written; of further changes only the number is kept."""

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

T = TypeVar("T")


class Stopped(Exception):
    """The session was stopped while it waited for hooks. This exception never leaves the session."""


class Judged(msgspec.Struct, frozen=True):
    """One look of hooks and rules at an act, as the hooks left it."""

    act: Act
    call: Call
    outcome: Outcome
    in_force: tuple[Chain, str] | None
    """The hooks and the digest of the rules that were in force as the look began; None for answers from elsewhere."""
    handles: Mapping[str, Any]
    """Fields of the event that are no JSON, passed by reference. No card and no record shows them."""
    by_rule: bool = False
    """True if a rule allowed what hooks asked about."""


class Undecided(msgspec.Struct, eq=False):
    """A counter of the decisions under way; closing the session waits until there is none."""

    _number: int = 0
    _none: asyncio.Event | None = None

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


class DeniedAnswers(msgspec.Struct, eq=False):
    """The denied answers of a session's model, and the tool calls that they keep from running."""

    count: int = 0
    """Number of the denials so far."""
    reasons: dict[str | None, tuple[int, str]] = {}
    """The last denial and its reason, by call id; `""` is a call without an id, and None any call."""

    def deny(self, reason: str, calls: Collection[str]) -> None:
        """Keep the calls of an answer from running; without their ids, every call."""
        self.count += 1
        self.reasons |= dict.fromkeys(("", *calls) if calls else ("", None), (self.count, reason))

    def allow(self, denials: int, calls: Collection[str]) -> None:
        """Let the calls of an answer run. Its model call began after so many denials; later denials stay in force."""
        for call in ("", None, *calls):
            if self.reasons.get(call, (denials + 1, ""))[0] <= denials:
                del self.reasons[call]

    def reason_for(self, call: str) -> str | None:
        """Return the reason why a call does not run, or None."""
        found = self.reasons.get(call) or self.reasons.get(None)
        return None if found is None else found[1]


class Inventory(msgspec.Struct, eq=False):
    """The hooks of a session on record: a snapshot when it begins, and each change since.

    A record of decisions says little without the hooks that made them. The snapshot opens the session; a change is
    written before the next outcome, the first in which the changed hook can have had a part.
    """

    hooks: HookRegistry
    recorder: Recorder
    tenant: str
    changes: list[RegistryChange] = []
    """The changes that are not on record yet."""
    _more: int = 0
    _unwatch: Callable[[], None] | None = None

    async def open(self) -> None:
        """Record the hooks that are registered, and watch for changes from now on."""
        self._unwatch = self.hooks.watch(self._note_change)
        there = [hook_facts(hook) for hook in self.hooks.hooks() if hook.tenant in ("", self.tenant)]
        pages = [there[start : start + MOST_HOOKS] for start in range(0, len(there), MOST_HOOKS)] or [[]]
        for number, page in enumerate(pages, 1):
            facts = {"hooks": page} if len(pages) == 1 else {"hooks": page, "page": number, "pages": len(pages)}
            await self.recorder.note("registry.snapshot", facts)

    async def write(self) -> None:
        """Record the changes."""
        changes, self.changes, more, self._more = self.changes, [], self._more, 0
        for change in changes:
            about = ((name, getattr(change, name)) for name in ("what", "hook", "event", "owner", "tenant", "detail"))
            await self.recorder.note("registry.changed", {name: value for name, value in about if value})
        if more:
            await self.recorder.note("registry.changed", {"what": "more", "number": more})

    async def close(self) -> None:
        """Write the remaining changes, and stop watching."""
        if self._unwatch is not None:
            self._unwatch()
            await self.write()

    def _note_change(self, change: RegistryChange) -> None:
        if change.tenant not in ("", self.tenant):
            return
        if len(self.changes) < MOST_CHANGES:
            self.changes.append(change)
        else:
            self._more += 1


class Judge(msgspec.Struct, eq=False, kw_only=True):
    """The judge of one session: its hooks, its rules, its record, and the reasons why nothing more runs."""

    id: str
    tenant: str
    agent: str
    hooks: HookRegistry
    clock: Clock
    recorder: Recorder
    rules: FailClosedRules | None = None
    origin: Origin = msgspec.field(default_factory=Origin)
    inventory: Inventory | None = None
    """The hooks on record; None without a record."""
    schemas: Mapping[str, Schema] = {}
    """The schemas of tools' inputs, where they are known."""
    parent: Judge | None = None
    run: str | None = None
    turn: int = 0
    halted: str | None = None
    """The reason why this session runs nothing more in this turn; see `stopped`."""
    stops: int = 0
    """Number of times that the session was stopped."""
    last_stop: str = ""
    """The reason of the last stop."""
    closed: bool = False
    denied_answers: DeniedAnswers = msgspec.field(default_factory=DeniedAnswers)
    undecided: Undecided = msgspec.field(default_factory=Undecided)
    deciding: dict[asyncio.Task[Any], int] = {}
    """Tasks that wait for hooks, with the number of cancellations that the session sent each."""
    unique: str = msgspec.field(default_factory=lambda: uuid4().hex)
    number: int = 0

    async def show(self, outcome: Outcome) -> None:
        """Show the messages of an outcome. A judge without a screen shows nothing."""

    # -- going on, and stopping ----------------------------------------------------------------------------------

    @property
    def stopped(self) -> str | None:
        """The reason why nothing more runs, or None.

        The session, or one above it, was cancelled or closed, or its prompt was denied.
        """
        return self.halted or (self.parent.stopped if self.parent is not None else None)

    def stopped_since(self, stops: int) -> str | None:
        """Return the reason why an act does not run that began after so many stops, or None.

        A new turn lets no act run that waited when the session was stopped.
        """
        return self.stopped or (None if stops == self.stops else self.last_stop)

    def denial_of_answer(self, call: str) -> str | None:
        """Return the reason why a tool call of this session does not run, or None.

        A denied answer of its model, or of the model of a session above it, has called the tool.
        """
        reason = self.denied_answers.reason_for(call) if self.denied_answers.reasons else None
        return reason or (None if self.parent is None else self.parent.denial_of_answer(call))

    def cancel_hooks(self) -> None:
        """Cancel the hooks that run, for a stop. A hook that stops its own session still answers."""
        for task in tuple(self.deciding):
            if task is not asyncio.current_task():
                self.deciding[task] += 1
                task.cancel()

    async def deliberate(self, hooks: Awaitable[T]) -> T:
        """Wait for hooks, and return their result.

        Raises `Stopped` when the session is stopped meanwhile: that cancels the hooks, and not the task they run in.
        """
        task = running_task()
        if task is None or task in self.deciding:  # a hook of this session asks: cancelling the hook cancels this call
            return await hooks
        before = task.cancelling() - getattr(task, "_must_cancel", False)  # `delivered_cancellations`, inlined
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

    # -- events --------------------------------------------------------------------------------------------------

    def payload(self, data: Mapping[str, Any], cwd: str | None = None) -> dict[str, Any]:
        """Return the data of an event with the fields of every payload; the session's values replace the data's.

        `cwd` is the folder of the event; None is the session's root.
        """
        payload = {
            **data,
            "session_id": self.id,
            "timestamp": stamp(self.clock),
            "tenant_id": self.tenant,
            "turn": self.turn,
            "agent": self.agent,
            "cwd": self.origin.cwd if cwd is None else cwd,
            "root": self.origin.cwd,
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

    async def decide(
        self,
        event: str,
        payload: dict[str, Any],
        act: Act | None = None,
        given: Mapping[str, Any] = NOTHING,
        *,
        rests: Any = None,
        stops: bool = True,
    ) -> tuple[Outcome, Act | None, bool]:
        """Ask rules and hooks about an event or act, record their answers, and show the messages for the user.

        Return the outcome, the act as the hooks left it, and True if a rule answered a question. `stops` is True for an
        event that can be stopped.

        The rules look first at the data as it was given, where only a denial counts, and then as the hooks left it. The
        record of an act becomes durable with its next one, before anything follows from the outcome.
        """
        name, rules, verdict = "", None, None
        if self.rules is not None:
            name = str(payload.get("tool_name", "")) if act is None else act.name
            rules = self.rules_in_force if self._has_rules(event) else None
            verdict = None if rules is None else await rules.judge(self._facts(event, name, payload))
        if verdict is not None and verdict.action == "deny":
            outcome = Outcome(events.canonical(event), payload)
        elif self.closed and self.hooks.can_be_stopped(event):
            verdict, outcome = None, self._deny_stopped(Outcome(events.canonical(event), payload))
        else:
            verdict = None
            try:
                emitting = self.hooks.emit(event, payload, notify=False, exact=given, rests=rests)
                outcome = await self.deliberate(emitting)
            except Stopped:
                outcome = self._deny_stopped(Outcome(events.canonical(event), payload))
            if act is not None and outcome.modified and outcome.action != "deny":
                outcome, act = self._left_by_hooks(outcome, act, given)
            if rules is not None and outcome.action != "deny":
                left = outcome.data if act is None else {key: outcome.data[key] for key in payload}
                verdict = await rules.judge(self._facts(event, name, left, outcome))
        by_rule, durable = False, act is None
        if verdict is None:
            outcome = await self.record_outcome(outcome, stops=stops, durable=durable)
        else:
            outcome, by_rule = await self._apply_rules(outcome, name, verdict, durable=durable)
        if self.rules is not None:
            await self._report_rules(outcome, name, payload)
        return outcome, act, by_rule

    @property
    def rules_in_force(self) -> FailClosedRules | None:
        """The rules that decide; None if there are none, or if they are report-only."""
        return None if self.rules is None else self.rules.select(report_only=False)

    def _has_rules(self, event: str) -> bool:
        """Return True if rules are consulted at an event: it can be stopped, and no rule has judged its act before."""
        return self.hooks.can_be_stopped(event) and events.canonical(event) != APPROVAL_REQUIRED

    async def notify(self, outcome: Outcome) -> None:
        """Show the observers an outcome, after its effects."""
        with suppress(Stopped):
            await self.deliberate(self.hooks.notify(outcome))

    # -- acts ----------------------------------------------------------------------------------------------------

    def act(self, event: str, name: object, data: bytes, cwd: str | None = None) -> Act:
        """Return an act that is about to happen, bound to this session, and to its root where no folder is given."""
        folder = self.origin.cwd if cwd is None else cwd
        return Act(self.tenant, self.id, event, name if isinstance(name, str) else "", folder, data)

    async def judge(self, act: Act, call: Call, handles: Mapping[str, Any]) -> Judged:
        """Return the first look of rules and hooks at an act; `act` is then the act as the hooks left it."""
        in_force, given = self.in_force(act.event), act.fields()
        payload = self.payload(payload_of(act, call, handles, given), act.cwd)
        outcome, left, by_rule = await self.decide(act.event, payload, act, given, rests=call.rests)
        return Judged(left or act, call, outcome, in_force, handles, by_rule)

    async def look_again(self, judged: Judged, *, whole: bool = False) -> Judged:
        """Return another look at the same bytes: the rules, the gates, and the hooks that have not seen this act.

        Only their objections and questions count; those of the earlier look stay. With `whole` every hook looks.
        """
        act = judged.act
        in_force, given = self.in_force(act.event), act.fields()
        payload = self.payload(payload_of(act, judged.call, judged.handles, given), act.cwd)
        before = None if whole or judged.in_force is None else judged.in_force[0]
        try:
            looking = self.hooks.look_again(judged.outcome, payload, before, given, judged.call.rests)
            outcome = await self.deliberate(looking)
        except Stopped:
            outcome = self._deny_stopped(judged.outcome)
        verdict, rules = None, self.rules_in_force
        if rules is not None and outcome.action != "deny" and self._has_rules(act.event):
            verdict = await rules.judge(self._facts(act.event, act.name, payload, outcome))
        applied, answered = (outcome, ()) if verdict is None else apply_verdict(outcome, verdict)
        new = applied.asks and not set(applied.asks) <= set(judged.outcome.asks)
        if applied.action == "deny" or new:  # only an objection goes on record
            applied, _ = await self._apply_rules(outcome, act.name, verdict)
        return Judged(act, judged.call, applied, in_force, judged.handles, judged.by_rule or bool(answered))

    def in_force(self, event: str) -> tuple[Chain, str]:
        """Return the hooks and the digest of the rules that are in force at an event."""
        rules = None if self.rules is None else self.rules_in_force
        return self.hooks.in_force(event), "" if rules is None else rules.digest

    def has_changed_since(self, judged: Judged) -> bool:
        """Return True if hooks or rules are in force that were not in force as the look began."""
        return judged.in_force is not None and judged.in_force != self.in_force(judged.act.event)

    def guards(self, event: str) -> bool:
        """Return True if a gate or a rule looks at the acts of an event."""
        return self.hooks.in_force(event).guarded or (self.rules is not None and self.rules_in_force is not None)

    def _left_by_hooks(self, outcome: Outcome, act: Act, given: Mapping[str, Any]) -> tuple[Outcome, Act]:
        """Return the outcome, and the act as the hooks left it."""
        left = {name: outcome.data[name] for name in given}
        frozen = freeze_input(left["tool_input"]) if act.event == TOOL_PRE else freeze(left)
        final = replace(act, input=frozen)
        if final.input != act.input and act.event == TOOL_PRE and act.name in self.schemas:
            problem = self.schemas[act.name].problem(final.arguments())
            if problem is not None:
                reason = f"{DOES_NOT_FIT}: {problem}"
                return deny_outcome(
                    outcome, outcome.changed_by(given) or "session", reason, "hook_invalid_output"
                ), final
        return outcome, final

    async def _apply_rules(
        self, outcome: Outcome, name: str, verdict: RuleVerdict | None, *, durable: bool = False
    ) -> tuple[Outcome, bool]:
        """Return the outcome with the verdict of the rules applied, and True if the verdict answered a question.

        Answers and verdict are then on record.
        """
        outcome, answered = apply_verdict(outcome, verdict)
        outcome = await self.record_outcome(outcome, stops=True, durable=durable)
        if verdict is not None and (answered or verdict.action == "deny"):
            about = {"event": outcome.event, "tool": name}
            try:
                await self.recorder.write("approval.decided", verdict_facts(verdict, answered) | about, durable=durable)
            except RecordUnavailable as error:
                outcome = deny_outcome(outcome, "record", str(error), "audit_unavailable")
        return outcome, bool(answered)

    async def _report_rules(self, outcome: Outcome, name: str, given: Mapping[str, Any]) -> None:
        """Record the verdict that report-only rules would have given, on the input as it was given and as it is now."""
        event = outcome.event
        rules = None if self.rules is None else self.rules.select(report_only=True)
        if rules is None or not self._has_rules(event) or outcome.denied:
            return
        verdict = None
        for data in (given, outcome.data) if outcome.modified else (outcome.data,):
            if verdict is None or verdict.action != "deny":
                verdict = await rules.judge(self._facts(event, name, data, outcome))
        if (facts := report_facts(outcome, name, verdict)) is not None:
            await self.recorder.note("rules.reported", facts)

    def _deny_stopped(self, outcome: Outcome) -> Outcome:
        return deny_outcome(outcome, "session", self.stopped or "cancelled", "session_cancelled")

    def _facts(self, event: str, name: str, data: Mapping[str, Any], outcome: Outcome | None = None) -> ActionFacts:
        """Return the facts of an act or event for the rules; with an outcome, the hooks' risk counts, too."""
        event = events.canonical(event)
        arguments = DataView(event_arguments(event, data))
        return ActionFacts(
            tool=name,
            arguments=arguments,
            event=event,
            session=self.id,
            tenant=self.tenant,
            agent=self.agent,
            cwd=data["cwd"],
            root=self.origin.cwd,
            risk=self.origin.risk(name, arguments, outcome),
        )

    # -- on record -----------------------------------------------------------------------------------------------

    async def record_outcome(self, outcome: Outcome, *, stops: bool, durable: bool = True) -> Outcome:
        """Record an outcome and show its messages. An event that can be stopped is denied if it cannot be recorded.

        With `durable` False the caller writes a durable record before anything follows from the outcome.
        """
        if self.inventory is not None and self.inventory.changes:
            await self.inventory.write()
        durable = durable and outcome.action != "continue" if stops else outcome.event == SESSION_END
        try:
            writing = self.recorder.begin("outcome", outcome_facts(outcome), durable=durable, decides=stops)
            if writing is not None:
                await writing
        except RecordUnavailable as error:
            outcome = deny_outcome(outcome, "record", str(error), "audit_unavailable")
        if outcome.messages or (outcome.answers and any(answer.output for answer in outcome.answers)):
            await self.show(outcome)
        return outcome


def event_arguments(event: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of an event for the rules: a tool's input, or the payload without its identity fields.

    The input of a tool call that is no object stands among the arguments under its own name.
    """
    given = data.get("tool_input")
    if event == TOOL_PRE and isinstance(given, Mapping):
        return given
    return {name: value for name, value in data.items() if name not in IDENTITY_FIELDS}


def payload_of(act: Act, call: Call, handles: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of an act's event."""
    if act.event == TOOL_PRE:
        return {**handles, **fields, "tool_name": act.name, "tool_call_id": call.id}
    return {**handles, **fields}


def deny_outcome(outcome: Outcome, by: str, reason: str, cause: Cause | None = None) -> Outcome:
    """Return a copy of the outcome that is denied after the hooks have answered; their answers stay on record."""
    return msgspec.structs.replace(outcome, action="deny", denied_by=by, reason=reason, cause=cause)


def frozen_object(value: object) -> bytes:
    """Return a tool's input as canonical bytes. Bytes are the sender's own JSON, and read strictly.

    Raises `InputNotFreezable`, also for an input that is no JSON object or too large. Size and depth of the sender's
    JSON are checked before it is parsed.
    """
    if isinstance(value, bytes):
        if len(value) > MAX_INPUT:
            raise InputTooLarge(MAX_INPUT)
        try:
            value = load_json(value, deepest=MAX_DEPTH)
        except (ValueError, RecursionError) as error:
            raise InputNotFreezable(f"$ is no JSON that all readers understand alike: {error}") from error
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InputNotFreezable(f"$ is of type {type(value).__name__}, and a tool's input is an object")
    try:
        return freeze_input(value if isinstance(value, dict) else dict(value))
    except InputNotFreezable:
        raise
    except Exception as problem:  # the mapping is the caller's code, which may raise anything
        raise InputNotFreezable(f"$ could not be read: {error_message(problem)}") from problem


def frozen_or_none(value: object) -> bytes | None:
    """Return a tool's input as canonical bytes; None for one that `frozen_object` refuses."""
    try:
        return frozen_object(value)
    except InputNotFreezable:
        return None


def problem_of(error: BaseException) -> dict[str, str]:
    """Return an exception as events and records have it."""
    return {"type": type(error).__name__, "message": error_message(error)}


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as the record has it: its action, and every answer that is not a plain continue."""
    facts: dict[str, Any] = {"event": outcome.event, "action": outcome.action}
    if outcome.reason is not None:
        facts["reason"] = outcome.reason
    if outcome.denied_by is not None:
        facts |= {"denied_by": outcome.denied_by, "cause": outcome.cause}
    if outcome.answers:
        facts["answers"] = [answer_facts(answer) for answer in outcome.answers]
        if any(answer.would is not None for answer in outcome.answers) and "tool_name" in outcome.data:
            facts["tool"] = outcome.data["tool_name"]
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
    if answer.would is not None:
        facts["would"] = {"action": answer.would.action, "reason": answer.would.reason}
    if answer.output:
        data = answer.output.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(data).hexdigest()
        facts["output"] = {"size": len(data), "digest": digest, "hidden": answer.effective_result.suppress_output}
    return facts


def hook_facts(hook: Hook) -> dict[str, Any]:
    """Return one hook as the record has it, without the fields that have their usual value."""
    facts: dict[str, Any] = {
        "hook": hook.name,
        "event": hook.event,
        "intent": hook.intent,
        "priority": hook.priority,
        "on_error": hook.on_error,
        "tier": hook.tier,
        "version": hook.current_version,
    }
    usual = {"match": hook.match.spec if hook.match else "", "tenant": hook.tenant, "owner": hook.owner}
    facts |= {name: value for name, value in usual.items() if value}
    if hook.report_only:
        facts["report_only"] = True
    return facts if hook.enabled else {**facts, "enabled": False}
