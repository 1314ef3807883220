"""A file of a log as lines, in bounded memory: however long a line or a file is, little of it is held at a time.

Only what the file held when it was opened is read, so a file that grows meanwhile cannot keep a reader busy for ever.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from amplifier_hooks.record.format.line import LONGEST_LINE, Entry, read
from amplifier_hooks.record.record_errors import MalformedLine, UnsafeLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO


_BUFFER: Final = 1 << 18
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Pages:
    """One file of a log, open for reading."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size: int = os.fstat(file.fileno()).st_size
        """Bytes it had when it was opened."""

    def lines(self, limit: int | None = None, start: int = 0) -> Iterator[bytes]:
        """Each line with its newline, of the first `limit` bytes if one is given, and from `start` on.

        What has no newline comes without: the end of a torn file, and the first 64 KiB of what is too long for a line.
        Whoever meets that stops; what comes after it is not the beginning of a line. The last line may end behind
        `size`, when it was written meanwhile.
        """
        end = self.size if limit is None else min(limit, self.size)
        self._file.seek(start)
        position, most = start, LONGEST_LINE
        while position < end:
            if limit is not None:
                most = min(LONGEST_LINE, end - position)
            line = self._file.readline(most)
            if not line:  # it became shorter
                return
            position += len(line)
            yield line

    def digest(self, start: int) -> str:
        """SHA-256 of everything from a place on, up to `size`."""
        hashed, left = hashlib.sha256(), self.size - start
        self._file.seek(start)
        while left > 0 and (piece := self._file.read(min(_BUFFER, left))):
            hashed.update(piece)
            left -= len(piece)
        return hashed.hexdigest()

    @property
    def grew(self) -> int:
        """Bytes that were added since it was opened; negative when there are fewer."""
        return os.fstat(self._file.fileno()).st_size - self.size


@contextmanager
def opened(path: Path) -> Iterator[Pages]:
    """The file at a path, open for reading.

    Raises `UnsafeLog` for what is no plain file: a pipe would wait for a writer. Otherwise the `OSError` of opening it.
    """
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeLog(f"{path} is no plain file")
    with os.fdopen(descriptor, "rb", buffering=_BUFFER) as file:
        yield Pages(file)


# -- what a line says --------------------------------------------------------------------------------------------------

_USUAL: Final = re.compile(
    rb'\{"seq":([1-9][0-9]{0,17}),(?:"time":"([0-9T:.+-]{1,40})",)?"kind":"([a-z._]{1,64})","facts":(?=\{)'
)
_ALLOWED: Final = bytes(range(0x20, 0x80))
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.Encoder().encode


def entry(body: bytes) -> Entry:
    """What a body says: as `line.read` has it, several times faster where nothing in the line is unusual.

    Raises `MalformedLine` for what that one refuses, and for bytes that no line may have.
    """
    return Entry(*parts(body))


def parts(body: bytes) -> tuple[int, str, dict[str, Any], str | None]:
    """The same without an object around it: number, kind, facts and time."""
    usual = _USUAL.match(body)
    facts = None if usual is None else _plain(body[usual.end() :])
    if usual is not None and facts is not None:
        seq, time, kind = usual.groups()
        return int(seq), kind.decode("ascii"), facts, None if time is None else time.decode("ascii")
    if body.translate(None, _ALLOWED):
        raise MalformedLine("has bytes that are not allowed in a line")
    record = read(body)
    return record.seq, record.kind, record.facts, record.time


def _plain(written: bytes) -> dict[str, Any] | None:
    """An object that is written as this encoder would write it: no name stands twice in it, and nothing is left out."""
    try:
        facts = _decode(written)
        return facts if _encode(facts) == written else None
    except (msgspec.DecodeError, OverflowError, RecursionError):
        return None
