from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.text.escape import invisible
from approval_backends.card.changes import (
    LARGEST,
    BadArguments,
    ChangeLine,
    change,
    compare,
    edit_request,
    editable_text,
    read_arguments,
    word_changes,
)
from approval_backends.testing import a_request

texts = st.lists(st.sampled_from(["a", "b", "c", "", "a\r"]), max_size=14).map("\n".join)


def shown(arguments: dict[str, Any]) -> list[str]:
    """Return the lines of a change, each after a sign for its kind."""
    told = change(arguments)
    assert told is not None
    signs = {"same": " ", "add": "+", "del": "-", "skip": "~", "part": "#"}
    return [signs[line.kind] + line.text for line in told.lines]


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"file_path": "f", "old_string": "a\nb", "new_string": "a\nc"}, [" a", "-b", "+c"]),
        ({"path": "f", "old_str": "a", "new_str": "a\n"}, [" a", "+"]),
        ({"file_path": "f", "content": "a\nb\n"}, ["+a", "+b"]),
        ({"path": "f", "content": "a"}, ["+a", "#No newline at the end"]),
        (
            {"path": "f", "edits": [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": ""}]},
            ["#Edit 1 of 2", "-a", "+b", "#Edit 2 of 2", "-c", "+"],
        ),
    ],
)
def test_change(arguments: dict[str, Any], lines: list[str]) -> None:
    """A change reads the arguments of the usual tools: one pair, several, a whole file; a final newline is not lost."""
    assert shown(arguments) == lines


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "ls"},
        {"file_path": 7, "content": "x"},
        {"content": "x"},
        {"file_path": "f", "edits": []},
        {"file_path": "f", "edits": [{"old_string": "a", "new_string": "b", "line": 4}]},
    ],
)
def test_no_change_is_told(arguments: dict[str, Any]) -> None:
    """A change with one unknown part is not shown at all."""
    assert change(arguments) is None


@pytest.mark.rule("BCK-3")
def test_change_says_what_it_does_not_tell() -> None:
    """A change names the arguments that it does not use, so that a card can show them."""
    told = change({"file_path": "f", "path": "other", "content": "x", "mode": "append"})
    assert told is not None
    assert (told.path, told.used) == ("f", frozenset({"file_path", "content"}))


@pytest.mark.rule("BCK-3")
@given(texts, texts)
def test_compare_tells_both_texts(old: str, new: str) -> None:
    """Both texts can be rebuilt from the shown lines and the numbers of those left out."""
    before, after = old.split("\n"), new.split("\n")
    lines = list(compare(old, new))
    left, right = rebuilt(lines, before, after)
    assert (left, right) == (before, after)
    assert any(line.kind in ("add", "del") for line in lines) == (old != new)


def rebuilt(lines: list[ChangeLine], before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Return both sides; only lines that are equal on both may be left out."""
    left: list[str] = []
    right: list[str] = []
    for line in lines:
        if line.kind == "skip":
            count = int(line.text.partition(" ")[0])
            gone, come = before[len(left) :][:count], after[len(right) :][:count]
            assert gone == come
            left, right = [*left, *gone], [*right, *come]
        if line.kind in ("same", "del"):
            left.append(line.text)
            assert line.old == len(left)
        if line.kind in ("same", "add"):
            right.append(line.text)
            assert line.new == len(right)
    return left, right


@pytest.mark.rule("BCK-3")
def test_large_texts_are_not_compared_line_by_line() -> None:
    """Two texts too large to compare are shown whole, except for their common head and tail."""
    lines = list(compare("a\n" * 3_000 + "end", "b\nc\n" * 1_500 + "end"))
    assert [line.kind for line in lines] == ["del"] * 3_000 + ["add"] * 3_000 + ["same"]


# -- words that changed ------------------------------------------------------------------------------------------------


word_texts = st.text("ab \\u{2}⟨⟩", max_size=20) | st.lists(st.sampled_from(["a ", r"\u{202E}", "⟨9 spaces⟩"])).map(
    "".join
)


def lines(*shown: str) -> list[ChangeLine]:
    """Return lines after a sign for their kind."""
    kinds = {"-": "del", "+": "add", " ": "same"}
    return [ChangeLine(kinds[line[0]], None, None, line[1:]) for line in shown]  # type: ignore[arg-type]


@pytest.mark.rule("BCK-3")
def test_marked() -> None:
    """The common head and tail of a line and its replacement are not marked; other lines are left alone."""
    assert word_changes(lines(" x", "-a: 8000 ms", "-b: sandbox", "+a: 3000 ms", "+b: live", "+c: new", " y")) == {
        1: ("a: ", "8000", " ms"),
        3: ("a: ", "3000", " ms"),
        2: ("b: ", "sandbox", ""),
        4: ("b: ", "live", ""),
    }


@pytest.mark.rule("BCK-3")
def test_lines_with_little_in_common_are_not_marked() -> None:
    """A line that replaces another without being like it is marked by its colour alone."""
    assert word_changes(lines("-return total", "+raise LookupError(name)")) == {}


@pytest.mark.rule("BCK-3")
@given(word_texts, word_texts)
def test_pieces_are_the_line(old: str, new: str) -> None:
    """The pieces together are the line, and no escape lies in two of them."""
    both = lines(f"-{old}", f"+{new}")
    for number, pieces in word_changes(both).items():
        assert "".join(pieces) == both[number].text
        escapes = re.findall(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩", both[number].text)
        assert escapes == [mark for piece in pieces for mark in re.findall(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩", piece)]


values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v, max_size=3))


@pytest.mark.rule("BCK-3", "APR-7")
@given(st.dictionaries(st.text(), values, max_size=3))
def test_editable(arguments: dict[str, Any]) -> None:
    """The text holds the arguments exactly, and no invisible character."""
    text = editable_text(arguments)
    assert text is not None
    assert json.loads(text) == arguments
    assert invisible(text) == frozenset()


@pytest.mark.rule("APR-7")
def test_too_large_to_edit() -> None:
    """Arguments too large to be sent back are not offered for editing."""
    assert editable_text({"a": "x" * LARGEST}) is None
    with pytest.raises(BadArguments, match="at most 49,152"):
        edit_request(a_request(), json.dumps({"a": "x" * LARGEST}))


@pytest.mark.rule("APR-7")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Line 1, column 1: Expecting value."),
        ('{"a": 1,\n}', "Line "),
        ("[1]", "Arguments are an object"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' stands twice"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": -Infinity}', "-Infinity is no JSON number"),
        ('{"a": 1e999}', "1e999 does not read back"),
        ('{"a": ' + "[" * 20_000, "nested"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "."),
        ('{"a": ' + "9" * 5_000 + "}", "4300 digits"),
    ],
)
def test_bad_arguments(text: str, said: str) -> None:
    """A text that two readers could understand differently is no arguments; the sentence says where it is wrong."""
    with pytest.raises(BadArguments, match=r"\S") as refused:
        read_arguments(text)
    assert said in str(refused.value)


@pytest.mark.rule("APR-7", "BCK-3")
def test_edited() -> None:
    """The digest is that of the action with the edited arguments, and the lines show the differences."""
    request = a_request(arguments={"path": "a", "content": "x\ny", "n": 1})
    change = edit_request(request, '{"n": true, "path": "a", "content": "x\\nz"}')
    assert [(line.kind, line.text) for line in change.lines if line.kind != "same"] == [
        ("del", "    y"),
        ("del", '"n": 1'),
        ("add", "    z"),
        ("add", '"n": true'),
    ]
    same = a_request(arguments={"path": "a", "content": "x\nz", "n": True})
    assert change.digest == same.digest != request.digest


@pytest.mark.rule("APR-7")
def test_nothing_is_changed() -> None:
    """Equal arguments, however they are written, are no edit."""
    request = a_request(arguments={"b": 1, "a": "ü"})
    with pytest.raises(BadArguments, match="Nothing is changed yet"):
        edit_request(request, '{ "a": "\\u00fc",\n "b": 1 }')
