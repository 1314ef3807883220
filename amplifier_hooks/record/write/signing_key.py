"""The key that signs a log: a file only its owner can read, made on first use.

The file is PKCS#8 in PEM, which other tools read too. Next to it lies the public half, as a C2SP verifier key under a
name of its own; `verify` takes that text, wherever it was kept in the meantime.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amplifier_hooks.record.format.checkpoint import VerifierKey
from amplifier_hooks.record.record_errors import UnsafeLog
from amplifier_hooks.record.write.log_files import Files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


NAME: Final = "amplifier-hooks/audit"
"""The name of a public key outside any log."""

_SEED_BYTES: Final = 32
_LONGEST: Final = 65_536


class AuditKey:
    """An Ed25519 key. What is secret in it can be used, and not be read from here."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self._hidden = hmac.digest(seed, b"amplifier-hooks/audit/redaction\n", "sha256")
        self.public: bytes = self._private.public_key().public_bytes_raw()
        """The public key, raw."""

    def __repr__(self) -> str:
        return f"AuditKey({self.fingerprint})"

    @classmethod
    def generate(cls) -> AuditKey:
        """A new key, in memory only."""
        return cls(secrets.token_bytes(_SEED_BYTES))

    @classmethod
    def open(cls, path: str | Path) -> AuditKey:
        """The key in a file; a new one is made, with its public half beside it, when the file is not there.

        Raises `UnsafeLog` for a link, for what is no plain file, for one that others may read or that is somebody
        else's, and for one that holds no Ed25519 key; `OSError` when it cannot be read or made. A key that was there
        is never replaced.
        """
        path = Path(path)
        with suppress(FileNotFoundError):
            return cls(_seed(_contents(path), path))
        key = cls.generate()
        try:
            _create(path, _pem(key._private))  # noqa: SLF001  # its own kind
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
        """The public half as a C2SP verifier key."""
        return str(VerifierKey(name, self.public))

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature."""
        return self._private.sign(data)

    def hiding(self, log: str) -> bytes:
        """The key under which the secrets of one log are hashed: equal ones look equal there, and cannot be guessed."""
        return hmac.digest(self._hidden, log.encode(), "sha256")


def _contents(path: Path) -> bytes:
    """The bytes of a file that is nobody else's business."""
    files = Files()
    descriptor = files.open(path, write=False)
    try:
        return files.read(descriptor, _LONGEST, 0)
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
    files.close(files.create(path, contents, draft=secrets.token_hex(8)))
