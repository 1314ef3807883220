"""Secrets are taken out before a record is written: it cannot be taken out of a chain afterwards.

What stands in the place of one is a keyed hash and its length: equal secrets look equal within one log, and without
the key none can be guessed. What secrets look like, and where they are, is told in `amplifier_hooks.text.secrets`. A
text with a private key, or with many secrets, is replaced as a whole.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.text.secret_patterns import PRIVATE_KEY
from amplifier_hooks.text.secrets import Secrets, exchanged, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


MOST_FOUND: Final = 4
MOST_NAMES: Final = 4_096


class Redactor:
    """Finds secrets and hides them.

    Args:
        key: Under which they are hashed; different for every log.
        known: Secrets by their value; those shorter than eight characters are passed over.
        environment: Where to look for more of them, by their names.
    """

    def __init__(self, key: bytes, *, known: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._key = key
        self._names: dict[str, bool] = {}
        self._secrets = Secrets(known=known, environment=environment)
        self.suspects: Callable[[str], bool] = self._secrets.suspects
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
        spans = self._secrets.spans(text)
        if len(spans) > MOST_FOUND or any(kind == PRIVATE_KEY.kind for _, _, kind in spans):
            return self._mark(text)
        return exchanged(text, spans, [self._mark(text[start:end]) for start, end, _ in spans])

    def _mark(self, text: str) -> str:
        return f"{{$secret {self._hash(text)} length {len(text)}}}"

    def _hash(self, text: str) -> str:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()
