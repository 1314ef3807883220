"""Grants: the risk that an "always" covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from amplifier_hooks.approvals import check_digest, make_grants
from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.ports import Decision, Question
from approval_backends.testing import ALWAYS, a_request, verdict_of

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
