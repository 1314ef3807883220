"""Watched files of definitions: a changed set of files comes in; it is in force as a whole, or the last set stays.

A half-written file may look complete, so a change counts only after two looks have found the files equal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field, frozen

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.files.load_files import DefinitionSet, load_files
from amplifier_hooks.definitions.files.open_files import FILE_ENDINGS
from amplifier_hooks.definitions.install.build_external import texts_in
from amplifier_hooks.definitions.invalid_definitions import InvalidDefinitions
from amplifier_hooks.definitions.kinds.python import sources_of
from amplifier_hooks.definitions.settings import DefinitionSettings
from amplifier_hooks.errors import HookError
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.hook_table import RegistryChange
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks, Replaced
    from amplifier_hooks.ports import Clock


EVERY: Final = 1.0
"""Seconds between two looks at the files."""

MOST_WATCHED: Final = 1_000

UNTRUSTED: Final = "its current content is not trusted; read it and trust it first"

Trusted = Callable[[Mapping[str, Any], Sequence[str]], bool]
"""Returns True if content is trusted, given facts about the content and words that may name more files."""

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


def trusted_part(found: DefinitionSet) -> tuple[dict[str, Any], list[str]]:
    """Return the parts of a set that trust covers: its files' digests, and words that may name scripts and modules."""
    files = {path.relative_to(found.folder).as_posix(): digest for path, digest in found.files.items()}
    words: list[str] = []
    for definition in found.definitions:
        words += texts_in(definition.config)
        if definition.kind == "python":
            words += map(str, sources_of(definition.handler_ref))
    for entry in found.library:
        words += texts_in(dict(entry.config))
    return {"files": files}, sorted(set(words))


@define(eq=False)
class WatchedFiles:
    """Files of definitions that are watched and put in force as hooks.

    With `trusted`, nothing in the files runs or is imported before `trusted` returns True: for the files of a project.
    """

    path: Path
    hooks: DefinedHooks
    trusted: Trusted | None = field(default=None, kw_only=True)
    clock: Clock = field(factory=SystemClock, kw_only=True)
    environment: Mapping[str, str] | None = field(default=None, kw_only=True)
    state: ReloadState = field(factory=ReloadState, init=False)
    _read_before: set[Path] = field(factory=set, init=False)
    """Files of the last set that was read, and files it names; for a set that failed, also missing files."""
    _waiting: DefinitionSet | None = field(default=None, init=False)
    """Set that waits to be trusted; None if there is none."""
    _last: Signature | None = field(default=None, init=False)
    """Signature of the files at the last read."""
    _pool: DaemonPool = field(factory=lambda: DaemonPool(1, "amplifier-hooks-definitions"), init=False)

    def refresh(self) -> Replaced | None:
        """Read the files now, and put them in force. Returns the changes; None if the files could not be put in force.

        A failure raises nothing; `state.problem` has its reason.
        """
        self._last = self.signature()
        return self._apply(self._read())

    async def watch(
        self, every: float = EVERY, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:  # until it is cancelled
        """Look at the files every `every` seconds, and put changes in force. Runs until it is cancelled.

        The files are read in a thread. Cancelling leaves the current set in force.
        """
        seen = self._last
        while True:
            await sleep(every)
            now = self.signature()
            settled, seen = now == seen, now
            allowed = self._waiting is not None and self._trusts(self._waiting)
            if not settled or (now == self._last and not allowed):
                continue
            result = await self._pool.run(self._read)
            if self.signature() == now:
                self._last = now
                self._apply(result)

    def signature(self) -> Signature:
        """Return the paths, times, sizes and modes of the files."""
        return tuple(sorted(set(self._file_states())))

    # -- inside --------------------------------------------------------------------------------------------------

    def _read(self) -> DefinitionSet | InvalidDefinitions:
        try:
            return load_files(self.path, environment=self.environment)
        except InvalidDefinitions as problem:
            return problem

    def _apply(self, result: DefinitionSet | InvalidDefinitions) -> Replaced | None:
        if isinstance(result, InvalidDefinitions):
            self._read_before = set(result.files)
            self._note_failure(str(result))
            return None
        self._read_before = {*result.files, *self._trusted_paths(result)}
        if not self._trusts(result):
            self._waiting = result
            self._note_failure(f"{self.path}: {UNTRUSTED}", trusted=False)
            return None
        self._waiting = None
        try:
            replaced = self.hooks.install(self.hooks.plan(result, trusted=self._trust_in(result)))
        except HookError as problem:
            self._note_failure(str(problem))
            return None
        changed = result.digest != self.state.digest or self.state.since is None
        since = self.clock.now() if changed else self.state.since
        self.state = ReloadState(since=since, digest=result.digest)
        log.info("definitions_loaded", path=str(self.path), changes=str(replaced), digest=result.digest)
        return replaced

    def _trusts(self, found: DefinitionSet) -> bool:
        return self.trusted is None or self.trusted(*trusted_part(found))

    def _trust_in(self, found: DefinitionSet) -> Callable[[], bool] | None:
        """Return a check that compares programs with the trusted ones at each run, not now; None without `trusted`."""
        return None if self.trusted is None else partial(self.trusted, *trusted_part(found))

    def _trusted_paths(self, found: DefinitionSet) -> Iterator[Path]:
        """Yield the files that trust covers besides the set's own files."""
        for word in trusted_part(found)[1] if self.trusted is not None else ():
            with contextlib.suppress(OSError, ValueError):
                path = found.folder / word
                if path.is_file():
                    yield path

    def _note_failure(self, problem: str, *, trusted: bool = True) -> None:
        """Keep the set that is in force, and record the problem of the new one."""
        if problem != self.state.problem:
            self.state = evolve(self.state, problem=problem, problem_since=self.clock.now(), trusted=trusted)
            self.hooks.registry.tell(RegistryChange(what="broken", hook=self.path.name, detail=problem))
            log.warning("definitions_not_loaded", path=str(self.path), problem=problem)

    def _file_states(self) -> Iterator[tuple[str, int, int, int, int]]:
        found = self.hooks.in_force
        known = () if found is None else tuple(found.files)
        folder = self.path if self.path.is_dir() else self.path.parent
        if not self.path.is_dir():
            folder /= (DefinitionSettings() if found is None else found.settings).hooks_definitions_dir
        for path in {self.path, *known, *self._read_before, *_definition_files(folder)}:
            try:
                status = path.stat()
            except OSError:
                continue
            yield str(path), status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _definition_files(folder: Path) -> list[Path]:
    """Return the files in a folder that may be definitions; files in its folders count once another file names them."""
    try:
        return [path for path in folder.iterdir() if path.suffix in FILE_ENDINGS][:MOST_WATCHED]
    except OSError:
        return []
