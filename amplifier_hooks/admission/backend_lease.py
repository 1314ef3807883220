"""A session's hold on a backend that outlives it: begun before the first question, ended with the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from amplifier_hooks.admission.approval_result import about
from amplifier_hooks.dispatch.bounded_wait import within
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalRequest, DurableApprovals, Unfinished
from amplifier_hooks.result import UserMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.record.write.recorder import Recorder


CARE: Final = 5.0
"""Seconds a backend has for what needs no person."""

log = get_logger(__name__)


class Lease:
    """Who owns a session in a durable backend, and which of its questions wait there for somebody to come back.

    For any other backend everything here does nothing.
    """

    def __init__(
        self,
        backend: object,
        recorder: Recorder,
        tenant: str,
        session: str,
        tell: Callable[[UserMessage], Awaitable[None]] | None = None,
    ) -> None:
        self._backend = outliving(backend)
        self._recorder = recorder
        self.whose = (tenant, session)
        self._tell = tell
        self._begun: Unfinished | None = None
        self._one_at_a_time = asyncio.Lock()
        self.waiting: dict[str, ApprovalRequest] = {}
        """Questions that are open, or answered and not used, although nobody waits for them inline."""

    @property
    def durable(self) -> bool:
        """Whether questions stay open when nobody waits for them inline."""
        return self._backend is not None and self._backend.durable is True

    async def begin(self) -> Unfinished:
        """Become the owner, and complete the record with what an earlier owner could not write. Once is enough.

        What it began without a result is shown to the person at the screen: it is never run again by itself. Raises
        what the backend raises, and `RecordUnavailable`; then nobody is asked, and the next one tries again.
        """
        async with self._one_at_a_time:
            if self._begun is None:
                self._begun = await self._taken_over()
            return self._begun

    async def end(self, reason: str, *, final: bool = False) -> bool:
        """End the session there, unless questions wait for somebody to come back; whether it was ended."""
        if self.waiting and not final:
            await self._recorder.note("session.suspended", {"waiting": sorted(self.waiting)})
            return False
        if self._backend is not None and self._begun is not None:
            await within(CARE, self._backend.end_session(*self.whose, reason))
            await self._complete(self._backend)
        return True

    async def recorded(self, request: ApprovalRequest) -> None:
        """The record has everything about a request so far. A failure is logged: it is completed from there later."""
        if self._backend is not None:
            try:
                await within(CARE, self._backend.recorded(request.id))
            except Exception as error:  # noqa: BLE001  # a backend may raise anything
                log.warning("approval_mark_failed", error=describe(error))

    async def _taken_over(self) -> Unfinished:
        if self._backend is None:
            return Unfinished()
        found = await within(CARE, self._backend.begin_session(*self.whose))
        await self._complete(self._backend)
        self.waiting |= {request.id: request for request in (*found.pending, *found.approved)}
        for request in found.unknown:
            await self._recorder.note("approval.unknown", about(request), durable=True)
            if self._tell is not None:
                text = (
                    f"{request.tool or request.event} was approved and begun, and nobody knows whether it ran "
                    f"(request {request.id}). It is not run again; look, and settle it."
                )
                message = UserMessage(text=text, level="warning", hook_name="session", source="session")
                await self._tell(message)
        return found

    async def _complete(self, backend: DurableApprovals) -> None:
        """What happened and is not on record, because whoever was to write it has died; marked as late."""
        numbers: dict[str, int] = {}
        for facts in await within(CARE, backend.unrecorded(*self.whose)):
            await self._recorder.write("approval.late", {**facts, "late": True})
            numbers[facts["request"]] = max(facts["event_number"], numbers.get(facts["request"], 0))
        for request_id, number in numbers.items():
            await within(CARE, backend.recorded(request_id, number))


def outliving(backend: object) -> DurableApprovals | None:
    """The backend, if its questions may outlive the program."""
    return backend if isinstance(backend, DurableApprovals) else None
