"""The terminal as an approval backend: in a session, and against the promises of every backend."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyte
import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import ApprovalTimeout
from approval_backends import TerminalApprovals
from approval_backends.backend import RacingApprovals
from approval_backends.lifecycle import Decider
from approval_backends.terminal.form import WaitingQuestion
from approval_backends.terminal.prompt import TerminalPrompt
from approval_backends.testing import BACKEND_CHECKS, BackendCheck, BackendSubject, a_request, name_of
from tests.person import Person, Screen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_hooks.ports import ApprovalRequest, Option


class Desk:
    """A person at a pseudo-terminal in this very process, who answers the card that is on screen."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        os.set_blocking(self._ours, False)
        self._files = (os.fdopen(os.dup(theirs), encoding="utf-8"), os.fdopen(theirs, "w", encoding="utf-8"))
        self.passed = timedelta()
        self.prompt = TerminalPrompt(
            stdin=self._files[0], stdout=self._files[1], clock=lambda: datetime.now(UTC) + self.passed
        )
        self._screen = Screen(100, 40)
        self._stream = pyte.ByteStream(self._screen)

    async def sees(self, *texts: str) -> None:
        """Wait until all of these can be read."""
        while not all(text in "\n".join(self._screen.display) for text in texts):
            try:
                self._stream.feed(os.read(self._ours, 1 << 16))
            except BlockingIOError:
                await asyncio.sleep(0.01)

    async def answer(self, request: ApprovalRequest, option: Option) -> None:
        """Answer this request with this option, once it is on screen."""
        digest = f"digest {request.digest[:4]} {request.digest[4:8]}"
        await self.sees(digest, "▸ d Deny", "Enter confirms")
        if option.allows:
            self.types("a")
            await self.sees(digest, "▸ a Allow", "Enter confirms")
        self.types("\r")

    def modes(self) -> object:
        """The modes of the terminal's input."""
        return termios.tcgetattr(self._files[0])

    @property
    def other_screen(self) -> bool:
        """True if the terminal shows its alternate screen, which is only for the card."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._stream.feed(os.read(self._ours, 1 << 16))
        return self._screen.other

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def close(self) -> None:
        """Close both ends."""
        os.close(self._ours)
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    """A desk for a while."""
    one = Desk()
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend a terminal that can draw, whatever the tests run in."""
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.rule("BCK-1", "APR-3", "APR-6")
@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=name_of)
async def test_conformance(check: BackendCheck) -> None:
    """The terminal keeps every promise of `ApprovalBackend`."""
    async with desk() as one:
        await check(BackendSubject(TerminalApprovals("Robin", prompt=one.prompt), one.answer))


@pytest.mark.rule("BCK-1", "APR-4", "APR-7")
async def test_in_a_session() -> None:
    """In a session, an action allowed on the card runs, and a refused one does not."""
    registry = HookRegistry()

    @registry.gate("tool:pre", name="guard")
    async def ask(event: str, data: object) -> HookResult:
        return HookResult.ask("Really?", options=["Allow once", "Deny"], timeout=60)

    async with desk() as one:
        approvals = TerminalApprovals("Robin", prompt=one.prompt)
        async with SessionCoordinator(hooks=registry, approvals=approvals) as session:
            calling = asyncio.ensure_future(session.call_tool("Write", {"path": "a.txt"}, lambda _: "it ran"))
            await one.sees("Write  a.txt", "guard  Really?", "Enter confirms")
            one.types("a")
            await one.sees("▸ a Allow once", "Enter confirms")
            one.types("\r")
            assert (await calling).value == "it ran"
            calling = asyncio.ensure_future(session.call_tool("Write", {"path": "b.txt"}, lambda _: "it ran"))
            await one.sees("Write  b.txt", "Enter confirms")
            one.types("\x03")
            assert (await calling).reason == "Operation denied by guard: User denied: Really?"


SESSIONS = """
import asyncio, os, sys
from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import TerminalApprovals

registry = HookRegistry()

@registry.gate("tool:pre", name="guard")
async def ask(event, data):
    return HookResult.ask("Really?", options=["Allow once", "Deny"], timeout=data["tool_input"]["seconds"])

async def call(number, approvals, seconds):
    session = SessionCoordinator(registry, session_id=f"s{number}", approvals=approvals)
    outcome = await session.call_tool("Write", {"number": number, "seconds": seconds}, lambda _: "ran")
    print("RESULT", number, outcome.status, outcome.value, outcome.reason, flush=True)

async def main():
    shared = TerminalApprovals()
    calls = [asyncio.ensure_future(call(0, shared, 90))]
    while os.isatty(1): await asyncio.sleep(0.01)
    calls.append(asyncio.ensure_future(call(1, shared, 90)))
    calls.append(asyncio.ensure_future(call(2, TerminalApprovals(), 2)))
    calls.append(asyncio.ensure_future(call(3, TerminalApprovals(), 90)))
    await asyncio.gather(*calls)

asyncio.run(main())
print("LEFT", flush=True)
print("READ", repr(sys.stdin.readline()), flush=True)
"""


@pytest.mark.rule("BCK-1", "APR-4", "APR-6")
@pytest.mark.fault("F-CLI-11")
def test_sessions_at_one_terminal() -> None:
    """Calls of several sessions, through one backend or several, are asked about in turn, each within its own time."""
    person = Person(program=SESSIONS, size=(110, 24))
    person.sees("number   0", "3 more waiting")
    person.sees("number   0", "· 2 more waiting")
    for number in (0, 1, 3):
        person.sees(f"number   {number}")
        person.selects("a", "a Allow once")
        person.types("\r")
    person.sees(*(f"RESULT {number} ok ran None" for number in (0, 1, 3)))
    person.sees("RESULT 2 denied None Operation denied by guard: Timeout - denied by default")
    assert "no answer came, so it is denied and nothing runs" in person.text
    person.leaves()


@pytest.mark.rule("BCK-1")
async def test_withdrawn() -> None:
    """A question that is withdrawn goes from the screen, with the reason in its place."""
    async with desk() as one:
        approvals = TerminalApprovals(prompt=one.prompt)
        now = datetime.now(UTC)
        request = a_request(created=now, expires=now + timedelta(minutes=1))
        asking = asyncio.ensure_future(approvals.request(request))
        await one.sees("Enter confirms")
        await approvals.withdraw(request.id, "Jun allowed this in the page")
        await one.sees("Jun allowed this in the page")
        await asyncio.wait({asking})
        assert str(asking.exception()) == "Jun allowed this in the page"


@pytest.mark.rule("BCK-1", "APR-4")
@pytest.mark.fault("F-CLI-05")
@pytest.mark.parametrize("keys", ["", "\x03"], ids=["silent", "answered"])
async def test_the_clock_jumps(keys: str) -> None:
    """After a sleep of the machine a card whose time is up goes, and a key that is pressed at once answers nothing."""
    async with desk() as one:
        approvals = TerminalApprovals(prompt=one.prompt)
        now = datetime.now(UTC)
        request = a_request(created=now, expires=now + timedelta(minutes=1))
        asking = asyncio.ensure_future(approvals.request(request))
        await one.sees("Enter confirms")
        one.passed = timedelta(hours=1)
        one.types(keys)
        with pytest.raises(ApprovalTimeout):
            await asking
        await one.sees("no answer came, so it is denied")


@pytest.mark.rule("BCK-1", "BCK-7")
@pytest.mark.fault("F-CLI-05")
async def test_decided_elsewhere() -> None:
    """If another channel of a race was quicker, the card goes, and says who it was."""
    async with desk() as one:
        race = RacingApprovals(TerminalApprovals(prompt=one.prompt))
        now = datetime.now(UTC)
        request = a_request(created=now, expires=now + timedelta(minutes=1))
        asking = asyncio.ensure_future(race.request(request))
        await one.sees("Enter confirms")
        kim = Decider(name="Kim", channel="page")
        assert (await race.broker.decide(request.id, request.digest, "allow", kim)).accepted
        await one.sees("approved by Kim (page)")
        assert (await asking).by == "Kim"


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-03")
async def test_what_goes_wrong_on_the_card() -> None:
    """Any error while a card is shown ends it, and the terminal is restored."""
    async with desk() as one:
        modes = one.modes()
        now = datetime.now(UTC)
        request = a_request(created=now, expires=now + timedelta(minutes=1))
        others = iter([()] * 20)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await one.prompt.ask(request, others=lambda: next(others))
        assert one.modes() == modes
        with pytest.raises(ValueError, match="ends"):
            await one.prompt.ask(request, others=lambda: [WaitingQuestion(request, datetime.fromisoformat("ends"))])
        assert one.modes() == modes
        assert not one.other_screen


def low(number: int, **changes: object) -> ApprovalRequest:
    """Return one of many alike requests of low risk, as of now."""
    now = datetime.now(UTC)
    fields = {"risk": "low", "tool": "Bash", "arguments": {"command": f"make t{number}"}, **changes}
    return a_request(number, created=now, expires=now + timedelta(minutes=2), **fields)


@pytest.mark.rule("BCK-11", "BCK-1")
@pytest.mark.parametrize(("letter", "kind"), [("b", "allow_once"), ("x", "reject_once")])
async def test_alike_questions_together(letter: str, kind: str) -> None:
    """One answer answers all alike questions of low risk that were listed; a question of medium risk stays."""
    async with desk() as one:
        approvals = TerminalApprovals("Robin", prompt=one.prompt)
        alike = [low(number) for number in range(3)]
        asking = [asyncio.ensure_future(approvals.ask(request)) for request in alike]
        other = low(9, risk="medium")
        alone = asyncio.ensure_future(approvals.ask(other))
        await one.sees("3 more waiting", "b Allow all 3", "x Deny all 3", "Enter confirms")
        one.types(letter)
        await one.sees("3 alike actions of low risk", "make t0", "make t1", "make t2", "Enter confirms")
        one.types("\r")
        decisions = await asyncio.gather(*asking)
        assert len(decisions) == len(alike)
        for request, decision in zip(alike, decisions, strict=True):
            assert [option.kind for option in request.options if option.id == decision.option] == [kind]
        await one.sees("make t9", "Medium risk", "Enter confirms")
        assert not alone.done()
        one.types("\r")
        assert (await alone).option == next(option.id for option in other.options if option.kind == "reject_once")


@pytest.mark.rule("BCK-11")
async def test_another_question_ends_earlier() -> None:
    """The card says when another question that waits ends before this one."""
    async with desk() as one:
        request, sooner = low(1, risk="medium"), low(2, risk="medium")
        asking = asyncio.ensure_future(one.prompt.ask(request))
        await one.sees("make t1", "Enter confirms")
        hurried = asyncio.ensure_future(one.prompt.ask(sooner, until=datetime.now(UTC) + timedelta(seconds=50)))
        await one.sees("1 more waiting, one ends in 0:4")
        asking.cancel()
        hurried.cancel()
        await asyncio.wait({asking, hurried})


@pytest.mark.rule("BCK-10")
async def test_calls_of_the_session_so_far() -> None:
    """Beside an "always", a terminal without a store counts the questions that it was asked before."""
    async with desk() as one:
        approvals = TerminalApprovals("Robin", prompt=one.prompt)
        for number in range(2):
            request = low(number, risk="medium")
            asking = asyncio.ensure_future(approvals.ask(request))
            await one.sees(f"make t{number}", "Enter confirms")
            one.types("w")
            await one.sees(f"Would have covered {number} call", "Enter confirms")
            one.types("d")
            await one.sees("▸ d Deny", "Enter confirms")
            one.types("\r")
            await asking
