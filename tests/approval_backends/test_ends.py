"""The end of a request is one fact: the caller, the record, the store and a page read the same one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field, frozen

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.storage.change_signal import ChangeSignals
from amplifier_hooks.testing import CollectingAudit
from approval_backends.backend import DeferredApprovals, RacingApprovals
from approval_backends.broker import Broker, Resolution
from approval_backends.gateway.wire.record_messages import history_row
from approval_backends.in_process import InProcessBackend
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import ROBIN, MovableClock
from tests.stores import FILES, KINDS, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from amplifier_hooks.ports import ApprovalRequest, Decision
    from amplifier_hooks.session.tool_call import ToolOutcome
    from amplifier_hooks.storage.change_signal import Watch
    from approval_backends.lifecycle import Refusal, RequestRecord

BEFORE, AFTER = "before", "after"


class Meanwhile(Broker):
    """A broker at which an approver answers in the same moment as a question is withdrawn: just before, or after."""

    when: str | None = None
    allows = True
    resolution: Resolution | None = None

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._answering = asyncio.Lock()  # a slow store is asked to withdraw a second time meanwhile

    async def give_up(self, request_id: str) -> RequestRecord | Refusal:
        """Withdraw the question because the time is up."""
        return await self._while_answered(request_id, lambda: super(Meanwhile, self).give_up(request_id))

    async def withdraw(self, request_id: str, reason: str) -> RequestRecord | Refusal:
        """Withdraw the question for another reason."""
        return await self._while_answered(request_id, lambda: super(Meanwhile, self).withdraw(request_id, reason))

    async def _while_answered(
        self, request_id: str, take_back: Callable[[], Awaitable[RequestRecord | Refusal]]
    ) -> RequestRecord | Refusal:
        async with self._answering:
            when, self.when = self.when, None
            with self.watch() as watch:
                while when and await self.show(request_id, ROBIN) is None:  # the session can be quicker than the store
                    await watch.wait(1)
            if when == BEFORE:
                await self._answer(request_id)
            result = await take_back()
            if when == AFTER:
                await self._answer(request_id)
            return result

    async def _answer(self, request_id: str) -> None:
        record = await self.store.get(request_id)
        assert record is not None
        option = next(option for option in record.request.options if option.allows is self.allows)
        self.resolution = await self.decide(request_id, record.digest, option.id, ROBIN)


SHORT: Final = {"memory": 0.02, "sqlite": 1.0, "postgres": 1.0}
"""Seconds of a question that ends without an answer: long enough that a busy disk keeps the question before."""


@define
class Desk:
    """A session whose gate asks about every tool, over one store."""

    broker: Meanwhile
    registry: HookRegistry
    session: SessionCoordinator
    audit: CollectingAudit
    ran: list[Any] = field(factory=list)

    async def call(self) -> ToolOutcome[Any]:
        """Run a tool, as the model wants."""
        return await self.session.call_tool("Write", {"path": "a"}, self.ran.append, call_id="call")

    async def asked(self) -> None:
        """Wait until the question is in the store."""
        with self.broker.watch() as watch:
            while not await self.broker.pending(ROBIN):
                await watch.wait(1)

    @property
    def late(self) -> list[tuple[str, str]]:
        """The late lines of the record: the fact, and its author."""
        return [(facts["what"], facts["by"]) for facts in self.audit.facts("approval.late")]

    @property
    def recorded(self) -> list[tuple[str, str | None]]:
        """The ends on record, and their authors."""
        return [(facts["status"], facts["by"]) for facts in self.audit.facts("approval.decided")]


@frozen
class End:
    """The end of the only request, as each reader has it."""

    status: str
    by: str | None
    recorded: list[tuple[str, str | None]]
    late: list[tuple[str, str]]
    unrecorded: int

    @classmethod
    async def of(cls, desk: Desk) -> End:
        """Read the end, once the session is closed."""
        (record,) = await desk.broker.history(ROBIN)
        shown = history_row(record).ending
        assert shown.status == record.status
        left = await desk.broker.store.list_unrecorded()
        return cls(record.status, shown.by, desk.recorded, desk.late, len(left))


@asynccontextmanager
async def desk(
    kind: str, folder: Path, *, timeout: float = 60.0, default: Any = "deny", wait: float | None = None
) -> AsyncIterator[Desk]:
    """Yield the session, with its store open until the end can be read."""
    registry, audit = HookRegistry(), CollectingAudit()

    @registry.gate("tool:pre")
    async def guard(_event: str, _data: Any) -> HookResult:
        return HookResult.ask("Write?", timeout=timeout, default=default)

    async with opened(kind, folder) as subject:
        broker = Meanwhile(subject.store)
        approvals = DeferredApprovals(broker)
        session = SessionCoordinator(registry, session_id="s", approvals=approvals, audit=audit, approval_wait=wait)
        yield Desk(broker, registry, session, audit)


@pytest.mark.rule("APR-4", "APR-11")
@pytest.mark.parametrize(("default", "ran"), [("deny", 0), ("allow", 1)])
@pytest.mark.parametrize("kind", KINDS)
async def test_time_is_up(kind: str, default: str, ran: int, tmp_path: Path) -> None:
    """A question without an answer has expired for caller, record, store and page, and is on record once."""
    async with desk(kind, tmp_path, timeout=SHORT[kind], default=default) as one:
        outcome = await one.call()
        await one.session.close()
        assert (outcome.ok, len(one.ran)) == (bool(ran), ran)
        assert ran or outcome.reason == "Operation denied by guard: Timeout - denied by default"
        assert ran or outcome.cause == "approval_expired"
        assert await End.of(one) == End("expired", None, [("expired", None)], [], 0)


@pytest.mark.rule("APR-4", "APR-6")
@pytest.mark.fault("F-APR-04")
@pytest.mark.parametrize("allows", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_answered_as_the_time_is_up(kind: str, allows: bool, tmp_path: Path) -> None:
    """An answer that the store has when the session's time is up holds everywhere, as if it had come earlier."""
    async with desk(kind, tmp_path, timeout=0.02) as one:
        one.broker.when, one.broker.allows = BEFORE, allows
        outcome = await one.call()
        await one.session.close()
        assert one.broker.resolution is not None
        assert one.broker.resolution.accepted
        assert (outcome.ok, len(one.ran)) == (allows, int(allows))
        said, status = ("approved", "done") if allows else ("denied", "denied")
        assert await End.of(one) == End(status, "Robin", [(said, "Robin")], [], 0)


@pytest.mark.rule("APR-4", "APR-6")
@pytest.mark.fault("F-APR-04")
@pytest.mark.parametrize("allows", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_answered_after_the_time(kind: str, allows: bool, tmp_path: Path) -> None:
    """The approver of an answer that comes after the end is told so; it changes nothing, and is on record once."""
    async with desk(kind, tmp_path, timeout=0.02) as one:
        one.broker.when, one.broker.allows = AFTER, allows
        outcome = await one.call()
        await one.session.close()
        assert one.broker.resolution is not None
        assert one.broker.resolution.refusal is not None
        assert one.broker.resolution.refusal.code == "expired"
        assert (outcome.denied, one.ran) == (True, [])
        late = [("late_decision", "Robin")]
        assert await End.of(one) == End("expired", None, [("expired", None)], late, 0)


async def stopped(one: Desk) -> None:
    """Stop the session while it asks, as the host does."""
    task = asyncio.ensure_future(one.call())
    await one.asked()
    await one.session.cancel("the host stopped it")
    assert (await task).denied


async def cancelled(one: Desk) -> None:
    """Cancel the call while it asks, as the host does."""
    task = asyncio.ensure_future(one.call())
    await one.asked()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


@pytest.mark.rule("APR-4", "COO-9")
@pytest.mark.parametrize(
    ("answered", "end"),
    [
        ((None, True), End("cancelled", None, [("cancelled", None)], [], 0)),
        ((BEFORE, False), End("denied", "Robin", [("denied", "Robin")], [], 0)),
        ((BEFORE, True), End("cancelled", None, [("cancelled", None)], [("approve", "Robin")], 0)),
        ((AFTER, True), End("cancelled", None, [("cancelled", None)], [("late_decision", "Robin")], 0)),
    ],
    ids=["unanswered", "denied", "approved", "answered late"],
)
@pytest.mark.parametrize("take_back", [stopped, cancelled])
@pytest.mark.parametrize("kind", KINDS)
async def test_taken_back(
    kind: str, take_back: Callable[[Desk], Awaitable[None]], answered: tuple[str | None, bool], end: End, tmp_path: Path
) -> None:
    """A question that is withdrawn has one end as well; a denial stands, and a voided approval is on record once."""
    async with desk(kind, tmp_path) as one:
        one.broker.when, one.broker.allows = answered
        await take_back(one)
        await one.session.close()
        assert one.ran == []
        assert await End.of(one) == end


@pytest.mark.rule("APR-4", "APR-10")
@pytest.mark.parametrize("kind", FILES)
async def test_a_hook_denies_what_was_approved_meanwhile(kind: str, tmp_path: Path) -> None:
    """An approval that a hook's denial makes void is on record once, as late, beside the denial."""
    async with desk(kind, tmp_path, wait=0.0) as one:
        assert (await one.call()).status == "pending"
        (record,) = await one.broker.pending(ROBIN)
        assert (await one.broker.decide(record.id, record.digest, record.request.options[0].id, ROBIN)).accepted

        @one.registry.gate("approval:required", name="curfew")
        async def curfew(_event: str, _data: Any) -> HookResult:
            return HookResult.deny("not at night")

        assert (await one.call()).by == "curfew"
        await one.session.close()
        assert one.ran == []
        assert await End.of(one) == End("cancelled", None, [("denied", "curfew")], [("approve", "Robin")], 0)


class Deaf(MemoryStore):
    """A store that wakes no waiter."""

    def watch(self, request_id: str | None = None) -> AbstractContextManager[Watch]:
        """Return a watch of its own, which nothing wakes."""
        return ChangeSignals().watch(request_id)


@pytest.mark.rule("APR-4")
async def test_an_answer_that_its_waiter_has_not_seen(tmp_path: Path) -> None:
    """An answer that stands when the time is up is not voided when the wait for it is cancelled."""
    async with desk("memory", tmp_path, timeout=0.02) as one:
        one.broker.when, one.broker.store = BEFORE, Deaf(clock=MovableClock())
        assert (await one.call()).ok
        await one.session.close()


class Slow(MemoryStore):
    """A store that is not done with a submission until that is cancelled, and has kept it then."""

    async def submit(self, request: ApprovalRequest) -> RequestRecord:
        """Keep the request in the end."""
        try:
            await asyncio.Event().wait()
        finally:
            record = await super().submit(request)
        return record


@pytest.mark.rule("APR-4")
async def test_time_is_up_before_the_question_is_kept(tmp_path: Path) -> None:
    """A question that the store keeps only as the wait for it ends expires as well, and no approver can answer it."""
    async with desk("memory", tmp_path, timeout=0.02) as one:
        one.broker.store = Slow()
        assert (await one.call()).denied
        await one.session.close()
        assert await End.of(one) == End("expired", None, [("expired", None)], [], 0)


class Silent(InProcessBackend):
    """A channel whose own time is up at once."""

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Give up."""
        raise ApprovalTimeout(f"no person is there for {request.id}")


@pytest.mark.rule("APR-4", "BCK-7")
async def test_every_channel_gives_up() -> None:
    """When the time of every channel is up, the store says expired as well."""
    race = RacingApprovals(Silent())
    with pytest.raises(ApprovalTimeout):
        await race.request_approval("Really?", ["Allow", "Deny"], 30.0, "deny")
    assert [record.status for record in await race.broker.history(ROBIN)] == ["expired"]


@pytest.mark.rule("APR-3", "APR-4")
@pytest.mark.parametrize("kind", KINDS)
async def test_time_is_up_for_the_upstream_kernel(kind: str, tmp_path: Path) -> None:
    """The upstream kernel reads the end that the store has: expired without an answer, and otherwise the answer."""
    async with opened(kind, tmp_path) as subject:
        broker = Meanwhile(subject.store)
        approvals = DeferredApprovals(broker)
        with pytest.raises(ApprovalTimeout):
            await approvals.request_approval("Really?", ["Allow", "Deny"], SHORT[kind], "deny")
        broker.when = BEFORE
        assert await approvals.request_approval("Really?", ["Allow", "Deny"], SHORT[kind], "deny") == "Allow"
        assert [record.status for record in await broker.history(ROBIN)].count("expired") == 1
