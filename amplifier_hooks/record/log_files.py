"""The files of a log and the key that signs it.

`Files` is the log's only access to the file system; tests replace it by one that fails. It inspects a file before it
writes: only its owner may put files into the folder of a log, and the log is a plain file that only its owner can read.

`AuditKey` is a file that only its owner can read, created on first use: PKCS#8 in PEM, which other tools read too. A
file beside it holds the public half, as a C2SP verifier key under a name of its own; `verify` accepts that text.

`Segments` opens a segment to append to, resumed or new:

    record.jsonl  record.000002.jsonl  record.000003.jsonl  …

However the last writer ended, the log continues in one way, and the next line names it:

| the last segment                    | what happens                                                            |
|-------------------------------------|-------------------------------------------------------------------------|
| is missing                          | a new log begins                                                        |
| is empty, or its first line is torn | the segment begins anew                                                 |
| ends in a whole line                | the log is resumed                                                      |
| ends in a torn line                 | the line is cut off: `log.recovered`; then the log is resumed           |
| has a complete line that is wrong   | the segment stays as it is; the next one names the damage               |
| was signed by another key           | the segment stays as it is; the next one has the new key                |
| was closed for the next one         | the next segment is created, if the close is whole                      |
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import secrets
import sys
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.record.line import (
    SEAL,
    ChainPosition,
    Opening,
    Signer,
    VerifierKey,
    encode_log_record,
    read,
    unseal,
)
from amplifier_hooks.record.read_segment import SegmentFile, iter_chained, open_segment
from amplifier_hooks.record.record_errors import BadNote, LogInUse, LogReplaced, MalformedLine, UnsafeLog
from amplifier_hooks.storage.state_folder import file_flaw, folder_flaw, sync_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from amplifier_hooks.ports import Clock


_SAFE: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
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
        sync_folder(path)

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

    def check(self, path: Path, opened: os.stat_result, length: int) -> None:
        """Raise `LogReplaced` unless this is still the name of an open file, which has exactly this many bytes."""
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            raise LogReplaced(f"{path} was removed while it was written") from None
        if not os.path.samestat(there, opened):
            raise LogReplaced(f"{path} was replaced while it was written")
        if there.st_size != length:
            raise LogReplaced(f"{path} has {there.st_size:,} bytes, and the writer left {length:,} there")


def inspect_folder(folder: Path) -> None:
    """Raise `UnsafeLog` if other users can put files into a folder."""
    if flaw := folder_flaw(folder.stat(), folder):
        raise UnsafeLog(flaw)


def inspect(status: os.stat_result, path: Path) -> None:
    """Raise `UnsafeLog` unless this is a plain file of the current user that no other user can read or write."""
    if flaw := file_flaw(status, path):
        raise UnsafeLog(flaw)


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


# -- segments ----------------------------------------------------------------------------------------------------------


def file_of(path: Path, number: int) -> Path:
    """Return the file of a segment."""
    return path if number == 1 else path.with_name(f"{path.stem}.{number:06d}{path.suffix}")


def numbers_of(path: Path) -> list[int]:
    """Return the numbers of a log's segments that have a file, in order."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.([0-9]{{6,}}){re.escape(path.suffix)}")
    found = (pattern.fullmatch(entry.name) for entry in path.parent.iterdir())
    first = [1] if path.is_symlink() or path.exists() else []
    return first + sorted(int(match[1]) for match in found if match)


@frozen(kw_only=True)
class FoundSegment:
    """A segment as the last writer left it."""

    position: ChainPosition | None
    """The end of the last line up to which the chain holds; None without a first line."""
    kinds: tuple[str, ...]
    """Kinds of the last two lines before that end."""
    excess: int
    """Bytes after that end."""
    digest: str
    torn: bool
    """True if the bytes after that end are one unfinished line."""

    @property
    def signed(self) -> bool:
        """True if the last line is a checkpoint."""
        return self.kinds[-1] == "log.checkpoint"

    @property
    def last_kind(self) -> str:
        """Kind of the segment's last line, or of the line before, if the last one is a checkpoint."""
        return self.kinds[0] if self.signed else self.kinds[-1]


def examine(descriptor: int) -> FoundSegment:
    """Read a segment up to its end or its first wrong line, and return its state."""
    found, length = None, 0
    bodies: list[bytes] = []
    with os.fdopen(os.dup(descriptor), "rb") as file:
        pages = SegmentFile(file)
        lines = pages.lines()
        with suppress(MalformedLine):
            first = next(lines, b"")
            entry = read(unseal(first)[0])
            opening = Opening.of(entry.facts)
            seq = entry.seq
            for body, head in iter_chained(chain([first], lines), opening.head()):
                if not body.startswith(b'{"seq":%d,' % seq):
                    break
                length += len(body) + SEAL
                found = ChainPosition(opening, seq, head, length)
                seq, bodies = seq + 1, [*bodies[-1:], body]
        excess = pages.size - length
        return FoundSegment(
            position=found,
            kinds=tuple(_kind(body) for body in bodies),
            excess=excess,
            digest=pages.digest(length) if excess else "",
            torn=excess > 0 and not any(piece.endswith(b"\n") for piece in pages.lines(start=length)),
        )


def _kind(body: bytes) -> str:
    try:
        return read(body).kind
    except MalformedLine:
        return ""


@frozen
class OpenSegment:
    """A segment to append to."""

    position: ChainPosition
    descriptor: int
    pieces: tuple[bytes, ...] = ()
    """Records that must be appended first."""


@define
class Segments:
    """The opener of one log's segments. It locks the first segment and the last one, so that the log has one writer."""

    files: Files
    path: Path
    clock: Clock
    signer: Signer
    tenant: str = ""
    session: str = ""
    sdk: str = ""
    _held: int | None = None
    """The first segment's descriptor. It stays open as long as the log, because it holds the lock."""

    def start(self) -> OpenSegment:
        """Return the segment that continues where the last writer ended.

        Raises `LogInUse`, `UnsafeLog`, and `OSError` if the files cannot be read or created; leaves no file open then.
        """
        try:
            self.hold()
            numbers = numbers_of(self.path)
            if not numbers:
                return self._begin(self._first())
            self.files.sync_folder(self.path.parent)  # the last writer may have died before its file was durable
            return self._open_last(numbers[-1])
        except BaseException:
            self.release()
            raise

    def hold(self) -> None:
        """Lock the first segment, if it has a file, unless this log holds the lock. Raises `LogInUse`, `OSError`."""
        with suppress(FileNotFoundError):
            if self._held is not None and os.path.samestat(os.fstat(self._held), self.path.lstat()):
                return
            descriptor = self.files.open(self.path)
            try:
                self.files.lock(descriptor, self.path)
                opened = os.fstat(descriptor)
                self.files.check(self.path, opened, opened.st_size)
            except BaseException:
                self.files.close(descriptor)
                raise
            self.release()
            self._held = descriptor

    def release(self) -> None:
        """Give up the lock of the first segment. A second call does nothing."""
        held, self._held = self._held, None
        if held is not None:
            self.close(held)

    def close(self, descriptor: int) -> None:
        """Close a segment. The first one stays open until `release`."""
        if descriptor != self._held:
            with suppress(OSError):
                self.files.close(descriptor)

    def file(self, opening: Opening) -> Path:
        """Return the file of a segment of this log."""
        return file_of(self.path, opening.segment)

    def create(self, position: ChainPosition, left: dict[str, Any] | None = None) -> int:
        """Create the file of a segment with its first line, durably, and lock it."""
        opening = position.opening
        descriptor = self.files.create(self.file(opening), self._first_line(position, left))
        if opening.segment == 1:
            self._held = descriptor
        return descriptor

    def next_position(self, before: ChainPosition) -> ChainPosition:
        """Return the segment after this one, without a line; it continues from the end of this one."""
        number = before.opening.segment + 1
        return ChainPosition.begin(self._opening(before.opening.log, number, before.head.hex()), before.seq)

    def now(self) -> str:
        """Return the current time in the spelling of a line."""
        clock = self.clock
        return stamp(clock) if type(clock) is SystemClock else clock.now().isoformat(timespec="microseconds")

    def _begin(self, position: ChainPosition, left: dict[str, Any] | None = None) -> OpenSegment:
        return OpenSegment(position, self.create(position, left))

    def _first(self) -> ChainPosition:
        """Return the first segment of a new log, without a line."""
        return ChainPosition.begin(self._opening(secrets.token_hex(16), 1, ""), 0)

    def _first_line(self, position: ChainPosition, left: dict[str, Any] | None = None) -> bytes:
        facts = position.opening.facts()
        return position.add(encode_log_record("segment.opened", {**facts, "left": left} if left else facts), self.now())

    def _opening(self, log: str, number: int, previous: str) -> Opening:
        opening = Opening(
            log=log, segment=number, previous=previous, tenant=self.tenant, session=self.session, sdk=self.sdk
        )
        return opening.with_key(self.signer.public)

    def _open_last(self, number: int) -> OpenSegment:
        path = file_of(self.path, number)
        descriptor = self._held if number == 1 else self.files.open(path)
        if descriptor is None:
            raise LogInUse(f"another writer has just created {path}")
        try:
            if number > 1:
                self.files.lock(descriptor, path)
            self.files.sync(descriptor)
            return self._resume(number, path, descriptor)
        except BaseException:
            self.close(descriptor)
            raise

    def _resume(self, number: int, path: Path, descriptor: int) -> OpenSegment:
        found = examine(descriptor)
        position = found.position
        if position is None:
            return self._begin_anew(number, path, descriptor, found)
        position.since = int(not found.signed)
        why = "damage" if found.excess and not found.torn else "" if self._is_ours(position.opening) else "key"
        whole = found.signed and not found.torn
        if why or (found.last_kind == "segment.closed" and whole):
            behind = {"dropped": found.excess, "digest": found.digest} if found.excess else {}
            left = {"why": why, "bytes": position.length, **behind} if why else None
            start = self._begin(self.next_position(position), left)
            self.close(descriptor)
            return start
        closed = found.last_kind == "log.closed" and whole
        resumed = encode_log_record("log.resumed", {"closed": closed, "size": position.seq})
        return OpenSegment(position, descriptor, (*self._recover(descriptor, found), resumed))

    def _begin_anew(self, number: int, path: Path, descriptor: int, segment: FoundSegment) -> OpenSegment:
        """Begin a segment that has no complete first line."""
        if segment.excess and not segment.torn:
            raise UnsafeLog(f"{path} is no log of this format, and is left as it is; name another file")
        position = self._first() if number == 1 else self._position_after(number - 1)
        recovered = self._recover(descriptor, segment)
        self.files.write(descriptor, self._first_line(position))
        self.files.sync(descriptor)
        return OpenSegment(position, descriptor, recovered)

    def _position_after(self, number: int) -> ChainPosition:
        """Return the segment after this one, without a line; it continues as far as the chain of this one holds."""
        path = file_of(self.path, number)
        descriptor = self.files.open(path)
        try:
            found = examine(descriptor)
        finally:
            self.files.close(descriptor)
        if found.position is None:
            raise UnsafeLog(f"{path} is no log of this format")
        return self.next_position(found.position)

    def _recover(self, descriptor: int, segment: FoundSegment) -> tuple[bytes, ...]:
        """Cut off a torn line, and return the record that says so."""
        if not segment.torn:
            return ()
        self.files.cut(descriptor, segment.position.length if segment.position else 0)
        return (encode_log_record("log.recovered", {"bytes": segment.excess, "digest": segment.digest}),)

    def _is_ours(self, opening: Opening) -> bool:
        try:
            return VerifierKey.parse(opening.key).public == self.signer.public
        except BadNote:
            return False


def hash_at(path: Path, number: int, seq: int) -> str:
    """Return the hash that a line of a segment states, or an empty text if the line is missing."""
    begin = b'{"seq":%d,' % seq
    try:
        with open_segment(file_of(path, number)) as pages:
            return next((line[-67:-3].decode("ascii") for line in pages.lines() if line.startswith(begin)), "")
    except FileNotFoundError:
        return ""
