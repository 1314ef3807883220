"""The lines of the card: with any foreign text, at any size."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth as width_of

from amplifier_hooks.approvals import with_project
from amplifier_hooks.ports import Assessment, Option, Question
from approval_backends.terminal.card_pages import text_of
from approval_backends.terminal.draw_card import MIN_HEIGHT, MIN_WIDTH, STYLES, CardPages, Scene, Sheet, draw, time_left
from approval_backends.terminal.form import Form, begin, change_arguments, press
from approval_backends.testing import ALLOW, ALWAYS, DENY, a_request
from tests.conftest import THOROUGH

UNTIL = datetime(2026, 1, 1, 14, 32, 10, tzinfo=UTC)
ODD = "\x1b\x9b\x07\x08\r\n\t\u202e\u200b\u00ad\u0301\u0489\U0001f468\U0001f3fd\U0001f1e9字é \\u{}⟨│─"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters()), max_size=60)
LONG = st.builds(lambda text, times: text * times, TEXTS, st.sampled_from([1, 1, 40]))
KEYS = ("", "a", "w", "v", "m", "e", "n", "pagedown")


def scene(width: int = 80, height: int = 24, **changes: Any) -> Scene:
    """Return a screen of this size."""
    return Scene(width=width, height=height, left=252, until=UNTIL, **changes)


def card(form: Form, width: int = 80, height: int = 24, **changes: Any) -> tuple[Form, list[str]]:
    """Return the form after drawing, and the lines."""
    form, sheet = draw(form, scene(width, height, **changes), CardPages())
    return form, texts(sheet)


def texts(sheet: Sheet) -> list[str]:
    """Return the lines without their styles and the blanks at their ends."""
    return [text_of(line).rstrip() for line in sheet.lines]


@pytest.mark.rule("BCK-1", "APR-2")
@given(
    fields=st.fixed_dictionaries(
        {"agent": LONG, "tool": LONG, "cwd": LONG, "arguments": st.dictionaries(TEXTS, LONG, max_size=3)}
    ),
    prompts=st.lists(st.tuples(TEXTS, LONG), min_size=1, max_size=3),
    size=st.tuples(st.integers(10, 130), st.integers(3, 60)),
    key=st.sampled_from(KEYS),
)
def test_hostile_text(fields: dict[str, Any], prompts: list[tuple[str, str]], size: tuple[int, int], key: str) -> None:
    """No text makes a line longer, a screen higher, a control character, or the lines of our own go away."""
    width, height = size
    questions = tuple(Question(hook=hook, prompt=prompt) for hook, prompt in prompts)
    reasons = tuple(Assessment(by=hook, risk="medium", reason=prompt) for hook, prompt in prompts)
    try:
        request = a_request(questions=questions, assessments=reasons, **fields)
    except ValueError:
        return  # a lone surrogate is in no frozen input
    pages = CardPages()
    form, _ = draw(begin(request, 0.0), scene(width, height), pages)
    pressed = press(form, key, 10.0) if key else form
    assert isinstance(pressed, Form)
    _, sheet = draw(pressed, evolve(scene(width, height), more=12_345), pages)
    lines = [text_of(line) for line in sheet.lines]
    assert len(lines) + sheet.field <= height
    for line in lines:
        assert width_of(line) <= width
        assert line.isprintable()
    if width >= MIN_WIDTH and height >= MIN_HEIGHT:
        shown = "\n".join(lines)
        assert len(lines) + sheet.field == height
        assert f"{request.digest[:4]} {request.digest[4:8]} --" in shown.replace("─", "-")
        assert "4:12 left" in lines[0]
        assert "denied" in shown
        assert " d Deny" in shown
        assert not [line for line in sheet.above[3:] if line and not line[0][1].startswith(" ")]
    elif height >= 6 and width >= 20:
        assert lines[-3].startswith(f" {request.digest[:4]} {request.digest[4:8]}")
        assert lines[-1].split()[1:3] == ["d", "Deny,"]


@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize("label", ["Allow once", "Allow in staging only"])
def test_answers_that_need_more_or_fewer_lines(label: str) -> None:
    """The card is as high as the screen also in the moment in which the person has read on and the answers change."""
    options = (Option(id="1", label=label, kind="allow_once"), Option(id="2", label="Deny", kind="reject_once"))
    request = a_request(arguments={"command": "line\n" * 12}, options=options)
    widths = range(MIN_WIDTH, 131, 1 if THOROUGH else 6)
    for width, height in itertools.product(widths, (MIN_HEIGHT, 13, 24)):
        pages, form = CardPages(), begin(request, 0.0, may_wait=True)
        for _ in range(24):
            form, sheet = draw(form, scene(width, height), pages)
            assert len(sheet.lines) == height
            moved = press(form, "pagedown", 10.0)
            assert isinstance(moved, Form)
            form = moved
        assert "action" in form.whole


@pytest.mark.rule("BCK-1", "APR-2")
def test_whole_card() -> None:
    """The card is as the specs draw it, at the usual size and at the smallest on which it can be read."""
    request = a_request(
        agent="coder › release-helper",
        cwd="~/shop",
        tool="Edit",
        arguments={
            "file_path": "config/production.yaml",
            "old_string": "replicas: 4\ntimeout_ms: 8000\ncurrency: EUR",
            "new_string": "replicas: 4\ntimeout_ms: 3000\npayment_retries: 2\ncurrency: EUR",
            "description": "Switch checkout to the live provider.",
        },
        questions=(
            Question(hook="protect-production", prompt="Allow a change to a file that production reads?"),
            Question(hook="change-window", prompt="Outside the change window. Go ahead?"),
        ),
        assessments=(
            Assessment(by="protect-production", risk="medium", reason="changes a file that production reads"),
        ),
    )
    page = (Path(__file__).parents[3] / "specs" / "backends.md").read_text(encoding="utf-8")
    large, small = re.findall(r"```text\n(── Approval.*?)```", page, re.DOTALL)
    assert card(begin(request, 0.0), more=3)[1] == large.splitlines()
    assert card(begin(request, 0.0), 40, 12)[1] == small.splitlines()
    assert card(begin(request, 0.0), 40, 12, more=3)[1][0].startswith("── 3 more waiting ──")


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-08")
def test_long_text() -> None:
    """Every line of a page longer than the screen can be read; runs of blanks tell their length."""
    text = "begin" + " " * 5_000 + "\t" * 500 + "x\n" + "\n" * 60 + "y" * 100_000 + "end"
    form, lines = card(begin(a_request(arguments={"command": text}), 0.0), 100, 40)
    assert "⟨500 tabs, 5,000 spaces⟩" in "".join(lines)
    seen = list(lines)
    while form.unread:
        moved = press(form, "pagedown", 10.0)
        assert isinstance(moved, Form)
        form, lines = card(moved, 100, 40)
        seen += lines
    letters = "".join(line[3:] for line in dict.fromkeys(seen) if line.startswith((" │ ", " ┊ ")))
    assert "yend" in letters
    assert "all seen" in "".join(lines)
    assert "⟨61 newlines⟩" in "".join(seen)


@pytest.mark.rule("BCK-1", "APR-4")
def test_default_that_allows() -> None:
    """If silence allows, the card says so, and not in passing."""
    _, sheet = draw(begin(a_request(default="allow"), 0.0), scene(), CardPages())
    assert ("class:mid", "allowed.") in [part for line in sheet.lines for part in line]


@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0:00"),
        (-3, "0:00"),
        (59.9, "0:59"),
        (252, "4:12"),
        (3_600, "1 h 00"),
        (23.5 * 3600, "23 h 30"),
        (1e6, "11 days"),
    ],
)
def test_time_left(seconds: float, said: str) -> None:
    """The card shows the time left to the second for as long as that helps."""
    assert time_left(seconds) == said


@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize("colour", sorted({word for style in STYLES.values() for word in style.split() if "#" in word}))
def test_colours(colour: str) -> None:
    """Every colour can be read on white and on black."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    assert min(1.05 / (light + 0.05), (light + 0.05) / 0.05) >= 4.4


@pytest.mark.rule("APR-7")
def test_changes() -> None:
    """Edited arguments are shown as their changes, under the digest of the edited action."""
    form = change_arguments(begin(a_request(arguments={"path": "a"}), 0.0), {"path": "b"}, 1.0)
    _, lines = card(form)
    assert ' - │   "path": "a"' in lines
    assert ' + │   "path": "b"' in lines
    assert f"{form.digest[:4]} {form.digest[4:8]} ──" in "\n".join(lines)


@pytest.mark.rule("BCK-1")
def test_pages_are_laid_out_once() -> None:
    """A page is laid out once for each width, so that a card of a megabyte costs nothing while it waits."""
    pages = CardPages()
    form = begin(a_request(), 0.0)
    first = pages.lines(form, scene())
    assert pages.lines(form, scene(height=10)) is first
    assert pages.lines(form, scene(width=40)) is not first
    allow, deny = (press(form, key, 10.0) for key in "wn")
    assert isinstance(allow, Form)
    assert isinstance(deny, Form)
    assert pages.lines(allow, scene()) != pages.lines(deny, scene())


@pytest.mark.rule("APR-5", "BCK-1")
@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 200])
def test_the_two_kinds_of_always_differ(width: int) -> None:
    """An "always" for the session and one for the project have labels of their own at every width."""
    request = a_request(options=with_project([ALLOW, ALWAYS, DENY]), keep=60.0)
    _form, lines = card(begin(request, 0.0), width, 24)
    shown = " ".join(lines)
    assert "w Always: session…" in shown
    assert "1 Always: project…" in shown
