"""A request's life, walked at random beside a model that is written down another way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from approval_backends.lifecycle import (
    CLAIM_WITHIN,
    FINAL,
    Decider,
    Moment,
    Move,
    Refusal,
    RequestRecord,
    judge,
    move_request,
    new_record,
)
from approval_backends.testing import ALLOW, ALWAYS, DENY, LIFETIME, a_request, an_answer

ENDS = {"give_up": "expired", "withdraw": "cancelled", "supersede": "superseded"}
SETTLES = {"finish": "done", "fail": "failed"}


class Life(RuleBasedStateMachine):
    """One request. The model keeps four facts: the decider, the decision with its time, the run, and the end."""

    @initialize()
    def open(self) -> None:
        """Ask."""
        self.request = a_request(1)
        self.now = Moment(datetime(2026, 1, 1, tzinfo=UTC), 0.0)
        self.record = new_record(self.request, self.now)
        self.before = self.record
        self.allowed: bool | None = None
        self.decided = 0.0
        self.claims = 0
        self.end = ""

    @property
    def age(self) -> float:
        """Real seconds since the request was made."""
        return self.now.age

    @property
    def expected(self) -> str:
        """Expected state of the request, from the facts alone."""
        if self.end:
            return self.end
        if self.claims:
            return "claimed"
        return {None: "pending", True: "approved", False: "denied"}[self.allowed]

    @property
    def over(self) -> bool:
        """True if the request's time is up, from the facts alone."""
        until = max(LIFETIME, self.decided + CLAIM_WITHIN) if self.allowed else LIFETIME
        return self.age >= until

    def take(self, result: RequestRecord | Refusal, *, should: bool) -> bool:
        """Keep the new state, and check that the model agrees about its acceptance."""
        assert isinstance(result, RequestRecord) == should, (self.expected, result)
        if isinstance(result, RequestRecord):
            self.record = result
        return should

    @rule(seconds=st.sampled_from([0.5, 1.0, 20.0, 59.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        """Move both clocks on."""
        self.now = Moment(self.now.wall + timedelta(seconds=seconds), self.now.age + seconds)

    @rule(seconds=st.sampled_from([1.0, 3600.0]))
    def wall_clock_is_put_back(self, seconds: float) -> None:
        """Put the wall clock back, which must not give a request more time."""
        self.now = replace(self.now, wall=self.now.wall - timedelta(seconds=seconds))

    @rule(
        option=st.sampled_from([ALLOW, ALWAYS, DENY]),
        name=st.sampled_from(["Robin", "Kim"]),
        valid=st.sampled_from(["yes", "digest", "option", "right", "tenant"]),
    )
    def answer(self, option: object, name: str, valid: str) -> None:
        """Answer, rightly or not."""
        by = Decider(name=name, channel="x", tenant="other" if valid == "tenant" else None, may_decide=valid != "right")
        answer = an_answer(self.request, option, by=by)  # type: ignore[arg-type]
        if valid == "digest":
            answer = replace(answer, digest="other")
        if valid == "option":
            answer = replace(answer, option="nothing")
        counts = valid == "yes" and self.expected == "pending" and not self.over
        if self.take(judge(self.record, answer, self.now), should=counts):
            self.allowed, self.decided = option is not DENY, self.age
            self.decision = answer

    @precondition(lambda self: self.allowed is not None)
    @rule()
    def same_answer_again(self) -> None:
        """Send the first answer again, which changes nothing."""
        assert judge(self.record, self.decision, self.now) is self.record

    @rule(move=st.sampled_from(sorted(ENDS)))
    def end_it(self, move: Move) -> None:
        """Take the request back, as its requester; `give_up` leaves an approved request alone."""
        open_ = ("pending",) if move == "give_up" else ("pending", "approved")
        if self.take(move_request(self.record, move, self.now), should=self.expected in open_):
            self.end = ENDS[move]

    @rule()
    def sweep(self) -> None:
        """Expire the request if its time is up."""
        open_ = self.expected in ("pending", "approved")
        if self.take(move_request(self.record, "expire", self.now), should=open_ and self.over):
            self.end = "expired"

    @rule(digest=st.sampled_from(["right", "wrong"]))
    def claim(self, digest: str) -> None:
        """Claim the request."""
        may = self.expected == "approved" and not self.over and digest == "right"
        wanted = self.request.digest if digest == "right" else "other"
        if self.take(move_request(self.record, "claim", self.now, digest=wanted), should=may):
            self.claims += 1

    @rule()
    def lose(self) -> None:
        """Lose the process that ran the call."""
        if self.take(move_request(self.record, "lose", self.now), should=self.expected == "claimed"):
            self.end = "unknown"

    @rule(move=st.sampled_from(sorted(SETTLES)))
    def settle(self, move: Move) -> None:
        """Settle the request, after its run or after an unknown outcome became known."""
        if self.take(move_request(self.record, move, self.now), should=self.expected in ("claimed", "unknown")):
            self.end = SETTLES[move]

    @invariant()
    def agrees(self) -> None:
        """Check that the record agrees with the facts, the call ran once at most, if approved, and ends are final."""
        assert self.record.status == self.expected
        assert self.claims <= 1
        assert not self.claims or self.allowed
        assert (self.record.ended is not None) == (self.record.status in FINAL)
        assert self.record.version >= self.before.version
        if self.before.status in FINAL:
            assert self.record is self.before
        self.before = self.record


@pytest.mark.rule("APR-8")
@pytest.mark.fault("F-APR-01", "F-APR-19", "F-ST-11")
class TestLife(Life.TestCase):  # type: ignore[misc,valid-type]
    """Whatever happens in whatever order, the table and the model agree."""
