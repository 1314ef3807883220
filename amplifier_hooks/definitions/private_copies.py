"""A trusted list of files comes in; private copies of the files, and what runs from them, go out.

The copies lie in the state folder, for their owner alone. Each hook has a folder of its own, named after the digest of
the hook's files. Within it the files keep their paths, so that a script finds the files beside it.

Copies that no trusted list names are removed 30 days after a process last began to use them. Should a process run on
them longer than that, its hooks are unavailable, and so its gates deny.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import re
import shutil
import stat
import sys
import time
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from amplifier_hooks.definitions.files.load_files import DefinitionSet, load_files
from amplifier_hooks.definitions.files.open_files import place_in
from amplifier_hooks.definitions.list_files import (
    IMPORT,
    MOST_INTERPRETERS,
    SHEBANG,
    FileDigests,
    path_outside,
)
from amplifier_hooks.definitions.trust import (
    SETS_OWN,
    UNREAD,
    FileList,
    ListedFile,
    digest_of_files,
    opened_plainly,
    read_plainly,
    shebang,
)
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.storage.database import StoreUnavailable, UnsafeStore
from amplifier_hooks.storage.state_folder import inspect_folder, make_private, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_hooks.definitions.trust import TrustStore


NAME: Final = re.compile(r"[0-9a-f]{64}")
UNUSED_FOR: Final = 30 * 86_400.0
"""Seconds after which a copy that no trusted list names is removed. Requests about changes end by then, too."""


def remove_unused(store: TrustStore, now: Callable[[], float] = time.time) -> int:
    """Remove the copies that no trusted list names and no process has begun to use lately, and return their number.

    A copy that cannot be removed stays.
    """
    if not store.copies.is_dir():
        return 0
    removed = 0
    with suppress(OSError):
        kept = set(map(digest_of_files, store.groups()))
        for one in store.copies.iterdir():
            unnamed = NAME.fullmatch(one.name) and one.name not in kept
            if unnamed and one.stat().st_mtime < now() - UNUSED_FOR:
                shutil.rmtree(one, ignore_errors=True)
                removed += not one.exists()
    return removed


LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that is copied, at most."""

AGAIN: Final = "read it, then: amplifier-hooks validate --trust"


@frozen(eq=False)
class HookFiles:
    """The trusted files of one hook. Its commands and modules run from the copies in `root`."""

    files: tuple[ListedFile, ...]
    root: Path
    digests: FileDigests
    search_path: str
    """PATH of the commands, on which no folder of the project is."""

    def copy_of(self, path: str) -> Path:
        """Return the place of a file's copy."""
        return place_in(self.root, Path(path))

    def make(self) -> None:
        """Copy the files that are copied or read. Raises `HookUnavailable` if one has changed since it was listed."""
        for one in self.files:
            copy = self.copy_of(one.path)
            if one.role == "installed" or not one.digest or self.digests.of(str(copy)) == one.digest:
                continue
            try:
                with opened_plainly(one.path) as (file, status):
                    content, executable = file.read(LARGEST + 1), status.st_mode & 0o100
            except OSError as problem:
                raise HookUnavailable(f"{one.path!r:.200} cannot be read: {problem.strerror}") from problem
            if len(content) > LARGEST:
                raise HookUnavailable(f"{one.path!r:.200} is too large to be copied ({LARGEST:,} bytes at most)")
            if hashlib.sha256(content).hexdigest() != one.digest:
                raise HookUnavailable(f"{one.path!r:.200} changed while it was read; {AGAIN}")
            write_private(copy, content, 0o400 | executable)

    def check(self) -> None:
        """Compare every file with its digest where it is used. Raises `HookUnavailable` for a difference."""
        for one in self.files:
            if not one.digest and one.role != "read":
                raise HookUnavailable(f"{one.name or one.path!r:.200} was not there when it was trusted; {AGAIN}")
            place = str(self.copy_of(one.path)) if one.role == "copied" else one.path
            found = self.digests.of(place, afresh=one.role == "read")
            if found != one.digest or found == UNREAD:
                what = "the private copy of " if one.role == "copied" else ""
                raise HookUnavailable(f"{what}{one.path!r:.200} is not as it was trusted; {AGAIN}")

    async def check_apart(self) -> None:
        """Compare as `check` does, in a thread."""
        await _comparing().run(self.check)

    def start(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words that start a command from its copies; unchanged if its program was not there."""
        places = {
            one.name: str(self.copy_of(one.path)) if one.role == "copied" else one.path
            for one in self.files
            if one.name and one.digest
        }
        words = [places.get(word, word) for word in argv]
        for _ in range(MOST_INTERPRETERS):
            line = shebang(words[0]) if words[0].startswith(f"{self.root}{os.sep}") else []
            if not line:
                break
            words[:0] = [places.get(f"{SHEBANG}{word}", word) for word in line]
        return tuple(words)


@cache
def _comparing() -> DaemonPool:
    return DaemonPool(2, "amplifier-hooks-files")


@define(eq=False)
class TrustedFiles:
    """A trusted list with its private copies below `folder`, and the project's modules that run from them."""

    listed: FileList
    folder: Path
    digests: FileDigests = field(factory=FileDigests)
    modules: ProjectModules = field(init=False)
    _search_path: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._search_path = path_outside(Path(self.listed.folder))
        self.modules = ProjectModules(tuple(map(self.of, self.listed.groups)), self.listed.digest)

    def of(self, key: str) -> HookFiles:
        """Return the files of a hook, by its hook id, or by the name of a ready-made hook."""
        files = self.listed.groups.get(key, ())
        return HookFiles(files, self.folder / digest_of_files(files), self.digests, self._search_path)

    def make(self) -> None:
        """Make the copies. Raises `HookUnavailable` for a changed file, and `OSError` if they cannot be written."""
        make_private(self.folder)
        self.inspect()
        for key in self.listed.groups:
            self.of(key).make()

    def load(self, environment: Mapping[str, str] | None = None) -> DefinitionSet:
        """Read the definitions from their copies, whatever the project has now. Call `inspect` first.

        The set of a file that is gone is empty. Raises `HookUnavailable` if a copy is gone or was changed, and
        `InvalidDefinitions`.
        """
        if self.listed.is_removal:
            return DefinitionSet(path=Path(self.listed.start), folder=Path(self.listed.folder))
        pages = self.of(SETS_OWN)
        pages.check()
        return load_files(Path(self.listed.start), environment=environment, copies=pages.root)

    def inspect(self) -> None:
        """Keep the copies from being removed for the next 30 days.

        Raises `HookUnavailable` if other users could change them.
        """
        for key in self.listed.groups:
            with suppress(OSError):  # not made yet, or in a folder in which no process can write or remove
                os.utime(self.of(key).root)
        _inspect(self.folder)


def _inspect(folder: Path) -> None:
    """Raise `HookUnavailable` if other users could replace a folder of copies, or a folder above it."""
    try:
        for one in (folder, folder.parent):
            if one.exists():
                inspect_folder(one)
        for one in folder.parents[1:]:
            mode = one.stat().st_mode
            if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise UnsafeStore(f"others may write to {one}; chmod o-w it")
    except (OSError, StoreUnavailable) as problem:
        raise HookUnavailable(f"private copies are not safe: {problem}") from problem


@define(eq=False)
class ProjectModules:
    """Modules of a project, imported from private copies under names of their own.

    No folder of the project is on `sys.path`, so no other code finds these modules. Their own imports find listed
    modules and installed ones, and nothing else.
    """

    groups: tuple[HookFiles, ...]
    version: str
    _copies: dict[str, tuple[HookFiles, ListedFile]] = field(init=False)
    _lock: RLock = field(factory=RLock, init=False)

    def __attrs_post_init__(self) -> None:
        listed = ((files, one) for files in self.groups for one in files.files if one.name.startswith(IMPORT))
        self._copies = {one.name.removeprefix(IMPORT): (files, one) for files, one in listed}

    @property
    def prefix(self) -> str:
        """Name in `sys.modules` before the name of each module."""
        return f"amplifier_hooks_project_{self.version[:12]}"

    def has(self, module: str) -> bool:
        """Return True if the first part of a module's name is that of a listed module."""
        top = module.partition(".")[0]
        return any(name.partition(".")[0] == top for name in self._copies)

    def load(self, module: str) -> ModuleType:
        """Return a module, imported at the first time. Raises `ModuleNotFoundError` if it is not listed."""
        with self._lock:
            return self._load(module)

    def _load(self, module: str) -> ModuleType:
        name = f"{self.prefix}.{module}"
        parent, _, last = module.rpartition(".")
        above = self._load(parent) if parent else None
        if name in sys.modules:
            return sys.modules[name]
        files, one = self._copies.get(module, (None, None))
        content, path = b"", None
        if files is not None and one is not None:
            path = files.copy_of(one.path)
            content = read_plainly(path, LARGEST)
            if hashlib.sha256(content).hexdigest() != one.digest:
                raise HookUnavailable(f"the private copy of {one.path!r:.200} is not as it was trusted; {AGAIN}")
        elif not any(listed.startswith(f"{module}.") for listed in self._copies):
            raise ModuleNotFoundError(f"{module!r} is not among the trusted files", name=module)
        made = ModuleType(name)
        package = path is None or path.name == "__init__.py"
        made.__package__ = name if package else name.rpartition(".")[0]
        made.__file__ = None if path is None else str(path)
        made.__path__ = []
        if not package:
            del made.__path__
        vars(made)["__builtins__"] = {**vars(builtins), "__import__": self._import}
        sys.modules[name] = made
        try:
            exec(compile(content, str(path), "exec", dont_inherit=True), vars(made))  # noqa: S102  # trusted code
        except BaseException:
            del sys.modules[name]
            raise
        if above is not None:
            setattr(above, last, made)
        return made

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002  # the names of `__import__`
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import for the code of these modules, with the arguments of `__import__`."""
        wanted = resolve_name("." * level + name, (globals or {})["__package__"]) if level else name
        own = wanted.removeprefix(f"{self.prefix}.")
        if not self.has(own):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = self.load(own)
        for attribute in fromlist or ():
            if not hasattr(found, attribute) and f"{own}.{attribute}" in self._copies:
                self.load(f"{own}.{attribute}")
        return found if fromlist else self.load(own.partition(".")[0])
