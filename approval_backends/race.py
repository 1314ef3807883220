"""Several channels at once: the first valid answer wins, and the question disappears from the others.

The broker puts every answer to the store, and the store names the winner: a channel here, or another process that
decides on the same store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from amplifier_hooks.abandoned_work import cancel_all, keep_until_done
from amplifier_hooks.errors import ApprovalPending, ApprovalTimeout
from amplifier_hooks.ports import Decision, Unfinished
from approval_backends.broker import Broker
from approval_backends.errors import AlreadyRun, BackendUnavailable, RequestWithdrawn
from approval_backends.in_process import AsUpstream
from approval_backends.lifecycle import Decider, Refusal, RequestRecord, Status
from approval_backends.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, Grant, GrantMatch, Settlement


CARE: Final = 5.0
"""Seconds for withdrawing a question, even while the caller cancels."""

TAKING_BACK: Final[Mapping[str, Callable[[Broker, str], Awaitable[RequestRecord | Refusal]]]] = {
    "expired": lambda broker, request_id: broker.give_up(request_id),
    "superseded": lambda broker, request_id: broker.supersede(request_id, "another question took its place"),
}
"""Reasons of a session that the store keeps as ends of their own, and not as cancelled."""

FOUND: Final[Mapping[str, frozenset[Status]]] = {"expired": frozenset({"approved", "denied", "expired"})}
TAKEN_BACK: Final[frozenset[Status]] = frozenset({"denied", "cancelled", "superseded"})
"""States in which the session is right about the end of a request, by its reason for withdrawing it."""


class RacingApprovals(AsUpstream):
    """Asks through all `channels` and the broker's store at once.

    A channel that fails is out of the race, and the others go on. When the inline `wait` of a request ends before its
    time and the store is durable, the question stays open: `request` raises `ApprovalPending`, and asking the same
    request again goes on waiting. Without a `broker`, decisions live in memory.
    """

    def __init__(self, *channels: ApprovalBackend, broker: Broker | None = None) -> None:
        self.broker = broker or Broker(MemoryStore())
        self._channels = channels
        self._asking: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    @property
    def durable(self) -> bool:
        """True if questions and answers outlive this program."""
        return self.broker.store.durable

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask everywhere, and return the decision; at once, if it was made before a restart.

        Raises `ApprovalTimeout` when the time is over, `ApprovalPending` when only the inline wait is over,
        `RequestWithdrawn` when the question was withdrawn, `BackendUnavailable` when no channel is left and no other
        client can see the store, and `StoreUnavailable`. Cancelling `request` withdraws the question everywhere, and an
        answer of the same instant with it; if `withdraw` has begun to take the question back, its reason is kept.
        """
        self._asking[request.id] += 1
        try:
            record = await (
                self._race(request) if self._channels else self.broker.ask(request, self._wait_seconds(request))
            )
        except asyncio.CancelledError:
            await _finish_despite_cancel(self.withdraw(request.id, self._reasons.get(request.id, "cancelled")))
            raise
        finally:
            self._asking -= Counter([request.id])
            if request.id not in self._asking:
                self._reasons.pop(request.id, None)
        self._versions[request.id] = record.version
        return _decision(record)

    async def cancel_all(self, reason: str) -> None:
        """Withdraw every question that is being asked here at the moment, and its answer."""
        for request_id in list(self._asking):
            await self.withdraw(request_id, reason)

    async def claim(self, request_id: str, digest: str) -> bool:
        """Claim the approval for running the action: once, and for the approved digest."""
        return self._note_result(await self.broker.claim(request_id, digest))

    async def settle(self, request_id: str, outcome: Settlement) -> None:
        """Store the outcome of the action. Settling twice is harmless."""
        self._note_result(await self.broker.settle(request_id, outcome))

    async def withdraw(self, request_id: str, reason: str) -> Decision | None:
        """Withdraw the question. For one that is unknown, over or claimed this does nothing.

        The store keeps the reasons `expired` and `superseded` as ends of their own, and `expired` leaves an answer as
        it is. Returns the answer that the store has: with `expired` only one that stands.
        """
        take_back = TAKING_BACK.get(reason)
        if request_id in self._asking:
            self._reasons[request_id] = reason  # the same end, should the wait be cancelled before it has noticed
        result = await (take_back(self.broker, request_id) if take_back else self.broker.withdraw(request_id, reason))
        record = result if isinstance(result, RequestRecord) else result.record
        if record is None or record.status not in FOUND.get(reason, TAKEN_BACK):
            return None
        self._versions[request_id] = record.version
        if record.decision is None or record.status == "expired":
            return None
        return evolve(record.decision, took=record.took)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def begin_session(self, tenant: str, session: str) -> Unfinished:
        """Become the owner of a session; see `Broker.resume`."""
        taken = await self.broker.resume(tenant, session)
        return Unfinished(
            pending=tuple(record.request for record in taken.pending),
            approved=tuple(record.request for record in taken.approved),
            unknown=tuple(record.request for record in taken.unknown),
        )

    async def end_session(self, tenant: str, session: str, reason: str) -> None:
        """Withdraw the open requests of a session, and end its grants."""
        await self.broker.end_session(tenant, session, reason)

    async def mark_recorded(self, request_id: str, number: int = 0) -> None:
        """Note that the audit has every event of a request up to this number, or every change that was seen here."""
        version = 0 if number else self._versions.pop(request_id, 0)
        if version or number:
            await self.broker.store.mark_recorded(request_id, version=version, number=number)

    async def list_unrecorded(self, tenant: str, session: str) -> list[dict[str, Any]]:
        """Return the events that the audit of a session may lack, oldest first."""
        return [
            {
                "request": event.request,
                "event_number": event.number,
                "version": event.version,
                "what": event.kind,
                "at": event.at.isoformat(),
                "by": event.by,
                "channel": event.channel,
                "note": event.note,
            }
            for event in await self.broker.store.list_unrecorded(tenant=tenant, session=session)
        ]

    # -- grants --------------------------------------------------------------------------------------------------------

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """Return what the grants in force answer to a request; see `Broker.match_grants`."""
        return await self.broker.match_grants(request)

    async def remember(self, request: ApprovalRequest, decision: Decision, digest: str) -> None:
        """Do nothing: a grant is kept with its decision, in one transaction."""

    async def list_grants(self, tenant: str, session: str) -> list[Grant]:
        """Return the grants in force in a session, oldest first."""
        return await self.broker.store.grants(tenant=tenant, sessions=[session])

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End a grant of this session, or one for all sessions of the tenant. Return True if there was one."""
        if all(grant.id != grant_id for grant in await self.list_grants(tenant, session)):
            return False
        return await self.broker.store.revoke(grant_id, tenant=tenant)

    async def end_grants(self, tenant: str, session: str) -> None:
        """Do nothing: grants end with their session, in `end_session`."""

    # -- inside --------------------------------------------------------------------------------------------------------

    def _note_result(self, result: RequestRecord | Refusal) -> bool:
        """Return True if the change was made, and note its version for the audit."""
        if isinstance(result, RequestRecord):
            self._versions[result.id] = result.version
        return isinstance(result, RequestRecord)

    def _wait_seconds(self, request: ApprovalRequest) -> float | None:
        """Return the seconds to wait inline; None, the whole time, if the store keeps no question to come back to."""
        return request.wait if self.broker.store.durable else None

    async def _race(self, request: ApprovalRequest) -> RequestRecord:
        """Return the record when it is decided or over, or when the inline wait is over."""
        record = await self.broker.submit(request)
        if record.status != "pending":
            return record
        stored = asyncio.ensure_future(self.broker.wait(request.id, self._wait_seconds(request)))
        asked = {asyncio.ensure_future(self._ask(channel, request)) for channel in self._channels}
        try:
            return await self._first_result(request.id, stored, asked)
        finally:
            # A channel takes its card away when it is cancelled.
            await cancel_all({stored, *asked}, _outcome_notice(stored))

    async def _first_result(
        self, request_id: str, stored: asyncio.Future[RequestRecord], asked: set[asyncio.Task[None]]
    ) -> RequestRecord:
        running: set[asyncio.Future[Any]] = {stored, *asked}
        problems: list[BaseException] = []
        while not stored.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stored}:
                problem = RuntimeError("it cancelled itself") if task.cancelled() else task.exception()
                if problem is not None:
                    problems.append(problem)
            if len(problems) == len(asked) > 0 and not self.broker.store.durable and not stored.done():
                problem = _no_approver_error(problems)
                timely = isinstance(problem, ApprovalTimeout)
                if await self.withdraw(request_id, "expired" if timely else "no channel could ask") is None:
                    raise problem
        return stored.result()

    async def _ask(self, channel: ApprovalBackend, request: ApprovalRequest) -> None:
        """Put one channel's answer to the store. A late or unoffered answer ends that channel's part."""
        decision: object = await channel.request(evolve(request, keep=self.broker.keep_grants))
        if not isinstance(decision, Decision):
            raise BackendUnavailable(f"the answer was of type {type(decision).__name__}")
        resolution = await self.broker.decide(
            request.id,
            request.digest,
            decision.option,
            Decider(name=decision.by, channel=decision.channel, tenant=request.tenant),
            message=decision.message,
            arguments=decision.arguments,
            decision_id=decision.id,
        )
        if resolution.refusal is not None:
            raise BackendUnavailable(resolution.refusal.reason)


def _decision(record: RequestRecord) -> Decision:
    """Return the decision of a record, or raise the error that states its end."""
    if record.status == "pending":
        raise ApprovalPending(record.id)
    if record.status == "expired":
        raise ApprovalTimeout(record.reason or "no answer came in time")
    if record.decision is None or record.status in ("cancelled", "superseded"):
        raise RequestWithdrawn(f"the question was taken back: {record.reason or record.status}")
    if record.status not in ("approved", "denied"):
        raise AlreadyRun(record.id, record.status)
    return evolve(record.decision, took=record.took)


def _no_approver_error(problems: list[BaseException]) -> Exception:
    """Return the error that no channel can answer any more. If every channel ran out of time, it is a timeout."""
    if all(isinstance(problem, ApprovalTimeout) for problem in problems):
        return ApprovalTimeout("no channel was answered in time")
    return BackendUnavailable("; ".join(str(problem) or type(problem).__name__ for problem in problems))


def _outcome_notice(stored: asyncio.Future[RequestRecord]) -> str | None:
    """Return a notice for the approvers who look at a card: the status of the request, and its approver."""
    if not stored.done() or stored.cancelled() or stored.exception() is not None:
        return None
    record = stored.result()
    decision = record.decision
    return f"{record.status} by {decision.by} ({decision.channel})" if decision else record.status


async def _finish_despite_cancel(work: Coroutine[Any, Any, object]) -> None:
    """Finish this work although the task is being cancelled, within a bound; then the cancellation continues."""
    task = asyncio.ensure_future(work)
    keep_until_done(task)
    await asyncio.wait({task}, timeout=CARE)
