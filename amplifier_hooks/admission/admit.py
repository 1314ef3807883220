"""The one path of every act, up to its beginning: may it run?

select by call id → judge → ask → look again → record durably → (has what is in force changed? look once more) → claim

`Admission` runs nothing and knows no entry point. A `Permit` is its only yes; the caller then runs exactly
`permit.act.input`, and reports the end to `settle`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from amplifier_hooks.act import Act, Call, freeze_input
from amplifier_hooks.admission.approver import asking_hooks
from amplifier_hooks.admission.judge import Judge, Judged, deny_outcome
from amplifier_hooks.approvals import act_of
from amplifier_hooks.errors import InputNotFreezable, StopInForce
from amplifier_hooks.foreign_code import finish_despite_cancel
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import Ask, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from amplifier_hooks.admission.approver import Approval, Approver, Ending
    from amplifier_hooks.errors import AlreadyRun
    from amplifier_hooks.ports import ApprovalRequest, KeptResult, KnownCall, Question, Settlement
    from amplifier_hooks.result import Cause


ROUNDS: Final = 3
"""Maximum of requests about one call, edits of the approver included."""

LOOKS: Final = 8
"""Maximum of further looks because hooks or rules changed between a look and the claim."""

CAUSE_OF: Final[Mapping[Ending, Cause]] = {
    "denied": "denied_by_person",
    "expired": "approval_expired",
    "unavailable": "approval_unavailable",
    "cancelled": "session_cancelled",
}
"""The cause of a denial, by the end of its request."""

TOO_MANY_CHANGES: Final = "the hooks that asked were changed each time before their questions were answered"

TOO_MANY_EDITS: Final = f"the arguments were edited {ROUNDS} times, and no edit passed its gates as it was"

TOO_MANY_QUESTIONS: Final = f"the hooks asked something new after each of {ROUNDS} answers"

CHANGED_AFTER: Final = "middleware changed the input after it was approved"

ASKED_AFTER: Final = "middleware changed the input to one that has to be asked about; a hook at the event can change it"

EDITED: Final = "the approver changed the data of an event, and only acts can be changed"

LEFT_OUT: Final = "the approver's edit leaves out a field of the operation"

NO_LONGER: Final = "the approval no longer holds for this action"

OTHER_CALL: Final = "this call id belongs to another call"


class Permit(msgspec.Struct, frozen=True):
    """The only thing that lets an effect begin, once: the caller runs exactly `act.input`."""

    act: Act
    outcome: Outcome
    """The merged answers, as an outcome that goes on."""
    judged: Judged
    kind: str
    """The first word of the act's records; empty for an event without records of its own."""
    allowed: bool
    """True if a person, a rule or a grant allowed the act; False if no part of the path denied it."""
    approvals: tuple[Approval, ...] = ()
    stops: int = 0
    """Number of the session's stops before the act began."""


class Refused(msgspec.Struct, frozen=True):
    """A denial. Every question and unused approval of the call has been withdrawn."""

    outcome: Outcome
    act: Act | None = None
    used: AlreadyRun | None = None
    """The end of this very call, if an earlier attempt at it began."""

    @property
    def by(self) -> str:
        """The name of the hook, rule or part that denied."""
        return self.outcome.denied_by or "registry"

    @property
    def cause(self) -> Cause | None:
        """The kind of the denial."""
        return self.outcome.cause


class Pending(msgspec.Struct, frozen=True):
    """A question that stays open without a caller. A later call with the same id goes on from there."""

    outcome: Outcome
    request: ApprovalRequest
    act: Act


Verdict = Permit | Refused | Pending


class Admission(msgspec.Struct, eq=False):
    """Admits the acts of one session."""

    judge: Judge
    approver: Approver

    def admit(
        self, act: Act, call: Call, handles: Mapping[str, Any] | None = None, *, kind: str, problem: str = ""
    ) -> Awaitable[Verdict]:
        """Return a permit, a refusal, or the question that stays open.

        Hooks see `handles`, the fields of the event that are no JSON; no card shows them. `kind` is the first word of
        the act's records (`tool.running`). With a `problem`, such as a field that is neither JSON nor a declared
        handle, a question about the act refuses it. Cancelling takes back open questions and unused approvals.
        """
        return Attempt(self.judge, self.approver, call, act, handles or {}, kind, act.digest, problem).carry_out()

    def admit_event(self, judged: Judged) -> Awaitable[Verdict]:
        """Let an approver decide about an event whose hooks have answered already.

        No later call can come back to its question, and the record has no `running` of it. An approver cannot edit it.
        """
        act = judged.act
        return Attempt(self.judge, self.approver, judged.call, act, judged.handles, "", act.digest).carry_out(judged)

    async def admit_change(self, permit: Permit, changed: bytes) -> Outcome | None:
        """Look at an input that middleware changed after the permit. Return the denial, or None if it may run.

        An act that a person, a rule or a grant allowed cannot change any more.
        """
        outcome = permit.outcome
        if permit.allowed:
            return deny_outcome(outcome, "session", CHANGED_AFTER, "approval_mismatch")
        act, call = replace(permit.act, input=changed), replace(permit.judged.call, rests=None)
        judged = await self.judge.look_again(replace(permit.judged, act=act, call=call))
        if judged.outcome.denied:
            return judged.outcome
        if judged.outcome.asks:
            return deny_outcome(judged.outcome, "session", ASKED_AFTER, "approval_unavailable")
        return None

    def settle(
        self,
        permit: Permit,
        became: Settlement,
        end: str = "",
        facts: Mapping[str, Any] | None = None,
        result: KeptResult | None = None,
    ) -> Awaitable[None]:
        """Record the end of an act, and store it, with its result, where its approvals are.

        `end` is the second word of the record (`tool.done`); an act without a kind, or an empty `end`, has none.
        Cancelling stops neither: the cancellation is raised after both.
        """
        settling = self._settle(permit, became, end, facts or {}, result)
        # An act without approvals that ends well has one record, and cancelling does not take that record back.
        return settling if became == "done" and not permit.approvals else finish_despite_cancel(settling)

    async def _settle(
        self, permit: Permit, became: Settlement, end: str, facts: Mapping[str, Any], result: KeptResult | None
    ) -> None:
        if permit.kind and end:
            about = {**act_facts(permit.act, permit.judged.call, permit.kind), **facts}
            durable = became == "unknown"
            writing = self.judge.recorder.begin(f"{permit.kind}.{end}", about, durable=durable, decides=False)
            if writing is not None:
                await writing
        if permit.approvals:
            await self.approver.settle(permit.approvals, became, result)


class Attempt(msgspec.Struct, eq=False):
    """One act on its way. `carry_out` is the sequence; the steps stand below it in the order they are taken."""

    judge: Judge
    approver: Approver
    call: Call
    act: Act
    """The act as it was given, or as an approver wrote it; `judged.act` is the act as the hooks left it."""
    handles: Mapping[str, Any]
    kind: str
    given: str
    """The digest of the act as the caller gave it."""
    problem: str = ""
    judged: Judged = cast("Judged", None)  # until the first look
    known: KnownCall | None = None
    """The request that an earlier attempt at this call left, until it is asked again or withdrawn."""
    unread: Exception | None = None
    """The error of a backend that could not be asked for that request."""
    after: str = ""
    """The id of that request; requests that follow it get ids of their own."""
    approvals: list[Approval] = []
    rounds: int = 0
    looks: int = 0
    why: str = TOO_MANY_QUESTIONS
    recorded: str = ""
    """Digest of the act that is on record as about to run."""
    stops: int = 0
    """Number of the session's stops before this attempt."""
    claimed: list[Approval] = []

    async def carry_out(self, judged: Judged | None = None) -> Verdict:
        """Return the end of the way to the effect; a look that is given takes the place of the first one.

        A way that is cancelled, or fails, leaves nothing that could be used later.
        """
        self.stops = self.judge.stops
        try:
            if judged is None:
                if self.call.chosen and self.call.returns and (verdict := await self._select()) is not None:
                    return verdict
                judged = await self.judge.judge(self.act, self.call, self.handles)
                if self.known is not None:
                    judged = await self._judge_resumed(self.known.request, judged)
            self.judged = judged
            while (verdict := await self._take_step()) is None:
                pass
        except (Exception, asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
            await finish_despite_cancel(self._give_up(cancelled=not isinstance(error, Exception)))
            raise
        return verdict

    def _take_step(self) -> Awaitable[Verdict | None]:
        """Ask, or record and claim. The result is None if the way goes on."""
        outcome = self.judged.outcome
        if outcome.action == "deny":
            return self._refuse(outcome)
        questions = tuple([ask for ask in outcome.asks if not self._is_answered(ask)]) if outcome.asks else ()
        return self._consider(questions) if questions or self.known is not None else self._claim()

    async def _consider(self, questions: tuple[Ask, ...]) -> Verdict | None:
        """Ask these questions, unless a stop is in force, or an earlier request is about something else."""
        if questions and (why := await self._find_stop()) is not None:
            return await self._refuse_stopped(why)
        if self.known is not None and not self._asks_about(self.known, questions):
            return await self._drop(self.known)
        if not questions:
            return await self._claim()
        if self.rounds == ROUNDS:
            outcome = deny_outcome(self.judged.outcome, "session", self.why, "approval_unavailable")
            return await self._refuse(outcome)
        return await self._ask(questions)

    # -- select and judge ------------------------------------------------------------------------------------------

    async def _select(self) -> Verdict | None:
        """Find an earlier request of this call, and go on with the act that it stored.

        The call id only selects: the caller has to give the same act again. Another act is refused, and uses nothing
        up.
        """
        lease = self.approver.lease
        try:
            self.known = await lease.find_call(self.act.tenant, self.act.session, self.call.id)
        except Exception as error:  # noqa: BLE001  # a backend may raise anything; a question then denies the call
            self.unread = error
        if self.known is None:
            return None
        request = self.known.request
        if request.given != self.given:
            outcome = Outcome(self.act.event, {})
            return Refused(outcome=deny_outcome(outcome, "session", OTHER_CALL, "approval_mismatch"))
        if self.known.is_open and lease.begun:
            lease.waiting[request.id] = request
        self.act, self.after = act_of(request), request.id
        return None

    async def _judge_resumed(self, resumed: ApprovalRequest, judged: Judged) -> Judged:
        """Return a look at the stored act of a resumed call; act and open questions stay as they are."""
        if judged.outcome.denied:
            return judged
        if judged.act.digest != self.act.digest:
            judged = await self.judge.look_again(replace(judged, act=self.act), whole=True)
        if judged.outcome.denied or judged.by_rule:
            return judged
        asks = judged.outcome.asks
        open_questions = (
            ask_of(question, resumed)
            for question in resumed.questions
            if question.version == self.judge.origin.version(question.hook)
            and not any(answers(question, ask, question.version) for ask in asks)
        )
        return replace(judged, outcome=replace(judged.outcome, asks=(*asks, *open_questions)))

    # -- ask -------------------------------------------------------------------------------------------------------

    def _is_answered(self, ask: Ask) -> bool:
        """Return True if an approval answers this question of this version of its hook, about this very act."""
        if not (self.approvals or self.claimed):
            return False
        version = self.judge.origin.version(ask.hook_name)
        return any(
            approval.allowed
            and approval.digest == self.judged.act.digest
            and any(answers(question, ask, version) for question in approval.request.questions)
            for approval in (*self.approvals, *self.claimed)
        )

    async def _ask(self, questions: tuple[Ask, ...]) -> Verdict | None:
        """Ask about the act. Return None if the answer allows it, and the way goes on."""
        outcome = replace(self.judged.outcome, asks=questions)
        if self.problem:
            return await self._refuse(deny_outcome(outcome, "InputNotFreezable", self.problem))
        if (stopped := self.judge.stopped_since(self.stops)) is not None:
            return await self._refuse(deny_outcome(outcome, "session", stopped, "session_cancelled"))
        act, known, self.known = self.judged.act, self.known, None
        attempt = f"{self.after}{self.rounds}"
        try:
            approval = await self.approver.ask(
                outcome,
                act,
                call=self.call,
                attempt=attempt,
                given=self.given,
                resumed=None if known is None else known.request,
                unread=self.unread,
            )
        except RecordUnavailable as error:
            return await self._refuse(deny_outcome(outcome, "record", str(error), "audit_unavailable"))
        self.rounds += 1
        if approval.status == "pending":
            await self._withdraw_approvals("superseded")
            return Pending(outcome=self.judged.outcome, request=approval.request, act=act)
        self.approvals.append(approval)
        return await self._take_answer(approval, outcome)

    async def _take_answer(self, approval: Approval, outcome: Outcome) -> Verdict | None:
        """Apply an answer: look again after a yes, judge an edit, judge anew if a hook that asked has changed."""
        if self._is_outdated(approval):
            # An answer to the hook before its change does not count for the changed one.
            await self._withdraw_approvals("superseded")
            self.why = TOO_MANY_CHANGES
            self.judged = await self.judge.judge(self.act, self.call, self.handles)
        elif not approval.allowed:
            refused = await self._refuse(denied_by(approval, outcome))
            return replace(refused, used=approval.used)
        elif approval.edited is not None:
            return await self._take_edit(approval, outcome)
        elif not approval.grants and self.judged.in_force is not None:
            self.judged = await self.judge.look_again(self.judged)
        return None

    def _asks_about(self, known: KnownCall, questions: tuple[Ask, ...]) -> bool:
        """Return True if an earlier request has no final end, is about this act, and asks these questions."""
        request = known.request
        return (
            bool(questions)
            and not known.is_final
            and request.digest == self.judged.act.digest
            and all(
                any(answers(question, ask, self.judge.origin.version(ask.hook_name)) for question in request.questions)
                for ask in questions
            )
        )

    async def _drop(self, known: KnownCall) -> Verdict | None:
        """Withdraw an earlier request that is not asked again. A denial that it was given holds, and so does a run."""
        self.known, outcome = None, self.judged.outcome
        try:
            end = await self.approver.supersede(known, self.call)
        except RecordUnavailable as error:
            return await self._refuse(deny_outcome(outcome, "record", str(error), "audit_unavailable"))
        return None if end is None else replace(await self._refuse(denied_by(end, outcome)), used=end.used)

    def _is_outdated(self, approval: Approval) -> bool:
        """Return True if a hook that asked was changed, so that an allowance or a withdrawn question has no meaning."""
        if approval.status not in ("approved", "unavailable", "cancelled") or approval.used is not None:
            return False
        changed = any(self.judge.origin.version(one.hook) != one.version for one in approval.request.questions)
        return changed and self.judge.stopped_since(self.stops) is None

    async def _take_edit(self, approval: Approval, outcome: Outcome) -> Verdict | None:
        """Judge the approver's own arguments like the caller's. An edit that a hook changes is asked about again."""
        self.why = TOO_MANY_EDITS
        edited = dict(approval.edited or {})
        lacking = self.kind != "tool" and not self.judged.act.fields().keys() <= edited.keys()
        if not self.kind or lacking:
            why = LEFT_OUT if self.kind else EDITED
            return await self._refuse(deny_outcome(outcome, "session", why, "approval_unavailable"))
        try:
            self.act = replace(self.judged.act, input=freeze_input(edited))
        except InputNotFreezable as error:
            return await self._refuse(deny_outcome(outcome, type(error).__name__, str(error)))
        self.judged = await self.judge.judge(self.act, self.call, self.handles)
        await self._withdraw_approvals("superseded", besides=self.judged.act.digest)
        judged = self.judged.outcome
        if not judged.denied and not judged.asks and self.judged.act.digest != approval.digest:
            # A hook changed the edit: asked as before, so the earlier assessments still hold.
            assessments = tuple(dict.fromkeys((*outcome.assessments, *judged.assessments)))
            self.judged = replace(self.judged, outcome=replace(judged, asks=outcome.asks, assessments=assessments))
        return None

    # -- record and claim ------------------------------------------------------------------------------------------

    async def _claim(self) -> Verdict | None:
        """Record that the act is about to run, and claim its approvals. Return None if another look is due.

        The record is on disk where a gate, a rule or a person looked at the act.
        """
        judge, judged = self.judge, self.judged
        if self.kind and self.recorded != judged.act.digest:
            act = judged.act
            durable = bool(self.approvals) or judge.guards(act.event)
            try:
                facts = act_facts(act, self.call, self.kind)
                writing = judge.recorder.begin(f"{self.kind}.running", facts, durable=durable, decides=True)
                if writing is not None:
                    await writing
            except RecordUnavailable as error:
                return await self._refuse(deny_outcome(judged.outcome, "record", str(error), "audit_unavailable"))
            self.recorded = act.digest
        if self.approver.stop_source is not None and (why := await self._find_stop()) is not None:
            return await self._refuse_stopped(why)
        if (stopped := judge.stopped_since(self.stops)) is not None:
            return await self._refuse(deny_outcome(judged.outcome, "session", stopped, "session_cancelled"))
        if judge.has_changed_since(judged):
            objection = await self._look_once_more()
            return None if objection is None else await self._refuse(objection)
        if not self.approvals:
            return Permit(judged.act, judged.outcome, judged, self.kind, judged.by_rule, stops=self.stops)
        return await self._claim_approvals()

    async def _look_once_more(self) -> Outcome | None:
        """Look at the act again, because hooks or rules have changed since the last look. Too many looks deny it."""
        if self.looks == LOOKS:
            return deny_outcome(self.judged.outcome, "session", TOO_MANY_CHANGES, "approval_unavailable")
        self.looks += 1
        self.judged = await self.judge.look_again(self.judged)
        return None

    async def _claim_approvals(self) -> Verdict:
        """Claim every approval of this call; if one cannot be claimed, nothing runs."""
        outcome = self.judged.outcome
        for approval in tuple(self.approvals):
            self.approvals.remove(approval)  # from here on it is used up, or was not to be had
            self.claimed.append(approval)
            try:
                claimed = await self.approver.claim(approval)
            except StopInForce as stop:
                self.claimed.remove(approval)
                self.approvals.append(approval)
                await self._find_stop()  # puts it on record
                return await self._refuse_stopped(str(stop))
            if not claimed:
                self.claimed.remove(approval)
                return await self._refuse(deny_outcome(outcome, "session", NO_LONGER, "approval_unavailable"))
        objection = await self._look_after_claim()
        if objection is not None:
            return await self._refuse(objection)
        outcome = replace(outcome, action="continue", reason=self.claimed[-1].reason)
        used = tuple(self.claimed)
        return Permit(self.judged.act, outcome, self.judged, self.kind, True, used, self.stops)  # noqa: FBT003

    async def _look_after_claim(self) -> Outcome | None:
        """Return an objection to the act if hooks or rules have changed, or the session was stopped, meanwhile."""
        if (stopped := self.judge.stopped_since(self.stops)) is not None:
            return deny_outcome(self.judged.outcome, "session", stopped, "session_cancelled")
        while self.judge.has_changed_since(self.judged):
            if (objection := await self._look_once_more()) is not None:
                return objection
            outcome = self.judged.outcome
            if outcome.denied:
                return outcome
            if not all(self._is_answered(ask) for ask in outcome.asks):
                return deny_outcome(outcome, "session", NO_LONGER, "approval_unavailable")
        return None

    # -- ends without a permit -------------------------------------------------------------------------------------

    async def _refuse(self, outcome: Outcome) -> Refused:
        """Withdraw everything open or unused of this call, and return the refusal."""
        await self._withdraw("superseded" if outcome.denied_by == "session" else f"denied by {outcome.denied_by}")
        await self.approver.settle(self.claimed, "failed")
        return Refused(outcome=outcome, act=self.judged.act)

    async def _find_stop(self) -> str | None:
        """Return the reason of a stop that covers the session or one above it, or None."""
        if self.approver.stop_source is None:
            return None
        judge: Judge | None = self.judge
        sessions = []
        while judge is not None:
            sessions.append((judge.tenant, judge.id))
            judge = judge.parent
        stop = await self.approver.find_stop(sessions)
        return None if stop is None else stop.reason

    async def _refuse_stopped(self, why: str) -> Refused:
        """Return the refusal of a stop. Answers that the same call can come back to stay unused in the store."""
        self.approvals = [one for one in self.approvals if not await self.approver.keep_for_later(one, self.call)]
        await self._withdraw_approvals("stopped")
        await self.approver.settle(self.claimed, "failed")
        outcome = deny_outcome(self.judged.outcome, "session", why, "emergency_stop")
        return Refused(outcome=outcome, act=self.judged.act)

    async def _give_up(self, *, cancelled: bool) -> None:
        """Withdraw everything of a call that was cancelled; settle what was claimed, since nothing will run."""
        if cancelled and self.kind:
            act = self.judged.act if self.recorded else self.act
            facts = {**act_facts(act, self.call, self.kind), "ran": False}
            await self.judge.recorder.note(f"{self.kind}.cancelled", facts)
        await self.approver.settle(self.claimed, "failed")
        for approval in self.claimed:
            await self.approver.withdraw(approval.request, "cancelled")  # its claim may have come to nothing
        await self._withdraw("cancelled")

    async def _withdraw(self, why: str) -> None:
        await self._withdraw_approvals(why)
        if self.call.returns:
            await self.approver.withdraw_call(self.call, why)

    async def _withdraw_approvals(self, why: str, besides: str = "") -> None:
        """Withdraw the approvals of this attempt, besides those for one digest; none of them may be used later."""
        for approval in [one for one in self.approvals if one.digest != besides]:
            if approval.allowed:
                await self.approver.withdraw(approval.request, why)
            self.approvals.remove(approval)  # only now, should the call be cancelled before


def answers(question: Question, ask: Ask, version: str) -> bool:
    """Return True if an answered question is this one: the same hook in this version, the same key or words."""
    if (question.hook, question.version, question.key) != (ask.hook_name, version, ask.key):
        return False
    return ask.key is not None or question.prompt == ask.prompt


def ask_of(question: Question, request: ApprovalRequest) -> Ask:
    """Return a question of an earlier request as its hook asked it."""
    return Ask(
        hook_name=question.hook,
        prompt=question.prompt,
        options=tuple(option.label for option in request.options),
        timeout=(request.expires - request.created).total_seconds(),
        default=request.default,
        scope=question.scope,
        key=question.key,
    )


def denied_by(approval: Approval, outcome: Outcome) -> Outcome:
    """Return the outcome as it was denied by a person, by a hook before a person was asked, or by no answer."""
    if approval.hook is not None:
        return deny_outcome(outcome, approval.hook, approval.reason, approval.cause)
    by = asking_hooks(approval.request)
    return deny_outcome(outcome, by, approval.message, approval.cause or CAUSE_OF[approval.status])


def act_facts(act: Act, call: Call, kind: str) -> dict[str, Any]:
    """Return an act in the form of the record."""
    called = {"call": call.id} if call.id else {}
    return {"tool" if kind == "tool" else "name": act.name, **called, "digest": act.digest}
