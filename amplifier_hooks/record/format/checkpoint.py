"""Signed statements about a log: so many lines, and that is the hash of the last.

A checkpoint is a C2SP signed note (c2sp.org/signed-note) with the body of c2sp.org/tlog-checkpoint:

    amplifier-hooks/audit/1/5b0c…e1/1          origin: format, log, segment
    256                                        size: the number of the last line it covers
    nyw0r…=                                    hash of that line, in base64

    — amplifier-hooks/audit/1/5b0c…e1/1 8Jx…=  key name, and base64 of key id and signature

The signature covers the first three lines with their newlines. A verifier key (`vkey`) names the algorithm by a byte
in front of the public key; Ed25519 is 1, and others can join.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final, Protocol

from attrs import frozen

from amplifier_hooks.record.record_errors import BadNote

ED25519: Final = 1
"""The algorithm's number in C2SP."""

_DASH: Final = "\u2014"
_NAME: Final = re.compile(r"[^\s+]{1,256}")
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_HEAD_BYTES: Final = 32
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 4


class Signer(Protocol):
    """Signs checkpoints: a key file, or a key that is kept elsewhere."""

    @property
    def public(self) -> bytes:
        """The public key, raw: 32 bytes."""
        ...

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature. May raise; the log then says that it is not signed from there on."""
        ...


@frozen
class VerifierKey:
    """A public key with the name and the algorithm it goes with."""

    name: str
    public: bytes
    algorithm: int = ED25519

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Read `name+id+key`.

        Raises `BadNote` when it is no verifier key, or its id is not that of its key.
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
        """Four bytes that tell keys of one name apart."""
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
        """Whether this key made the signature over the data. A key of another algorithm made none that we know."""
        if self.algorithm != ED25519:
            return False
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


@frozen
class Checkpoint:
    """What is signed."""

    origin: str
    size: int
    head: bytes

    @property
    def text(self) -> str:
        """The body of the note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.head).decode('ascii')}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Read the body of a note.

        Raises `BadNote` unless it is exactly three lines, written in the one way there is.
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
    """The note: the checkpoint with its signature. Raises what the signer raises."""
    key = VerifierKey(checkpoint.origin, signer.public)
    signature = signer.sign(checkpoint.text.encode("utf-8"))
    encoded = base64.b64encode(key.id + signature).decode("ascii")
    return f"{checkpoint.text}\n{_DASH} {key.name} {encoded}\n"


def open_note(note: str, key: VerifierKey) -> Checkpoint:
    """The checkpoint in a note, once this key is found to have signed it.

    Signatures of other keys are passed over, as C2SP demands. Raises `BadNote` when there is none of this key, when
    there are two, when it is wrong, or when the note is not written as it has to be.
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
    """Base64, in the one spelling it has; anything else is empty."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if base64.b64encode(data).decode("ascii") == text else b""
