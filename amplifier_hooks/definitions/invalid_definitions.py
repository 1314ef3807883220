"""The mistakes in a set of definitions: all of them in one error, each with its file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from amplifier_hooks.errors import HookError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@frozen(order=True)
class Spot:
    """A line of a file. Without a line, `path` names the file or other source of the definition."""

    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path or "definitions"


@frozen(order=True)
class Flaw:
    """One mistake, and how to correct it."""

    spot: Spot
    said: str

    def __str__(self) -> str:
        return f"{self.spot}: {self.said}"


class InvalidDefinitions(HookError, ValueError):
    """Definitions that cannot be used. `flaws` has all mistakes, in the order of files and lines.

    `files` are the files that the reader looked for, existing or not.
    """

    def __init__(self, flaws: Iterable[Flaw], files: Iterable[Path] = ()) -> None:
        self.flaws = tuple(sorted(set(flaws)))
        self.files = tuple(files)
        super().__init__("\n".join(map(str, self.flaws)))
