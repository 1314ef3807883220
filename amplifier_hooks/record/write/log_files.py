"""What a log asks of the file system, in one place: a test hands in one that fails.

Nothing is written that has not been looked at first: a log lies in a folder where only its owner can put files, and is
a plain file of its owner's that nobody else can read.

The key that signs a log: a file only its owner can read, made on first use.

The file is PKCS#8 in PEM, which other tools read too. Next to it lies the public half, as a C2SP verifier key under a
name of its own; `verify` takes that text, wherever it was kept in the meantime.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amplifier_hooks.record.format.checkpoint import VerifierKey
from amplifier_hooks.record.record_errors import LogInUse, UnsafeLog

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_SAFE: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MINE: Final = 0o600


class Files:
    """The file system. Every method raises `OSError`."""

    def open(self, path: Path, *, write: bool = True) -> int:
        """Open a file that is there, to read it and to append to it.

        Raises `UnsafeLog` for a link, for what is no plain file, and for what others own, read or write.
        """
        try:
            descriptor = os.open(path, (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY) | _SAFE)
        except OSError as problem:
            if path.is_symlink():
                raise UnsafeLog(f"{path} is a link; name the file itself") from problem
            if path.exists() and not path.is_file():
                raise UnsafeLog(f"{path} is no plain file") from problem
            raise
        try:
            inspect(os.fstat(descriptor), path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def create(self, path: Path, contents: bytes, *, draft: str = "new") -> int:
        """A new file with these contents, open to append; it is on disk, whole and with its name, or not there.

        `draft` is the end of the name it has until then; whoever uses one has to be alone with it.
        """
        making = path.with_name(f".{path.name}.{draft}")
        with suppress(FileNotFoundError):
            self.remove(making)  # left behind by a crash
        descriptor = self.make(making)
        try:
            try:
                self.write(descriptor, contents)
                self.sync(descriptor)
                self.link(making, path)
            finally:
                self.remove(making)
            self.sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def make(self, path: Path) -> int:
        """A new, empty file, open to append."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE, _MINE)

    def link(self, path: Path, name: Path) -> None:
        """Give a file another name. Raises `FileExistsError` when that is taken."""
        os.link(path, name)

    def remove(self, path: Path) -> None:
        """Take a name away."""
        path.unlink()

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Bytes from a place in a file."""
        return os.pread(descriptor, size, offset)

    def write(self, descriptor: int, data: bytes) -> None:
        """Append all of the data."""
        rest = memoryview(data)
        while rest:
            written = self.write_some(descriptor, rest)
            if not written:
                raise OSError(errno.EIO, "nothing was written")
            rest = rest[written:]

    def write_some(self, descriptor: int, data: memoryview) -> int:
        """Append some of the data, and say how much."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Return once what was written would survive a power cut."""
        if sys.platform == "darwin":  # there, fsync leaves it in the drive's own memory
            import fcntl

            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def cut(self, descriptor: int, size: int) -> None:
        """Shorten a file, durably."""
        os.ftruncate(descriptor, size)
        self.sync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Return once new names in a folder would survive a power cut."""
        if os.name != "posix":
            return
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> int:
        """Be the only one who writes beside this file, until the descriptor is closed or the process ends.

        Raises `LogInUse` when somebody else is, and `UnsafeLog` when others could write into the folder.
        """
        found = path.parent.stat()
        if os.name == "posix" and found.st_mode & _OTHERS_WRITE:
            folder = path.parent
            raise UnsafeLog(f"others may write to {folder}; use a folder of your own, or: chmod go-w {folder}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, _MINE)
        try:
            inspect(os.fstat(descriptor), path)
            _lock(descriptor, path)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def inspect(found: os.stat_result, path: Path) -> None:
    """Raise `UnsafeLog` unless it is a plain file of ours that nobody else can read or write."""
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeLog(f"{path} is no plain file")
    if os.name == "posix":
        if found.st_uid != os.geteuid():
            raise UnsafeLog(f"{path} belongs to somebody else")
        if found.st_mode & _OTHERS:
            raise UnsafeLog(f"others may read or write {path}; if what it holds can be trusted: chmod 600 {path}")


def _lock(descriptor: int, path: Path) -> None:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "?"
        raise LogInUse(f"process {owner} writes to this log ({path}); one log has one writer") from problem


NAME: Final = "amplifier-hooks/audit"
"""The name of a public key outside any log."""

_SEED_BYTES: Final = 32
_LONGEST: Final = 65_536


class AuditKey:
    """An Ed25519 key. What is secret in it can be used, and not be read from here."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self._hidden = hmac.digest(seed, b"amplifier-hooks/audit/redaction\n", "sha256")
        self.public: bytes = self._private.public_key().public_bytes_raw()
        """The public key, raw."""

    def __repr__(self) -> str:
        return f"AuditKey({self.fingerprint})"

    @classmethod
    def generate(cls) -> AuditKey:
        """A new key, in memory only."""
        return cls(secrets.token_bytes(_SEED_BYTES))

    @classmethod
    def open(cls, path: str | Path) -> AuditKey:
        """The key in a file; a new one is made, with its public half beside it, when the file is not there.

        Raises `UnsafeLog` for a link, for what is no plain file, for one that others may read or that is somebody
        else's, and for one that holds no Ed25519 key; `OSError` when it cannot be read or made. A key that was there
        is never replaced.
        """
        path = Path(path)
        with suppress(FileNotFoundError):
            return cls(_seed(_contents(path), path))
        key = cls.generate()
        try:
            _create(path, _pem(key._private))  # noqa: SLF001  # its own kind
        except FileExistsError:  # another process was faster
            return cls(_seed(_contents(path), path))
        with suppress(FileExistsError):
            _create(path.with_name(f"{path.name}.pub"), f"{key.vkey()}\n".encode("ascii"))
        return key

    @property
    def fingerprint(self) -> str:
        """The beginning of the public key's hash, for people to compare."""
        return hashlib.sha256(self.public).hexdigest()[:16]

    def vkey(self, name: str = NAME) -> str:
        """The public half as a C2SP verifier key."""
        return str(VerifierKey(name, self.public))

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature."""
        return self._private.sign(data)

    def hash_key(self, log: str) -> bytes:
        """The key under which the secrets of one log are hashed: equal ones look equal there, and cannot be guessed."""
        return hmac.digest(self._hidden, log.encode(), "sha256")


def _contents(path: Path) -> bytes:
    """The bytes of a file that is nobody else's business."""
    files = Files()
    descriptor = files.open(path, write=False)
    try:
        return files.read(descriptor, _LONGEST, 0)
    finally:
        files.close(descriptor)


def _seed(pem: bytes, path: Path) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise UnsafeLog(f"{path} holds no key that can be read; restore it, or name another file") from problem
    if not isinstance(key, Ed25519PrivateKey):
        raise UnsafeLog(f"{path} holds a key of another kind; an Ed25519 key is needed")
    return key.private_bytes_raw()


def _pem(key: Ed25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _create(path: Path, contents: bytes) -> None:
    files = Files()
    files.close(files.create(path, contents, draft=secrets.token_hex(8)))
