r"""Secrets are taken out before a record is written: it cannot be taken out of a chain afterwards.

Three things give a secret away: the name it stands under (`password`, `Authorization`, `API_KEY`), its shape (`ghp_…`,
`AKIA…`, `Bearer …`, `password=…`, a private key), and being one that is known (the values of the environment's
secret names). What stands in its place is a keyed hash and its length: equal secrets look equal within one log, and
without the key none can be guessed.

Time is linear in the text, whatever the text is. All shapes are one expression for Rust's `regex`, which has no
backtracking; it says whether a text has a secret, not where. To find it the text is halved between two words, again and
again; a text with many secrets is replaced as a whole.
"""

from __future__ import annotations

import hmac
import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Redactor", "is_secret_name"]

SHAPES: Final = r"""(?x-u)
  \b(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_|pypi-|dop_v1_|shpat_|whsec_|sk-|[rs]k_live_|[rs]k_test_
      |xox[abeoprs]-|xapp-|AIza|ya29\.|SG\.)[A-Za-z0-9_\-]{12}
| \b(?:AKIA|ASIA)[A-Z0-9]{16}
| \beyJ[A-Za-z0-9_\-]{8}[A-Za-z0-9_\-]*\.[A-Za-z0-9_\-]{8}
| (?i:bearer\s+[A-Za-z0-9._~+/=\-]{16})
| (?i:(?:passw(?:or)?d|passphrase|secret|token|api[_\-]?key|access[_\-]?key|private[_\-]?key|credentials?)
      [A-Za-z0-9_\-]*["']?\s?[:=]\s?["']?[A-Za-z0-9._~+/=!@\#$%^&*\-]{6})
| (?i:authorization["']?\s?[:=]\s?["']?(?:[a-z\-]+\s[A-Za-z0-9._~+/=\-]{8}|[A-Za-z0-9._~+/=\-]{20}))
| ://[!-.0-9;-?A-~]*:[!-.0-?A-~]+@
| -----BEGIN\x20[A-Z\x20]*PRIVATE\x20KEY
"""
"""What secrets look like. Nothing but a private key holds a blank that could not be left out."""

BLOCK: Final = "PRIVATE KEY-----"
"""A secret of several lines: the whole text goes."""

ONE_PIECE: Final = 48
"""Characters of a text in which nobody looks for where the secret is."""

SHORTEST: Final = 8
"""Characters of a known secret at least: shorter ones stand in too many texts by accident."""

MOST_KNOWN: Final = 256
MOST_FOUND: Final = 4
MOST_NAMES: Final = 4_096

_WORDS: Final = frozenset((
    "accesskey", "apikey", "apikeys", "authorization", "cookie", "cookies", "credential", "credentials", "passphrase",
    "passwd", "password", "passwords", "privatekey", "pwd", "secret", "secrets", "token",
))  # fmt: skip
_PAIRS: Final = frozenset(("api key", "api keys", "access key", "private key", "signing key", "encryption key"))
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LONGEST_NAME: Final = 128


def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is taken for a secret: `API_KEY`, `apiKey`, `x-api-key`, `userPassword`."""
    words = re.split(r"[^a-z0-9]+", _HUMP.sub(" ", name[-_LONGEST_NAME:]).lower())
    return not _WORDS.isdisjoint(words) or any(f"{one} {two}" in _PAIRS for one, two in pairwise(words))


class Redactor:
    """Finds secrets and hides them.

    Args:
        key: Under which they are hashed; different for every log.
        known: Secrets by their value; those shorter than eight characters are passed over.
        environment: Where to look for more of them, by their names.
    """

    def __init__(self, key: bytes, *, known: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        values = {*known, *(value for name, value in environment.items() if is_secret_name(name))}
        self._key = key
        self._names: dict[str, bool] = {}
        longest = sorted(
            (value for value in values if len(value) >= SHORTEST and is_text(value)), key=len, reverse=True
        )
        self.suspects: Callable[[str], bool] = _matcher(longest[:MOST_KNOWN])
        """Whether a text has a secret in it. The text must have no lone surrogates."""

    def names(self, name: str) -> bool:
        """Whether this name belongs to secrets; remembered, for the same names come again and again."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            known = self._names[name] = is_secret_name(name)
        return known

    def hidden(self, value: str) -> dict[str, Any]:
        """What stands in the place of a value that is a secret."""
        return {"$secret": self._hash(value), "length": len(value)}

    def without(self, text: str) -> str:
        """The text with its secrets hidden, and everything else as it was."""
        if not self.suspects(text):
            return text
        if BLOCK in text or len(text) <= ONE_PIECE:
            return self._mark(text)
        pieces: list[str] = []
        waiting, found = [text], 0
        while waiting:
            piece = waiting.pop()
            if not self.suspects(piece):
                pieces.append(piece)
                continue
            halves = next((two for two in _splits(piece) if any(map(self.suspects, two))), None)
            if halves is not None:
                waiting += reversed(halves)
                continue
            found += 1
            if found > MOST_FOUND:
                return self._mark(text)
            secret = piece.strip()
            before, _, after = piece.partition(secret)
            pieces += before, self._mark(secret), after
        return "".join(pieces)

    def _mark(self, text: str) -> str:
        return f"{{$secret {self._hash(text)} length {len(text)}}}"

    def _hash(self, text: str) -> str:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: no half of a character stands alone in it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """The text in two at a blank: near its middle, or else elsewhere, for a secret may have a blank in its middle."""
    tried = {0, len(text)}
    for part in (2, 4, 4 / 3):
        aim = int(len(text) / part)
        for place in (max(text.rfind(blank, 1, aim + 1) for blank in " \n\t"), _next_blank(text, aim)):
            if place not in tried and place > 0:
                tried.add(place)
                yield text[:place], text[place:]
                break


def _next_blank(text: str, start: int) -> int:
    return min((place for place in (text.find(blank, start) for blank in " \n\t") if place > 0), default=0)


def _matcher(known: Iterable[str]) -> Callable[[str], bool]:
    """One question for all shapes and values."""
    from pydantic_core import (
        SchemaValidator,
        core_schema,
    )  # its expressions are Rust's `regex`: linear, whatever is asked

    values = "".join(f"|(?:{_escaped(value)})" for value in known)
    schema = core_schema.str_schema(pattern=f"(?:{SHAPES}){values}", regex_engine="rust-regex")
    return SchemaValidator(schema).isinstance_python


def _escaped(value: str) -> str:
    return "".join(f"\\x{{{ord(character):X}}}" for character in value)
