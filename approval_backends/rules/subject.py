"""One call, as rules look at it: its facts, the texts in its arguments, and what its paths really are.

Nothing is run and nothing is changed; the file system is only asked where a path leads.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import unquote, urlsplit

from attrs import define, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_hooks.ports import ActionFacts

__all__ = [
    "COMMAND_NAMES",
    "PATH_NAMES",
    "Finding",
    "Forms",
    "Subject",
    "TooMuch",
    "fold",
    "is_texts",
    "leaves_of",
    "texts_of",
    "tidy",
    "words_in",
]

PATH_NAMES: Final = (
    "file_path",
    "notebook_path",
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "dir",
    "directory",
    "folder",
    "source",
    "src",
    "destination",
    "dest",
    "dst",
    "target",
    "old_path",
    "new_path",
)
"""Arguments that an allow takes for paths, unless it names others."""

COMMAND_NAMES: Final = ("command", "cmd")
"""Arguments that hold a shell command, unless a rule names another."""

LONGEST_PATH: Final = 4_096
MOST_PARTS: Final = 4_000
MOST_TEXTS: Final = 2_000
SEPARATORS: Final = re.compile(r"[\s;|&()<>`${}]+")
QUOTES: Final = str.maketrans("", "", "'\"\\")
BLANKS: Final = re.compile(r"\\\n|\$\{IFS[^}]*\}|\$IFS\b")
WITHIN: Final = re.compile(r"[=:@,]")


class TooMuch(Exception):
    """More texts than anybody looks at for one call."""


@frozen
class Finding:
    """Whether a condition is met, None if nobody can say, and why."""

    met: bool | None
    why: str


@frozen
class Forms:
    """A path as it is written, put in order, and as it really is, links followed."""

    text: str
    lexical: str
    real: str


@define(eq=False)
class Subject:
    """One call, and what was found out about it so far."""

    facts: ActionFacts

    @cached_property
    def home(self) -> str:
        """The home folder of whoever runs this; empty if there is none."""
        try:
            return str(Path.home())
        except RuntimeError:
            return ""

    @property
    def cwd(self) -> str:
        """The session's working directory; empty if it is not known."""
        return self.facts.cwd if os.path.isabs(self.facts.cwd) else ""  # noqa: PTH117  # text, on purpose

    @cached_property
    def roots(self) -> dict[str, tuple[str, str]]:
        """What patterns may begin with: the working directory and the home folder, as written and as they really are.

        These are the operator's, so their links are followed even where those of a pattern are not.
        """
        known = {"cwd": self.cwd, "home": self.home}
        return {name: (tidy(path), tidy(os.path.realpath(path))) for name, path in known.items() if path}

    def resolved(self, text: str) -> Forms | None:
        """What a path comes to; None if nobody can say."""
        if "\0" in text or len(text) > LONGEST_PATH or not text:
            return None
        if not os.path.isabs(text) and not self.cwd:  # noqa: PTH117  # text, on purpose
            return None
        full = os.path.join(self.cwd, text)  # noqa: PTH118  # pathlib would tidy it before links are followed
        try:
            return Forms(text, tidy(os.path.normpath(full)), tidy(os.path.realpath(full)))
        except (OSError, ValueError):
            return None

    def named(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The arguments of these names."""
        return {name: self.facts.arguments[name] for name in names if name in self.facts.arguments}

    @cached_property
    def possible_paths(self) -> list[Forms]:
        """Whatever in the arguments may lead to a file: every text, and every word of a command. Raises `TooMuch`."""
        texts = dict.fromkeys(texts_of([*self.facts.arguments.values()]))
        for value in self.named(COMMAND_NAMES).values():
            for text in texts_of(value):
                words = [*words_in(text), *words_in(os.path.expandvars(text))]
                texts |= dict.fromkeys(part for word in words for part in (word, *_parts(word)))
        return self.all_resolved(texts)

    def all_resolved(self, texts: Mapping[str, None]) -> list[Forms]:
        """What these come to, each also without its scheme, its `~` and its percent signs. Raises `TooMuch`."""
        if len(texts) > MOST_TEXTS:
            raise TooMuch
        spelt = dict.fromkeys(one for text in texts for one in self._spellings(text))
        found = (self.resolved(text) for text in spelt)
        return [forms for forms in found if forms is not None]

    def _spellings(self, text: str) -> Iterator[str]:
        yield text
        plain = text
        if text[:5].casefold() == "file:":
            try:
                plain = urlsplit(text).path
            except ValueError:
                plain = text[5:]
            yield plain
        if "%" in plain:
            plain = unquote(plain)
            yield plain
        if plain.startswith("~") or "$" in plain:
            yield os.path.expandvars(os.path.expanduser(plain))  # noqa: PTH111  # other people's homes as well


def words_in(command: str) -> list[str]:
    """The words of a command, roughly: quotes are dropped, and whatever ends a word somewhere in a shell ends it."""
    blanked = BLANKS.sub(" ", command)
    return [word for word in (piece.translate(QUOTES) for piece in SEPARATORS.split(blanked)) if word]


def is_texts(values: Sequence[object]) -> TypeGuard[list[str]]:
    """Whether all of these are texts."""
    return all(isinstance(value, str) for value in values)


def fold(text: str) -> str:
    """For file systems to which case and the spelling of an accent make no difference."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def tidy(path: str) -> str:
    """With `/` between its parts."""
    return path.replace("\\", "/") if os.name == "nt" else path


def _parts(word: str) -> list[str]:
    """What may be a path inside a word, as in `--file=/etc/passwd`."""
    return [word[found.end() :] for found in WITHIN.finditer(word)][:8]


def leaves_of(value: object) -> Iterator[object]:
    """Every plain value inside a value in order, keys included. Raises `TooMuch`."""
    waiting, count = [value], 0
    while waiting:
        one = waiting.pop()
        count += 1
        if count > MOST_PARTS:
            raise TooMuch
        if isinstance(one, Mapping):
            waiting += reversed([part for pair in one.items() for part in pair])
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
        else:
            yield one


def texts_of(value: object) -> list[str]:
    """Every text inside a value, keys included. Raises `TooMuch`."""
    return [one for one in leaves_of(value) if isinstance(one, str)]
