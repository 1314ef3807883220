"""The text of an agent's last word, in whatever shape its host has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

DEEPEST: Final = 8


def text_of(response: object, depth: int = 0) -> str | None:
    """The text of a response: of a string, of `content` or `text`, of a list of such; None where there is none."""
    if isinstance(response, str):
        return response
    if depth > DEEPEST:
        return None
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray):
        texts = [text for part in response if (text := text_of(part, depth + 1)) is not None]
        return "\n".join(texts) if texts else None
    for name in ("content", "text", "message"):
        inner = response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)
        if inner is not None:
            return text_of(inner, depth + 1)
    return None
