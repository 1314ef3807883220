"""Laws of rules: the effects of adding, removing and moving them."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.ports import ActionFacts, RuleVerdict
from approval_backends.rules.policy import Rules

STRICTNESS: Final = {"allow": 0, None: 1, "ask": 2, "deny": 3}
"""From letting pass to stopping; where no rule speaks, hooks still may."""

texts = st.sampled_from(["git status", "git push", "rm -rf /", "git push; rm -rf /", ".env", "src/a.py", "../x", "x"])
facts = st.builds(
    ActionFacts,
    tool=st.sampled_from(["Bash", "Write", "mcp__git__push"]),
    arguments=st.dictionaries(
        st.sampled_from(["command", "path", "q"]), texts | st.lists(texts) | st.none(), max_size=3
    ),
    event=st.sampled_from(["tool:pre", "memory:pre"]),
    session=st.just("s"),
    tenant=st.just(""),
    cwd=st.sampled_from(["/project", ""]),
    risk=st.sampled_from(["low", "medium", "high"]),
)
conditions = st.fixed_dictionaries(
    {"tool": st.sampled_from(["Bash", "Write|Bash", "mcp__*"])},
    optional={
        "risk": st.sampled_from(["low", "high"]),
        "event": st.sampled_from(["tool:pre", "memory:*"]),
        "command": st.sampled_from(["git status", "git *", "rm -rf"]),
        "path": st.sampled_from(["src/**", "./.env", "/x", "~/x"]),
        "arguments": st.sampled_from(["{q: x}", "{q: {glob: '*'}}", "{command: {regex: 'git.*'}}"]),
    },
)


@st.composite
def rules(draw: st.DrawFn, *effects: str) -> dict[str, Any]:
    """One rule, without an id."""
    effect = draw(st.sampled_from(effects or ("allow", "ask", "deny")))
    if effect != "allow":
        return {"action": effect, **draw(conditions)}
    hooks, others = draw(st.sampled_from(["'*'", "[a]", "[a, b]"])), draw(st.sampled_from(["none", "any", "[q]"]))
    return {"action": effect, **draw(conditions), "other_arguments": others, "hooks": hooks}


def file(given_rules: list[tuple[int, dict[str, Any]]], otherwise: str | None = None) -> Rules:
    """Rules with these ids."""
    lines = [f"- {{id: r{number}, {', '.join(f'{k}: {v}' for k, v in rule.items())}}}" for number, rule in given_rules]
    head = ["version: 1", *([f"otherwise: {otherwise}"] if otherwise else []), "rules:"]
    return Rules("\n".join([*head, *lines]).encode())


def strictness(verdict: RuleVerdict | None) -> int:
    """Return the strictness of a verdict."""
    return STRICTNESS[verdict.action if verdict else None]


otherwise = st.sampled_from([None, "ask", "deny"])
several = st.lists(rules(), min_size=1, max_size=6).map(lambda found: list(enumerate(found)))


@pytest.mark.rule("BCK-6", "BCK-9")
@given(several, rules("deny", "ask"), st.integers(0, 6), facts, otherwise)
def test_a_stricter_rule_never_allows_more(
    found: list[tuple[int, dict[str, Any]]], more: dict[str, Any], at: int, call: ActionFacts, rest: str | None
) -> None:
    """Adding a deny, anywhere, never allows more, and neither does adding an ask, where no deny held before."""
    before = file(found, rest).judge(call)
    after = file([*found[:at], (99, more), *found[at:]], rest).judge(call)
    otherwise_denied = before is not None and before.rule == "otherwise" and before.action == "deny"
    if more["action"] == "deny" or not otherwise_denied:
        assert strictness(after) >= strictness(before)
    if before is not None and before.action == "deny" and not otherwise_denied:
        assert after is not None
        assert after.action == "deny"


@pytest.mark.rule("BCK-9")
@given(several.flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))), facts, otherwise)
def test_order_means_nothing(pair: Any, call: ActionFacts, rest: str | None) -> None:
    """Rules in any order come to the same verdict, by the same rules, answering the same hooks."""
    found, moved = pair
    assert file(found, rest).judge(call) == file(moved, rest).judge(call)


@pytest.mark.rule("BCK-9")
@given(several, facts, otherwise)
def test_explained_as_judged(found: list[tuple[int, dict[str, Any]]], call: ActionFacts, rest: str | None) -> None:
    """Every rule is in the explanation once, and those that decide are those of the verdict."""
    policy = file(found, rest)
    explained = policy.explain(call)
    assert explained.verdict == policy.judge(call)
    assert len(explained.deciding) + len(explained.outdone) + len(explained.others) == len(found) == len(policy)
    if explained.verdict and explained.verdict.rule != "otherwise":
        assert explained.verdict.rule == ", ".join(sorted(one.rule for one in explained.deciding))
    else:
        assert not explained.deciding


@pytest.mark.rule("BCK-9")
@given(several, facts)
def test_the_same_conditions_allow_less_than_they_deny(
    found: list[tuple[int, dict[str, Any]]], call: ActionFacts
) -> None:
    """A call that matches as an allow matches as a deny as well: a doubt never turns into a permission."""
    for number, rule in found:
        allow = file([(number, {**rule, "action": "allow", "hooks": "'*'"})])
        shared = {key: value for key, value in rule.items() if key not in ("hooks", "other_arguments")}
        deny = file([(number, {**shared, "action": "deny"})])
        if allow.judge(call) is not None:
            assert deny.judge(call) is not None
