import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.escape import for_page, for_terminal
from approval_backends.card import Line, View, headline, views
from approval_backends.testing import a_request


def diff(old: str, new: str) -> View:
    """The diff of an edit."""
    return views(a_request(arguments={"file_path": "f", "old_string": old, "new_string": new}), for_page)[0]


def seen(lines: tuple[Line, ...]) -> list[str]:
    """A diff as people write it."""
    marks = {"same": " ", "added": "+", "removed": "-", "gap": "…"}
    return [marks[line.op] + line.text for line in lines]


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("Bash", {"command": "make"}, ("execute", "Run a command", "make")),
        ("Bash", {"command": "make \\\n all"}, ("execute", "Run a command", "make \\ …")),
        ("Edit", {"file_path": "a", "old_string": "", "new_string": ""}, ("edit", "Edit", "a")),
        ("Write", {"path": "a", "content": ""}, ("edit", "Write", "a")),
        ("WebFetch", {"url": "https://x/\u202e"}, ("fetch", "Fetch", "https://x/\\u{202E}")),
        ("Grep", {"pattern": "x", "path": "a"}, ("search", "Search for", "x")),
        ("Read", {"file_path": "a"}, ("read", "Open", "a")),
        ("Odd\u200b", {"command": ["make"]}, ("other", "Use", "Odd\\u{200B}")),
        ("Nothing", {}, ("other", "Use", "Nothing")),
    ],
)
def test_headline(tool: str, arguments: dict[str, Any], said: tuple[str, str, str]) -> None:
    """The arguments say what a tool does; of a tool nobody knows, its name does."""
    head = headline(a_request(tool=tool, arguments=arguments), for_page)
    assert (head.kind, head.verb, head.what) == said


@pytest.mark.rule("BCK-3")
def test_diff() -> None:
    """A diff shows what goes and what comes, a few lines around it, and counts what it leaves out."""
    old = [f"line {number}" for number in range(1, 41)]
    new = [*old[:19], "twenty", *old[20:], "end"]
    shown = diff("\n".join(old), "\n".join(new))
    assert seen(shown.lines) == [
        *["…16 unchanged lines", " line 17", " line 18", " line 19", "-line 20", "+twenty", " line 21", " line 22"],
        *[" line 23", "…14 unchanged lines", " line 38", " line 39", " line 40", "+end"],
    ]
    assert (shown.added, shown.removed) == (2, 1)
    assert [(line.old, line.new) for line in shown.lines[3:6]] == [(19, 19), (20, None), (None, 20)]
    assert (shown.lines[-1].old, shown.lines[-1].new) == (None, 41)


@pytest.mark.rule("BCK-3")
def test_several_edits() -> None:
    """Every edit of a call is in its diff."""
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}, "no edit"]
    shown = views(a_request(arguments={"file_path": "f", "edits": edits}), for_page)
    assert seen(shown[0].lines) == ["-a", "+b", "-c", "+d"]
    assert [view.name for view in shown] == ["Diff", "Raw"]


lines = st.lists(st.sampled_from(["a", "b", "", "\u202e", "\\u{"]), max_size=12).map("\n".join)


@pytest.mark.rule("BCK-3")
@given(lines, lines)
def test_nothing_is_left_out_of_a_diff(old: str, new: str) -> None:
    """What goes and what comes is shown in full, in order and under its own number, whatever stays around it."""
    shown = diff(old, new).lines
    before = [for_page(line) for line in old.split("\n")] if old else []
    after = [for_page(line) for line in new.split("\n")] if new else []
    for text, side in ((before, "old"), (after, "new")):
        numbered = {getattr(line, side): line.text for line in shown if getattr(line, side) is not None}
        assert list(numbered) == sorted(numbered)
        assert all(text[number - 1] == said for number, said in numbered.items())
    kept_before = [line for line in shown if line.op == "removed"]
    kept_after = [line for line in shown if line.op == "added"]
    left_out = sum(int(line.text.split()[0]) for line in shown if line.op == "gap")
    same = sum(line.op == "same" for line in shown)
    assert len(before) - len(kept_before) == len(after) - len(kept_after) == same + left_out


@pytest.mark.rule("BCK-3", "BCK-4")
@pytest.mark.fault("F-WS-13")
def test_diff_of_hostile_texts_is_quick() -> None:
    """Texts that make comparing slow are shown without being compared."""
    old, new = "x\n" * 20_000, "y\n" * 20_000 + "x"
    begun = time.perf_counter()
    shown = diff(old, new)
    repeated = diff("a\nb\n" * 95, "b\nc\n" * 95)
    assert time.perf_counter() - begun < 3
    assert (shown.removed, shown.added) == (20_001, 20_001)
    assert repeated.added == repeated.removed


@pytest.mark.rule("BCK-3")
def test_long_line_is_split() -> None:
    """A line of any length is shown whole, in pieces of which only the first has a number, and no escape is torn."""
    shown = diff("", "\u202e" * 10_000)
    assert "".join(line.text for line in shown.lines) == "\\u{202E}" * 10_000
    assert [line.new for line in shown.lines] == [1, None, None]
    assert all(line.text.endswith("}") and line.text.startswith("\\") for line in shown.lines)


@pytest.mark.rule("BCK-3")
def test_each_sink_has_its_escaping() -> None:
    """Whoever shows a card hands in how its sink escapes; raw arguments are ASCII everywhere."""
    request = a_request(arguments={"command": "é\x7f\u202e"})
    command, raw = views(request, str.upper)
    assert command.text == "É\x7f\u202e"
    assert raw.text == '{\n  "command": "\\u00e9\\u007f\\u202e"\n}'
    assert views(request, for_terminal)[0].text == "é\\u{7F}\\u{202E}"
