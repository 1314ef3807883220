"""Questions of this process, decided by another one, later, or after a restart."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.testing import CollectingAudit, CollectingDisplay
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.postgres import PostgresStore
from approval_backends.stores.sqlite import SqliteStore
from tests.stores import DSN, FILES, schema, server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from amplifier_hooks import ToolOutcome
    from approval_backends.lifecycle import RequestRecord
    from approval_backends.stores.transactions import DatabaseStore

ROBIN = Decider(name="Robin", channel="elsewhere")

pytestmark = pytest.mark.parametrize("kind", FILES)


@pytest.fixture
async def stores(kind: str, tmp_path: Path) -> AsyncIterator[Callable[[], DatabaseStore]]:
    """Return a function that opens a store at one address, once for each program."""
    if kind == "sqlite":
        yield lambda: SqliteStore(tmp_path / "approvals.db")
    else:
        await server()
        async with schema() as name:
            yield lambda: PostgresStore(DSN, schema=name, connections=2)


class Program:
    """One start of a program with a session of its own or an earlier one's, whose gate asks about every call."""

    def __init__(self, approvals: DeferredApprovals, session: str = "s1", **options: Any) -> None:
        self.approvals, self.audit, self.display = approvals, CollectingAudit(), CollectingDisplay()
        self.registry, self.ran, self.events = HookRegistry(), list[Any](), list[str]()
        self.registry.gate("tool:pre", self.ask, name="guard")
        self.registry.observe("session:*", lambda event, data, outcome: self.events.append(event))
        given: dict[str, Any] = {"approval_wait": 0.05, "tenant": "acme", "cwd": "/w"}
        self.session = SessionCoordinator(
            self.registry,
            session_id=session,
            approvals=approvals,
            audit=self.audit,
            display=self.display,
            **(given | options),
        )

    def ask(self, event: str, data: Any) -> HookResult:
        """Ask about the call."""
        return HookResult.ask("Deploy?", options=["Allow once", "Allow always", "Deny"])

    async def deploy(self, call_id: str | None = "c1", **given: Any) -> ToolOutcome[Any]:
        """Make the call."""
        return await self.session.call_tool("deploy", given or {"build": 7}, self.ran.append, call_id=call_id)


@asynccontextmanager
async def started(stores: Callable[[], DatabaseStore], session: str = "s1", **options: Any) -> AsyncIterator[Program]:
    """Run a program from its start to its orderly end."""
    async with DeferredApprovals(stores()) as approvals:
        program = Program(approvals, session, **options)
        async with program.session:
            yield program


async def decided(stores: Callable[[], DatabaseStore], option: str = "option-1", **more: Any) -> list[str]:
    """Decide all pending requests from another program, and return their ids."""
    async with DeferredApprovals(stores()) as approvals:
        waiting = await approvals.broker.pending(ROBIN)
        for record in waiting:
            assert (await approvals.broker.decide(record.id, record.digest, option, ROBIN, **more)).accepted
        return [record.id for record in waiting]


async def stored(stores: Callable[[], DatabaseStore], request: str) -> RequestRecord:
    """Return the store's record of a request."""
    async with stores() as store:
        record = await store.get(request)
        assert record is not None
        return record


@pytest.mark.rule("BCK-5", "APR-4", "COO-9", "APR-12")
async def test_pending_decided_and_run_once(stores: Callable[[], DatabaseStore]) -> None:
    """A call is undecided inline, the program ends, an approver decides, and the next program's call runs once."""
    async with started(stores) as first:
        outcome = await first.deploy()
        assert (outcome.status, outcome.ok, outcome.denied, outcome.call_id) == ("pending", False, False, "c1")
        assert "waits for an approval" in (outcome.reason or "")
    assert await decided(stores) == [outcome.pending]
    async with started(stores) as second:
        assert (await second.deploy()).ok
        assert (second.ran, second.events) == ([{"build": 7}], ["session:resume"])
        (facts,) = second.audit.facts("approval.decided")
        assert (facts["by"], facts["channel"], facts["request"]) == ("Robin", "elsewhere", outcome.pending)
        assert facts["took"] >= 0
        again = await second.deploy()
        assert (again.status, again.value, second.ran) == ("ok", None, [{"build": 7}])
    assert first.ran == []
    assert (await stored(stores, facts["request"])).status == "done"
    assert first.audit.kinds.count("tool.pending") == 1
    assert first.events == ["session:start", "session:end"]


@pytest.mark.rule("APR-12")
async def test_call_id_of_ours(stores: Callable[[], DatabaseStore]) -> None:
    """A pending call that the host gave no id says which id to call again with."""
    async with started(stores) as program:
        outcome = await program.deploy(call_id=None)
        await decided(stores)
        assert (await program.deploy(call_id=outcome.call_id)).ok


@pytest.mark.rule("BCK-5", "APR-4")
@pytest.mark.parametrize("option", ["option-3", None])
async def test_denied_or_nobody(stores: Callable[[], DatabaseStore], option: str | None) -> None:
    """A denial that was made meanwhile is found as well; without any decision the call is pending again."""
    async with started(stores) as first:
        await first.deploy()
    if option is not None:
        await decided(stores, option, message="not on a Friday")
    async with started(stores) as second:
        outcome = await second.deploy()
        assert outcome.status == ("pending" if option is None else "denied")
        assert ("not on a Friday" in (outcome.reason or "")) is (option is not None)
        assert second.ran == []


@pytest.mark.rule("APR-12", "BCK-5")
async def test_starts_in_between(stores: Callable[[], DatabaseStore]) -> None:
    """Programs that start and end without making the call again leave question and answer as they are."""
    async with started(stores) as first:
        await first.deploy()
    for late in ([], ["approve"], []):
        async with started(stores) as between:
            assert [facts["what"] for facts in between.audit.facts("approval.late")] == late
        await decided(stores)
    async with started(stores) as last:
        assert (await last.deploy()).ok


@pytest.mark.rule("BCK-8", "AUD-3")
@pytest.mark.parametrize("option", ["option-1", "option-3"])
async def test_nothing_is_left_to_record(stores: Callable[[], DatabaseStore], option: str) -> None:
    """When a call is over the store knows that all of it is on record, whether it was allowed or denied."""
    async with started(stores) as program:
        await program.deploy()
        await decided(stores, option)
        await program.deploy()
        assert await program.approvals.broker.store.list_unrecorded() == []


@pytest.mark.rule("APR-12", "COO-4")
@pytest.mark.fault("F-APR-13")
async def test_other_arguments(stores: Callable[[], DatabaseStore]) -> None:
    """An approved call that comes again with other arguments is a mismatch and does not run."""
    async with started(stores) as first:
        await first.deploy()
    await decided(stores)
    async with started(stores) as second:
        causes: list[str | None] = []
        second.registry.observe("tool:pre", lambda event, data, outcome: causes.append(outcome.cause))
        outcome = await second.deploy(build=8)
        assert outcome.denied
        assert "another call" in (outcome.reason or "")
        assert causes == ["approval_mismatch"]
        assert second.ran == []


@pytest.mark.rule("BCK-5", "APR-7")
@pytest.mark.fault("F-APR-12")
async def test_edited_meanwhile(stores: Callable[[], DatabaseStore]) -> None:
    """Arguments that were edited in another program run, once the gates have seen them."""
    async with started(stores) as first:
        await first.deploy()
    (request,) = await decided(stores, arguments={"build": 6})
    async with started(stores) as second:
        assert (await second.deploy()).ok
        assert second.ran == [{"build": 6}]
    record = await stored(stores, request)
    assert (record.status, record.digest) == ("done", second.audit.facts("tool.running")[0]["digest"])


@pytest.mark.rule("APR-5", "APR-12")
async def test_grants_of_a_suspended_session(stores: Callable[[], DatabaseStore]) -> None:
    """A session with pending calls keeps its grants over a restart; when it ends in order, they end."""
    async with started(stores) as first:
        await first.deploy()
    await decided(stores, "option-2")
    async with started(stores) as second:
        assert [(await second.deploy()).ok, (await second.deploy("c2", build=8)).ok] == [True, True]
        assert second.audit.facts("approval.decided")[1]["channel"] == "grant"
        (grant,) = await second.session.grants()
        assert await second.session.revoke(grant.id)
        assert (await second.deploy("c3", build=9)).status == "pending"
        await decided(stores, "option-2")
        assert (await second.deploy("c3", build=9)).ok
    async with started(stores) as third:
        assert await third.session.grants() == []
        assert (await third.deploy("c4")).status == "pending"
        await third.session.end()
    assert await decided(stores) == []


@pytest.mark.rule("COO-9", "APR-5")
async def test_cancelled(stores: Callable[[], DatabaseStore]) -> None:
    """Cancelling a session also takes back its questions in the store; another session's questions stay."""
    async with started(stores) as one, started(stores, "s2") as other:
        mine = await one.deploy()
        theirs = await other.deploy()
        await one.session.cancel("enough")
        assert await decided(stores) == [theirs.pending]
        assert (await stored(stores, mine.pending or "")).status == "cancelled"


@pytest.mark.rule("APR-12", "BCK-8")
@pytest.mark.fault("F-APR-21")
async def test_unknown_is_shown(stores: Callable[[], DatabaseStore]) -> None:
    """A call that began and never ended is shown on the screen after a restart, on record, and does not run again."""
    approvals = await DeferredApprovals(stores()).open()
    lost = Program(approvals)
    await lost.session.start()
    pending = await lost.deploy()
    await decided(stores)

    async def dies(given: Any) -> None:
        await approvals.broker.store.close()  # as when the program is gone: nothing can be settled any more
        raise RuntimeError("gone")

    await lost.session.call_tool("deploy", {"build": 7}, dies, call_id="c1")
    for _ in range(3):
        async with started(stores) as program:
            assert any("no result is known yet" in text for text, *_ in program.display.messages)
            assert [facts["request"] for facts in program.audit.facts("approval.unknown")] == [pending.pending]
            outcome = await program.deploy()
            assert outcome.denied
            assert "a person has to look at it" in (outcome.reason or "")
            assert program.ran == []
    await lost.session.close()


@pytest.mark.rule("BCK-8", "AUD-3")
@pytest.mark.fault("F-ST-02")
async def test_record_is_completed(stores: Callable[[], DatabaseStore]) -> None:
    """Decisions made while the record could not be written are on it after a restart, marked as late, and only once."""
    async with DeferredApprovals(stores()) as approvals:
        lost = Program(approvals)
        await lost.session.start()
        pending = await lost.deploy()
        await decided(stores)
        async with started(stores) as program:
            late = program.audit.facts("approval.late")
            assert [(facts["request"], facts["what"], facts["by"]) for facts in late] == [
                (pending.pending, "approve", "Robin"),
            ]
            assert all(facts["late"] for facts in late)
            assert (await program.deploy()).ok
            kinds = program.audit.kinds
            assert kinds.index("approval.late") < kinds.index("approval.decided") < kinds.index("tool.running")
        async with started(stores) as third:
            assert third.audit.facts("approval.late") == []
        assert await approvals.broker.store.list_unrecorded() == []


@pytest.mark.rule("AUD-3", "BCK-8")
async def test_record_that_cannot_be_completed(stores: Callable[[], DatabaseStore]) -> None:
    """While the store knows of decisions that the record lacks and cannot take, nothing is asked and nothing runs."""
    async with started(stores) as first:
        await first.deploy()
    await decided(stores)
    async with DeferredApprovals(stores()) as approvals:
        program = Program(approvals)
        program.audit.error, program.audit.only = OSError("full"), "approval.late"
        async with program.session:
            assert (await program.deploy()).by == "record"
            assert program.ran == []
            program.audit.error = None
            assert (await program.deploy()).ok


@pytest.mark.rule("APR-12", "BCK-8")
@pytest.mark.fault("F-LC-08")
async def test_two_workers(stores: Callable[[], DatabaseStore]) -> None:
    """Two workers of one session each run their own approved call, and a call of both runs once."""
    async with started(stores, approval_wait=30.0) as one, started(stores, approval_wait=30.0) as two:
        async with stores() as store:
            calls = [asyncio.ensure_future(one.deploy("c1")), asyncio.ensure_future(two.deploy("c2", build=8))]
            with store.watch() as watch:
                while len(await store.pending()) < 2:
                    await watch.wait(1)
        await decided(stores)
        assert [(await call).ok for call in calls] == [True, True]
        assert (one.ran, two.ran) == ([{"build": 7}], [{"build": 8}])
        assert (await two.deploy("c1")).ok
        assert two.ran == [{"build": 8}]


@pytest.mark.rule("APR-12", "BCK-8")
@pytest.mark.fault("F-LC-08")
async def test_the_first_worker_ends(stores: Callable[[], DatabaseStore]) -> None:
    """A worker that ends leaves the questions and the grants of the other workers; `end` takes them back."""
    async with started(stores) as one:
        await one.session.start()
        async with started(stores) as two:
            pending = await two.deploy("c2")
            await one.session.close()
            assert (await stored(stores, pending.pending or "")).status == "pending"
            await decided(stores)
            assert (await two.deploy("c2")).ok
            again = await two.deploy("c3", build=9)
            async with started(stores) as three:
                await three.session.end()
            assert (await stored(stores, again.pending or "")).status == "cancelled"


@pytest.mark.rule("BCK-5", "APR-4")
async def test_decided_while_waiting(stores: Callable[[], DatabaseStore]) -> None:
    """A decision in another program ends the inline wait of this one at once."""
    async with started(stores, approval_wait=30.0) as program:
        task = asyncio.ensure_future(program.deploy())
        async with DeferredApprovals(stores()) as elsewhere:
            with elsewhere.broker.watch() as watch:
                while not await elsewhere.broker.pending(ROBIN):
                    await watch.wait(1)
        await decided(stores)
        assert (await task).ok
        record = program.audit.facts("approval.decided")[0]
        assert record["status"] == "approved"
        async with stores() as store:
            assert await store.list_unrecorded() == []


@pytest.mark.rule("APR-12", "APR-4")
async def test_event_that_nobody_comes_back_to(stores: Callable[[], DatabaseStore]) -> None:
    """A question about an event that is no call is not left open: when the inline wait is over, it has expired."""
    async with started(stores) as program:
        program.registry.gate("prompt:submit", program.ask, name="guard2")
        outcome = await program.session.emit("prompt:submit", {"prompt": "x"})
        assert (outcome.denied, outcome.cause) == (True, "approval_expired")
    assert await decided(stores) == []


@pytest.mark.rule("APR-12")
async def test_a_call_that_has_run_returns_its_result(stores: Callable[[], DatabaseStore]) -> None:
    """A settled call that is made again returns its kept result; other arguments are refused and use nothing up."""
    results: dict[str, Any] = {"c1": {"build": [7, "\u00e9"]}, "c2": "x" * 70_000}
    async with started(stores) as first:
        for call_id in results:
            await first.deploy(call_id)
    assert len(await decided(stores)) == 2
    ran: list[Any] = []

    def run(call_id: str) -> Callable[[Any], Any]:
        def tool(_given: Any) -> Any:
            ran.append(call_id)
            return results[call_id]

        return tool

    for start in range(3):
        async with started(stores) as again:
            other = await again.session.call_tool("deploy", {"build": 8}, ran.append, call_id="c1")
            assert (other.cause, ran[2:]) == ("approval_mismatch", [])
            for call_id, result in results.items():
                outcome = await again.session.call_tool("deploy", {"build": 7}, run(call_id), call_id=call_id)
                if call_id == "c1" or start == 0:
                    assert outcome.value == result
                else:
                    assert outcome.denied
                    assert "succeeded, so it is not run again" in str(outcome.reason)
                    assert "(70,002 bytes)" in str(outcome.reason)
            assert len(again.audit.facts("tool.repeated")) == min(start, 1)
            assert ran == ["c1", "c2"]
