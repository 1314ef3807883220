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
| was closed for the next one         | the next segment is created, if the close is whole                      |
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

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
from amplifier_hooks.record.record_errors import BadNote, LogInUse, MalformedLine, UnsafeLog

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.record.log_files import Files


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
    signer: Signer | None = None
    tenant: str = ""
    session: str = ""
    sdk: str = ""
    _second: tuple[tuple[int, ...], str] = ((), "")
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
                self.files.check(descriptor, self.path, os.fstat(descriptor).st_size)
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
        now = self.clock.now()
        second = now.second, now.minute, now.hour, now.day, now.month, now.year
        known, text = self._second
        if second != known:
            text = now.isoformat(timespec="seconds")[: -len("+00:00")]
            self._second = second, text
        return f"{text}.{now.microsecond:06d}+00:00"

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
        return opening if self.signer is None else opening.with_key(self.signer.public)

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
        whole = (found.signed or self.signer is None) and not found.torn
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
        if self.signer is None or not opening.key:
            return self.signer is None and not opening.key
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
