"""A definition comes in; the files that it would run or read go out, and nothing runs or is imported.

`amplifier_hooks.impact` reads the commands. A command whose files no reading can tell, such as `make`, or a shell text
with computed names, needs `files:` in its definition.

Of a script in JavaScript only names that stand in the text as they are count. A name that the script computes, a
package and another language are reasons not to know what a script loads.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import Factory, define, field, frozen
from msgspec.structs import replace
from pydantic import ValidationError

from amplifier_hooks.definitions.files.load_files import OF_ALL
from amplifier_hooks.definitions.install.build_hooks import CommandConfig
from amplifier_hooks.definitions.kinds.python import MOST_MODULES, module_name, modules_of
from amplifier_hooks.definitions.trust import (
    SETS_OWN,
    UNREAD,
    FileList,
    ListedFile,
    opened_plainly,
    read_plainly,
    shebang,
)
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


BUILT_IN: Final = frozenset(
    """
    assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns
    domain events fs http http2 https inspector module net os path perf_hooks process punycode querystring
    readline repl stream string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib
    """.split()  # noqa: SIM905
)
"""Modules of JavaScript that no folder can replace."""


JAVASCRIPT: Final = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json", ".node")
"""Endings of what scripts in JavaScript load, which a name may leave out. The last two are no scripts."""
NODE: Final = frozenset({"node", "nodejs"})
"""Interpreters of scripts in JavaScript."""
LOADED: Final = re.compile(
    r"""(?:\b(?:require|require\.resolve|import|Worker|fork)\s*\(|\bfrom\b|\bimport\b)\s*["'`]([^"'`]+)["'`]"""
)
"""Finds the names that a script in JavaScript loads."""
COMPUTED: Final = re.compile(
    r"""\b(?:require(?:\.resolve)?|import)\s*\(\s*(?!["'`\s])|\bcreateRequire\b|\$\{.*\}.*\bimport"""
)
"""Finds code that loads what only a run can tell."""

UNREAD_PROGRAMS: Final = frozenset({"bun", "deno", "ruby", "perl", "php", "lua"})
UNREAD_ENDINGS: Final = frozenset({".rb", ".pl", ".pm", ".php", ".lua"})
"""Interpreters, and endings of scripts, whose ways to load other files are not read."""


@frozen
class Loads:
    """The files that one script loads."""

    files: tuple[str, ...] = ()
    """Absolute paths. They start at the folder of the script, and so lie beside its copy, too."""
    unread: str = ""
    """A reason why the script loads more than these; empty if there is none."""


def loads_of(path: str, interpreters: frozenset[str]) -> Loads | None:
    """Return the files that a script names and loads; None for a script that is read in another way.

    The ending of the file tells the language, and so do the names of programs that start the script.
    """
    ending = os.path.splitext(path)[1]
    if ending in UNREAD_ENDINGS or interpreters & UNREAD_PROGRAMS:
        return Loads(unread="is in a language whose ways to load files are not read")
    if ending not in JAVASCRIPT[:6] and not interpreters & NODE:
        return None
    try:
        text = read_plainly(path, LONGEST + 1).decode("utf-8", "replace")
    except OSError:
        return Loads()  # the list says that it is missing
    folder = Path(os.path.realpath(path)).parent
    found: list[str] = []
    unread = "" if len(text) <= LONGEST else "is too long to find the names of the files that it loads"
    for name in LOADED.findall(text):
        if name.startswith(("./", "../")) or name in {".", ".."}:
            target = _file_at(folder, name)
            found += [] if target is None else [target]
            unread = unread or ("" if target else f"loads {name!r:.80}, which is not there, or only a run tells")
        elif name.removeprefix("node:").partition("/")[0] not in BUILT_IN:
            unread = unread or f"loads {name!r:.80}, whose files no reading tells"
    if COMPUTED.search(text):
        unread = unread or "computes the names of files that it loads, or the folders of its modules"
    return Loads((*found, *_manifest(folder)), unread)


def _file_at(start: Path, name: str) -> str | None:
    """Return the file that a name stands for; None if there is none."""
    base = os.path.normpath(start / name)
    tried = (base, *(f"{base}{end}" for end in JAVASCRIPT), *(os.path.join(base, f"index{end}") for end in JAVASCRIPT))
    return next((one for one in tried if os.path.isfile(one)), None)


def _manifest(folder: Path) -> tuple[str, ...]:
    """Return the nearest `package.json`, which decides how JavaScript is read."""
    found = next((one / "package.json" for one in (folder, *folder.parents) if (one / "package.json").is_file()), None)
    return () if found is None else (str(found),)


INTERPRETERS: Final = frozenset((*SHELLS, "python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "php")) | {
    *("lua", "tclsh", "java", "pwsh", "Rscript", "julia", "osascript", "env")
}
"""Programs that are installed wherever they lie: a copy of one would not find its libraries."""

UNLISTED: Final = frozenset(
    ("runs_unread", "unreadable", "inline_code", "installs_manifest", "installs_new", "environment")
)
"""Kinds of impact that name no file, or not all files, that would run."""

EVERYTHING: Final = ImpactPolicy(root=os.sep, home=os.path.expanduser("~"), temporary=(os.devnull,))
"""A policy under which each file counts as the project's, so that each that would run is named."""

ASSIGNED: Final = re.compile(r"\b([A-Za-z_]\w*)=(?=\S)([^\s;&|]*)")
"""A variable that a word of a command gives a value. The folder of the project is a place to load from here."""

HOMES: Final = re.compile(r"\w*HOME|USERPROFILE|(?:LOCAL)?APPDATA|XDG_\w+", re.IGNORECASE)
"""Variables that name a folder from which programs read their settings."""

MOST_INTERPRETERS: Final = 4
"""Scripts whose interpreter is a script, at most in a row: the system starts no longer row."""

MOST_LINKS: Final = 40
"""Links that lead to one program, at most."""

LARGEST_HASHED: Final = 512 * 1024 * 1024
"""Bytes of a file whose digest is made, at most."""

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

    def of(self, path: str, *, afresh: bool = False) -> str:
        """Return the SHA-256 of a file's content, an empty text if it is missing, and `UNREAD` if it cannot be read.

        With `afresh` the content is read as it is now. The times of a file do not tell every change: a process that has
        mapped the file changes it later without them.
        """
        try:
            with opened_plainly(path) as (file, found):
                changed = max(found.st_mtime_ns, found.st_ctime_ns)
                signature = (found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, changed)
                before, digest = self._known.get(path, ((), ""))
                if not afresh and signature == before:
                    return digest
                if found.st_size > LARGEST_HASHED:
                    return UNREAD
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, ValueError):
            return UNREAD
        if self.now() - changed > SETTLED:
            self._known[path] = signature, digest
        return digest


def list_files(found: DefinitionSet, digests: FileDigests, known: FileList | None = None) -> FileList:
    """Return the files of a set: its own, and those that each enabled hook would run or read.

    A bare program name keeps the path that it has in `known`, so that another PATH finds no other program. Raises
    `FilesNotListed`.
    """
    listing = _Listing(digests, {} if known is None else known.programs, found.folder)
    in_place = _Listing(digests, {}, found.folder, in_place=True)
    pages = tuple(ListedFile(str(path), digest, "copied") for path, digest in found.files.items())
    groups = {SETS_OWN: pages}
    for entry in found.library:
        command = entry.config.get("command")
        if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
            files = in_place.command(command, found.folder, subject=entry.name, lenient=True)
            groups[entry.name] = tuple(sorted(set(files)))
    for definition in found.definitions:
        if definition.enabled and definition.kind in ("command", "python"):
            groups[definition.hook_id] = tuple(sorted(set(listing.hook(definition, found))))
    return FileList(folder=str(found.folder), start=str(found.path), groups=groups)


def list_command(
    argv: Sequence[str], folder: Path, digests: FileDigests, variables: Mapping[str, str]
) -> tuple[ListedFile, ...]:
    """Return the files of one command that is in no set, and runs in its own place. Raises `FilesNotListed`."""
    listing = _Listing(digests, {}, folder, in_place=True)
    return tuple(sorted(set(listing.command(argv, folder, subject="the command", variables=variables))))


IMPORT: Final = "import "
"""Beginning of the name of a listed module."""
SHEBANG: Final = "#!"
"""Beginning of the name of a listed interpreter of a script."""


@frozen
class _Listing:
    """One listing of files, with the programs that are known already."""

    digests: FileDigests
    programs: Mapping[str, str]
    project: Path
    in_place: bool = False
    """True for commands that do not run from copies."""
    outside: str = field(default=Factory(lambda self: path_outside(self.project), takes_self=True))
    """The PATH without the folders of the project."""

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
        lenient = definition.hook_id in found.globs or OF_ALL in found.globs
        passed = () if lenient else self.loading_variables(config, cwd)
        for variable in passed:
            raise FilesNotListed(definition.name, f"the variable {variable!r:.40} decides what its programs load")
        yield from self.command(config.argv, cwd, subject=definition.name, lenient=lenient, variables=config.env)
        yield from (self.file(path, "read") for path in named)
        values = {os.path.normpath(cwd / part) for value in config.env.values() for part in value.split(os.pathsep)}
        yield from (self.file(path, "read") for path in sorted(values) if os.path.isfile(path))

    def loading_variables(self, config: CommandConfig, cwd: Path) -> Iterator[str]:
        """Yield the variables of a command that decide what programs load, or lead them into the project."""
        words = (*config.argv, *shebang(os.path.normpath(cwd / config.argv[0])))
        assigned = [pair for word in words for pair in ASSIGNED.findall(word)]
        yield from (name for name in (*config.env, *config.pass_env) if decides_loading(name))
        yield from (name for name, _ in assigned if name in names_of("loading_paths"))
        for name, value in (*config.env.items(), *assigned):
            for part in value.split(os.pathsep):
                path = os.path.normpath(cwd / part)
                inside = bool(part) and self.is_project(path)
                if inside and (HOMES.fullmatch(name) or os.path.isdir(path)):
                    yield name

    def is_project(self, path: str) -> bool:
        """Return True if a path, or the place to which its links lead, lies in the project."""
        return lies_in(path, self.project)

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
        starts = list(self.program(argv[0], cwd, subject, lenient=lenient))
        yield from starts
        known = [starts[0].path, *argv[1:]] if os.sep in argv[0] and starts[0].role == "installed" else argv
        runs, reads = self._impact(known, cwd, variables or {}, subject, lenient=lenient)
        own = {one.path for one in starts if one.role != "installed"}
        yield from self.lines(runs - own, cwd, subject, lenient=lenient)
        languages = frozenset(os.path.basename(word) for word in argv)
        yield from self.behind(runs | own, cwd, subject, languages=languages, lenient=lenient)
        for word in dict.fromkeys(argv[1:]):
            path = os.path.normpath(cwd / word)
            if path in runs and not self.in_place:
                runs -= {path}
                yield self.file(os.path.realpath(path), "copied", word)
            else:
                reads |= {os.path.normpath(cwd / text) for text in (word, word.partition("=")[2]) if text}
        runs -= {os.path.normpath(cwd / argv[0]), *own}
        yield from (self.file(path, "read") for path in runs | {path for path in reads if os.path.isfile(path)})

    def program(
        self, word: str, cwd: Path, subject: str, *, lenient: bool, depth: int = 0, mark: str = ""
    ) -> Iterator[ListedFile]:
        """Yield the program that a word of a command starts, and of a script the interpreter and its arguments."""
        found = os.path.normpath(cwd / word) if os.sep in word else self._on_path(word)
        if os.sep not in found or self.in_place:
            role: Role = "installed" if os.sep not in word or is_installed_program(found, None) else "read"
            yield self.file(found, role, f"{mark}{word}")
        else:
            found = self._way_out(found)
            real = os.path.realpath(found)
            if is_installed_program(found, self.project):
                if self.is_project(found) and not lenient:
                    raise FilesNotListed(
                        subject, f"{word!r:.200} is a link, and the files beside it decide what it loads"
                    )
                yield self.file(found, "installed", f"{mark}{word}")
                return
            found, role = real, "copied"
            yield self.file(found, role, f"{mark}{word}")
        if role == "installed" or depth == MOST_INTERPRETERS:
            return
        interpreter, *arguments = shebang(found) or [""]
        if interpreter:
            yield from self.program(interpreter, cwd, subject, lenient=lenient, depth=depth + 1, mark=SHEBANG)
        for argument in arguments:
            path = os.path.normpath(cwd / argument)
            if os.path.isfile(path):
                copied = not self.in_place and self.is_project(path)
                yield self.file(os.path.realpath(path), "copied" if copied else "read", f"{SHEBANG}{argument}")

    def lines(self, scripts: Iterable[str], cwd: Path, subject: str, *, lenient: bool) -> Iterator[ListedFile]:
        """Yield the files in the first line of scripts that another program starts, and so not from our words.

        Raises `FilesNotListed` for an interpreter that the system would look for in the project.
        """
        for script in scripts:
            for number, word in enumerate(shebang(script)):
                path = os.path.normpath(cwd / word)
                if number == 0 and os.sep in word and self.is_project(path) and not lenient:
                    raise FilesNotListed(subject, f"{script!r:.200} has the interpreter {word!r:.80} of the project")
                if os.sep in word and os.path.isfile(path):
                    yield self.file(path, "read" if number or self.is_project(path) else "installed")

    def _way_out(self, path: str) -> str:
        """Return the first place outside of the project to which the links of a path lead, if there is one.

        A virtual environment is left by no link, since a Python finds it by the path that started it.
        """
        for _ in range(MOST_LINKS):
            folder, name = os.path.split(path)
            if not self.is_project(path) or os.path.exists(os.path.join(folder, "..", "pyvenv.cfg")):
                break
            real = os.path.join(os.path.realpath(folder), name)
            if real == path and os.path.islink(path):
                real = os.path.normpath(os.path.join(folder, os.readlink(path)))
            if real == path:
                break
            path = real
        return path

    def behind(
        self, scripts: Iterable[str], cwd: Path, subject: str, *, languages: frozenset[str], lenient: bool
    ) -> Iterator[ListedFile]:
        """Yield the files that scripts name: files that a script runs or loads, and modules beside a Python script.

        Raises `FilesNotListed` for a script that loads what no reading tells.
        """
        beside: Role = "read" if self.in_place else "copied"
        seen: set[str] = set()
        waiting = list(scripts)
        while waiting and len(seen) < MOST_MODULES:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            loads = loads_of(path, frozenset((*languages, *map(os.path.basename, shebang(path)[:1]))))
            if loads is not None:
                if loads.unread and not lenient:
                    raise FilesNotListed(subject, f"{path!r:.200} {loads.unread}")
                waiting += loads.files
                yield from (self.file(one, beside) for one in loads.files)
            if path.endswith(".py"):
                script = Path(path if self.in_place else os.path.realpath(path))
                modules = modules_of(f"{script.stem}:", script.parent).values()
                yield from (self.file(one, beside) for one in modules)
            elif (text := _shell_text(path)) is not None:
                found, _ = self._impact(["sh", "-c", text], cwd, {}, path, lenient=True)
                waiting += found
                yield from (self.file(one, "read") for one in found - seen if _may_be_file(one))

    def _on_path(self, word: str) -> str:
        known = self.programs.get(word) or self.programs.get(f"{SHEBANG}{word}")
        if known is None and not self.in_place:
            known = shutil.which(word, path=self.outside)
        found = known or shutil.which(word)
        return os.path.abspath(found) if found else word

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
        absolute = {place for place in runs if os.path.isabs(place)}
        return frozenset(absolute), frozenset(
            one.place
            for one in impacts
            if one.kind == "reads" and os.path.isabs(one.place) and os.path.isfile(one.place)
        )


def _may_be_file(place: str) -> bool:
    """Return True for a file, and for a complete name at which nothing lies yet."""
    return os.path.isfile(place) or not (os.path.lexists(place) or {"…", "*", "?"} & set(place))


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
        text = read_plainly(path, LONGEST)
        return text.decode("utf-8") if len(text) < LONGEST else None
    return None


def _look(path: str) -> FileFact:
    """Return what lies at a path, without another name for it: a link may lead elsewhere when a hook runs."""
    return replace(ask_file_system(path), path=path)


def lies_in(path: str, project: Path) -> bool:
    """Return True if a path, or the place to which its links lead, lies in the project.

    A home folder, and a folder above it, is no project: programs that the user has installed lie in it.
    """
    folder = os.path.realpath(project)
    if Path(os.path.realpath(os.path.expanduser("~"))).is_relative_to(folder):
        return False
    return any(Path(one).is_relative_to(folder) for one in (os.path.realpath(path), path))


def path_outside(project: Path) -> str:
    """Return the PATH of this process without the folders of a project, and without relative ones."""
    return os.pathsep.join(one for one in os.get_exec_path() if os.path.isabs(one) and not lies_in(one, project))


def is_installed_program(path: str, project: Path | None) -> bool:
    """Return True for interpreters, and for programs in a folder of the PATH: they run in their own place.

    No file of the project is one, whatever its name is and whatever the PATH has.
    """
    real = os.path.realpath(path)
    if project is not None and lies_in(real, project):
        return False
    plain = os.path.basename(real).removesuffix(".exe").rstrip("0123456789.")
    folders = (os.path.realpath(folder) for folder in os.get_exec_path())
    return plain in INTERPRETERS or os.path.dirname(real) in folders


def listed_modules(name: str, folder: Path, digests: FileDigests) -> Iterator[ListedFile]:
    """Yield the modules of `modules_of`, listed."""
    for module, path in modules_of(name, folder).items():
        yield ListedFile(path, digests.of(path), "copied", f"{IMPORT}{module}")
