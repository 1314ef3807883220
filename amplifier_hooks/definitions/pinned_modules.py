"""Names such as `module:name` come in; the modules of a project that they need go out, as they were trusted.

The first look trusts the modules as they are then. A later change waits, and is in force from the next start on after
it was trusted: Python code that has run cannot be replaced in a process.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from attrs import define, field

from amplifier_hooks.definitions.list_files import FileDigests, listed_modules
from amplifier_hooks.definitions.private_copies import ProjectModules, TrustedFiles
from amplifier_hooks.definitions.reload import DENIED, EVERY, UNTRUSTED
from amplifier_hooks.definitions.trust import SETS_OWN, FileList
from amplifier_hooks.errors import HookError
from amplifier_hooks.logs import get_logger
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from amplifier_hooks.definitions.reload import Signature
    from amplifier_hooks.definitions.trust import TrustStore


CHANGED: Final = "Put the changed modules of {} in force from the next start on?"

log = get_logger(__name__)


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
        return CHANGED.format(self.path.name)

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
        found = []
        for path in sorted({one.path for files in (self._listed, kept) if files is not None for one in files.files}):
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            found.append((path, status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode))
        return tuple(found)
