"""A question to the person at a terminal: one card at a time, and a line that stays when it has gone."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TextIO

from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.text.escape import clip, for_log
from approval_backends.errors import BackendUnavailable, RequestSkipped, RequestWithdrawn
from approval_backends.terminal.card_queue import turns_at
from approval_backends.terminal.device import terminal_of
from approval_backends.terminal.held_output import held_back

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from amplifier_hooks.ports import ApprovalRequest
    from approval_backends.terminal.device import Terminal
    from approval_backends.terminal.form import Chosen


EXPIRED: Final = "expired"
"""The reason of a session that takes a question back because its time is up."""
LOOK: Final = 0.5
"""Seconds between looks at the clock: it is set, and it goes on while the machine sleeps."""
WORDS: Final = 200
"""Bytes of what others wrote in the line that stays."""


class TerminalPrompt:
    """Puts requests to whoever sits at the terminal: the program's own, or the one at both ends of these streams.

    Any number of prompts may ask at the same terminal, from any thread: they take turns. `clock` says what time it is.
    """

    def __init__(
        self,
        *,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._streams = (stdin, stdout)
        self._clock = clock
        self._asked: dict[str, asyncio.Future[str]] = {}

    async def ask(
        self,
        request: ApprovalRequest,
        *,
        until: datetime | None = None,
        more_waiting: Callable[[], int] = lambda: 0,
        may_wait: bool = False,
    ) -> Chosen:
        """Show the request, wait for an answer, restore the terminal.

        Questions at one terminal are shown one after the other, in the order in which they came; each has its own end,
        shown or not. The card counts down to `until`, by default the request's own end. `more_waiting` says how many
        questions wait beside those that wait here. With `may_wait` the person can leave it open, which raises
        `RequestSkipped`. Raises `ApprovalTimeout` at zero, `RequestWithdrawn` after `dismiss`, and `BackendUnavailable`
        where nobody can be asked, or the terminal goes away. Cancelling it takes the card away; the message of the
        cancellation, if there is one, is what the person reads about it.
        """
        terminal = terminal_of(*self._streams)
        if all(option.allows for option in request.options):
            raise BackendUnavailable("the request offers nothing to refuse with")
        until = until or request.expires
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        showing = asyncio.ensure_future(self._show(request, terminal, until, more_waiting, may_wait=may_wait))
        self._asked[request.id] = gone
        try:
            both: set[asyncio.Future[Any]] = {showing, gone}
            while not (showing.done() or gone.done()) and (left := (until - self._clock()).total_seconds()) > 0:
                await asyncio.wait(both, timeout=min(left, LOOK), return_when=asyncio.FIRST_COMPLETED)
            over = self._clock() >= until or (gone.done() and gone.result() == EXPIRED)
            if showing.done() and not over:
                return self._answered(request, terminal, showing)
            await _taken_away(showing)
            terminal.say(spoken(request, expired(request, until) if over else gone.result()))
            if over:
                raise ApprovalTimeout("nobody answered in time")
            raise RequestWithdrawn(gone.result())
        except asyncio.CancelledError as cancelled:
            why = str(cancelled.args[0]) if cancelled.args and cancelled.args[0] else "it is not asked any more"
            await _taken_away(showing)
            terminal.say(spoken(request, expired(request, until) if self._clock() >= until else why))
            raise
        finally:
            self._asked.pop(request.id, None)
            gone.cancel()

    def dismiss(self, request_id: str, why: str) -> bool:
        """Take a question away, shown or waiting, and tell the person why: who decided it elsewhere, say.

        Whether it was there. Only from the thread that asks.
        """
        gone = self._asked.get(request_id)
        if gone is None or gone.done():
            return False
        gone.set_result(why)
        return True

    async def _show(
        self,
        request: ApprovalRequest,
        terminal: Terminal,
        until: datetime,
        more_waiting: Callable[[], int],
        *,
        may_wait: bool,
    ) -> Chosen:
        turns = turns_at(terminal.number)
        async with turns.mine(), _free_terminal():
            from approval_backends.terminal.application import CardApplication

            card = CardApplication(
                request,
                terminal,
                until=until,
                clock=self._clock,
                more_waiting=lambda: turns.waiting + more_waiting(),
                may_wait=may_wait,
            )
            try:
                with terminal.screen() as screen, held_back(terminal.number):
                    return await card.run(screen)
            finally:
                if card.fatal is not None:
                    signal.raise_signal(card.fatal)

    def _answered(self, request: ApprovalRequest, terminal: Terminal, showing: asyncio.Task[Chosen]) -> Chosen:
        """The answer, and a line about it."""
        try:
            choice = showing.result()
        except RequestSkipped as skipped:
            terminal.say(spoken(request, str(skipped)))
            raise
        except BackendUnavailable as problem:
            terminal.say(spoken(request, f"denied; {problem}"))
            raise
        with_what = ", with a message" if choice.message else ", with other arguments" if choice.arguments else ""
        terminal.say(spoken(request, f"{choice.option.label}{with_what}"))
        return choice


def spoken(request: ApprovalRequest, what: str) -> str:
    """One line about what became of a request."""
    tool, said = (clip(for_log(text), WORDS) for text in (request.tool, what))
    return f"Approval of {tool} (digest {request.digest[:4]} {request.digest[4:8]}): {said}"


def expired(request: ApprovalRequest, at: datetime) -> str:
    """What happens when nobody answers; nobody is said to have denied it."""
    became = "it is allowed by default" if request.default == "allow" else "it is denied and nothing runs"
    return f"expired at {at.astimezone():%H:%M:%S}; nobody answered, so {became}"


@asynccontextmanager
async def _free_terminal() -> AsyncIterator[None]:
    """Make a prompt of the program's own step aside. The first time, a thread loads what a card needs."""
    await asyncio.to_thread(import_module, "approval_backends.terminal.application")
    from prompt_toolkit.application import in_terminal

    async with in_terminal():
        yield


async def _taken_away(showing: asyncio.Task[Chosen]) -> None:
    """Until the terminal is as it was."""
    showing.cancel()
    await asyncio.wait({showing})
    if not showing.cancelled():
        showing.exception()  # looked at, or asyncio would complain that nobody did
