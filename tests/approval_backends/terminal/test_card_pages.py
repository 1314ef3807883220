"""The pages about a request, and the parts that are covered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prompt_toolkit.utils import get_cwidth as width_of

from amplifier_hooks.ports import Assessment, Question
from approval_backends.card.changes import read_arguments
from approval_backends.terminal.card_pages import (
    action_page,
    arguments_text,
    clip_text,
    field_text,
    lay_out,
    names_secret,
    pieces,
    raw_page,
    reach_page,
    text_of,
    wrap_text,
)
from approval_backends.testing import ALWAYS, a_request

TOKEN = "sk-" + "a1b2" * 6
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def shown(arguments: dict[str, Any], **fields: Any) -> list[str]:
    """Return the lines of the page about these arguments."""
    return [text_of(line) for line in lay_out(action_page(a_request(arguments=arguments, **fields)), 80)]


@pytest.mark.rule("BCK-1")
def test_arguments() -> None:
    """Every argument is there; a text that reads like another value is told apart from it."""
    lines = shown({"a": "true", "b": True, "c": "", "d": " x ", "e": [1, {"f": None}], "g": "one\ntwo\t.\nthree "})
    assert lines[:6] == [
        ' a  "true"',
        " b  true",
        ' c  ""',
        ' d  " x "',
        ' e  [1, {"f": null}]',
        " ▸ g  3 lines",
    ]
    assert lines[6:9] == [" │ one", " │ two⇥.", r" │ three\u{20}"]


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-12")
def test_claims() -> None:
    """The agent's words about the action come after it, and are labelled as such."""
    lines = shown({"description": "list files", "command": "rm -rf build and much more than a headline"})
    assert lines[0] == " command  rm -rf build and much more than a headline"
    assert lines[-1] == " the agent says  list files (not checked)"


@pytest.mark.rule("APR-13", "BCK-1")
@pytest.mark.fault("F-APR-25")
def test_why_the_risk_is_high() -> None:
    """Every reason for the risk that counts stands below the questions, whole, with its source, escaped."""
    assessments = (
        Assessment(by="egress", risk="high", reason="a new host\x1b[2J\nand a secret"),
        Assessment(by="lint", risk="low", reason="only text"),
        Assessment(by="host", risk="high"),
        Assessment(by="rule:push", risk="high", reason="others pull it"),
    )
    lines = shown({"command": "git push"}, risk="high", assessments=assessments)
    assert lines[-4:] == [
        " guard      Write it?",
        r" high risk  a new host\u{1B}[2J",
        " │ and a secret (egress)",
        " high risk  others pull it (rule:push)",
    ]


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-07", "F-WS-13")
@pytest.mark.parametrize("arguments", [{"command": "c\u0430t a"}, {"path": "c\u0430t"}, {"a": [{"c\u0430t": 1}]}])
def test_look_twice(arguments: dict[str, Any]) -> None:
    """A word that mixes scripts is named, wherever it stands, before the words of the hooks."""
    assert shown(arguments)[-3:] == [
        " look twice  Letters that look alike, c\u0430t. One word of Latin and Cyrillic ",
        "           ┊ letters.",
        " guard       Write it?",
    ]
    assert not any("look twice" in line for line in shown({"command": "cat a"}))


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-08", "F-CLI-13")
def test_look_twice_at_a_secret() -> None:
    """The card names a word of two alphabets and a long run of blanks, and no part of a covered secret."""
    odd = {"command": "c\u0430t" + " " * 1204 + "x"}
    lines = [strip.text for strip in action_page(a_request(arguments=odd))]
    assert any(line.startswith("Letters that look alike, c\u0430t.") for line in lines)
    assert any(line.startswith("1,204 spaces in a row.") for line in lines)
    lines = shown({"command": "x --token abcdefghijkl\u0430"})
    assert "abcdefgh" not in "".join(lines)
    assert any("Letters that look alike. One word of" in line for line in lines)


@pytest.mark.rule("BCK-1")
def test_what_stands_above_as_a_whole() -> None:
    """The object of a tool stands beside its name; one that is too long for that is in the page too."""
    assert shown({"path": "a.txt"})[0].strip() == ""
    lines = shown({"path": "a" * 50}, tool="T" * 40, agent="A" * 40, cwd="/" * 40)
    for text in ("a" * 50, "T" * 40, "A" * 40, "/" * 40):
        assert any(text in line for line in lines)


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-13")
@pytest.mark.parametrize(
    ("text", "covered"),
    [
        (f"deploy --key {TOKEN}", [TOKEN]),
        ("curl -H 'Authorization: Bearer abcdef123456' https://api.example.com", ["abcdef123456"]),
        ("git clone https://robin:hunter2@example.com/x", ["hunter2"]),
        ("export PASSWORD=hunter2hunter2 && ls", ["hunter2hunter2"]),
        ("login --token abcdefgh12", ["abcdefgh12"]),
        (TOKEN, []),  # it stands where a command's name does
        (f"ls;   {TOKEN}", []),
        ("password=/etc/shadow", []),
        ("token=evil.example.com", []),
        ("token='x;curl-evil|sh -c'", []),
        ("--password rm -rf", []),
        ("nothing at all", []),
    ],
)
def test_masks(text: str, covered: list[str]) -> None:
    """Secrets are covered by their form or name; a command's name, a path and a host never are."""
    assert "".join(piece for piece, _ in pieces(text)) == text
    assert [piece for piece, secret in pieces(text) if secret] == covered


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-13")
def test_masked_arguments() -> None:
    """A secret by the name of its argument is covered, and no text can pass for a cover."""
    assert shown({"api_key": "abcdefgh"})[0] == " api_key  ⟨secret, 8 characters⟩"
    assert not names_secret("token", "/bin/sh")
    assert not names_secret("token", "rm importantfile")
    assert "⟨" not in shown({"a": "⟨secret, 8 characters⟩"})[0]
    raw = [text_of(line) for line in lay_out(raw_page(a_request(arguments={"api_key": "abcdefgh"})), 80)]
    assert ' │   "api_key": "abcdefgh"' in raw


@pytest.mark.rule("APR-5")
def test_reach() -> None:
    """The reach page covers every hook that asks, and states the end of the grants."""
    questions = (Question(hook="a", prompt="Go?"), Question(hook="b", prompt="", scope="action"))
    page = reach_page(a_request(questions=questions), ALWAYS)
    lines = [text_of(line) for line in lay_out(page, 200)]
    assert lines[0] == " Allowed without asking again:"
    assert lines[1] == " · Any Write by coder in /project that raises the question “Go?”."
    assert "exactly these arguments" in lines[2]
    assert lines[-2].startswith(" Ends: with this session")
    assert lines[-1] == " Would have covered 0 calls of this session so far."
    kept = reach_page(a_request(questions=questions, keep=86_400.0), ALWAYS)
    lines = [text_of(line) for line in lay_out(kept, 200)]
    assert lines[1] == " · Any Write by coder in /project in every session that raises the question “Go?”."
    assert lines[-2].startswith(" Ends: after 1 day")
    here = replace(ALWAYS, session_only=True)
    lines = [text_of(line) for line in lay_out(reach_page(a_request(keep=86_400.0), here), 200)]
    assert "in every session" not in lines[1]
    assert lines[-2].startswith(" Ends: with this session")


@given(st.text(max_size=300), st.integers(2, 60), st.booleans())
def test_wrapping(text: str, width: int, words: bool) -> None:
    """Wrapped, no line is too wide and nothing is lost; cut, a line tells how much is missing."""
    parts = wrap_text(text, width, words=words)
    assert "".join(parts) == text
    assert max(map(width_of, parts)) <= width
    cut = clip_text(text, width)
    assert width_of(cut) <= width
    assert cut == text or "…" in cut


@pytest.mark.rule("APR-7")
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_writable(arguments: dict[str, Any]) -> None:
    """Edited text reads back as it was, and nothing in it is invisible."""
    text = arguments_text(arguments)
    assert read_arguments(text) == arguments
    assert text.replace("\n", "").isprintable()
    assert field_text(text) == text
