import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approval_backends.card.file_diff import ChangeLine, word_changes

texts = st.text("ab \\u{2}⟨⟩", max_size=20) | st.lists(st.sampled_from(["a ", r"\u{202E}", "⟨9 spaces⟩"])).map("".join)


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
@given(texts, texts)
def test_pieces_are_the_line(old: str, new: str) -> None:
    """The pieces together are the line, and no escape lies in two of them."""
    both = lines(f"-{old}", f"+{new}")
    for number, pieces in word_changes(both).items():
        assert "".join(pieces) == both[number].text
        escapes = re.findall(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩", both[number].text)
        assert escapes == [mark for piece in pieces for mark in re.findall(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩", piece)]
