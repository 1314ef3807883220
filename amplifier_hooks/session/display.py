"""Messages for the person at the screen, and the transcript of what hooks printed.

A display is any object with `show_message(message, level, source)`. `show` hands the messages of an outcome to it; the
session goes on even if the display fails. This module has a `TerminalDisplay`, a `LogDisplay` (the default screen of a
session) and a `CollectingDisplay`. `transcript` returns the texts that hooks printed, without hidden ones.
"""

from __future__ import annotations

import inspect
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.foreign_code import TooLate, within, without_capture
from amplifier_hooks.logs import get_logger
from amplifier_hooks.text.escape import clip, for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

    from rich.text import Text

    from amplifier_hooks.ports import DisplaySystem
    from amplifier_hooks.result import Level, Outcome, UserMessage


DEADLINE: Final = 1.0
"""Seconds that an async display may take for a message."""

SLOW_DISPLAY_FACTOR: Final = 0.1
"""Factor that shortens the deadline after each slow message. Many slow messages take little more time than one."""

LONGEST: Final = 8 * 1024
"""Bytes of a message that are shown; a note tells the number of the rest."""

LONGEST_NAME: Final = 200
"""Bytes of a source's name that are shown."""

TALLEST: Final = 40
"""Rows of a terminal for one message; a note tells the number of the rest."""

LATE: Final = "its time was up"

log = get_logger(__name__)


async def show(display: DisplaySystem, messages: Iterable[UserMessage], *, deadline: float = DEADLINE) -> None:
    """Show the messages in order. The failure of a display is logged, once for each message, and breaks nothing.

    An async display has `deadline` seconds for a message, and after each message over its deadline a tenth of that for
    the next one; a display over its deadline is cancelled. A plain display holds the loop for as long as it runs.

    Cancelling cancels the display, and shows nothing more.
    """
    left = deadline
    with without_capture():  # a hook may run this code, and hide its own output
        for message in messages:
            began = monotonic()
            problem = await _show_one(display, message, left)
            took = monotonic() - began
            if problem is LATE:
                left *= SLOW_DISPLAY_FACTOR
            elif problem is None and took >= deadline:
                problem = f"it took {took:.1f} s"
            if problem is not None:
                log.warning("display_failed", hook=message.hook_name, error=problem)


def transcript(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the texts that hooks printed and do not hide: name and text, in the order they ran.

    A hook can hide only its own output, not that of tools, messages and denials. The output of a hook that failed is
    included, because such a hook could not ask to hide it. `outcome.answers` has all outputs, hidden or not. The text
    is not escaped; escape it for the place where it is shown.
    """
    return [
        (answer.hook_name, answer.output)
        for answer in outcome.answers
        if answer.output and not answer.effective_result.suppress_output
    ]


# -- displays ----------------------------------------------------------------------------------------------------------


class CollectingDisplay:
    """A display that keeps its messages; for tests, and for hosts that draw later."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Level, str]] = []

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Keep the message."""
        self.messages.append((message, level, source))


class LogDisplay:
    """A display that sends messages to the log; the default screen of a session."""

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Log the message on one line."""
        method = {"info": log.info, "warning": log.warning, "error": log.error}[level]
        method("user_message", text=for_log(clip(message, LONGEST)), source=for_log(clip(source, LONGEST_NAME)))


class TerminalDisplay:
    """A display that writes to a terminal; to standard error, unless it is given a file.

        ◆ warning  hook:lint  app.py has two findings:
          │ an unused import, and a line that is too long

    A shape and a word show the level. Colour repeats the level on a terminal, unless NO_COLOR is set. Text of others is
    escaped, and begins no row of the screen: all rows after the first begin with a bar.

    Args:
        file: Stream that the messages are written to; standard error if None.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        from rich.console import Console  # most sessions have another screen; a message is too late to load it

        self._console = Console(file=file, stderr=True, markup=False, emoji=False, highlight=False)

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Write the message, in one piece."""
        from rich.text import Text  # the console has loaded it

        shape, style = LOOKS[level]
        said = f"{for_log(clip(source, LONGEST_NAME))}  {for_terminal(clip(message, LONGEST))}"
        first, *others = self._rows(Text(self._encodable(said)))
        whole = Text.assemble((self._encodable(f"{shape} {level}"), style), "  ", first)
        if len(others) >= TALLEST:
            kept = others[: TALLEST - 2]
            others = [*kept, *self._rows(Text(f"and {len(others) - len(kept):,} more rows", "dim"))]
        for row in others:
            whole = Text.assemble(whole, "\n", (self._encodable("  │ "), "dim"), row)
        self._console.print(whole, soft_wrap=True)

    def _encodable(self, text: str) -> str:
        """Return the text with each character that the file's encoding lacks by its number."""
        return text.encode(self._console.encoding, "backslashreplace").decode(self._console.encoding)

    def _rows(self, text: Text) -> list[Text]:
        """Return the text as rows that leave room for the mark before them. A file is as wide as it needs to be."""
        if self._console.is_terminal:
            return list(text.wrap(self._console, max(self._console.width - MARGIN, 2), overflow="fold"))
        return list(text.split("\n", allow_blank=True))


LOOKS: Final[Mapping[Level, tuple[str, str]]] = {
    "info": ("○", "cyan"),
    "warning": ("◆", "bold yellow"),
    "error": ("▲", "bold red"),
}
"""The shape and the style of each level."""

MARGIN: Final = len("◆ warning  ")


# -- holding a display to its time -------------------------------------------------------------------------------------


async def _show_one(display: DisplaySystem, message: UserMessage, seconds: float) -> str | None:
    """Show one message. Return its problem, or None; no error is raised, so that CancelledError means the caller's."""
    try:
        shown: object = display.show_message(message.text, message.level, message.source)
        if shown is None:
            return None
        if not inspect.isawaitable(shown):
            return f"it returned {type(shown).__name__}, which is nothing to wait for"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # a display may raise anything, CancelledError too: nothing was awaited
        return describe(error)
    try:
        return await within(seconds, _await_end(shown))
    except TooLate:
        return LATE


async def _await_end(awaitable: Any) -> str | None:
    """Await the display. Return its problem, or None; a task that raised SystemExit would take the loop with it."""
    try:
        await awaitable
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  # a display may raise anything
        return describe(error)
    return None
