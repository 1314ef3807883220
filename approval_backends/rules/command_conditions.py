r"""Conditions on shell commands.

An allow is about one simple command: words, quoted or not, and nothing a shell would do more with. Where there is any
of ``; & | < > ( ) $ ` \ ! ^ %`` in it, a new line, or a pattern of file names, no rule allows it, for what looks like
`git push` may end in `; rm -rf /`. That holds inside quotes too: not every shell has the same ones, and a command may
be the argument of another shell.

A deny or ask looks the other way: its words count wherever they stand in the arguments, quotes and paths of programs
aside. It is a net and no wall, since a command can be spelt without any of its words.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.text.paths import COMMAND_NAMES, TooManyParts, is_texts, texts_of, words_in
from approval_backends.rules.subject import Finding

if TYPE_CHECKING:
    from approval_backends.rules.subject import Subject


LONGEST: Final = 4_096
"""Characters of a command that an allow may be for; nobody reads more."""

IN_QUOTES: Final = r"[^\W_]|[ _@+=:,./#~*?{}\[\]-]"
WORD: Final = rf"(?:[\w@+=:,./-]|'(?:{IN_QUOTES}|\")*'|\"(?:{IN_QUOTES}|')*\")+"
SIMPLE: Final = re.compile(rf"{WORD}(?: +{WORD})*")


@frozen
class CommandPattern:
    """Words, and whether any others may follow."""

    words: tuple[str, ...]
    more: bool

    @property
    def spec(self) -> str:
        """As it is written."""
        return " ".join([*map(shlex.quote, self.words), *["*"] * self.more])

    def covers(self, words: list[str]) -> bool:
        """Whether these are the words, all of them."""
        begins = tuple(words[: len(self.words)]) == self.words
        return begins and (self.more or len(words) == len(self.words))

    def occurs(self, words: list[str]) -> bool:
        """Whether the words stand anywhere among these, the first also as a path to the program."""
        wanted = [word.casefold() for word in self.words]
        given = [word.casefold() for word in words]
        for start in range(len(given) - len(wanted) + 1):
            first, *others = given[start : start + len(wanted)]
            if wanted[0] in (first, first.rpartition("/")[2]) and others == wanted[1:]:
                return True
        return False


@frozen
class Commands:
    """A condition on the command of a call."""

    patterns: tuple[CommandPattern, ...]
    strict: bool
    argument: str | None = None

    @property
    def spec(self) -> str:
        """As it is written."""
        return " or ".join(repr(pattern.spec) for pattern in self.patterns)

    def check(self, subject: Subject) -> Finding:
        """Whether the command of a call is one of these."""
        return self._allowed(subject) if self.strict else self._caught(subject)

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments in which an allow looks for it."""
        return (self.argument,) if self.argument else COMMAND_NAMES

    def _allowed(self, subject: Subject) -> Finding:
        found = subject.named(self.names)
        if len(found) != 1:
            return Finding(met=False, why=f"there is not one argument {' or '.join(self.names)} with the command")
        [command] = found.values()
        words = simple_words(command)
        if words is None:
            return Finding(met=None, why="the command is more than one simple command")
        if any(pattern.covers(words) for pattern in self.patterns):
            return Finding(met=True, why=f"the command is {self.spec}")
        return Finding(met=False, why=f"the command is not {self.spec}")

    def _caught(self, subject: Subject) -> Finding:
        arguments = subject.named(self.names) if self.argument else subject.facts.arguments
        try:
            texts = texts_of([*arguments.values()])
        except TooManyParts:
            return Finding(met=None, why="there is too much in the arguments to look through")
        # A list is one command: its items are words already, and each may be a whole script.
        words = [word for text in texts for word in words_in(text)]
        if any(pattern.occurs(words) for pattern in self.patterns):
            return Finding(met=True, why=f"{self.spec} stands in it")
        return Finding(met=False, why=f"{self.spec} does not stand in it")


def as_patterns(given: object) -> tuple[CommandPattern, ...]:
    """The commands that a file names. Raises `ValueError`."""
    texts = given if isinstance(given, list) else [given]
    if not texts or not is_texts(texts):
        raise ValueError("is a command or a list of commands, as text: 'git status' or ['git status', 'git log *']")
    return tuple(_pattern(text) for text in texts)


def _pattern(text: str) -> CommandPattern:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise ValueError(f"has a command that is no list of words, {text!r}: {problem}") from None
    more = bool(words) and words[-1] == "*"
    words = words[:-1] if more else words
    if not words or "*" in words:
        raise ValueError(f"has {text!r}; write the words of a command, and ' *' at its end for any words after them")
    return CommandPattern(tuple(words), more)


def simple_words(command: object) -> list[str] | None:
    """The words of one simple command, as any shell reads them; None if it is anything more, or may be.

    A list is what it is: no shell reads it.
    """
    if isinstance(command, list):
        return command if is_texts(command) else None
    if not isinstance(command, str) or len(command) > LONGEST or not SIMPLE.fullmatch(command):
        return None
    return shlex.split(command)
