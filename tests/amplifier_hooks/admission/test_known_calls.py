"""A call that is made again has the end of its first request, whatever hooks, rules and grants say by then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.ports import RuleVerdict
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.testing import CollectingAudit
from approval_backends import DeferredApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from tests.stores import FILES, KINDS, opened

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_hooks import ToolOutcome
    from approval_backends.lifecycle import RequestRecord
    from approval_backends.testing import StoreSubject

ROBIN = Decider(name="Robin", channel="elsewhere")


class Rules:
    """Rules in code that allow everything a hook asks about."""

    digest = "allow"

    def judge(self, _facts: object) -> RuleVerdict:
        """Return the allowance."""
        return RuleVerdict(action="allow", rule="fine", answers=("*",))


def guard(*, asks: bool) -> HookRegistry:
    """Return a registry with one gate, in one version whether or not it asks."""
    registry = HookRegistry()

    def handler(_event: str, _data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.ask("Write?", options=["Allow", "Allow always", "Deny"]) if asks else None

    handler.hook_version = "1"  # type: ignore[attr-defined]  # the switch is no part of it
    registry.gate("tool:pre", handler, name="guard")
    return registry


class Desk:
    """A store, and the programs that begin one after another and make one call."""

    def __init__(self, subject: StoreSubject) -> None:
        self.subject, self.ran = subject, list[Any]()
        self.broker = Broker(subject.store)
        """The broker of another process."""

    async def call(self, registry: HookRegistry, **options: Any) -> ToolOutcome[Any]:
        """Make the call in a program that begins now, and ends after it."""
        given = {"n": 1} if options.pop("other", None) is None else {"n": 2}
        backend, call_id = (
            DeferredApprovals(Broker(self.subject.store, keep_grants=3_600)),
            options.pop("call_id", "c1"),
        )
        session = SessionCoordinator(registry, session_id="s1", approvals=backend, **options)
        try:
            return await session.call_tool("Write", given, self.ran.append, call_id=call_id)
        finally:
            await session.close()

    async def decide(self, label: str) -> RequestRecord:
        """Answer the next request that can be answered, as an approver of another process."""
        with self.broker.watch() as watch:
            while True:
                for one in await self.broker.pending(ROBIN):
                    option = next(option.id for option in one.request.options if option.label == label)
                    result = await self.broker.decide(one.id, one.digest, option, ROBIN, message="not today")
                    if result.accepted and result.record is not None:
                        return result.record
                await watch.wait(1)

    async def leave(self, end: str) -> None:
        """Leave the call behind with this end."""
        assert (await self.call(guard(asks=True), approval_wait=0.0)).status == "pending"
        if end == "expired":
            await self.subject.advance(1e5)
            return
        (record,) = await self.broker.pending(ROBIN)
        if end == "cancelled":
            await self.broker.withdraw(record.id, "withdrawn")
            return
        await self.decide("Deny" if end == "denied" else "Allow")
        if end in ("begun", "done"):
            await self.broker.claim(record.id, record.digest)
        if end == "done":
            await self.broker.settle(record.id, "done")


@pytest.mark.rule("APR-12")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_denial_in_another_process(kind: str, tmp_path: Path) -> None:
    """A call that an approver denied elsewhere is denied with the approver's words, though no hook is left to ask."""
    async with opened(kind, tmp_path) as subject:
        desk = Desk(subject)
        first, _record = await asyncio.gather(desk.call(guard(asks=True)), desk.decide("Deny"))
        again = await desk.call(HookRegistry())
    assert [(one.status, one.cause) for one in (first, again)] == [("denied", "denied_by_person")] * 2
    assert "not today" in str(again.reason)
    assert desk.ran == []


@pytest.mark.rule("APR-12")
@pytest.mark.parametrize(
    "way", ["the hook is silent", "the hook is gone", "a rule allows", "a grant allows"], ids=lambda way: way
)
@pytest.mark.parametrize(
    ("end", "causes"),
    [
        ("denied", ["denied_by_person"] * 4),
        ("begun", ["approval_unavailable"] * 4),
        ("done", ["approval_unavailable"] * 4),
        ("expired", ["approval_expired", None, None, None]),
        ("cancelled", ["approval_unavailable", None, None, None]),
    ],
)
@pytest.mark.parametrize("kind", FILES)
async def test_the_end_of_the_first_request(
    kind: str, end: str, causes: list[str | None], way: str, tmp_path: Path
) -> None:
    """A denial and a beginning hold for ever; an end without an answer holds until a rule or a grant answers."""
    ways = ["the hook is silent", "the hook is gone", "a rule allows", "a grant allows"]
    cause = causes[ways.index(way)]
    async with opened(kind, tmp_path) as subject:
        desk = Desk(subject)
        await desk.leave(end)
        if way == "a grant allows":
            granted = desk.call(guard(asks=True), call_id="c2")
            assert (await asyncio.gather(granted, desk.decide("Allow always in this project")))[0].ok
            desk.ran.clear()
        registry = HookRegistry() if way == "the hook is gone" else guard(asks=way != "the hook is silent")
        rules = {"rules": Rules()} if way == "a rule allows" else {}
        outcome = await desk.call(registry, approval_wait=0.0, **rules)
    assert outcome.cause == cause
    assert desk.ran == ([] if cause else [{"n": 1}])


@pytest.mark.rule("APR-12")
@pytest.mark.parametrize("end", ["denied", "begun", "expired", "cancelled", "approved"])
async def test_another_act_under_a_known_id(end: str, tmp_path: Path) -> None:
    """Another act under the id of a known call is denied, and uses nothing up."""
    async with opened("sqlite", tmp_path) as subject:
        desk = Desk(subject)
        await desk.leave(end)
        before = await subject.store.history()
        outcome = await desk.call(HookRegistry(), other=True)
        assert (outcome.cause, desk.ran) == ("approval_mismatch", [])
        if end in ("denied", "cancelled", "approved"):  # the others end as a session begins
            assert await subject.store.history() == before


@pytest.mark.rule("APR-12")
async def test_a_worker_that_has_begun_before(tmp_path: Path) -> None:
    """A worker whose session has begun before another worker's question sees the denial of that question."""
    async with opened("sqlite", tmp_path) as subject:
        desk = Desk(subject)
        backend = DeferredApprovals(subject.store)
        session = SessionCoordinator(HookRegistry(), session_id="s1", approvals=backend)
        assert (await session.call_tool("Read", {}, lambda _input: "read", call_id="c0")).ok
        await desk.leave("denied")
        outcome = await session.call_tool("Write", {"n": 1}, desk.ran.append, call_id="c1")
        await session.close()
    assert (outcome.cause, desk.ran) == ("denied_by_person", [])


@pytest.mark.rule("APR-12")
async def test_the_decision_is_on_record_once(tmp_path: Path) -> None:
    """A denial that a later program finds is on its record as decided; the event is marked as recorded."""
    async with opened("sqlite", tmp_path) as subject:
        desk, audit = Desk(subject), CollectingAudit()
        await desk.leave("denied")
        await desk.call(HookRegistry(), audit=audit)
        assert [one["what"] for one in audit.facts("approval.late")] == ["deny"]
        (decided,) = audit.facts("approval.decided")
        assert (decided["by"], decided["status"]) == ("Robin", "denied")
        assert await subject.store.list_unrecorded() == []


class AbsentStore(MemoryStore):
    """A store that cannot find calls."""

    async def find_call(self, tenant: str, session: str, call: str) -> RequestRecord | None:
        """Fail."""
        raise StoreUnavailable("away")


@pytest.mark.rule("APR-12", "APR-14")
@pytest.mark.parametrize("asks", [False, True], ids=["not asked", "asked"])
async def test_a_store_that_is_away(asks: bool) -> None:
    """Where the store cannot find a call, a call that is asked about is denied, and another one goes on."""
    ran = list[Any]()
    session = SessionCoordinator(guard(asks=asks), approvals=DeferredApprovals(AbsentStore()))
    outcome = await session.call_tool("Write", {}, ran.append, call_id="c1")
    assert (outcome.cause, len(ran)) == (("approval_unavailable", 0) if asks else (None, 1))


class ClaimedMeanwhile(MemoryStore):
    """A store in which another worker claims an approval right before it is superseded."""

    durable = True
    claims = True

    async def move(self, request_id: str, move: Any, **options: Any) -> Any:
        """Claim for the other worker, then make the move."""
        if move == "supersede" and self.claims:
            self.claims = False
            await super().move(request_id, "claim")
        return await super().move(request_id, move, **options)


@pytest.mark.rule("APR-12")
async def test_claimed_before_a_rule_answers() -> None:
    """A call whose approval another worker claims, while a rule answers here, does not run a second time."""
    ran, store = list[Any](), ClaimedMeanwhile()
    session = SessionCoordinator(
        guard(asks=True), session_id="s1", approvals=DeferredApprovals(store), approval_wait=0.0
    )
    assert (await session.call_tool("Write", {}, ran.append, call_id="c1")).status == "pending"
    (record,) = await store.pending()
    await Broker(store).decide(record.id, record.digest, record.request.options[0].id, ROBIN)
    here = SessionCoordinator(
        guard(asks=True), session_id="s1", approvals=DeferredApprovals(store), approval_wait=0.0, rules=Rules()
    )
    outcome = await here.call_tool("Write", {}, ran.append, call_id="c1")
    assert (outcome.cause, ran) == ("approval_unavailable", [])
