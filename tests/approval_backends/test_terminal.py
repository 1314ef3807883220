"""A person at a terminal: through a real pseudo-terminal, as bytes and as what is on the screen."""

from __future__ import annotations

import json
import subprocess
import sys
import termios
from typing import Any, cast

import pexpect
import pyte
import pytest

from approval_backends.terminal import QUOTED, quoted

ROWS, COLUMNS = 40, 100
SOON = 10  # seconds; nothing here takes that long unless it is broken

# Asks once for each prompt, prints what became of it, then reads a line to show that the terminal is as it was.
PROGRAM = """
import asyncio, json, select, sys
import prompt_toolkit
from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import TerminalApprovals

given = json.loads(sys.argv[1])
registry = HookRegistry()

@registry.gate("tool:pre", name=given["hook"])
async def ask(event, data):
    prompt = given["prompts"][data["tool_input"]["number"]]
    return HookResult.ask(prompt, options=["Allow once", "Deny"], timeout=given["timeout"])

async def call(session, number):
    result = await session.call_tool(given["tool"], {**given["input"], "number": number}, lambda _: "it ran")
    print("RESULT", number, result.value or result.reason, flush=True)

async def main():
    if given["hold"]:
        select.select([sys.stdin], [], [])
    robin = TerminalApprovals("robin")
    async with SessionCoordinator(hooks=registry, approvals=robin, agent=given["agent"]) as session:
        await asyncio.gather(*(call(session, number) for number in range(len(given["prompts"]))))

asyncio.run(main())
if sys.stdin and sys.stdin.isatty():
    print("READ", repr(sys.stdin.readline()), flush=True)
"""
GIVEN = {
    "agent": "coder",
    "tool": "Write",
    "input": {"path": "a.txt"},
    "hook": "guard",
    "prompts": ["Really?"],
    "timeout": 60,
    "hold": False,
}


class Person:
    """Somebody at a terminal of 100 by 40 in which the program runs."""

    def __init__(self, **given: Any) -> None:
        environment = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"  # nobody here answers where the cursor is
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", PROGRAM, json.dumps(GIVEN | given)],
            env=environment,
            dimensions=(ROWS, COLUMNS),
            timeout=SOON,
        )
        self.modes = termios.tcgetattr(self.child.child_fd)
        self.raw = b""

    def sees(self, text: str) -> None:
        """Wait until the program has written this."""
        self.child.expect_exact(text)
        self.raw += cast("bytes", self.child.before) + cast("bytes", self.child.after)

    def types(self, keys: str) -> None:
        """Press keys."""
        self.child.send(keys)

    def ends_with(self, result: str, number: int = 0) -> None:
        """Read what became of it, find the terminal as it was, and leave."""
        self.sees(f"RESULT {number} {result}")
        self.child.expect_exact("\r\n")
        assert termios.tcgetattr(self.child.child_fd) == self.modes
        self.types("bye\n")
        self.sees("READ 'bye\\n'")
        self.child.expect(pexpect.EOF)

    @property
    def screen(self) -> list[str]:
        """The lines a person sees."""
        screen = pyte.Screen(COLUMNS, ROWS)
        pyte.ByteStream(screen).feed(self.raw)
        return [line.rstrip() for line in screen.display if line.strip()]


def piped(text: str | None, **given: Any) -> str:
    """Run the program without a terminal, with this as its input; None closes the input."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(GIVEN | given)]
    if text is None:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    run = subprocess.run(command, check=False, input=text or "", capture_output=True, text=True, timeout=SOON)
    assert run.returncode == 0, run.stderr
    return run.stdout


# -- answering ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-1")
def test_what_is_shown() -> None:
    """The question shows the action first and in full, then who asks and why, what silence means, and the choice."""
    person = Person()
    person.sees("Answer:")
    person.types("deny\r")
    person.ends_with("Operation denied by guard: User denied: Really?")
    lines = person.screen
    assert lines[:3] == ["coder wants to run Write", '  {"number":0,"path":"a.txt"}', "guard asks: Really?"]
    assert lines[3].startswith("If nobody answers: denied. Digest ")
    assert lines[4] == "Type one of: Allow once, Deny"


@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize(
    ("typed", "result"), [("Allow once", "it ran"), (" allow ONCE ", "it ran"), ("deny", "Operation denied")]
)
def test_answer_by_label(typed: str, result: str) -> None:
    """The answer is an option's label, typed out in any case."""
    person = Person()
    person.sees("Answer:")
    person.types(f"{typed}\r")
    person.ends_with(result)


@pytest.mark.rule("BCK-1", "APR-6")
def test_anything_else() -> None:
    """Anything that is no label is asked for again; a bare Enter or `y` allows nothing."""
    person = Person()
    for typed in ("", "y", "allow", "1"):
        person.sees("Answer:")
        person.types(f"{typed}\r")
        person.sees("\n")
    person.sees("Answer:")
    person.types("deny\r")
    person.ends_with("Operation denied")


@pytest.mark.rule("BCK-1")
def test_one_at_a_time() -> None:
    """Two questions at once are asked one after the other, and each answer belongs to the one that was shown."""
    person = Person(prompts=["First?", "Second?"])
    person.sees("Answer:")
    assert b"Second?" not in person.raw
    person.types("allow once\r")
    person.sees("Second?")
    person.sees("Answer:")
    person.types("deny\r")
    person.ends_with("Operation denied by guard: User denied: Second?", number=1)
    assert b"RESULT 0 it ran" in person.raw


@pytest.mark.rule("BCK-1")
def test_typed_ahead() -> None:
    """What was typed before the question was there answers nothing."""
    person = Person(hold=True)
    person.types("allow once\n")
    person.sees("Answer:")
    person.types("deny\r")
    person.ends_with("Operation denied")


# -- not answering -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-1")
def test_control_c() -> None:
    """Ctrl-C is the person's refusal; the program goes on and the terminal is as it was."""
    person = Person()
    person.sees("Answer:")
    person.types("allow once\x03")
    person.ends_with("Operation denied by guard: User denied: Really?")


@pytest.mark.rule("BCK-1")
def test_end_of_input() -> None:
    """Ctrl-D denies, as nobody's decision; the terminal is as it was."""
    person = Person()
    person.sees("Answer:")
    person.types("\x04")
    person.ends_with("Operation denied by guard: Approval unavailable: the terminal's input ended before an answer")


@pytest.mark.rule("BCK-1", "APR-4")
def test_deadline() -> None:
    """The deadline ends the question, half-typed answer and all, and the terminal is as it was."""
    person = Person(timeout=0.5)
    person.sees("Answer:")
    person.types("allow onc")
    person.ends_with("Operation denied by guard: Timeout - denied by default")


@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize("text", ["y\n", "allow once\n" * 3, "", None])
def test_no_terminal(text: str | None) -> None:
    """Without a terminal nobody can be asked: whatever is piped in, the call is denied with that reason."""
    said = "Operation denied by guard: Approval unavailable: no interactive terminal to ask in"
    assert piped(text) == f"RESULT 0 {said}\n"


# -- hostile text ------------------------------------------------------------------------------------------------------

HOSTILE = "ok\x1b[2J\x1b[1;1H\x07\x08\x9b31m\r\u202egnp.\u200b\x00\nResult: allowed"


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-06", "F-CLI-07")
@pytest.mark.parametrize("place", ["agent", "tool", "hook", "prompts", "input"])
def test_hostile_text(place: str) -> None:
    """Control characters in whatever others wrote reach the terminal as visible escapes, never as bytes."""
    given: dict[str, Any] = {"prompts": [HOSTILE], "input": {HOSTILE: HOSTILE}}
    person = Person(**{place: given.get(place, HOSTILE)})
    person.sees("Type one of: ")
    card = person.raw
    for piece in ("\x1b[2J", "\x1b[1;1H", "\x07", "\x08", "\x9b", "\u202e", "\u200b", "\x00"):
        assert piece.encode() not in card
    assert b"\rResult" not in card
    assert b"\nResult" not in card
    person.sees("Answer:")
    person.types("deny\r")
    person.sees("RESULT")
    person.child.close(force=True)


def test_further_lines_are_marked() -> None:
    """Every further line of what others wrote begins with a mark of ours."""
    assert quoted("fine\nResult: allowed") == f"fine{QUOTED}Result: allowed"
