"""Several channels at once: the first valid answer wins, and the question disappears from the others.

Every answer is put to the broker, so the winner is whoever the store says: a channel here, or another process that
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
"""Seconds for taking a question back, whoever cancels meanwhile."""

TAKING_BACK: Final[Mapping[str, Callable[[Broker, str], Awaitable[RequestRecord | Refusal]]]] = {
    "expired": lambda broker, request_id: broker.give_up(request_id),
    "superseded": lambda broker, request_id: broker.supersede(request_id, "another question took its place"),
}
"""Reasons of a session that are kept as ends of their own, and not as cancelled."""

FOUND: Final[Mapping[str, frozenset[Status]]] = {"expired": frozenset({"approved", "denied", "expired"})}
TAKEN_BACK: Final[frozenset[Status]] = frozenset({"denied", "cancelled", "superseded"})
"""States in which the session is right about the end of a request, by its reason for taking it back."""


class RacingApprovals(AsUpstream):
    """Asks through all `channels` and the broker's store at once.

    A channel that fails is out of the race, and the others go on. When the inline `wait` of a request ends before its
    time and the store is durable, the question stays open: `request` raises `ApprovalPending`, and asking the same
    request again goes on waiting. Without a broker of one's own, decisions live in memory.
    """

    def __init__(self, *channels: ApprovalBackend, broker: Broker | None = None) -> None:
        self.broker = broker or Broker(MemoryStore())
        self._channels = channels
        self._asking: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    @property
    def durable(self) -> bool:
        """Whether questions and answers outlive this program."""
        return self.broker.store.durable

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask everywhere, and return what was decided; at once, if it was decided before a restart.

        Raises `ApprovalTimeout` when the time is over, `ApprovalPending` when only the time to wait inline is,
        `RequestWithdrawn` when the question was taken back, `BackendUnavailable` when no channel is left and nobody
        else can see the store, and `StoreUnavailable`. Cancelling it withdraws the question everywhere, and with it
        an answer that came in the same instant; if `withdraw` has begun to take it back, then for that reason.
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
        """Withdraw every question that is being asked here at the moment, and what was answered to it."""
        for request_id in list(self._asking):
            await self.withdraw(request_id, reason)

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval for running the action: once, and for what was approved."""
        return self._note_result(await self.broker.claim(request_id, digest))

    async def settle(self, request_id: str, outcome: Settlement) -> None:
        """Say what became of it. Twice is harmless."""
        self._note_result(await self.broker.settle(request_id, outcome))

    async def withdraw(self, request_id: str, reason: str) -> Decision | None:
        """Take the question back. For one that is unknown, over or claimed this does nothing.

        The store keeps the reasons `expired` and `superseded` as ends of their own, and `expired` leaves an answer as
        it is. Returns the answer the store has: with `expired` only one that stands.
        """
        take_back = TAKING_BACK.get(reason)
        if request_id in self._asking:
            self._reasons[request_id] = reason  # for the same end, should the wait be cancelled before it has noticed
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
        """Take back what is open in a session, and end its grants."""
        await self.broker.end_session(tenant, session, reason)

    async def mark_recorded(self, request_id: str, number: int = 0) -> None:
        """The audit has every event of a request up to this number, or every change of it that was seen here."""
        version = 0 if number else self._versions.pop(request_id, 0)
        if version or number:
            await self.broker.store.mark_recorded(request_id, version=version, number=number)

    async def list_unrecorded(self, tenant: str, session: str) -> list[dict[str, Any]]:
        """What the audit of a session may lack, oldest first."""
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

    # -- standing answers ----------------------------------------------------------------------------------------------

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """What grants in force say to a request; see `Broker.standing`."""
        return await self.broker.match_grants(request)

    async def remember(self, request: ApprovalRequest, decision: Decision, digest: str) -> None:
        """Nothing: a grant is kept with its decision, in one transaction."""

    async def list_grants(self, tenant: str, session: str) -> list[Grant]:
        """Grants in force in a session, oldest first."""
        return await self.broker.store.grants(tenant=tenant, sessions=[session])

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End a grant of this session, or of all of this tenant's; whether there was one."""
        if all(grant.id != grant_id for grant in await self.list_grants(tenant, session)):
            return False
        return await self.broker.store.revoke(grant_id, tenant=tenant)

    async def end_grants(self, tenant: str, session: str) -> None:
        """Nothing: they end with their session, in `end_session`."""

    # -- inside --------------------------------------------------------------------------------------------------------

    def _note_result(self, result: RequestRecord | Refusal) -> bool:
        """Whether the change was made; the record it made is what the audit will know of."""
        if isinstance(result, RequestRecord):
            self._versions[result.id] = result.version
        return isinstance(result, RequestRecord)

    def _wait_seconds(self, request: ApprovalRequest) -> float | None:
        """How long to wait inline: for as long as it takes, if nobody could come back to the question."""
        return request.wait if self.broker.store.durable else None

    async def _race(self, request: ApprovalRequest) -> RequestRecord:
        """The record when it is decided or over, or when the time to wait inline is."""
        record = await self.broker.submit(request)
        if record.status != "pending":
            return record
        stored = asyncio.ensure_future(self.broker.wait(request.id, self._wait_seconds(request)))
        asked = {asyncio.ensure_future(self._ask(channel, request)) for channel in self._channels}
        try:
            return await self._first_result(request.id, stored, asked)
        finally:
            # Being cancelled is how a channel learns to take its card away.
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
        """Put one channel's answer to the store. A late one, or one that was not offered, ends that channel's part."""
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
    """What somebody chose, or what there is instead."""
    if record.status == "pending":
        raise ApprovalPending(record.id)
    if record.status == "expired":
        raise ApprovalTimeout(record.reason or "nobody answered in time")
    if record.decision is None or record.status in ("cancelled", "superseded"):
        raise RequestWithdrawn(f"the question was taken back: {record.reason or record.status}")
    if record.status not in ("approved", "denied"):
        raise AlreadyRun(record.id, record.status)
    return evolve(record.decision, took=record.took)


def _no_approver_error(problems: list[BaseException]) -> Exception:
    """Why nobody can answer any more. If every channel ran out of time, the time is what ran out."""
    if all(isinstance(problem, ApprovalTimeout) for problem in problems):
        return ApprovalTimeout("no channel was answered in time")
    return BackendUnavailable("; ".join(str(problem) or type(problem).__name__ for problem in problems))


def _outcome_notice(stored: asyncio.Future[RequestRecord]) -> str | None:
    """What a channel can tell those who look at its card: what became of the request, and through whom."""
    if not stored.done() or stored.cancelled() or stored.exception() is not None:
        return None
    record = stored.result()
    decision = record.decision
    return f"{record.status} by {decision.by} ({decision.channel})" if decision else record.status


async def _finish_despite_cancel(work: Coroutine[Any, Any, object]) -> None:
    """Finish this although the task is being cancelled, within a bound; then whoever cancels goes on."""
    task = asyncio.ensure_future(work)
    keep_until_done(task)
    await asyncio.wait({task}, timeout=CARE)
