"""Where a log stands: the number, hash and place of its last line, and what the next one looks like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from amplifier_hooks.record.format.checkpoint import Checkpoint, Signer, signed
from amplifier_hooks.record.format.hash_chain import following
from amplifier_hooks.record.format.line import seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.record.format.hash_chain import Opening


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@frozen
class LineEnd:
    """The end of a line in a segment."""

    seq: int
    head: bytes
    length: int
    """Bytes of the segment up to here."""


@define
class Strand:
    """One segment as it grows. It only computes: the lines it makes are for the caller to write, in their order."""

    opening: Opening
    seq: int
    head: bytes
    length: int = 0
    since: int = 0
    """Lines since the last checkpoint."""

    @classmethod
    def begin(cls, opening: Opening, seq: int) -> Strand:
        """A segment without a line, after the line of that number."""
        return cls(opening, seq, opening.head())

    @property
    def place(self) -> LineEnd:
        """Where it ends."""
        return LineEnd(self.seq, self.head, self.length)

    def add(self, piece: bytes, time: str) -> bytes:
        """The next line."""
        self.seq += 1
        return self._line(b'{"seq":%d,"time":"%b",%b' % (self.seq, time.encode("ascii"), piece))

    def checkpoint(self, signer: Signer) -> tuple[bytes, str]:
        """The next line, which signs all before it, and its note.

        Raises what the signer raises; nothing changed then.
        """
        note = signed(Checkpoint(self.opening.origin, self.seq, self.head), signer)
        self.seq += 1
        line = self._line(b'{"seq":%d,%b' % (self.seq, own("log.checkpoint", {"note": note})))
        self.since = 0
        return line, note

    def _line(self, body: bytes) -> bytes:
        self.head = following(self.head, body)
        line = seal(body, self.head)
        self.length += len(line)
        self.since += 1
        return line


def own(kind: str, facts: Mapping[str, Any]) -> bytes:
    """A record of the log about itself, as `Strand.add` takes it."""
    return f'"kind":{_encode(kind)},"facts":{_encode(facts)}'.encode("ascii")
