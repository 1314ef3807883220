"""A file of a log comes in; its lines go out, each checked by itself and against the lines before it.

`SegmentFile` reads in bounded memory, however long a line or the file is. It reads only the bytes that the file had
when it was opened, so a growing file cannot keep a reader busy for ever. `Walk` follows one segment line by line. A
table has one function for each kind of line that the log writes about itself; a line of another kind only needs the
right position.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
from attrs import Factory, define

from amplifier_hooks.record.line import (
    LONGEST_LINE,
    SEAL,
    Checkpoint,
    LogEntry,
    Opening,
    VerifierKey,
    chain_hash,
    open_note,
    read,
    seal,
    unseal,
)
from amplifier_hooks.record.record_errors import BadNote, MalformedLine, TornLine, UnsafeLog
from amplifier_hooks.record.report import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO


_BUFFER: Final = 1 << 18
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class SegmentFile:
    """One file of a log, open for reading."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size: int = os.fstat(file.fileno()).st_size
        """Bytes of the file when it was opened."""

    def lines(self, limit: int | None = None, start: int = 0) -> Iterator[bytes]:
        """Yield each line with its newline, from `start` to `limit`, if given, or to `size`.

        Two things come without a newline: the end of a torn file, and the first 64 KiB of an overlong line. The caller
        must stop there, because the next bytes are not the beginning of a line. The last line may end after `size` if
        it was written meanwhile.
        """
        end = self.size if limit is None else min(limit, self.size)
        self._file.seek(start)
        position, most = start, LONGEST_LINE
        while position < end:
            if limit is not None:
                most = min(LONGEST_LINE, end - position)
            line = self._file.readline(most)
            if not line:  # the file became shorter
                return
            position += len(line)
            yield line

    def digest(self, start: int) -> str:
        """Return the SHA-256 of the bytes from `start` to `size`."""
        hashed, left = hashlib.sha256(), self.size - start
        self._file.seek(start)
        while left > 0 and (piece := self._file.read(min(_BUFFER, left))):
            hashed.update(piece)
            left -= len(piece)
        return hashed.hexdigest()

    @property
    def growth(self) -> int:
        """Bytes added since the file was opened; negative if it became shorter."""
        return os.fstat(self._file.fileno()).st_size - self.size


@contextmanager
def open_segment(path: Path) -> Iterator[SegmentFile]:
    """Open the file at a path for reading.

    Raises `UnsafeLog` unless it is a plain file, because a pipe would wait for a writer, and otherwise the `OSError` of
    opening it.
    """
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeLog(f"{path} is no plain file")
    with os.fdopen(descriptor, "rb", buffering=_BUFFER) as file:
        yield SegmentFile(file)


# -- the content of a line ---------------------------------------------------------------------------------------------


class SealedEntry(LogEntry, frozen=True, kw_only=True, gc=False):
    """The content of one line, with the hash that the line claims."""

    h: str


BATCH: Final = 32
"""Lines that are parsed at once."""

_ALLOWED: Final = bytes(range(0x20, 0x80))
_decoder: Final = msgspec.json.Decoder(SealedEntry)
_encoder: Final = msgspec.json.Encoder()


def parse_usual(lines: Sequence[bytes]) -> Sequence[SealedEntry | None]:
    """Return the content of each line whose bytes are the encoder's own, and None for the others.

    Such a line is valid JSON, and no name occurs twice in it: all of that is tested at once, for many lines.
    """
    data = b"".join(lines)
    try:
        entries = _decoder.decode_lines(data) if data.isascii() else []
        if len(entries) != len(lines):
            return [None] * len(lines)
        if _encoder.encode_lines(entries) == data:
            return entries
        spelled = map(_encoder.encode, entries)
        return [
            entry if line == b"%b\n" % own else None for entry, line, own in zip(entries, lines, spelled, strict=True)
        ]
    except (msgspec.DecodeError, OverflowError, RecursionError):
        return [None] * len(lines)


def parse_body(body: bytes) -> LogEntry:
    """Return what `line.read` returns.

    Raises `MalformedLine` for every body that `line.read` refuses, and for bytes that no line may have.
    """
    if body.translate(None, _ALLOWED):
        raise MalformedLine("has bytes that are not allowed in a line")
    return read(body)


CLOSED: Final = "log.closed"
GOES_ON: Final = "segment.closed"

_OPENED: Final = "segment.opened"
_CHECKPOINT: Final = "log.checkpoint"
_RECOVERED: Final = "log.recovered"
_RESUMED: Final = "log.resumed"
_UNSIGNED: Final = "log.unsigned"

_KEEP_IT_CLOSED: Final = (_CHECKPOINT, _RECOVERED, _UNSIGNED)
"""Kinds of lines allowed between the line that closes a segment and the checkpoint that ends it."""

_MAY_FOLLOW: Final = {CLOSED: (_RESUMED, _RECOVERED), GOES_ON: (_RECOVERED,)}
"""Kinds of lines allowed after the end: a torn line may follow it, and `log.recovered` says that it was cut off."""

_LINES_OF_A_NOTE: Final = 5


def iter_chained(lines: Iterable[bytes], head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the body and the hash of each line, as long as each line follows the one before.

    Raises `MalformedLine` at the first line that does not, and `TornLine` at a line that a crash can have left.
    """
    for line in lines:
        body = line[:-SEAL]
        head = chain_hash(head, body)
        if line != seal(body, head):
            if is_torn(line):
                raise TornLine("does not end in a hash and a newline")
            unseal(line)
            raise MalformedLine("is not the one that was written here: its hash is another")
        yield body, head


def iter_entries(lines: Iterable[bytes], head: bytes) -> Iterator[tuple[bytes, bytes, LogEntry]]:
    """Yield the content of each line after its body and hash, as `iter_chained` does, and raise what that raises.

    Raises `MalformedLine` also for a line without a valid content.
    """
    lines = iter(lines)
    while batch := list(islice(lines, BATCH)):
        for line, usual in zip(batch, parse_usual(batch), strict=True):
            before, body = head, line[:-SEAL]
            head = chain_hash(before, body)
            if usual is not None and usual.h == head.hex():
                yield body, head, usual
            else:
                for _ in iter_chained([line], before):
                    yield body, head, parse_body(body)


@define
class Tally:
    """A finding that may occur many times: its first line, its count, and the sum of its amounts."""

    line: int
    why: str = ""
    count: int = 0
    amount: int = 0

    @property
    def times(self) -> str:
        """The count, in words."""
        return "once" if self.count == 1 else f"{self.count:,} times, here first"


@define
class Walk:
    """One segment, and the state of its reading."""

    number: int
    file: Path
    opening: Opening
    key: VerifierKey | None
    statement: Mapping[str, Any]
    """Statement of this segment about the segment before, which has no end; empty if that segment has one."""
    lines: int = 0
    size: int = 0
    first: int = 0
    seq: int = 0
    head: bytes = b""
    """Hash of the last line that was read; `seq` is its number."""
    due: int | None = None
    """Number that the next line must have; None as long as any number is right."""
    closing: str = ""
    """Kind of the line that closes the segment, as long as only lines that may follow it do."""
    end: str = ""
    """Kind of the line that closes the segment, once the segment is complete."""
    signed: int = 0
    began: str = ""
    clock: str = ""
    broken: bool = False
    tallies: dict[Observation, Tally] = Factory(dict)

    @classmethod
    def of(cls, number: int, file: Path, line: bytes) -> Walk:
        """Return a walk of segment `number` from its first line.

        Raises `MalformedLine` or `BadNote` if that line does not open this segment.
        """
        record = read(unseal(line)[0])
        if record.kind != _OPENED:
            raise MalformedLine(f"is of the kind {record.kind!r:.80}, and a segment begins with {_OPENED!r}")
        opening = Opening.of(record.facts)
        for _ in iter_chained([line], opening.head()):
            pass
        if opening.segment != number:
            raise MalformedLine(f"opens segment {opening.segment}, in the place of segment {number}")
        key = VerifierKey.parse(opening.key) if opening.key else None
        if key is not None and key.name != opening.origin:
            raise MalformedLine(f"names the key {key.name!r:.120}, and this is {opening.origin!r:.120}")
        left = record.facts.get("left", {})
        if not isinstance(left, dict) or (left and type(left.get("bytes")) is not int):
            raise MalformedLine("does not say how much of the segment before counts")
        return cls(number, file, opening, key, left, due=1 if number == 1 else None)

    def follow(self, before: Walk | None) -> None:
        """Continue from the end of the segment before.

        Raises `MalformedLine` if this segment follows another one.
        """
        opening = self.opening
        if self.number == 1 and opening.previous:
            raise MalformedLine("is to follow another segment, and stands in the first one")
        if before is None:
            return
        self.clock = before.clock
        if opening.log != before.opening.log:
            raise MalformedLine(f"belongs to the log {opening.log!r:.80}, and the segment before to another one")
        if before.broken:
            return
        if opening.previous != before.head.hex():
            raise MalformedLine(f"does not follow line {before.seq}, the last one of the segment before that counts")
        self.due = before.seq + 1

    def take(self, body: bytes, head: bytes, entry: LogEntry) -> int:
        """Take the next line, whose hash is right, and return its number.

        Raises `MalformedLine` or `BadNote` if the line does not belong there.
        """
        seq, kind, time = entry.seq, entry.kind, entry.time
        if seq != self.due and self.due is not None:
            raise MalformedLine(f"has the number {seq}, and {self.due} is due")
        if self.end and kind not in _MAY_FOLLOW[self.end]:
            raise MalformedLine(f"is of the kind {kind!r:.80}, and stands behind the end")
        if (kind == _OPENED) is not (self.lines == 0):
            raise MalformedLine("opens a segment in the middle of one")
        if kind in _MEANINGS or self.closing:
            self.end = ""
            if kind not in _KEEP_IT_CLOSED:
                self.closing = ""
            if kind in _MEANINGS:
                _MEANINGS[kind](self, entry, body)
        if time is not None:
            if time < self.clock:
                self.count(Observation.CLOCK)
            self.clock = time
            self.began = self.began or time
        self.first = self.first or seq
        self.seq, self.due, self.head = seq, seq + 1, head
        self.lines += 1
        self.size += len(body) + SEAL
        return seq

    @property
    def owner(self) -> str:
        """The tenant and the session of the segment, in words."""
        return f"the tenant {self.opening.tenant!r:.80} and the session {self.opening.session!r:.80}"

    def is_end(self, seq: int) -> bool:
        """Return True if the line of this number ends a closed log; a checkpoint adds nothing to the line before."""
        return self.end == CLOSED and not self.broken and (seq == self.seq or seq == self.signed == self.seq - 1)

    def count(self, observation: Observation, *, amount: int = 0, why: str = "") -> None:
        """Count a finding that may occur many times."""
        tally = self.tallies.setdefault(observation, Tally(self.lines + 1, why))
        tally.count += 1
        tally.amount += amount


# -- lines of the log about itself -------------------------------------------------------------------------------------


def _read_checkpoint(walk: Walk, record: LogEntry, body: bytes) -> None:
    if walk.key is None:
        raise BadNote("the segment names no key")
    note = record.facts.get("note")
    if not isinstance(note, str) or note.count("\n") != _LINES_OF_A_NOTE or body != _statement(record.seq, note):
        raise BadNote("it is not written in the one way there is")
    stated = open_note(note, walk.key)
    if stated != Checkpoint(walk.opening.origin, walk.seq, walk.head):
        raise BadNote(f"it is about line {stated.size} of {stated.origin!r:.120}, or about another hash")
    walk.signed = walk.seq
    walk.end = walk.closing


def _read_closed(walk: Walk, record: LogEntry, _body: bytes) -> None:
    walk.closing = record.kind
    if walk.key is None:
        walk.end = record.kind


def _read_goes_on(walk: Walk, record: LogEntry, body: bytes) -> None:
    if record.facts.get("next") != walk.number + 1:
        raise MalformedLine(f"names another segment than {walk.number + 1} as the next one")
    _read_closed(walk, record, body)


def _read_recovered(walk: Walk, record: LogEntry, _body: bytes) -> None:
    size = record.facts.get("bytes")
    if type(size) is not int:
        raise MalformedLine("does not say how many bytes were cut off")
    walk.count(Observation.RECOVERED, amount=size)


def _read_resumed(walk: Walk, record: LogEntry, _body: bytes) -> None:
    walk.count(Observation.RESUMED if record.facts.get("closed") is True else Observation.REOPENED)


def _read_lost(walk: Walk, record: LogEntry, _body: bytes) -> None:
    records = record.facts.get("records")
    walk.count(Observation.LOST, amount=records if type(records) is int else 0)


def _read_marked(walk: Walk, _record: LogEntry, _body: bytes) -> None:
    walk.count(Observation.MARKED)


def _read_unsigned(walk: Walk, record: LogEntry, _body: bytes) -> None:
    walk.count(Observation.SIGNER, why=str(record.facts.get("error"))[:200])


def is_torn(line: bytes) -> bool:
    """Return True if a crash can have left the line: it has no end, and is short or only NULs of an unwritten page."""
    return not line.endswith(b"\n") and (len(line) < LONGEST_LINE or not line.strip(b"\0"))


def _statement(seq: int, note: str) -> bytes:
    """Return the body of a checkpoint. It has one spelling, so no byte of it can be changed unnoticed."""
    record = {"seq": seq, "kind": _CHECKPOINT, "facts": {"note": note}}
    return json.dumps(record, separators=(",", ":")).removesuffix("}").encode("ascii")


_MEANINGS: Final[dict[str, Callable[[Walk, LogEntry, bytes], None]]] = {
    _CHECKPOINT: _read_checkpoint,
    CLOSED: _read_closed,
    GOES_ON: _read_goes_on,
    _RECOVERED: _read_recovered,
    _RESUMED: _read_resumed,
    _UNSIGNED: _read_unsigned,
    "log.lost": _read_lost,
    "store.marked": _read_marked,
}
