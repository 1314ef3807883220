"""The approval backend over a broker: it asks, withdraws, claims and settles, and the store names the answer.

    approvals = DeferredApprovals(SqliteStore("approvals.db"))                 # where the action runs
    await broker.decide(record.id, record.digest, option, Decider(…))          # anywhere else, over the same store

`request` waits inline for as long as the request says; then the question stays open, and a caller that comes back with
the same id (after a restart, say) gets the decision that was made meanwhile. Several channels at once race: the first
valid answer wins, whether of a channel here or of another process over the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from amplifier_hooks.errors import (
    NO_ANSWER,
    AlreadyRun,
    ApprovalPending,
    ApprovalTimeout,
    InvalidCollaborator,
    StopInForce,
)
from amplifier_hooks.foreign_code import cancel_all, finish_despite_cancel
from amplifier_hooks.ports import Decision, KnownCall, Unfinished
from amplifier_hooks.storage.database import Openable
from approval_backends.broker import Broker
from approval_backends.errors import BackendUnavailable, RequestWithdrawn
from approval_backends.in_process import AsUpstream
from approval_backends.lifecycle import BEGUN, OPEN, Decider, Refusal, RequestRecord
from approval_backends.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, Grant, GrantMatch, KeptResult, Settlement, Stop
    from approval_backends.lifecycle import Status
    from approval_backends.stores.approval_store import ApprovalStore


WITHDRAW_TIMEOUT: Final = 5.0
"""Seconds for withdrawing a question, even while the caller cancels."""

WITHDRAWALS: Final[Mapping[str, Callable[[Broker, str], Awaitable[RequestRecord | Refusal]]]] = {
    "expired": lambda broker, request_id: broker.give_up(request_id),
    "superseded": lambda broker, request_id: broker.supersede(request_id, "another question took its place"),
}
"""Reasons of a session that the store keeps as ends of their own, and not as cancelled."""

EXPIRY_ENDS: Final[frozenset[Status]] = frozenset({"approved", "denied", "expired"})
WITHDRAWAL_ENDS: Final[frozenset[Status]] = frozenset({"denied", "cancelled", "superseded"})
"""States in which the session is right about the end of a request that it withdraws as expired, or otherwise."""


class StoreApprovals(AsUpstream):
    """An approval backend over a store: approvers see its questions there, and decide there.

    When the inline `wait` of a request ends before its time and the store is durable, the question stays open:
    `request` raises `ApprovalPending`, and asking the same request again goes on waiting.
    """

    def __init__(self, store: ApprovalStore | Broker) -> None:
        self.broker = store if isinstance(store, Broker) else Broker(store)
        self._asking: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    @property
    def durable(self) -> bool:
        """True if questions and answers outlive this program."""
        return self.broker.store.durable

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and return the decision; at once, if it was made before a restart.

        Raises `ApprovalTimeout` when the time is over, `ApprovalPending` when only the inline wait is over,
        `AlreadyRun` when the action was begun, `RequestWithdrawn` when the question was withdrawn, `BackendUnavailable`
        when no approver can be asked, and `StoreUnavailable`. Cancelling `request` withdraws the question everywhere,
        and an answer of the same instant with it; if `withdraw` has begun to take the question back, its reason is
        kept.
        """
        self._asking[request.id] += 1
        try:
            record = await self._ask_approvers(request)
        except asyncio.CancelledError:
            withdrawing = self.withdraw(request.id, self._reasons.get(request.id, "cancelled"))
            with suppress(Exception):  # the caller reads only the cancellation
                await finish_despite_cancel(withdrawing, WITHDRAW_TIMEOUT)
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
        """Claim the approval for running the action: once, and for the approved digest.

        Raises `StopInForce` while a stop covers the session; the approval stays unused.
        """
        result = await self.broker.claim(request_id, digest)
        if isinstance(result, Refusal) and result.code == "stopped":
            raise StopInForce(result.reason)
        return self._note_result(result)

    async def find_call(self, tenant: str, session: str, call: str) -> KnownCall | None:
        """Return the request that stands for a call, or None."""
        record = await self.broker.store.find_call(tenant, session, call)
        if record is None:
            return None
        self._versions[record.id] = record.version
        return KnownCall(
            request=record.request,
            is_open=record.status in OPEN,
            denial=_given_decision(record) if record.status == "denied" else None,
            begun=AlreadyRun(record.id, record.status, record.result) if record.status in BEGUN else None,
        )

    async def stops(self) -> Sequence[Stop]:
        """Return the stops in force, and those that ended lately; see `Broker.stops`."""
        return await self.broker.stops()

    async def settle(self, request_id: str, outcome: Settlement, result: KeptResult | None = None) -> None:
        """Store the outcome of the action and its result. Settling twice is harmless."""
        self._note_result(await self.broker.settle(request_id, outcome, result=result))

    async def withdraw(self, request_id: str, reason: str) -> Decision | None:
        """Withdraw the question. For one that is unknown, over or claimed this does nothing.

        The store keeps the reasons `expired` and `superseded` as ends of their own, and `expired` leaves an answer as
        it is. Returns the answer that the store has: with `expired` only one that stands.
        """
        end = WITHDRAWALS.get(reason)
        if request_id in self._asking:
            self._reasons[request_id] = reason  # the same end, should the wait be cancelled before it has noticed
        result = await (end(self.broker, request_id) if end else self.broker.withdraw(request_id, reason))
        record = result if isinstance(result, RequestRecord) else result.record
        if record is None or record.status not in (EXPIRY_ENDS if reason == "expired" else WITHDRAWAL_ENDS):
            return None
        self._versions[request_id] = record.version
        return None if record.status == "expired" else _given_decision(record)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def begin_session(self, tenant: str, session: str) -> Unfinished:
        """Return what other workers of a session left; see `Broker.resume`."""
        return await self.broker.resume(tenant, session)

    async def end_session(self, tenant: str, session: str, reason: str, *, final: bool) -> None:
        """Withdraw the open requests of a session, and end its grants; see `ApprovalStore.end_session`."""
        await self.broker.store.end_session(tenant, session, reason, final=final)

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

    @property
    def keep_grants(self) -> float | None:
        """Seconds for which an "always" for a project lasts; None if an "always" ends with its session."""
        return self.broker.keep_grants

    async def use_grants(self, request: ApprovalRequest, grants: Sequence[Grant]) -> bool:
        """Count a call that these grants cover, in one transaction, unless one of them is over or used up.

        Raises `StopInForce` while a stop covers the session.
        """
        refusal = await self.broker.store.use_grants(request, [grant.id for grant in grants])
        if refusal is not None and refusal.code == "stopped":
            raise StopInForce(refusal.reason)
        return refusal is None

    async def remember(self, request: ApprovalRequest, decision: Decision) -> None:
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

    async def _ask_approvers(self, request: ApprovalRequest) -> RequestRecord:
        """Return the record when it is decided or over, or when the inline wait is over."""
        return await self.broker.ask(request, self._wait_seconds(request))

    def _wait_seconds(self, request: ApprovalRequest) -> float | None:
        """Return the seconds to wait inline; None, the whole time, if the store keeps no question to come back to."""
        return request.wait if self.broker.store.durable else None


def _decision(record: RequestRecord) -> Decision:
    """Return the decision of a record, or raise the error that states its end."""
    if record.status == "pending":
        raise ApprovalPending(record.id)
    if record.status == "expired":
        raise ApprovalTimeout(record.reason or NO_ANSWER)
    decision = _given_decision(record)
    if decision is None or record.status in ("cancelled", "superseded"):
        raise RequestWithdrawn(f"the question was taken back: {record.reason or record.status}")
    if record.status in BEGUN:
        raise AlreadyRun(record.id, record.status, record.result)
    return decision


def _given_decision(record: RequestRecord) -> Decision | None:
    """Return the decision of a record, with its duration and the digest that was shown."""
    found = record.decision
    return None if found is None else replace(found, took=record.took, digest=record.request.digest)


class DeferredApprovals(Openable, StoreApprovals):
    """An approval backend without a screen of its own. Use it as an async context manager, or `open` and `close` it."""

    async def open(self) -> Self:
        """Open the store. Calling `open` twice is harmless."""
        await self.broker.open()
        return self

    async def close(self) -> None:
        """Withdraw the questions that are being asked here at this moment, then close the store.

        Closing twice is harmless. A question whose inline wait is over stays open: the store is there for that.
        """
        try:
            await self.cancel_all("the program that asked has ended")
        finally:
            await self.broker.close()


# -- several channels at once -----------------------------------------------------------------------------------------


class RacingApprovals(StoreApprovals):
    """Asks through all `channels` and the broker's store at once.

    A channel that fails is out of the race, and the others go on. When none is left and no other client can see the
    store, `request` raises `BackendUnavailable`. Without a `broker`, decisions live in memory. Raises
    `InvalidCollaborator` for a channel that cannot ask, such as a list of channels.

    Args:
        channels: Backends that ask at the same time; the first answer counts.
        broker: Broker over the store of the requests; one in memory if None.
    """

    def __init__(self, *channels: ApprovalBackend, broker: Broker | None = None) -> None:
        super().__init__(broker or MemoryStore())
        for channel in channels:
            if isinstance(channel, type) or not hasattr(channel, "request"):
                raise InvalidCollaborator(
                    f"channel {channel!r:.80} has no method `request`; pass backends one by one: "
                    "RacingApprovals(TerminalApprovals(), page)"
                )
        self._channels = channels

    async def _ask_approvers(self, request: ApprovalRequest) -> RequestRecord:
        record = await self.broker.submit(request)
        if record.status != "pending":
            return record
        stored = asyncio.ensure_future(self.broker.wait(request.id, self._wait_seconds(request)))
        asked = {asyncio.ensure_future(self._ask_channel(channel, request)) for channel in self._channels}
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

    async def _ask_channel(self, channel: ApprovalBackend, request: ApprovalRequest) -> None:
        """Put one channel's answer to the store. A late or unoffered answer ends that channel's part."""
        decision: object = await channel.request(request)
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


def _no_approver_error(problems: list[BaseException]) -> Exception:
    """Return the error that no channel can answer any more. If every channel ran out of time, it is a timeout."""
    if all(isinstance(problem, ApprovalTimeout) for problem in problems):
        return ApprovalTimeout()
    return BackendUnavailable("; ".join(str(problem) or type(problem).__name__ for problem in problems))


def _outcome_notice(stored: asyncio.Future[RequestRecord]) -> str | None:
    """Return a notice for the approvers who look at a card: the status of the request, and its approver."""
    if not stored.done() or stored.cancelled() or stored.exception() is not None:
        return None
    record = stored.result()
    decision = record.decision
    return f"{record.status} by {decision.by} ({decision.channel})" if decision else record.status
