"""The terminal of a chat: text, tool calls and outcomes of a turn come in; lines for the user go out."""

from __future__ import annotations

import json
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from amplifier_hooks.text.escape import clip, for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amplifier_hooks.session.tool_call import ToolOutcome


SOON: Final = 1.0
"""Seconds until the screen shows that a tool runs."""
SHOWN: Final = 160
"""Bytes of a tool's input, and of the last line it printed, that the screen shows."""
ROWS: Final = 6
"""Rows of a tool's result that the screen shows."""
ABOUT: Final = {"Bash": "command", "Read": "file_path", "Write": "file_path"}


class ChatScreen:
    """The screen of a chat. It prints the model's text as it comes, a line for each tool call, and the outcome.

    A quiet one prints nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=quiet)
        self._in_line = False
        self._last = b""
        self._lines = 0

    def text(self, piece: str) -> None:
        """Print a piece of the model's text."""
        self._console.print(for_terminal(piece), end="")
        self._console.file.flush()
        self._in_line = not piece.endswith("\n")

    def text_ended(self) -> None:
        """End the line of the model's text."""
        if self._in_line:
            self._console.print()
        self._in_line = False

    def turn_ended(self) -> None:
        """Print an empty line after a turn, at a terminal."""
        if self._console.is_terminal:
            self._console.print()

    def calls(self, name: str, given: Mapping[str, Any]) -> None:
        """Print the tool and the main part of its input."""
        about = given.get(ABOUT.get(name, ""), None)
        said = about if isinstance(about, str) else json.dumps(given, ensure_ascii=False)
        self._console.print(f"  {for_log(name)} > {clip(for_log(said), SHOWN)}", style="cyan")

    def show_outcome(self, outcome: ToolOutcome[Any], seconds: float) -> None:
        """Print the beginning of the result, or the reason that there is none."""
        if outcome.ok:
            text, style = str(outcome.value), "dim"
        elif outcome.error is not None:
            text, style = f"{type(outcome.error).__name__}: {outcome.error}", "red"
        else:
            text, style = outcome.reason or outcome.status, "yellow"
        rows = for_terminal(text).rstrip("\n").split("\n")
        for row in rows[:ROWS]:
            self._console.print(f"  | {row}", style=style)
        if len(rows) > ROWS:
            self._console.print(f"  | and {len(rows) - ROWS:,} more lines", style="dim")
        if seconds >= SOON:
            self._console.print(f"  | {seconds:.1f} s", style="dim")

    def show_output(self, data: bytes) -> None:
        """Take note of the output of a running command."""
        self._lines += data.count(b"\n")
        self._last = next((line for line in reversed(data.split(b"\n")) if line.strip()), self._last)

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """After a second, show a line with the tool's duration and its last output, at a terminal, for the block."""
        if not self._console.is_terminal or self._console.quiet:
            yield
            return
        from rich.live import Live
        from rich.text import Text

        began, self._last, self._lines = monotonic(), b"", 0

        def progress() -> Text:
            seconds, last = monotonic() - began, clip(for_log(self._last.decode("utf-8", "replace").strip()), SHOWN)
            line = f"  {for_log(name)} runs, {seconds:.0f} s, {self._lines:,} lines  {last}" if seconds >= SOON else ""
            return Text(line, no_wrap=True, overflow="ellipsis")

        live = Live(get_renderable=progress, console=self._console, refresh_per_second=1, transient=True)
        with live:
            yield

    def line(self, text: str, style: str = "", *, escaped: bool = False) -> None:
        """Print a line of the chat's own. It is escaped here, unless the caller has escaped its foreign parts."""
        self._console.print(text if escaped else for_terminal(text), style=style)
