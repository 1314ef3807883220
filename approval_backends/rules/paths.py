"""Conditions on files and folders, by what a path really is: `..` and links followed, against the session's folder.

| written        | means                                                                       |
|----------------|-----------------------------------------------------------------------------|
| `/etc/hosts`   | that file                                                                   |
| `src/*.py`     | below the working directory of the session; `./setup.py` is right in it     |
| `~/.ssh/**`    | below the home folder of whoever runs this, that folder included            |
| `**/.env`      | anywhere at all; for deny and ask only                                      |

`*` stays within one name and `**` crosses folders; both match names that begin with a dot.

An allow wants every path of the call to match, both as it is written and as it is with all links followed; of its
pattern only the working directory and the home folder have theirs followed, since a link below may be the agent's own.
A deny or ask is met by any path of the call, in either form, whatever the case of its letters, and by everything below
what its pattern matches. It looks at every text in the arguments, whatever the argument is called, and at the words of
commands; that is a net and no wall. What is changed between the decision and the call is not seen.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import regex
from attrs import frozen
from wcmatch import glob

from approval_backends.rules.subject import PATH_NAMES, Finding, Forms, Subject, TooMuch, fold, is_texts, texts_of, tidy

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PathPattern", "Paths", "as_paths"]

TIME_LIMIT: Final = 0.05
LONGEST: Final = 512
FLAGS: Final = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX
MAGIC: Final = re.compile(r"[*?\[]")
EXPANDED: Final = re.compile(r"^~|\$|^[A-Za-z][A-Za-z+.-]+:")
"""What some tools make another path of: home folders, variables, schemes."""


@frozen
class PathPattern:
    """One pattern, and what it begins at: the root, the working directory or the home folder."""

    spec: str
    root: str
    rest: str

    def places(self, subject: Subject, *, follow: bool) -> tuple[str, ...]:
        """The patterns over whole paths that this one comes to; none where its root is not known.

        With `follow`, also that with the links in its fixed part followed.
        """
        if self.root and self.root not in subject.roots:
            return ()
        magic = MAGIC.search(self.rest)
        fixed = self.rest if magic is None else self.rest[: magic.start()].rpartition("/")[0]
        found = dict.fromkeys(root.rstrip("/") + fixed for root in subject.roots.get(self.root, ("",)))
        if follow:
            found |= dict.fromkeys(tidy(os.path.realpath(base or "/")) for base in found)
        return tuple(glob.escape(base, unix=True).rstrip("/") + self.rest[len(fixed) :] or "/" for base in found)


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
        except TooMuch:
            return Finding(met=None, why="there is too much in the arguments to look through")
        except TimeoutError:
            return Finding(met=None, why=f"{self.spec} gave no answer within {TIME_LIMIT * 1000:g} ms")

    def _allowed(self, subject: Subject) -> Finding:
        found = subject.named(self.names)
        if not found:
            return Finding(met=False, why=f"there is no argument {' or '.join(self.names)} with a path")
        places = [place for one in self.patterns for place in one.places(subject, follow=False)]
        for name, value in found.items():
            texts = [value] if isinstance(value, str) else value
            if not isinstance(texts, list | tuple) or not texts:
                return Finding(met=None, why=f"argument {name!r} is no path")
            for text in texts:
                forms = subject.resolved(text) if isinstance(text, str) and not EXPANDED.search(text) else None
                if forms is None:
                    return Finding(met=None, why=f"nobody can say where the path in {name!r} leads")
                if not _matches(places, (forms.lexical,)):
                    return Finding(met=False, why=f"the path in {name!r} is {forms.lexical!r}, not {self.spec}")
                if not _matches(places, (forms.real,)):
                    return Finding(met=False, why=f"the path in {name!r} leads to {forms.real!r}, not {self.spec}")
        return Finding(met=True, why=f"its paths are {self.spec}")

    def _caught(self, subject: Subject) -> Finding:
        unknown = [one.spec for one in self.patterns if one.root and one.root not in subject.roots]
        if unknown:
            return Finding(met=None, why=f"nobody knows the folder that {unknown[0]!r} begins at")
        if not self.named:
            candidates = subject.possible_paths
        else:
            texts = dict.fromkeys(text for value in subject.named(self.names).values() for text in texts_of(value))
            candidates = subject.all_resolved(texts)
        found = [place for one in self.patterns for place in one.places(subject, follow=True)]
        places = list(dict.fromkeys(fold(below) for place in found for below in _covering(place)))
        for forms in candidates:
            if _matches(places, [fold(forms.lexical), fold(forms.real)]):
                return Finding(met=True, why=f"{_said(forms)} is {self.spec}")
        return Finding(met=False, why=f"no path in it is {self.spec}")


def as_paths(given: object) -> tuple[PathPattern, ...]:
    """The patterns that a file names. Raises `ValueError`."""
    texts = given if isinstance(given, list) else [given]
    if not texts or not is_texts(texts):
        raise ValueError("is a pattern or a list of patterns, as text: 'src/**' or ['src/**', '**/.env']")
    return tuple(_pattern(text) for text in texts)


def _pattern(text: str) -> PathPattern:
    parts = text.split("/")
    if ".." in parts:
        raise ValueError(f"has {text!r}; a pattern is compared with paths that are resolved, so it has no '..'")
    if len(text) > LONGEST or "\0" in text or "\\" in text:
        raise ValueError(f"has {text[:40]!r}…; a pattern has at most {LONGEST} characters, no NUL and no backslash")
    if len(parts) == 1:
        raise ValueError(f"has {text!r}; write './{text}' for the one in the working directory, '**/{text}' for any")
    root, rest = _rooted(text, parts[0])
    rest = re.sub(r"/(?:\.?/)+|/\.?$", "/", rest).rstrip("/") or "/"
    if "(?!)" in _translated(rest):
        raise ValueError(f"has {text!r}, which nothing matches; turn the range in its brackets around")
    return PathPattern(text, root, rest)


def _rooted(text: str, first: str) -> tuple[str, str]:
    """What a pattern begins at, and what follows."""
    if first == "~":
        return "home", text[1:]
    if first.startswith("~"):
        raise ValueError(f"has {text!r}; write the folder of another user in full")
    if first in ("", "**") or re.fullmatch("[A-Za-z]:", first):
        return "", text if first != "**" else f"/{text}"
    return "cwd", f"/{text}"


def _covering(pattern: str) -> tuple[str, ...]:
    """The pattern, and everything below what it matches; the folder itself, where it says `**`."""
    own = pattern.removesuffix("/**") or "/"
    return (own, f"{own.rstrip('/')}/**")


def _matches(patterns: Iterable[str], paths: Iterable[str]) -> bool:
    return any(_compiled(pattern).fullmatch(path, timeout=TIME_LIMIT) for pattern in patterns for path in paths)


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> regex.Pattern[str]:
    own = pattern.removesuffix("/**")
    translated = _translated(pattern)
    return regex.compile(f"{translated}|{_translated(own)}" if own not in ("", pattern) else translated)


def _translated(pattern: str) -> str:
    [translated], _ = glob.translate(pattern, flags=FLAGS)
    return str(translated)


def _said(forms: Forms) -> str:
    shown = repr(forms.text[:80])
    return shown if forms.real == forms.lexical else f"{shown}, which leads to {forms.real[:200]!r},"
