"""The mistakes in a set of definitions: all of them in one error, each with its file and line."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from attrs import frozen

from amplifier_hooks.errors import HookError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pydantic_core import ErrorDetails


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


def suggestion_for(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" with the known word that is nearest, or else all known words."""
    names = sorted(known)
    near = get_close_matches(word, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names) or 'none'}"


def error_sentence(error: ErrorDetails, known: Iterable[str]) -> str:
    """Return one of pydantic's errors as a sentence; `known` are the keys allowed at the place of the error."""
    at: tuple[Any, ...] = error["loc"]
    key = ".".join(map(str, at))[:80]
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {suggestion_for(str(at[-1]), known)}"
    if error["type"] == "missing":
        return f"{key!r} is missing; add it"
    if error["type"] == "value_error":
        said = str(error["ctx"]["error"])
        return f"{key!r}: {said}" if key else said
    if error["type"] == "literal_error":
        return f"{key!r} is {error['input']!r:.40}; write {error['ctx']['expected']}"
    return f"{key!r} is {error['input']!r:.40}: {error['msg'][:1].lower()}{error['msg'][1:]}"
