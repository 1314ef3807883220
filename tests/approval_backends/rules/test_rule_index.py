"""The rules about an event and a tool are looked up, and the verdict is that of all rules one after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_hooks.ports import ActionFacts
from approval_backends.rules.policy import SELECTIONS_KEPT, STRICTEST_FIRST, Rules

pytestmark = pytest.mark.rule("BCK-9")

TOOLS = ["Bash", "Write", "Read", "execute_bash", "mcp__git__push", "bash", ""]
MATCHERS = [
    *TOOLS[:5],
    "*",
    "Write|Read",
    "mcp__*",
    "?ash",
    "re:(?i)bash",
    "kind:write",
    "kind:shell|Read",
    "kind:read",
]
EVENTS = ["tool:pre", "memory:pre", "llm:pre", "memory:other", "mine"]
VALUES = ["x", "x.env", "a.py", 1]


@st.composite
def rule(draw: st.DrawFn) -> dict[str, Any]:
    """A rule without its id."""
    action = draw(st.sampled_from(STRICTEST_FIRST))
    made: dict[str, Any] = {"action": action, "tool": draw(st.sampled_from(MATCHERS))}
    if draw(st.booleans()):
        made["event"] = draw(st.sampled_from(["*", "memory:*", "llm:pre", "tool:pre", "re:.*:pre"]))
    if draw(st.booleans()):
        made["risk"] = draw(st.sampled_from(["low", "high"]))
    if action == "allow" or draw(st.booleans()):
        made["arguments"] = {"path": draw(st.sampled_from(["x", 1, {"glob": "x*"}, {"regex": ".*[.]py"}]))}
    if action == "allow":
        made["hooks"] = draw(st.sampled_from(["*", "lint"]))
        made["other_arguments"] = draw(st.sampled_from(["any", "none"]))
    if action == "ask" and draw(st.booleans()):
        made |= {"with_risk": draw(st.sampled_from(["low", "high"])), "risk_reason": "so it is"}
    return made


def rules(given_rules: list[dict[str, Any]], **head: Any) -> Rules:
    """Return these rules; their names stand in another order than they do."""
    listed = [{"id": f"r{len(given_rules) - n:02}", **one} for n, one in enumerate(given_rules)]
    return Rules(json.dumps({"version": 1, "rules": listed, **head}).encode())


def call(tool: str, event: str = "tool:pre", risk: Any = "low", **arguments: Any) -> ActionFacts:
    """Return a call."""
    about = {"session": "s", "tenant": "t", "cwd": "/project"}
    return ActionFacts(tool=tool, arguments=arguments, event=event, risk=risk, **about)


calls = st.builds(
    call,
    st.sampled_from(TOOLS),
    st.sampled_from(EVENTS),
    st.sampled_from(["low", "high"]),
    path=st.sampled_from(VALUES),
)


@settings(deadline=None)
@given(st.lists(rule(), min_size=1, max_size=12), st.lists(calls, min_size=1, max_size=6), st.booleans())
def test_rules_that_are_looked_up_decide_as_all_rules_do(
    given_rules: list[dict[str, Any]], made: list[ActionFacts], otherwise: bool
) -> None:
    """The verdict is that of a walk through all rules: the strictest action, by every rule that has it."""
    policy = rules(given_rules, **({"otherwise": "ask"} if otherwise else {}))
    for facts in [*made, *made]:  # the second time each is known
        explained, verdict = policy.explain(facts), policy.judge(facts)
        assert verdict == explained.verdict
        matched = [
            one for one in explained.considered if one.met is True or (one.met is None and one.action != "allow")
        ]
        strictest = next((action for action in STRICTEST_FIRST if any(one.action == action for one in matched)), None)
        named = ", ".join(sorted(one.rule for one in matched if one.action == strictest))
        if strictest is not None:
            assert verdict is not None
            assert (verdict.action, verdict.rule) == (strictest, named)
        else:
            assert (verdict is not None) == (otherwise and facts.event == "tool:pre")


@pytest.mark.parametrize(("action", "verdict"), [("deny", "deny"), ("allow", None)])
def test_a_pattern_for_tools_that_gives_no_answer_counts_each_time(action: str, verdict: str | None) -> None:
    """A pattern for tools that takes too long counts against each call, also against the second one of that tool."""
    hooks = {"hooks": "*", "arguments": {"path": "x"}} if action == "allow" else {}
    policy = rules([{"action": action, "tool": "re:(a|aa)+", **hooks}])
    for _ in range(2):
        found = policy.judge(call("a" * 60 + "b", path="x"))
        assert (found and found.action) == verdict


def test_many_tools_are_looked_up() -> None:
    """Rules decide about any number of tools."""
    policy = rules([{"action": "deny", "tool": "re:.*7"}])
    for n in range(SELECTIONS_KEPT + 10):
        assert (policy.judge(call(f"t{n}")) is not None) == (n % 10 == 7)
    assert len(policy._index._selected) <= SELECTIONS_KEPT


def test_rules_that_are_read_again_are_looked_up_anew(tmp_path: Any) -> None:
    """After a reload, the new rules decide about a tool that the old rules knew."""
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrules:\n- {id: a, action: deny, tool: Bash}\n")
    policy = Rules.load(path)
    assert policy.judge(call("Bash")) is not None
    path.write_text("version: 1\nrules:\n- {id: a, action: deny, tool: Write}\n")
    assert policy.reload()
    assert policy.judge(call("Bash")) is None
    assert policy.judge(call("Write")) is not None
