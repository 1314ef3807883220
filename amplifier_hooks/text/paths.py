"""The arguments of a call come in; the paths in them go out, in any spelling, and are matched against patterns.

| written        | means                                                                       |
|----------------|-----------------------------------------------------------------------------|
| `/etc/hosts`   | that file                                                                   |
| `src/*.py`     | below the working directory of the session; `./setup.py` is right in it     |
| `~/.ssh/**`    | below the home folder of the current user, that folder included             |
| `**/.env`      | anywhere at all                                                             |

`*` stays within one name and `**` crosses folders; both match names that begin with a dot.

`CallPaths.find_match` looks at every text in the arguments, whatever the argument's name, at the words of commands, at
the files that a shell would put in the place of `.e*`, and at the files that a patch names. It follows `..` and links,
expands `~`, variables, `file:` and percent signs, and ignores the case of letters and the spelling of accents. A
pattern also covers everything below the path that it matches.

This is a net and no wall. It does not see changes between the look and the call, nor a second name of a file, a hard
link. A `PathMatch` has the path only as the caller wrote it, because the resolved path may hold values of variables.

`Unresolved` is a value of its own and stands for any path: a path cannot be resolved if it is relative and the working
directory is unknown, if it has a NUL, if its links lead in a circle or cannot be read, or if it is too long even
without `.` and `..`. A value that is no JSON counts as unresolved, too.

The module runs and changes nothing; it only asks the file system for the target of a path.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import unquote, urlsplit

import regex
from attrs import define, evolve, field, frozen

from amplifier_hooks.text.matching import translate_glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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
"""Names of arguments in which an allow rule looks for paths, unless it names others."""

COMMAND_NAMES: Final = ("command", "cmd")
"""Names of arguments that hold a shell command, unless a rule names another."""

LONGEST_PATH: Final = 4_096
"""Characters of a path that a file system takes, without `.` and `..`."""
LONGEST_NAME: Final = 255
LONGEST_TEXT: Final = 65_536
"""Characters of a text whose links are followed, one name after the other."""
MOST_LOOKS: Final = 40_000
"""Names that one call may have looked up in the file system."""
COMPARED: Final = 8
"""Names of a folder that count as one look when a pattern is compared with them."""
NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})
"""Errors of a path at which there is nothing; with any other one its target is unknown."""
MOST_PARTS: Final = 4_000
MOST_TEXTS: Final = 2_000
SEPARATORS: Final = re.compile(r"[\s;|&()<>`${}]+")
BETWEEN_WORDS: Final = re.compile(r"[\s;|&()<>`]+")
"""Characters that end a word of a command before its variables are expanded."""
VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})|%(\w+)%", re.ASCII)
"""A variable of a shell. `os.path.expandvars` takes quadratic time over unclosed braces."""
QUOTES: Final = str.maketrans("", "", "'\"\\")
BLANKS: Final = re.compile(r"\\\n|\$\{IFS[^}]{0,64}\}|\$IFS\b")
WITHIN: Final = re.compile(r"[=:@,]")
TIME_LIMIT: Final = 0.05
LONGEST: Final = 512
MAGIC: Final = re.compile(r"[*?\[]")
MAGIC_NAME: Final = re.compile(r"[\[\\]")
MAGIC_OR_QUOTE: Final = re.compile(r"[*?\[\\]")
WILD: Final = re.compile(r"[*?]+")

ENCODED: Final = 3
"""Times that percent signs are decoded, because they may be encoded themselves."""

PATCH: Final = re.compile(r"^(?:\*\*\* Begin Patch|diff --git |--- )", re.MULTILINE)
"""Beginning of a patch, as coding agents, `diff` or git write it."""
PATCHED: Final = re.compile(
    r"^(?:\*\*\* (?:Add File|Update File|Delete File|Move to): |(?:---|\+\+\+|rename from|rename to|copy to) )"
    r"([^\t\r\n]+)",
    re.MULTILINE,
)
OF_GIT: Final = ("a/", "b/")
"""Prefixes that git puts before the paths of a patch."""


JSON_SCALARS: Final = (str, int, float, bool, type(None))


class TooManyParts(Exception):
    """A call has more texts than the matcher looks at, or more names to look up in the file system."""


class UnknownFolder(Exception):
    """A pattern begins at an unknown folder: the working directory or the home folder."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        super().__init__(f"the folder that {spec!r} begins at is not known")


@frozen
class PathForms:
    """A path in three forms: as the caller wrote it, normalised, and with its links followed."""

    text: str
    lexical: str
    real: str


@frozen
class Unresolved:
    """A path as the caller wrote it, whose target is unknown: it may be any file."""

    text: str


@frozen
class PathMatch:
    """A path as the caller wrote it, and the pattern that covers it."""

    text: str
    pattern: PathPattern


@define(eq=False)
class CallPaths:
    """The paths in the arguments of one call. It resolves them on first use."""

    arguments: Mapping[str, Any]
    folder: str
    """The folder of the call, in which its paths are resolved; a relative one counts as unknown."""
    root: str = ""
    """The session's root, at which relative patterns begin; the folder of the call if it is empty."""

    looks: int = field(default=0, init=False)
    """Number of the names looked up so far."""
    listings: dict[str, list[str]] = field(factory=dict, init=False)
    """The names in each folder that was read."""

    @cached_property
    def home(self) -> str:
        """The home folder of the current user; empty if there is none."""
        try:
            return str(Path.home())
        except RuntimeError:
            return ""

    @property
    def cwd(self) -> str:
        """The folder of the call; empty if it is unknown."""
        return self.folder if os.path.isabs(self.folder) else ""  # noqa: PTH117  # text, on purpose

    @cached_property
    def roots(self) -> dict[str, tuple[str, str]]:
        """The roots of patterns by name: the session's root and the home folder, as written and with links followed.

        The operator owns these folders, so their links are followed even where those of a pattern are not.
        """
        root = self.root if os.path.isabs(self.root) else self.cwd  # noqa: PTH117  # text, on purpose
        known = {"cwd": root, "home": self.home}
        return {name: (tidy(path), tidy(os.path.realpath(path))) for name, path in known.items() if path}

    def resolve(self, text: str) -> PathForms | Unresolved | None:
        """Return the forms of a path; None if no file can have this name, because it is empty or far too long.

        Raises `TooManyParts`.
        """
        if not text:
            return None
        if "\0" in text or not (os.path.isabs(text) or self.cwd):  # noqa: PTH117  # text, on purpose
            return Unresolved(text)
        full = os.path.join(self.cwd, text)  # noqa: PTH118  # pathlib would tidy it before links are followed
        lexical = os.path.normpath(full)
        if len(lexical) > LONGEST_PATH:
            return Unresolved(text) if _begins_somewhere(lexical) else None
        if len(text) > LONGEST_TEXT:
            return Unresolved(text)
        self._count_looks(full.count("/") + 1)
        try:
            real = os.path.realpath(full)
            known = _is_known(real)
        except ValueError:
            return Unresolved(text)
        return PathForms(text, tidy(lexical), tidy(real)) if known else Unresolved(text)

    def arguments_named(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the arguments with these names."""
        return {name: self.arguments[name] for name in names if name in self.arguments}

    @cached_property
    def possible_paths(self) -> list[PathForms | Unresolved]:
        """All possible paths in the arguments: texts, words of commands, files of patches. Raises `TooManyParts`."""
        leaves = list(leaves_of([*self.arguments.values()]))
        given = [one for one in leaves if isinstance(one, str)]
        texts = {text: text for text in given}
        for value in self.arguments_named(COMMAND_NAMES).values():
            for command in texts_of(value):
                parts = _parts_of(command)
                for part, written in parts.items():
                    for text in (part, *self._expand_glob(part)):
                        texts.setdefault(text, written)
                if len(texts) > MOST_TEXTS:
                    raise TooManyParts
        for text in given:
            for name in patched_files(text):
                texts.setdefault(name, name)
        return self.resolve_all(texts) + foreign_values(leaves)

    def find_match(self, patterns: Sequence[PathPattern], names: tuple[str, ...] = ()) -> PathMatch | Unresolved | None:
        """Return the first path in the arguments that a pattern covers, or else the first that cannot be resolved.

        The result is None if there is neither. With `names`, look only in those arguments.

        Raises `UnknownFolder`, `TooManyParts`, and `TimeoutError` for a pattern that takes longer than `TIME_LIMIT`.
        """
        unknown = next((one.spec for one in patterns if one.root and one.root not in self.roots), None)
        if unknown is not None:
            raise UnknownFolder(unknown)
        if names:
            leaves = [leaf for value in self.arguments_named(names).values() for leaf in leaves_of(value)]
            texts = {leaf: leaf for leaf in leaves if isinstance(leaf, str)}
            candidates = self.resolve_all(texts) + foreign_values(leaves)
        else:
            candidates = self.possible_paths
        covered = [
            (one, [fold(_with_descendants(place)) for place in one.absolute_patterns(self, follow=True)])
            for one in patterns
        ]
        for forms in candidates:
            if isinstance(forms, PathForms):
                paths = [fold(forms.lexical), fold(forms.real)]
                for pattern, places in covered:
                    if matches(places, paths):
                        return PathMatch(forms.text, pattern)
        return next((one for one in candidates if isinstance(one, Unresolved)), None)

    def resolve_all(self, texts: Mapping[str, str]) -> list[PathForms | Unresolved]:
        """Return each text resolved, in all its spellings: scheme, `~` and percent signs expanded.

        `texts` maps each text to the caller's spelling of it. A text that can name no file is left out. Raises
        `TooManyParts`.
        """
        if len(texts) > MOST_TEXTS:
            raise TooManyParts
        spelt: dict[str, str] = {}
        for text, written in texts.items():
            for one in _spellings(text):
                spelt.setdefault(one, written)
        found = ((self.resolve(one), written) for one, written in spelt.items())
        return [evolve(forms, text=written) for forms, written in found if forms is not None]

    def _expand_glob(self, word: str) -> list[str]:
        """Return the files that a shell would put in the place of a word such as `.e*`. Expands only its last part."""
        folder, _, last = word.rpartition("/")
        where = self.resolve(f"{folder}/" if "/" in word else ".") if MAGIC.search(last) else None
        if not isinstance(where, PathForms):
            return []
        if where.real not in self.listings:
            try:
                with os.scandir(where.real) as entries:
                    self.listings[where.real] = [entry.name for entry in islice(entries, MOST_LOOKS + 1)]
            except OSError:
                self.listings[where.real] = []
            self._count_looks(len(self.listings[where.real]))
        self._count_looks(len(self.listings[where.real]) // COMPARED)
        names = fnmatch.filter(self.listings[where.real], last)
        return [f"{where.real}/{name}" for name in names if last.startswith(".") or not name.startswith(".")]

    def _count_looks(self, number: int) -> None:
        """Count names that are about to be looked up. Raises `TooManyParts` before it is too many."""
        self.looks += number
        if self.looks > MOST_LOOKS:
            raise TooManyParts


@frozen
class PathPattern:
    """One pattern, with the folder at which it begins: the root, the working directory or the home folder."""

    spec: str
    root: str
    rest: str

    def absolute_patterns(self, whereabouts: CallPaths, *, follow: bool) -> tuple[str, ...]:
        """Return this pattern as patterns over whole paths, or none if its root is unknown.

        With `follow`, also return the pattern with the links in its fixed part followed.
        """
        if self.root and self.root not in whereabouts.roots:
            return ()
        magic = MAGIC.search(self.rest)
        fixed = self.rest if magic is None else self.rest[: magic.start()].rpartition("/")[0]
        found = dict.fromkeys(root.rstrip("/") + fixed for root in whereabouts.roots.get(self.root, ("",)))
        if follow:
            found |= dict.fromkeys(tidy(os.path.realpath(base or "/")) for base in found)
        return tuple(
            MAGIC_OR_QUOTE.sub(r"\\\g<0>", base).rstrip("/") + self.rest[len(fixed) :] or "/" for base in found
        )


def parse_patterns(value: object) -> tuple[PathPattern, ...]:
    """Return the patterns that a file names. Raises `ValueError`."""
    texts = value if isinstance(value, list) else [value]
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
    root, rest = _split_root(text, parts[0])
    rest = re.sub(r"/(?:\.?/)+|/\.?$", "/", rest).rstrip("/") or "/"
    try:
        _compile(rest)
    except regex.error:
        raise ValueError(f"has {text!r}, which nothing matches; turn the range in its brackets around") from None
    return PathPattern(text, root, rest)


def _split_root(text: str, first: str) -> tuple[str, str]:
    """Return the root at which a pattern begins, and the rest of the pattern."""
    if first == "~":
        return "home", text[1:]
    if first.startswith("~"):
        raise ValueError(f"has {text!r}; write the folder of another user in full")
    if first in ("", "**") or re.fullmatch("[A-Za-z]:", first):
        return "", text if first != "**" else f"/{text}"
    return "cwd", f"/{text}"


def _with_descendants(pattern: str) -> str:
    """Return a pattern for the paths that this one matches, and everything below them."""
    return f"{pattern.removesuffix('/**').rstrip('/')}/**"


def matches(patterns: Iterable[str], paths: Iterable[str]) -> bool:
    """Return True if one of these patterns over whole paths matches one of these paths. Raises `TimeoutError`."""
    texts = tuple(paths)
    return any(
        _compile(pattern).fullmatch(text, timeout=TIME_LIMIT)
        for pattern in patterns
        for text in texts
        if all(literal in text for literal in _literals(pattern))
    )


@lru_cache(maxsize=1_024)
def _literals(pattern: str) -> tuple[str, ...]:
    """Return texts that occur in every path that a pattern matches: a quick test that most texts fail."""
    plain = (name for name in pattern.split("/") if not MAGIC_NAME.search(name))
    return tuple({literal for name in plain for literal in WILD.split(name) if literal})


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> regex.Pattern[str]:
    return regex.compile(translate_glob(pattern, path=True))


def _is_known(path: str) -> bool:
    """Return True if the file system tells what is at a path whose links were followed, or that nothing is."""
    try:
        os.stat(path)  # noqa: PTH116  # text, on purpose
    except OSError as problem:
        return problem.errno in NOWHERE
    return True


def _begins_somewhere(path: str) -> bool:
    """Return True if a path that is too long begins at a folder that exists, or that cannot be looked at."""
    beginning, _, name = tidy(path)[: LONGEST_PATH // 4].rpartition("/")
    if len(name) > LONGEST_NAME:
        return False
    try:
        os.lstat(beginning)
    except OSError as problem:
        return problem.errno not in NOWHERE
    except ValueError:
        return True
    return True


def foreign_values(leaves: Iterable[object]) -> list[PathForms | Unresolved]:
    """Return the values that are no JSON, by their type: the tool may take them for any path."""
    return [Unresolved(f"<{type(one).__name__}>") for one in leaves if not isinstance(one, JSON_SCALARS)]


def patched_files(text: str) -> list[str]:
    """Return the files that a patch names, or none if the text is not a patch."""
    if PATCH.search(text) is None:
        return []
    named = [found.strip() for found in PATCHED.findall(text)]
    return [one for name in named for one in (name, name[2:] if name.startswith(OF_GIT) else name)]


def words_in(command: str) -> list[str]:
    """Return the words of a command, roughly: quotes are dropped, and every separator of a shell ends a word."""
    blanked = BLANKS.sub(" ", command)
    return [word for word in (piece.translate(QUOTES) for piece in SEPARATORS.split(blanked)) if word]


def is_texts(values: Sequence[object]) -> TypeGuard[list[str]]:
    """Return True if all of these values are texts."""
    return all(isinstance(value, str) for value in values)


def fold(text: str) -> str:
    """Return a text folded for file systems that ignore case and the spelling of accents."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def tidy(path: str) -> str:
    """Return a path with `/` between its parts."""
    return path.replace("\\", "/") if os.name == "nt" else path


def _parts_of(command: str) -> dict[str, str]:
    """Return the possible paths in a command, with and without variables expanded, each with the caller's text."""
    parts: dict[str, str] = {}
    for written in BETWEEN_WORDS.split(BLANKS.sub(" ", command)):
        for word in words_in(written):
            parts |= {part: part for part in (word, *_parts(word))}
        if (expanded := _expansion(written)) != written:
            quoted = written.translate(QUOTES)
            for word in words_in(expanded):
                for part in (word, *_parts(word)):
                    parts.setdefault(part, quoted)
    return parts


def _spellings(text: str) -> Iterator[str]:
    """Yield a text and the readings that tools may have of it: scheme, percent signs, `~` and variables expanded."""
    yield text
    plain = text
    if text[:5].casefold() == "file:":
        try:
            plain = urlsplit(text).path
        except ValueError:
            plain = text[5:]
        yield plain
    for _ in range(ENCODED):
        if "%" in plain:
            plain = unquote(plain)
            yield plain
    yield _expansion(os.path.expanduser(plain))  # noqa: PTH111  # other people's homes as well


def _expansion(text: str) -> str:
    """Return a text with the variables of this process expanded, for comparisons only: the values may be secret."""
    if VARIABLE.search(text) is None:
        return text
    values = dict(os.environ)  # a look at `os.environ` itself takes ten times as long

    def value_of(found: re.Match[str]) -> str:
        name = found[found.lastindex or 0]
        return values.get(name.upper() if os.name == "nt" else name, found[0])

    return VARIABLE.sub(value_of, text)


def _parts(word: str) -> list[str]:
    """Return the possible paths inside a word, as in `--file=/etc/passwd`."""
    return [word[found.end() :] for found in WITHIN.finditer(word)][:8]


def leaves_of(value: object) -> Iterator[object]:
    """Yield every plain value inside a value in order, keys included. Raises `TooManyParts`."""
    waiting, count = [value], 0
    while waiting:
        one = waiting.pop()
        count += 1
        if count > MOST_PARTS:
            raise TooManyParts
        if isinstance(one, Mapping):
            waiting += reversed([part for pair in one.items() for part in pair])
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
        else:
            yield one


def texts_of(value: object) -> list[str]:
    """Return every text inside a value, keys included. Raises `TooManyParts`."""
    return [one for one in leaves_of(value) if isinstance(one, str)]
