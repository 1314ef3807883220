r"""What ties each line to all lines before it.

    hash of a line  = SHA-256( "amplifier-hooks/audit/1\n"  ||  hash of the line before it  ||  body of the line )
    before line one = SHA-256( "amplifier-hooks/audit/1/segment\n"  ||  for each of the seven texts of the opening
                               line: its length in bytes as 8 bytes, big-endian, and its bytes )

The tags keep these hashes apart from every other, and from each other. Because the first value is made of whose log it
is and what came before, a segment cannot be passed off as another.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from attrs import evolve, frozen

from amplifier_hooks.record.format.checkpoint import VerifierKey
from amplifier_hooks.record.record_errors import MalformedLine

FORMAT: Final = "amplifier-hooks/audit/1"
_LINE: Final = f"{FORMAT}\n".encode("ascii")
_SEGMENT: Final = f"{FORMAT}/segment\n".encode("ascii")


@frozen(kw_only=True)
class Opening:
    """Whose segment it is. Its first line says so, and the chain begins with the hash of it."""

    log: str
    """128 random bits in hexadecimal; the same in all segments of one log."""
    segment: int
    """Counted from 1."""
    previous: str = ""
    """Hash of the last line that counts in the segment before this one; empty for the first."""
    tenant: str = ""
    session: str = ""
    sdk: str = ""
    key: str = ""
    """The key that signs this segment, as a C2SP verifier key; empty when nothing is signed."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Opening:
        """The opening that the facts of a first line state.

        Raises `MalformedLine` when they do not.
        """
        texts = {name: facts.get(name) for name in ("log", "previous", "tenant", "session", "sdk", "key")}
        segment = facts.get("segment")
        if facts.get("format") != FORMAT:
            raise MalformedLine(f"has the format {facts.get('format')!r:.80}, and this is {FORMAT}")
        if type(segment) is not int or segment < 1 or not all(isinstance(text, str) for text in texts.values()):
            raise MalformedLine("opens no segment: a member is missing or of the wrong type")
        return cls(segment=segment, **texts)  # type: ignore[arg-type]  # looked at two lines above

    def signed_by(self, public: bytes) -> Opening:
        """The same, signed by the key with this public half."""
        return evolve(self, key=str(VerifierKey(self.origin, public)))

    def facts(self) -> dict[str, Any]:
        """As the first line says it."""
        return {
            "format": FORMAT,
            "log": self.log,
            "segment": self.segment,
            "previous": self.previous,
            "tenant": self.tenant,
            "session": self.session,
            "sdk": self.sdk,
            "key": self.key,
        }

    @property
    def origin(self) -> str:
        """Its name in the notes that are signed."""
        return f"{FORMAT}/{self.log}/{self.segment}"

    def head(self) -> bytes:
        """The value the chain begins with."""
        hashed = hashlib.sha256(_SEGMENT)
        texts = (self.log, str(self.segment), self.previous, self.tenant, self.session, self.sdk, self.key)
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            hashed.update(len(data).to_bytes(8, "big"))
            hashed.update(data)
        return hashed.digest()


def following(head: bytes, body: bytes) -> bytes:
    """The hash of the line with this body, after a line with that hash."""
    return hashlib.sha256(_LINE + head + body).digest()
