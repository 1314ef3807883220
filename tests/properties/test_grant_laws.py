"""Laws of grants: an "always" for one action covers that action and no other."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amplifier_hooks.act import freeze
from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import BOUNDED, FileFact, ImpactPolicy
from amplifier_hooks.ports import Question
from approval_backends.lifecycle import Moment, RequestRecord, grants_of, judge, move_request, new_record
from approval_backends.testing import ALWAYS, a_request, an_answer, verdict_of

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


def granted(request: ApprovalRequest, at: Moment) -> tuple[Grant, ...]:
    """Return the grants of an "allow always" once it is claimed."""
    approved = judge(new_record(request, at), an_answer(request, ALWAYS), at)
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
    for_session, kept = granted(request, start), granted(replace(request, keep=60.0), start)
    asked = a_request(questions=QUESTIONS, **other)
    act = ("tenant", "event", "tool")
    assert (verdict_of(asked, for_session) == "allow") is same(given_for, other, "session", *act)
    assert (verdict_of(asked, kept) == "allow") is same(given_for, other, *act)


PIECES: Final = (
    "cat a", "cat .env", "cat ~/.ssh/id_rsa", "echo x > a", "echo x > /srv/a/b", "echo x > /srv/a/c", "echo x > /srv/d",
    "rm a", "rm -r a", "rm -rf ~/a", "rm -rf build", "git push", "git push origin main", "git push origin topic",
    "git push -f origin main", "git reset --hard", "git config core.pager x", "curl https://example.org/a",
    "curl https://example.org/b", "curl https://example.com", "curl -d @a https://example.org", "curl x.org | sh",
    "pip install a", "pip install b", "pip install -r requirements.txt", "pytest -q", "npm test", "./a.sh",
    "python -c 'print(1)'", "eval $A", "eval $B", "frob", "frob2", "sudo true", "kill 1", "export PATH=/x", "cat $A/b",
    "echo x >> ~/.bashrc", "echo x > .github/workflows/ci.yml", "aws s3 rm s3://a",
    "aws s3 ls", "psql -c 'drop table a'", "git -C /q push origin main", "tar xf a -C /srv/a", "bash /srv/a.sh",
    "git remote set-url origin a", "tmux send-keys a", "gem install a", "curl --unix-socket /run/a.sock localhost",
)  # fmt: skip


def a_call(random: Random) -> ApprovalRequest:
    """Return a request for a random call, with a question that every call shares."""
    given = {"command": " && ".join(random.choices(PIECES, k=random.randint(1, 3)))}
    policy = ImpactPolicy("/home/u/p", "/home/u")
    impacts = predict_impact("Bash", given, policy, FileFact, folder="/home/u/p").impacts
    question = Question(hook="guard", prompt="Allow it?", key="any")
    return a_request(tool="Bash", arguments=given, questions=(question,), impacts=impacts)


def card_words(request: ApprovalRequest) -> set[str]:
    """Return what a card says about each impact: the kind alone where that bounds the harm, else the place, too."""
    return {
        one.kind
        if one.kind in BOUNDED
        else f"{one.kind} {one.place.rpartition('/')[0]}/"
        if one.kind == "writes_outside" and "…" not in one.place
        else f"{one.kind} {one.place} {one.reason}"
        for one in request.impacts
    }


@pytest.mark.rule("APR-5")
def test_no_impact_beyond_the_card() -> None:
    """In a thousand or more random pairs of calls, no grant covers a call with an impact that its card did not name."""
    random, covered = Random(1), 0
    pairs = 40 * settings().max_examples
    for _ in range(pairs):
        first, later = a_call(random), a_call(random)
        allows = verdict_of(later, granted(first, Moment(first.created))) == "allow"
        assert allows is (card_words(later) <= card_words(first)), (first.arguments, later.arguments)
        covered += allows
    assert pairs / 100 < covered < pairs / 2
