"""Conditions on files and folders, by what a path really is: `..` and links followed, against the session's folder.

How patterns are written is told in `amplifier_hooks.text.paths`; one that begins with `**` is for deny and ask only.

An allow wants every path of the call to match, both as it is written and as it is with all links followed; of its
pattern only the working directory and the home folder have theirs followed, since a link below may be the agent's own.
A deny or ask is met by any path of the call, in either form.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.text.paths import PATH_NAMES, TIME_LIMIT, TooManyParts, UnknownFolder, matches
from approval_backends.rules.subject import Finding

if TYPE_CHECKING:
    from amplifier_hooks.text.paths import PathPattern
    from approval_backends.rules.subject import Subject


EXPANDED: Final = re.compile(r"^~|\$|^[A-Za-z][A-Za-z+.-]+:")
"""What some tools make another path of: home folders, variables, schemes."""


@frozen
class Paths:
    """A condition on the paths of a call."""

    patterns: tuple[PathPattern, ...]
    strict: bool
    named: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments in which an allow looks for them."""
        return self.named or PATH_NAMES

    @property
    def spec(self) -> str:
        """As it is written."""
        return " or ".join(repr(pattern.spec) for pattern in self.patterns)

    def check(self, subject: Subject) -> Finding:
        """Whether the paths of a call are these."""
        try:
            return self._allowed(subject) if self.strict else self._caught(subject)
        except TooManyParts:
            return Finding(met=None, why="there is too much in the arguments to look through")
        except TimeoutError:
            return Finding(met=None, why=f"{self.spec} gave no answer within {TIME_LIMIT * 1000:g} ms")

    def _allowed(self, subject: Subject) -> Finding:
        found = subject.named(self.names)
        if not found:
            return Finding(met=False, why=f"there is no argument {' or '.join(self.names)} with a path")
        places = [place for one in self.patterns for place in one.places(subject.paths, follow=False)]
        for name, value in found.items():
            texts = [value] if isinstance(value, str) else value
            if not isinstance(texts, list | tuple) or not texts:
                return Finding(met=None, why=f"argument {name!r} is no path")
            for text in texts:
                forms = subject.paths.resolved(text) if isinstance(text, str) and not EXPANDED.search(text) else None
                if forms is None:
                    return Finding(met=None, why=f"nobody can say where the path in {name!r} leads")
                if not matches(places, (forms.lexical,)):
                    return Finding(met=False, why=f"the path in {name!r} is {forms.lexical!r}, not {self.spec}")
                if not matches(places, (forms.real,)):
                    return Finding(met=False, why=f"the path in {name!r} leads to {forms.real!r}, not {self.spec}")
        return Finding(met=True, why=f"its paths are {self.spec}")

    def _caught(self, subject: Subject) -> Finding:
        try:
            caught = subject.paths.caught(self.patterns, self.named)
        except UnknownFolder as unknown:
            return Finding(met=None, why=str(unknown))
        if caught is None:
            return Finding(met=False, why=f"no path in it is {self.spec}")
        return Finding(met=True, why=f"{caught.text[:80]!r} is {caught.pattern.spec!r}")
