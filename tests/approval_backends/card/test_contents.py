import json
from typing import Any

import pytest

from amplifier_hooks.text.escape import for_page, for_terminal
from approval_backends.card.contents import agent_statement, headline, views
from approval_backends.testing import a_request


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("Bash", {"command": "make"}, ("execute", "Run a command", "make")),
        ("Bash", {"command": "make \\\n all"}, ("execute", "Run a command", "make \\ …")),
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
