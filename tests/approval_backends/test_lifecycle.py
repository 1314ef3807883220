"""The table, and the conditions for an answer to count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from amplifier_hooks.approvals import act_of, grant_keys
from amplifier_hooks.ports import Grant, Option, Question
from approval_backends import lifecycle
from approval_backends.lifecycle import (
    CLAIM_WITHIN,
    FINAL,
    MOVES,
    STATUSES,
    Decider,
    Moment,
    Move,
    Refusal,
    RefusalCode,
    RequestRecord,
    Status,
    follow,
    grants_of,
    is_over,
    judge,
    move_request,
    new_record,
    seconds_left,
    sees,
)
from approval_backends.testing import ALLOW, ALWAYS, DENY, LIFETIME, NEVER, ROBIN, a_request, an_answer, verdict_of
from tests.cases import each

START = Moment(datetime(2026, 1, 1, 12, tzinfo=UTC), 100.0)
REQUEST = a_request(1, id="r1")

# The table once more, in a readable form: status, move, and the next status in time and after it.
WAYS: dict[tuple[Status, Move], tuple[Status | None, Status | None]] = {
    ("pending", "approve"): ("approved", None),
    ("pending", "deny"): ("denied", None),
    ("pending", "expire"): (None, "expired"),
    ("pending", "give_up"): ("expired", "expired"),
    ("pending", "withdraw"): ("cancelled", "cancelled"),
    ("pending", "supersede"): ("superseded", "superseded"),
    ("approved", "expire"): (None, "expired"),
    ("approved", "withdraw"): ("cancelled", "cancelled"),
    ("approved", "supersede"): ("superseded", "superseded"),
    ("approved", "claim"): ("claimed", None),
    ("claimed", "finish"): ("done", "done"),
    ("claimed", "fail"): ("failed", "failed"),
    ("claimed", "lose"): ("unknown", "unknown"),
    ("unknown", "finish"): ("done", "done"),
    ("unknown", "fail"): ("failed", "failed"),
}


def at(seconds: float, *, age: float | None = None) -> Moment:
    """Return the moment so long after the start, by wall clock and age unless the age is given apart."""
    return Moment(START.wall + timedelta(seconds=seconds), 100.0 + (seconds if age is None else age))


def pending(**changes: Any) -> RequestRecord:
    """Return a record that waits for an answer."""
    return new_record(replace(REQUEST, **changes), START)


def approved(option: Option = ALLOW, seconds: float = 1.0, **changes: Any) -> RequestRecord:
    """Return an approved record."""
    record = pending(**changes)
    after = judge(record, an_answer(record.request, option, id="d1"), at(seconds))
    assert isinstance(after, RequestRecord)
    return after


def code(result: RequestRecord | Refusal) -> str:
    """Return the code of a refusal."""
    assert isinstance(result, Refusal)
    return result.code


@pytest.mark.rule("APR-8")
@each("move", MOVES)
@each("status", STATUSES)
def test_every_way(status: Status, move: Move) -> None:
    """From every state every move leads to the table's state, or nowhere."""
    in_time, after = WAYS.get((status, move), (None, None))
    assert follow(status, move, over=False) == in_time
    assert follow(status, move, over=True) == after


@pytest.mark.rule("APR-8")
def test_ends() -> None:
    """Six states are ends, each of its own kind, and every state can be reached."""
    assert {"done", "failed", "denied", "expired", "cancelled", "superseded"} == FINAL
    assert {row.target for row in MOVES.values()} | {"pending"} == set(STATUSES)
    assert set(MOVES) == set(get_args(lifecycle.Move))


@pytest.mark.rule("APR-4")
@pytest.mark.fault("F-APR-03")
@pytest.mark.parametrize(
    ("now", "left"),
    [
        (at(0), 60.0),
        (at(59), 1.0),
        (at(60), 0.0),
        (at(61), -1.0),
        (at(10, age=20), 40.0),
        (at(20, age=10), 40.0),
        (at(-3600, age=10), 50.0),
    ],
)
@pytest.mark.fault("F-ST-11")
def test_time_left(now: Moment, left: float) -> None:
    """Of wall clock and age the one that leaves less counts."""
    assert seconds_left(START, 60.0, now) == left


@pytest.mark.rule("APR-4")
def test_over() -> None:
    """A pending request is over at its end; an approved one a minute after the approval, if that is later."""
    assert not is_over(pending(), at(59.999))
    assert is_over(pending(), at(60))
    late = approved(seconds=59)
    assert not is_over(late, at(59 + CLAIM_WITHIN - 0.001))
    assert is_over(late, at(59 + CLAIM_WITHIN))
    early = approved(seconds=1, expires=REQUEST.created + timedelta(seconds=600))
    assert not is_over(early, at(599))
    assert is_over(early, at(600))
    assert CLAIM_WITHIN == 60.0
    assert is_over(replace(approved(seconds=59), status="claimed"), at(60))
    assert not is_over(late, at(-100, age=60))


@pytest.mark.rule("APR-8")
def test_opened() -> None:
    """A new record is pending, for the request's digest and for as long as the request says."""
    record = new_record(REQUEST, START)
    assert record == RequestRecord(request=REQUEST, created=START, lifetime=LIFETIME, digest=REQUEST.digest)
    assert (record.status, record.version, record.id, record.took) == ("pending", 1, "r1", None)
    assert record.expires == START.wall + timedelta(seconds=LIFETIME)


@pytest.mark.rule("APR-6", "APR-7")
@pytest.mark.parametrize(
    ("option", "status", "ended"),
    [
        (ALLOW, "approved", None),
        (ALWAYS, "approved", None),
        (DENY, "denied", at(7).wall),
        (NEVER, "denied", at(7).wall),
    ],
)
def test_answer_counts(option: Option, status: str, ended: datetime | None) -> None:
    """An answer that counts is kept with its approver, channel, time, duration and message."""
    record = judge(pending(), an_answer(REQUEST, option, id="d1", message="because"), at(7))
    assert isinstance(record, RequestRecord)
    assert (record.status, record.ended, record.version, record.digest) == (status, ended, 2, REQUEST.digest)
    said = record.decision
    assert said is not None
    assert (said.option, said.by, said.channel, said.message, said.id) == (option.id, "Robin", "check", "because", "d1")
    assert (said.at, said.arguments, record.decided, record.took) == (at(7).wall, None, at(7), 7.0)


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-07", "F-APR-08", "F-APR-09", "F-APR-10")
def test_answers_that_do_not_count() -> None:
    """Each reason for an answer not to count has a name and a sentence, and the strictest comes first."""
    record = pending()
    viewer = replace(ROBIN, may_decide=False)
    refusals = [
        judge(None, an_answer(REQUEST), at(1)),
        judge(record, an_answer(REQUEST, by=replace(viewer, tenant="other")), at(1)),
        judge(record, an_answer(REQUEST, by=viewer), at(1)),
        judge(record, an_answer(REQUEST, digest="other"), at(60)),
        judge(record, replace(an_answer(REQUEST, digest="other"), option="Allow"), at(1)),
        judge(record, replace(an_answer(REQUEST, arguments={"n": float("nan")}), option="Allow"), at(1)),
        judge(record, an_answer(REQUEST, arguments={"n": float("nan")}), at(1)),
    ]
    assert [(code(one), getattr(one, "reason", "")) for one in refusals] == [
        ("unknown_request", "there is no such request"),
        ("unknown_request", "there is no such request"),
        ("not_allowed", "Robin may look, but not decide"),
        ("expired", "the time to answer is over"),
        ("wrong_digest", "this answer is for another action"),
        ("not_offered", "'Allow' was not offered"),
        ("bad_arguments", "the input is not plain JSON: $.n is nan, which JSON cannot hold"),
    ]
    assert [one.record for one in refusals if isinstance(one, Refusal)] == [None, None, *[record] * 5]


@pytest.mark.rule("APR-6")
@pytest.mark.parametrize("changes", [{"arguments": {"command": "ls"}}, {"tool": "Other"}, {"cwd": "/"}])
@pytest.mark.parametrize("edited", [None, {"command": "ls -l"}])
def test_a_row_that_changed_in_the_store(changes: dict[str, Any], edited: dict[str, Any] | None) -> None:
    """A stored request whose arguments no longer have its digest can be denied, and not be allowed."""
    shown = replace(REQUEST, **changes)
    record = replace(pending(), request=shown)
    refused = judge(record, an_answer(shown, arguments=edited), at(1))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.record) == ("wrong_digest", record)
    denied = judge(record, an_answer(shown, DENY), at(1))
    assert isinstance(denied, RequestRecord)
    assert denied.status == "denied"


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-08")
@pytest.mark.parametrize(
    ("tenant", "sessions", "seen"),
    [
        (None, None, True),
        ("acme", None, True),
        ("other", None, False),
        (None, frozenset({"session-1"}), True),
        ("acme", frozenset({"session-1", "session-2"}), True),
        ("acme", frozenset({"session-2"}), False),
        ("other", frozenset({"session-1"}), False),
        (None, frozenset(), False),
    ],
)
def test_sees(tenant: str | None, sessions: frozenset[str] | None, seen: bool) -> None:
    """A decider sees the requests of their tenant and of their sessions, and nothing else."""
    assert sees(Decider(name="Robin", channel="x", tenant=tenant, sessions=sessions), REQUEST) is seen


@pytest.mark.rule("APR-6")
@pytest.mark.fault("F-APR-01")
def test_same_decision_again() -> None:
    """One id, person and option are one decision, in every state after it; anything else is another."""
    record = approved()
    same = an_answer(REQUEST, id="d1")
    later: tuple[Status, ...] = ("approved", "claimed", "done", "failed", "unknown", "expired", "cancelled")
    for status in later:
        now = replace(record, status=status)
        assert judge(now, same, at(2)) is now
        others = [replace(same, id="d2"), replace(same, option="deny"), replace(same, by=replace(ROBIN, name="Kim"))]
        assert all(isinstance(judge(now, other, at(2)), Refusal) for other in others)
    assert code(judge(record, replace(same, by=replace(ROBIN, may_decide=False)), at(2))) == "not_allowed"


@pytest.mark.rule("APR-6")
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("approved", "already approved by Robin (check)"),
        ("claimed", "already approved by Robin (check), now claimed"),
        ("done", "already approved by Robin (check), now done"),
        ("failed", "already approved by Robin (check), now failed"),
        ("unknown", "already approved by Robin (check), now unknown"),
    ],
)
def test_late_answers_are_told_who(status: Status, reason: str) -> None:
    """A late approver reads who decided, and the state of the request."""
    record = replace(approved(), status=status)
    refusal = judge(record, an_answer(REQUEST, DENY), at(3))
    assert refusal == Refusal(code="already_resolved", reason=reason, record=record)


@pytest.mark.rule("APR-6")
def test_late_answers_to_other_ends() -> None:
    """Denied, expired, cancelled and superseded are different refusals."""
    denied = approved(DENY)
    answer = an_answer(REQUEST, id="d9")
    assert judge(denied, answer, at(3)) == Refusal(
        code="already_resolved", reason="already denied by Robin (check)", record=denied
    )
    ends: tuple[tuple[Status, RefusalCode, str], ...] = (
        ("expired", "expired", "the time was over"),
        ("cancelled", "withdrawn", "cancelled: no more"),
        ("superseded", "withdrawn", "superseded: no more"),
    )
    for status, name, reason in ends:
        record = replace(pending(), status=status, reason="no more")
        assert judge(record, answer, at(3)) == Refusal(code=name, reason=reason, record=record)


@pytest.mark.rule("APR-7")
def test_edited_arguments() -> None:
    """Arguments of the approver's own change what can be claimed; with a rejection they mean nothing."""
    edited = {"file_path": "other.py"}
    record = judge(pending(), an_answer(REQUEST, arguments=edited), at(1))
    assert isinstance(record, RequestRecord)
    expected = act_of(REQUEST, edited).digest
    assert record.digest == expected != REQUEST.digest
    assert record.decision is not None
    assert record.decision.arguments == edited
    denied = judge(pending(), an_answer(REQUEST, DENY, arguments=edited), at(1))
    assert isinstance(denied, RequestRecord)
    assert denied.decision is not None
    assert (denied.digest, denied.decision.arguments) == (REQUEST.digest, None)


@pytest.mark.rule("APR-8")
def test_moves() -> None:
    """A move sets status, reason, version, and the end where it is one; nothing else."""
    record = approved()
    claimed = move_request(record, "claim", at(2), digest=record.digest)
    assert claimed == replace(record, status="claimed", version=3)
    assert isinstance(claimed, RequestRecord)
    unknown = move_request(claimed, "lose", at(3), reason="gone")
    assert unknown == replace(claimed, status="unknown", reason="gone", version=4)
    assert isinstance(unknown, RequestRecord)
    done = move_request(unknown, "finish", at(4))
    assert done == replace(unknown, status="done", ended=at(4).wall, version=5)


@pytest.mark.rule("APR-8")
def test_moves_that_are_refused() -> None:
    """A move outside the table is refused with the state that holds instead."""
    record = approved()
    assert move_request(None, "claim", at(1)) == Refusal(code="unknown_request", reason="there is no such request")
    assert move_request(pending(), "claim", at(1)) == Refusal(
        code="not_approved", reason="no approver has decided yet", record=pending()
    )
    assert move_request(pending(), "expire", at(1)) == Refusal(
        code="too_early", reason="its time is not over", record=pending()
    )
    assert move_request(record, "claim", at(61)) == Refusal(code="expired", reason="its time is over", record=record)
    assert move_request(record, "claim", at(2), digest="other") == Refusal(
        code="wrong_digest", reason="another action was approved", record=record
    )
    assert code(move_request(replace(record, status="claimed"), "claim", at(2))) == "already_resolved"
    assert code(move_request(replace(record, status="claimed"), "withdraw", at(2))) == "already_resolved"
    bare = replace(pending(), status="claimed")
    assert move_request(bare, "claim", at(2)) == Refusal(
        code="already_resolved", reason="already approved, now claimed", record=bare
    )


@pytest.mark.rule("APR-5")
def test_scope_of_a_grant() -> None:
    """A grant is for the prompt, for this very action, or for a key; one never passes for another."""

    def scope(**fields: Any) -> str:
        request = replace(REQUEST, questions=(Question(hook="guard", **fields),))
        return grant_keys(request)[0].scope

    assert scope(prompt="Write?") == "prompt:Write?"
    assert scope(prompt="Write?", scope="action") == f"action:{REQUEST.digest}"
    assert scope(prompt="") == f"action:{REQUEST.digest}"
    assert scope(prompt="Write?", key="writes") == "key:writes"
    assert scope(prompt="Write?", scope="action", key="") == "key:"
    assert grant_keys(replace(REQUEST, digest="d2", questions=(Question(hook="g", prompt=""),)))[0].scope == "action:d2"


def granted(record: RequestRecord, keep: float | None = None) -> tuple[Grant, ...]:
    """Return the grants of a decision once it holds: of an approval, after the claim."""
    assert record.decision is not None
    status = "claimed" if record.status == "approved" else record.status
    return grants_of(replace(record, status=status, decision=replace(record.decision, keep=keep)))


@pytest.mark.rule("APR-5")
@pytest.mark.parametrize(("option", "allows"), [(ALLOW, None), (ALWAYS, True), (DENY, None), (NEVER, False)])
def test_what_is_granted(option: Option, allows: bool | None) -> None:
    """Only an "always" grants, once for each hook that asked, until the session ends or for a time."""
    questions = (Question(hook="a", prompt="A?", version="1"), Question(hook="b", prompt="B?"))
    record = approved(option, questions=questions)
    grants = granted(record)
    assert [grant.allows for grant in grants] == ([] if allows is None else [allows, allows])
    if grants:
        assert [(grant.id, grant.key.hook, grant.key.version) for grant in grants] == [
            ("r1:1", "a", "1"),
            ("r1:2", "b", ""),
        ]
        one = grants[0]
        assert (one.by, one.channel, one.request, one.created) == ("Robin", "check", "r1", at(1).wall)
        assert (one.expires, one.revoked, one.key.session, one.key.tenant) == (None, None, "session-1", "acme")
        assert (one.key.agent, one.key.tool, one.key.cwd, one.key.scope) == ("coder", "Write", "/project", "prompt:A?")
        kept = granted(record, 100)[0]
        assert (kept.key, kept.expires) == (replace(one.key, session=None), at(101).wall)
    assert grants_of(pending()) == ()
    assert grants_of(replace(record, status="claimed", decided=None)) == ()
    assert grants_of(replace(record, status="claimed", decision=None)) == ()
    assert grants_of(replace(record, status="approved")) == ()


@pytest.mark.rule("APR-5")
@pytest.mark.parametrize("question", [Question(hook="guard", prompt=""), Question(hook="guard", prompt="?", key="k")])
def test_edited_arguments_are_granted_once(question: Question) -> None:
    """An "allow always" with other arguments than the ones shown is refused; with the same ones it counts."""
    record = new_record(replace(REQUEST, questions=(question,)), START)
    refused = judge(record, an_answer(record.request, ALWAYS, arguments={}), at(1))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.record) == ("bad_arguments", record)
    assert isinstance(judge(record, an_answer(record.request, ALLOW, arguments={}), at(1)), RequestRecord)
    same = judge(record, an_answer(record.request, ALWAYS, arguments=record.request.arguments), at(1))
    assert isinstance(same, RequestRecord)
    assert verdict_of(record.request, granted(same)) == "allow"


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-14", "F-APR-24")
@pytest.mark.parametrize(
    "change", [{"arguments": {"file_path": "b"}}, {"tool": "Move"}, {"event": "plan:pre"}, {"tenant": "other"}, {}]
)
def test_one_action_in_every_session(change: dict[str, Any]) -> None:
    """A kept grant for one action holds for that action in every session, and for no other."""
    request = replace(REQUEST, questions=(Question(hook="guard", prompt="Write?", scope="action"),))
    record = judge(new_record(request, START), an_answer(request, ALWAYS), at(1))
    assert isinstance(record, RequestRecord)
    for_session, kept = granted(record), granted(record, 100)
    elsewhere = replace(request, session="session-2", **change)
    assert verdict_of(request, for_session) == verdict_of(request, kept) == "allow"
    assert verdict_of(elsewhere, for_session) is None
    assert verdict_of(elsewhere, kept) == (None if change else "allow")


@pytest.mark.rule("APR-5")
def test_standing() -> None:
    """Allows have to cover every hook that asks; one deny is enough; for a kept grant the session does not matter."""
    both = replace(REQUEST, questions=(Question(hook="a", prompt="A?"), Question(hook="b", prompt="B?")))
    of_a, of_b = granted(replace(approved(ALWAYS), request=both))
    never_a = replace(of_a, allows=False)
    kept = replace(of_b, key=replace(of_b.key, session=None))
    stranger = replace(of_b, key=replace(of_b.key, session="session-2"))
    assert verdict_of(both, ()) is None
    assert verdict_of(both, [of_a]) is None
    assert verdict_of(both, [of_a, stranger]) is None
    assert verdict_of(both, [of_a, of_b]) == "allow"
    assert verdict_of(both, [of_a, kept]) == "allow"
    assert verdict_of(both, [of_a, of_b, never_a]) == "deny"
    assert verdict_of(both, [never_a]) == "deny"
    assert verdict_of(both, [replace(kept, allows=False), of_a, of_b]) == "deny"
    assert verdict_of(replace(REQUEST, questions=()), [of_a]) is None
