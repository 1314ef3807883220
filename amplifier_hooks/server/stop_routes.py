"""`/v1/stops`: stops of acts. The store of approvals keeps them, and checks them inside every claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query
from msgspec.structs import asdict
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.server.api import response_description
from amplifier_hooks.server.edge.authentication import Caller, require_scope
from amplifier_hooks.server.problem_details import Problem
from approval_backends.lifecycle import Decider

if TYPE_CHECKING:
    from amplifier_hooks.ports import AuditSink
    from approval_backends.broker import Broker


Viewing = Annotated[Caller, Depends(require_scope("approvals:view"))]
Deciding = Annotated[Caller, Depends(require_scope("approvals:decide"))]

log = get_logger(__name__)


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


def stops_router(broker: Broker, record: AuditSink) -> APIRouter:
    """Return the routes of stops."""
    router = APIRouter(prefix="/v1/stops", tags=["approvals"])

    @router.get("", summary="The stops in force.")
    async def find(caller: Viewing) -> StopPage:
        found = await broker.stops_in_force(_decider(caller, None))
        return StopPage(stops=[NewStop(**asdict(one)) for one in found])

    @router.post("", summary="Stop the acts of a session, of a tenant, or all.")
    async def begin(caller: Deciding, wanted: BeginBody) -> NewStop:
        begun = await broker.stop(wanted.why, _decider(caller, wanted.tenant), wanted.session)
        try:
            await _record(record, "stop.begun", caller, begun.tenant, begun.session, why=begun.why, stop=begun.id)
        except RecordUnavailable as error:  # acts are stopped all the same
            log.error("audit_unavailable", kind="stop.begun", error=str(error))  # noqa: TRY400  # its message is enough
        return NewStop(**asdict(begun))

    @router.delete("", summary="End a stop of exactly this reach.", responses={404: response_description(404)})
    async def end(
        caller: Deciding,
        session: Annotated[str, Query(max_length=200)] = "",
        tenant: Annotated[str | None, Query(max_length=200)] = None,
    ) -> NewStop:
        decider = _decider(caller, tenant)
        reach = (decider.tenant or "", session)
        there = [one for one in await broker.stops_in_force(decider) if (one.tenant, one.session) == reach]
        if there:
            await _record(record, "stop.ended", caller, *reach, stop=there[0].id)
        ended = await broker.end_stop(decider, session) if there else None
        if ended is None:
            raise Problem(404, "not_found", "there is no such stop in force")
        return NewStop(**asdict(ended))

    return router


def _decider(caller: Caller, tenant: str | None) -> Decider:
    """Return the token's bearer, for one tenant; only tokens without a tenant may name another."""
    if tenant and caller.tenant not in ("", tenant):
        raise Problem(403, "other_tenant", "this token is for the sessions of its own tenant")
    return Decider(name=caller.name, channel="api", tenant=caller.tenant or tenant or None)


async def _record(record: AuditSink, kind: str, caller: Caller, tenant: str, session: str, **facts: str) -> None:
    """Record the begin or the end of a stop, with its author. Raises `RecordUnavailable`."""
    about = {
        "time": stamp(SystemClock()),
        "tenant": caller.tenant,
        "by": caller.name,
        "bearer": caller.token.id,
        "covers": {"tenant": tenant, "session": session},
    }
    try:
        await record.write(kind, about | facts, durable=True)
    except Exception as error:
        raise RecordUnavailable(error) from error
