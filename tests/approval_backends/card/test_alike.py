"""Requests that can be answered together."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_hooks.impacts import Impact
from amplifier_hooks.ports import Question
from amplifier_hooks.text.escape import for_page
from approval_backends.card.alike import MOST_TOGETHER, alike_requests, group_member
from approval_backends.testing import ALLOW, DENY, a_request

MAKE = (Impact("runs_project", "make"), Impact("reads", "a"))


def low(number: int = 1, **changes: Any) -> Any:
    """Return a request of low risk to run a command."""
    fields = {"risk": "low", "tool": "Bash", "arguments": {"command": f"make t{number}"}, "impacts": MAKE, **changes}
    return a_request(number, **fields)


@pytest.mark.rule("BCK-11")
def test_alike() -> None:
    """Other arguments, and other places of a kind that bounds the harm, leave requests alike."""
    first, second = low(1), low(2, impacts=(MAKE[0], Impact("reads", "b")))
    assert alike_requests(first, [second]) == (second,)
    member = group_member(first, for_page)
    assert member is not None
    assert member.line == "make t1"
    assert len(alike_requests(first, [low(number) for number in range(2, 60)])) == MOST_TOGETHER - 1


@pytest.mark.rule("BCK-11")
@pytest.mark.parametrize(
    "changes",
    [
        {"risk": "medium"},
        {"risk": "high"},
        {"default": "allow"},
        {"session": "other"},
        {"tenant": "other"},
        {"agent": "other"},
        {"tool": "Shell"},
        {"cwd": "/other"},
        {"project": "/other"},
        {"questions": (Question(hook="guard", prompt="Write another?"),)},
        {"questions": (Question(hook="guard", prompt="Write it?", version="2"),)},
        {"options": (ALLOW, DENY)},
        {"impacts": (*MAKE, Impact("deletes_outside", "/far"))},
        {"impacts": (Impact("runs_project", "rake"), MAKE[1])},
        {"arguments": {"command": "make " + "x" * 600}},
        {"arguments": {"command": "m\u0430ke"}},
    ],
)
def test_answered_alone(changes: dict[str, Any]) -> None:
    """Any other difference, a higher risk, long arguments and misleading text keep a request out of the group."""
    assert alike_requests(low(1), [low(2, **changes)]) == ()
    if changes.get("risk"):
        assert alike_requests(low(1, **changes), [low(2, **changes)]) == ()


@pytest.mark.rule("BCK-11")
def test_a_line_leaves_nothing_out() -> None:
    """Several arguments stand in the line as JSON; a line break is spelt out."""
    two = group_member(low(arguments={"command": "make", "timeout": 7, "description": "Build"}), for_page)
    assert two is not None
    assert two.line == '{"command":"make","description":"Build","timeout":7}'
    broken = group_member(low(arguments={"command": "make\nrm x"}), for_page)
    assert broken is not None
    assert broken.line == "make\\u{0A}rm x"
