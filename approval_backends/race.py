"""Several channels at once: the first valid answer wins, and the question disappears from the others.

The broker puts every answer to the store, and the store names the winner: a channel here, or another process that
decides on the same store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.foreign_code import cancel_all
from amplifier_hooks.ports import Decision
from approval_backends.backend import StoreApprovals
from approval_backends.errors import BackendUnavailable
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest
    from approval_backends.broker import Broker
    from approval_backends.lifecycle import RequestRecord


class RacingApprovals(StoreApprovals):
    """Asks through all `channels` and the broker's store at once.

    A channel that fails is out of the race, and the others go on. When none is left and no other client can see the
    store, `request` raises `BackendUnavailable`. Without a `broker`, decisions live in memory.
    """

    def __init__(self, *channels: ApprovalBackend, broker: Broker | None = None) -> None:
        super().__init__(broker or MemoryStore())
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
