"""The files of one log come in; a segment to append to goes out, resumed or new.

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
| was closed for the next one         | the next segment is created                                             |
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from amplifier_hooks.record.format.checkpoint import Signer, VerifierKey
from amplifier_hooks.record.format.line import (
    LONGEST_LINE,
    ChainPosition,
    LineEnd,
    Opening,
    chain_hash,
    encode_log_record,
    read,
    unseal,
)
from amplifier_hooks.record.record_errors import BadNote, MalformedLine, UnsafeLog
from amplifier_hooks.record.write.log_files import Files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amplifier_hooks.ports import Clock


CHUNK: Final = 1 << 20


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

    opening: Opening | None
    end: LineEnd
    """End of the last line up to which the chain holds."""
    kinds: tuple[str, ...]
    """Kinds of the last two lines before `end`."""
    excess: int = 0
    """Bytes after `end`."""
    digest: str = ""
    torn: bool = False
    """True if the bytes after `end` are one unfinished line."""

    @property
    def last_kind(self) -> str:
        """Kind of the segment's last line, or of the line before, if the last one is a checkpoint."""
        return self.kinds[0] if self.kinds[-1] == "log.checkpoint" else self.kinds[-1]

    @property
    def facts_for_next(self) -> dict[str, Any]:
        """Facts about this segment for the first line of the next one."""
        about = {"dropped": self.excess, "digest": self.digest} if self.excess else {}
        return {"bytes": self.end.length, **about}


def examine(files: Files, descriptor: int) -> FoundSegment:
    """Read a segment up to its end or its first wrong line, and return its state."""
    opening: Opening | None = None
    seq, head, length = 0, b"", 0
    bodies: list[bytes] = []
    for line in _lines(files, descriptor):
        try:
            body, claimed = unseal(line)
            if opening is None:
                entry = read(body)
                opening = Opening.of(entry.facts)
                seq, head = entry.seq - 1, opening.head()
            if chain_hash(head, body) != claimed or not body.startswith(b'{"seq":%d,' % (seq + 1)):
                break
        except MalformedLine:
            break
        seq, head, length = seq + 1, claimed, length + len(line)
        bodies = [*bodies[-1:], body]
    dropped, digest, torn = _trailing_bytes(files, descriptor, length)
    return FoundSegment(
        opening=opening if length else None,
        end=LineEnd(seq, head, length),
        kinds=tuple(_kind(body) for body in bodies),
        excess=dropped,
        digest=digest,
        torn=torn,
    )


def _lines(files: Files, descriptor: int) -> Iterator[bytes]:
    """Yield complete lines, and stop at a line that is too long."""
    offset, rest = 0, b""
    while chunk := files.read(descriptor, CHUNK, offset):
        offset += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > LONGEST_LINE:
            return


def _trailing_bytes(files: Files, descriptor: int, offset: int) -> tuple[int, str, bool]:
    hashed, length, torn = hashlib.sha256(), 0, True
    while chunk := files.read(descriptor, CHUNK, offset + length):
        length += len(chunk)
        hashed.update(chunk)
        torn = torn and b"\n" not in chunk
    return length, hashed.hexdigest() if length else "", torn and length > 0


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
    finish: bool = False
    """True if the segment lacks only its last checkpoint, and the log continues in the next one."""


@define
class Segments:
    """The opener of one log's segments."""

    files: Files
    path: Path
    clock: Clock
    signer: Signer | None = None
    tenant: str = ""
    session: str = ""
    sdk: str = ""
    _second: tuple[int, ...] = ()
    _until_second: str = ""

    def start(self) -> OpenSegment:
        """Return the segment that continues where the last writer ended. The caller holds the lock.

        Raises `UnsafeLog`, and `OSError` if the files cannot be read or created; leaves no file open then.
        """
        numbers = numbers_of(self.path)
        if not numbers:
            return self.begin(ChainPosition.begin(self._opening(secrets.token_hex(16), 1, ""), 0))
        path = file_of(self.path, numbers[-1])
        descriptor = self.files.open(path)
        try:
            return self._resume(numbers[-1], path, descriptor)
        except BaseException:
            self.files.close(descriptor)
            raise

    def begin(self, strand: ChainPosition, left: dict[str, Any] | None = None) -> OpenSegment:
        """Create a segment's file, with its first line."""
        line = self.first_line(strand, left)
        return OpenSegment(strand, self.create(strand.opening, line))

    def create(self, opening: Opening, line: bytes) -> int:
        """Create the file of a segment with this first line, durably."""
        return self.files.create(file_of(self.path, opening.segment), line)

    def exists(self, opening: Opening) -> bool:
        """Return True if this segment has a file."""
        return file_of(self.path, opening.segment).exists()

    def first_line(self, strand: ChainPosition, left: dict[str, Any] | None = None, time: str = "") -> bytes:
        """Return the line that opens a segment."""
        facts = strand.opening.facts()
        return strand.add(
            encode_log_record("segment.opened", {**facts, "left": left} if left else facts), time or self.now()
        )

    def next_position(self, opening: Opening, end: LineEnd) -> ChainPosition:
        """Return the segment after this one, without a line; it continues from `end`."""
        return ChainPosition.begin(self._opening(opening.log, opening.segment + 1, end.head.hex()), end.seq)

    def now(self) -> str:
        """Return the current time in the spelling of a line."""
        now = self.clock.now()
        second = now.second, now.minute, now.hour, now.day, now.month, now.year
        if second != self._second:
            self._second, self._until_second = second, now.isoformat(timespec="seconds")[: -len("+00:00")]
        return f"{self._until_second}.{now.microsecond:06d}+00:00"

    def _opening(self, log: str, number: int, previous: str) -> Opening:
        opening = Opening(
            log=log, segment=number, previous=previous, tenant=self.tenant, session=self.session, sdk=self.sdk
        )
        return opening if self.signer is None else opening.with_key(self.signer.public)

    def _resume(self, number: int, path: Path, descriptor: int) -> OpenSegment:
        found = examine(self.files, descriptor)
        if found.opening is None:
            return self._begin_anew(number, path, descriptor, found)
        strand = ChainPosition(found.opening, found.end.seq, found.end.head, found.end.length)
        strand.since = int(found.kinds[-1] != "log.checkpoint")
        why = "damage" if found.excess and not found.torn else "" if self._is_ours(found.opening) else "key"
        if why:
            start = self.begin(self.next_position(strand.opening, strand.end), {"why": why, **found.facts_for_next})
            self.files.close(descriptor)
            return start
        recovered = self._recover(descriptor, found)
        if found.last_kind == "segment.closed":
            return self._finish_closed(strand, descriptor, found, recovered)
        complete = self.signer is None or found.kinds[-1] == "log.checkpoint"
        closed = found.last_kind == "log.closed" and complete and not recovered
        resumed = encode_log_record("log.resumed", {"closed": closed, "size": found.end.seq})
        return OpenSegment(strand, descriptor, (*recovered, resumed))

    def _finish_closed(
        self, strand: ChainPosition, descriptor: int, segment: FoundSegment, recovered: tuple[bytes, ...]
    ) -> OpenSegment:
        """Continue after a segment that was closed for the next one, which was never created."""
        if recovered:
            again = encode_log_record("segment.closed", {"next": strand.opening.segment + 1})
            return OpenSegment(strand, descriptor, (*recovered, again), finish=True)
        if segment.kinds[-1] == "segment.closed" and self.signer is not None:
            return OpenSegment(strand, descriptor, finish=True)
        start = self.begin(self.next_position(strand.opening, strand.end))
        self.files.close(descriptor)
        return start

    def _begin_anew(self, number: int, path: Path, descriptor: int, segment: FoundSegment) -> OpenSegment:
        """Begin a segment that has no complete first line."""
        if segment.excess and not segment.torn:
            raise UnsafeLog(f"{path} is no log of this format, and is left as it is; name another file")
        if number == 1:
            strand = ChainPosition.begin(self._opening(secrets.token_hex(16), 1, ""), 0)
        else:
            before = self._previous_position(number)
            strand = self.next_position(before.opening, before.end)
        recovered = self._recover(descriptor, segment)
        self.files.write(descriptor, self.first_line(strand))
        self.files.sync(descriptor)
        return OpenSegment(strand, descriptor, recovered)

    def _previous_position(self, number: int) -> ChainPosition:
        """Return the segment before this one, as far as its chain holds."""
        descriptor = self.files.open(file_of(self.path, number - 1))
        try:
            found = examine(self.files, descriptor)
        finally:
            self.files.close(descriptor)
        if found.opening is None:
            raise UnsafeLog(f"{file_of(self.path, number - 1)} is no log of this format")
        return ChainPosition(found.opening, found.end.seq, found.end.head, found.end.length)

    def _recover(self, descriptor: int, segment: FoundSegment) -> tuple[bytes, ...]:
        """Cut off a torn line, and return the record that says so."""
        if not segment.torn:
            return ()
        self.files.cut(descriptor, segment.end.length)
        return (encode_log_record("log.recovered", {"bytes": segment.excess, "digest": segment.digest}),)

    def _is_ours(self, opening: Opening) -> bool:
        if self.signer is None or not opening.key:
            return self.signer is None and not opening.key
        try:
            return VerifierKey.parse(opening.key).public == self.signer.public
        except BadNote:
            return False


def hash_at(path: Path, number: int, seq: int) -> str:
    """Return the hash that a line of a segment states, or an empty text if the line is missing."""
    files = Files()
    try:
        descriptor = files.open(file_of(path, number), write=False)
    except FileNotFoundError:
        return ""
    begin = b'{"seq":%d,' % seq
    try:
        return next((line[-67:-3].decode("ascii") for line in _lines(files, descriptor) if line.startswith(begin)), "")
    finally:
        files.close(descriptor)
