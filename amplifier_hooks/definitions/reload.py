"""Files that are watched: what they say is in force once all of it can be, and until then what they said before.

A file that is being written may be half of what it will be, and still look whole. So a change counts when the files
have been the same twice.
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

UNTRUSTED: Final = "it has not been trusted as it is now; somebody has to read and trust it first"

Trusted = Callable[[Mapping[str, Any], Sequence[str]], bool]
"""Whether somebody has trusted this: facts about the content, and words that may name more files."""

Signature = tuple[tuple[str, int, int, int, int], ...]

log = get_logger(__name__)


@frozen(kw_only=True)
class ReloadState:
    """What is in force, and what is not and why."""

    since: datetime | None = None
    """When what is in force was put there; None if nothing is."""
    digest: str = ""
    """Of the set in force."""
    problem: str = ""
    """Why what the files say now is not in force; empty if it is."""
    problem_since: datetime | None = None
    trusted: bool = True
    """Whether what the files say now may run."""


def trusted_part(found: DefinitionSet) -> tuple[dict[str, Any], list[str]]:
    """What trust in a set of files is in: their content, and the words that may name scripts and modules."""
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
    """Files of definitions, and the hooks they are in force as.

    With `trusted` nothing of them runs, nor is anything imported, before that says yes: for the files of a project.
    """

    path: Path
    hooks: DefinedHooks
    trusted: Trusted | None = field(default=None, kw_only=True)
    clock: Clock = field(factory=SystemClock, kw_only=True)
    environment: Mapping[str, str] | None = field(default=None, kw_only=True)
    state: ReloadState = field(factory=ReloadState, init=False)
    _read_before: set[Path] = field(factory=set, init=False)
    """Files of the last set that was read and what it names; of one that could not be, also those not there."""
    _waiting: DefinitionSet | None = field(default=None, init=False)
    """What would be in force if it were trusted."""
    _last: Signature | None = field(default=None, init=False)
    """What the files looked like when they were read."""
    _pool: DaemonPool = field(factory=lambda: DaemonPool(1, "amplifier-hooks-definitions"), init=False)

    def refresh(self) -> Replaced | None:
        """Read the files now, and put them in force. Returns what changed; None where nothing did or could.

        What could not stands in `state.problem`; nothing is raised for it.
        """
        self._last = self.signature()
        return self._apply(self._read())

    async def watch(
        self, every: float = EVERY, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:  # until it is cancelled
        """Look at the files again and again, and put in force what changed. Runs until it is cancelled.

        Reading happens beside the event loop. Cancelling it leaves in force what is.
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
        """What the files look like from outside."""
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
        """Asks again, as the programs it names are then: they are read when they are run, not now."""
        return None if self.trusted is None else partial(self.trusted, *trusted_part(found))

    def _trusted_paths(self, found: DefinitionSet) -> Iterator[Path]:
        """The files that trust is in besides its own."""
        for word in trusted_part(found)[1] if self.trusted is not None else ():
            with contextlib.suppress(OSError, ValueError):
                path = found.folder / word
                if path.is_file():
                    yield path

    def _note_failure(self, problem: str, *, trusted: bool = True) -> None:
        """What was in force stays; that something else should be is on record."""
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
    """The files in a folder that could be definitions; those further down count once another one names them."""
    try:
        return [path for path in folder.iterdir() if path.suffix in FILE_ENDINGS][:MOST_WATCHED]
    except OSError:
        return []
