"""Watched files of definitions: a changed set of files comes in; it is in force as a whole, or the last set stays.

A half-written file may look complete, so a change counts only after two looks have found the files equal.

`PinnedModules` are the modules of a project that names such as `module:name` need. The first look trusts the modules as
they are then. A later change waits, and is in force from the next start on after it was trusted: Python code that has
run cannot be replaced in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import define, evolve, field, frozen

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.files.load_files import DefinitionSet, load_files
from amplifier_hooks.definitions.files.open_files import FILE_ENDINGS, InvalidDefinitions
from amplifier_hooks.definitions.list_files import FileDigests, list_files, listed_modules
from amplifier_hooks.definitions.model import DefinitionSettings
from amplifier_hooks.definitions.private_copies import ProjectModules, TrustedFiles
from amplifier_hooks.definitions.trust import SETS_OWN, FileList
from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.hook_table import RegistryChange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from amplifier_hooks.definitions.files.load_files import FileGlob
    from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks, Replaced
    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.ports import Clock


EVERY: Final = 1.0
"""Seconds between two looks at the files."""

MOST_WATCHED: Final = 1_000

UNTRUSTED: Final = "it is not trusted as it is now; an approver decides, or: amplifier-hooks validate --trust"
REMOVED: Final = (
    "it is gone; an approver decides whether its hooks go, too, or put it back, or: amplifier-hooks validate --trust"
)
CHANGED: Final = "Put the changed hooks of {} in force?"
GONE: Final = "Take the hooks of {} out of force? It is gone."
DENIED: Final = "an approver denied it as it is now; mend it, or: amplifier-hooks validate --trust"

Signature = tuple[tuple[str, int, int, int, int], ...]

log = get_logger(__name__)


@frozen(kw_only=True)
class ReloadState:
    """The set in force, and the problem that keeps the current files from being in force."""

    since: datetime | None = None
    """Time since which the set is in force; None if there is none."""
    digest: str = ""
    """Digest of the set in force."""
    problem: str = ""
    """Reason why the current files are not in force; empty if they are."""
    problem_since: datetime | None = None
    trusted: bool = True
    """False if the current files are not trusted."""


@define(eq=False)
class WatchedFiles:
    """Files of definitions that are watched and put in force as hooks.

    With `trust`, nothing that the files name runs or is imported before `trust` has them: for the files of a project.
    The set that was trusted last stays in force meanwhile, from its private copies.
    """

    path: Path
    """Path of the file or folder."""
    hooks: DefinedHooks
    """Hooks that are replaced when the files change."""
    trust: TrustStore | None = field(default=None, kw_only=True)
    """Trusted lists, for the files of a project; None trusts every content."""
    clock: Clock = field(factory=SystemClock, kw_only=True)
    environment: Mapping[str, str] | None = field(default=None, kw_only=True)
    state: ReloadState = field(factory=ReloadState, init=False)
    _read_before: set[Path] = field(factory=set, init=False)
    """Files of the last set that was read, and files it names; for a set that failed, also missing files."""
    waiting: FileList | None = field(default=None, init=False)
    """Files of the set that waits to be trusted; None if there is none."""
    _found: DefinitionSet | None = field(default=None, init=False)
    """The set that waits, as it was read from the bytes that wait."""
    _in_force: str = field(default="", init=False)
    """Digest of the trusted list that is in force."""
    _tried: str = field(default="", init=False)
    """Digest of the trusted list that is in force, or could not be put in force since the files changed."""
    _digests: FileDigests = field(factory=FileDigests, init=False)
    _last: Signature | None = field(default=None, init=False)
    """Signature of the files at the last read."""
    _pool: DaemonPool = field(factory=lambda: DaemonPool(1, "amplifier-hooks-definitions"), init=False)

    @property
    def source(self) -> str:
        """Name of the files in the trust store. A link keeps its name, wherever it leads later."""
        return os.path.abspath(self.path)  # noqa: PTH100

    def question(self, waiting: FileList) -> str:
        """Return the question about a change that waits.

        Args:
            waiting: Files as they are now, not trusted yet.
        """
        return (GONE if waiting.is_removal else CHANGED).format(self.path.name)

    def refresh(self) -> Replaced | None:
        """Read the files now, and put them in force. Returns the changes; None if nothing could be put in force.

        A failure raises nothing; `state.problem` has its reason.
        """
        self._last = self.signature()
        return self._apply(self._read())

    async def watch(
        self, every: float = EVERY, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:  # until it is cancelled
        """Look at the files every `every` seconds, and put changes in force. Runs until it is cancelled.

        The files are read in a thread. Cancelling leaves the current set in force.

        Args:
            every: Seconds between two looks.
            sleep: Waits so many seconds.
        """
        seen = self._last
        while True:
            await sleep(every)
            self._install_trusted()
            now = self.signature()
            settled, seen = now == seen, now
            if not settled or now == self._last:
                continue
            result = await self._pool.run(self._read)
            if self.signature() == now:
                self._last = now
                self._apply(result)

    def signature(self) -> Signature:
        """Return the paths, times, sizes and modes of the files."""
        return signature_of(self._watched_paths())

    # -- inside --------------------------------------------------------------------------------------------------

    def _read(self) -> _LoadedSet | HookError:
        kept = None if self.trust is None else self.trust.trusted_list(self.source)
        if kept is not None and is_gone(self.path):
            return _LoadedSet(DefinitionSet(path=self.path, folder=Path(kept.folder)), kept.removal())
        try:
            found = load_files(self.path, environment=self.environment)
            if self.trust is None:
                return _LoadedSet(found)
            listed = list_files(found, self._digests, kept)
            if kept is None or kept.digest != listed.digest:
                TrustedFiles(
                    listed, self.trust.copies, self._digests
                ).make()  # these bytes are shown, and run if trusted
        except HookError as problem:
            return problem
        except Exception as problem:  # noqa: BLE001  # whatever the files are, the watcher goes on
            return HookUnavailable(f"{self.path}: {problem}")
        return _LoadedSet(found, listed)

    def _apply(self, result: _LoadedSet | HookError) -> Replaced | None:
        self.waiting, self._found, self._tried = None, None, self._in_force
        if not isinstance(result, _LoadedSet):
            self._read_before |= set(getattr(result, "files", ()))
            replaced = self._install_trusted()
            self._note_failure(str(result))
            return replaced
        self._read_before = set(result.paths())
        if result.listed is None:
            return self._install(result.found)
        self.waiting, self._found = result.listed, result.found
        replaced = self._install_trusted()
        if self.waiting is not None:
            self._note_failure(f"{self.path}: {self._reason(self.waiting)}", trusted=False)
        return replaced

    def _reason(self, waiting: FileList) -> str:
        if self.trust is not None and self.trust.denied(self.source, waiting):
            return DENIED
        return REMOVED if waiting.is_removal else UNTRUSTED

    def _install_trusted(self) -> Replaced | None:
        """Put the set that was trusted last in force, from its private copies, if it is not in force yet."""
        kept = None if self.trust is None else self.trust.trusted_list(self.source)
        if kept is None or self.trust is None:
            return None
        found = None
        if self.waiting is not None and self.waiting.digest == kept.digest:
            self.waiting, found = None, self._found  # which was read from these very bytes
            self.state = evolve(self.state, problem="", problem_since=None, trusted=True)
        if kept.digest == self._tried:
            return None
        self._tried = kept.digest
        files = TrustedFiles(kept, self.trust.copies, self._digests)
        try:
            files.inspect()
            replaced = self._install(found or files.load(self.environment), files)
        except HookError as problem:
            self._note_failure(str(problem))
            return None
        self._in_force = kept.digest if replaced is not None else self._in_force
        return replaced

    def _install(self, found: DefinitionSet, files: TrustedFiles | None = None) -> Replaced | None:
        try:
            replaced = self.hooks.install(self.hooks.plan(found, files=files))
        except HookError as problem:
            self._note_failure(str(problem))
            return None
        changed = found.digest != self.state.digest or self.state.since is None
        self.state = ReloadState(since=self.clock.now() if changed else self.state.since, digest=found.digest)
        log.info("definitions_loaded", path=str(self.path), changes=str(replaced), digest=found.digest)
        return replaced

    def _note_failure(self, problem: str, *, trusted: bool = True) -> None:
        """Keep the set that is in force, and record the problem of the new one."""
        if problem != self.state.problem:
            self.state = evolve(self.state, problem=problem, problem_since=self.clock.now(), trusted=trusted)
            self.hooks.registry.tell(RegistryChange(what="broken", hook=self.path.name, detail=problem))
            log.warning("definitions_not_loaded", path=str(self.path), problem=problem)

    def _watched_paths(self) -> set[Path]:
        found = self.hooks.in_force
        known = () if found is None else tuple(found.files)
        folder = self.path if self.path.is_dir() else self.path.parent
        if not self.path.is_dir():
            folder /= (DefinitionSettings() if found is None else found.settings).hooks_definitions_dir
        globs = () if found is None else chain.from_iterable(found.globs.values())
        return {self.path, *known, *self._read_before, *_definition_files(folder), *_matches(globs)}


def signature_of(paths: Iterable[str | os.PathLike[str]]) -> Signature:
    """Return the paths, times, sizes and modes of files, without those that are missing."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)  # noqa: PTH116
            found.add((os.fspath(path), status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode))
    return tuple(sorted(found))


@frozen
class _LoadedSet:
    """A set that was read, and its files if trust matters."""

    found: DefinitionSet
    listed: FileList | None = None

    def paths(self) -> Iterator[Path]:
        """Yield the files that the set was read from, and those that it would run."""
        yield from self.found.files
        yield from (Path(one.path) for one in self.listed.files) if self.listed is not None else ()


def is_gone(path: Path) -> bool:
    """Return True if nothing lies at a path, and False also where that cannot be found out."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _matches(globs: Iterable[FileGlob]) -> Iterator[Path]:
    for one in globs:
        with contextlib.suppress(InvalidDefinitions):
            yield from map(Path, one.files())


def _definition_files(folder: Path) -> list[Path]:
    """Return the files in a folder that may be definitions; files in its folders count once another file names them."""
    try:
        return [path for path in folder.iterdir() if path.suffix in FILE_ENDINGS][:MOST_WATCHED]
    except OSError:
        return []


NEXT_START: Final = "Put the changed modules of {} in force from the next start on?"


@define(eq=False)
class PinnedModules:
    """The modules of a folder that names need, in force as they were trusted last before this process started."""

    path: Path
    """Absolute path that names them: a folder of blueprints, or `MODULE:NAME` in the folder of the modules."""
    names: tuple[str, ...]
    folder: Path
    trust: TrustStore
    looks: bool = field(default=False, kw_only=True)
    """If true, modules that were never trusted wait, too."""
    tell: Callable[[str], None] | None = field(default=None, kw_only=True)
    """Is called with the problem when a change begins to wait."""
    waiting: FileList | None = field(default=None, init=False)
    """Modules that wait to be trusted; None if there are none."""
    problem: str = field(default="", init=False)
    """Reason why the current modules are not those that were trusted; empty if they are."""
    modules: ProjectModules = field(init=False)
    _digests: FileDigests = field(factory=FileDigests, init=False)
    _listed: FileList = field(init=False)
    _pool: DaemonPool = field(factory=lambda: DaemonPool(1, "amplifier-hooks-modules"), init=False)

    @property
    def source(self) -> str:
        """Name of the modules in the trust store."""
        return str(self.path)

    @property
    def current(self) -> FileList:
        """The modules as they were at the last look."""
        return self._listed

    def question(self, _waiting: FileList) -> str:
        """Return the question about a change that waits."""
        return NEXT_START.format(self.path.name)

    def __attrs_post_init__(self) -> None:
        """Look at the modules. Raises `HookUnavailable` and `OSError` if they cannot be copied."""
        self.look()
        kept = self.trust.trusted_list(self.source)
        files = TrustedFiles(self._listed if kept is None else kept, self.trust.copies, self._digests)
        files.inspect()
        self.modules = files.modules

    def look(self) -> None:
        """Compare the modules with the trusted ones; trust them if none were trusted before, unless this only `looks`.

        Raises `HookUnavailable` for a module that changes meanwhile, and `OSError`.
        """
        listed = {one for name in self.names for one in listed_modules(name, self.folder, self._digests)}
        self._listed = FileList(folder=str(self.folder), groups={SETS_OWN: tuple(sorted(listed))})
        kept = self.trust.trusted_list(self.source)
        if kept is not None and kept.digest == self._listed.digest:
            self.waiting, self.problem = None, ""
            return
        if kept is None and not listed:
            return
        TrustedFiles(self._listed, self.trust.copies, self._digests).make()
        if kept is None and not self.looks:
            self.trust.trust(self.source, [self._listed])
            return
        self.waiting = self._listed
        reason = DENIED if self.trust.denied(self.source, self._listed) else UNTRUSTED
        self.problem = f"{self.path}: {reason} {self.path.name}"

    def accept(self) -> None:
        """Trust the modules as they are now. Raises as `look` does."""
        self.look()
        self.trust.trust(self.source, [self._listed])
        self.waiting, self.problem = None, ""

    async def watch(
        self, every: float = EVERY, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:  # until it is cancelled
        """Look at the modules again whenever one of their files has changed. Runs until it is cancelled."""
        last: Signature = ()  # the files may have changed since the first look
        seen = last
        while True:
            await sleep(every)
            now = self._signature()
            settled, seen = now == seen, now
            accepted = self.waiting is not None and self.trust.trusts(self.waiting)
            if not accepted and (not settled or now == last):
                continue
            last, before = now, self.problem
            try:
                await self._pool.run(self.look)
            except (HookError, OSError) as problem:
                self.problem = f"{self.path}: {problem}"
            if self.problem not in ("", before):
                log.warning("modules_not_taken_over", problem=self.problem)
                if self.tell is not None:
                    self.tell(self.problem)

    def _signature(self) -> Signature:
        kept = self.trust.trusted_list(self.source)
        return signature_of(one.path for files in (self._listed, kept) if files is not None for one in files.files)
