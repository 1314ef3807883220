"""Questions to the person at a terminal: one card at a time, and a line that stays when the card has gone.

Each terminal shows one card at a time, in the order in which the questions came, from whatever thread or event loop.
`LinePrompt` reads a line for programs that talk with the person between two questions.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TextIO

from amplifier_hooks.approvals import check_digest
from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.ports import Decision
from amplifier_hooks.text.escape import clip, for_log
from approval_backends.card.count_files import find_card_facts
from approval_backends.errors import BackendUnavailable, RequestSkipped, RequestWithdrawn
from approval_backends.in_process import InProcessBackend
from approval_backends.terminal.device import hold_back_output, terminal_of
from approval_backends.terminal.form import Chosen, WaitingQuestion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from prompt_toolkit import PromptSession

    from amplifier_hooks.ports import ApprovalRequest, Option
    from approval_backends.terminal.device import Terminal


class LinePrompt:
    """Reads lines, with the usual keys and a history. A card that comes meanwhile takes its place."""

    def __init__(self, prompt: str, *, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        terminal_of(stdin, stdout)
        self._prompt = prompt
        self._session: PromptSession[str] | None = None

    async def read(self) -> str:
        """Return the next line. Raises `EOFError` for Ctrl-D, `KeyboardInterrupt` for Ctrl-C.

        Cancelling removes the prompt.
        """
        if self._session is None:
            await asyncio.to_thread(import_module, "prompt_toolkit")
            from prompt_toolkit import PromptSession
            from prompt_toolkit.output import ColorDepth

            options: dict[str, Any] = {"color_depth": ColorDepth.MONOCHROME}  # no part of it needs colour
            self._session = PromptSession(self._prompt, **options)
        return await self._session.prompt_async()


class Turns:
    """The queue for one terminal. Cancelling a waiting caller takes it out of the queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._row: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Number of callers that wait behind the current one."""
        return len(self._row)

    @asynccontextmanager
    async def take_turn(self) -> AsyncIterator[None]:
        """Wait for the turn, and keep it for the body."""
        with self._lock:
            turn = asyncio.get_running_loop().create_future()
            if self._busy:
                self._row.append(turn)
            else:
                self._busy = True
                turn.set_result(None)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                waiting = turn in self._row
                if waiting:
                    self._row.remove(turn)
            if not waiting:
                self._pass_on()
            raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while True:
            with self._lock:
                if not self._row:
                    self._busy = False
                    return
                turn = self._row.popleft()
            try:
                turn.get_loop().call_soon_threadsafe(_give, turn)
            except RuntimeError:  # its loop is closed: no caller waits there any more
                continue
            return


def turns_at(terminal: int) -> Turns:
    """Return the queue for the terminal of this number."""
    with ROWS_LOCK:
        return ROWS.setdefault(terminal, Turns())


def _give(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


ROWS: Final[dict[int, Turns]] = {}
ROWS_LOCK: Final = threading.Lock()


EXPIRED: Final = "expired"
"""The reason of a session that withdraws a question because its time is up."""
CLOCK_INTERVAL: Final = 0.5
"""Seconds between looks at the clock: the clock may be set, and it goes on while the machine sleeps."""
MOST_EARLIER: Final = 200
"""Requests that are kept, to count those that an "always" would have covered."""
LONGEST_TEXT: Final = 200
"""Bytes of foreign text in the line that stays."""


class TerminalPrompt:
    """Puts requests to the person at the terminal: the program's own, or the one at both ends of these streams.

    Any number of prompts may ask at one terminal, from any thread: they take turns. `clock` returns the time.
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
        self._endings: dict[str, asyncio.Future[str | Chosen]] = {}
        self._waiting: dict[str, WaitingQuestion] = {}

    async def ask(
        self,
        request: ApprovalRequest,
        *,
        until: datetime | None = None,
        others: Callable[[], Sequence[WaitingQuestion]] = tuple,
        may_wait: bool = False,
        earlier: Iterable[ApprovalRequest] = (),
    ) -> Chosen:
        """Show the request, wait for an answer, restore the terminal.

        Questions at one terminal are shown one after the other, in the order in which they came; each has its own end,
        shown or not. The card counts down to `until`, by default the request's own end. `others` returns the
        questions that wait beside those of this prompt. `earlier` are requests of the session, to count
        those that an "always" would have covered. With `may_wait` the person can leave the question open, which raises
        `RequestSkipped`. Raises `ApprovalTimeout` at zero, `RequestWithdrawn` after `dismiss`, and
        `BackendUnavailable` if no person can be asked, or the terminal goes away, and `ApprovalMismatch` for a request
        whose arguments do not have its digest. Cancelling takes the card away; the person reads the message of the
        cancellation, if there is one.
        """
        check_digest(request)
        terminal = terminal_of(*self._streams)
        if all(option.allows for option in request.options):
            raise BackendUnavailable("the request offers nothing to refuse with")
        until = until or request.expires
        gone: asyncio.Future[str | Chosen] = asyncio.get_running_loop().create_future()
        showing = asyncio.ensure_future(self._show(request, terminal, until, others, tuple(earlier), may_wait=may_wait))
        self._endings[request.id] = gone
        self._waiting[request.id] = WaitingQuestion(request, until)
        try:
            both: set[asyncio.Future[Any]] = {showing, gone}
            while not (showing.done() or gone.done()) and (left := (until - self._clock()).total_seconds()) > 0:
                await asyncio.wait(both, timeout=min(left, CLOCK_INTERVAL), return_when=asyncio.FIRST_COMPLETED)
            ending = gone.result() if gone.done() else ""
            over = self._clock() >= until or ending == EXPIRED
            if showing.done() and not over:
                return self._finish_answer(request, terminal, showing)
            await _take_away(showing)
            if isinstance(ending, Chosen) and not over:
                terminal.print_line(outcome_line(request, f"{ending.option.label}, together with others"))
                return ending
            terminal.print_line(outcome_line(request, expiry_line(request, until) if over else str(ending)))
            if over:
                raise ApprovalTimeout
            raise RequestWithdrawn(str(ending))
        except asyncio.CancelledError as cancelled:
            why = str(cancelled.args[0]) if cancelled.args and cancelled.args[0] else "it is not asked any more"
            await _take_away(showing)
            terminal.print_line(outcome_line(request, expiry_line(request, until) if self._clock() >= until else why))
            raise
        finally:
            self._endings.pop(request.id, None)
            self._waiting.pop(request.id, None)
            gone.cancel()

    def dismiss(self, request_id: str, why: str) -> bool:
        """Take a question away, shown or waiting, and tell the person why: another approver has decided it, say.

        Return True if the question was there. Call `dismiss` only from the thread that asks.
        """
        gone = self._endings.get(request_id)
        if gone is None or gone.done():
            return False
        gone.set_result(why)
        return True

    async def _show(
        self,
        request: ApprovalRequest,
        terminal: Terminal,
        until: datetime,
        others: Callable[[], Sequence[WaitingQuestion]],
        earlier: tuple[ApprovalRequest, ...],
        *,
        may_wait: bool,
    ) -> Chosen:
        turns = turns_at(terminal.number)
        async with turns.take_turn(), _free_terminal():
            from approval_backends.terminal.application import CardApplication

            card = CardApplication(
                request,
                terminal,
                until=until,
                clock=self._clock,
                more_waiting=lambda: turns.waiting + len(others()),
                may_wait=may_wait,
                facts=await find_card_facts(request, earlier),
                others=lambda: [*self._others(request.id), *others()],
            )
            try:
                with terminal.screen() as screen, hold_back_output(terminal.number):
                    return await card.run(screen)
            finally:
                if card.fatal is not None:
                    signal.raise_signal(card.fatal)

    def _others(self, request_id: str) -> list[WaitingQuestion]:
        """Return the other questions of this prompt. Other threads may ask meanwhile."""
        return [one for one in list(self._waiting.values()) if one.request.id != request_id]

    def _answer(self, request: ApprovalRequest, choice: Chosen) -> None:
        """Answer a request that was shown as a member of a group, unless it has ended meanwhile."""
        gone, option = self._endings.get(request.id), _same_option(request, choice.option)
        if gone is not None and option is not None:
            with suppress(RuntimeError):  # its loop is closed: no caller waits any more
                gone.get_loop().call_soon_threadsafe(_end_with, gone, Chosen(option))

    def _finish_answer(self, request: ApprovalRequest, terminal: Terminal, showing: asyncio.Task[Chosen]) -> Chosen:
        """Return the answer, and print a line about it."""
        try:
            choice = showing.result()
        except RequestSkipped as skipped:
            terminal.print_line(outcome_line(request, str(skipped)))
            raise
        except BackendUnavailable as problem:
            terminal.print_line(outcome_line(request, f"denied; {problem}"))
            raise
        for one in choice.together:
            self._answer(one, choice)
        with_what = ", with a message" if choice.message else ", with other arguments" if choice.arguments else ""
        terminal.print_line(outcome_line(request, f"{choice.option.label}{with_what}"))
        return choice


def _end_with(gone: asyncio.Future[str | Chosen], choice: Chosen) -> None:
    if not gone.done():
        gone.set_result(choice)


def _same_option(request: ApprovalRequest, wanted: Option) -> Option | None:
    return next((one for one in request.options if (one.id, one.kind) == (wanted.id, wanted.kind)), None)


def outcome_line(request: ApprovalRequest, ending: str) -> str:
    """Return one line about the end of a request."""
    tool, outcome = (clip(for_log(text), LONGEST_TEXT) for text in (request.tool, ending))
    return f"Approval of {tool} (digest {request.digest[:4]} {request.digest[4:8]}): {outcome}"


def expiry_line(request: ApprovalRequest, at: datetime) -> str:
    """Return the end of a request without an answer; such an end is not reported as a person's denial."""
    became = "it is allowed by default" if request.default == "allow" else "it is denied and nothing runs"
    return f"expired at {at.astimezone():%H:%M:%S}; no answer came, so {became}"


def _load_card() -> None:
    from approval_backends.terminal import application, card_pages  # noqa: F401

    card_pages.secrets()


@asynccontextmanager
async def _free_terminal() -> AsyncIterator[None]:
    """Make a prompt of the program's own step aside. The first time, a thread loads all that a card needs."""
    await asyncio.to_thread(_load_card)
    from prompt_toolkit.application import in_terminal

    async with in_terminal():
        yield


async def _take_away(showing: asyncio.Task[Chosen]) -> None:
    """Wait until the terminal is restored."""
    showing.cancel()
    await asyncio.wait({showing})
    if not showing.cancelled():
        showing.exception()  # retrieved, or asyncio would complain that it never was


class TerminalApprovals(InProcessBackend):
    """Asks the person at the terminal, one question at a time, on a card that shows the whole action.

    Both ends have to be a terminal: a piped `y` must not approve. `prompt` asks at another terminal than the program's
    own; `user` is the name of the person there.
    """

    def __init__(self, user: str = "terminal user", *, prompt: TerminalPrompt | None = None) -> None:
        super().__init__()
        self._user = user
        self._prompt = prompt or TerminalPrompt()
        self._earlier: deque[ApprovalRequest] = deque(maxlen=MOST_EARLIER)

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Show the request and wait for an answer.

        Raises `BackendUnavailable` if no person can be asked, and `ApprovalTimeout` when the request's time is up.
        Cancelling takes the card away and restores the terminal.
        """
        earlier = tuple(self._earlier)
        self._earlier.append(request)
        choice = await self._prompt.ask(request, earlier=earlier)
        return Decision(
            option=choice.option.id,
            by=self._user,
            channel="terminal",
            message=choice.message,
            arguments=choice.arguments,
        )

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Take the question away, and tell the person why."""
        await super().withdraw(request_id, reason)
        self._prompt.dismiss(request_id, reason)
