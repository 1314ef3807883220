"""Signed statements about a log: its number of lines, and the hash of the last line.

A checkpoint is a C2SP signed note (c2sp.org/signed-note) with the body of c2sp.org/tlog-checkpoint:

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
import re
from typing import Final, Protocol

from attrs import frozen

from amplifier_hooks.record.record_errors import BadNote

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


@frozen
class VerifierKey:
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


@frozen
class Checkpoint:
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
