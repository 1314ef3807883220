"""The promises of a store of approvals, the values that a store returns, and the time by which it judges.

The time never goes back, so no clock that is set back prolongs a question. A store keeps the last reading of its
clocks, and its own age at that reading. While the machine is up, the store ages by the clock that cannot be set. After
a new start of the machine it ages by the wall clock, and at least by the time since that start. If the wall clock then
stands before the reading that was kept, the time that has passed is unknown: the store leaps, and all that was open is
over. PostgreSQL has a wall clock only, and leaps whenever it is set back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

from attrs import field, frozen

from amplifier_hooks.clock import micros_of
from amplifier_hooks.ports import Unfinished
from approval_backends.lifecycle import Moment, Move

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from amplifier_hooks.ports import ApprovalRequest, Grant, GrantUse, KeptResult, Stop
    from amplifier_hooks.storage.change_signal import Watch
    from approval_backends.lifecycle import ApprovalAnswer, Refusal, RequestRecord


PER_SESSION: Final = 32
PER_TENANT: Final = 256
RETENTION: Final = 7 * 86_400.0
"""Seconds that a finished request is kept."""
LATE_KEPT: Final = 16
"""Answers that did not count, kept for one request; a flood of them fills nothing."""
LATE: Final = ("already_resolved", "expired", "withdrawn")
"""Refusals of an answer that would have counted earlier."""
ANSWERS: Final = frozenset({"late_decision", "refused"})
"""Events that change nothing: answers that did not count."""
LOST: Final = "no result was stored before another worker of the session began"
"""Reason of a claimed request that becomes unknown."""
NEW: Final = "+"
"""Topic of a new request. Its own caller needs no wake-up, so only watches of all requests follow it."""
STOPS: Final = "!"
"""Topic of stops, for watches of all requests."""
USES_KEPT: Final = 1_000
"""Most uses of one grant that a store keeps; the count goes on."""
STOPS_KEPT: Final = 3_600.0
"""Seconds for which `stops` also returns a stop that has ended."""

AnswerCheck = Callable[[], Coroutine[Any, Any, None]] | None
"""A check of an approver's rights inside the transaction that decides. It must not use the store."""
Sessions = Iterable[str] | None
"""Names of sessions; None stands for all."""

EventKind = Literal["submitted", "late_decision", "refused"] | Move


@frozen(kw_only=True)
class OpenRequestLimits:
    """Numbers of requests that may wait for an answer at the same time."""

    per_session: int = PER_SESSION
    per_tenant: int = PER_TENANT


@frozen
class RequestEvent:
    """One event of a request.

    `number` counts the events of one request, `version` is the record's after the event, and `recorded` is True if the
    audit has it.
    """

    number: int
    request: str
    kind: EventKind
    at: datetime
    version: int
    by: str = ""
    channel: str = ""
    note: str = ""
    recorded: bool = field(default=False, kw_only=True)


@frozen
class RequestCursor:
    """The end of a page of a list; the next page begins after it. Records of one instant are in order of their ids."""

    created: datetime
    id: str

    @classmethod
    def of(cls, record: RequestRecord) -> RequestCursor:
        """Return the cursor of a record, in either list."""
        return cls(record.created.wall, record.id)


@frozen
class RequestFilter:
    """The requests of a list: of one tenant or all, of these sessions or all, so many of them, after a cursor.

    Args:
        sessions: Ids of the sessions; None stands for all.
        limit: Most requests of the list.
        after: Cursor; the list begins behind it.
    """

    tenant: str | None = None
    sessions: frozenset[str] | None = None
    limit: int = 10_000
    after: RequestCursor | None = None

    def passes(self, request: ApprovalRequest) -> bool:
        """Return True if the request is of the tenant and of one of the sessions."""
        return self.tenant in (None, request.tenant) and (self.sessions is None or request.session in self.sessions)


EVERY_REQUEST: Final = RequestFilter()


class ApprovalStore(Protocol):
    """A store of requests, their decisions and their grants.

    Every change is one transaction: the record by compare-and-set on its state and version, an event, grants, and a
    wake-up. Of two changes at once exactly one happens, and the other gets a refusal. The time is the store's own.

    All methods raise `StoreUnavailable` when the store cannot be used. A change that was under way then, or whose
    caller was cancelled, has happened or has not; reading tells. Every method can be called twice without harm: the id
    of the request makes `submit` so, and the id of the decision `answer`.
    """

    durable: bool
    """True if the content outlives the process."""

    async def open(self) -> Self:
        """Open the store. Raises `StoreUnavailable`, and nothing is left open then. Opening twice is harmless."""
        ...

    async def close(self) -> None:
        """Release everything, and wake every waiter. Closing twice is harmless."""
        ...

    async def now(self) -> Moment:
        """Return the time by which this store judges everything."""
        ...

    async def submit(self, request: ApprovalRequest) -> RequestRecord:
        """Keep a request, pending from now on for as long as it says.

        A request that is there already with its id and digest is returned as it stands. Raises `ApprovalMismatch` for
        arguments that do not have the digest, `RequestMismatch` for that id with another digest, tenant or session,
        and `TooManyRequests` over a limit.
        """
        ...

    async def get(self, request_id: str) -> RequestRecord | None:
        """Return the record, or None."""
        ...

    async def look(self, request_id: str) -> tuple[RequestRecord | None, Moment]:
        """Return the record, or None, and the store's time when it was read."""
        ...

    async def find_call(self, tenant: str, session: str, call: str) -> RequestRecord | None:
        """Return the request that stands for a call: the newest of the strongest state in `STANDING`, or None."""
        ...

    async def answer(self, answer: ApprovalAnswer, *, check: AnswerCheck = None) -> RequestRecord | Refusal:
        """Decide, if `lifecycle.judge` says that the answer counts; then set status, decision, decided, digest, ended.

        The decision notes the seconds for which the request keeps an "always"; a refusal adds its grants in the same
        transaction. An answer that does not count changes nothing but the request's events. A decision sent again
        returns the record as it stands. `check` runs inside the transaction, before anything is written; `answer`
        raises its error, and then nothing has changed.
        """
        ...

    async def move(
        self,
        request_id: str,
        move: Move,
        *,
        reason: str = "",
        digest: str | None = None,
        result: KeptResult | None = None,
    ) -> RequestRecord | Refusal:
        """Make one other move of the table, if `lifecycle.move_request` allows it; set status, reason, ended, result.

        A claim marks every event up to the decision as recorded, because the audit has to have them before, and adds
        the grants of an "allow always". While a stop covers the request's tenant and session, a claim is refused as
        `stopped`; once `stop` has returned, no claim succeeds any more.
        """
        ...

    async def expire_due(self, limit: int = 1_000) -> list[RequestRecord]:
        """Expire every request whose time is over, of any session, and return these requests."""
        ...

    async def pending(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        """Return the pending requests that pass the filter, oldest first."""
        ...

    async def history(self, among: RequestFilter = EVERY_REQUEST) -> list[RequestRecord]:
        """Return the requests that are not pending any more and pass the filter, newest first."""
        ...

    async def begin_session(self, tenant: str, session: str) -> Unfinished:
        """Return the open requests of a session. Any number of workers may serve one session.

        A request that was claimed and is not settled becomes unknown, because the store cannot know if its action ran;
        the worker that runs it can settle it all the same. Raises nothing of its own.
        """
        ...

    async def end_session(
        self, tenant: str, session: str, reason: str = "the session ended", *, final: bool = True
    ) -> list[RequestRecord]:
        """Withdraw the pending and approved requests, end the session's grants, and return these requests.

        Unless `final`, a session with such requests does not end, because they belong to other workers.
        """
        ...

    async def grants_for(self, request: ApprovalRequest) -> list[Grant]:
        """Return the grants in force that answer any hook of this request; `approvals.match_grants` combines them."""
        ...

    async def use_grants(self, request: ApprovalRequest, grants: Sequence[str]) -> Refusal | None:
        """Count a call that these grants cover, and keep it as a use of each, right before it runs.

        Returns a refusal, and counts nothing, if a stop covers the session, or if a grant is over or used up.
        """
        ...

    async def grant_uses(self, grant_id: str) -> list[GrantUse]:
        """Return the last calls that a grant has covered, oldest first, at most `USES_KEPT`."""
        ...

    async def grants(self, *, tenant: str | None = None, sessions: Sessions = None) -> list[Grant]:
        """Return the grants in force, oldest first."""
        ...

    async def revoke(self, grant_id: str, *, tenant: str | None = None) -> bool:
        """End a grant. Return True if there was one in force; another tenant's counts as none."""
        ...

    async def stop(self, why: str, by: str, *, tenant: str = "", session: str = "") -> Stop:
        """Begin a stop, and return it. A stop in force for this tenant and session is returned as it stands.

        Args:
            tenant: Tenant whose acts are stopped; the empty name stands for every one.
            session: Session whose acts are stopped; the empty id stands for every one.
        """
        ...

    async def resume(self, by: str, *, tenant: str = "", session: str = "") -> Stop | None:
        """End the stop in force for this tenant and session, and return it; None if there is none.

        Args:
            tenant: Tenant that `stop` got.
            session: Session that `stop` got.
        """
        ...

    async def stops(self) -> list[Stop]:
        """Return the stops in force, and those that ended in the last hour, oldest first."""
        ...

    async def events(self, request_id: str) -> list[RequestEvent]:
        """Return the events of a request, in order."""
        ...

    async def list_unrecorded(
        self, limit: int = 1_000, *, tenant: str | None = None, session: str | None = None
    ) -> list[RequestEvent]:
        """Return the events that the audit may lack, oldest first: after a crash it is completed from here.

        Events of one tenant or all, of one session or all.
        """
        ...

    async def mark_recorded(self, request_id: str, *, version: int = 0, number: int = 0) -> None:
        """Note that the audit has every change of a request up to this version, and every event up to this number.

        An answer that did not count is no change, so it stays to be recorded when a change is recorded.
        """
        ...

    async def purge(self, older_than: float = RETENTION, *, unrecorded: bool = False) -> int:
        """Remove requests that ended so many seconds ago, their events, ended grants and stops.

        Returns the number of removed requests.

        An undecided or unsettled request stays; so does one that is not recorded, unless `unrecorded` is True, as for a
        host that keeps no audit.
        """
        ...

    def watch(self, request_id: str | None = None) -> AbstractContextManager[Watch]:
        """Return a watch that wakes when this request, or any, changes: watch, read, wait, read again.

        A watch may wake for nothing. A new request wakes the watches of all requests.
        """
        ...


def decider_of(record: RequestRecord, kind: EventKind) -> tuple[str, str]:
    """Return the approver and the channel that an event names; empty, unless it is a decision."""
    decision = record.decision if kind in ("approve", "deny") else None
    return (decision.by, decision.channel) if decision else ("", "")


def unfinished(records: Sequence[RequestRecord]) -> Unfinished:
    """Return the requests that are not over, sorted by what is left to do."""
    pending, approved, unknown = (
        tuple(record.request for record in with_status(records, status))
        for status in ("pending", "approved", "unknown")
    )
    return Unfinished(pending=pending, approved=approved, unknown=unknown)


def with_status(records: Sequence[RequestRecord], *statuses: str) -> tuple[RequestRecord, ...]:
    """Return the records with one of these statuses."""
    return tuple(record for record in records if record.status in statuses)


# -- time -------------------------------------------------------------------------------------------------------------

SECOND: Final = 1_000_000
SET_BACK: Final = 1 * SECOND
"""Microseconds by which a wall clock may stand before the reading that was kept, without having been set back."""
LEAP: Final = 100 * 365 * 86_400 * SECOND
"""Microseconds by which the store ages when the time that has passed is unknown: longer than any question lives."""
KEPT_FOR: Final = 5 * SECOND
"""Microseconds after which a reading is kept anew."""


@frozen
class ClockReading:
    """An instant on two clocks: the one on the wall, and the seconds since the machine started.

    `boot` names that start. Without it, only the wall clock counts.
    """

    wall: datetime
    boot: str = ""
    uptime: float = 0.0


@frozen
class StoreClock:
    """The reading that a store keeps, and the store's age at that reading. Times are whole microseconds."""

    boot: str = ""
    uptime: int = 0
    wall: int = 0
    age: int = 0

    def at(self, reading: ClockReading) -> StoreClock:
        """Return the clock at a later reading."""
        wall, uptime = micros_of(reading.wall), round(reading.uptime * SECOND)
        if reading.boot and reading.boot == self.boot:
            passed = uptime - self.uptime
        elif wall < self.wall - SET_BACK:
            passed = LEAP
        else:
            passed = max(wall - self.wall, uptime if reading.boot else 0)
        return StoreClock(reading.boot, uptime, wall, self.age + max(passed, 0))

    def is_due(self, later: StoreClock) -> bool:
        """Return True if the store has to keep the later clock in place of this one."""
        return later.boot != self.boot or later.age - self.age >= KEPT_FOR

    def moment(self, reading: ClockReading) -> Moment:
        """Return the moment of this clock's reading."""
        return Moment(reading.wall, self.age / SECOND)


def system_reading() -> ClockReading:
    """Return the time now, by the wall clock and by a clock that counts while the machine sleeps and cannot be set."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_clock is None:
        return ClockReading(datetime.now(UTC))
    return ClockReading(datetime.now(UTC), _boot(), time.clock_gettime(boot_clock))


@cache
def _boot() -> str:
    """Return the name of this start of the machine; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
