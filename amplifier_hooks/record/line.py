r"""One record as one line of bytes, and back; and signed statements about the lines of a log.

    {"seq":7,"time":"2026-11-18T15:02:11.201340+00:00","kind":"outcome","facts":{…},"h":"9f2c…"}\n
    |<---------------------------------- body ---------------------------------->|<--- seal --->|

The hash covers the body: exactly the bytes before the seal. The seal always has the same length, so a reader takes a
line apart without reading its JSON. Everything is ASCII, so no character of any value can end a line. The hash of each
line ties it to all lines before it:

    hash of a line  = SHA-256( "amplifier-hooks/audit/1\n"  ||  hash of the line before it  ||  body of the line )
    before line one = SHA-256( "amplifier-hooks/audit/1/segment\n"  ||  for each of the seven texts of the opening
                               line: its length in bytes as 8 bytes, big-endian, and its bytes )

The tags keep these hashes apart from every other hash, and from each other. The first value depends on the log's
identity and on the segment before, so a segment cannot pass for another. `ChainPosition` computes the next line of a
segment from the number, hash and length of the lines so far.

A checkpoint states the number of lines of a log, and the hash of the last one. The form is a C2SP signed note
(c2sp.org/signed-note) with the body of c2sp.org/tlog-checkpoint:

    amplifier-hooks/audit/1/5b0c…e1/1          origin: format, log, segment
    256                                        size: number of the last line that the checkpoint covers
    nyw0r…=                                    hash of that line, in base64

    — amplifier-hooks/audit/1/5b0c…e1/1 8Jx…=  key name, and base64 of key id and signature

The signature covers the first three lines with their newlines. A verifier key (`vkey`) names the algorithm by a byte
in front of the public key: 1 for Ed25519, other numbers for other algorithms.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from attrs import define
from msgspec import structs

from amplifier_hooks.record.record_errors import BadNote, MalformedLine
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


ED25519: Final = 1
"""Number of Ed25519 in C2SP."""

_DASH: Final = "\u2014"
_NAME: Final = re.compile(r"[^\s+]{1,256}")
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_HEAD_BYTES: Final = 32
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 4


class Signer(Protocol):
    """A signer of checkpoints: a key file, or a key in another place, such as a hardware token."""

    @property
    def public(self) -> bytes:
        """The raw public key: 32 bytes."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature of `data`. If it raises, the log records that it is unsigned from there on."""
        ...


class VerifierKey(msgspec.Struct, frozen=True):
    """A public key with its name and its algorithm."""

    name: str
    public: bytes
    algorithm: int = ED25519

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Return the verifier key that `name+id+key` stands for.

        Raises `BadNote` if the text is not a verifier key, or the id does not belong to the key.
        """
        name, _, rest = text.strip().partition("+")
        stated, _, encoded = rest.partition("+")
        data = _decode_base64(encoded)
        if not _NAME.fullmatch(name) or len(data) != 1 + _KEY_BYTES:
            raise BadNote(f"{text!r:.120} is no verifier key; it reads name+id+key")
        key = cls(name, data[1:], data[0])
        if stated != key.id.hex():
            raise BadNote(
                f"the id {stated!r:.40} of the verifier key {name!r} is not {key.id.hex()}, which its key has"
            )
        return key

    @property
    def id(self) -> bytes:
        """Four bytes that distinguish keys of one name."""
        kind = bytes([self.algorithm])
        return hashlib.sha256(self.name.encode("utf-8", "surrogatepass") + b"\n" + kind + self.public).digest()[
            :_ID_BYTES
        ]

    @property
    def fingerprint(self) -> str:
        """The beginning of the public key's hash, for people to compare."""
        return hashlib.sha256(self.public).hexdigest()[:16]

    def __str__(self) -> str:
        encoded = base64.b64encode(bytes([self.algorithm]) + self.public).decode("ascii")
        return f"{self.name}+{self.id.hex()}+{encoded}"

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Return True if this key made the signature over the data. False for every key that is not Ed25519."""
        if self.algorithm != ED25519:
            return False
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


class Checkpoint(msgspec.Struct, frozen=True):
    """The signed statement: a log's origin, its size, and the hash of its last line."""

    origin: str
    size: int
    head: bytes

    @property
    def text(self) -> str:
        """The body of the note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.head).decode('ascii')}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Return the checkpoint that the body of a note states.

        Raises `BadNote` unless the body has exactly three lines in their only valid spelling.
        """
        lines = text.split("\n")
        if len(lines) != 4 or lines[-1]:  # noqa: PLR2004  # three lines, and nothing behind the last newline
            raise BadNote("a checkpoint has three lines")
        origin, size, head = lines[:3]
        decoded = _decode_base64(head)
        if not _NAME.fullmatch(origin) or not _SIZE.fullmatch(size) or len(decoded) != _HEAD_BYTES:
            raise BadNote("a checkpoint has an origin, a size and a hash")
        return cls(origin, int(size), decoded)


def sign_checkpoint(checkpoint: Checkpoint, signer: Signer) -> str:
    """Return the note: the checkpoint with its signature. Raises the signer's errors."""
    key = VerifierKey(checkpoint.origin, signer.public)
    signature = signer.sign(checkpoint.text.encode("utf-8"))
    encoded = base64.b64encode(key.id + signature).decode("ascii")
    return f"{checkpoint.text}\n{_DASH} {key.name} {encoded}\n"


def open_note(note: str, key: VerifierKey) -> Checkpoint:
    """Return the checkpoint in a note that this key signed.

    Signatures of other keys are ignored, as C2SP demands. Raises `BadNote` if the note has no signature of this key,
    two of them, a wrong one, or another form than a signed note.
    """
    text, gap, block = note.rpartition("\n\n")
    text += "\n"
    if not gap or not block.endswith("\n"):
        raise BadNote("the note has no signatures")
    ours = [
        signature
        for name, key_id, signature in map(_signature, block[:-1].split("\n"))
        if (name, key_id) == (key.name, key.id)
    ]
    if not ours:
        raise BadNote(f"the note is not signed by {key.name!r} with key id {key.id.hex()}")
    if len(ours) > 1 or not key.verifies(ours[0], text.encode("utf-8", "surrogatepass")):
        raise BadNote(f"the signature by {key.name!r} is wrong")
    return Checkpoint.parse(text)


def _signature(line: str) -> tuple[str, bytes, bytes]:
    dash, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    data = _decode_base64(encoded)
    if dash != _DASH or not _NAME.fullmatch(name) or len(data) <= _ID_BYTES:
        raise BadNote(f"{line!r:.80} is no signature line")
    return name, data[:_ID_BYTES], data[_ID_BYTES:]


def _decode_base64(text: str) -> bytes:
    """Return the bytes of base64 in its canonical spelling, and no bytes for every other text."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if base64.b64encode(data).decode("ascii") == text else b""


# -- lines -------------------------------------------------------------------------------------------------------------

LONGEST_LINE: Final = 65_536
"""Most bytes of a line, its newline included."""

SEAL: Final = len(',"h":""}\n') + 64
"""Bytes that follow the body."""

_SEAL: Final = re.compile(rb',"h":"([0-9a-f]{64})"\}\n')
_FIRST: Final = b'{"seq":'


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of one line, in the order of the line.

    A checkpoint has no time, because it holds nothing that is not signed.
    """

    seq: int
    time: str | None = None
    kind: str
    facts: dict[str, Any]


def seal(body: bytes, head: bytes) -> bytes:
    """Return the line for a body and its hash."""
    return b'%b,"h":"%b"}\n' % (body, head.hex().encode("ascii"))


def unseal(line: bytes) -> tuple[bytes, bytes]:
    """Return the body of a line, and the hash that the line claims for it.

    Raises `MalformedLine` for bytes that cannot be a line of the log: too long, not ended, not ASCII, or unsealed.
    """
    if len(line) > LONGEST_LINE:
        raise MalformedLine(f"longer than {LONGEST_LINE:,} bytes")
    found = _SEAL.fullmatch(line[-SEAL:])
    if found is None:
        raise MalformedLine("does not end in a hash and a newline")
    body = line[:-SEAL]
    if not body.startswith(_FIRST):
        raise MalformedLine(f"does not begin with {_FIRST.decode()}")
    if not body.isascii() or b"\n" in body:
        raise MalformedLine("has bytes that are not allowed in a line")
    return body, bytes.fromhex(found[1].decode("ascii"))


def read(body: bytes) -> LogEntry:
    """Return the entry that a body states.

    Raises `MalformedLine` if the body is not the beginning of a JSON object with exactly the members of a record.
    """
    try:
        members = load_json(body + b"}")
    except (ValueError, RecursionError) as problem:
        raise MalformedLine(f"is not JSON: {problem}") from problem
    names = tuple(members)
    if names not in (("seq", "time", "kind", "facts"), ("seq", "kind", "facts")):
        raise MalformedLine(f"has the members {', '.join(names)[:80]}")
    seq, time, kind, facts = members["seq"], members.get("time"), members["kind"], members["facts"]
    if type(seq) is not int or not isinstance(kind, str) or not isinstance(facts, dict):
        raise MalformedLine("has a member of the wrong type")
    if time is not None and not isinstance(time, str):
        raise MalformedLine("has a time that is no text")
    return LogEntry(seq=seq, time=time, kind=kind, facts=facts)


FORMAT: Final = "amplifier-hooks/audit/1"
_LINE: Final = f"{FORMAT}\n".encode("ascii")
_SEGMENT: Final = f"{FORMAT}/segment\n".encode("ascii")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a segment. Its first line states it, and its chain begins with the hash of it."""

    log: str
    """The log's id: 128 random bits in hexadecimal, equal in all segments of one log."""
    segment: int
    """Number of the segment, from 1."""
    previous: str = ""
    """Hash of the last line that counts in the segment before this one; empty for the first."""
    tenant: str = ""
    session: str = ""
    sdk: str = ""
    key: str = ""
    """The key that signs this segment, as a C2SP verifier key; empty when nothing is signed."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Opening:
        """Return the opening that the facts of a first line state.

        Raises `MalformedLine` if they state none.
        """
        texts = {name: facts.get(name) for name in ("log", "previous", "tenant", "session", "sdk", "key")}
        segment = facts.get("segment")
        if facts.get("format") != FORMAT:
            raise MalformedLine(f"has the format {facts.get('format')!r:.80}, and this is {FORMAT}")
        if type(segment) is not int or segment < 1 or not all(isinstance(text, str) for text in texts.values()):
            raise MalformedLine("opens no segment: a member is missing or of the wrong type")
        return cls(segment=segment, **texts)  # type: ignore[arg-type]  # looked at two lines above

    def with_key(self, public: bytes) -> Opening:
        """Return this opening with the verifier key that has this public half."""
        return structs.replace(self, key=str(VerifierKey(self.origin, public)))

    def facts(self) -> dict[str, Any]:
        """Return the facts of the segment's first line."""
        return {"format": FORMAT, **structs.asdict(self)}

    @property
    def origin(self) -> str:
        """The segment's name in signed notes."""
        return f"{FORMAT}/{self.log}/{self.segment}"

    def head(self) -> bytes:
        """Return the hash with which the chain begins."""
        hashed = hashlib.sha256(_SEGMENT)
        for text in structs.astuple(self):
            data = str(text).encode("utf-8", "surrogatepass")
            hashed.update(len(data).to_bytes(8, "big"))
            hashed.update(data)
        return hashed.digest()


def chain_hash(head: bytes, body: bytes) -> bytes:
    """Return the hash of a line with this body that follows a line with the hash `head`."""
    return hashlib.sha256(_LINE + head + body).digest()


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@define
class ChainPosition:
    """One segment as it grows. It only computes lines; the caller writes them, in their order."""

    opening: Opening
    seq: int
    head: bytes
    length: int = 0
    since: int = 0
    """Lines since the last checkpoint."""

    @classmethod
    def begin(cls, opening: Opening, seq: int) -> ChainPosition:
        """Return a segment without a line that continues after line `seq`."""
        return cls(opening, seq, opening.head())

    def add(self, piece: bytes, time: str) -> bytes:
        """Return the next line, with this record and this time."""
        return self.add_all([(piece, time)])[0]

    def add_all(self, pieces: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """Return the next lines, with these records and their times."""
        seq, head, lines = self.seq, self.head, []
        for piece, time in pieces:
            seq += 1
            body = b'{"seq":%d,"time":"%b",%b' % (seq, time.encode("ascii"), piece)
            head = chain_hash(head, body)
            lines.append(seal(body, head))
        self.seq, self.head = seq, head
        self.length += sum(map(len, lines))
        self.since += len(lines)
        return lines

    def checkpoint(self, signer: Signer) -> tuple[bytes, str]:
        """Return the next line, which signs all lines before it, and its note.

        Raises the signer's errors, and then changes nothing.
        """
        note = sign_checkpoint(Checkpoint(self.opening.origin, self.seq, self.head), signer)
        self.seq += 1
        line = self._line(b'{"seq":%d,%b' % (self.seq, encode_log_record("log.checkpoint", {"note": note})))
        self.since = 0
        return line, note

    def _line(self, body: bytes) -> bytes:
        self.head = chain_hash(self.head, body)
        line = seal(body, self.head)
        self.length += len(line)
        self.since += 1
        return line


def encode_log_record(kind: str, facts: Mapping[str, Any]) -> bytes:
    """Return a record of the log about itself, encoded for `ChainPosition.add`."""
    return f'"kind":{_encode(kind)},"facts":{_encode(facts)}'.encode("ascii")
