"""Packs a vocabulary into one small file, and converts it to and from tiktoken's text format; pure.

A vocabulary is a list of byte strings; the index in the list is the rank, which is also the token's number. Packed:

    how many, 4 bytes big-endian | the length of each, one byte | all of them, one after the other      (then xz)
"""

from __future__ import annotations

import base64
import lzma
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


_COUNT: Final = 4


def pack(vocabulary: Sequence[bytes]) -> bytes:
    """Return the packed file. Raises `ValueError` for a token over 255 bytes."""
    plain = len(vocabulary).to_bytes(_COUNT) + bytes(map(len, vocabulary)) + b"".join(vocabulary)
    return lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME)


def unpack(data: bytes) -> list[bytes]:
    """Return the vocabulary. Raises `ValueError` or `LZMAError` for an invalid file."""
    plain = lzma.decompress(data)
    start = _COUNT + int.from_bytes(plain[:_COUNT])
    ends = list(accumulate(plain[_COUNT:start], initial=start))
    if ends[-1] != len(plain):
        raise ValueError("the lengths of the tokens do not add up")
    return [plain[begin:end] for begin, end in pairwise(ends)]


def to_text(vocabulary: Sequence[bytes]) -> bytes:
    """Return the file tiktoken would download: one token a line in base64, with its rank."""
    return b"".join(b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(vocabulary))


def from_text(text: bytes) -> list[bytes]:
    """Return the vocabulary of such a file. Raises `ValueError` if the ranks are not 0, 1, 2 and so on."""
    tokens, ranks = zip(*(line.split() for line in text.splitlines()), strict=True)
    if [int(rank) for rank in ranks] != list(range(len(ranks))):
        raise ValueError("the ranks are not 0, 1, 2 …")
    return [base64.b64decode(token) for token in tokens]
