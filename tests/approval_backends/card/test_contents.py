from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_hooks.impacts import Impact
from amplifier_hooks.ports import Question
from amplifier_hooks.text.escape import for_page, for_terminal
from approval_backends.card.contents import (
    MOST_TOGETHER,
    Oddity,
    agent_statement,
    alike_requests,
    group_member,
    headline,
    oddities,
    views,
)
from approval_backends.testing import ALLOW, DENY, a_request


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("Bash", {"command": "make"}, ("execute", "Run a command", "make")),
        ("Bash", {"command": "make \\\n all"}, ("execute", "Run a command", "make \\ …")),
        ("Bash", {"command": "\n \nmake"}, ("execute", "Run a command", "make …")),
        ("Edit", {"file_path": "a", "old_string": "", "new_string": ""}, ("edit", "Edit", "a")),
        ("Write", {"path": "a", "content": ""}, ("edit", "Write", "a")),
        ("WebFetch", {"url": "https://x/\u202e"}, ("fetch", "WebFetch", "https://x/\\u{202E}")),
        ("Grep", {"pattern": "x", "path": "a"}, ("search", "Grep", "x")),
        ("Read", {"file_path": "a"}, ("other", "Read", "a")),
        ("Delete", {"path": "a"}, ("other", "Delete", "a")),
        ("Odd\u200b", {"command": ["make"]}, ("other", "Use", "Odd\\u{200B}")),
        ("Nothing", {}, ("other", "Use", "Nothing")),
    ],
)
def test_headline(tool: str, arguments: dict[str, Any], said: tuple[str, str, str]) -> None:
    """The arguments tell the object of the action; a headline adds nothing to them, and names the tool."""
    head = headline(a_request(tool=tool, arguments=arguments), for_page)
    assert (head.kind, head.verb, head.what) == said


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"file_path": "f", "old_string": "a", "new_string": "b"}, ["Diff", "Result", "Raw"]),
        ({"file_path": "f", "content": "b", "description": "Fix it"}, ["Diff", "Raw"]),
        ({"file_path": "f", "content": "b", "mode": "append"}, ["Diff", "Besides", "Raw"]),
        ({"command": "make", "timeout": 7}, ["Command", "Besides", "Raw"]),
        ({"url": "x"}, ["Address", "Raw"]),
        ({"odd": {}}, ["Arguments", "Raw"]),
    ],
)
def test_nothing_is_left_out(arguments: dict[str, Any], names: list[str]) -> None:
    """Arguments that the first view leaves out stand beside it, and the exact arguments come last."""
    shown = views(a_request(arguments=arguments), for_page)
    assert [view.name for view in shown] == names
    assert json.loads(shown[-1].text) == arguments
    beside = {key: value for view in shown if view.name == "Besides" for key, value in json.loads(view.text).items()}
    assert beside.keys() == arguments.keys() & {"mode", "timeout"}


@pytest.mark.rule("BCK-3")
def test_diff() -> None:
    """A diff counts the added and removed lines, and each of its lines is safe to show."""
    diff, result, _raw = views(a_request(arguments={"path": "f", "old_str": "a\nb", "new_str": "a\n\u202e"}), for_page)
    assert [(line.kind, line.text) for line in diff.lines] == [("same", "a"), ("del", "b"), ("add", "\\u{202E}")]
    assert (diff.added, diff.removed, result.text) == (1, 1, "a\n\\u{202E}")


@pytest.mark.rule("BCK-3")
def test_long_line_is_split() -> None:
    """A line of any length is shown whole, in pieces of which only the first has a number, and no escape is torn."""
    diff = views(a_request(arguments={"path": "f", "content": "\u202e" * 10_000 + "\n"}), for_page)[0]
    assert "".join(line.text for line in diff.lines) == "\\u{202E}" * 10_000
    assert [line.new for line in diff.lines] == [1, None, None]
    assert all(line.text.endswith("}") and line.text.startswith("\\") for line in diff.lines)


@pytest.mark.rule("BCK-3")
def test_claim() -> None:
    """A card sets the agent's words about its own action apart from the action."""
    request = a_request(arguments={"command": "rm -r x", "description": "List \u202efiles"})
    assert agent_statement(request, for_page) == "List \\u{202E}files"
    assert agent_statement(a_request(arguments={"description": ["List files"]}), for_page) is None
    assert "List" not in views(request, for_page)[0].text


@pytest.mark.rule("BCK-3")
def test_each_sink_has_its_escaping() -> None:
    """A screen brings the escape of its sink; raw arguments are ASCII on every screen."""
    request = a_request(arguments={"command": "é\x7f\u202e"})
    command, raw = views(request, str.upper)
    assert command.text == "É\x7f\u202e"
    assert raw.text == '{\n  "command": "\\u00e9\\u007f\\u202e"\n}'
    assert views(request, for_terminal)[0].text == "é\\u{7F}\\u{202E}"


@pytest.mark.rule("BCK-3")
@pytest.mark.fault("F-WS-13")
@pytest.mark.parametrize(
    ("value", "what", "mark", "note"),
    [
        ({"a": "x\u202ey"}, "Right-to-left override", r"\u{202E}", "It would have changed the order"),
        ({"a": ["\u200b", {"b": "\u200b\u200b"}]}, "Zero width space, 3 times", r"\u{200B}", "You would not have seen"),
        ({"\x1b": 1}, "Control character", r"\u{1B}", "In a terminal it would have moved the cursor."),
        ({"a": "x" + " " * 1204 + "y"}, "1,204 spaces in a row", "", "Shown as a count."),
        ({"a": "שלום"}, "Letters of a right-to-left script", "", "left to right."),
        ({"a": "p\u0430ypal"}, "Letters that look alike", "p\u0430ypal", "One word of Latin and Cyrillic letters."),
    ],
)
def test_oddities(value: dict[str, Any], what: str, mark: str, note: str) -> None:
    """An oddity anywhere in the arguments has a name, its mark in the text, and the effect it would have had."""
    (found,) = oddities(value, for_page)
    assert (found.what, found.mark) == (what, mark)
    assert note in found.note


@pytest.mark.rule("BCK-1", "BCK-3")
@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        ("ls p\u0430ypal", "Letters that look alike, p\u0430ypal. One word of Latin and Cyrillic letters."),
        ("ls (covered)", "Letters that look alike. One word of Latin and Cyrillic letters."),
    ],
)
def test_in_a_line(shown: str, sentence: str) -> None:
    """An oddity's sentence has its mark, unless the shown text lacks it."""
    (found,) = oddities({"a": "p\u0430ypal"}, for_page)
    assert found.sentence(shown) == sentence


@pytest.mark.rule("BCK-3")
def test_nothing_odd() -> None:
    """Words of any one script, emoji, code and usual layout are no oddities."""
    usual = {"a": "größe 日本語 привет 🙂 x = {'y': 1}\n\t\\n", "b": ["Ω μ", 7, None]}
    assert oddities(usual, for_page) == ()


@pytest.mark.rule("BCK-3")
def test_a_flood_of_oddities() -> None:
    """Only so many oddities of each kind are named."""
    text = "".join(map(chr, range(0xE0000, 0xE0FFF))) + " ".join(f"p\u0430y{chr(97 + n)}" for n in range(26))
    found = oddities({"a": text}, for_page)
    assert len(found) == 40
    assert all(isinstance(each, Oddity) for each in found)


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
