"""The object over a store that every backend uses: submit, wait until the deadline, decide, withdraw, claim, settle.

The store is the truth. A wake-up only tells a waiter to read the store again, and a waiter reads again anyway after
some seconds. A waiter woken only by a local change receives the record that change wrote and need not read again. A
request is pending, and only the life cycle says otherwise: neither a lost notification nor a late one, neither a
cancelled waiter nor a second broker in another process makes two decisions of one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from attrs import frozen

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.approvals import match_grants
from amplifier_hooks.errors import NO_ANSWER, InputNotFreezable
from amplifier_hooks.storage.database import Openable, StoreClosed, StoreUnavailable
from approval_backends.errors import BackendUnavailable
from approval_backends.lifecycle import (
    ApprovalAnswer,
    Decider,
    Refusal,
    RequestRecord,
    is_over,
    seconds_left,
    sees,
    sees_stop,
)
from approval_backends.stores.approval_store import RequestFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantMatch, KeptResult, Settlement, Stop, Unfinished
    from amplifier_hooks.storage.change_signal import Watch
    from approval_backends.lifecycle import Move
    from approval_backends.stores.approval_store import (
        AnswerCheck,
        ApprovalStore,
        RequestCursor,
        RequestEvent,
    )


RECHECK: Final = 5.0
"""Seconds after which a waiter reads again, woken or not."""
STOPS_AGE: Final = 1.0
"""Seconds for which the stops that were read last count."""
STOPS_TIMEOUT: Final = 0.5
"""Seconds for reading the stops."""
SESSION_REQUESTS: Final = 200
"""Requests of a session that `session_requests` returns, at most."""
LOOK_TIMEOUT: Final = 0.25
"""Seconds before a waiter asks an unavailable store again."""

SETTLEMENT_MOVES: Final[Mapping[Settlement, Move]] = {"done": "finish", "failed": "fail", "unknown": "lose"}


@frozen(kw_only=True)
class Resolution:
    """The result of an answer. `refusal` is None if the answer won, and else says why not, and what is so instead."""

    record: RequestRecord | None = None
    refusal: Refusal | None = None

    @property
    def accepted(self) -> bool:
        """True if this answer is the decision."""
        return self.refusal is None


log = logging.getLogger(__name__)


class Broker(Openable):
    """Carries requests and answers between callers and approvers, over one store.

    Any number of brokers may work on the same store, in any number of processes. `keep_grants` lets
    its questions offer an "always" for the project, kept for so many seconds.

    All methods raise `StoreUnavailable` when the store cannot be used.

    Args:
        recheck: Seconds after which a waiter reads the store again, woken or not.
        keep_grants: Seconds for which an "always" for the project is kept; None offers none.
    """

    def __init__(
        self,
        store: ApprovalStore,
        *,
        keep_grants: float | None = None,
        recheck: float = RECHECK,
    ) -> None:
        self.store = store
        self.keep_grants = keep_grants
        self._recheck = recheck
        self._stops: Sequence[Stop] = ()
        self._stops_until = -math.inf
        self._reading_stops = asyncio.Lock()

    async def open(self) -> Self:
        """Open the store."""
        await self.store.open()
        return self

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    async def submit(self, request: ApprovalRequest) -> RequestRecord:
        """Submit a request, without waiting.

        A request submitted again returns its record, with the answer it may have by now. Raises `TooManyRequests`,
        `RequestMismatch`. If `submit` is cancelled, the request is in the store or is not; submitting it again tells.
        """
        return await self.store.submit(request)

    async def ask(self, request: ApprovalRequest, seconds: float | None = None) -> RequestRecord:
        """Submit a request and wait for its end, as `submit` and `wait` do, without a second read after submitting."""
        with self.store.watch(request.id) as watch:
            record = await self.submit(request)
            return await self._until(watch, request.id, seconds, record)

    async def wait(self, request_id: str, seconds: float | None = None) -> RequestRecord:
        """Return the record once it is not pending any more, or as it is after so many seconds.

        When the request's own time is over, `wait` itself expires the request. `wait` retries an unavailable store
        until then. Cancelling `wait` changes nothing; withdrawing is the caller's task. Raises `BackendUnavailable` for
        an unknown request, `StoreUnavailable` when the store is away longer than the time to wait.

        Args:
            seconds: Seconds to wait; None waits until the request's own time is over.
        """
        with self.store.watch(request_id) as watch:
            return await self._until(watch, request_id, seconds)

    async def _until(
        self, watch: Watch, request_id: str, seconds: float | None, record: RequestRecord | None = None
    ) -> RequestRecord:
        """Read, wait, read again. The caller armed the watch before it read anything."""
        loop = asyncio.get_running_loop()
        until = math.inf if seconds is None else loop.time() + seconds
        end = math.inf if record is None else loop.time() + record.lifetime
        while True:
            try:
                if record is None:
                    record, left = await self._look(request_id)
                    end = loop.time() + left
            except StoreClosed:
                raise  # closed by us; that is no outage
            except StoreUnavailable:
                # Before the first read the request's remaining time is unknown, so there is nothing to wait for.
                if end == math.inf or loop.time() >= min(until, end):
                    raise
                await watch.wait(min(LOOK_TIMEOUT, self._recheck))
                continue
            if record.status != "pending" or loop.time() >= until:
                return record
            await watch.wait(min(end - loop.time(), until - loop.time(), self._recheck))
            record = watch.news()  # the record that the one change wrote, if this process made that change and no other

    async def _look(self, request_id: str) -> tuple[RequestRecord, float]:
        """Return the record as it is now, and the seconds it can still be pending."""
        record, now = await self.store.look(request_id)
        if record is None:
            raise BackendUnavailable(f"there is no request {request_id!r}")
        if record.status != "pending":
            return record, 0.0
        if not is_over(record, now):
            return record, seconds_left(record.created, record.lifetime, now)
        changed = await self.store.move(request_id, "expire")
        return (changed if isinstance(changed, RequestRecord) else changed.record or record), 0.0

    async def withdraw(self, request_id: str, reason: str) -> RequestRecord | Refusal:
        """Withdraw the question, or its answer as long as no caller has claimed it."""
        return await self.store.move(request_id, "withdraw", reason=reason)

    async def supersede(self, request_id: str, reason: str) -> RequestRecord | Refusal:
        """Withdraw the question because the action has changed, so another question takes its place.

        Args:
            reason: Reason, for the record and for people.
        """
        return await self.store.move(request_id, "supersede", reason=reason)

    async def give_up(self, request_id: str) -> RequestRecord | Refusal:
        """Expire a question whose requester has waited long enough by its own clock. An answer in the store stands."""
        return await self.store.move(request_id, "give_up", reason=NO_ANSWER)

    async def claim(self, request_id: str, digest: str) -> RequestRecord | Refusal:
        """Claim the approval for running the action: once, and for this digest.

        A claim also states that the decision is on record, because it has to be before anything runs.
        """
        result = await self.store.move(request_id, "claim", digest=digest)
        if isinstance(result, Refusal) and result.code == "stopped":
            self._stops_until = -math.inf  # this process does not know the stop yet
        return result

    async def settle(
        self, request_id: str, outcome: Settlement, note: str = "", result: KeptResult | None = None
    ) -> RequestRecord | Refusal:
        """Store the outcome of the action and its result. An unknown outcome can be settled later, once it is known."""
        return await self.store.move(request_id, SETTLEMENT_MOVES[outcome], reason=note, result=result)

    # -- deciding ------------------------------------------------------------------------------------------------------

    async def decide(
        self,
        request_id: str,
        digest: str,
        option: str,
        by: Decider,
        *,
        message: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        decision_id: str | None = None,
        seconds: float | None = None,
        times: int | None = None,
        check: AnswerCheck = None,
    ) -> Resolution:
        """Answer a request.

        `seconds` and `times` limit an "always": it ends after so long, and covers so many calls.

        An answer that does not count raises nothing: the resolution says why, and what is so instead. With a
        `decision_id` of the caller's, a decision whose confirmation was lost can be sent again. If `decide` is
        cancelled, or the store is away, the decision has counted or has not; sending it again tells. `check` runs
        inside the transaction that decides; `decide` raises its error, and then nothing was decided.

        Args:
            seconds: Seconds after which an "always" ends; None leaves the request's own end.
            times: Number of calls that an "always" covers; None sets no number.
        """
        answer = ApprovalAnswer(
            request=request_id,
            digest=digest,
            option=option,
            by=by,
            id=decision_id or uuid4().hex,
            message=message,
            arguments=_frozen_copy(arguments),
            seconds=seconds,
            times=times,
        )
        result = await self.store.answer(answer, check=check)
        if isinstance(result, RequestRecord):
            return Resolution(record=result)
        record = result.record
        if result.code == "expired" and record is not None and record.status == "pending":
            after = await self.store.move(request_id, "expire")
            record = after if isinstance(after, RequestRecord) else after.record
        return Resolution(record=record, refusal=result)

    async def pending(
        self, viewer: Decider, limit: int = 10_000, *, after: RequestCursor | None = None
    ) -> list[RequestRecord]:
        """Return the pending requests that the viewer may see, oldest first; with a cursor, those after it."""
        return await self.store.pending(RequestFilter(viewer.tenant, viewer.sessions, limit, after))

    async def history(
        self, viewer: Decider, limit: int = 100, *, after: RequestCursor | None = None
    ) -> list[RequestRecord]:
        """Return the finished requests that the viewer may see, newest first; with a cursor, those after it."""
        return await self.store.history(RequestFilter(viewer.tenant, viewer.sessions, limit, after))

    async def session_requests(self, request: ApprovalRequest) -> list[ApprovalRequest]:
        """Return the last requests of the session of a request that offers an "always"; none of any other.

        Of those that wait and of those that have ended there are at most `SESSION_REQUESTS` each. A card shows only
        their number, so a store that cannot be used has none.
        """
        if not any(option.lasts for option in request.options):
            return []
        own = RequestFilter(request.tenant, frozenset({request.session}), SESSION_REQUESTS)
        try:
            records = [*await self.store.pending(own), *await self.store.history(own)]
        except StoreUnavailable:
            return []
        return [record.request for record in records]

    async def show(self, request_id: str, viewer: Decider) -> RequestRecord | None:
        """Return one record; None if there is none, or the viewer may not see it."""
        record = await self.store.get(request_id)
        return record if record is not None and sees(viewer, record.request) else None

    async def events(self, request_id: str, viewer: Decider) -> list[RequestEvent]:
        """Return the events of a request, in order; none for a request that the viewer may not see."""
        return await self.store.events(request_id) if await self.show(request_id, viewer) else []

    def watch(self) -> AbstractContextManager[Watch]:
        """Return a watch that wakes on every change: watch, read, wait, read again."""
        return self.store.watch()

    # -- grants --------------------------------------------------------------------------------------------------------

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """Return what the grants in force answer to a request, and these grants; None if a person has to answer."""
        return match_grants(request, await self.store.grants_for(request))

    async def grants(self, viewer: Decider) -> list[Grant]:
        """Return the grants in force that the viewer may see, oldest first."""
        return await self.store.grants(tenant=viewer.tenant, sessions=viewer.sessions)

    async def revoke(self, grant_id: str, by: Decider) -> bool:
        """End a grant. Return True if there was one that this person may end."""
        if not by.may_decide:
            return False
        seen = {grant.id for grant in await self.grants(by)}
        return grant_id in seen and await self.store.revoke(grant_id, tenant=by.tenant)

    # -- stops ---------------------------------------------------------------------------------------------------------

    async def stop(self, why: str, by: Decider, session: str = "") -> Stop:
        """Stop the acts of a session, or of all that the decider's tenant has; without a tenant, of every tenant.

        One that is in force already is returned as it stands. A tool that runs is left alone.

        Args:
            session: Id of the session; the empty id stands for all that the decider may stop.
        """
        begun = await self.store.stop(why, by.name, tenant=by.tenant or "", session=session)
        self._stops_until = -math.inf
        return begun

    async def end_stop(self, by: Decider, session: str = "") -> Stop | None:
        """End the stop that `stop` began with this tenant and session, and return it; None if there is none.

        Args:
            session: Id of the session that `stop` got.
        """
        ended = await self.store.resume(by.name, tenant=by.tenant or "", session=session)
        self._stops_until = -math.inf
        return ended

    async def stops(self) -> Sequence[Stop]:
        """Return the stops in force, and those that ended in the last hour, at most one second old.

        If the store cannot be read in time, this is logged, and the stops that were read last count.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._stops_until:
            async with self._reading_stops:
                if (began := loop.time()) >= self._stops_until:
                    try:
                        async with asyncio.timeout(STOPS_TIMEOUT):
                            self._stops = await self.store.stops()
                    except (StoreUnavailable, TimeoutError) as error:
                        log.warning("approval_stops_unread error=%s", str(error) or "no answer in time")
                    self._stops_until = began + STOPS_AGE
        return self._stops

    async def is_stopped(self) -> bool:
        """Return True if a stop is in force, as `stops` knows it."""
        return any(one.ended is None for one in await self.stops())

    async def stops_in_force(self, viewer: Decider) -> list[Stop]:
        """Return the stops in force that reach a session of the viewer, read just now. Raises `StoreUnavailable`."""
        return [one for one in await self.store.stops() if sees_stop(viewer, one)]

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def resume(self, tenant: str, session: str) -> Unfinished:
        """Return what other workers of a session left or have begun, as a worker that begins finds it.

        Show a pending request again under its id, validate an approved one again before it is claimed, and let a person
        settle an unknown one: it never runs by itself.
        """
        await self.store.expire_due()
        return await self.store.begin_session(tenant, session)


def _frozen_copy(arguments: Mapping[str, Any] | None) -> Any:
    """Return a copy that no other code can change.

    Arguments that cannot be frozen pass unchanged, to be refused with a reason.
    """
    if arguments is None:
        return None
    try:
        return thaw(freeze(dict(arguments)))
    except InputNotFreezable:
        return arguments
