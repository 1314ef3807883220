"""The files of a log and the key that signs it.

`Files` is the log's only access to the file system; tests replace it by one that fails. It inspects a file before it
writes: only its owner may put files into the folder of a log, and the log is a plain file that only its owner can read.

`AuditKey` is a file that only its owner can read, created on first use: PKCS#8 in PEM, which other tools read too. A
file beside it holds the public half, as a C2SP verifier key under a name of its own; `verify` accepts that text.
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

from amplifier_hooks.record.line import VerifierKey
from amplifier_hooks.record.record_errors import LogInUse, LogReplaced, UnsafeLog

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
_NO_BYTE: Final = 1 << 40


class Files:
    """The file system. Every method raises `OSError`."""

    def open(self, path: Path, *, write: bool = True) -> int:
        """Open an existing file to read and, with `write`, to append.

        Raises `UnsafeLog` unless the file is a plain file that its owner alone owns, reads and writes, and no link.
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

    def create(self, path: Path, contents: bytes) -> int:
        """Create a file with these contents, whole and durable or not at all, and open it to append, locked."""
        making = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = self.make(making)
        try:
            try:
                self.lock(descriptor, path)
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
        """Create an empty file, and open it to append."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE, _MINE)

    def link(self, path: Path, name: Path) -> None:
        """Give a file another name. Raises `FileExistsError` if that name is taken."""
        os.link(path, name)

    def remove(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def write(self, descriptor: int, data: bytes) -> None:
        """Append all of the data."""
        rest = memoryview(data)
        while rest:
            written = self.write_some(descriptor, rest)
            if not written:
                raise OSError(errno.EIO, "nothing was written")
            rest = rest[written:]

    def write_some(self, descriptor: int, data: memoryview) -> int:
        """Append some of the data, and return the number of bytes."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Return once the written bytes would survive a power cut."""
        if sys.platform == "darwin":  # fsync leaves the bytes in the drive's own memory there
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

    def lock(self, descriptor: int, path: Path) -> None:
        """Lock a file, whatever its name, until the descriptor is closed or the process ends.

        Raises `LogInUse` if another writer holds the lock.
        """
        try:
            if sys.platform == "win32":
                import msvcrt

                os.lseek(descriptor, _NO_BYTE, os.SEEK_SET)  # readers cannot read a locked byte there
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise LogInUse(f"another writer has {path} open; one log has one writer") from problem

    def check(self, descriptor: int, path: Path, length: int) -> None:
        """Raise `LogReplaced` unless the open file still has this name and exactly this many bytes."""
        found = os.fstat(descriptor)
        try:
            same = os.path.samestat(found, os.lstat(path))
        except FileNotFoundError:
            raise LogReplaced(f"{path} was removed while it was written") from None
        if not same:
            raise LogReplaced(f"{path} was replaced while it was written")
        if found.st_size != length:
            raise LogReplaced(f"{path} has {found.st_size:,} bytes, and the writer left {length:,} there")


def inspect_folder(folder: Path) -> None:
    """Raise `UnsafeLog` if other users can put files into a folder."""
    if os.name == "posix" and folder.stat().st_mode & _OTHERS_WRITE:
        raise UnsafeLog(f"others may write to {folder}; use a folder of your own, or: chmod go-w {folder}")


def inspect(status: os.stat_result, path: Path) -> None:
    """Raise `UnsafeLog` unless this is a plain file of the current user that no other user can read or write."""
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeLog(f"{path} is no plain file")
    if os.name == "posix":
        if status.st_uid != os.geteuid():
            raise UnsafeLog(f"{path} belongs to another user")
        if status.st_mode & _OTHERS:
            raise UnsafeLog(f"others may read or write {path}; if what it holds can be trusted: chmod 600 {path}")


NAME: Final = "amplifier-hooks/audit"
"""Name of a public key outside any log."""

_SEED_BYTES: Final = 32
_LONGEST: Final = 65_536


class AuditKey:
    """An Ed25519 key. Callers can use its secret half, but not read it."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self._redaction_key = hmac.digest(seed, b"amplifier-hooks/audit/redaction\n", "sha256")
        self.public: bytes = self._private.public_key().public_bytes_raw()
        """The raw public key."""

    def __repr__(self) -> str:
        return f"AuditKey({self.fingerprint})"

    @classmethod
    def generate(cls) -> AuditKey:
        """Return a new key, in memory only."""
        return cls(secrets.token_bytes(_SEED_BYTES))

    @classmethod
    def open(cls, path: str | Path) -> AuditKey:
        """Return the key in a file. If the file is missing, create it, and the public half beside it.

        Raises `UnsafeLog` for a link, for a file that is not plain, for a file that other users own or may read, and
        for one that holds no Ed25519 key; `OSError` if the file cannot be read or created. Never replaces an existing
        key.
        """
        path = Path(path)
        with suppress(FileNotFoundError):
            return cls(_seed(_contents(path), path))
        key = cls.generate()
        try:
            _create(path, _pem(key._private))  # noqa: SLF001  # an instance of this class
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
        """Return the public half as a C2SP verifier key."""
        return str(VerifierKey(name, self.public))

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature of `data`."""
        return self._private.sign(data)

    def hash_key(self, log: str) -> bytes:
        """Return the key that hashes the secrets of one log: equal secrets look equal there, and cannot be guessed."""
        return hmac.digest(self._redaction_key, log.encode(), "sha256")


def _contents(path: Path) -> bytes:
    """Return the bytes of a file that only its owner can read."""
    files = Files()
    descriptor = files.open(path, write=False)
    try:
        return os.read(descriptor, _LONGEST)
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
    files.close(files.create(path, contents))
