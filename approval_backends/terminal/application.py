"""The card on a real terminal. `form` and `draw_card` decide everything; here keys become names, lines cells.

This module uses prompt-toolkit, and so does `card_pages`, for the width of a character. The card is drawn on the
terminal's alternate screen, from its first cell to its last each time, wherever the cursor may stand.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TextIO

from attrs import evolve
from prompt_toolkit.application import Application, create_app_session, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from approval_backends.card.changes import BadArguments, read_arguments
from approval_backends.card.contents import alike_requests
from approval_backends.card.impact_lines import NO_FACTS
from approval_backends.errors import BackendUnavailable, RequestSkipped
from approval_backends.terminal.card_pages import Line, arguments_text, field_text, inline
from approval_backends.terminal.device import redirect_signals
from approval_backends.terminal.draw_card import STYLES, CardPages, Scene, Sheet, draw
from approval_backends.terminal.form import (
    MESSAGE,
    Chosen,
    Form,
    Later,
    WaitingQuestion,
    begin,
    change_arguments,
    keep_message,
    press,
    rearm,
    refuse_with,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from prompt_toolkit.key_binding import KeyPressEvent

    from amplifier_hooks.ports import ApprovalRequest
    from approval_backends.card.impact_lines import CardFacts
    from approval_backends.terminal.device import Terminal


NAMES: Final = {
    Keys.Left: "left",
    Keys.Right: "right",
    Keys.Up: "up",
    Keys.Down: "down",
    Keys.PageUp: "pageup",
    Keys.PageDown: "pagedown",
    Keys.Home: "home",
    Keys.End: "end",
    Keys.Tab: "tab",
    Keys.BackTab: "back-tab",
    Keys.Enter: "enter",
    Keys.Backspace: "backspace",
    Keys.ControlC: "interrupt",
    Keys.ControlD: "interrupt",
    Keys.SIGINT: "interrupt",
}
FRAME: Final = 0.05
"""Seconds between looks at the clock; the card is drawn only when its content has changed, or once a second."""
LONE: Final = 0.05
"""Seconds after which an Escape was a key of its own, and not the beginning of a terminal's report."""


class Screen(Vt100_Output):
    """The terminal's screen. When the terminal is gone, it calls `lost` once instead of raising from every drawing."""

    def __init__(self, stdout: TextIO, lost: Callable[[], object]) -> None:
        super().__init__(stdout, self._measure, term=os.environ.get("TERM"), default_color_depth=ColorDepth.from_env())
        self._lost = lost
        self.other = False
        """True while the output goes to the terminal's alternate screen, and not between the lines of the program."""

    def _measure(self) -> Size:
        try:
            columns, rows = os.get_terminal_size(self.fileno())
        except OSError:
            columns, rows = 0, 0
        return Size(rows=rows or 24, columns=columns or 80)  # a terminal that does not know says 0

    def enter_alternate_screen(self) -> None:
        """Switch to the alternate screen."""
        super().enter_alternate_screen()
        self.other = True

    def quit_alternate_screen(self) -> None:
        """Switch back to the first screen, which is as it was."""
        super().quit_alternate_screen()
        self.other = False

    def flush(self) -> None:
        """Write the drawn output."""
        try:
            super().flush()
        except OSError:
            self._lost()


class CardApplication:
    """One request on one terminal, until it is answered or taken away."""

    def __init__(
        self,
        request: ApprovalRequest,
        terminal: Terminal,
        *,
        until: datetime,
        clock: Callable[[], datetime],
        more_waiting: Callable[[], int],
        may_wait: bool = False,
        facts: CardFacts = NO_FACTS,
        others: Callable[[], Sequence[WaitingQuestion]] = tuple,
    ) -> None:
        self._terminal = terminal
        self._until = until
        self._clock = clock
        self._more = more_waiting
        self._others = others
        self._other_ids: tuple[str, ...] = ()
        self._may_wait = may_wait
        self._form: Form = begin(request, 0.0, may_wait=may_wait)
        self._pages = CardPages(facts)
        self._sheet = Sheet((), 0, ())
        self._state: object = None
        self._size: tuple[int, int] | None = None
        self._escape: asyncio.TimerHandle | None = None
        self._buffer = Buffer(multiline=Condition(lambda: self._form.page == "edit"))
        self.fatal: int | None = None
        """The signal that ends the program once the terminal is restored."""

    async def run(self, file: TextIO) -> Chosen:
        """Show the card on this file, and return the answer.

        Raises the error given to `end`, `RequestSkipped`, and `BackendUnavailable`.

        In every case, cancelling included, the terminal is restored, and the keys typed at the card are dropped.
        """
        loop = asyncio.get_running_loop()
        self._loop = loop
        with ExitStack() as stack:
            screen = Screen(file, lambda: self.end(BackendUnavailable("the terminal is gone")))
            source = Vt100Input(self._terminal.stdin)
            self._stack = stack
            self._as_before = self._terminal.save_modes()
            stack.callback(self._as_before)
            self._screen = screen
            stack.enter_context(create_app_session(input=source, output=screen))
            self._app = self._application(source, screen)
            stack.enter_context(
                redirect_signals(
                    loop,
                    {
                        signal.SIGHUP: lambda: self.end(BackendUnavailable("the terminal hung up")),
                        signal.SIGTERM: self._terminate,
                        signal.SIGTSTP: self._suspend,
                        signal.SIGCONT: self._resume,
                    },
                )
            )
            clear_typeahead(source)
            self._terminal.forget_typed()
            self._form = begin(self._form.request, loop.time(), may_wait=self._may_wait)
            ticking = asyncio.ensure_future(self._tick())
            try:
                return await self._app.run_async(set_exception_handler=False)
            except EOFError:
                raise BackendUnavailable("the terminal's input ended before an answer") from None
            finally:
                ticking.cancel()
                clear_typeahead(source)
                self._terminal.forget_typed()

    def end(self, error: Exception) -> None:
        """Take the card away; `run` raises this error."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)

    # -- drawing -------------------------------------------------------------------------------------------------------

    def _application(self, source: Vt100Input, screen: Screen) -> Application[Chosen]:
        writing = Condition(lambda: self._sheet.field > 0)
        field = Window(BufferControl(self._buffer), height=lambda: self._sheet.field, wrap_lines=True)
        above = FormattedTextControl(lambda: _fragments(self._sheet.above), focusable=True, show_cursor=False)
        below = FormattedTextControl(lambda: _fragments(self._sheet.below))
        self._above, self._field = Window(above, height=lambda: len(self._sheet.above)), field
        app: Application[Chosen] = Application(
            layout=Layout(
                HSplit(
                    [
                        self._above,
                        ConditionalContainer(field, writing),
                        Window(below, height=lambda: len(self._sheet.below)),
                    ]
                )
            ),
            style=Style.from_dict(STYLES),
            key_bindings=self._bindings(writing),
            full_screen=True,
            erase_when_done=True,
            include_default_pygments_style=False,
            before_render=lambda _: self._end_on_error(self._draw),
            input=source,
            output=screen,
        )
        app.ttimeoutlen = LONE
        app.timeoutlen = LONE
        return app

    def _end_on_error(self, do: Callable[[], object]) -> None:
        """End the card on any error: a card that stands still would still take an answer."""
        try:
            do()
        except StopIteration as error:  # a future cannot raise this one
            self.end(RuntimeError(repr(error)))
        except Exception as error:  # noqa: BLE001  # `run` raises it
            self.end(error)

    def _draw(self) -> None:
        """Draw the next sheet over the whole screen."""
        now = self._loop.time()
        size = self._screen.get_size()
        shape = (size.columns, size.rows)
        if self._size not in (None, shape):
            self._form = rearm(self._form, now)
        self._size = shape
        others = self._others()
        if (ids := tuple(one.request.id for one in others)) != self._other_ids:
            self._other_ids = ids
            self._form = self._form.with_alike(alike_requests(self._form.request, [one.request for one in others]))
        first = min((one.until for one in others), default=self._until)
        scene = Scene(
            width=size.columns,
            height=size.rows,
            left=(self._until - self._clock()).total_seconds(),
            until=self._until.astimezone(),
            more=self._more(),
            sooner=(first - self._clock()).total_seconds() if first < self._until else None,
            armed=self._form.is_armed(now),
            ready=self._form.is_ready(now),
        )
        self._form, self._sheet = draw(self._form, scene, self._pages)
        self._app.layout.focus(self._field if self._sheet.field else self._above)
        if self._screen.other:
            self._screen.cursor_goto(0, 0)
            self._app.renderer.reset(leave_alternate_screen=False)

    async def _tick(self) -> None:
        """Look at the clock again and again."""
        while True:
            self._end_on_error(self._look)
            await asyncio.sleep(FRAME)

    def _look(self) -> None:
        """Draw again when time has changed the card."""
        now = self._loop.time()
        left = (self._until - self._clock()).total_seconds()
        state = (
            int(left),
            int(now),
            self._form.is_armed(now),
            self._form.is_ready(now),
            self._more(),
            len(self._others()),
        )
        if state != self._state:
            self._state = state
            self._app.invalidate()

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _bindings(self, writing: Condition) -> KeyBindings:
        keys = KeyBindings()

        def on(key: Keys, handler: Callable[[KeyPressEvent], None], *, field: bool, eager: bool = False) -> None:
            keys.add(key, filter=writing if field else ~writing, eager=eager)(handler)

        on(Keys.Any, lambda event: self._press(event.data if len(event.data) == 1 else "other"), field=False)
        on(Keys.BracketedPaste, lambda _: self._press("paste"), field=False, eager=True)
        on(Keys.Escape, lambda _: self._lone_escape(), field=False, eager=True)
        for key, name in NAMES.items():
            on(key, lambda _, name=name: self._press(name), field=False, eager=True)  # type: ignore[misc]
        on(Keys.Any, lambda event: self._write(event.data), field=True)
        on(Keys.BracketedPaste, lambda event: self._write(event.data), field=True, eager=True)
        on(Keys.Enter, lambda _: self._enter(), field=True, eager=True)
        on(Keys.ControlC, lambda _: self._press("interrupt"), field=True, eager=True)
        on(Keys.SIGINT, lambda _: self._press("interrupt"), field=True, eager=True)
        on(Keys.ControlS, lambda _: self._check(), field=True, eager=True)
        on(Keys.Escape, lambda _: self._leave_field(), field=True)
        return keys

    def _press(self, key: str) -> None:
        lost = self._escape is not None  # a terminal's report begins with the same character
        self._forget_escape()
        if not lost:
            self._end_on_error(lambda: self._go_on(press(self._form, key, self._loop.time())))

    def _lone_escape(self) -> None:
        self._forget_escape()
        self._escape = self._loop.call_later(LONE, self._press_escape)

    def _press_escape(self) -> None:
        self._escape = None
        self._end_on_error(lambda: self._go_on(press(self._form, "escape", self._loop.time())))

    def _forget_escape(self) -> None:
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None

    def _go_on(self, result: Form | Chosen | Later) -> None:
        if self._app.is_done or not self._app.is_running:
            return
        if isinstance(result, Later):
            self._app.exit(exception=RequestSkipped())
            return
        if isinstance(result, Chosen):
            self._app.exit(result=result)
            return
        if result.page != self._form.page and result.page in ("message", "edit"):
            text = (
                result.message
                if result.page == "message"
                else arguments_text(result.arguments or result.request.arguments)
            )
            self._buffer.text = text
            self._buffer.cursor_position = len(text) if result.page == "message" else 0
        self._form = result
        self._app.invalidate()

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        """Write text into the field, so that nothing in it is invisible; a message is one line."""
        text = field_text(text.replace("\r\n", "\n").replace("\r", "\n"))
        if self._form.page == "message":
            text = text.replace("\n", " ")[: max(0, MESSAGE - len(self._buffer.text))]
        self._buffer.insert_text(text)

    def _enter(self) -> None:
        if self._form.page == "edit":
            self._buffer.newline()
        elif self._form.is_ready(self._loop.time()):
            self._go_on(refuse_with(self._form, self._buffer.text))

    def _check(self) -> None:
        if self._form.page == "edit":
            try:
                arguments = read_arguments(self._buffer.text)
            except BadArguments as problem:
                self._go_on(evolve(self._form, note=inline(str(problem))))
            else:
                self._go_on(change_arguments(self._form, arguments, self._loop.time()))

    def _leave_field(self) -> None:
        message = self._buffer.text if self._form.page == "message" else self._form.message
        self._go_on(keep_message(self._form, message, self._loop.time()))

    # -- signals -------------------------------------------------------------------------------------------------------

    def _terminate(self) -> None:
        """End the card because the program is to end: first the terminal, then the program."""
        self.fatal = signal.SIGTERM
        self.end(BackendUnavailable("the program was told to end"))

    def _suspend(self) -> None:
        """Stop the program, with the terminal restored until it goes on."""

        def stop() -> None:
            self._as_before()
            os.kill(os.getpid(), signal.SIGSTOP)

        run_in_terminal(stop)

    def _resume(self) -> None:
        """Prepare the terminal again.

        The program that had it may have changed it, and dropped keys were not for the card.
        """
        self._stack.enter_context(self._app.input.raw_mode())
        self._terminal.forget_typed()
        self._form = rearm(self._form, self._loop.time())
        self._app.invalidate()


def _fragments(lines: tuple[Line, ...]) -> FormattedText:
    """Return the lines for prompt-toolkit."""
    return FormattedText([part for line in lines for part in (*line, ("", "\n"))][:-1])
