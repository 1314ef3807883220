"""A definition comes in; the files that it would run or read go out, and nothing runs or is imported.

`amplifier_hooks.impact` reads the commands. A command whose files no reading can tell, such as `make`, or a shell text
with computed names, needs `files:` in its definition.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen
from msgspec.structs import replace
from pydantic import ValidationError

from amplifier_hooks.definitions.files.load_files import OF_ALL
from amplifier_hooks.definitions.install.build_external import CommandConfig
from amplifier_hooks.definitions.kinds.python_sources import MOST_MODULES, module_name, modules_of
from amplifier_hooks.definitions.trust import SETS_OWN, FileList, ListedFile
from amplifier_hooks.errors import HookUnavailable, MissingExtra
from amplifier_hooks.impact.file_facts import ask_file_system
from amplifier_hooks.impact.places import decides_loading, names_of
from amplifier_hooks.impact.shell import LONGEST, SHELLS
from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import FileFact, ImpactPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from amplifier_hooks.definitions.files.load_files import DefinitionSet
    from amplifier_hooks.definitions.model import HookDefinition
    from amplifier_hooks.definitions.trust import Role


INTERPRETERS: Final = frozenset((*SHELLS, "python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "php")) | {
    *("lua", "tclsh", "java", "pwsh", "Rscript", "julia", "osascript", "env")
}
"""Programs that are installed wherever they lie: a copy of one would not find its libraries."""

UNLISTED: Final = frozenset(
    ("runs_unread", "unreadable", "inline_code", "installs_manifest", "installs_new", "environment")
)
"""Kinds of impact that name no file, or not all files, that would run."""

EVERYTHING: Final = ImpactPolicy(root=os.sep, home=os.path.expanduser("~"), temporary=(os.devnull,))  # noqa: PTH111
"""A policy under which each file counts as the project's, so that each that would run is named."""

ASSIGNED: Final = re.compile(r"\b([A-Za-z_]\w*)=(?=\S)")
"""A variable that a word of a command gives a value. The folder of the project is a place to load from here."""

SETTLED: Final = 2_000_000_000
"""Nanoseconds after a change of a file from which its times tell another change."""


class FilesNotListed(HookUnavailable):
    """A hook whose files cannot be listed. The sentence says why, and how to list them by hand."""

    def __init__(self, subject: str, why: str) -> None:
        self.subject = subject
        super().__init__(
            f"{subject}: its files cannot be listed: {why}; write them as files: [GLOB, …] in the hook, and [] if it "
            "runs and reads none"
        )


Signature = tuple[int, ...]


@define(eq=False)
class FileDigests:
    """The digests of files. A file is read again only after a change of its times, size, mode or inode."""

    now: Callable[[], int] = time.time_ns
    _known: dict[str, tuple[Signature, str]] = field(factory=dict, init=False)

    def of(self, path: str) -> str:
        """Return the SHA-256 of a file's content; an empty text if there is no plain file that can be read."""
        try:
            with open(path, "rb", opener=_open_at_once) as file:  # with an opener
                found = os.fstat(file.fileno())
                changed = max(found.st_mtime_ns, found.st_ctime_ns)
                signature = (found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, changed)
                known, digest = self._known.get(path, ((), ""))
                if signature == known:
                    return digest
                if not stat.S_ISREG(found.st_mode):
                    return ""
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError):
            return ""
        if self.now() - changed > SETTLED:
            self._known[path] = signature, digest
        return digest


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def list_files(found: DefinitionSet, digests: FileDigests, known: FileList | None = None) -> FileList:
    """Return the files of a set: its own, and those that each enabled hook would run or read.

    A bare program name keeps the path that it has in `known`, so that another PATH finds no other program. Raises
    `FilesNotListed`.
    """
    listing = _Listing(digests, {} if known is None else known.programs)
    pages = tuple(ListedFile(str(path), digest, "copied") for path, digest in found.files.items())
    groups = {SETS_OWN: pages}
    for entry in found.library:
        command = entry.config.get("command")
        if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
            groups[entry.name] = tuple(listing.command(command, found.folder, subject=entry.name, lenient=True))
    for definition in found.definitions:
        if definition.enabled and definition.kind in ("command", "python"):
            groups[definition.hook_id] = tuple(sorted(set(listing.hook(definition, found))))
    return FileList(folder=str(found.folder), start=str(found.path), groups=groups)


def list_command(
    argv: Sequence[str], folder: Path, digests: FileDigests, variables: Mapping[str, str]
) -> tuple[ListedFile, ...]:
    """Return the files of one command that is in no set, and runs in its own place. Raises `FilesNotListed`."""
    listing = _Listing(digests, {}, in_place=True)
    return tuple(sorted(set(listing.command(argv, folder, subject="the command", variables=variables))))


IMPORT: Final = "import "
"""Beginning of the name of a listed module."""
SHEBANG: Final = "#!"
"""Beginning of the name of a listed interpreter of a script."""


def shebang(path: str) -> list[str]:
    """Return the words of the first line of a script: the interpreter, or its bare name after `env`, and arguments."""
    try:
        with open(path, "rb", opener=_open_at_once) as script:  # with an opener
            first = os.fsdecode(script.readline(256))
    except OSError:
        return []
    program, _, argument = first[2:].strip().partition(" ") if first.startswith("#!") else ("", "", "")
    argument = argument.strip()
    words = argument.removeprefix("-S").split() if argument.startswith("-S") else [argument]
    if Path(program).name == "env" and words and words[0] and words[0][0] != "-" and "=" not in words[0]:
        return words
    return [program, *filter(None, [argument])] if program else []


@frozen
class _Listing:
    """One listing of files, with the programs that are known already."""

    digests: FileDigests
    programs: Mapping[str, str]
    in_place: bool = False
    """True for commands that do not run from copies."""

    def file(self, path: str, role: Role, name: str = "") -> ListedFile:
        return ListedFile(path, self.digests.of(path), role, name)

    def hook(self, definition: HookDefinition, found: DefinitionSet) -> Iterator[ListedFile]:
        """Yield the files of a definition."""
        globs = (*found.globs.get(OF_ALL, ()), *found.globs.get(definition.hook_id, ()))
        named = sorted({path for one in globs for path in one.files()})
        if definition.kind == "python":
            modules = modules_of(definition.handler_ref, found.folder)
            if modules:
                modules |= {name: path for path in named if (name := module_name(path, found.folder))}
            yield from (self.file(path, "copied", f"{IMPORT}{name}") for name, path in modules.items())
            yield from (self.file(path, "copied") for path in named if path not in modules.values())
            return
        try:
            config = CommandConfig.model_validate(definition.config)
        except ValidationError:
            return  # building the hook reports it
        cwd = found.folder / (config.cwd or ".")
        words = (*config.argv, *shebang(os.path.normpath(cwd / config.argv[0])))
        assigned = (name for word in words for name in ASSIGNED.findall(word) if name in names_of("loading_paths"))
        passed = [*(name for name in (*config.env, *config.pass_env) if decides_loading(name)), *assigned]
        lenient = definition.hook_id in found.globs or OF_ALL in found.globs
        if passed and not lenient:
            raise FilesNotListed(definition.name, f"the variable {passed[0]!r:.40} decides what its programs load")
        yield from self.command(config.argv, cwd, subject=definition.name, lenient=lenient, variables=config.env)
        yield from (self.file(path, "read") for path in named)

    def command(
        self,
        argv: Sequence[str],
        cwd: Path,
        *,
        subject: str,
        lenient: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[ListedFile]:
        """Yield the files of a command. Raises `FilesNotListed`, unless its definition lists the others itself."""
        yield from self.program(argv[0], cwd)
        runs, reads = self._impact(argv, cwd, variables or {}, subject, lenient=lenient)
        yield from self.behind(runs, cwd)
        for word in dict.fromkeys(argv[1:]):
            path = os.path.normpath(cwd / word)
            if path in runs and not self.in_place:
                runs -= {path}
                yield self.file(os.path.realpath(path), "copied", word)
            else:
                reads |= {os.path.normpath(cwd / text) for text in (word, word.partition("=")[2]) if text}
        runs -= {os.path.normpath(cwd / argv[0])}
        yield from (self.file(path, "read") for path in runs | {path for path in reads if os.path.isfile(path)})  # noqa: PTH113

    def program(self, word: str, cwd: Path) -> Iterator[ListedFile]:
        """Yield the program that a command starts with, and the interpreter of a script."""
        if os.sep not in word:
            yield self.file(self._on_path(word), "installed", word)
            return
        path = os.path.normpath(cwd / word)
        if is_installed_program(path):
            yield self.file(path, "installed", word)
            return
        path = path if self.in_place else os.path.realpath(path)
        yield self.file(path, "read" if self.in_place else "copied", word)
        for interpreter in shebang(path)[:1]:
            yield self.file(self._on_path(interpreter), "installed", f"{SHEBANG}{interpreter}")

    def behind(self, scripts: Iterable[str], cwd: Path) -> Iterator[ListedFile]:
        """Yield the files that scripts name: those that a shell script runs, and modules beside a Python script."""
        seen: set[str] = set()
        waiting = list(scripts)
        while waiting and len(seen) < MOST_MODULES:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            if path.endswith(".py"):
                script = Path(path if self.in_place else os.path.realpath(path))
                beside = modules_of(f"{script.stem}:", script.parent).values()
                yield from (self.file(one, "read" if self.in_place else "copied") for one in beside)
            elif (text := _shell_text(path)) is not None:
                found, _ = self._impact(["sh", "-c", text], cwd, {}, path, lenient=True)
                waiting += found
                yield from (self.file(one, "read") for one in found - seen if os.path.isfile(one))  # noqa: PTH113

    def _on_path(self, word: str) -> str:
        found = self.programs.get(word) or shutil.which(word)
        return os.path.abspath(found) if found else word  # noqa: PTH100

    def _impact(
        self, argv: Sequence[str], cwd: Path, variables: Mapping[str, str], subject: str, *, lenient: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the files that a command would run, and those that it would read."""
        call = {"command": list(argv), "env": dict(variables)}
        try:
            impacts = predict_impact("Bash", call, EVERYTHING, _look, folder=os.path.normpath(cwd)).impacts
        except MissingExtra as problem:
            if lenient:
                return frozenset(), frozenset()
            raise FilesNotListed(subject, str(problem)) from None
        runs = {one.place for one in impacts if one.kind == "runs_project"}
        for one in () if lenient else impacts:
            if one.kind in UNLISTED:
                raise FilesNotListed(subject, f"{one.place or argv[0]!r:.80}: {one.reason or 'only a run tells them'}")
            if one.kind == "runs_project" and not _names_file(one.place):
                raise FilesNotListed(subject, f"{one.place!r:.200} decides itself which files it runs")
            if one.kind == "unknown_program" and one.place != argv[0] and self._on_path(one.place) == one.place:
                raise FilesNotListed(subject, f"{one.place!r:.80} is a program that is not there")
        absolute = {place for place in runs if os.path.isabs(place)}  # noqa: PTH117
        return frozenset(absolute), frozenset(
            one.place
            for one in impacts
            if one.kind == "reads" and os.path.isabs(one.place) and os.path.isfile(one.place)  # noqa: PTH113, PTH117
        )


def _names_file(place: str) -> bool:
    """Return True if a place stands for one file: a plain file, or a missing one whose name is complete."""
    path = Path(place)
    return path.is_file() or (path.is_absolute() and bool(path.suffix) and not path.exists())


def _shell_text(path: str) -> str | None:
    """Return the text of a shell script; None for any other file."""
    first = shebang(path)[:1]
    if not (Path(first[0]).name in SHELLS if first else path.endswith(".sh")):
        return None
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text("utf-8") if Path(path).stat().st_size < LONGEST else None
    return None


def _look(path: str) -> FileFact:
    """Return what lies at a path, without another name for it: a link may lead elsewhere when a hook runs."""
    return replace(ask_file_system(path), path=path)


def is_installed_program(path: str) -> bool:
    """Return True for interpreters, and for programs in a folder of the PATH: they run in their own place."""
    real = os.path.realpath(path)
    plain = os.path.basename(real).removesuffix(".exe").rstrip("0123456789.")  # noqa: PTH119
    folders = (os.path.realpath(folder) for folder in os.get_exec_path())
    return plain in INTERPRETERS or os.path.dirname(real) in folders  # noqa: PTH120


def listed_modules(name: str, folder: Path, digests: FileDigests) -> Iterator[ListedFile]:
    """Yield the modules of `modules_of`, listed."""
    for module, path in modules_of(name, folder).items():
        yield ListedFile(path, digests.of(path), "copied", f"{IMPORT}{module}")
