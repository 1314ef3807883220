"""The card on real terminals: sizes, other output, signals, and a terminal that goes away."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest

from tests.person import Person

CLEAR = "\\x1b[2J\\x1b[1;1HAllow? Enter confirms nothing"
LONG = {"arguments": {"command": "\n".join(f"line {number}" for number in range(60))}}


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize(
    "size",
    [pytest.param((100, 30), marks=pytest.mark.slow), pytest.param((80, 24), marks=pytest.mark.slow), (40, 12)],
)
def test_sizes(size: tuple[int, int]) -> None:
    """At every readable size, the card shows the whole request, with the digest and the choice in place."""
    person = Person(LONG, size=size)
    person.sees("Enter confirms", "▸ d Deny", "1-")
    assert person.lines[0].startswith("── Approval")
    assert len(person.lines) == size[1]
    seen: set[str] = set()
    while "all seen" not in person.text:
        seen |= set(person.lines)
        last = next(line for line in person.lines if " of " in line)
        person.types("\x1b[6~")
        person.misses(last.rstrip("─"))
        person.sees(" of ")
    seen |= set(person.lines)
    assert {f" │ line {number}" for number in range(60)} <= seen
    person.selects("a", "a Allow")
    person.confirms("allow None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-08")
def test_unread() -> None:
    """An unread action is not allowed by a key: it takes the code that the card shows, and the card says why."""
    person = Person({"arguments": {"command": "x" * 100_000}}, size=(100, 40))
    person.sees("Enter confirms", "a Allow (read on)")
    person.types("a")
    person.sees("Not all of it was shown. To allow it, write ")
    code = person.text.partition("To allow it, write ")[2][:4]
    for number, character in enumerate(code, 1):
        person.types(character.lower())
        person.sees(f"Enter: {code[:number]}" if number < len(code) else f"{code} · Enter confirms")
    person.confirms("allow None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
def test_too_small() -> None:
    """On a screen too small for reading, the card only offers to refuse; a larger one brings it back unmoved."""
    person = Person({}, size=(80, 24))
    person.selects("a", "a Allow")
    person.resizes(20, 6)
    person.sees("Too small: 20x6", "▸ d Deny, Enter")
    assert max(map(len, person.lines)) <= 20
    person.resizes(60, 14)
    person.sees("▸ d Deny", "Enter confirms", "all shown")
    person.resizes(20, 6)
    person.sees("▸ d Deny, Enter")
    person.types("\r")
    person.sees("RESULT 0 deny")
    person.child.close()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-10")
def test_what_else_is_printed(tmp_path: Path) -> None:
    """The output of the program, its log and its children waits until the card has gone; nothing of it is lost."""
    others = f"""
while os.isatty(1): await asyncio.sleep(0.01)
for number in range(10_000): print("printed", number)
os.write(1, b"{CLEAR}\\n")
logging.error("logged")
command = "echo from a child; while [ ! -e {tmp_path}/go ]; do :; done; echo later"
child = subprocess.Popen(command, shell=True)
await asyncio.to_thread(child.wait)
"""
    person = Person({}, others=others, before="import logging, os, subprocess; logging.basicConfig(level='DEBUG')")
    person.sees("Enter confirms", "▸ d Deny")
    person.misses(next(word for word in person.lines[0].split() if ":" in word))  # it was drawn again
    assert b"printed" not in person.raw
    assert b"logged" not in person.raw
    assert person.lines[0].startswith("── Approval")
    person.types("\r")
    person.sees("RESULT 0 deny None null")
    tmp_path.joinpath("go").touch()
    person.leaves()
    for line in (b"printed 9999", b"Allow? Enter confirms nothing", b"logged", b"from a child", b"later"):
        assert line + b"\r\n" in person.raw
    assert person.raw.count(b"printed") == 10_000


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-10")
def test_written_past_us() -> None:
    """The card draws over output to the terminal itself within a second, and stands where it stood."""
    person = Person({})
    person.sees("▸ d Deny", "Enter confirms")
    written = f"{CLEAR}\\x1b[10;20H".encode("ascii").decode("unicode_escape")
    Path(f"/proc/{person.child.pid}/fd/0").write_text(written, encoding="ascii")
    person.until(lambda: b"Allow? Enter confirms nothing" in person.raw, "what was written")
    person.misses("Allow? Enter confirms nothing")
    person.sees("▸ d Deny", "Enter confirms")
    assert person.lines[0].startswith("── Approval")
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-03")
def test_hang_up() -> None:
    """A hang-up denies, but as no person's decision; the program lives."""
    person = Person({})
    person.sees("Enter confirms")
    os.kill(person.pid, signal.SIGHUP)
    person.sees("RESULT 0 BackendUnavailable the terminal hung up")
    person.leaves()


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-03")
def test_closed_terminal(tmp_path: Path) -> None:
    """A terminal that is closed denies too; the loop goes on to the end."""
    report = tmp_path / "report"
    others = f"await asyncio.wait({{asking[0]}})\nopen({str(report)!r}, 'w').write(told[0])"
    person = Person({}, others=others, before="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    person.sees("Enter confirms")
    os.close(person.child.child_fd)
    person.child.closed = True  # pexpect would close the number again, whatever it belongs to by then
    os.waitpid(person.pid, 0)
    assert report.read_text() == "BackendUnavailable the terminal's input ended before an answer"


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-03")
def test_stop_and_go_on() -> None:
    """The stopped program leaves the terminal as it was; when it goes on, the card is back and a refusal selected."""
    person = Person({})
    person.selects("a", "a Allow")
    os.kill(person.pid, signal.SIGTSTP)
    os.waitpid(person.pid, os.WUNTRACED)
    person.misses("── Approval")
    assert person.modes_are_back()
    os.kill(person.pid, signal.SIGCONT)
    person.sees("── Approval", "▸ d Deny", "Enter confirms")
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-03")
def test_terminated() -> None:
    """A program that is told to end restores the terminal first."""
    person = Person({})
    person.sees("Enter confirms")
    os.kill(person.pid, signal.SIGTERM)
    person.misses("── Approval")
    person.child.wait()
    assert person.child.signalstatus == signal.SIGTERM
    assert person.modes_are_back()


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-13")
def test_secrets() -> None:
    """A secret is covered, but not the command, the host and the path; the exact arguments show it."""
    token = "ghp_" + "a1" * 18
    command = f"curl -H 'Authorization: Bearer {token}' https://u:hunter2@example.com/x -o y"
    person = Person({"tool": "Bash", "arguments": {"command": command}}, size=(120, 24))
    person.sees("Bearer ⟨secret, 40 characters⟩' https://u:⟨secret, 7 characters⟩@example.com/x -o y", "curl -H")
    assert token.encode() not in person.raw
    person.sees("Enter confirms")
    person.types("v")
    person.sees(token, '"command":', "tenant")
    person.types("v")
    person.sees("⟨secret", "Enter confirms")
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
@pytest.mark.parametrize(
    ("environment", "there", "absent"),
    [
        ({}, (b"38;5;", "▸".encode()), ()),
        ({"NO_COLOR": "1"}, ("▸".encode(),), (b"38;5;", b"\x1b[3", b"\x1b[0;3")),
    ],
)
def test_what_terminals_differ_in(
    environment: dict[str, str], there: tuple[bytes, ...], absent: tuple[bytes, ...]
) -> None:
    """With NO_COLOR there are no colours."""
    person = Person({"arguments": {"where": "café"}}, environment=environment)
    person.sees("Enter confirms")
    assert [part for part in there if part not in person.raw] == []
    assert [part for part in absent if part in person.raw] == []
    person.confirms("deny None null")
    person.leaves()


@pytest.mark.slow
@pytest.mark.rule("BCK-1")
def test_beside_another_prompt() -> None:
    """A prompt of the program's own steps aside for the card, and comes back with its text."""
    others = textwrap.dedent("""
        from prompt_toolkit import PromptSession
        said = await PromptSession("you> ").prompt_async()
        print("SAID", said)
    """)
    person = Person({}, others=others, environment={"PROMPT_TOOLKIT_NO_CPR": "1"})
    person.sees("Enter confirms")
    person.types("\r")
    person.sees("RESULT 0 deny None null", "you>")
    person.types("hello\r")
    person.sees("SAID hello")
    person.leaves()
