"""Builds tiktoken's encodings from the packed ranks beside this file.

tiktoken's own loader downloads, without a timeout and again after each failure, and first deletes a cached file that
does not match. So this package never calls the loader; it passes the loader's data to tiktoken's `Encoding` class
itself.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    import tiktoken


_log = get_logger(__name__)


class Unavailable(msgspec.Struct, frozen=True):
    """An encoding that this process cannot load, and the reason."""

    reason: str


class _Encoding(msgspec.Struct, frozen=True):
    """tiktoken's definition of an encoding besides its ranks. A test compares it with tiktoken's own."""

    pattern: str
    special: Mapping[str, int]


ENCODINGS: Final[Mapping[str, _Encoding]] = {
    "o200k_base": _Encoding(
        pattern="|".join(  # noqa: FLY002  one alternative a line, as tiktoken writes it
            [
                r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
                r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
                r"""\p{N}{1,3}""",
                r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
                r"""\s*[\r\n]+""",
                r"""\s+(?!\S)""",
                r"""\s+""",
            ]
        ),
        special={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
    "cl100k_base": _Encoding(
        pattern=(
            r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
            r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
        ),
        special={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}

_settled: dict[str, tiktoken.Encoding | Unavailable] = {}
_settling: Final = threading.Lock()


def encoding(name: str) -> tiktoken.Encoding | Unavailable:
    """Return the encoding. The first call takes about 0.2 s and belongs in a thread; a failure is final, and logged.

    Any number of threads may call at once: one loads, the others wait for it.
    """
    if name not in _settled:
        with _settling:
            if name not in _settled:
                _settled[name] = _load(name)
    return _settled[name]


def _load(name: str) -> tiktoken.Encoding | Unavailable:
    from lzma import LZMAError  # slow to load, and many processes never count

    from amplifier_hooks.injection.tokens.packed_ranks import unpack

    try:
        import tiktoken  # the native part costs, and may not load on every platform

        known = ENCODINGS[name]
        ranks = {token: rank for rank, token in enumerate(unpack(_read_packed(name)))}
        return tiktoken.Encoding(name, pat_str=known.pattern, mergeable_ranks=ranks, special_tokens=dict(known.special))
    except (ImportError, OSError, ValueError, LZMAError) as error:
        reason = f"{type(error).__name__}: {error}"
        _log.warning(
            "tokens.encoding_unavailable",
            encoding=name,
            reason=reason,
            effect="tokens are counted as UTF-8 bytes, several times too many",
            remedy="reinstall amplifier-hooks and tiktoken",
        )
        return Unavailable(reason)


def _read_packed(name: str) -> bytes:
    from importlib.resources import files

    folder = files("amplifier_hooks.injection.tokens") / "ranks"
    packed = (folder / f"{name}.xz").read_bytes()
    expected = (folder / f"{name}.xz.sha256").read_text(encoding="ascii").split()[0]
    if hashlib.sha256(packed).hexdigest() != expected:
        raise ValueError(f"{name}.xz does not have the SHA-256 that stands beside it")
    return packed
