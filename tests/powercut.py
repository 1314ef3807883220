"""Log of SQLite's calls to the disk, and every disk that a power cut could leave behind.

The engine, its settings and the store stay as they are. A file system of SQLite's own kind (a VFS) is put around the
usual one while something is recorded, in the very library that Python's `sqlite3` calls; it passes everything on.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sqlite3
import sys
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field, frozen

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence

SECTOR: Final = 512
"""Bytes a disk writes whole."""


# -- what was asked of the disk ----------------------------------------------------------------------------------------


@frozen
class Write:
    """Bytes for a file."""

    file: int
    offset: int
    data: bytes


@frozen
class Cut:
    """A new, smaller size."""

    file: int
    size: int


@frozen
class Sync:
    """A sync of a file: its contents up to here would survive."""

    file: int


@frozen
class Named:
    """A name in the folder for a file; without a file, the name is removed."""

    name: str
    file: int | None


@frozen
class FolderSync:
    """A sync of the folder: its names up to here would survive."""


@frozen
class Said:
    """A message that a caller received, or was about to receive."""

    text: str


Step = Write | Cut | Sync | Named | FolderSync | Said


@define(eq=False)
class DiskLog:
    """Calls to the disk, in order, for the files of one folder."""

    folder: Path
    steps: list[Step] = field(factory=list)
    names: dict[str, int] = field(factory=dict)
    count: int = 0
    begun: int = 0
    """Steps that make the disk as it was at the beginning."""

    def begin(self, there: Mapping[str, bytes]) -> None:
        """Note the files that are on the disk already."""
        for name, data in there.items():
            number = self.file(self.folder / name)
            if number is not None:
                self.steps += [Write(number, 0, data), Sync(number)]
        self.steps.append(FolderSync())
        self.begun = len(self.steps)

    def say(self, text: str) -> None:
        """Note a message to a caller."""
        self.steps.append(Said(text))

    def file(self, path: Path) -> int | None:
        """Return the number of a file by its name; a new name is a new file. None for a file in another folder."""
        name = path.name
        if path.parent != self.folder:
            return None
        if name not in self.names:
            self.count += 1
            self.names[name] = self.count
            self.steps.append(Named(name, self.count))
        return self.names[name]

    def linked(self, path: Path, name: str) -> None:
        """Note a second name."""
        self.names[name] = self.names[path.name]
        self.steps.append(Named(name, self.names[name]))

    def unlinked(self, name: str) -> None:
        """Note that a name was removed."""
        if self.names.pop(name, None) is not None:
            self.steps.append(Named(name, None))


# -- what a power cut leaves -------------------------------------------------------------------------------------------

Image = dict[str, bytes]
"""A folder: names and contents."""


def image(steps: Sequence[Step], chosen: Callable[[Step], Step | None] = lambda step: step) -> Image:
    """Return the folder after these steps; `chosen` decides about unsynced steps: whole, a part, or nothing."""
    synced: dict[int | str, int] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Sync):
            synced[step.file] = number
        elif isinstance(step, FolderSync):
            synced["folder"] = number
    contents: dict[int, bytearray] = {}
    names: dict[str, int] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Sync | FolderSync | Said):
            continue
        place = "folder" if isinstance(step, Named) else step.file
        left = step if number < synced.get(place, -1) else chosen(step)
        match left:
            case Write(file, offset, data):
                content = contents.setdefault(file, bytearray())
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
            case Cut(file, size):
                del contents.setdefault(file, bytearray())[size:]
            case Named(name, None):
                names.pop(name, None)
            case Named(name, file):
                names[name] = file or 0
            case _:
                pass  # lost
    return {name: bytes(contents.get(file, b"")) for name, file in names.items()}


def images(steps: Sequence[Step], chance: random.Random, mixtures: int) -> Iterator[Image]:
    """Return the disks that these steps could leave: all done, no unsynced one done, one lost, one done, mixtures.

    In a mixture, any of the unsynced steps is done or lost, and a write may be torn between two sectors.
    """
    unsynced: list[Step] = []
    image(steps, unsynced.append)
    yield image(steps)
    yield image(steps, lambda _: None)
    for one in unsynced:
        yield image(steps, lambda step, one=one: None if step is one else step)  # type: ignore[misc]
        yield image(steps, lambda step, one=one: step if step is one else None)  # type: ignore[misc]
    for _ in range(mixtures if unsynced else 0):
        yield image(steps, lambda step: _mixed(step, chance))


def _mixed(step: Step, chance: random.Random) -> Step | None:
    fate = chance.randrange(3)
    if fate == 0 or (fate == 1 and isinstance(step, Write)):
        sectors = isinstance(step, Write) and len(step.data) // SECTOR
        if fate == 0 or not sectors or not isinstance(step, Write):
            return None
        begin, end = sorted(chance.sample(range(sectors + 1), 2))
        return Write(step.file, step.offset + begin * SECTOR, step.data[begin * SECTOR : end * SECTOR])
    return step


def put(found: Mapping[str, bytes], folder: Path) -> None:
    """Write an image into a folder."""
    folder.mkdir(mode=0o700)
    for name, data in found.items():
        descriptor = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def digest(found: Mapping[str, bytes]) -> bytes:
    """Return a digest that differs for different images."""
    hashed = hashlib.sha256()
    for name, data in sorted(found.items()):
        hashed.update(f"{name}\0{len(data)}\0".encode() + data)
    return hashed.digest()


# -- listening in ------------------------------------------------------------------------------------------------------


@contextmanager
def recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch, there: Mapping[str, bytes] | None = None
) -> Iterator[DiskLog]:
    """Log the calls that SQLite and our own code make to the disk in this folder, which may hold an image.

    Only one recording runs at a time.
    """
    library = _library()
    log = DiskLog(folder)
    log.begin(there or {})
    around = _Around(library, log)
    with monkeypatch.context() as patched:
        _listen_to_ours(patched, log)
        around.install()
        try:
            yield log
        finally:
            around.remove()


def _listen_to_ours(patched: pytest.MonkeyPatch, log: DiskLog) -> None:
    """Log the calls of our own code to `os` that change names."""
    link, unlink, fsync = os.link, os.unlink, os.fsync

    def linked(source: Any, target: Any, **options: Any) -> None:
        link(source, target, **options)
        log.linked(Path(source), Path(target).name)

    def unlinked(path: Any, **options: Any) -> None:
        unlink(path, **options)
        log.unlinked(Path(path).name)

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        if os.path.samestat(os.fstat(descriptor), log.folder.stat()):
            log.steps.append(FolderSync())

    patched.setattr(os, "link", linked)
    patched.setattr(os, "unlink", unlinked)
    patched.setattr(os, "fsync", synced)


def _library() -> Any:
    """Return the SQLite library of Python's own module; skip where its functions cannot be reached."""
    module = sys.modules["_sqlite3"]
    try:
        library = ctypes.CDLL(getattr(module, "__file__", None))
        library.sqlite3_vfs_find.argtypes, library.sqlite3_vfs_find.restype = [c_char_p], POINTER(Vfs)
        library.sqlite3_vfs_register.argtypes = [POINTER(Vfs), c_int]
        library.sqlite3_vfs_unregister.argtypes = [POINTER(Vfs)]
    except (AttributeError, OSError):
        pytest.skip(f"SQLite {sqlite3.sqlite_version} is built into Python here, out of reach")
    return library


class Methods(Structure):
    """`sqlite3_io_methods`: the methods of an open file."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)),
        ("truncate", CFUNCTYPE(c_int, c_void_p, c_int64)),
        ("sync", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("rest", c_void_p * 13),
    )


class File(Structure):
    """`sqlite3_file`: pointer to the methods; the bytes after it belong to the file system."""

    _fields_ = (("methods", POINTER(Methods)),)


class Vfs(Structure):
    """`sqlite3_vfs`: the methods for names."""


OpenDirectory = CFUNCTYPE(c_int, c_char_p, POINTER(c_int))

Vfs._fields_ = (
    ("version", c_int),
    ("file_size", c_int),
    ("longest", c_int),
    ("next", c_void_p),
    ("name", c_char_p),
    ("data", c_void_p),
    ("open", CFUNCTYPE(c_int, POINTER(Vfs), c_void_p, POINTER(File), c_int, POINTER(c_int))),
    ("delete", CFUNCTYPE(c_int, POINTER(Vfs), c_void_p, c_int)),
    ("between", c_void_p * 11),
    ("set_system_call", CFUNCTYPE(c_int, POINTER(Vfs), c_char_p, c_void_p)),
    ("get_system_call", CFUNCTYPE(c_void_p, POINTER(Vfs), c_char_p)),
    ("next_system_call", c_void_p),
)


class _Around:
    """The usual file system, with a log of its calls."""

    def __init__(self, library: Any, log: DiskLog) -> None:
        self._library = library
        self._log = log
        self._usual = library.sqlite3_vfs_find(None)
        self._files: dict[int, int] = {}
        self._own = Vfs()
        ctypes.memmove(ctypes.byref(self._own), self._usual, ctypes.sizeof(Vfs))
        self._own.name = b"recording"
        self._own.open = type(self._own.open)(self._open)
        self._own.delete = type(self._own.delete)(self._delete)
        self._tables: dict[int, tuple[Methods, Methods]] = {}
        self._found = self._usual.contents.get_system_call(self._usual, b"openDirectory")
        self._folder = OpenDirectory(self._opened_folder)

    def install(self) -> None:
        """Make every new connection go through this file system."""
        self._library.sqlite3_vfs_register(ctypes.byref(self._own), 1)
        self._usual.contents.set_system_call(self._usual, b"openDirectory", ctypes.cast(self._folder, c_void_p))

    def remove(self) -> None:
        """Restore the usual file system. Close all connections first: open ones would go on through this one."""
        self._usual.contents.set_system_call(self._usual, b"openDirectory", self._found)
        self._library.sqlite3_vfs_unregister(ctypes.byref(self._own))
        self._library.sqlite3_vfs_register(self._usual, 1)

    def _open(self, _vfs: Any, name: Any, file: Any, flags: int, given: Any) -> int:
        code: int = self._usual.contents.open(self._usual, name, file, flags, given)
        if code == 0 and name and file.contents.methods:
            number = self._log.file(Path(os.fsdecode(ctypes.string_at(name))))
            if number is not None:
                self._files[ctypes.addressof(file.contents)] = number
                file.contents.methods = ctypes.pointer(self._table(file.contents.methods))
        return code

    def _delete(self, _vfs: Any, name: Any, sync: int) -> int:
        code: int = self._usual.contents.delete(self._usual, name, sync)
        if code == 0:
            self._log.unlinked(Path(os.fsdecode(ctypes.string_at(name))).name)
            if sync:
                self._log.steps.append(FolderSync())
        return code

    def _opened_folder(self, name: bytes, descriptor: Any) -> int:
        """Open a folder, and log a sync of it: SQLite opens a folder only to sync it."""
        code: int = ctypes.cast(self._found, OpenDirectory)(name, descriptor)
        if code == 0:
            self._log.steps.append(FolderSync())
        return code

    def _table(self, usual: Any) -> Methods:
        """Return the methods of a file with ours in their place, made once."""
        address = ctypes.addressof(usual.contents)
        if address not in self._tables:
            theirs, ours = usual.contents, Methods()
            ctypes.memmove(ctypes.byref(ours), usual, ctypes.sizeof(Methods))

            def write(file: int, data: int, amount: int, offset: int) -> int:
                code: int = theirs.write(file, data, amount, offset)
                if code == 0:
                    self._log.steps.append(Write(self._files[file], offset, ctypes.string_at(data, amount)))
                return code

            def truncate(file: int, size: int) -> int:
                code: int = theirs.truncate(file, size)
                if code == 0:
                    self._log.steps.append(Cut(self._files[file], size))
                return code

            def sync(file: int, flags: int) -> int:
                code: int = theirs.sync(file, flags)
                if code == 0:
                    self._log.steps.append(Sync(self._files[file]))
                return code

            ours.write, ours.truncate = type(ours.write)(write), type(ours.truncate)(truncate)
            ours.sync = type(ours.sync)(sync)
            self._tables[address] = (ours, theirs)
        return self._tables[address][0]
