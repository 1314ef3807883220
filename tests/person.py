"""A person at a real terminal: a program in a pseudo-terminal, and its screen."""

from __future__ import annotations

import copy
import json
import sys
import termios
import time
from typing import TYPE_CHECKING, Any, cast

import pexpect
import pyte

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SOON", "Person", "Screen"]

SOON = 60
"""Seconds that no working step takes."""

ASKING = """
import asyncio, json, sys
from datetime import UTC, datetime, timedelta
from amplifier_hooks.errors import HookError
from amplifier_hooks.ports import Option, Question
from approval_backends.terminal.prompt import TerminalPrompt
from approval_backends.testing import a_request

given = json.loads(sys.argv[1])
prompt = TerminalPrompt()
told = []

async def ask(number, asked):
    now = datetime.now(UTC)
    fields = {"agent": "coder", "cwd": "~/shop", **asked}
    fields["expires"] = now + timedelta(seconds=fields.pop("seconds", 90))
    questions = fields.pop("questions", [{"hook": "guard", "prompt": "Really?"}])
    fields["questions"] = tuple(Question(**question) for question in questions)
    if "options" in fields:
        fields["options"] = tuple(Option(**option) for option in fields["options"])
    try:
        choice = await prompt.ask(a_request(created=now, id=f"request-{number}", **fields))
    except (HookError, asyncio.CancelledError) as error:
        said = f"{type(error).__name__} {error}"
    else:
        said = f"{choice.option.id} {choice.message!r} {json.dumps(choice.arguments)}"
    told.append(said)
    print("RESULT", number, said, flush=True)

async def main():
    global asking
    async def others():
        __OTHERS__
    aside = asyncio.ensure_future(others())
    asking = [asyncio.ensure_future(ask(number, asked)) for number, asked in enumerate(given)]
    await asyncio.gather(*asking)
    await aside

__BEFORE__
asyncio.run(main())
print("LEFT", flush=True)
print("READ", repr(sys.stdin.readline()), flush=True)
"""


class Screen(pyte.Screen):
    """A terminal screen. It restores its content when a program leaves the alternate screen."""

    other = False

    def set_mode(self, *modes: int, **options: Any) -> None:
        """Set modes; the alternate screen begins empty."""
        super().set_mode(*modes, **options)
        if 1049 in modes and options.get("private"):
            self.before = (copy.deepcopy(self.buffer), self.cursor.x, self.cursor.y)
            self.erase_in_display(2)
            self.other = True

    def reset_mode(self, *modes: int, **options: Any) -> None:
        """Reset modes; restore the content of the main screen."""
        super().reset_mode(*modes, **options)
        if 1049 in modes and options.get("private"):
            self.buffer, self.cursor.x, self.cursor.y = self.before
            self.other = False


class Person:
    """A person at a terminal of this size, in which a program asks.

    The program asks each of the requests (fields of `a_request`), prints a line `RESULT` for each, then `LEFT`, and
    reads a line to show that the terminal is as it was. The program runs `others` meanwhile.
    """

    def __init__(
        self,
        *requests: dict[str, Any],
        size: tuple[int, int] = (80, 24),
        others: str = "pass",
        before: str = "",
        program: str = ASKING,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        source = program.replace("__OTHERS__", others.replace("\n", "\n        ")).replace("__BEFORE__", before)
        columns, rows = size
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", source, json.dumps(requests)],
            env={"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})},
            dimensions=(rows, columns),
            echo=True,
        )
        self.modes = termios.tcgetattr(self.child.child_fd)
        self.raw = b""
        self.screen = Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)

    def until(self, seen: Callable[[], bool], what: str) -> None:
        """Read the program's output until this text is on the screen."""
        end = time.monotonic() + SOON
        while not seen():
            try:
                read = cast("bytes", self.child.read_nonblocking(1 << 16, timeout=0.5))
            except pexpect.TIMEOUT:
                read = b""
            except pexpect.EOF:
                raise AssertionError(f"the program has ended; the screen never showed {what}\n{self.text}") from None
            self.raw += read
            self._stream.feed(read)
            assert time.monotonic() < end, f"the screen never showed {what}\n{self.text}"

    def sees(self, *texts: str) -> None:
        """Wait until all of these texts are on the screen."""
        self.until(lambda: all(text in self.text for text in texts), repr(texts))

    def misses(self, *texts: str) -> None:
        """Wait until none of these texts is on the screen."""
        self.until(lambda: not any(text in self.text for text in texts), f"that {texts!r} went")

    def types(self, keys: str) -> None:
        """Press keys."""
        self.child.send(keys)

    def selects(self, key: str, selected: str) -> None:
        """Press a key, and wait until this option is selected and Enter counts."""
        self.sees("Enter confirms")
        self.types(key)
        self.sees(f"▸ {selected}", "Enter confirms")

    def confirms(self, result: str, number: int = 0) -> None:
        """Press Enter, and wait until the program prints this result."""
        self.sees("Enter confirms")
        self.types("\r")
        self.sees(f"RESULT {number} {result}")

    def leaves(self) -> None:
        """Check that the terminal is as before, with its echo and its lines, and that the program still runs."""
        self.sees("LEFT")
        assert self.modes_are_back()
        self.types("bye\n")
        self.sees("READ 'bye\\n'")
        self.child.close()

    def modes_are_back(self) -> bool:
        """True if the terminal reads and echoes keys as before."""
        return termios.tcgetattr(self.child.child_fd) == self.modes

    @property
    def pid(self) -> int:
        """Process id of the program."""
        assert self.child.pid is not None
        return self.child.pid

    def resizes(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    @property
    def lines(self) -> list[str]:
        """Lines of the screen."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """Text of the screen."""
        return "\n".join(self.lines)
