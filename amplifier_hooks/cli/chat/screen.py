"""The terminal of a chat: text, tool calls and outcomes of a turn come in; lines for the user go out."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from amplifier_hooks.text.escape import clip, for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_hooks.session.tool_call import ToolOutcome


SOON: Final = 1.0
"""Seconds until the screen shows that a tool runs."""
SHOWN: Final = 160
"""Bytes of a tool's input, and of the last line it printed, that the screen shows."""
ROWS: Final = 6
"""Rows of a tool's result that the screen shows."""
ABOUT: Final = {"Bash": "command", "Read": "file_path", "Write": "file_path"}


class ChatScreen:
    """The screen of a chat. It prints the model's text as it comes, a line for each tool call, and the outcome."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._in_line = False
        self._last = b""
        self._lines = 0
        self._ticked = False

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

    def show_outcome(self, name: str, outcome: ToolOutcome[Any], seconds: float) -> None:
        """Print the beginning of the result, or the reason that there is none."""
        del name
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

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """After a second, show a line with the tool's duration and its last output, at a terminal, for the block."""
        if not self._console.is_terminal:
            yield
            return
        self._last, self._lines, self._ticked = b"", 0, False
        ticking = asyncio.create_task(self._tick(name, monotonic()))
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.wait({ticking})
            if self._ticked:
                self._over("")

    async def _tick(self, name: str, began: float) -> None:
        while True:
            await asyncio.sleep(SOON)
            last = clip(for_log(self._last.decode("utf-8", "replace").strip()), SHOWN)
            self._over(f"  {for_log(name)} runs, {monotonic() - began:.0f} s, {self._lines:,} lines  {last}")
            self._ticked = True

    def _over(self, line: str) -> None:
        """Write over the current line."""
        width = max(self._console.width - 1, 1)
        sys.stdout.write(f"\r{line[:width].ljust(width) if line else ' ' * width}\r")
        sys.stdout.flush()

    def line(self, text: str, style: str = "", *, escaped: bool = False) -> None:
        """Print a line of the chat's own. It is escaped here, unless the caller has escaped its foreign parts."""
        self._console.print(text if escaped else for_terminal(text), style=style)


class Silence:
    """A screen that shows nothing, for JSON output: only the result of the turn is printed, at its end."""

    def text(self, piece: str) -> None:
        """Show nothing."""

    def text_ended(self) -> None:
        """Show nothing."""

    def calls(self, name: str, given: Mapping[str, Any]) -> None:
        """Show nothing."""

    def show_outcome(self, name: str, outcome: ToolOutcome[Any], seconds: float) -> None:
        """Show nothing."""

    def show_output(self, data: bytes) -> None:
        """Show nothing."""

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """Show nothing, for the block."""
        del name
        yield
