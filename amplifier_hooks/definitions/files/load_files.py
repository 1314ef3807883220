"""Definitions in files: YAML or JSON comes in; a set of definitions, or all mistakes, goes out.

```yaml
version: 1
settings:                         # DEF-3; in one file of a set
  hooks_max_per_event: 10
events: [deploy:before]           # the program's own events, at which hooks may be besides the catalogue's
library:                          # ready-made hooks by name, each with its settings
  secret_redaction: {}
definitions:                      # named parts, for $ref
  guard: {event_type: tool:pre, handler_ref: command, config: {argv: [./guard.sh]}}
hooks:
  - $ref: "#/definitions/guard"
    name: guard writes
    matcher: Write|Edit
  - $ref: "shared/base.yaml#/definitions/lint"
    name: lint
    files: [lint/*.py]            # files that the hook's command reads or runs besides those in its argv
files: [lib/*.sh]                 # files that the commands of all hooks read or run
```

A `$ref` is allowed in a hook, in a named part and in a ready-made hook's settings, but not deeper: a JSON schema in a
`config` has `$ref`s of its own. A `$ref` names a part of its own file, or of a file in the folder of the set or below.
"""

from __future__ import annotations

import glob
import hashlib
import os
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, define, field, frozen
from pydantic import ValidationError

from amplifier_hooks.act import freeze
from amplifier_hooks.definitions.files.open_files import (
    Flaw,
    InvalidDefinitions,
    LocatedMapping,
    OpenedFiles,
    Page,
    Spot,
    mistake_at,
    nearest_spot,
    read_part,
    real_path,
)
from amplifier_hooks.definitions.model import DefinitionSettings, HookDefinition, event_name, likeness
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.errors import SettingsError, UnknownEvent
from amplifier_hooks.events import find
from amplifier_hooks.registry.event_names import Vocabulary, is_pattern
from amplifier_hooks.text.strict_parsing import error_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from amplifier_hooks.text.strict_parsing import KeyPath


PROJECT_FILE: Final = "amplifier-hooks.yaml"
"""Name of a project's own file."""

MOST_HOOKS: Final = 1_000
NAME_IT: Final = "name it under 'events', if your program emits it"
HOOK_ID_DOMAIN: Final = b"amplifier-hooks/hook-id/1\n"


MOST_FILES: Final = 1_000
"""Files that one glob may match."""

OF_ALL: Final = ""
"""Key of the globs that hold for all hooks."""


MOST_NAMES: Final = 20_000
"""Names of files and folders that one glob may look at."""


def _expand(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield the paths that match the parts of a glob, and an empty text for each name that is looked at.

    `**` stands for any number of folders, and follows no link.
    """
    part, *rest = parts
    if not glob.has_magic(part):
        path = os.path.join(folder, part)  # noqa: PTH118
        yield from (_expand(path or os.sep, rest) if rest else (path,))
        return
    if part == "**":
        yield from _expand(folder, rest or ["*"])
    with suppress(OSError, ValueError), os.scandir(folder or os.sep) as entries:
        for entry in entries:
            yield ""
            if part == "**":
                if entry.is_dir(follow_symlinks=False):
                    yield from _expand(entry.path, parts)
            elif fnmatchcase(entry.name, part):
                yield from (_expand(entry.path, rest) if rest else (entry.path,))


@frozen
class FileGlob:
    """A glob of `files:`, relative to the folder of the file that has it."""

    folder: Path
    pattern: str
    spot: Spot

    def files(self) -> list[str]:
        """Return the files that match. Raises `InvalidDefinitions` if there are none, or too many."""
        found: set[str] = set()
        start = "" if self.pattern.startswith("/") else str(self.folder)
        try:
            for names, path in enumerate(_expand(start, self.pattern.split("/"))):
                found.update({os.path.realpath(path)} if path and os.path.isfile(path) else ())  # noqa: PTH113
                if len(found) > MOST_FILES:
                    said = f"matches more than {MOST_FILES:,} files; name fewer"
                    raise mistake_at(self.spot, f"{self.pattern!r:.80} {said}")
                if names >= MOST_NAMES:
                    said = f"looks at more than {MOST_NAMES:,} names; name the folder"
                    raise mistake_at(self.spot, f"{self.pattern!r:.80} {said}")
        except RecursionError:
            raise mistake_at(self.spot, f"{self.pattern!r:.80} leads through too many folders; name fewer") from None
        if not found:
            raise mistake_at(self.spot, f"{self.pattern!r:.80} matches no file; mend it, or leave it out")
        return sorted(found)


@frozen(kw_only=True)
class ReadyMadeEntry:
    """A ready-made hook that is switched on in a file."""

    name: str
    config: Mapping[str, Any]
    """The settings of the hook itself."""
    report_only: bool = False
    """True if the answers of the hook have no effect; in a file it stands among the settings."""
    spot: Spot = field(factory=Spot)

    @property
    def content(self) -> list[Any]:
        """The entry as plain JSON, for digests."""
        return [self.name, dict(self.config), self.report_only]


@frozen(kw_only=True)
class DefinitionSet:
    """Definitions that belong together: all of them are in force, or none."""

    definitions: tuple[HookDefinition, ...] = ()
    """The hooks, in the order of their files."""
    library: tuple[ReadyMadeEntry, ...] = ()
    """The ready-made hooks that the files switch on."""
    events: tuple[str, ...] = ()
    """Events that the program emits itself, besides those of the catalogue."""
    settings: DefinitionSettings = field(factory=DefinitionSettings)
    """The settings of the files."""
    path: Path = field(factory=Path.cwd)
    """File or folder at which the set starts."""
    folder: Path = field(factory=Path.cwd)
    """Folder to which the set's paths are relative."""
    files: Mapping[Path, str] = field(factory=dict)
    """Files of the set, each with the SHA-256 of its content."""
    globs: Mapping[str, tuple[FileGlob, ...]] = field(factory=dict, repr=False)
    """Globs of `files:`, by hook id, and for all hooks. An empty list says that there are no such files."""
    spots: Mapping[str, dict[KeyPath, Spot]] = field(factory=dict, repr=False)
    """Lines of the parts of each definition, by hook id."""

    def spot(self, definition: HookDefinition, *part: str | int) -> Spot:
        """Return the line of a definition or of a part of it; a definition that is not from a file has no line.

        Args:
            part: Keys and positions that lead to the part.
        """
        return nearest_spot(self.spots.get(definition.hook_id, {(): Spot(f"hook {definition.name}")}), part)

    @property
    def report_only(self) -> tuple[str, ...]:
        """Names of the hooks that run and stop nothing."""
        hooks = (one.name for one in self.definitions if one.enabled and one.report_only)
        return (*hooks, *(entry.name for entry in self.library if entry.report_only))

    @property
    def digest(self) -> str:
        """Digest of the content of the set, independent of the files it was written in."""
        said = {
            "definitions": [definition.digest for definition in self.definitions],
            "library": [entry.content for entry in self.library],
            "events": list(self.events),
            "settings": self.settings.model_dump(),
        }
        return hashlib.sha256(freeze(said)).hexdigest()


def load_files(
    path: Path, *, environment: Mapping[str, str] | None = None, copies: Path | None = None
) -> DefinitionSet:
    """Read a file of definitions and the files in the folder that its settings name, or the files in a folder.

    With `copies`, the private copies of the files are read instead. Imports nothing. Raises `InvalidDefinitions` with
    all mistakes.
    """
    files = OpenedFiles(path.absolute(), copies)
    whole = files.place_of(files.root).is_dir()
    start = files.root if copies else real_path(files.root)
    files.root = start if whole else files.root.parent if copies else real_path(files.root.parent)
    return Reading(files, environment).read(start, whole=whole)


@define(eq=False)
class Reading:
    """Reader of one set of files. It collects mistakes, so that one error reports all of them."""

    files: OpenedFiles
    environment: Mapping[str, str] | None
    flaws: list[Flaw] = Factory(list)
    globs: dict[str, list[FileGlob]] = Factory(dict)

    def read(self, path: Path, *, whole: bool) -> DefinitionSet:
        """Read the set that starts at a file, or is a whole folder. Raises `InvalidDefinitions`."""
        first = [] if whole else self._open_pages([path])
        settings = self._settings(first)
        folder = path if whole else self._folder(first, settings)
        found = first if folder is None else [*first, *self._open_pages(self._list_folder(folder))]
        if found != first:
            settings = self._settings(found)
        events = self._events(found)
        hooks, library = self._hooks(found, events), self._library(found)
        for page in found:
            self._globs(OF_ALL, page.section("files"), partial(page.spot, "files"))
        if self.flaws:
            raise InvalidDefinitions(self.flaws, self.files.read)
        return DefinitionSet(
            definitions=tuple(definition for definition, _ in hooks),
            library=library,
            events=tuple(events),
            settings=settings,
            path=path,
            folder=self.files.root,
            files={page.path: page.digest for page in self.files.read.values() if page is not None},
            globs={key: tuple(globs) for key, globs in self.globs.items()},
            spots={definition.hook_id: spots for definition, spots in hooks},
        )

    def _open_pages(self, paths: Iterable[Path]) -> list[Page]:
        found: list[Page] = []
        for path in paths:
            try:
                page = self.files.page(path)
            except InvalidDefinitions as problem:
                self.flaws += problem.flaws
            else:
                found += [] if page is None or page in found else [page]
        return found

    def _list_folder(self, folder: Path) -> list[Path]:
        try:
            return self.files.folder(folder)
        except InvalidDefinitions as problem:
            self.flaws += problem.flaws
            return []

    def _folder(self, pages: Iterable[Page], settings: DefinitionSettings) -> Path | None:
        """Return the folder that the settings name; the default folder need not exist."""
        named, default = settings.hooks_definitions_dir, DefinitionSettings().hooks_definitions_dir
        folder = self.files.root / named
        if self.files.place_of(folder).is_dir():
            return folder
        if named != default:
            at = next((page.spot("settings", "hooks_definitions_dir") for page in pages), Spot())
            self.flaws.append(Flaw(at, f"hooks_definitions_dir {named!r} is no folder; make it, or name another"))
        return None

    def _settings(self, pages: Iterable[Page]) -> DefinitionSettings:
        """Return the settings of the set, which are in one of its files."""
        saying = [page for page in pages if page.section("settings")]
        for page in saying[1:]:
            there = f"there are settings in {saying[0].spot('settings')} already; keep one of them"
            self.flaws.append(Flaw(page.spot("settings"), there))
        said = saying[0].section("settings") if saying else {}
        try:
            return DefinitionSettings.load(said, self.environment)
        except SettingsError as problem:
            spot = Spot(str(problem.path))
            if spot.path == "settings":
                key = next((key for key in said if key in problem.problem), "")
                spot = saying[0].spot("settings", key)
            self.flaws.append(Flaw(spot, problem.problem))
            return DefinitionSettings()

    def _events(self, pages: Iterable[Page]) -> dict[str, None]:
        """Return the program's own events, in the order of files and lines."""
        found: dict[str, None] = {}
        for page in pages:
            for number, said in enumerate(page.section("events") or ()):
                try:
                    found[_own_event(said)] = None
                except ValueError as problem:
                    self.flaws.append(Flaw(page.spot("events", number), str(problem)))
        return found

    def _library(self, pages: Iterable[Page]) -> tuple[ReadyMadeEntry, ...]:
        """Return the ready-made hooks that are switched on, each once."""
        found: dict[str, ReadyMadeEntry] = {}
        for page in pages:
            for name in page.section("library") or {}:
                spot, value = page.spot("library", name), self._read_part(page, "library", name)
                if name in found:
                    twice = f"{name!r} is switched on already, in {found[name].spot}; keep one of them"
                    self.flaws.append(Flaw(spot, twice))
                elif value is not None:
                    config = dict(value.value)
                    report_only = config.pop("report_only", False)
                    if not isinstance(report_only, bool):
                        self.flaws.append(Flaw(value.spot("report_only"), "report_only is true or false"))
                        report_only = False
                    found[name] = ReadyMadeEntry(name=name, config=config, report_only=report_only, spot=spot)
        return tuple(found.values())

    def _hooks(self, pages: Iterable[Page], events: Iterable[str]) -> list[tuple[HookDefinition, dict[KeyPath, Spot]]]:
        """Return the hooks in the order of files and lines; note names and ids that clash as mistakes."""
        known = Vocabulary(strict=True)
        known.add_own(events)
        found: list[tuple[HookDefinition, dict[KeyPath, Spot]]] = []
        taken: dict[tuple[str, ...], Spot] = {}
        for page in pages:
            for number in range(len(page.section("hooks") or ())):
                value = self._read_part(page, "hooks", number)
                definition = None if value is None else self._definition(page, value)
                if value is None or definition is None:
                    continue
                try:
                    known.require(definition.event_type, definition.name, NAME_IT)
                except UnknownEvent as problem:
                    if definition.event_type not in OPERATIONS:  # a hook with points may be around one
                        self.flaws.append(Flaw(value.spot("event_type"), str(problem)))
                keys = {"name": (definition.tenant_id, likeness(definition.name)), "hook_id": (definition.hook_id,)}
                for what, key in keys.items():
                    if key in taken:
                        like = f"{what} {getattr(definition, what)!r} could be taken for that of {taken[key]}"
                        self.flaws.append(Flaw(value.spot(what), f"{like}; give one of them another {what}"))
                        break
                    taken[key] = page.spot("hooks", number)
                found.append((definition, value.spots))
        if len(found) > MOST_HOOKS:
            many = mistake_at(Spot(str(self.files.root)), f"there are {len(found):,} hooks; {MOST_HOOKS:,} at most")
            self.flaws += many.flaws
        return found

    def _globs(self, key: str, said: object, spot: Callable[[int], Spot]) -> None:
        """Note the globs of a hook, or of all hooks."""
        if said is None:
            return
        globs = self.globs.setdefault(key, [])
        for number, pattern in enumerate(said if isinstance(said, list) else [said]):
            if isinstance(said, list) and isinstance(pattern, str) and pattern and "\0" not in pattern:
                globs.append(FileGlob(Path(spot(number).path).parent, pattern, spot(number)))
            else:
                self.flaws.append(Flaw(spot(number), f"'files' has {pattern!r:.40}; write a list of globs"))

    def _read_part(self, page: Page, key: str, name: str | int) -> LocatedMapping | None:
        try:
            return read_part(self.files, page, key, name)
        except InvalidDefinitions as problem:
            self.flaws += problem.flaws
            return None

    def _definition(self, page: Page, value: LocatedMapping) -> HookDefinition | None:
        """Return the definition in a mapping. The default id follows from tenant and name, the date from the file."""
        said = {"hook_id": _hook_id(value.value), **value.value}
        named = said.pop("files", None)
        made = said.get("created_at", page.modified)
        self._globs(str(said["hook_id"]), named, partial(value.spot, "files"))
        try:
            return HookDefinition.model_validate({"created_at": made, "updated_at": made, **said})
        except ValidationError as problem:
            for error in problem.errors(include_url=False):
                self.flaws.append(Flaw(value.spot(*error["loc"]), error_sentence(error, HookDefinition)))
            return None


def _own_event(said: object) -> str:
    """Return the name of one of the program's own events. Raises `ValueError`."""
    name = event_name(said) if isinstance(said, str) else ""
    if not name or is_pattern(name):
        raise ValueError(f"'events' has {said!r:.40}; write the name of one event, as 'domain:phase'")
    if find(name):
        raise ValueError(f"'events' has {said!r:.40}, which is an event of every program; leave it out")
    return name


def _hook_id(said: Mapping[str, Any]) -> str:
    """Return the default id of a hook, made of its tenant and its name."""
    whose = f"{said.get('tenant_id', '')}\0{said.get('name', '')}".encode("utf-8", "surrogatepass")
    return f"hook_{hashlib.sha256(HOOK_ID_DOMAIN + whose).hexdigest()[:12]}"
