"""Grants: the risk that an "always" covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from amplifier_hooks.approvals import SessionGrants, check_digest, make_grants, with_project
from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.ports import Decision, Question
from amplifier_hooks.testing import ManualClock
from approval_backends.testing import ALLOW, ALWAYS, DENY, a_request, verdict_of

if TYPE_CHECKING:
    from amplifier_hooks.ports import Risk

QUESTIONS = (Question(hook="rule:r", prompt="Run it?", scope="action"),)
RISKS: tuple[Risk, ...] = ("low", "medium", "high")


@pytest.mark.rule("APR-5")
@pytest.mark.parametrize("ceiling", RISKS)
@pytest.mark.parametrize("risk", RISKS)
def test_ceiling(ceiling: Risk, risk: Risk) -> None:
    """A grant answers no request above its own ceiling, and none of high risk."""
    request = a_request(questions=QUESTIONS)
    decision = Decision(option=ALWAYS.id, by="Robin", channel="test")
    granted = make_grants(request, decision, request.created)
    assert granted
    grants = [replace(grant, ceiling=ceiling) for grant in granted]
    said = verdict_of(a_request(questions=QUESTIONS, risk=risk), grants)
    assert (said == "allow") is (RISKS.index(risk) <= RISKS.index(ceiling) and risk != "high")


@pytest.mark.rule("APR-7")
def test_other_arguments_than_the_digest() -> None:
    """A request whose arguments do not have its digest is refused."""
    request = a_request(arguments={"command": "ls"})
    check_digest(request)
    with pytest.raises(ApprovalMismatch):
        check_digest(replace(request, arguments={"command": "rm -rf /"}))


@pytest.mark.rule("APR-5")
def test_no_grant_at_high_risk() -> None:
    """An "always" for a request of high risk makes no grant, and one of medium risk does."""

    def grants(risk: Risk) -> int:
        request = a_request(questions=QUESTIONS, risk=risk)
        decision = Decision(option=ALWAYS.id, by="Robin", channel="test")
        return len(make_grants(request, decision, request.created))

    assert [grants(risk) for risk in RISKS] == [1, 1, 0]


@pytest.mark.rule("APR-5")
async def test_a_grant_for_a_number_of_calls() -> None:
    """A grant for two calls in memory covers two calls, also of three that found it before the first one used it."""
    grants, request = SessionGrants(ManualClock()), a_request(questions=QUESTIONS)
    await grants.remember(request, Decision(option=ALWAYS.id, by="Robin", channel="test", times=2))
    found = await grants.match_grants(request)
    assert found is not None
    assert [await grants.use_grants(request, found[1]) for _ in range(3)] == [True, True, False]
    assert await grants.match_grants(request) is None


@pytest.mark.rule("APR-5")
async def test_a_grant_that_was_revoked_covers_no_call() -> None:
    """A grant that was revoked after a call had found it does not cover the call."""
    grants, request = SessionGrants(ManualClock()), a_request(questions=QUESTIONS)
    await grants.remember(request, Decision(option=ALWAYS.id, by="Robin", channel="test"))
    found = await grants.match_grants(request)
    assert found is not None
    for grant in await grants.list_grants("acme", "session-1"):
        assert await grants.revoke_grant(grant.id, "acme", "session-1")
    assert not await grants.use_grants(request, found[1])


@pytest.mark.rule("APR-5")
async def test_a_grant_that_has_ended_covers_no_call() -> None:
    """A grant for a time after its decision covers no call from then on, also none that had found it before."""
    clock = ManualClock()
    grants, request, decided = SessionGrants(clock), a_request(questions=QUESTIONS), clock.now()
    clock.advance(20)
    await grants.remember(request, Decision(option=ALWAYS.id, by="Robin", channel="test", seconds=60, at=decided))
    clock.advance(39)
    found = await grants.match_grants(request)
    assert found is not None
    assert await grants.use_grants(request, found[1])
    clock.advance(1)
    assert not await grants.use_grants(request, found[1])
    assert await grants.match_grants(request) is None


@pytest.mark.rule("APR-5")
def test_an_always_for_the_session_and_one_for_the_project() -> None:
    """Of any options "always", a store that keeps grants offers one pair; the first ends with the session."""
    for given in ([ALLOW, ALWAYS, DENY], [ALLOW, ALWAYS, replace(ALWAYS, id="again"), DENY]):
        lasting = [(one.label, one.session_only) for one in with_project(given) if one.kind == "allow_always"]
        assert lasting == [("Allow always in this session", True), ("Allow always in this project", False)]
