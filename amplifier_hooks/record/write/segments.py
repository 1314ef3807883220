"""The files of one log: which there are, how the last one ends, and how the next one begins.

    record.jsonl  record.000002.jsonl  record.000003.jsonl  …

However the last writer ended, there is one way to go on, and the next line says which it was:

| the last segment                    | what happens                                                            |
|-------------------------------------|-------------------------------------------------------------------------|
| is not there                        | a new log                                                               |
| is empty, or its first line is torn | it begins anew                                                          |
| ends in a whole line                | the log is resumed                                                      |
| ends in a torn line                 | that is cut off: `log.recovered`; then the log is resumed               |
| has a complete line that is wrong   | it is left alone; the next segment names the damage                     |
| was signed by another key           | it is left alone; the next segment has this one's                       |
| was closed for the next one         | the next one is made                                                    |
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
    """The file of a segment."""
    return path if number == 1 else path.with_name(f"{path.stem}.{number:06d}{path.suffix}")


def numbers_of(path: Path) -> list[int]:
    """The segments of a log that are there."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.([0-9]{{6,}}){re.escape(path.suffix)}")
    found = (pattern.fullmatch(entry.name) for entry in path.parent.iterdir())
    first = [1] if path.is_symlink() or path.exists() else []
    return first + sorted(int(match[1]) for match in found if match)


@frozen(kw_only=True)
class FoundSegment:
    """A segment as it was found."""

    opening: Opening | None
    end: LineEnd
    """The end of the last line up to which everything holds."""
    kinds: tuple[str, ...]
    """Of the last two of these lines."""
    dropped: int = 0
    """Bytes behind that place."""
    digest: str = ""
    torn: bool = False
    """Whether these bytes are one line that was never finished."""

    @property
    def last_kind(self) -> str:
        """The kind of its last line; of the one before, if that is a checkpoint."""
        return self.kinds[0] if self.kinds[-1] == "log.checkpoint" else self.kinds[-1]

    @property
    def facts_for_next(self) -> dict[str, Any]:
        """What the next segment says of this one."""
        about = {"dropped": self.dropped, "digest": self.digest} if self.dropped else {}
        return {"bytes": self.end.length, **about}


def examine(files: Files, descriptor: int) -> FoundSegment:
    """Read a segment up to its end, or to the first line that is wrong."""
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
        dropped=dropped,
        digest=digest,
        torn=torn,
    )


def _lines(files: Files, descriptor: int) -> Iterator[bytes]:
    """Complete lines; ends before one that is too long."""
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
    """A segment that can be appended to."""

    position: ChainPosition
    descriptor: int
    pieces: tuple[bytes, ...] = ()
    """What has to be said first."""
    finish: bool = False
    """Whether it only lacks its last checkpoint, and the log goes on in the next."""


@define
class Segments:
    """Opens the segments of one log."""

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
        """Go on where the last writer ended. The caller has the lock.

        Raises `UnsafeLog`, and `OSError` when the files cannot be read or made; nothing is left open then.
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
        """Make a segment's file, with its first line."""
        line = self.first_line(strand, left)
        return OpenSegment(strand, self.create(strand.opening, line))

    def create(self, opening: Opening, line: bytes) -> int:
        """Make the file of a segment with that first line, durably."""
        return self.files.create(file_of(self.path, opening.segment), line)

    def exists(self, opening: Opening) -> bool:
        """Whether that segment has a file."""
        return file_of(self.path, opening.segment).exists()

    def first_line(self, strand: ChainPosition, left: dict[str, Any] | None = None, time: str = "") -> bytes:
        """The line that opens a segment."""
        facts = strand.opening.facts()
        return strand.add(
            encode_log_record("segment.opened", {**facts, "left": left} if left else facts), time or self.now()
        )

    def next_position(self, opening: Opening, place: LineEnd) -> ChainPosition:
        """The segment after that one, without a line; it goes on from that place."""
        return ChainPosition.begin(self._opening(opening.log, opening.segment + 1, place.head.hex()), place.seq)

    def now(self) -> str:
        """The time as a line has it."""
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
        why = "damage" if found.dropped and not found.torn else "" if self._is_ours(found.opening) else "key"
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
        self, strand: ChainPosition, descriptor: int, found: FoundSegment, recovered: tuple[bytes, ...]
    ) -> OpenSegment:
        """The segment was closed for the next one, which was never made."""
        if recovered:
            again = encode_log_record("segment.closed", {"next": strand.opening.segment + 1})
            return OpenSegment(strand, descriptor, (*recovered, again), finish=True)
        if found.kinds[-1] == "segment.closed" and self.signer is not None:
            return OpenSegment(strand, descriptor, finish=True)
        start = self.begin(self.next_position(strand.opening, strand.end))
        self.files.close(descriptor)
        return start

    def _begin_anew(self, number: int, path: Path, descriptor: int, found: FoundSegment) -> OpenSegment:
        """The segment has no first line yet."""
        if found.dropped and not found.torn:
            raise UnsafeLog(f"{path} is no log of this format, and is left as it is; name another file")
        if number == 1:
            strand = ChainPosition.begin(self._opening(secrets.token_hex(16), 1, ""), 0)
        else:
            before = self._previous_position(number)
            strand = self.next_position(before.opening, before.end)
        recovered = self._recover(descriptor, found)
        self.files.write(descriptor, self.first_line(strand))
        self.files.sync(descriptor)
        return OpenSegment(strand, descriptor, recovered)

    def _previous_position(self, number: int) -> ChainPosition:
        """The segment before that one, as far as it holds."""
        descriptor = self.files.open(file_of(self.path, number - 1))
        try:
            found = examine(self.files, descriptor)
        finally:
            self.files.close(descriptor)
        if found.opening is None:
            raise UnsafeLog(f"{file_of(self.path, number - 1)} is no log of this format")
        return ChainPosition(found.opening, found.end.seq, found.end.head, found.end.length)

    def _recover(self, descriptor: int, found: FoundSegment) -> tuple[bytes, ...]:
        """Cut a torn line off, and say so."""
        if not found.torn:
            return ()
        self.files.cut(descriptor, found.end.length)
        return (encode_log_record("log.recovered", {"bytes": found.dropped, "digest": found.digest}),)

    def _is_ours(self, opening: Opening) -> bool:
        if self.signer is None or not opening.key:
            return self.signer is None and not opening.key
        try:
            return VerifierKey.parse(opening.key).public == self.signer.public
        except BadNote:
            return False


def hash_at(path: Path, number: int, seq: int) -> str:
    """The hash that a line of a segment states, or nothing when it is not there."""
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
