"""The narrator of the demo prints plain lines, with pauses to read them between the scenes.

The linter of the demo is ruff if it is installed, otherwise a few lines that find unused imports.
"""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from attrs import field, frozen
from rich.console import Console

from amplifier_hooks.definitions.kinds.command import Programs
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_hooks.result import Level


PAUSE: Final = 2.5
"""Seconds to read a scene."""
WIDTH: Final = 110


class Pauses:
    """Pauses between scenes. Without a terminal there is no pause; with `keys`, any key ends one."""

    def __init__(self, *, keys: bool, seconds: float = PAUSE) -> None:
        self._reader = sys.stdout.isatty()
        self._keys = keys and os.name == "posix" and self._reader and sys.stdin.isatty()
        self._seconds = seconds

    @property
    def skippable(self) -> bool:
        """True if a key ends a pause."""
        return self._keys

    async def wait(self) -> None:
        """Wait for the time of a pause, or for a key."""
        if not self._reader or not self._seconds:
            return
        pressed = asyncio.Event()
        with self._listening(pressed), suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await pressed.wait()

    @contextmanager
    def _listening(self, pressed: asyncio.Event) -> Iterator[None]:
        """Read single keys without echo, for the block; then restore the terminal."""
        if not self._keys:
            yield
            return
        import termios
        import tty

        number, loop = sys.stdin.fileno(), asyncio.get_running_loop()

        def read_key() -> None:
            os.read(number, 64)
            pressed.set()

        modes = termios.tcgetattr(number)
        tty.setcbreak(number, termios.TCSANOW)
        loop.add_reader(number, read_key)
        try:
            yield
        finally:
            loop.remove_reader(number)
            termios.tcsetattr(number, termios.TCSANOW, modes)


class Narrator:
    """Plain lines on standard output; bold and dim at a terminal without NO_COLOR."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._width = min(self._console.width, WIDTH) if self._console.is_terminal else WIDTH

    def scene(self, number: int, title: str) -> None:
        """Print the heading of a scene."""
        self._console.print(f"\n{number}  {title}", style="bold")

    def line(self, text: str = "") -> None:
        """Print one line of the narration."""
        self._say("   ", for_terminal(text))

    def wants(self, tool: str, what: str) -> None:
        """Print the call that the agent wants to make."""
        self._say("   agent > ", f"{tool} {for_terminal(what)}", style="cyan")

    def quote(self, lines: Iterable[str]) -> None:
        """Print foreign lines, each behind a bar."""
        for line in lines:
            self._say("   | ", for_terminal(line), again="   | ", style="dim")

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Print a message of a hook for the user, as the display of the session."""
        first = message.partition("\n")[0]
        self._say("   screen < ", f"{for_terminal(first)} ({level}, from {for_terminal(source)})", style="green")

    def _say(self, before: str, text: str, *, again: str = "", style: str | None = None) -> None:
        """Print one line, wrapped between words at the width of the terminal."""
        again = again or " " * len(before)
        for row in wrap(text, self._width, initial_indent=before, subsequent_indent=again, break_on_hyphens=False) or [
            before
        ]:
            self._console.print(row.rstrip(), style=style)


OPTIONS: Final = ("check", "--isolated", "--no-cache", "--output-format", "concise", "--quiet")
FINDINGS: Final = 1
"""Exit status of ruff with findings; a higher one is a failure of ruff."""


@frozen
class Linter:
    """The linter of the demo. Without a `program` it is `unused_imports`."""

    program: str | None = None
    programs: Programs = field(factory=Programs)

    @classmethod
    def find(cls) -> Linter:
        """Return a linter with the ruff beside this Python, or the one on the path, or none."""
        beside = Path(sys.executable).with_name("ruff")
        return cls(os.fspath(beside) if os.access(beside, os.X_OK) else shutil.which("ruff"))

    @property
    def name(self) -> str:
        """The name of the linter in the narration."""
        return "a check of our own" if self.program is None else "ruff"

    async def findings(self, folder: Path, name: str) -> list[str]:
        """Return a line for each finding in this file. Raises `OSError`, and the errors of running a program."""
        if self.program is None:
            return list(_own_findings(folder, name))
        ended = await self.programs.run(
            [self.program, *OPTIONS, name], feed=b"", env=dict(os.environ), cwd=os.fspath(folder)
        )
        if ended.code > FINDINGS:
            raise OSError(f"ruff could not look at {name}: {ended.errors.decode('utf-8', 'replace')}")
        return ended.output.decode("utf-8", "replace").splitlines()


def _own_findings(folder: Path, name: str) -> Iterator[str]:
    for line, module in unused_imports((folder / name).read_text(encoding="utf-8")):
        yield f"{name}:{line}: `{module}` imported but unused"


def unused_imports(source: str) -> list[tuple[int, str]]:
    """Return the line and name of every plain import whose name the source does not use."""
    tree = ast.parse(source)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return [(node.lineno, alias.name) for node in imports for alias in node.names if alias.name not in used]
