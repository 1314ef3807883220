"""The arguments of a call come in; the paths in them go out, in any spelling, and are matched against patterns.

| written        | means                                                                       |
|----------------|-----------------------------------------------------------------------------|
| `/etc/hosts`   | that file                                                                   |
| `src/*.py`     | below the working directory of the session; `./setup.py` is right in it     |
| `~/.ssh/**`    | below the home folder of the current user, that folder included             |
| `**/.env`      | anywhere at all                                                             |

`*` stays within one name and `**` crosses folders; both match names that begin with a dot.

`CallPaths.find_match` looks at every text in the arguments, whatever the argument's name, at the paths that the
analysis of the call finds (IMP-5), at the words of its commands, and at the files that a patch names. One function,
`_spellings`, says how a text may be read: without blanks around it, after `~`, `$HOME`, `file:` and percent signs.
Matching follows `..` and links, and ignores the case of letters, the width of characters and the spelling of accents.
A pattern also covers everything below the path that it matches.

A part that only a run can tell, a variable or a glob, stands for every text that it may become: `con*/live.yaml` and
`$X/live.yaml` may be `config/live.yaml`. No variable of this process is looked at.

This is a net and no wall. It does not see changes between the look and the call, nor a second name of a file, a hard
link. A `PathMatch` has the path only as the caller wrote it.

`Unresolved` is a value of its own and stands for any path: a path cannot be resolved if it is relative and the working
directory is unknown, if it has a NUL, if its links lead in a circle or cannot be read, or if it is too long even
without `.` and `..`. A value that is no JSON counts as unresolved, too, and so does a command that cannot be read.

The module runs and changes nothing; it only asks the file system for the target of a path.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import unquote, urlsplit

from attrs import define, evolve, field, frozen

from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.impact.file_facts import ask_file_system, is_share
from amplifier_hooks.impact.places import ANY, INVISIBLE, MARKED, NAME, ONE, SHOWN, UNKNOWN, holds_glob, show
from amplifier_hooks.impact.tools import DIFFED, PATCHED, REMOVED, named_texts, predict_impact, tool_kind
from amplifier_hooks.impacts import CallImpact, ImpactPolicy
from amplifier_hooks.text.matching import compile_path_glob, glob_parts

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
NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})
"""Errors of a path at which there is nothing; with any other one its target is unknown."""
MOST_PARTS: Final = 4_000
MOST_TEXTS: Final = 2_000
SEPARATORS: Final = re.compile(r"[\s;|&()<>`${}]+")
VARIABLE: Final = re.compile(r"\$(?:\w+|\{\w+\})|%\w+%", re.ASCII)
"""A variable of a shell."""
OWN_MACHINE: Final = re.compile(r"^//(?:localhost|127\.0\.0\.1|[?.])(?=/)", re.IGNORECASE)
"""The beginning of a path that names this machine as if it were another one."""
HOME: Final = re.compile(r"\$HOME\b|\$\{HOME\}|%(?:HOME|USERPROFILE)%")
STARS: Final = {UNKNOWN: "any", ANY: "name", NAME: "name"}
"""Marks that stand for a text of any length, each with the kind of its characters."""
NOT_IN: Final = {"any": "", "name": "/", "visible": "/."}
"""Characters that a kind of characters leaves out."""
KINDS_OF_PARTS: Final = {"below": "below", "star": "star", "whole": "whole", "one": "one", "set": "one"}
MOST_COMPARED: Final = 1 << 17
"""Most pairs of a character of a path and a part of a pattern that are compared."""
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


COMPARED: Final = 8
"""Names of a folder that count as one look when a pattern is compared with them."""
PATCH: Final = re.compile(r"^(?:\*\*\* Begin Patch|diff --git |--- )", re.MULTILINE)
"""Beginning of a patch, as coding agents, `diff` or git write it."""

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
    sure: bool = True
    """False if only a run tells the path, and the pattern covers one that it may be."""


@define(eq=False)
class CallPaths:
    """The paths in the arguments of one call. It resolves them on first use."""

    tool: str
    arguments: Mapping[str, Any]
    folder: str
    """The folder of the call, in which its paths are resolved; a relative one counts as unknown."""
    root: str = ""
    """The session's root, at which relative patterns begin; the folder of the call if it is empty."""

    looks: int = field(default=0, init=False)
    """Number of the names looked up so far."""
    commands: dict[str, CallImpact] = field(factory=dict, init=False)
    """The impact of each command that was read."""
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

    @cached_property
    def policy(self) -> ImpactPolicy:
        """The folders of the call, for the analysis of impact; the session's root may lie behind a link."""
        roots = self.roots.get("cwd", ("/",))
        return ImpactPolicy(roots[0], self.home or "/", trusted_folders=roots)

    @cached_property
    def impact(self) -> CallImpact:
        """The impact of the call; where the folder of the call is unknown, that of a call in the root of the system."""
        return predict_impact(self.tool, self.arguments, self.policy, ask_file_system, folder=self.cwd or "/")

    @cached_property
    def readings(self) -> tuple[CallImpact, ...]:
        """The impact of the call, and that of each command in its arguments if the tool is no shell."""
        commands = {} if tool_kind(self.tool) == "shell" else self.arguments_named(COMMAND_NAMES)
        return self.impact, *(self.read_command(value) for value in commands.values())

    def read_command(self, command: object) -> CallImpact:
        """Return the impact of a shell command in the folder of the call. A text is read once."""
        if not isinstance(command, str) or command not in self.commands:
            read = predict_impact("shell", {"command": command}, self.policy, ask_file_system, folder=self.cwd or "/")
            if not isinstance(command, str):
                return read
            self.commands[command] = read
        return self.commands[command]

    def resolve(self, text: str) -> PathForms | Unresolved | None:
        """Return the forms of a path; None if no file can have this name, because it is empty or far too long.

        Raises `TooManyParts`.
        """
        if not text:
            return None
        if "\0" in text or is_share(text) or not (os.path.isabs(text) or self.cwd):  # noqa: PTH117  # text, on purpose
            return Unresolved(text)
        full = os.path.join(self.cwd, text)  # noqa: PTH118  # pathlib would tidy it before links are followed
        lexical = os.path.normpath(full)
        if len(lexical) > LONGEST_PATH:
            return Unresolved(text) if _begins_somewhere(lexical) else None
        if len(text) > LONGEST_TEXT:
            return Unresolved(text)
        self._count_looks(full.count("/") + 1)
        try:
            real = self._real_path(full, lexical)
        except (OSError, ValueError):
            return Unresolved(text)
        return PathForms(text, tidy(lexical), tidy(real))

    def _real_path(self, full: str, lexical: str) -> str:
        """Return a path with its links followed, up to the first part that is a glob.

        Raises `OSError` if the file system does not tell its target, `ValueError`.
        """
        if UNKNOWN in lexical:  # It may hold `..` or a whole path, so only the text behind it is known.
            return lexical[lexical.rindex(UNKNOWN) :]
        if mark := MARKED.search(lexical):
            known = lexical[: mark.start()].rpartition("/")[0]
            return os.path.realpath(known or "/").rstrip("/") + lexical[len(known) :]
        real = os.path.realpath(full)
        if not _is_known(real):
            raise OSError
        return real

    def arguments_named(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the arguments with these names."""
        return {name: self.arguments[name] for name in names if name in self.arguments}

    @cached_property
    def possible_paths(self) -> list[PathForms | Unresolved]:
        """All possible paths: texts, files of patches, words and paths of commands. Raises `TooManyParts`."""
        leaves = list(leaves_of([*self.arguments.values()]))
        given = [one for one in leaves if isinstance(one, str)]
        commands = {value for value in self.arguments_named(COMMAND_NAMES).values() if isinstance(value, str)}
        texts = {text: text for text in given if text not in commands}
        for text in given:
            texts |= {name: name for name in patched_files(text)}
        for text in named_texts(self.arguments, "path"):
            for path in (text, unquote(text)):  # Tools for paths may read backslashes, and variables of any value.
                plain = OWN_MACHINE.sub("", path.replace("\\", "/"))
                texts = {
                    VARIABLE.sub(UNKNOWN, HOME.sub(lambda _: self.home or UNKNOWN, plain)): text,
                    plain: text,
                } | texts
        return self.resolve_all(texts) + self._found_paths() + foreign_values(leaves)

    def _found_paths(self) -> list[PathForms | Unresolved]:
        """Return the paths that the analysis of the call finds, and the words of its commands."""
        found: dict[str, str] = {}
        for command in (command for reading in self.readings for command in reading.commands):
            if command.words[:1] == (UNKNOWN,):
                return [Unresolved("a command that only a run can tell")]
            folders = [folder for folder in command.folders if self.cwd and folder != self.cwd]
            literal = "unknown_program" not in command.kinds
            for part in (part for word in command.words for part in (word, *_parts(word))):
                if not (literal and MARKED.search(part)):
                    found[part] = show(part)
                    found |= {os.path.join(folder, part): show(part) for folder in folders}  # noqa: PTH118
            if len(found) > MOST_TEXTS:
                raise TooManyParts
        for path in (path for reading in self.readings for path in reading.paths if self.cwd):
            found.setdefault(path, self._quoted(path))
        for path, written in list(found.items()):
            found |= dict.fromkeys(self._expand_glob(path), written)
        return self.resolve_all(found)

    def _quoted(self, path: str) -> str:
        """Return a path of the analysis without folders that the call does not name."""
        for folder, short in ((self.cwd, ""), (self.home, "~/")):
            if folder and path.startswith(f"{folder}/"):
                return show(short + path[len(folder) + 1 :])
        return show(path)

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
        possible: PathMatch | None = None
        for forms in candidates:
            if not isinstance(forms, PathForms):
                continue
            paths = dict.fromkeys((fold(forms.lexical), fold(forms.real)))
            if not MARKED.search(forms.lexical):
                found = next((pattern for pattern, places in covered if matches(places, paths)), None)
                if found is not None:
                    return PathMatch(forms.text, found)
            else:
                possible = possible or _possible_match(forms, covered)
        return next((one for one in candidates if isinstance(one, Unresolved)), possible)

    def resolve_all(self, texts: Mapping[str, str]) -> list[PathForms | Unresolved]:
        """Return each text resolved, in all its spellings.

        `texts` maps each text to the caller's spelling of it. A text that can name no file is left out. Raises
        `TooManyParts`.
        """
        if len(texts) > MOST_TEXTS:
            raise TooManyParts
        spelt: dict[str, str] = {}
        for text, written in texts.items():
            for one in _spellings(text, self.home):
                spelt.setdefault(one, written)
        found = ((self.resolve(one), written) for one, written in spelt.items())
        return [evolve(forms, text=written) for forms, written in found if forms is not None]

    def _expand_glob(self, path: str) -> list[str]:
        """Return the files that a shell would put in the place of a path such as `.e*`. Expands only its last part."""
        folder, _, last = path.rpartition("/")
        is_glob = holds_glob(last) and UNKNOWN not in last and not MARKED.search(folder)
        where = self.resolve(f"{folder}/") if is_glob else None
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
        names = fnmatch.filter(self.listings[where.real], last.translate(SHOWN))
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
        compile_path_glob(rest)
    except InvalidRegistration:
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
        compile_path_glob(pattern).fullmatch(text, timeout=TIME_LIMIT)
        for pattern in patterns
        for text in texts
        if all(literal in text for literal in _literals(pattern))
    )


@lru_cache(maxsize=1_024)
def _literals(pattern: str) -> tuple[str, ...]:
    """Return texts that occur in every path that a pattern matches: a quick test that most texts fail."""
    plain = (name for name in pattern.split("/") if not MAGIC_NAME.search(name))
    return tuple({literal for name in plain for literal in WILD.split(name) if literal})


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
    named = [found.strip() for _, found in PATCHED.findall(text)]
    others = [*DIFFED.findall(text), *REMOVED.findall(text)]
    return named + [name for found in others for name in (found, f"a/{found}", f"b/{found}")]


def words_in(command: str) -> list[str]:
    """Return the words of a command, roughly: quotes are dropped, and every separator of a shell ends a word."""
    blanked = BLANKS.sub(" ", command)
    return [word for word in (piece.translate(QUOTES) for piece in SEPARATORS.split(blanked)) if word]


def is_texts(values: Sequence[object]) -> TypeGuard[list[str]]:
    """Return True if all of these values are texts."""
    return all(isinstance(value, str) for value in values)


def fold(text: str) -> str:
    """Return a text folded for file systems that ignore the case and width of letters, and the spelling of accents."""
    return INVISIBLE.sub("", unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))


def tidy(path: str) -> str:
    """Return a path with `/` between its parts."""
    return path.replace("\\", "/") if os.name == "nt" else path


def _spellings(text: str, home: str) -> Iterator[str]:
    """Yield a text and the readings that tools may have of it.

    Some tools take blanks away, or read `~`, `$HOME`, `file:` and percent signs.
    """
    yield text
    plain = text.strip()
    if plain[:5].casefold() == "file:":
        try:
            plain = urlsplit(plain).path
        except ValueError:
            plain = plain[5:]
    for _ in range(ENCODED):
        yield plain
        if "%" not in plain:
            break
        plain = unquote(plain)
    yield plain
    plain = HOME.sub(lambda _: home or UNKNOWN, plain)
    if plain[:1] == "~" and home:
        user, slash, rest = plain[1:].partition("/")
        plain = f"{posixpath.join(posixpath.dirname(home), user) if user else home}{slash}{rest}"
    yield plain


def _possible_match(forms: PathForms, covered: Sequence[tuple[PathPattern, list[str]]]) -> PathMatch | None:
    """Return a match with the pattern that a path with marks likely meets, or else with one that it may meet."""
    likely, paths = {fold(MARKED.sub("x", forms.lexical))}, {fold(forms.lexical), fold(forms.real)}
    named = [pattern for pattern, places in covered if matches(places, likely)] or [
        pattern for pattern, places in covered if any(may_match(place, path) for place in places for path in paths)
    ]
    return PathMatch(forms.text, named[0], sure=False) if named else None


def may_match(pattern: str, path: str) -> bool:
    """Return True if a path with marks may become one that a pattern over whole paths matches.

    The places of the pattern that a beginning of the path may reach are followed. An even number stands for the place
    in front of a part, an odd one for a place inside `/**`. Brackets in a pattern count as any character.
    """
    parts = [
        part["text"] or KINDS_OF_PARTS.get(str(part.lastgroup), "/") for part in glob_parts(path=True).finditer(pattern)
    ]
    if len(path) * len(parts) > MOST_COMPARED:
        return True
    places, before = _reach(parts, {0}), "/"
    for sign in path:
        hidden = "visible" if before == "/" else "name"
        before = sign
        if sign not in STARS:
            places = _step(parts, places, hidden if sign == ONE else sign)
            continue
        found, more = set[int](), _step(parts, places, hidden if sign == ANY else STARS[sign])
        while not more <= found:
            found |= more
            more = _step(parts, found, STARS[sign])
        places = places | found
    return 2 * len(parts) in places


def _reach(parts: Sequence[str], places: Iterable[int]) -> set[int]:
    """Return places, and those behind parts of a pattern that match an empty text."""
    found: set[int] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            if place % 2 or parts[place // 2 : place // 2 + 1] in (["star"], ["below"]):
                waiting.append(place - place % 2 + 2)
    return found


def _step(parts: Sequence[str], places: Iterable[int], sign: str) -> set[int]:
    """Return the places behind one more character, or behind one of a kind: `any`, `name`, `visible`."""
    found: set[int] = set()
    for place in places:
        part = parts[place // 2] if place // 2 < len(parts) else ""
        if place % 2:
            found.add(place)
        elif part == "below":
            found |= {place + 1} if sign in ("/", "any") else set()
        elif part in ("star", "whole", "one"):
            found |= ({place + 2} if part == "one" else {place, place + 2}) if sign != "/" else set()
        elif part and (sign == part or part not in NOT_IN.get(sign, part)):
            found.add(place + 2)
    return _reach(parts, found)


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
