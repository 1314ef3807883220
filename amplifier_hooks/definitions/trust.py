"""Trust in the hooks of a project: lists of files with their digests come in; trusted or not goes out.

The lists are stored outside of every project, so a project cannot trust itself. Trust applies to bytes: a file that
differs from its digest gives another list, which is not trusted. Only plain files are read: a pipe in the place of a
file would keep its reader waiting, and a device would never end.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import asdict, field, frozen

from amplifier_hooks.storage.state_folder import StateFolder, locked, make_private, write_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from io import BufferedReader


class NoPlainFile(OSError):
    """A folder, a pipe, a socket or a device lies in the place of a file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r:.200} is no plain file")
        self.strerror = "it is no plain file"


@contextmanager
def opened_plainly(path: str | os.PathLike[str]) -> Iterator[tuple[BufferedReader, os.stat_result]]:
    """Open a plain file for the block, with its status. Raises `OSError`, and `NoPlainFile` for anything else."""
    with open(path, "rb", opener=_open_at_once) as file:  # with an opener
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NoPlainFile(os.fspath(path))
        yield file, status


def read_plainly(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the first bytes of a plain file. Raises as `opened_plainly` does."""
    with opened_plainly(path) as (file, _):
        return file.read(most)


def shebang(path: str) -> list[str]:
    """Return the words of the first line of a script: the interpreter, or its bare name after `env`, and arguments."""
    try:
        with opened_plainly(path) as (script, _):
            first = os.fsdecode(script.readline(256))
    except OSError:
        return []
    told = first[2:].strip().replace("\t", " ") if first.startswith("#!") else ""  # the system reads both as blanks
    program, _, argument = told.partition(" ")
    argument = argument.strip()
    words = argument.removeprefix("-S").split() if argument.startswith("-S") else [argument]
    if Path(program).name == "env" and words and words[0] and words[0][0] != "-" and "=" not in words[0]:
        return words
    return [program, *filter(None, [argument])] if program else []


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


Role = Literal["copied", "read", "installed"]
"""Use of a listed file.

`copied`: it is read, imported or run from a private copy. `read`: a hook reads it in its own place, and it is compared
before each start. `installed`: a program or an interpreter that runs in its own place, and is compared before each
start.
"""

DOMAIN: Final = b"amplifier-hooks/file-list/1\n"
UNREAD: Final = "unread"
"""Stands for the digest of a path at which no plain file lies, or one that cannot be read or is too large."""
SETS_OWN: Final = ""
"""Group of a set's own files, beside one group for each hook."""


@frozen(order=True)
class ListedFile:
    """One file that a definition names."""

    path: str
    """Absolute path. The name of a program that is on no PATH stays a name."""
    digest: str
    """SHA-256 of the content; empty for a file that is missing, `UNREAD` for one that cannot be read."""
    role: Role
    name: str = ""
    """Bare name of a program that the PATH resolved to `path`."""


def digest_of_files(files: Iterable[ListedFile]) -> str:
    """Return the digest of listed files, whatever their order."""
    return _digest(text for one in sorted(files) for text in (one.path, one.digest, one.role, one.name))


def _digest(texts: Iterable[str]) -> str:
    hashed = hashlib.sha256(DOMAIN)
    for text in texts:
        part = text.encode("utf-8", "surrogatepass")  # a name of a file may be no UTF-8
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()


@frozen(kw_only=True)
class FileList:
    """The files of a set of definitions, or of one imported hook, as they were at one time."""

    folder: str
    """Folder of the set, where its commands run."""
    start: str = ""
    """File or folder at which the set starts; empty for a hook that is in no set."""
    about: str = ""
    """Digest of a definition that is in no listed file."""
    groups: Mapping[str, tuple[ListedFile, ...]] = field(factory=dict)
    """Files of each hook, by hook id or by name of the ready-made hook, and those of the set itself."""

    @property
    def digest(self) -> str:
        """Digest of the whole list: another list, or another content of one file, has another digest."""
        groups = (text for key in sorted(self.groups) for text in (key, digest_of_files(self.groups[key])))
        return _digest((self.folder, self.start, self.about, *groups))

    @property
    def is_removal(self) -> bool:
        """True for a set whose file is gone: none of its hooks is in force."""
        return bool(self.start) and SETS_OWN not in self.groups

    def removal(self) -> FileList:
        """Return the list of this set without its file."""
        return FileList(folder=self.folder, start=self.start)

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """All files, each once, by path."""
        return tuple(sorted({one for files in self.groups.values() for one in files}))

    @property
    def programs(self) -> dict[str, str]:
        """Paths of the programs that were found on the PATH, by their bare names."""
        return {one.name: one.path for one in self.files if one.name}


MOST_DENIED: Final = 100
"""Denied lists of one source that are remembered, the last ones."""


@frozen
class _Kept:
    """The content of a store, by source."""

    trusted: Mapping[str, tuple[FileList, ...]] = field(factory=dict)
    denied: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """Digests of the lists that approvers denied since a list of the source was trusted."""


@frozen
class TrustStore:
    """The trusted lists, in one file that only its owner can read, outside of every project.

    Each list has a source: the file of definitions, the settings that a hook was imported from, or the name of a
    module. Trusting a source anew ends the trust in its earlier content, and the denials of the source.
    """

    path: Path = field(factory=lambda: StateFolder().trust)
    """Path of the file of trusted lists; the user's own by default."""

    @property
    def copies(self) -> Path:
        """Folder of the private copies of trusted files."""
        return self.path.with_name("trusted")

    def trusts(self, found: FileList) -> bool:
        """Return True if a list is trusted, and each of its files could be read or is missing.

        A store that others own or can write trusts nothing.
        """
        if any(one.digest == UNREAD for one in found.files):
            return False
        return any(found.digest == one.digest for lists in self._read().trusted.values() for one in lists)

    def trusted_list(self, source: str) -> FileList | None:
        """Return the trusted list of a file of definitions; None if there is none."""
        return next(iter(self._read().trusted.get(source, ())), None)

    def trust(self, source: str, lists: Iterable[FileList]) -> None:
        """Trust the lists of a source, and no others of that source any more.

        Args:
            lists: Lists of files that are trusted as they are.

        Raises `OSError` if the store cannot be written.
        """
        with self._writing():
            kept = self._read()
            denied = {one: digests for one, digests in kept.denied.items() if one != source}
            self._write(_Kept({**kept.trusted, source: tuple(lists)}, denied))

    def deny(self, source: str, found: FileList) -> None:
        """Remember that an approver denied a list, until another list of the source is trusted. Raises `OSError`."""
        with self._writing():
            kept = self._read()
            digests = (*(one for one in kept.denied.get(source, ()) if one != found.digest), found.digest)
            self._write(_Kept(kept.trusted, {**kept.denied, source: digests[-MOST_DENIED:]}))

    def denied(self, source: str, found: FileList) -> bool:
        """Return True if an approver denied a list of a source."""
        return found.digest in self._read().denied.get(source, ())

    def groups(self) -> Iterator[tuple[ListedFile, ...]]:
        """Yield the files of each hook of all trusted lists."""
        for lists in self._read().trusted.values():
            for one in lists:
                yield from one.groups.values()

    def trusted_files(self) -> frozenset[str]:
        """Return the absolute paths of all files that trusted lists name, also of missing ones, and of all sources."""
        kept = self._read().trusted
        named = {one.path for lists in kept.values() for each in lists for one in each.files}
        return frozenset(path for path in (*kept, *named) if Path(path).is_absolute())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep other processes from changing the store for the block. Raises `OSError`."""
        make_private(self.path.parent)
        with locked(self.path.with_name(f"{self.path.name}.lock")):
            yield

    def _read(self) -> _Kept:
        try:
            status = self.path.stat()
            if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
                return _Kept()
            return _parsed(self.path, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        except OSError:
            return _Kept()

    def _write(self, kept: _Kept) -> None:
        write_private(self.path, json.dumps(asdict(kept), indent=1).encode("ascii"), 0o600)


@lru_cache(maxsize=4)
def _parsed(path: Path, _signature: tuple[int, ...]) -> _Kept:
    """Return the content of a store, which is replaced as a whole whenever it changes."""
    try:
        value = json.loads(path.read_bytes())
        trusted = {source: tuple(map(_list_from, lists)) for source, lists in value["trusted"].items()}
        return _Kept(trusted, {source: tuple(map(str, digests)) for source, digests in value["denied"].items()})
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return _Kept()


def _list_from(value: Mapping[str, Any]) -> FileList:
    groups = {key: tuple(ListedFile(**one) for one in files) for key, files in value["groups"].items()}
    return FileList(**{**value, "groups": groups})
