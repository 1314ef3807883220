"""What the person at the terminal sees of a chat."""

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
"""Seconds a tool runs before it is said that it does."""
SHOWN: Final = 160
"""Bytes of what a tool is given, and of the line about what it is doing."""
ROWS: Final = 6
"""Rows of what a tool gave back."""
ABOUT: Final = {"Bash": "command", "Read": "file_path", "Write": "file_path"}


class ChatScreen:
    """The model's words as they come, a line for each tool, and what became of it."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._in_line = False
        self._last = b""
        self._lines = 0
        self._ticked = False

    def text(self, piece: str) -> None:
        """Some of what the model says."""
        self._console.print(for_terminal(piece), end="")
        self._console.file.flush()
        self._in_line = not piece.endswith("\n")

    def text_ended(self) -> None:
        """The next thing begins a line of its own."""
        if self._in_line:
            self._console.print()
        self._in_line = False

    def turn_ended(self) -> None:
        """Room before the next one, for who reads along."""
        if self._console.is_terminal:
            self._console.print()

    def calls(self, name: str, given: Mapping[str, Any]) -> None:
        """The tool, and what it is about."""
        about = given.get(ABOUT.get(name, ""), None)
        said = about if isinstance(about, str) else json.dumps(given, ensure_ascii=False)
        self._console.print(f"  {for_log(name)} > {clip(for_log(said), SHOWN)}", style="cyan")

    def show_outcome(self, name: str, outcome: ToolOutcome, seconds: float) -> None:
        """The beginning of its result, or why there is none."""
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
        """A command has printed this."""
        self._lines += data.count(b"\n")
        self._last = next((line for line in reversed(data.split(b"\n")) if line.strip()), self._last)

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """After a second, and at a terminal, a line that says for how long it runs and what it printed last."""
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
        """Write over the line there is."""
        width = max(self._console.width - 1, 1)
        sys.stdout.write(f"\r{line[:width].ljust(width) if line else ' ' * width}\r")
        sys.stdout.flush()

    def line(self, text: str, style: str = "", *, escaped: bool = False) -> None:
        """A line of the chat's own; escaped here, unless what is foreign in it has been."""
        self._console.print(text if escaped else for_terminal(text), style=style)


class Silence:
    """Nobody watches: what there is to say is said at the end."""

    def text(self, piece: str) -> None:
        """Some of what the model says."""

    def text_ended(self) -> None:
        """It has said it."""

    def calls(self, name: str, given: Mapping[str, Any]) -> None:
        """It wants to use a tool."""

    def show_outcome(self, name: str, outcome: ToolOutcome, seconds: float) -> None:
        """What became of that."""

    def show_output(self, data: bytes) -> None:
        """A command has printed this."""

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """The tool runs."""
        del name
        yield
