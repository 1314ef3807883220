"""Questions to the approver, and their results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.act import Act, freeze
from amplifier_hooks.admission.approval_request import Origin
from amplifier_hooks.admission.approver import Approver, Lease
from amplifier_hooks.approvals import SessionGrants, as_options
from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.foreign_code import LEFT_BEHIND
from amplifier_hooks.ports import ApprovalRequest, Decision
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.record.recorder import Recorder
from amplifier_hooks.result import Ask, Outcome
from amplifier_hooks.testing import HANG, CollectingAudit, ManualClock, ScriptedApprover
from approval_backends.backend import DeferredApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.admission.approver import Approval

ACTION = Act("acme", "s1", "tool:pre", "Write", "", freeze({"path": "x"}))


def question(prompt: str = "Really?", hook: str = "guard", **fields: Any) -> Ask:
    """One hook's question, with Allow and Deny."""
    given = {"options": ("Allow", "Deny"), "timeout": 60.0, "default": "deny", "scope": "prompt", "key": None}
    return Ask(hook_name=hook, prompt=prompt, **{**given, **fields})


async def ignore(*_event: object) -> None:
    """Do nothing, as a session without hooks and without a screen."""


class Office:
    """An approver with everything around it in reach."""

    def __init__(self, *script: Any) -> None:
        self.backend = ScriptedApprover(*script)
        self.clock = ManualClock()
        self.audit = CollectingAudit()
        self.approver = self.approver_over(self.backend)

    def approver_over(self, backend: Any) -> Approver:
        """Return an approver that asks through this backend, for a session without hooks."""
        recorder = Recorder(self.audit, self.clock, "s1", "acme")
        lease, grants = Lease(backend, recorder, "", "", ignore), SessionGrants(self.clock)
        return Approver(backend, recorder, self.clock, Origin(agent="coder"), lease=lease, grants=grants)

    async def ask(self, *asks: Ask) -> Approval:
        """Ask the questions of these hooks."""
        outcome = Outcome("tool:pre", {}, action="ask_user", asks=asks or (question(),))
        return await self.approver.ask(outcome, ACTION)

    @property
    def recorded(self) -> list[str]:
        """The ends on record."""
        return [facts["status"] for facts in self.audit.facts("approval.decided")]


@pytest.mark.rule("AUD-7")
@pytest.mark.parametrize(
    ("answer", "event", "decision"),
    [
        ("Allow", "approval_decision", {"decision": "approved"}),
        ("Deny", "approval_decision", {"decision": "denied"}),
        (RuntimeError("line is down"), "approval_decision", {"decision": "unavailable"}),
        (ApprovalTimeout(), "approval_timeout", {}),
    ],
    ids=["approved", "denied", "unavailable", "expired"],
)
async def test_log(answer: Any, event: str, decision: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Questions and results are events of the log, with stable names and fields."""
    caplog.set_level("INFO", "amplifier_hooks")
    await Office(answer).ask(question("Really?"), question("Sure?", hook="other"))
    told = [vars(record) for record in caplog.records if record.msg != "approval_unavailable"]
    assert [record["msg"] for record in told] == ["approval_requested", event]
    asked, became = told
    assert {name: asked[name] for name in ("hook", "prompt", "options")} == {
        "hook": "guard, other",
        "prompt": "Really?\nSure?",
        "options": ["Allow", "Deny"],
    }
    assert {name: became[name] for name in ("hook", *decision)} == {"hook": "guard, other", **decision}


@pytest.mark.rule("APR-2")
async def test_what_a_request_carries() -> None:
    """A request has the asking hooks, the reasons, the options, and the deadline."""
    office = Office("Allow")
    await office.ask(question("Really?"), question("Sure?", hook="other"))
    (request,) = office.backend.requests
    assert (request.tenant, request.session, request.agent) == ("acme", "s1", "coder")
    assert (request.event, request.tool, request.arguments) == ("tool:pre", "Write", {"path": "x"})
    assert request.digest == ACTION.digest
    assert [(one.hook, one.prompt) for one in request.questions] == [("guard", "Really?"), ("other", "Sure?")]
    assert [(one.label, one.kind) for one in request.options] == [("Allow", "allow_once"), ("Deny", "reject_once")]
    assert [one.kind for one in request.impacts] == ["unreadable"]  # its act has no folder
    assert request.default == "deny"
    assert (request.expires - request.created).total_seconds() == 60


@pytest.mark.rule("APR-1")
@pytest.mark.fault("F-APR-22")
@pytest.mark.parametrize(("answer", "allowed"), [("Allow", True), ("Deny", False)])
async def test_one_request_for_all(answer: str, allowed: bool) -> None:
    """Several hooks' questions become one request, and one answer holds for all of them."""
    office = Office(answer)
    approval = await office.ask(question("Really?"), question("Sure?", hook="other"))
    assert len(office.backend.requests) == 1
    assert approval.allowed is allowed


@pytest.mark.rule("APR-1")
async def test_strictest() -> None:
    """The shortest time, the strictest default, and only the kinds that all offer."""
    office = Office("Deny")
    await office.ask(
        question(options=("Allow always", "Yes", "No"), timeout=60.0, default="allow"),
        question(hook="other", options=("Allow once", "Deny"), timeout=5.0),
    )
    (request,) = office.backend.requests
    assert [option.label for option in request.options] == ["Yes", "No"]
    assert (request.expires - request.created).total_seconds() == 5
    assert request.default == "deny"


@pytest.mark.rule("APR-1")
@pytest.mark.parametrize("labels", [("Allow",), ("Allow", "Allow always")])
async def test_a_refusal_is_always_offered(labels: tuple[str, ...]) -> None:
    """A hook that offers no refusal gets one added."""
    office = Office("Deny")
    assert not (await office.ask(question(options=labels))).allowed
    assert [option.label for option in office.backend.requests[0].options] == [*labels, "Deny"]


@pytest.mark.rule("APR-6")
async def test_an_answer_about_another_act() -> None:
    """An answer that names another digest than the request's does not count, although its option was offered."""

    async def answer(request: ApprovalRequest) -> Decision:
        return Decision(option=request.options[0].id, by="Robin", channel="test", digest="0" * 64)

    approval = await Office(answer).ask()
    assert (approval.status, approval.allowed, approval.cause) == ("unavailable", False, "approval_mismatch")


@pytest.mark.rule("APR-5")
async def test_an_always_that_is_not_claimed_leaves_no_grant() -> None:
    """An "always" whose act is refused before the claim, or at it, answers no later question."""
    office = Office("Allow always", "Deny", "Deny")
    asked = question(options=("Allow always", "Deny"))
    approval = await office.ask(asked)
    assert approval.allowed
    assert not (await office.ask(asked)).allowed
    await office.backend.withdraw(approval.request.id, "the act was refused")
    assert not await office.approver.claim(approval)
    assert not (await office.ask(asked)).allowed
    assert len(office.backend.requests) == 3


@pytest.mark.rule("COO-9")
async def test_cancelled_twice() -> None:
    """A second cancellation withdraws every question that is open by then; the first one keeps its reason."""
    office = Office(HANG, HANG)
    asking = [asyncio.create_task(office.ask())]
    await office.backend.asked.wait()
    office.approver.cancel("first")
    asking.append(asyncio.create_task(office.ask(question("Another?"))))
    await asyncio.sleep(0)
    office.approver.cancel("second")
    assert [(one.status, one.reason) for one in await asyncio.gather(*asking)] == [
        ("cancelled", "first"),
        ("cancelled", "second"),
    ]


@pytest.mark.rule("APR-2")
async def test_no_allowance_is_added() -> None:
    """A hook that offers refusals alone gets no allowance added; "Allow once" only replaces one that it offered."""
    office = Office("Deny")
    await office.ask(question(options=("Deny", "Never")))
    assert [option.label for option in office.backend.requests[0].options] == ["Deny", "Never"]


@pytest.mark.rule("APR-2", "APR-11")
@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("Allow", "allow_once"),
        (" ALLOW ONCE ", "allow_once"),
        ("Yes", "allow_once"),
        ("Allow always", "allow_always"),
        ("deny", "reject_once"),
        ("Never", "reject_always"),
        ("Sure, why not", "reject_once"),
        ("Alow", "reject_once"),
        ("Allow\u200b", "reject_once"),
        ("", "reject_once"),
    ],
)
def test_labels(label: str, kind: str) -> None:
    """A known label means its kind in any case; an unknown label is a refusal."""
    assert as_options([label])[0].kind == kind


async def wrong_type(request: ApprovalRequest) -> Any:
    """Answer with something that is no decision."""
    return True


async def label_for_id(request: ApprovalRequest) -> Decision:
    """Name an option by its label."""
    return Decision(option="Allow", by="Mallory", channel="x")


async def unhashable(request: ApprovalRequest) -> Decision:
    """Name an option by something odd."""
    return Decision(option=["option-1"], by="Mallory", channel="x")  # type: ignore[arg-type]  # the point


async def cancels_itself(request: ApprovalRequest) -> Decision:
    """Claim to have been cancelled."""
    raise asyncio.CancelledError


@pytest.mark.rule("APR-6", "APR-11")
@pytest.mark.parametrize(
    "answer",
    [
        "Allow for ever",
        "allow",
        wrong_type,
        label_for_id,
        unhashable,
        cancels_itself,
        RuntimeError("line is down"),
        TimeoutError("connect timed out"),
        ValueError(),
    ],
)
@pytest.mark.parametrize("default", ["deny", "allow"])
async def test_what_does_not_count(answer: Any, default: str) -> None:
    """An option that was not offered, and any error of a backend, denies and is recorded as unavailable."""
    office = Office(answer)
    approval = await office.ask(question(default=default))
    assert (approval.status, approval.allowed) == ("unavailable", False)
    assert approval.reason.startswith("Approval unavailable: ")
    assert office.recorded == ["unavailable"]


@pytest.mark.rule("APR-4", "APR-11")
@pytest.mark.parametrize("answer", [HANG, ApprovalTimeout()])
@pytest.mark.parametrize(("default", "allowed"), [("deny", False), ("allow", True)])
async def test_silence(answer: Any, default: str, allowed: bool) -> None:
    """When the time is up the default holds, it is recorded as expired, and the question is withdrawn."""
    office = Office(answer)
    approval = await office.ask(question(default=default, timeout=0.01))
    assert (approval.status, approval.allowed) == ("expired", allowed)
    assert approval.reason == f"Timeout - {'allowed' if allowed else 'denied'} by default"
    assert office.recorded == ["expired"]
    assert office.backend.step_names == ["request", "withdraw"]
    assert await office.approver.claim(approval) is allowed


@pytest.mark.rule("APR-4")
async def test_no_time_at_all() -> None:
    """A question with no time expires at once."""
    assert (await Office("Allow").ask(question(timeout=0.0))).status == "expired"


@pytest.mark.rule("APR-4")
async def test_very_long_time() -> None:
    """A time that no calendar can hold is shortened to one that it can."""
    assert (await Office("Allow").ask(question(timeout=1e300))).allowed


@pytest.mark.rule("APR-4", "APR-6")
async def test_answer_after_the_deadline() -> None:
    """An answer that comes after the deadline changes nothing."""
    office = Office()

    async def slow(request: ApprovalRequest) -> Decision:
        office.clock.advance(60)
        return Decision(option="option-1", by="Robin", channel="x")

    office.backend = ScriptedApprover(slow)
    office.approver = office.approver_over(office.backend)
    approval = await office.ask()
    assert (approval.status, approval.allowed) == ("expired", False)
    assert not await office.backend.claim(office.backend.requests[0].id, ACTION.digest)


@pytest.mark.rule("APR-4")
async def test_backend_that_swallows_its_cancellation() -> None:
    """A backend that will not stop is left behind at the deadline, and what it answers later does not count."""
    stop = asyncio.Event()

    async def stubborn(request: ApprovalRequest) -> Decision:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        return Decision(option="option-1", by="Mallory", channel="x")

    office = Office(stubborn)
    assert (await office.ask(question(timeout=0.01))).status == "expired"
    (left,) = LEFT_BEHIND.values()
    stop.set()
    await left
    assert office.recorded == ["expired"]
    assert not LEFT_BEHIND


@pytest.mark.rule("APR-4")
async def test_backend_that_fails_when_stopped() -> None:
    """A backend that raises when it is cancelled at the deadline is expired like any other."""

    async def sore(request: ApprovalRequest) -> Decision:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("sore loser")
        raise AssertionError

    assert (await Office(sore).ask(question(timeout=0.01))).status == "expired"


@pytest.mark.rule("APR-3")
async def test_backend_whose_bookkeeping_fails() -> None:
    """A claim that raises is none; settling and withdrawing that raise are logged and go no further."""

    class Broken(ScriptedApprover):
        async def claim(self, request_id: str, digest: str) -> bool:
            raise OSError("store is gone")

        async def settle(self, request_id: str, outcome: str, result: Any = None) -> None:
            raise OSError("store is gone")

        async def withdraw(self, request_id: str, reason: str) -> None:
            raise OSError("store is gone")

    office = Office()
    office.approver = office.approver_over(Broken("Allow", ApprovalTimeout()))
    approval = await office.ask()
    assert approval.allowed
    assert not await office.approver.claim(approval)
    await office.approver.settle([approval], "done")
    assert (await office.ask()).status == "expired"


@pytest.mark.rule("APR-12")
async def test_an_end_that_could_not_be_stored() -> None:
    """The end of a call that the backend fails to store is stored at the next question, or when the session ends."""

    class Flaky(ScriptedApprover):
        broken = True

        async def settle(self, request_id: str, outcome: Any, result: Any = None) -> None:
            if self.broken:
                raise OSError("store is gone")
            await super().settle(request_id, outcome, result)

    office, backend = Office(), Flaky("Allow", "Allow", "Allow")
    office.approver = office.approver_over(backend)
    first, second = await office.ask(), await office.ask()
    await office.approver.settle([first], "done")
    await office.approver.settle([second], "failed")
    backend.broken = False
    third = await office.ask()
    assert backend.became == ["done", "failed"]
    backend.broken = True
    await office.approver.settle([third], "unknown")
    backend.broken = False
    await office.approver.end("closed")
    assert backend.became == ["done", "failed", "unknown"]


@pytest.mark.rule("APR-12")
async def test_one_end_of_several_that_could_not_be_stored() -> None:
    """Where one of a call's approvals cannot be settled, the others are, and the one is settled later."""

    class Refusing(ScriptedApprover):
        refused: str | None = None
        ends: list[str]

        async def settle(self, request_id: str, outcome: Any, result: Any = None) -> None:
            if request_id == self.refused:
                raise OSError("this row is locked")
            self.ends.append(request_id)

    office, backend = Office(), Refusing("Allow", "Allow", "Allow")
    backend.ends = []
    office.approver = office.approver_over(backend)
    approvals = [await office.ask() for _ in range(3)]
    first, second, third = (approval.request.id for approval in approvals)
    backend.refused = first
    await office.approver.settle(approvals, "done")
    assert backend.ends == [second, third]
    await office.approver.settle([], "done")
    assert backend.ends == [second, third]
    backend.refused = None
    await office.approver.end("closed")
    assert backend.ends == [second, third, first]


@pytest.mark.rule("APR-7")
async def test_who_decided() -> None:
    """The decider and the channel are on record with the digest."""
    office = Office("Allow")
    await office.ask()
    (facts,) = office.audit.facts("approval.decided")
    assert (facts["by"], facts["channel"], facts["digest"]) == ("Robin", "script", ACTION.digest)


@pytest.mark.rule("AUD-3")
async def test_decision_that_cannot_be_recorded() -> None:
    """An approval that cannot be recorded is taken back."""
    office = Office("Allow")
    office.audit.error, office.audit.only = OSError("full"), "approval.decided"
    with pytest.raises(RecordUnavailable):
        await office.ask()
    assert office.backend.step_names == ["request", "withdraw"]


# -- a hook that changes before the answer -----------------------------------------------------------------------------


ADA = Decider(name="ada", channel="test")


class Asks:
    """A hook that is made from data, and asks."""

    def __init__(self, version: str, prompt: str) -> None:
        self.hook_version = version
        self.prompt = prompt

    def __call__(self, event: str, data: Any) -> HookResult:
        """Ask."""
        return HookResult.ask(self.prompt)


async def waiting(broker: Broker, count: int = 1) -> list[RequestRecord]:
    """Return the pending requests once there are `count`."""
    found: list[RequestRecord] = []

    async def looked() -> None:
        while len(found) != count:
            with broker.watch() as watch:
                found[:] = await broker.pending(ADA)
                if len(found) != count:
                    await watch.wait(0.05)

    await asyncio.wait_for(looked(), 60)
    return found


async def allow(broker: Broker, record: RequestRecord) -> bool:
    """Allow the request; return True if the answer was accepted."""
    option = next(option.id for option in record.request.options if option.allows)
    return (await broker.decide(record.id, record.digest, option, ADA)).accepted


@pytest.mark.fault("F-API-09")
@pytest.mark.rule("APR-6")
@pytest.mark.parametrize("taken_back", [False, True], ids=["a yes", "taken back"])
async def test_a_yes_to_the_old_version_does_not_count(taken_back: bool) -> None:
    """A yes to an old version of a hook has no effect: the call is judged again, and the new version asks."""
    registry, broker = HookRegistry(), Broker(MemoryStore())
    ran: list[Any] = []
    undo = registry.gate("tool:pre", Asks("1", "old?"), name="guard")
    async with SessionCoordinator(registry, session_id="s", approvals=DeferredApprovals(broker)) as session:
        call = asyncio.create_task(session.call_tool("Write", {"n": 1}, ran.append))
        (old,) = await waiting(broker)
        undo()
        registry.gate("tool:pre", Asks("2", "new?"), name="guard")
        if taken_back:
            await broker.supersede(old.id, "the hook has changed")
        else:
            assert await allow(broker, old)
        (new,) = await waiting(broker)
        assert ran == []
        assert new.id != old.id
        assert new.request.prompt == "new?"
        assert await allow(broker, new)
        assert (await call).ok
    assert len(ran) == 1


@pytest.mark.fault("F-API-09")
async def test_a_hook_that_changes_all_the_time() -> None:
    """After three rounds the call is denied, and no tool has run."""
    registry, broker = HookRegistry(), Broker(MemoryStore())
    hook = Asks("0", "now?")
    registry.gate("tool:pre", hook, name="guard")
    ran: list[Any] = []
    async with SessionCoordinator(registry, session_id="s", approvals=DeferredApprovals(broker)) as session:
        call = asyncio.create_task(session.call_tool("Write", {}, ran.append))
        for number in range(3):
            (record,) = await waiting(broker)
            hook.hook_version = str(number + 1)
            await allow(broker, record)
        outcome = await asyncio.wait_for(call, 60)
    assert outcome.denied
    assert "changed each time" in (outcome.reason or "")
    assert ran == []


@pytest.mark.fault("F-API-09")
async def test_a_yes_that_waits_for_a_restart(tmp_path: Path) -> None:
    """A yes in the store, given to the old version, is not the answer to the same call once the hook has changed."""
    path = tmp_path / "approvals.db"
    ran: list[Any] = []
    for version, decides in (("1", True), ("2", False)):
        registry = HookRegistry()
        registry.gate("tool:pre", Asks(version, "ok?"), name="guard")
        async with SqliteStore(path) as store:
            broker = Broker(store)
            async with SessionCoordinator(
                registry, session_id="s", approvals=DeferredApprovals(broker), approval_wait=0.0
            ) as session:
                outcome = await session.call_tool("Write", {}, ran.append, call_id="c1")
                assert outcome.pending
                for record in await broker.pending(ADA) if decides else ():
                    assert await allow(broker, record)
    assert ran == []
