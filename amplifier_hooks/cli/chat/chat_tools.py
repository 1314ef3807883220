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


FILE: Final = {"type": "string", "description": "Its path, inside the project."}
SCHEMAS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "Read": ("Read a text file of the project.", {"file_path": FILE}),
    "Write": (
        "Write a text file of the project; what was in it is gone.",
        {"file_path": FILE, "content": {"type": "string", "description": "All of its new content."}},
    ),
    "Bash": (
        "Run a command in the project's folder with sh. Its standard input is empty.",
        {
            "command": {"type": "string", "description": "The command."},
            "timeout": {"type": "number", "description": f"Seconds it has; {DEADLINE:g} by default."},
        },
    ),
}


@define
class Workplace:
    """A folder, and the tools in it. While a command runs, `heard` is called with its output."""

    folder: Path
    """A resolved path."""
    heard: Callable[[bytes], None] = lambda _: None
    deadline: float = DEADLINE
    programs: Programs = field(factory=Programs)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools Read, Write and Bash, named as in other agents, so that the same hooks fit."""
        functions: dict[str, Callable[[dict[str, Any]], Awaitable[str] | str]]
        functions = {"Read": self.read, "Write": self.write, "Bash": self.shell}
        return tuple(
            Tool(
                name,
                what,
                {"type": "object", "properties": fields, "required": [one for one in fields if one != "timeout"]},
                functions[name],
            )
            for name, (what, fields) in SCHEMAS.items()
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
    kept: bytearray = field(factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        self.kept += data
        over = max(len(self.kept) - 2 * KEPT, 0)
        del self.kept[KEPT : KEPT + over]
        self.left_out += over
        self.heard(data)

    @property
    def text(self) -> str:
        between = f"\n…({self.left_out:,} bytes left out)…\n".encode() if self.left_out else b""
        return (self.kept[:KEPT] + between + self.kept[KEPT:]).decode("utf-8", "replace")
