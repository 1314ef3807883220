"""`/v1/approvals`: lists of requests, and decisions on them. `/v1/stops`: stops of acts.

The store judges every decision. It keeps the stops, too, and checks them inside every claim.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from msgspec.structs import asdict
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from amplifier_hooks.approvals import check_digest, grant_keys, kept_keys, offered
from amplifier_hooks.clock import micros_of, moment_of
from amplifier_hooks.impacts import ImpactKind
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import AuditSink, Risk
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.result import Default
from amplifier_hooks.server.api import MISSING, TAKEN, Cursor, Limit, Next, cursor_of, read_cursor, response_description
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.problem_details import Problem
from approval_backends.lifecycle import Decider, Status
from approval_backends.stores.approval_store import RequestCursor, RequestFilter

if TYPE_CHECKING:
    from amplifier_hooks.definitions.model import HookDefinition
    from approval_backends.broker import Broker
    from approval_backends.lifecycle import RefusalCode, RequestRecord


Viewing = Annotated[Caller, Depends(require_scope("approvals:view"))]
Deciding = Annotated[Caller, Depends(require_scope("approvals:decide"))]

log = get_logger(__name__)

STATUS_OF: Final[dict[RefusalCode, int]] = {
    "unknown_request": 404,
    "not_allowed": 403,
    "wrong_digest": 412,
    "not_offered": 422,
    "bad_arguments": 422,
    "above_ceiling": 422,
}
"""HTTP status of a refused decision; every other refusal, for one too late or too early, is 409."""


class QuestionBody(BaseModel):
    """A hook's question to the approver."""

    hook: str
    prompt: str
    scope: str = Field(description="Scope of an 'always': 'action:DIGEST', 'prompt:TEXT' or 'key:TEXT'.")


class RiskReasonBody(BaseModel):
    """A reason for the risk, with the hook, rule or host that gives it."""

    by: str
    reason: str


class ImpactBody(BaseModel):
    """One thing that the call would do."""

    kind: ImpactKind
    place: str
    reason: str


class OptionBody(BaseModel):
    """An answer that the approver can choose."""

    id: str
    label: str
    kind: str


class DecisionBody(BaseModel):
    """The decision of an approver."""

    option: str
    by: str
    channel: str
    at: AwareDatetime | None
    message: str | None
    arguments: dict[str, Any] | None = Field(
        description="Arguments that the approver wrote in place of the given ones."
    )


class ApprovalBody(BaseModel):
    """A request: the questions about one act, and the exact arguments that would run."""

    id: str
    status: Status
    tool: str
    arguments: dict[str, Any]
    digest: str = Field(description="Digest of the act; a decision has to name it.")
    event: str
    agent: str
    session: str
    tenant: str
    cwd: str
    risk: Risk
    risk_reasons: list[RiskReasonBody]
    impacts: list[ImpactBody]
    questions: list[QuestionBody]
    options: list[OptionBody]
    default: Default
    created: AwareDatetime
    expires: AwareDatetime
    reason: str
    decision: DecisionBody | None

    @classmethod
    def of(cls, record: RequestRecord) -> ApprovalBody:
        """Return a request with its decision.

        Raises `ApprovalMismatch` for a request whose arguments do not have its digest.
        """
        request = record.request
        check_digest(request)
        keys = grant_keys(request) if request.keep is None else kept_keys(request)
        asked = zip(request.questions, keys, strict=True)
        shown = {name: getattr(request, name, None) for name in cls.model_fields}
        shown |= {name: getattr(record, name) for name in ("id", "status", "expires", "reason", "decision")}
        shown["created"], shown["options"] = record.created.wall, offered(request)
        shown["questions"] = [{"hook": one.hook, "prompt": one.prompt, "scope": key.scope} for one, key in asked]
        return cls.model_validate(shown, from_attributes=True)


class ApprovalPage(BaseModel):
    """Requests: pending ones, oldest first, or ended ones, newest first."""

    approvals: list[ApprovalBody]
    next: Next = None


class AnswerBody(BaseModel):
    """A decision. It counts only for the act with this digest."""

    model_config = ConfigDict(extra="forbid")

    digest: str = Field(min_length=1, max_length=200)
    option: str = Field(min_length=1, max_length=200, description="The id of one of the options.")
    message: str | None = Field(None, max_length=4_000, description="With a denial: a message to the model.")
    arguments: dict[str, Any] | None = Field(None, description="With an approval: arguments to run instead.")
    seconds: float | None = Field(None, gt=0, le=366 * 86_400.0, description='With an "always": seconds until it ends.')
    times: int | None = Field(None, ge=1, le=1_000_000, description='With an "always": calls that it covers.')
    decision_id: str | None = Field(
        None, min_length=1, max_length=200, description="Your own id, so that one decision can be sent twice."
    )


class NewStop(BaseModel):
    """A stop. An empty tenant or session covers every one."""

    id: str
    tenant: str
    session: str
    why: str
    by: str
    at: AwareDatetime
    ended: AwareDatetime | None
    ended_by: str


class StopPage(BaseModel):
    """The stops in force, oldest first."""

    stops: list[NewStop]


class BeginBody(BaseModel):
    """The reason of a stop, and its reach."""

    model_config = ConfigDict(extra="forbid")

    why: str = Field(min_length=1, max_length=2_000)
    session: str = Field("", max_length=200, description="One session; otherwise all of the tenant.")
    tenant: str | None = Field(None, max_length=200, description="One tenant, for tokens without a tenant.")


def approvals_router(broker: Broker, record: AuditSink) -> APIRouter:
    """Return the routes of approvals."""
    router = APIRouter(prefix="/v1/approvals", tags=["approvals"])

    @router.get("", summary="Requests that wait for a decision, or that have ended.")
    async def find(
        caller: Viewing,
        *,
        status: Annotated[
            Literal["pending", "ended"], Query(description="Requests that wait, or ended ones.")
        ] = "pending",
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> ApprovalPage:
        looked = broker.pending if status == "pending" else broker.history
        place = read_cursor(cursor)
        after = RequestCursor(moment_of(place[0]), place[1]) if place else None
        found = await looked(_decider(caller), limit + 1, after=after)
        last = RequestCursor.of(found[limit - 1]) if len(found) > limit else None
        following = cursor_of(micros_of(last.created), last.id) if last else None
        return ApprovalPage(approvals=[ApprovalBody.of(one) for one in found[:limit]], next=following)

    @router.get("/{request_id}", summary="One request.", responses=MISSING)
    async def show(caller: Viewing, request_id: str) -> ApprovalBody:
        return ApprovalBody.of(await _find_visible(broker, request_id, _decider(caller)))

    @router.post(
        "/{request_id}/decision",
        summary="Decide a request. Only the first valid decision counts.",
        responses={**MISSING, **TAKEN, 412: response_description(412)},
    )
    async def decide(caller: Deciding, http: Request, request_id: str, verdict: AnswerBody) -> ApprovalBody:
        decider = _decider(caller)
        await _find_visible(broker, request_id, decider)
        await _record_answer(record, "approval.answered", caller, request_id, verdict)
        try:
            resolution = await broker.decide(
                request_id,
                verdict.digest,
                verdict.option,
                decider,
                message=verdict.message,
                arguments=verdict.arguments,
                decision_id=verdict.decision_id,
                seconds=verdict.seconds,
                times=verdict.times,
                check=partial(http.app.state.caller_check.check_again, caller),
            )
        except BaseException as problem:
            await _record_uncounted(record, caller, request_id, verdict, type(problem).__name__)
            raise
        refusal, became = resolution.refusal, resolution.record
        if refusal is not None or became is None:
            code = refusal.code if refusal is not None else "unknown_request"
            reason = refusal.reason if refusal is not None else "there is no such request"
            await _record_uncounted(record, caller, request_id, verdict, code)
            raise Problem(STATUS_OF.get(code, 409), code, reason, became=became and became.status)
        return ApprovalBody.of(became)

    return router


def stops_router(broker: Broker, record: AuditSink) -> APIRouter:
    """Return the routes of stops."""
    router = APIRouter(prefix="/v1/stops", tags=["approvals"])

    @router.get("", summary="The stops in force.")
    async def find(caller: Viewing) -> StopPage:
        found = await broker.stops_in_force(_decider(caller))
        return StopPage(stops=[NewStop(**asdict(one)) for one in found])

    @router.post("", summary="Stop the acts of a session, of a tenant, or all.")
    async def begin(caller: Deciding, wanted: BeginBody) -> NewStop:
        begun = await broker.stop(wanted.why, _decider(caller, wanted.tenant), wanted.session)
        try:
            covers = {"tenant": begun.tenant, "session": begun.session}
            await caller.record(record, "stop.begun", {"covers": covers, "why": begun.why, "stop": begun.id})
        except RecordUnavailable as error:  # acts are stopped all the same
            log.error("audit_unavailable", kind="stop.begun", error=str(error))  # noqa: TRY400  # its message is enough
        return NewStop(**asdict(begun))

    @router.delete("", summary="End a stop of exactly this reach.", responses=MISSING)
    async def end(
        caller: Deciding,
        session: Annotated[str, Query(max_length=200)] = "",
        tenant: Annotated[str | None, Query(max_length=200)] = None,
    ) -> NewStop:
        decider = _decider(caller, tenant)
        covers = {"tenant": decider.tenant or "", "session": session}
        in_force = await broker.stops_in_force(decider)
        there = [one for one in in_force if {"tenant": one.tenant, "session": one.session} == covers]
        if there:
            await caller.record(record, "stop.ended", {"covers": covers, "stop": there[0].id})
        ended = await broker.end_stop(decider, session) if there else None
        if ended is None:
            raise Problem(404, "not_found", "there is no such stop in force")
        return NewStop(**asdict(ended))

    return router


def _decider(caller: Caller, tenant: str | None = None) -> Decider:
    """Return the token's bearer as a decider for one tenant; only tokens without a tenant see all, or name another."""
    if tenant and caller.tenant not in ("", tenant):
        raise Problem(403, "other_tenant", "this token is for the sessions of its own tenant")
    whose = caller.tenant or tenant or None
    return Decider(name=caller.name, channel="api", tenant=whose, may_decide=caller.may("approvals:decide"))


async def _find_visible(broker: Broker, request_id: str, decider: Decider) -> RequestRecord:
    found = await broker.show(request_id, decider)
    if found is None:
        raise Problem(404, "not_found", "there is no such request")
    return found


async def _record_answer(
    record: AuditSink, kind: str, caller: Caller, request_id: str, verdict: AnswerBody, **facts: str
) -> None:
    """Record a decision before it is made, or that it did not count. Raises `RecordUnavailable`."""
    said = {"request": request_id, "digest": verdict.digest, "option": verdict.option, **facts}
    await caller.record(record, kind, said)


async def _record_uncounted(
    record: AuditSink, caller: Caller, request_id: str, verdict: AnswerBody, reason: str
) -> None:
    with suppress(RecordUnavailable):  # a decision that did not count needs no proof
        await _record_answer(record, "approval.uncounted", caller, request_id, verdict, reason=reason)


async def void_questions(broker: Broker, changed: HookDefinition) -> None:
    """Withdraw the pending requests of a hook's old version. Their callers ask again.

    A request that was decided meanwhile is not claimed: its caller compares the versions before the claim.
    """
    version = f"{changed.digest[:16]}."
    for record in await broker.store.pending(RequestFilter(changed.tenant_id or None)):
        if any(question.version.startswith(version) for question in record.request.questions):
            await broker.supersede(record.id, f"the hook {changed.name} has changed")
