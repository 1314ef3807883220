"""Laws of grants: an "always" for one action covers that action and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.act import freeze
from amplifier_hooks.approvals import match_grants
from amplifier_hooks.ports import Question
from approval_backends.lifecycle import Moment, RequestRecord, grants_of, judge, move_request, new_record
from approval_backends.testing import ALWAYS, a_request, an_answer

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalRequest, Grant

QUESTIONS: Final = (Question(hook="rule:r", prompt="Run it?", scope="action"),)

acts = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(["", "acme"]),
        "session": st.sampled_from(["s1", "s2"]),
        "event": st.sampled_from(["tool:pre", "plan:start"]),
        "tool": st.sampled_from(["Bash", "Bas"]),
        "arguments": st.dictionaries(
            st.sampled_from(["a", "b"]), st.sampled_from([1, 1.0, True, "1", None]), max_size=2
        ),
    }
)


def same(one: dict[str, Any], other: dict[str, Any], *fields: str) -> bool:
    """Return True if two acts agree in these fields and in every byte of their arguments."""
    return all(one[name] == other[name] for name in fields) and freeze(one["arguments"]) == freeze(other["arguments"])


def granted(request: ApprovalRequest, at: Moment, keep: float | None = None) -> tuple[Grant, ...]:
    """Return the grants of an "allow always" once it is claimed."""
    approved = judge(new_record(request, at), an_answer(request, ALWAYS), at, keep=keep)
    assert isinstance(approved, RequestRecord)
    claimed = move_request(approved, "claim", at)
    assert isinstance(claimed, RequestRecord)
    return grants_of(claimed)


@pytest.mark.rule("APR-5")
@pytest.mark.fault("F-APR-14", "F-APR-24")
@given(acts, acts)
def test_a_grant_for_one_action(given_for: dict[str, Any], other: dict[str, Any]) -> None:
    """A grant for one action covers another call exactly where that is the same action: kept, in every session."""
    request = a_request(questions=QUESTIONS, **given_for)
    start = Moment(request.created)
    for_session, kept = granted(request, start), granted(request, start, 60.0)
    asked = a_request(questions=QUESTIONS, **other)
    act = ("tenant", "event", "tool")
    assert (match_grants(asked, for_session) == "allow") is same(given_for, other, "session", *act)
    assert (match_grants(asked, kept) == "allow") is same(given_for, other, *act)
