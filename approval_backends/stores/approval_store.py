"""What a store of approvals promises."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self

from attrs import frozen

from approval_backends.lifecycle import Moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from amplifier_hooks.ports import ApprovalRequest, Grant
    from amplifier_hooks.storage.change_signal import Watch
    from approval_backends.lifecycle import ApprovalAnswer, Change, Refusal, RequestRecord


PER_SESSION: Final = 32
PER_TENANT: Final = 256
RETENTION: Final = 7 * 86_400.0
"""Seconds that a finished request is kept."""
LATE_KEPT: Final = 16
"""Answers that did not count, kept for one request; whoever sends more of them fills nothing."""
LATE: Final = ("already_resolved", "expired", "withdrawn")
"""Why an answer is refused that would have counted earlier."""
ANSWERS: Final = frozenset({"late_decision", "refused"})
"""Events that change nothing: answers that did not count."""
NEW: Final = "+"
"""Called out for a request that is new: who submitted it knows, and only those who watch all of them want to."""

EventKind = Literal[
    "submitted",
    "approve",
    "deny",
    "expire",
    "give_up",
    "withdraw",
    "supersede",
    "claim",
    "finish",
    "fail",
    "lose",
    "late_decision",
    "refused",
]


@frozen(kw_only=True)
class OpenRequestLimits:
    """How many requests may wait for an answer at the same time."""

    per_session: int = PER_SESSION
    per_tenant: int = PER_TENANT


@frozen(kw_only=True)
class RequestEvent:
    """One thing that happened to a request.

    `number` counts the events of one request, `version` is the record's after it, and `recorded` says that the audit
    has it.
    """

    number: int
    request: str
    kind: EventKind
    at: datetime
    version: int
    by: str = ""
    channel: str = ""
    note: str = ""
    recorded: bool = False


@frozen(kw_only=True)
class SessionTakeover:
    """A session as its new owner finds it: still to be answered, approved but not begun, and begun without a result."""

    epoch: int
    pending: tuple[RequestRecord, ...] = ()
    approved: tuple[RequestRecord, ...] = ()
    unknown: tuple[RequestRecord, ...] = ()


@frozen
class RequestCursor:
    """Where a page of a list ends; the next one begins after it. Those of one instant are in the order of their ids."""

    created: datetime
    id: str

    @classmethod
    def of(cls, record: RequestRecord) -> RequestCursor:
        """The place of a record, in either list."""
        return cls(record.created.wall, record.id)


class ApprovalStore(Protocol):
    """Requests, what became of them, and standing grants.

    Every change is one transaction: the record by compare-and-set on its state and version, an event, grants, and a
    wake-up. Of two changes at once exactly one happens, and the other is told what is so. The time is the store's own.

    All methods raise `StoreUnavailable` when the store cannot be used. A change that was under way then, or whose
    caller was cancelled, has happened or has not; reading tells. All but `submit` and `answer` are harmless twice by
    their nature, and those two are by the request's id and by the decision's.
    """

    durable: bool
    """Whether what is kept here outlives the process."""

    async def open(self) -> Self:
        """Make it usable. Raises `StoreUnavailable`, and nothing is left open then. Twice is harmless."""
        ...

    async def close(self) -> None:
        """Let go of everything; who waits is woken. Twice is harmless."""
        ...

    async def now(self) -> Moment:
        """The time by which everything here is judged."""
        ...

    async def submit(self, request: ApprovalRequest, *, epoch: int = 0) -> RequestRecord:
        """Keep a request, pending from now on for as long as it says.

        A request with its id and the same digest that is there already is returned as it stands. Raises
        `RequestMismatch` for the same id with another digest, tenant or session, `TooManyRequests` over a limit, and
        `SessionTakenOver` for an epoch older than the session's.
        """
        ...

    async def get(self, request_id: str) -> RequestRecord | None:
        """The record, or None."""
        ...

    async def look(self, request_id: str) -> tuple[RequestRecord | None, Moment]:
        """The record, or None, and the store's time when it was read."""
        ...

    async def answer(
        self, answer: ApprovalAnswer, *, four_eyes: bool = False, keep: float | None = None
    ) -> RequestRecord | Refusal:
        """Decide, if `lifecycle.judge` says that the answer counts; then set status, decision, decided, digest, ended.

        An "always" adds its grants in the same transaction, kept so many seconds if wanted. An answer that does not
        count changes nothing but the request's events. The same decision again returns the record as it stands.
        """
        ...

    async def change(
        self, request_id: str, change: Change, *, reason: str = "", digest: str | None = None, epoch: int | None = None
    ) -> RequestRecord | Refusal:
        """Make one other change of the table, if `lifecycle.move` allows it; sets status, reason, ended.

        A claim says that the audit has everything up to the decision, because it has to be there before.
        """
        ...

    async def expire_due(self, limit: int = 1_000) -> list[RequestRecord]:
        """Expire what is over, whoever asked for it, and return that."""
        ...

    async def pending(
        self,
        *,
        tenant: str | None = None,
        sessions: Iterable[str] | None = None,
        limit: int = 10_000,
        after: RequestCursor | None = None,
    ) -> list[RequestRecord]:
        """What waits for an answer, oldest first; of one tenant or all, of these sessions or all, after a place."""
        ...

    async def history(
        self,
        *,
        tenant: str | None = None,
        sessions: Iterable[str] | None = None,
        limit: int = 100,
        after: RequestCursor | None = None,
    ) -> list[RequestRecord]:
        """What does not wait for an answer any more, newest first; after a place."""
        ...

    async def take_over(self, tenant: str, session: str) -> SessionTakeover:
        """Become the owner of a session: the previous one can neither submit nor claim from here on.

        What was claimed and never settled becomes unknown, for nobody can say whether it ran. Raises nothing of its
        own; twice makes a second, newer owner.
        """
        ...

    async def end_session(self, tenant: str, session: str, reason: str = "the session ended") -> list[RequestRecord]:
        """Withdraw what is pending or approved, end the session's grants, and return what was withdrawn."""
        ...

    async def grants_for(self, request: ApprovalRequest) -> list[Grant]:
        """Grants in force that speak for any hook of this request; `lifecycle.standing` says what they come to."""
        ...

    async def grants(self, *, tenant: str | None = None, sessions: Iterable[str] | None = None) -> list[Grant]:
        """Grants in force, oldest first."""
        ...

    async def revoke(self, grant_id: str, *, tenant: str | None = None) -> bool:
        """End a grant; whether there was one in force. Of another tenant there is none."""
        ...

    async def events(self, request_id: str) -> list[RequestEvent]:
        """What happened to a request, in order."""
        ...

    async def list_unrecorded(
        self, limit: int = 1_000, *, tenant: str | None = None, session: str | None = None
    ) -> list[RequestEvent]:
        """What the audit may not have yet, oldest first: after a crash it is completed from here.

        Of one tenant or all, of one session or all.
        """
        ...

    async def mark_recorded(self, request_id: str, *, version: int = 0, number: int = 0) -> None:
        """The audit has every change of a request up to this version, and every event up to this number.

        An answer that did not count is no change, so that it is still to be recorded when a change is.
        """
        ...

    async def purge(self, older_than: float = RETENTION, *, unrecorded: bool = False) -> int:
        """Remove what ended so many seconds ago, with its events, and ended grants; how many requests that were.

        Never what is undecided or unsettled; nor, unless told so by a host that keeps no audit, what is not recorded.
        """
        ...

    def watch(self, request_id: str | None = None) -> AbstractContextManager[Watch]:
        """Be woken when this request, or any, changes: watch, read, wait, read again. It may wake for nothing.

        A new request wakes those who watch all.
        """
        ...


def system_moment() -> Moment:
    """Now, by the wall and by a clock that counts the time the machine sleeps and cannot be set."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_clock is None:
        return Moment(datetime.now(UTC))
    return Moment(datetime.now(UTC), _boot(), time.clock_gettime(boot_clock))


@cache
def _boot() -> str:
    """The name of this start of the machine; empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def with_status(records: Sequence[RequestRecord], *statuses: str) -> tuple[RequestRecord, ...]:
    """Those of these statuses."""
    return tuple(record for record in records if record.status in statuses)
