"""Checks that a store or a backend of your own keeps its promises, to run in your own tests.

```python
@pytest.mark.parametrize("check", STORE_CHECKS, ids=name_of)
async def test_my_store(check):
    async with MyStore() as store:
        await check(StoreSubject(store, advance=store.move_clock, reboot=store.set_clock_back))
```

Each check takes an empty store, or a fresh backend, and raises `NotConforming` with the promise that was broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import frozen
from msgspec.structs import replace

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.approvals import act_of, match_grants
from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.impacts import Impact
from amplifier_hooks.ports import ApprovalRequest, Assessment, Decision, KeptResult, Option, Question
from amplifier_hooks.result import RISKS
from approval_backends.errors import RequestMismatch, TooManyRequests
from approval_backends.lifecycle import ApprovalAnswer, Decider, Move, Refusal, RefusalCode, RequestRecord, seconds_left
from approval_backends.stores.approval_store import PER_SESSION, PER_TENANT, ClockReading, RequestCursor, RequestFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.ports import ApprovalBackend, Grant
    from approval_backends.stores.approval_store import ApprovalStore

__all__ = [
    "BACKEND_CHECKS",
    "STORE_CHECKS",
    "BackendSubject",
    "MovableClock",
    "NotConforming",
    "StoreSubject",
    "a_request",
    "an_answer",
    "name_of",
]

ALLOW: Final = Option(id="allow", label="Allow", kind="allow_once")
ALWAYS: Final = Option(id="always", label="Allow always", kind="allow_always")
DENY: Final = Option(id="deny", label="Deny", kind="reject_once")
NEVER: Final = Option(id="never", label="Deny always", kind="reject_always")

ROBIN: Final = Decider(name="Robin", channel="check")
KIM: Final = Decider(name="Kim", channel="check")

LIFETIME: Final = 60.0
MANY: Final = 16
SOON: Final = 10.0
"""Seconds within which everything here has long happened."""


class NotConforming(AssertionError):
    """A broken promise."""


@frozen
class StoreSubject:
    """An empty, open store; `advance` moves its clock, `reboot` starts its machine with the clock set back."""

    store: ApprovalStore
    """The store, empty and open."""
    advance: Callable[[float], Awaitable[None]]
    """Moves the store's clock by so many seconds."""
    reboot: Callable[[float], Awaitable[None]]
    """Starts the store's machine with its clock set back by so many seconds."""


@frozen
class BackendSubject:
    """A fresh backend, and a function that answers a request with an option, once the backend shows it."""

    backend: ApprovalBackend
    """The backend, fresh."""
    answer: Callable[[ApprovalRequest, Option], Awaitable[None]]
    """Answers a request with an option, once the backend shows it."""


class MovableClock:
    """A clock for stores that take one: it stands where it is put. `wall` and `uptime` can also be moved apart."""

    def __init__(self) -> None:
        self.reading = ClockReading(datetime(2026, 1, 1, 12, tzinfo=UTC), "boot-1", 1_000.0)

    def __call__(self) -> ClockReading:
        """Return the clock's reading."""
        return self.reading

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.move(wall=seconds, uptime=seconds)

    async def reboot(self, back: float) -> None:
        """Start the machine anew, with its wall clock set back.

        Args:
            back: Seconds by which the wall clock is set back.
        """
        now = self.reading
        self.reading = ClockReading(now.wall - timedelta(seconds=back), f"after {now.boot}", 0.0)

    def move(self, *, wall: float = 0.0, uptime: float = 0.0) -> None:
        """Move one clock.

        Args:
            wall: Seconds by which the wall clock moves.
            uptime: Seconds by which the uptime moves.
        """
        now = self.reading
        self.reading = ClockReading(now.wall + timedelta(seconds=wall), now.boot, now.uptime + uptime)


def a_request(number: int = 1, **changes: Any) -> ApprovalRequest:
    """Return a request to write a file. Different numbers give different ids and arguments; `changes` are fields.

    Args:
        number: Number of the request, which its id and arguments carry.
    """
    created = datetime(2026, 1, 1, 12, tzinfo=UTC)
    fields: dict[str, Any] = {
        "id": f"request-{number}-{uuid4().hex[:8]}",
        "tenant": "acme",
        "session": "session-1",
        "agent": "coder",
        "event": "tool:pre",
        "tool": "Write",
        "arguments": {"file_path": f"src/{number}.py", "content": "pass"},
        "questions": (Question(hook="guard", prompt="Write it?"),),
        "options": (ALLOW, ALWAYS, DENY, NEVER),
        "default": "deny",
        "created": created,
        "expires": created + timedelta(seconds=LIFETIME),
        "cwd": "/project",
        **changes,
    }
    frozen = freeze(dict(fields["arguments"]))
    act = Act(fields["tenant"], fields["session"], fields["event"], fields["tool"], fields["cwd"], frozen)
    return ApprovalRequest(**{"digest": act.digest, **fields})


def an_answer(request: ApprovalRequest, option: Option = ALLOW, **changes: Any) -> ApprovalAnswer:
    """Return a valid answer to a request; `changes` are fields.

    Args:
        option: Option that is chosen.
    """
    fields: dict[str, Any] = {
        "request": request.id,
        "digest": request.digest,
        "option": option.id,
        "by": ROBIN,
        "id": uuid4().hex,
        **changes,
    }
    return ApprovalAnswer(**fields)


def name_of(check: Callable[..., object]) -> str:
    """Return the name of a check, for a test's id.

    Args:
        check: Check of a conformance suite.
    """
    return getattr(check, "__name__", "check").strip("_")


def expect(promise: str, *, holds: bool) -> None:
    """Raise `NotConforming` unless the promise was kept."""
    if not holds:
        raise NotConforming(promise)


def expect_record(result: RequestRecord | Refusal, what: str) -> RequestRecord:
    """Return the record of an answer or move that should have counted."""
    if isinstance(result, Refusal):
        raise NotConforming(f"{what} counts; it was refused as {result.code}: {result.reason}")
    return result


def expect_refusal(result: RequestRecord | Refusal, code: RefusalCode, what: str) -> Refusal:
    """Return the refusal of an answer or move that should not have counted."""
    if isinstance(result, RequestRecord):
        raise NotConforming(f"{what} does not count; it was accepted")
    expect(f"{what} is refused as {code}, not as {result.code}", holds=result.code == code)
    return result


# -- stores ------------------------------------------------------------------------------------------------------------


async def _submitted(subject: StoreSubject) -> tuple[ApprovalStore, ApprovalRequest]:
    """Return the store, and a request that is pending in it."""
    request = a_request()
    await subject.store.submit(request)
    return subject.store, request


async def _submit(store: ApprovalStore, *requests: ApprovalRequest) -> None:
    for request in requests:
        await store.submit(request)


async def _approve(store: ApprovalStore, *requests: ApprovalRequest) -> None:
    """Submit requests, and allow each of them."""
    for request in requests:
        await store.submit(request)
        await _answer(store, request)


async def _answer(
    store: ApprovalStore, request: ApprovalRequest, option: Option = ALLOW, what: str = "an answer"
) -> RequestRecord:
    """Give an answer that counts."""
    return expect_record(await store.answer(an_answer(request, option)), what)


async def _claim(store: ApprovalStore, request: ApprovalRequest, what: str = "a claim") -> RequestRecord:
    """Claim an approval that can be claimed."""
    return expect_record(await store.move(request.id, "claim", digest=request.digest), what)


async def _refuse_claim(store: ApprovalStore, request: ApprovalRequest, code: RefusalCode, what: str) -> Refusal:
    """Claim a request that cannot be claimed."""
    return expect_refusal(await store.move(request.id, "claim", digest=request.digest), code, what)


async def a_request_comes_back_whole(subject: StoreSubject) -> None:
    """A request that is read is the request that was submitted, to the last character."""
    odd = 'é\n\x00\\"\u202e\U0001f600\ud800'
    request = a_request(
        tenant=odd,
        session=odd,
        agent=odd,
        tool=odd,
        cwd=odd,
        arguments={odd: [odd, 2**80, -0.5, None, True, {"deep": [1, 2]}]},
        questions=(Question(hook=odd, prompt=odd, version=odd, scope="action", key=odd),),
        risk="high",
        wait=2.5,
        assessments=(Assessment(by=odd, risk="high", reason=odd), Assessment(by="", risk="low")),
        impacts=(Impact("reads_secret", odd, odd), Impact("reads")),
    )
    first = await subject.store.submit(request)
    read = await subject.store.get(request.id)
    for record in (first, read):
        expect("a request that was submitted is there", holds=record is not None)
        if record is not None:
            expect(
                "a request comes back as it was",
                holds=replace(record.request, arguments={}) == replace(request, arguments={}),
            )
            same = freeze(dict(record.request.arguments)) == freeze(dict(request.arguments))
            expect("arguments come back as they were", holds=same)
            expect("a new request is pending", holds=record.status == "pending" and record.digest == request.digest)
    seen = await subject.store.pending(RequestFilter(odd, frozenset({odd})))
    expect("a request is found by tenant and session", holds=[r.id for r in seen] == [request.id])
    expect("a request that was never submitted is not there", holds=await subject.store.get("nothing") is None)


async def submitting_twice_is_one_request(subject: StoreSubject) -> None:
    """A request submitted twice with one id and digest is one request; an id with any other content is refused."""
    request = a_request()
    await subject.store.submit(request)
    again = await subject.store.submit(request)
    expect("the same request again is pending still", holds=again.status == "pending" and again.version == 1)
    await _answer(subject.store, request)
    after = await subject.store.submit(request)
    expect("a request submitted again has the answer it got meanwhile", holds=after.status == "approved")
    for other in (
        a_request(2, id=request.id),
        a_request(id=request.id, session="session-2"),
        a_request(id=request.id, tenant="other"),
    ):
        await _raises(RequestMismatch, subject.store.submit(other), "an id is used for one action only")
    events = [event.kind for event in await subject.store.events(request.id)]
    expect("a request is submitted once", holds=events == ["submitted", "approve"])


async def arguments_have_their_digest(subject: StoreSubject) -> None:
    """A request whose arguments do not have its digest is refused, and nothing of it is kept."""
    shown = a_request(arguments={"command": "ls"})
    forged = replace(shown, arguments={"command": "rm -rf /"})
    for request in (
        forged,
        replace(shown, tool="Other"),
        replace(shown, cwd="/"),
        replace(shown, arguments={"n": {1}}),
    ):
        await _raises(ApprovalMismatch, subject.store.submit(request), "a request shows the act that its digest names")
    expect("nothing of it is kept", holds=await subject.store.get(shown.id) is None)
    await subject.store.submit(shown)
    await _raises(ApprovalMismatch, subject.store.submit(forged), "a known request is compared as well")


async def an_approval_is_claimed_and_settled_once(subject: StoreSubject) -> None:
    """An approval is claimed for its digest only, and settled; each step happens once, and is on the list of events."""
    store, request = await _submitted(subject)
    await _refuse_claim(store, request, "not_approved", "a claim before an answer")
    record = expect_record(await store.answer(an_answer(request, message="go on")), "an answer in time")
    decision = record.decision
    expect("the record says who decided", holds=decision is not None and decision.by == "Robin")
    expect("the record keeps the message", holds=decision is not None and decision.message == "go on")
    expect("the record says when", holds=record.decided is not None and record.took == 0)
    expect("what was decided is what is read", holds=await store.get(request.id) == record)
    expect_refusal(await store.move(request.id, "claim", digest="other"), "wrong_digest", "a claim for another action")
    claims = await asyncio.gather(*(store.move(request.id, "claim", digest=request.digest) for _ in range(MANY)))
    expect("exactly one claim succeeds", holds=sum(isinstance(claim, RequestRecord) for claim in claims) == 1)
    expect_refusal(await store.move(request.id, "withdraw"), "already_resolved", "taking back what runs")
    done = expect_record(await store.move(request.id, "finish"), "settling what was claimed")
    expect("what is done has ended", holds=done.status == "done" and done.ended is not None)
    expect_refusal(await store.move(request.id, "fail"), "already_resolved", "settling a second time")
    kinds = [event.kind for event in await store.events(request.id)]
    expect("every step is an event, in order", holds=kinds == ["submitted", "approve", "claim", "finish"])
    expect("what is over is history", holds=[r.id for r in await store.history()] == [request.id])
    expect("what is over is not pending", holds=await store.pending() == [])


async def a_settlement_keeps_the_result(subject: StoreSubject) -> None:
    """The result that an act is settled with comes back with the request, whole or as digest and size."""
    store = subject.store
    whole = KeptResult(digest="d" * 64, size=11, json='{"a":"\\u00e9"}')
    for number, result in enumerate((whole, KeptResult(digest="e" * 64, size=100_000), None)):
        request = a_request(number)
        await _approve(store, request)
        await _claim(store, request)
        expect_record(await store.move(request.id, "finish", result=result), "settling")
        expect_refusal(await store.move(request.id, "finish", result=whole), "already_resolved", "settling twice")
        again = await store.submit(request)
        expect("a request submitted again has its result", holds=(again.status, again.result) == ("done", result))
        other = a_request(number + 10, id=request.id)
        await _raises(RequestMismatch, store.submit(other), "another act gets no result")
        expect("and changes nothing", holds=await store.get(request.id) == again)


async def the_request_of_a_call_is_found(subject: StoreSubject) -> None:
    """A store finds the request that stands for a call: one that has begun, was denied, is open, or the newest."""
    store, odd = subject.store, "c\0"

    async def find_id(call: str = "c1") -> str | None:
        record = await store.find_call("acme", "session-1", call)
        return None if record is None else record.id

    async def submitted(number: int, call: str = "c1") -> ApprovalRequest:
        request = a_request(number, call=call)
        await store.submit(request)
        await subject.advance(0.01)
        return request

    expect("nothing is known of a new call", holds=await find_id() is None)
    expired, cancelled, replaced = [await submitted(number) for number in range(3)]
    expect_record(await store.move(expired.id, "give_up"), "an expiry")
    expect_record(await store.move(cancelled.id, "withdraw"), "a withdrawal")
    expect("an open request stands", holds=await find_id() == replaced.id)
    expect_record(await store.move(replaced.id, "supersede"), "another question in its place")
    expect("then the newest end", holds=await find_id() == cancelled.id)
    denied, begun, pending = [await submitted(number) for number in range(3, 6)]
    expect("an open request stands before an end", holds=await find_id() == pending.id)
    await _answer(store, denied, DENY)
    expect("a denial stands before an open request", holds=await find_id() == denied.id)
    for request in (begun, await submitted(6, odd)):
        await _answer(store, request)
        expect("an answer begins nothing", holds=await find_id(request.call) in (denied.id, request.id))
        await _claim(store, request)
        expect("an act that has begun stands before all", holds=await find_id(request.call) == request.id)
    result = KeptResult(digest="d", size=2, json="{}")
    expect_record(await store.move(begun.id, "finish", result=result), "an end")
    there = await store.find_call("acme", "session-1", "c1")
    expect("the end is found with its result", holds=there is not None and there.result == result)
    others = [("acme", "session-1", "c2"), ("acme", "session-2", "c1"), ("other", "session-1", "c1")]
    expect("no other call is found", holds=[await store.find_call(*one) for one in others] == [None] * 3)
    await submitted(7, "")
    expect("a question without a call stands for none", holds=await find_id("") is None)
    await subject.advance(10 * LIFETIME)
    await store.purge(0, unrecorded=True)
    expect("what was removed stands for no call", holds=await find_id() == pending.id)


async def a_list_goes_on_where_it_ended(subject: StoreSubject) -> None:
    """Page after page, both lists have every request once and in one order, also the requests of one instant."""
    store = subject.store
    requests = [a_request(number) for number in range(5)]
    for number, request in enumerate(requests):
        await store.submit(request)
        if number % 2:
            await subject.advance(1)  # some at one instant, some later
    await _goes_on(store.pending, requests)
    for request in requests:
        await _answer(store, request, DENY)
    await _goes_on(store.history, requests)


async def _goes_on(look: Callable[..., Awaitable[list[RequestRecord]]], requests: list[ApprovalRequest]) -> None:
    whole = [record.id for record in await look(RequestFilter(limit=10))]
    expect("the whole list has all", holds=sorted(whole) == sorted(request.id for request in requests))
    found: list[str] = []
    cursor = None
    while page := await look(RequestFilter(limit=2, after=cursor)):
        found += (record.id for record in page)
        cursor = RequestCursor.of(page[-1])
    expect("its pages are the list", holds=found == whole)


async def a_denial_is_final(subject: StoreSubject) -> None:
    """A denial ends the request: nothing can be claimed, and a later approver reads who decided."""
    store, request = await _submitted(subject)
    record = expect_record(await store.answer(an_answer(request, DENY, message="too dangerous")), "a denial")
    expect("a denied request has ended", holds=record.status == "denied" and record.ended is not None)
    await _refuse_claim(store, request, "already_resolved", "a claim of a denial")
    late = expect_refusal(await store.answer(an_answer(request, by=KIM)), "already_resolved", "a second answer")
    expect("the second is told who decided", holds=late.record == record and "Robin" in late.reason)
    expect("the decision stays as it was", holds=await store.get(request.id) == record)
    kinds = [event.kind for event in await store.events(request.id)]
    expect("a late answer is an event", holds=kinds == ["submitted", "deny", "late_decision"])


async def one_of_many_answers_wins(subject: StoreSubject) -> None:
    """Of many answers at once, one wins, and all see that winner."""
    store, request = await _submitted(subject)
    answers = [
        an_answer(request, DENY if number % 2 else ALLOW, by=Decider(name=f"person-{number}", channel="check"))
        for number in range(MANY)
    ]
    results = await asyncio.gather(*(store.answer(answer) for answer in answers))
    winners = [result for result in results if isinstance(result, RequestRecord)]
    expect("exactly one answer wins", holds=len(winners) == 1)
    losers = [result for result in results if isinstance(result, Refusal)]
    expect("all others see the winner", holds=all(loser.record == winners[0] for loser in losers))
    expect("the winner is what is stored", holds=await store.get(request.id) == winners[0])


async def the_same_decision_again_is_the_same(subject: StoreSubject) -> None:
    """A decision whose confirmation was lost can be sent again, also after the claim."""
    store, request = await _submitted(subject)
    answer = an_answer(request)
    first = expect_record(await store.answer(answer), "an answer")
    again = expect_record(await store.answer(answer), "the same decision again")
    expect("nothing has changed", holds=first == again)
    await _claim(store, request)
    expect_record(await store.answer(answer), "the same decision after the claim")
    other = an_answer(request, DENY, id=answer.id)
    expect_refusal(await store.answer(other), "already_resolved", "another option under the same decision id")
    stranger = an_answer(request, id=answer.id, by=KIM)
    expect_refusal(await store.answer(stranger), "already_resolved", "another approver's decision under the same id")
    decided = [event for event in await store.events(request.id) if event.kind == "approve"]
    expect("it was decided once", holds=len(decided) == 1)


async def only_valid_answers_count(subject: StoreSubject) -> None:
    """An answer with a wrong digest, option, right, tenant or session leaves the request pending."""
    store, request = await _submitted(subject)
    viewer = replace(ROBIN, may_decide=False)
    cases: tuple[tuple[RefusalCode, str, ApprovalAnswer], ...] = (
        ("wrong_digest", "an answer for another action", an_answer(request, digest="other")),
        ("not_offered", "a label instead of an option", replace(an_answer(request), option="Allow")),
        ("not_allowed", "an answer without the right to decide", an_answer(request, by=viewer)),
    )
    for code, what, answer in cases:
        expect_refusal(await store.answer(answer), code, what)
    unknown = expect_refusal(await store.answer(an_answer(a_request(2))), "unknown_request", "an answer to nothing")
    for by in (replace(ROBIN, tenant="other"), replace(ROBIN, sessions=frozenset({"session-2"}))):
        foreign = expect_refusal(
            await store.answer(an_answer(request, by=by)), "unknown_request", "a stranger's answer"
        )
        expect("a stranger's refusal is that of an unknown request", holds=foreign == unknown)
    record = await store.get(request.id)
    expect("the request is pending still", holds=record is not None and record.status == "pending")
    noted = [event.kind for event in await store.events(request.id)]
    expect("what was refused is an event", holds=noted == ["submitted", *["refused"] * 3])
    for _ in range(MANY * 2):
        await store.answer(an_answer(request, digest="other"))
    expect("but not without bounds", holds=len(await store.events(request.id)) <= MANY + 1)
    await _answer(store, request, what="a valid answer after all that")


async def an_answer_is_checked_where_it_counts(subject: StoreSubject) -> None:
    """A check runs inside the transaction that decides; if it raises, nothing was decided, and nothing is kept."""
    store, request = await _submitted(subject)
    seen: list[str] = []

    async def passes() -> None:
        seen.append("checked")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("revoked")

    for option in (ALLOW, DENY, ALWAYS):
        await _raises(LookupError, store.answer(an_answer(request, option), check=fails), "the error is raised")
    left = await store.get(request.id)
    expect("nothing is decided", holds=left is not None and (left.status, left.version) == ("pending", 1))
    expect("nothing is kept", holds=[event.kind for event in await store.events(request.id)] == ["submitted"])
    expect_record(await store.answer(an_answer(request), check=passes), "an answer whose check passes")
    expect("the check runs once", holds=seen == ["checked"])


async def time_is_the_stores(subject: StoreSubject) -> None:
    """An answer counts just before the end; at the end and after it does not, swept or not."""
    store = subject.store
    early, exact, late = (a_request(number) for number in (1, 2, 3))
    await _submit(store, early, exact, late)
    await subject.advance(LIFETIME - 0.001)
    await _answer(store, early, what="an answer a millisecond before the end")
    expect_refusal(await store.move(exact.id, "expire"), "too_early", "expiring before the end")
    await subject.advance(0.001)
    expect_refusal(await store.answer(an_answer(exact)), "expired", "an answer at the end")
    await subject.advance(0.001)
    expect_refusal(await store.answer(an_answer(late)), "expired", "an answer after the end")
    gone = {record.id for record in await store.expire_due()}
    expect("what is over is expired, and nothing else", holds=gone == {exact.id, late.id})
    record = await store.get(late.id)
    expect("it is expired, not denied", holds=record is not None and record.status == "expired" and not record.decision)
    expect_refusal(await store.answer(an_answer(late)), "expired", "an answer to what expired")
    await _claim(store, early, "claiming what was approved in time")


async def a_clock_set_back_prolongs_nothing(subject: StoreSubject) -> None:
    """After the clock was set back across a start of the machine, no question and no approval lives longer."""
    store = subject.store
    pending, approved = a_request(1), a_request(2)
    await _submit(store, pending, approved)
    await _answer(store, approved)
    await subject.advance(LIFETIME / 2)
    await store.look(pending.id)
    await subject.reboot(LIFETIME / 4)
    await store.look(pending.id)  # as every waiter does
    await subject.advance(LIFETIME / 2)
    expect_refusal(await store.answer(an_answer(pending)), "expired", "an answer after the time")
    expect_refusal(await store.move(approved.id, "claim"), "expired", "a claim after the time")
    later = a_request(3)
    record = await store.submit(later)
    _, now = await store.look(later.id)
    expect("a new question has its time", holds=seconds_left(record.created, LIFETIME, now) == LIFETIME)
    await subject.advance(LIFETIME - 1)
    await _answer(store, later, what="an answer in time")
    ended = [record.id for record in await store.expire_due()]
    expect("what was open before is over", holds=sorted(ended) == sorted([pending.id, approved.id]))


async def an_approval_does_not_last(subject: StoreSubject) -> None:
    """An approval that was not claimed is void a minute after the request's time."""
    store, request = await _submitted(subject)
    await subject.advance(LIFETIME - 1)
    await _answer(store, request)
    await subject.advance(60)
    await _refuse_claim(store, request, "expired", "a claim that is too late")
    expect("it expires", holds=[record.status for record in await store.expire_due()] == ["expired"])


async def what_is_taken_back_is_void(subject: StoreSubject) -> None:
    """A request is withdrawn or superseded before its answer or after it, until the claim; given up only before it."""
    store = subject.store
    ends: tuple[tuple[Move, str, RefusalCode, tuple[bool, ...]], ...] = (
        ("withdraw", "cancelled", "withdrawn", (False, True)),
        ("supersede", "superseded", "withdrawn", (False, True)),
        ("give_up", "expired", "expired", (False,)),
    )
    for move, status, code, cases in ends:
        for answered in cases:
            request = a_request()
            await store.submit(request)
            if answered:
                await _answer(store, request)
            record = expect_record(await store.move(request.id, move, reason="no more"), f"to {move}")
            expect(f"{move} ends it as {status}", holds=record.status == status and record.reason == "no more")
            expect_refusal(await store.move(request.id, "claim", digest=request.digest), code, "claiming what is void")
            expect_refusal(await store.answer(an_answer(request)), code, "answering what is void")
            expect_refusal(await store.move(request.id, move), code, f"to {move} twice")
    expect_refusal(await store.move("nothing", "withdraw"), "unknown_request", "taking back an unknown request")


async def giving_up_loses_no_answer(subject: StoreSubject) -> None:
    """If an answer and the end of the requester's wait coincide, one of them holds, and the answer is not lost."""
    for number in range(MANY):
        await _given_up_while_answered(subject.store, a_request(number, session=f"session-{number}"), number)


async def _given_up_while_answered(store: ApprovalStore, request: ApprovalRequest, number: int) -> None:
    await store.submit(request)
    steps: list[Awaitable[RequestRecord | Refusal]] = [
        store.answer(an_answer(request, DENY if number % 3 else ALLOW)),
        store.move(request.id, "give_up", reason="no more"),
    ]
    turn = 1 if number % 2 else -1  # each of them is the first one half of the time
    answer, end = (await asyncio.gather(*steps[::turn]))[::turn]
    record = await store.get(request.id)
    if isinstance(answer, RequestRecord):
        refusal = expect_refusal(end, "already_resolved", "giving up what is answered")
        expect("the answer holds, and is told", holds=record == answer == refusal.record)
        return
    expect_refusal(answer, "expired", "an answer to what was given up")
    given_up = expect_record(end, "giving up before the answer")
    expect("the end holds", holds=record == given_up)
    await store.mark_recorded(request.id, version=given_up.version)
    left = await store.list_unrecorded(session=request.session)
    expect("the late answer is to be recorded when the end is", holds=[e.kind for e in left] == ["late_decision"])
    await store.mark_recorded(request.id, number=left[0].number)
    expect("and then it is not", holds=await store.list_unrecorded(session=request.session) == [])


async def edited_arguments_are_what_is_claimed(subject: StoreSubject) -> None:
    """With arguments of the approver's own, their action can be claimed and the one that was shown cannot."""
    store, request = await _submitted(subject)
    edited = {"file_path": "src/1.py", "content": "print()"}
    bad = an_answer(request, arguments={"n": float("nan")})
    expect_refusal(await store.answer(bad), "bad_arguments", "an answer with arguments that cannot be frozen")
    record = expect_record(await store.answer(an_answer(request, arguments=edited)), "an answer with own arguments")
    expect("the record keeps them", holds=record.decision is not None and record.decision.arguments == edited)
    expect("they are read as they were written", holds=await store.get(request.id) == record)
    await _refuse_claim(store, request, "wrong_digest", "a claim of the old action")
    digest = act_of(request, edited).digest
    expect_record(await store.move(request.id, "claim", digest=digest), "a claim of the edited action")


def verdict_of(request: ApprovalRequest, grants: Iterable[Grant]) -> str | None:
    """Return what these grants answer to a request: `allow`, `deny` or nothing."""
    found = match_grants(request, grants)
    return None if found is None else found[0]


async def grants_come_with_the_claim(subject: StoreSubject) -> None:
    """An "always" grants from the claim on, for exactly what it was given for, until it is revoked."""
    store = subject.store
    request = a_request(questions=(Question(hook="guard", prompt="Write?"), Question(hook="lint", prompt="Sure?")))
    await store.submit(request)
    expect("at first there is no grant", holds=await store.grants_for(request) == [])
    await _allow_always(store, request)
    found = await store.grants_for(request)
    expect("there is a grant for each hook that asked", holds={grant.key.hook for grant in found} == {"guard", "lint"})
    expect("together they allow", holds=verdict_of(request, found) == "allow")
    expect("a grant says who gave it", holds={(g.by, g.request) for g in found} == {("Robin", request.id)})
    for other in (
        replace(request, agent="other"),
        replace(request, session="session-2"),
        replace(request, tenant="other"),
        replace(request, tool="Bash"),
        replace(request, cwd="/elsewhere"),
        replace(request, questions=(Question(hook="guard", prompt="Write?", version="2"),)),
        replace(request, questions=(Question(hook="guard", prompt="Delete?"),)),
        replace(request, questions=(*request.questions, Question(hook="third", prompt="Really?"))),
        replace(request, questions=(Question(hook="guard", prompt="Write?", scope="action"),)),
        replace(request, questions=(Question(hook="guard", prompt="Write?", key="Write?"),)),
    ):
        verdict = verdict_of(other, await store.grants_for(other))
        expect("a grant answers nothing else", holds=verdict is None)
    listed = await store.grants(tenant="acme")
    expect("grants are listed", holds={grant.id for grant in listed} == {grant.id for grant in found})
    expect("of another tenant there are none", holds=await store.grants(tenant="other") == [])
    expect("of another session there are none", holds=await store.grants(sessions=["session-2"]) == [])
    expect("another tenant cannot revoke it", holds=not await store.revoke(found[0].id, tenant="other"))
    expect("a grant is revoked once", holds=[await store.revoke(found[0].id) for _ in (1, 2)] == [True, False])
    expect("a revoked grant answers nothing", holds=verdict_of(request, await store.grants_for(request)) is None)


async def _allow_always(
    store: ApprovalStore, request: ApprovalRequest, *, option: Option = ALWAYS, **limits: Any
) -> None:
    expect_record(await store.answer(an_answer(request, option, **limits)), "an always")
    expect("before the claim there is no grant", holds=await store.grants_for(request) == [])
    await _claim(store, request)


async def a_refused_call_leaves_no_grant(subject: StoreSubject) -> None:
    """An "always" whose approval is never claimed makes no grant; a "never" holds from the answer on."""
    store = subject.store
    ends: tuple[Move, ...] = ("withdraw", "supersede")
    for number, move in enumerate(ends):
        request = a_request(number)
        await store.submit(request)
        await _answer(store, request, ALWAYS)
        expect_record(await store.move(request.id, move), f"to {move}")
        expect("what was taken back grants nothing", holds=await store.grants_for(request) == [])
    late, refused = a_request(3), a_request(4, tool="Bash")
    await store.submit(refused)
    await _answer(store, refused, NEVER)
    expect("a never holds at once", holds=verdict_of(refused, await store.grants_for(refused)) == "deny")
    await store.submit(late)
    await _answer(store, late, ALWAYS)
    await subject.advance(LIFETIME * 2)
    await _refuse_claim(store, late, "expired", "a claim that is too late")
    expect("what came too late grants nothing", holds=await store.grants() == await store.grants_for(refused))


async def an_always_has_a_ceiling(subject: StoreSubject) -> None:
    """A grant allows nothing of a higher risk than its request; a request of high risk cannot be allowed for good."""
    store = subject.store
    low, high = a_request(1, risk="low"), a_request(2, risk="high")
    await _submit(store, low, high)
    expect_refusal(await store.answer(an_answer(high, ALWAYS)), "above_ceiling", "an always to a high risk")
    await _answer(store, high, what="allowing a high risk once")
    await _allow_always(store, low)
    found = await store.grants_for(low)
    expect("a grant has the risk of its request", holds=[grant.ceiling for grant in found] == ["low"])
    verdicts = [verdict_of(replace(low, risk=risk), found) for risk in RISKS]
    expect("it allows no higher risk", holds=verdicts == ["allow", None, None])
    never = a_request(3, risk="low", tool="Bash")
    await store.submit(never)
    await _answer(store, never, NEVER)
    denied = verdict_of(replace(never, risk="high"), await store.grants_for(never))
    expect("a never holds at every risk", holds=denied == "deny")


async def grants_end_with_their_session(subject: StoreSubject) -> None:
    """A grant ends with its session, unless it is kept for a time; then it holds in every session of that agent.

    A kept grant for a single action holds for that action in every session, and for no other.
    """
    store = subject.store
    request, kept, denied = a_request(1), a_request(2, tool="Read", keep=100.0), a_request(3, tool="Bash")
    questions = (Question(hook="guard", prompt="Move it?", scope="action"),)
    exact = a_request(4, tool="Move", questions=questions, keep=100.0)
    await _submit(store, request, kept, denied, exact)
    for one in (request, kept, exact):
        await _allow_always(store, one)
    await _answer(store, denied, NEVER)
    expect("a granted denial denies", holds=verdict_of(denied, await store.grants_for(denied)) == "deny")
    await store.end_session("acme", "session-1")
    expect("a grant ends with its session", holds=await store.grants_for(request) == [])
    later = replace(kept, session="session-2")
    expect("a kept grant holds", holds=verdict_of(later, await store.grants_for(later)) == "allow")
    again = a_request(4, tool="Move", questions=questions, session="session-2")
    expect("a kept grant for an action holds", holds=verdict_of(again, await store.grants_for(again)) == "allow")
    other = a_request(5, tool="Move", questions=questions, session="session-2")
    expect("and for no other action", holds=await store.grants_for(other) == [])
    await subject.advance(100)
    expect("and not for longer than that", holds=await store.grants_for(later) == await store.grants_for(again) == [])


async def grants_end_by_the_age_of_the_store(subject: StoreSubject) -> None:
    """A clock that is set back, across a start of the machine, prolongs no grant that is kept."""
    store, kept = subject.store, a_request(keep=100.0)
    await store.submit(kept)
    await _allow_always(store, kept)
    await subject.advance(50)
    expect("a kept grant holds for its time", holds=verdict_of(kept, await store.grants_for(kept)) == "allow")
    await subject.reboot(3_600)
    expect("and not for longer", holds=await store.grants_for(kept) == [] == await store.grants())


async def a_grant_has_a_budget(subject: StoreSubject) -> None:
    """A grant covers so many calls and lasts so long as its approver said; each call that it covers is counted, once.

    Of several callers at once, exactly so many are covered.
    """
    store = subject.store
    counted, timed = a_request(1), a_request(2, tool="Read")
    for request, limits in ((counted, {"times": 3}), (timed, {"seconds": 50.0})):
        await store.submit(request)
        await _allow_always(store, request, **limits)
    [grant] = await store.grants_for(counted)
    expect("a new grant is unused", holds=(grant.times, grant.used) == (3, 0))
    used = await asyncio.gather(*(store.use_grants(counted, [grant.id]) for _ in range(6)))
    expect("it covers so many calls", holds=used.count(None) == grant.times)
    expect("the others are refused", holds={one.code for one in used if one is not None} == {"not_approved"})
    expect("it is used up", holds=await store.grants_for(counted) == [])
    uses = await store.grant_uses(grant.id)
    expect("its calls are listed", holds=[(one.tool, one.digest) for one in uses] == [("Write", counted.digest)] * 3)
    [grant] = await store.grants_for(timed)
    both = [grant.id, "of no grant"]
    expect_refused = await store.use_grants(timed, both)
    expect("a call that a missing grant should cover is refused", holds=expect_refused is not None)
    expect("and counts nothing", holds=await store.grant_uses(grant.id) == [])
    await store.stop("wait", "Robin", tenant=timed.tenant)
    stopped = await store.use_grants(timed, [grant.id])
    expect("a stop refuses the call", holds=stopped is not None and stopped.code == "stopped")
    await store.resume("Robin", tenant=timed.tenant)
    expect("after it the grant holds", holds=await store.use_grants(timed, [grant.id]) is None)
    [grant] = await store.grants(tenant=timed.tenant)
    expect("the grant counts its calls", holds=grant.used == 1)
    await subject.advance(50)
    expect("it ends in time", holds=await store.use_grants(timed, [grant.id]) is not None)
    expect("then it answers nothing", holds=await store.grants_for(timed) == [])


async def an_always_for_the_project(subject: StoreSubject) -> None:
    """Where grants are kept, an "always" holds for the session or the project, in every folder of the project."""
    store = subject.store
    options = (DENY, ALWAYS, replace(ALWAYS, id="here", session_only=True))
    for number, option in enumerate((ALWAYS, options[-1])):
        request = a_request(number, tool=option.id, cwd="/w/src", project="/w", options=options, keep=100.0)
        await store.submit(request)
        await _allow_always(store, request, option=option)
        expect("it holds in its session", holds=verdict_of(request, await store.grants_for(request)) == "allow")
        later = replace(request, session="session-2", cwd="/w/docs")
        found = verdict_of(later, await store.grants_for(later))
        expect("only the one for the project holds elsewhere", holds=(found == "allow") is (option is ALWAYS))
        other = replace(later, project="/elsewhere")
        expect("and none in another project", holds=await store.grants_for(other) == [])


async def a_grant_names_impacts(subject: StoreSubject) -> None:
    """A grant keeps the impacts that its card named, and covers no call with another one."""
    store = subject.store
    named = (Impact("git_publishes", "origin \ud800main"), Impact("reads", "a"))
    request = a_request(impacts=named)
    await store.submit(request)
    await _allow_always(store, request)
    found = await store.grants_for(request)
    expect("a grant has the impacts of its card", holds=[grant.impacts for grant in found] == [named])
    calls = (named[:1], (Impact("reads", "b"),), (*named, Impact("deletes_one", "a")), (Impact("git_publishes", "x"),))
    verdicts = [verdict_of(replace(request, impacts=impacts), found) for impacts in calls]
    expect("it covers no other impact", holds=verdicts == ["allow", "allow", None, None])


async def ending_a_session_ends_its_questions(subject: StoreSubject) -> None:
    """Ending a session withdraws its pending and approved requests, not those that run, and not another session's."""
    store = subject.store
    pending, approved, claimed = (a_request(number) for number in range(1, 4))
    other = a_request(4, session="session-2")
    await _submit(store, pending, approved, claimed, other)
    for request in (approved, claimed):
        await _answer(store, request)
    await _claim(store, claimed)
    ended = await store.end_session("acme", "session-1", "closed")
    expect("what is open is withdrawn", holds={r.id for r in ended} == {pending.id, approved.id})
    expect("with the reason", holds={(r.status, r.reason) for r in ended} == {("cancelled", "closed")})
    expect("others go on", holds=[r.id for r in await store.pending()] == [other.id])
    expect("there is nothing left to end", holds=await store.end_session("acme", "session-1") == [])


async def several_workers_serve_one_session(subject: StoreSubject) -> None:
    """A worker that begins finds all that is open; what was claimed becomes unknown; a worker before it goes on."""
    store = subject.store
    pending, approved, claimed = (a_request(number) for number in range(1, 4))
    await _submit(store, pending, approved, claimed)
    for request in (approved, claimed):
        await _answer(store, request)
    await _claim(store, claimed)
    for _ in range(2):
        there = await store.begin_session("acme", "session-1")
        found = [[record.id for record in group] for group in (there.pending, there.approved, there.unknown)]
        expect("a worker finds everything", holds=found == [[pending.id], [approved.id], [claimed.id]])
    expect("of this session only", holds=(await store.begin_session("acme", "session-2")).pending == ())
    expect_refusal(await store.move(claimed.id, "claim"), "already_resolved", "claiming what may have run")
    expect_record(await store.move(claimed.id, "finish", reason="it ran"), "the result of the worker that ran it")
    await _claim(store, approved, "a claim by the first worker")
    later = a_request(4)
    await store.submit(later)
    expect("a worker that ends ends nothing", holds=await store.end_session("acme", "session-1", final=False) == [])
    there_again = await store.get(later.id)
    expect("while another asks", holds=there_again is not None and there_again.status == "pending")
    always = a_request(5)
    await store.submit(always)
    await _allow_always(store, always)
    await store.end_session("acme", "session-1", final=False)
    expect("nor its grants", holds=await store.grants(tenant="acme") != [])
    for request in (pending, later):
        await _answer(store, request, DENY)
    await store.end_session("acme", "session-1", final=False)
    expect("the last worker ends the grants", holds=await store.grants(tenant="acme") == [])


async def quotas_hold(subject: StoreSubject) -> None:
    """A session, and a tenant, may have so many pending requests; other tenants notice nothing."""
    store = subject.store
    made = [a_request(number) for number in range(PER_SESSION)]
    results = await asyncio.gather(
        *(store.submit(request) for request in (*made, a_request(PER_SESSION))), return_exceptions=True
    )
    over = [result for result in results if isinstance(result, TooManyRequests)]
    expect("of a session exactly so many may wait", holds=len(over) == 1 and over[0].scope == "session")
    there = await store.pending(RequestFilter("acme"))
    expect("and they do", holds=len(there) == PER_SESSION)
    await store.submit(there[0].request)  # the same question is not one more
    await _answer(store, there[0].request)
    await store.submit(a_request(100))
    await _raises(TooManyRequests, store.submit(a_request(101)), "the place that became free is taken")
    for number in range(PER_TENANT - PER_SESSION):
        await store.submit(a_request(number, session=f"more-{number}"))
    await _raises(TooManyRequests, store.submit(a_request(102, session="one-more")), "a tenant has its bound")
    await store.submit(a_request(103, tenant="other"))
    await subject.advance(LIFETIME)
    await store.submit(a_request(104))


async def what_is_undecided_or_unrecorded_stays(subject: StoreSubject) -> None:
    """Purging removes the requests that ended long ago and are on record, and nothing else."""
    store = subject.store
    pending, approved, unknown, done, fresh = (
        a_request(number, expires=datetime(2027, 1, 1, tzinfo=UTC)) for number in range(1, 6)
    )
    for request in (pending, approved, unknown, done):
        await store.submit(request)
        if request is not pending:
            await _answer(store, request)
    for request in (unknown, done):
        await _claim(store, request)
    expect_record(await store.move(unknown.id, "lose"), "losing track")
    expect_record(await store.move(done.id, "finish"), "settling")
    await subject.advance(100)
    await store.submit(fresh)
    await _answer(store, fresh, DENY)
    expect("what is not recorded stays", holds=await store.purge(50) == 0)
    for event in await store.list_unrecorded():
        await store.mark_recorded(event.request, number=event.number)
    expect("everything is recorded now", holds=await store.list_unrecorded() == [])
    expect("what ended long ago goes", holds=await store.purge(50) == 1)
    there = [await store.get(request.id) for request in (pending, approved, unknown, done, fresh)]
    expect("and nothing else", holds=[record is not None for record in there] == [True, True, True, False, True])
    expect("its events go with it", holds=not await store.events(done.id) and bool(await store.events(fresh.id)))
    await subject.advance(100)
    another = a_request(6)
    await store.submit(another)
    expect_record(await store.move(another.id, "withdraw"), "a withdrawal")
    expect(
        "a host without an audit may say so", holds={await store.purge(0, unrecorded=True)} == {len((fresh, another))}
    )


async def a_claim_says_it_is_recorded(subject: StoreSubject) -> None:
    """A claim marks the decision as recorded, because it has to be on record before; the claim itself is not yet."""
    store, request = await _submitted(subject)
    await _answer(store, request)
    expect(
        "a decision is to be recorded",
        holds=[e.kind for e in await store.list_unrecorded()] == ["submitted", "approve"],
    )
    await _claim(store, request)
    expect("after the claim it is", holds=[e.kind for e in await store.list_unrecorded()] == ["claim"])


async def a_change_wakes_who_waits(subject: StoreSubject) -> None:
    """A watch of a request, or of all requests, wakes on a change after the watch began."""
    store, request = await _submitted(subject)
    with store.watch(request.id) as one, store.watch() as every:
        waiting = asyncio.gather(one.wait(SOON), every.wait(SOON))
        await _answer(store, request)
        expect("a waiting watch wakes", holds=all(await waiting))
        while await one.wait(0):
            pass  # a store may wake for nothing
        expect("a wait has an end", holds=await one.wait(0) is False)


async def a_stop_holds_back_every_claim(subject: StoreSubject) -> None:
    """While a stop covers a request its claim is refused, and nothing is used up; after the stop it is claimed."""
    store = subject.store
    for tenant, session in (("", ""), ("acme", ""), ("", "session-1"), ("acme", "session-1")):
        request = a_request()
        await _approve(store, request)
        begun = await store.stop("look first", "Kim", tenant=tenant, session=session)
        facts = (begun.tenant, begun.session, begun.why, begun.by, begun.ended)
        expect("a stop has what was given", holds=facts == (tenant, session, "look first", "Kim", None))
        again = await store.stop("again", "Robin", tenant=tenant, session=session)
        expect("a second stop leaves the first as it is", holds=again == begun)
        refused = await _refuse_claim(store, request, "stopped", "a claim during a stop")
        expect("the refusal names author and reason", holds="Kim" in refused.reason and "look first" in refused.reason)
        expect("another stop is not ended", holds=await store.resume("Robin", tenant="other") is None)
        ended = await store.resume("Robin", tenant=tenant, session=session)
        expect("the end has its author", holds=ended is not None and (ended.id, ended.ended_by) == (begun.id, "Robin"))
        expect("a stop ends once", holds=await store.resume("Robin", tenant=tenant, session=session) is None)
        await _claim(store, request, "a claim after the stop")
        expect("a stop that ended lately is listed", holds=ended in await store.stops())


async def a_stop_reaches_only_what_it_names(subject: StoreSubject) -> None:
    """A stop of another tenant or session refuses no claim; purging removes ended stops, and no other."""
    odd, store, request = 'é\n\x00\\"\ud800', subject.store, a_request()
    await _approve(store, request)
    await store.stop(odd, odd, tenant=odd, session=odd)
    await store.stop("why", "Kim", tenant="acme", session="session-2")
    found = await store.stops()
    expect(
        "stops come back as they were",
        holds={(s.tenant, s.why, s.by) for s in found if s.tenant == odd} == {(odd,) * 3},
    )
    await _claim(store, request, "a claim beside other stops")
    await store.resume("Kim", tenant=odd, session=odd)
    await subject.advance(10_000)
    await store.purge(5_000, unrecorded=True)
    left = [(stop.tenant, stop.session) for stop in await store.stops()]
    expect("only the stop in force is left", holds=left == [("acme", "session-2")])


async def no_claim_follows_a_stop(subject: StoreSubject) -> None:
    """Of a stop and many claims at once, no claim succeeds after the stop has begun."""
    store = subject.store
    requests = [a_request(number) for number in range(MANY)]
    await _approve(store, *requests)
    begun: list[bool] = []

    async def claim(request: ApprovalRequest) -> bool:
        late = bool(begun)
        return isinstance(await store.move(request.id, "claim", digest=request.digest), RequestRecord) and late

    async def stop() -> bool:
        await store.stop("look first", "Kim")
        begun.append(True)
        return False

    half = MANY // 2
    await asyncio.gather(*map(claim, requests[:half]), stop())
    late = await asyncio.gather(*map(claim, requests))
    expect("no claim succeeds after the stop", holds=not any(late))


StoreCheck = Callable[[StoreSubject], Awaitable[None]]
STORE_CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_request_comes_back_whole,
    submitting_twice_is_one_request,
    arguments_have_their_digest,
    an_approval_is_claimed_and_settled_once,
    the_request_of_a_call_is_found,
    a_settlement_keeps_the_result,
    a_list_goes_on_where_it_ended,
    a_denial_is_final,
    one_of_many_answers_wins,
    the_same_decision_again_is_the_same,
    only_valid_answers_count,
    an_answer_is_checked_where_it_counts,
    time_is_the_stores,
    a_clock_set_back_prolongs_nothing,
    an_approval_does_not_last,
    what_is_taken_back_is_void,
    giving_up_loses_no_answer,
    edited_arguments_are_what_is_claimed,
    grants_come_with_the_claim,
    a_refused_call_leaves_no_grant,
    an_always_has_a_ceiling,
    grants_end_with_their_session,
    grants_end_by_the_age_of_the_store,
    a_grant_names_impacts,
    a_grant_has_a_budget,
    an_always_for_the_project,
    ending_a_session_ends_its_questions,
    several_workers_serve_one_session,
    quotas_hold,
    what_is_undecided_or_unrecorded_stays,
    a_claim_says_it_is_recorded,
    a_change_wakes_who_waits,
    a_stop_holds_back_every_claim,
    a_stop_reaches_only_what_it_names,
    no_claim_follows_a_stop,
)


# -- backends ----------------------------------------------------------------------------------------------------------


async def an_allowance_is_claimed_once(subject: BackendSubject) -> None:
    """An allowed request can be claimed once, for its digest."""
    request = _now(a_request())
    decision = await _ask_and_answer(subject, request, ALLOW)
    expect("the option that was chosen is returned", holds=decision.option == ALLOW.id)
    expect("a decision says who and where", holds=bool(decision.by and decision.channel))
    expect("it is claimed", holds=await subject.backend.claim(request.id, request.digest) is True)
    expect("once", holds=await subject.backend.claim(request.id, request.digest) is False)
    await subject.backend.settle(request.id, "done")
    await subject.backend.settle(request.id, "done")


async def another_action_is_not_claimed(subject: BackendSubject) -> None:
    """An approval is for the digest that was shown."""
    request = _now(a_request())
    await _ask_and_answer(subject, request, ALLOW)
    expect("another digest is refused", holds=await subject.backend.claim(request.id, "other") is False)
    expect("so is another request", holds=await subject.backend.claim("nothing", request.digest) is False)


async def a_rejection_is_not_claimed(subject: BackendSubject) -> None:
    """A rejected request cannot be claimed."""
    request = _now(a_request())
    decision = await _ask_and_answer(subject, request, DENY)
    expect("the option that was chosen is returned", holds=decision.option == DENY.id)
    expect("a rejection is not claimed", holds=await subject.backend.claim(request.id, request.digest) is False)


async def a_withdrawal_voids(subject: BackendSubject) -> None:
    """A request that was withdrawn after its answer cannot be claimed; withdrawing an unknown one does nothing."""
    request = _now(a_request())
    await _ask_and_answer(subject, request, ALLOW)
    await subject.backend.withdraw(request.id, "changed our mind")
    await subject.backend.withdraw(request.id, "again")
    await subject.backend.withdraw("nothing", "never heard of it")
    expect("it cannot be claimed", holds=await subject.backend.claim(request.id, request.digest) is False)


async def cancelling_withdraws(subject: BackendSubject) -> None:
    """A question that is cancelled while it waits leaves nothing to claim."""
    request = _now(a_request())
    task = asyncio.ensure_future(subject.backend.request(request))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=SOON)
    expect("cancelling ends it", holds=task.done() and task.cancelled())
    expect("nothing can be claimed", holds=await subject.backend.claim(request.id, request.digest) is False)


async def time_ends_without_losing_an_answer(subject: BackendSubject) -> None:
    """A question withdrawn as expired has no answer; an answer that came before is returned and stands, or is void."""
    silent, answered = _now(a_request(1)), _now(a_request(2))
    asking = asyncio.ensure_future(subject.backend.request(silent))
    for _ in range(3):
        await asyncio.sleep(0)
    expect("without an answer none is returned", holds=await subject.backend.withdraw(silent.id, "expired") is None)
    asking.cancel()
    await asyncio.wait({asking}, timeout=SOON)
    expect("it ends", holds=asking.done() and (asking.cancelled() or asking.exception() is not None))
    expect("nothing can be claimed", holds=await subject.backend.claim(silent.id, silent.digest) is False)
    await _ask_and_answer(subject, answered, ALLOW)
    found = await subject.backend.withdraw(answered.id, "expired")
    expect("an answer that is returned is the answer", holds=found is None or found.option == ALLOW.id)
    claimed = await subject.backend.claim(answered.id, answered.digest)
    expect("it stands if it is returned, and only then", holds=claimed is (found is not None))


async def several_at_once_keep_apart(subject: BackendSubject) -> None:
    """Answers belong to the request they were given for."""
    requests = [_now(a_request(number)) for number in range(3)]
    chosen = (ALLOW, DENY, ALLOW)
    decisions = await asyncio.gather(
        *(_ask_and_answer(subject, request, option) for request, option in zip(requests, chosen, strict=True))
    )
    expect("each gets its own answer", holds=[d.option for d in decisions] == [option.id for option in chosen])
    claims = [await subject.backend.claim(request.id, request.digest) for request in requests]
    expect("only the allowed are claimed", holds=claims == [True, False, True])


BackendCheck = Callable[[BackendSubject], Awaitable[None]]
BACKEND_CHECKS: Final[tuple[BackendCheck, ...]] = (
    an_allowance_is_claimed_once,
    another_action_is_not_claimed,
    a_rejection_is_not_claimed,
    a_withdrawal_voids,
    cancelling_withdraws,
    time_ends_without_losing_an_answer,
    several_at_once_keep_apart,
)


def _now(request: ApprovalRequest) -> ApprovalRequest:
    """Return the request as if made now: backends look at the wall clock."""
    now = datetime.now(UTC)
    return replace(request, created=now, expires=now + timedelta(seconds=LIFETIME))


async def _ask_and_answer(subject: BackendSubject, request: ApprovalRequest, option: Option) -> Decision:
    asking = asyncio.ensure_future(subject.backend.request(request))
    answering = asyncio.ensure_future(subject.answer(request, option))
    done, _ = await asyncio.wait({asking, answering}, timeout=SOON)
    expect("an answer ends the question", holds=asking in done)
    await answering
    return await asking


async def _raises(kind: type[Exception], work: Awaitable[object], promise: str) -> None:
    try:
        await work
    except kind:
        return
    raise NotConforming(f"{promise}: {kind.__name__}")
