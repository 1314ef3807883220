"""The tools of the model: read a file, write one, run a command, all in one folder.

Paths outside the folder are refused, also through links. A command runs in the folder and could leave it: this is no
sandbox, and only hooks judge commands.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from amplifier_hooks.definitions.kinds.command import Programs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path


LARGEST_FILE: Final = 256 * 1024
"""Bytes of the largest file that a model may read."""
KEPT: Final = 16 * 1024
"""Bytes that a model reads of the beginning of a command's output, and as many of its end."""
DEADLINE: Final = 120.0
LONGEST: Final = 1_800.0
"""Seconds until a command's timeout: `DEADLINE` by default, `LONGEST` at most."""
SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
"""Variables that are kept from commands, since the model reads what a command prints."""


class ToolRefused(Exception):
    """The tool cannot do this; the message is for the model."""


@frozen
class Tool:
    """One tool: its description for the model, and the function that carries it out."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[dict[str, Any]], Awaitable[str] | str]


def _schema(required: str, **properties: str) -> dict[str, Any]:
    kinds = {
        name: {"type": text.partition(":")[0], "description": text.partition(": ")[2]}
        for name, text in properties.items()
    }
    return {"type": "object", "properties": kinds, "required": required.split()}


def _resolve_folder(folder: Path) -> Path:
    return folder.resolve()


@define
class Workplace:
    """A folder, and the tools in it. While a command runs, `heard` is called with its output."""

    folder: Path = field(converter=_resolve_folder)
    heard: Callable[[bytes], None] = lambda _: None
    deadline: float = DEADLINE
    programs: Programs = field(factory=Programs)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools Read, Write and Bash, named as in other agents, so that the same hooks fit."""
        return (
            Tool(
                "Read",
                "Read a text file of the project.",
                _schema("file_path", file_path="string: Its path, inside the project."),
                self.read,
            ),
            Tool(
                "Write",
                "Write a text file of the project; what was in it is gone.",
                _schema(
                    "file_path content",
                    file_path="string: Its path, inside the project.",
                    content="string: All of its new content.",
                ),
                self.write,
            ),
            Tool(
                "Bash",
                "Run a command in the project's folder with sh. Its standard input is empty.",
                _schema(
                    "command",
                    command="string: The command.",
                    timeout=f"number: Seconds it has; {DEADLINE:g} by default.",
                ),
                self.shell,
            ),
        )

    def inside(self, name: object) -> Path:
        """Return the path of a file, with every link followed. Raises `ToolRefused` for one outside of the folder."""
        if not isinstance(name, str) or not name or "\0" in name:
            raise ToolRefused("file_path has to be the path of a file")
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder) or path == self.folder:
            raise ToolRefused(f"{name} is not a file inside of the project's folder")
        return path

    def read(self, given: Mapping[str, Any]) -> str:
        """Return the text of a file. Raises `ToolRefused`, `OSError`."""
        path = self.inside(given.get("file_path"))
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolRefused(f"{given['file_path']} is no plain file")
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise ToolRefused(f"{given['file_path']} has more than {LARGEST_FILE:,} bytes; look at parts of it with sh")
        return data.decode("utf-8", "replace")

    def write(self, given: Mapping[str, Any]) -> str:
        """Write a file, and make the folders it needs. Raises `ToolRefused`, `OSError`."""
        path, content = self.inside(given.get("file_path")), given.get("content")
        if not isinstance(content, str):
            raise ToolRefused("content has to be a text")
        if path.exists() and not path.is_file():
            raise ToolRefused(f"{given['file_path']} is no plain file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(content)
        return f"wrote {len(content.encode('utf-8', 'surrogatepass')):,} bytes to {given['file_path']}"

    async def shell(self, given: Mapping[str, Any]) -> str:
        """Run a command, and return its output and a failing exit status.

        The timeout ends the command and everything it started, and raises `ToolRefused`. Cancelling ends the command.
        """
        command, seconds = given.get("command"), given.get("timeout", self.deadline)
        if not isinstance(command, str) or not command.strip():
            raise ToolRefused("command has to be a text")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST:
            raise ToolRefused(f"timeout has to be a number of seconds, at most {LONGEST:g}")
        output = _Output(self.heard)
        environment = {name: value for name, value in os.environ.items() if not SECRET.search(name)}
        try:
            async with asyncio.timeout(seconds):
                ended = await self.programs.run(
                    ["sh", "-c", f"exec 2>&1\n{command}"],
                    feed=b"",
                    env=environment,
                    cwd=os.fspath(self.folder),
                    heard=output.add,
                )
        except TimeoutError:
            raise ToolRefused(f"it took longer than {seconds:g} s and was ended\n{output.text}") from None
        return output.text if ended.code == 0 else f"exit status {ended.code}\n{output.text}"


@define
class _Output:
    """The output of a command: its beginning and its end."""

    heard: Callable[[bytes], None]
    first: bytes = b""
    last: bytes = b""
    size: int = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = KEPT - len(self.first)
        self.first += data[:room]
        self.last = (self.last + data[room:])[-KEPT:] if len(data) > room else self.last
        self.heard(data)

    @property
    def text(self) -> str:
        left_out = self.size - len(self.first) - len(self.last)
        between = f"\n…({left_out:,} bytes left out)…\n".encode() if left_out else b""
        return (self.first + between + self.last).decode("utf-8", "replace")
