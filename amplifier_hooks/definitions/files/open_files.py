"""Files of definitions: paths come in; checked pages, with a line for every part and with `$ref`s resolved, go out.

Keys beside a `$ref` override those of the part that it names; a `config` is merged key by key. `InvalidDefinitions` has
all mistakes of a set, each with its file and line.
"""

from __future__ import annotations

import hashlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from amplifier_hooks.definitions.trust import NoPlainFile, opened_plainly
from amplifier_hooks.errors import HookError
from amplifier_hooks.text.strict_parsing import KeyPath, NotReadable, ParsedDocument, parse_json, parse_yaml, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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


FILE_ENDINGS: Final = (".yaml", ".yml", ".json")

KEYS: Final[dict[str, tuple[type, str]]] = {
    "version": (int, "1"),
    "settings": (dict, "a mapping of setting to value"),
    "events": (list, "a list of the names of events that your program emits itself"),
    "library": (dict, "a mapping of ready-made hook to its settings"),
    "definitions": (dict, "a mapping of name to a part of a hook"),
    "hooks": (list, "a list of hooks"),
    "files": (list, "a list of globs: the files that the commands of all hooks read or run"),
}
"""Keys of a file, each with the type and the description of its value."""

WRITABLE: Final = "every user may write to it, or it is no plain file; chmod o-w it"
LARGEST: Final = 1_048_576
MOST_FILES: Final = 200


@frozen(eq=False)
class Page:
    """One file, read."""

    path: Path
    modified: datetime
    marked: ParsedDocument
    digest: str
    """SHA-256 of the file's bytes."""
    lines: dict[tuple[str | int, ...], dict[KeyPath, int]] = field(init=False)
    """Lines of each hook, named part and ready-made hook, by the path of keys within it."""

    @lines.default
    def _by_part(self) -> dict[tuple[str | int, ...], dict[KeyPath, int]]:
        found: dict[tuple[str | int, ...], dict[KeyPath, int]] = {}
        for place, line in self.marked.lines.items():
            if len(place) > 1:
                found.setdefault(place[:2], {})[place[2:]] = line
        return found

    def section(self, key: str) -> Any:
        """Return the value of a top key; None if it is missing."""
        return self.marked.value.get(key)

    def spot(self, *place: str | int) -> Spot:
        """Return the line of a part of the file."""
        return Spot(str(self.path), self.marked.line(place))

    def spots(self, key: str, name: str | int) -> dict[KeyPath, Spot]:
        """Return the lines within a hook, a named part or a ready-made hook."""
        return {place: Spot(str(self.path), line) for place, line in self.lines[key, name].items()}


@define(eq=False)
class OpenedFiles:
    """The files below one folder; each is read once, from the private copies if there are any."""

    root: Path
    copies: Path | None = None
    read: dict[Path, Page | None] = field(factory=dict)
    """Pages by path; None for a file that failed and whose mistake was raised."""

    def place_of(self, path: Path) -> Path:
        """Return the place from which a file or folder is read."""
        return path if self.copies is None else place_in(self.copies, path)

    def folder(self, folder: Path) -> list[Path]:
        """Return the files of definitions in a folder, by name. Raises `InvalidDefinitions`."""
        try:
            names = [path.name for path in self.place_of(folder).iterdir()]
            there = sorted(folder / name for name in names if Path(name).suffix in FILE_ENDINGS and name[0] != ".")
        except OSError as problem:
            raise mistake_at(Spot(str(folder)), f"{problem.strerror or problem}; name a folder that is there") from None
        if len(there) > MOST_FILES:
            raise mistake_at(Spot(str(folder)), f"it has {len(there)} files; {MOST_FILES} at most")
        return there

    def page(self, path: Path, at: Spot | None = None) -> Page | None:
        """Open a file that was named at a spot; None if the file's mistake has been raised before.

        Raises `InvalidDefinitions`.
        """
        real = real_path(path) if self.copies is None else Path(os.path.normpath(path))  # copies have no links
        if real not in self.read:
            self.read[real] = None
            self.read[real] = self._open_page(real, at or Spot(str(path)))
        return self.read[real]

    def _open_page(self, path: Path, at: Spot) -> Page:
        if not path.is_relative_to(self.root):
            raise mistake_at(at, f"{str(path)!r} is outside of {str(self.root)!r}; files come from there only")
        try:
            with opened_plainly(self.place_of(path)) as (file, found):
                data = file.read(LARGEST + 1)
        except NoPlainFile:
            raise mistake_at(Spot(str(path)), WRITABLE) from None
        except OSError as problem:
            raise mistake_at(
                at, f"{str(path)!r}: {problem.strerror or problem}; name a file that is there and that you may read"
            ) from None
        if found.st_mode & stat.S_IWOTH:
            raise mistake_at(Spot(str(path)), WRITABLE)
        if len(data) > LARGEST:
            raise mistake_at(Spot(str(path)), f"it has more than {LARGEST:,} bytes; split what it says")
        try:
            marked = (parse_json if path.suffix == ".json" else parse_yaml)(data)
        except NotReadable as problem:
            raise mistake_at(Spot(str(path), problem.line), problem.sentence) from None
        page = Page(path, datetime.fromtimestamp(found.st_mtime, UTC), marked, hashlib.sha256(data).hexdigest())
        flaws = list(_shape_flaws(page))
        if flaws:
            raise InvalidDefinitions(flaws)
        return page


def real_path(path: Path) -> Path:
    """Return a path without links; a link that leads to itself stays, where `Path.resolve` would raise."""
    return Path(os.path.realpath(path))


def place_in(copies: Path, path: Path) -> Path:
    """Return the place of a path's copy: private copies keep the folders of their files."""
    return copies.joinpath(*path.parts[1:])


def mistake_at(spot: Spot, said: str) -> InvalidDefinitions:
    """Return an error with one mistake."""
    return InvalidDefinitions([Flaw(spot, said)])


def nearest_spot(spots: dict[KeyPath, Spot], part: KeyPath) -> Spot:
    """Return the spot of a part; for a missing part, the spot of the nearest part around it."""
    return next((spots[part[:length]] for length in range(len(part), -1, -1) if part[:length] in spots), Spot())


def _shape_flaws(page: Page) -> Iterator[Flaw]:
    """Yield the mistakes in the top keys of a file."""
    value = page.marked.value
    if not isinstance(value, dict):
        yield Flaw(page.spot(), "a file of definitions is a mapping with version: 1, and hooks or others of its keys")
        return
    for key, said in value.items():
        if key not in KEYS:
            yield Flaw(page.spot(key), f"unknown key {key[:40]!r}; {suggestion(key, KEYS)}")
        elif said is None and key != "version":
            continue  # a key without a value is allowed; the examples below it may be comments
        elif not isinstance(said, KEYS[key][0]) or isinstance(said, bool):
            yield Flaw(page.spot(key), f"{key!r} is {said!r:.40}; write {KEYS[key][1]}")
        elif key == "version" and said != 1:
            yield Flaw(page.spot(key), f"this is version {said}; this program reads version: 1")
    if "version" not in value:
        yield Flaw(page.spot(), "'version' is missing; add version: 1")


REF: Final = "$ref"
WHAT: Final = {"hooks": "a hook", "library": "what a ready-made hook is set to", "definitions": "a named part"}


@frozen(eq=False)
class LocatedMapping:
    """A mapping with the file and line of each of its parts."""

    value: dict[str, Any]
    spots: dict[KeyPath, Spot]

    def spot(self, *part: str | int) -> Spot:
        """Return the file and line of a part."""
        return nearest_spot(self.spots, part)


def read_part(
    files: OpenedFiles, page: Page, key: str, name: str | int, chain: tuple[Spot, ...] = ()
) -> LocatedMapping | None:
    """Return a hook, a ready-made hook's settings or a named part, with its `$ref` resolved.

    Returns None if a file it refers to has a mistake that was raised before. Raises `InvalidDefinitions`, also for a
    `$ref` that leads in a circle.
    """
    value, spot, spots = page.section(key)[name], page.spot(key, name), page.spots(key, name)
    if value is None and key == "library":
        value = {}
    if not isinstance(value, dict):
        raise mistake_at(spot, f"{WHAT[key]} is a mapping, not {value!r:.40}")
    if spot in chain:
        circle = " → ".join(map(str, [*chain[chain.index(spot) :], spot]))
        raise mistake_at(chain[-1], f"{REF!r} leads in a circle: {circle}; take one of them out")
    own = {part: item for part, item in value.items() if part != REF}
    if REF not in value:
        return LocatedMapping(own, spots)
    base = _resolve_reference(files, page, value[REF], nearest_spot(spots, (REF,)), (*chain, spot))
    if base is None:
        return None
    merged = {**base.value, **own}
    configs = (base.value.get("config"), own.get("config"))
    if all(isinstance(config, dict) for config in configs):
        merged["config"] = {**base.value["config"], **own["config"]}
    return LocatedMapping(merged, {**base.spots, **spots})


def _resolve_reference(
    files: OpenedFiles, page: Page, to: object, at: Spot, chain: tuple[Spot, ...]
) -> LocatedMapping | None:
    """Return the named part that a `$ref` leads to."""
    file, mark, name = to.partition("#/definitions/") if isinstance(to, str) else ("", "", "")
    if not mark or not name:
        raise mistake_at(at, f"{REF!r} is {to!r:.60}; write '#/definitions/name' or 'file.yaml#/definitions/name'")
    target: Page | None = page
    if file:
        path = Path(file)
        if path.is_absolute() or path.suffix not in FILE_ENDINGS or not file.isprintable():
            raise mistake_at(at, f"{REF!r} names {file!r:.60}; name a YAML or JSON file by its path from this one")
        target = files.page(page.path.parent / path, at)
    if target is None:
        return None
    named = target.section("definitions") or {}
    if name not in named:
        raise mistake_at(
            at, f"{REF!r} names {name!r:.60}, which {target.path} does not define; {suggestion(name, named)}"
        )
    return read_part(files, target, "definitions", name, chain)
