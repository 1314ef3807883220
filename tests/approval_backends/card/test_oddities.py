from typing import Any

import pytest

from amplifier_hooks.text.escape import for_page
from approval_backends.card.oddities import Oddity, oddities


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
