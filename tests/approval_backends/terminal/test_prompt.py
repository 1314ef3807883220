"""A person answers at a terminal: real pseudo-terminals, as bytes and as what can be seen."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from approval_backends.terminal.prompt import Turns
from tests.loop_imports import MOST, WATCH
from tests.person import SOON, Person

HOSTILE = "ok\x1b[2J\x1b[1;1H\x1b]52;c;cm0=\x07\x08\x9b31m\r\u202egnp.\u200b\x00\nResult: allowed & <b>{x} %s"
CONTROLS = ("\x1b[2J", "\x1b[1;1H", "\x1b]52", "\x07", "\x9b31m", "\u202e", "\u200b", "\x00")
EDIT = {
    "file_path": "app.py",
    "old_string": "a = 1\nb = 2",
    "new_string": "a = 1\nb = 3",
    "description": "rename a variable",
}


@pytest.mark.rule("BCK-1", "APR-2")
@pytest.mark.fault("F-CLI-12")
def test_what_is_shown() -> None:
    """The card has all facts, the action before the agent's own words, and a refusal selected."""
    person = Person({"tool": "Edit", "arguments": EDIT, "risk": "medium"})
    person.sees("Enter confirms")
    lines = person.lines
    assert lines[0].startswith("── Approval ───")
    assert lines[0].endswith(" left ──")
    assert lines[1:4] == [" ◆ Medium risk", " coder wants to run, in ~/shop", " Edit  app.py"]
    assert lines[5:11] == ["   │ a = 1", " - │ b = 2", " + │ b = 3", " 1 line added, 1 removed", "", lines[10]]
    assert lines[10:12] == [" guard           Really?", " the agent says  rename a variable (not checked)"]
    assert lines[-5].startswith("── all shown ──")
    assert lines[-4].startswith(" Without an answer by ")
    assert lines[-4].endswith(", this is denied.")
    assert lines[-3].startswith(" ▸ d Deny    m Deny with message ")
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.rule("DSP-10")
def test_first_card() -> None:
    """The first card imports next to nothing on the loop."""
    count = "await asyncio.gather(*asking)\nprint('LOADED', len(watch.seen), *watch.seen, flush=True)"
    person = Person({"arguments": EDIT}, before=f"{WATCH}\nwatch.on = True", others=count, size=(200, 24))
    person.selects("a", "a Allow")
    person.confirms("allow None null")
    person.sees("LOADED")
    [loaded] = [line.split() for line in person.lines if line.startswith("LOADED")]
    assert int(loaded[1]) <= MOST, loaded


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-07")
def test_letters_that_look_alike() -> None:
    """A word that mixes scripts is named on the card."""
    person = Person({"tool": "Bash", "arguments": {"command": "c\u0430t notes.txt"}}, size=(100, 24))
    person.sees("look twice  Letters that look alike, c\u0430t. One word of Latin and Cyrillic letters.")
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.rule("BCK-1", "APR-6")
@pytest.mark.fault("F-CLI-11")
def test_answers() -> None:
    """Letters and arrows select, Enter confirms; questions come one at a time and each gets its own answer."""
    person = Person(*({"arguments": {"number": number}} for number in range(3)))
    person.sees("number  0", "2 more waiting")
    person.selects("a", "a Allow")
    person.types("\r")
    person.sees("number  1", "1 more waiting")
    person.selects("\x1b[C", "m Deny with message")
    person.selects("\x1b[D", "d Deny")
    person.types("\r")
    person.sees("number  2")
    person.misses("more waiting")
    person.sees("Enter confirms")
    person.types("m")
    person.sees("for the model")
    person.types("not on a Friday")
    person.sees("not on a Friday", "Enter denies")
    person.types("\r")
    person.sees("RESULT 0 allow None null", "RESULT 1 deny None null", "RESULT 2 deny 'not on a Friday' null")
    person.leaves()


LATER = """
import os
global prompt
while os.isatty(1): await asyncio.sleep(0.01)  # standard output leads elsewhere while a card is on the screen
for number, asked in enumerate(later, 1):
    prompt = TerminalPrompt()
    asking.append(asyncio.ensure_future(ask(number, asked)))
    await asyncio.sleep(0)
__THEN__
await asyncio.wait(asking)
"""


def asked_in_between(*requests: dict[str, Any], then: str = "pass") -> Person:
    """Return a person at a card with the number 0, who is asked these meanwhile, each through a prompt of its own."""
    others = LATER.replace("__THEN__", then)
    return Person({"arguments": {"number": 0}}, before=f"later = {requests!r}", others=others, size=(120, 24))


@pytest.mark.rule("BCK-1", "APR-6")
@pytest.mark.fault("F-CLI-11")
def test_asked_while_a_card_is_up() -> None:
    """A question that comes while the card of another is up waits for its turn, in order, and gets its own answer."""
    person = asked_in_between(*({"arguments": {"number": number}} for number in (1, 2)))
    person.sees("number  0", "2 more waiting", "Enter confirms")
    person.types("\r")
    person.sees("number  1", "1 more waiting")
    person.selects("a", "a Allow")
    person.types("\r")
    person.sees("number  2", "Enter confirms")
    person.misses("more waiting")
    person.types("\x1b")
    person.sees("RESULT 0 deny None null", "RESULT 1 allow None null", "RESULT 2 deny None null")
    person.leaves()


@pytest.mark.rule("BCK-1", "APR-4")
@pytest.mark.fault("F-CLI-05", "F-CLI-11")
def test_ends_while_another_card_is_up() -> None:
    """A question that waits behind a card ends when its own time is up or it is cancelled, and the card stays."""
    then = """await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
asking[2].cancel("Jun allowed this in the page")"""
    person = asked_in_between({"seconds": 2}, {}, {"arguments": {"number": 3}}, then=then)
    person.sees("number  0", "3 more waiting")
    person.sees("number  0", "· 1 more waiting", "Enter confirms")
    person.types("\r")
    person.sees("number  3", "Enter confirms")
    person.types("\r")
    person.sees("RESULT 0 deny None null", "RESULT 3 deny None null")
    person.sees("RESULT 1 ApprovalTimeout no answer came in time", "RESULT 2 CancelledError Jun allowed")
    assert "no answer came, so it is denied and nothing runs" in person.text
    assert "Jun allowed this in the page" in person.text
    person.leaves()


@pytest.mark.rule("APR-5", "BCK-1")
def test_always_says_what_it_covers() -> None:
    """The reach of an "always" stands on the card before it counts."""
    person = Person({})
    person.sees("Enter confirms")
    person.types("w")
    person.sees(
        "Allowed without asking again", "Any Write by coder in ~/shop that raises the question “Really?”.", "▸ w"
    )
    person.confirms("always None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("APR-7")
def test_edited_arguments() -> None:
    """Arguments are edited as JSON; broken JSON is an error, and the card shows the changes before they count."""
    person = Person({"arguments": {"path": "a.txt"}})
    person.sees("Enter confirms")
    person.types("e")
    person.sees('"path": "a.txt"', "what would run instead")
    person.types("x\x13")
    person.sees("Line 1, column 1: Expecting value")
    person.types("\x7f\x1b[B\x05\x1b[D\x7f\x7f\x7fmd\x13")
    person.sees('-\u0020│   "path": "a.txt"', '+ │   "path": "a.md"', "Allow edited")
    person.selects("a", "a Allow edited")
    person.confirms('allow None {"path": "a.md"}')
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-01", "F-CLI-02")
def test_typed_ahead_and_pasted() -> None:
    """Keys typed before the card, keys that come too soon and pastes answer nothing."""
    person = Person({}, before="import time; print('WAIT', flush=True); input(); print('GO', flush=True)")
    person.sees("WAIT")
    person.types("\na\r\ra\r")
    person.sees("Enter confirms", "▸ d Deny")
    for keys in ("y", "1", "a\r", "\x1b[200~a\r\x1b[201~", "\x1b[I"):
        person.types(keys)
        person.misses("Enter confirms")
        person.sees("Enter confirms", "▸ d Deny")
    assert "RESULT" not in person.text
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-03")
@pytest.mark.parametrize("key", ["\x03", pytest.param("\x04", marks=pytest.mark.slow), "\x1b"])
def test_keys_that_refuse(key: str) -> None:
    """Ctrl-C, Ctrl-D and Escape refuse; the program goes on and the terminal is as it was."""
    person = Person({})
    person.sees("Enter confirms")
    person.types(key)
    person.sees("RESULT 0 deny None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1", "APR-4")
@pytest.mark.fault("F-CLI-05")
def test_taken_away() -> None:
    """At zero, withdrawn or cancelled, shown or waiting, the card goes, and the person reads why."""
    others = textwrap.dedent("""
        while not prompt._endings: await asyncio.sleep(0.01)
        prompt.dismiss("request-2", "Kim denied this in the page")
        await asyncio.wait({asking[2]})
        asking[1].cancel("Jun allowed this in the page")
    """)
    person = Person({"seconds": 1.5}, {}, {}, size=(120, 24), others=others)
    person.sees("RESULT 2 RequestWithdrawn Kim denied this", "RESULT 1 CancelledError Jun allowed")
    person.sees("RESULT 0 ApprovalTimeout no answer came in time")
    assert "Kim denied this in the page" in person.text
    assert "Jun allowed this in the page" in person.text
    assert "no answer came, so it is denied and nothing runs" in person.text
    person.leaves()


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-04")
@pytest.mark.parametrize("typed", ["y\n", "allow once\n" * 3, None])
def test_no_terminal(typed: str | None) -> None:
    """Without a terminal no person can be asked: any piped input gets that reason."""
    program = """
import asyncio
from approval_backends.terminal.prompt import TerminalPrompt
from approval_backends.testing import a_request
asyncio.run(TerminalPrompt().ask(a_request()))
"""
    command = [sys.executable, "-c", program]
    if typed is None:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    run = subprocess.run(command, check=False, input=typed or "", capture_output=True, text=True, timeout=SOON)
    assert run.stderr.endswith("BackendUnavailable: no interactive terminal to ask in\n")


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-04")
def test_dumb_terminal() -> None:
    """On a terminal that cannot draw a card no person is asked either."""
    person = Person({}, size=(100, 24), environment={"TERM": "dumb"})
    person.sees("RESULT 0 BackendUnavailable no interactive terminal to ask in: TERM says it cannot draw")
    person.leaves()


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-06", "F-CLI-07", "F-CLI-09")
def test_hostile_text() -> None:
    """No control character in foreign text reaches the terminal; each can be seen, and nothing is markup."""
    hostile = {"agent": HOSTILE, "tool": HOSTILE, "cwd": HOSTILE, "arguments": {HOSTILE: HOSTILE}}
    person = Person({**hostile, "questions": [{"hook": HOSTILE, "prompt": HOSTILE}]}, size=(100, 60))
    person.sees("Enter confirms", "all shown", r"\u{1B}[2J", r"\u{07}\u{08}", r"\u{202E}gnp.\u{200B}", "& <b>{x} %s")
    for control in CONTROLS:
        assert control.encode() not in person.raw
    assert not [line for line in person.lines if line.startswith("Result")]
    person.confirms("deny None null")
    for control in CONTROLS:
        assert control.encode() not in person.raw
    person.leaves()


# -- one card at a time ------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-11")
async def test_in_order() -> None:
    """Turns come in the order of the calls; a caller that stops waiting is passed over."""
    turns = Turns()
    seen: list[int] = []

    async def one(number: int) -> None:
        async with turns.take_turn():
            seen.append(number)
            await asyncio.sleep(0)

    async with turns.take_turn():
        tasks = [asyncio.ensure_future(one(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert (turns.waiting, seen) == (4, [])
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert turns.waiting == 3
    await asyncio.wait(tasks)
    assert seen == [0, 2, 3]
    assert turns.waiting == 0


@pytest.mark.rule("BCK-1")
async def test_cancelled_in_the_instant_of_the_turn() -> None:
    """A caller that is cancelled in the instant of its turn passes the turn on."""
    turns = Turns()
    entered = asyncio.Event()

    async def one() -> None:
        async with turns.take_turn():
            entered.set()

    async with turns.take_turn():
        first, second = asyncio.ensure_future(one()), asyncio.ensure_future(one())
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first, second})
    assert first.cancelled()
    assert entered.is_set()


@pytest.mark.rule("BCK-1")
def test_across_threads() -> None:
    """Loops in other threads take turns with each other."""
    turns = Turns()
    inside: list[int] = []
    most: list[int] = []

    async def many() -> None:
        for _ in range(50):
            async with turns.take_turn():
                inside.append(1)
                most.append(len(inside))
                await asyncio.sleep(0)
                inside.pop()

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(most) == 200
    assert max(most) == 1
