"""Which words of a changed line differ from the line it stands for. Pure, and linear in their length."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from approval_backends.card.file_diff import ChangeLine


WORD: Final = re.compile(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩|\w+|\s+|.", re.DOTALL)
ALIKE: Final = 0.3
"""Lines with less in common at both ends are two lines, not one that was changed."""


def marked(lines: Sequence[ChangeLine]) -> dict[int, tuple[str, str, str]]:
    """Lines by their index, as they are shown, in three pieces: the one in the middle differs. No escape is torn."""
    found: dict[int, tuple[str, str, str]] = {}
    for gone, come in _pairs(lines):
        old, new = WORD.findall(lines[gone].text), WORD.findall(lines[come].text)
        head = _same(old, new)
        tail = _same(old[head:][::-1], new[head:][::-1])
        shared = sum(map(len, old[:head])) + sum(map(len, old[len(old) - tail :]))
        if shared >= ALIKE * max(len(lines[gone].text), len(lines[come].text)):
            found[gone], found[come] = _pieces(old, head, tail), _pieces(new, head, tail)
    return found


def _pairs(lines: Sequence[ChangeLine]) -> Iterator[tuple[int, int]]:
    """Removed lines with the added ones that stand in their place."""
    at = 0
    while at < len(lines):
        gone = at
        while at < len(lines) and lines[at].kind == "del":
            at += 1
        come = at
        while at < len(lines) and lines[at].kind == "add":
            at += 1
        yield from zip(range(gone, come), range(come, at), strict=False)
        at += at == gone


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """How many words both begin with."""
    return next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _pieces(words: Sequence[str], head: int, tail: int) -> tuple[str, str, str]:
    end = len(words) - tail
    return "".join(words[:head]), "".join(words[head:end]), "".join(words[end:])
