"""The effect of keys on a card, and the keys that can ever allow."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.approvals import with_project
from amplifier_hooks.ports import Option
from approval_backends.terminal.form import (
    ARMING,
    KEYS,
    PAUSE,
    Chosen,
    Form,
    Later,
    begin,
    change_arguments,
    code_of,
    keep_message,
    press,
    refuse_with,
)
from approval_backends.testing import ALLOW, ALWAYS, DENY, a_request

LATER = 10.0
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*KEYS, "enter", "interrupt", "paste", *"adnwmevy1 0F"]), st.sampled_from([0.0, 0.1, 0.3, 0.6])
    ),
    max_size=30,
)


def form(*, risk: str = "medium", length: int = 5, rows: int = 10, fits: bool = True) -> Form:
    """Return a card that was just drawn, with a page of this length on a screen with so many rows for it."""
    return begin(a_request(risk=risk), 0.0).after_drawing(width=80, rows=rows, length=length, fits=fits)


def after(card: Form, *keys: str, length: int = 5) -> Form:
    """Return the card after these keys, each pressed with all the time it takes."""
    now = LATER
    for key in keys:
        now += LATER
        result = press(card, key, now)
        assert isinstance(result, Form), key
        card = result.after_drawing(width=card.width, rows=card.rows, length=length, fits=card.fits)
    return card


def confirmed(card: Form) -> Form | Chosen | Later:
    """Return the result of Enter, after a while."""
    return press(card, "enter", 1_000.0)


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-02")
@given(STEPS, st.sampled_from(["low", "medium", "high"]), st.sampled_from([5, 40]), st.booleans())
def test_what_can_allow(steps: list[tuple[str, float]], risk: str, length: int, fits: bool) -> None:
    """Only Enter ever allows: after a pause, on a screen that can be read, with everything read or the code written."""
    card = form(risk=risk, length=length, fits=fits)
    now, times = 0.0, [0.0]
    for key, pause in steps:
        now += pause
        times.append(now)
        result = press(card, key, now)
        assert not isinstance(result, Later)
        if isinstance(result, Chosen):
            if result.option.allows:
                assert key == "enter"
                assert now - times[-2] >= PAUSE
                assert now >= ARMING
                assert card.fits
                assert not card.unread or (card.code == code_of(card.digest) and not card.verb.lasts)
                assert risk != "high" or (card.code == code_of(card.digest) and not card.unread)
            return
        page_length = length if result.page == "action" else 5
        card = result.after_drawing(width=80, rows=10, length=page_length, fits=fits)
    assert len(times) == len(steps) + 1
    assert all(later >= earlier for earlier, later in pairwise(times))


@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize("key", [*KEYS, "enter", "a", "paste"])
def test_nothing_counts_while_arming(key: str) -> None:
    """A key in the first half second is lost, and the half second begins anew."""
    lost = press(form(), key, 0.49)
    assert isinstance(lost, Form)
    assert (lost.selected, lost.page) == (0, "action")
    assert not lost.is_armed(0.98)
    assert lost.is_ready(1.0)


@pytest.mark.rule("BCK-1")
def test_interrupting_refuses_at_once() -> None:
    """Ctrl-C refuses even then; a written message is sent along."""
    refused = press(form(), "interrupt", 0.1)
    assert isinstance(refused, Chosen)
    assert refused.option.id == "deny"
    assert press(evolve(form(), message=" why? "), "interrupt", 0.1) == Chosen(refused.option, "why?")


@pytest.mark.rule("BCK-1")
def test_enter_right_after_a_key() -> None:
    """Enter right after another key is a paste or an accident: it puts a refusal back."""
    card = press(form(), "a", LATER)
    assert isinstance(card, Form)
    assert card.verb.letter == "a"
    back = press(card, "enter", LATER + 0.15)
    assert isinstance(back, Form)
    assert (back.verb.letter, back.note, back.is_armed(LATER + 0.6)) == ("d", "too quick", False)
    assert isinstance(press(card, "enter", LATER + PAUSE), Chosen)


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-02")
def test_pasted() -> None:
    """Pasted text selects nothing, and puts a refusal back."""
    back = press(after(form(), "a"), "paste", 1_000.0)
    assert isinstance(back, Form)
    assert (back.verb.letter, back.is_armed(1_000.4)) == ("d", False)


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-08")
def test_unread() -> None:
    """An action that was not read whole is allowed with four characters of its digest, or once it was read."""
    card = form(length=25)
    allow = press(card, "a", LATER)
    assert isinstance(allow, Form)
    assert confirmed(allow) == evolve(allow, note="not that")
    for character in code_of(card.digest).lower():
        written = press(allow, character, LATER)
        assert isinstance(written, Form)
        allow = written
    assert isinstance(confirmed(allow), Chosen)
    card = after(card, "pagedown", "pagedown", length=25)
    assert (card.top, card.unread) == (15, False)
    assert isinstance(confirmed(after(card, "a")), Chosen)


@pytest.mark.rule("BCK-1")
def test_nothing_is_skipped() -> None:
    """Reading goes on where it stopped: neither the last line nor a burst of keys jumps over what was not shown."""
    card = form(length=100)
    for key in ("end", "pagedown", "pagedown"):
        moved = press(card, key, LATER)
        assert isinstance(moved, Form)
        card = moved
    assert card.top == 10
    card = card.after_drawing(width=80, rows=10, length=100, fits=True)
    assert card.read["action"] == 20
    assert card.after_drawing(width=60, rows=10, length=130, fits=True).read["action"] == 10
    whole = form(length=5).after_drawing(width=60, rows=3, length=9, fits=True)
    assert not whole.unread


@pytest.mark.rule("BCK-1")
def test_high_risk() -> None:
    """A high risk has no "always", has to be read whole, and takes the code."""
    card = form(risk="high")
    assert [verb.letter for verb in card.verbs] == ["d", "m", "n", "a", "e"]
    allow = after(card, "a")
    assert isinstance(confirmed(allow), Form)
    allow = after(allow, *code_of(card.digest))
    assert isinstance(confirmed(allow), Chosen)
    unread = after(form(risk="high", length=50), "a")
    unread = evolve(unread, whole=frozenset())
    assert unread.asleep
    assert confirmed(unread) == unread


@pytest.mark.rule("APR-5")
def test_always_is_read_first() -> None:
    """Before "always" counts, both the action and its reach have to have been on screen; no code stands in for that."""
    card = after(form(), "w")
    assert card.page == "reach"
    assert isinstance(confirmed(card), Chosen)
    for page in ("action", "reach"):
        unread = evolve(card, whole=card.whole - {page})
        assert unread.asleep
        assert not unread.wants_code
        assert confirmed(unread) == unread


@pytest.mark.rule("APR-5")
def test_each_always_is_read_first() -> None:
    """The reach of another "always" is another text: it has to be on screen too, and Enter waits for it."""
    options = with_project([ALLOW, ALWAYS, DENY])
    card = after(begin(a_request(options=options), 0.0).after_drawing(width=80, rows=9, length=3, fits=True), "w")
    other = press(card, "1", LATER * 3)
    assert isinstance(other, Form)
    assert [one.verb.option for one in (card, other)] == [options[1], options[2]]
    assert (card.unread, other.page, other.unread, other.is_ready(LATER * 3 + PAUSE)) == (False, "reach", True, False)
    assert other.after_drawing(width=80, rows=3, length=4, fits=True).unread


@pytest.mark.rule("BCK-1")
def test_small_screen() -> None:
    """On a screen too small for reading, Enter refuses, whatever was selected."""
    card = after(form(fits=False), "a")
    refused = confirmed(card)
    assert isinstance(refused, Chosen)
    assert not refused.option.allows


@pytest.mark.rule("APR-7")
def test_message_and_edit() -> None:
    """A kept message goes with the refusal and is not lost; edited arguments are confirmed on a page of their own."""
    card = keep_message(after(form(), "m"), "not now", LATER)
    assert confirmed(card) == Chosen(card.verbs[0].option, "not now")  # type: ignore[arg-type]
    assert confirmed(after(card, "a")) == after(card, "a")
    assert refuse_with(card, " later ").message == "later"
    arguments = {"file_path": "other.txt", "content": "pass"}
    card = form()
    assert change_arguments(card, card.request.arguments, LATER).note == "nothing was changed"
    edited = change_arguments(card, arguments, LATER)
    assert (edited.page, edited.verb.letter, edited.unread) == ("changes", "d", True)
    edited = edited.after_drawing(width=80, rows=10, length=5, fits=True)
    allowed = confirmed(after(edited, "a"))
    assert isinstance(allowed, Chosen)
    assert allowed.arguments == arguments
    assert edited.digest != card.digest
    assert after(edited, "escape").arguments is None


@pytest.mark.rule("CLI-2", "BCK-1")
def test_later() -> None:
    """Only a question that may wait can be left open, with its letter and Enter; until then keys count as for any."""
    card = begin(a_request(), 0.0, may_wait=True).after_drawing(width=80, rows=10, length=5, fits=True)
    assert confirmed(after(card, "l")) == Later()
    assert press(after(card, "l"), "enter", 0.1) != Later()
    assert after(form(), "l").verb == form().verb
    assert isinstance(confirmed(evolve(after(card, "l"), fits=False)), Chosen)


@pytest.mark.rule("BCK-1", "APR-11")
def test_labels() -> None:
    """A label that does not say what its option does has that beside it; every option has a letter of its own."""
    options = (
        Option(id="1", label="Yes", kind="allow_once"),
        Option(id="2", label="Allow", kind="reject_once"),
        Option(id="3", label="Only staging", kind="reject_once"),
    )
    verbs = begin(a_request(options=options), 0.0).verbs
    assert [(verb.letter, verb.label) for verb in verbs] == [
        ("d", "Allow (deny)"),
        ("m", "Deny with message"),
        ("1", "Only staging (deny)"),
        ("a", "Yes"),
        ("e", "Edit"),
    ]


@pytest.mark.rule("BCK-11")
def test_a_group_is_read_first() -> None:
    """A group is allowed once its list has been on screen; while it is open, it stays as it is."""
    others = (a_request(2, risk="low"), a_request(3, risk="low"))
    card = form(risk="low").with_alike(others)
    assert [verb.letter for verb in card.verbs][-2:] == ["x", "b"]
    listed = press(card, "b", LATER)
    assert isinstance(listed, Form)
    assert (listed.page, listed.asleep) == ("group", "read on first: PgDn")
    assert confirmed(listed) == listed
    assert listed.with_alike(others[:1]) == listed
    read = listed.after_drawing(width=80, rows=10, length=3, fits=True)
    assert confirmed(read) == Chosen(read.verb.option, together=others)  # type: ignore[arg-type]
    assert read.verb.allows
    assert card.with_alike(()).verbs == card.offered
