"""The tokenizers of models behind one interface. They load on first use; bytes replace one that cannot be loaded.

A `Yardstick` names the tokenizer that measures a model's tokens:

| model             | measured with                                | exact |
|-------------------|----------------------------------------------|-------|
| none named        | o200k_base                                   | yes   |
| known to tiktoken | its encoding                                 | yes   |
| Claude            | o200k_base, times 2.8                        | no    |
| Gemini            | o200k_base, times 1.15                       | no    |
| any other         | o200k_base, times 1.3, named `unknown-model` | no    |

The name of an encoding, or `bytes`, counts as a model. Prefixes of routers (`openai/…`, `us.anthropic.…`) are
understood. Anthropic and Google publish no tokenizer that could ship here, so theirs are estimates.

An estimate is to be too high rather than too low. Claude's tokens are 1.05 to 2.5 times those of o200k_base, by the
kind of text (prose in capitals costs most), and up to 2.7 times for the older models' runs of one letter. For the newer
models a run of one letter or blank costs still more.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr

from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    import tiktoken


_log = get_logger(__name__)


class Yardstick(msgspec.Struct, frozen=True):
    """A tokenizer, and the percentage of its count that a model's tokens are estimated at."""

    tokenizer: str
    percent: int = 100
    family: str = ""
    method: str = ""
    """Method in a `TokenCount`: `tiktoken:o200k_base`, `estimate:claude:o200k_base*2.8`, `bytes`. Always computed."""

    def __post_init__(self) -> None:
        method = self.tokenizer
        if self.family:
            times = f"*{self.percent / 100:g}" if self.percent != 100 else ""  # noqa: PLR2004  a hundred percent
            method = f"estimate:{self.family}:{self.tokenizer}{times}"
        elif self.tokenizer != _BYTE_COUNT:
            method = f"tiktoken:{self.tokenizer}"
        force_setattr(self, "method", method)


_BYTE_COUNT: Final = "bytes"
BYTES: Final = Yardstick(_BYTE_COUNT)

_DEFAULT: Final = "o200k_base"
_SAME_TEXT_SAME_TOKENS: Final = {"o200k_harmony": "o200k_base"}  # they differ in special tokens, which a text never has
_CLAUDE: Final = re.compile(r"(?<![a-z])(?:claude|opus|sonnet|haiku)(?![a-z])")
_GEMINI: Final = re.compile(r"(?<![a-z])gem(?:ini|ma)(?![a-z])")


def yardstick(model: str | None) -> Yardstick:
    """Return the row of the table for this model."""
    if model is None:
        return Yardstick(_DEFAULT)
    name = model.strip().lower()
    if name == BYTES.tokenizer:
        return BYTES
    if _CLAUDE.search(name):
        return Yardstick(_DEFAULT, 280, "claude")
    if _GEMINI.search(name):
        return Yardstick(_DEFAULT, 115, "gemini")
    encoding = _encoding(name.rpartition("/")[2])
    return Yardstick(encoding) if encoding else Yardstick(_DEFAULT, 130, "unknown-model")


def _encoding(name: str) -> str | None:
    """Return the shipped encoding that tiktoken gives the model, or None."""
    if name not in ENCODINGS and name not in _SAME_TEXT_SAME_TOKENS:
        try:
            from tiktoken.model import encoding_name_for_model  # a table; loads and downloads nothing

            name = encoding_name_for_model(name)
        except (ImportError, KeyError):
            return None
    name = _SAME_TEXT_SAME_TOKENS.get(name, name)
    return name if name in ENCODINGS else None


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True):
    """Functions that count one stretch of text.

    The tokens of a text that is cut after an ASCII letter or digit and before a blank must add up.
    """

    yardstick: Yardstick
    """Yardstick in use: bytes if the wanted tokenizer cannot be loaded."""

    tokens: Callable[[str], int]
    """Function that returns the number of tokens of a stretch."""

    reach: Callable[[str, int], int]
    """Function that returns about the number of characters that so many tokens hold."""

    exact: bool = False
    """True if `tokens` gives the count of the model's own tokenizer."""


def utf8_size(text: str) -> int:
    """Return the bytes of a text in UTF-8; a lone surrogate counts three, like the character that replaces it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def tokenizer(yardstick: Yardstick) -> Tokenizer:
    """Return the tokenizer for a yardstick. Loading may take long: call it once, in a thread."""
    if yardstick == BYTES:
        return _BYTES
    found = encoding(yardstick.tokenizer)
    return _BYTES if isinstance(found, Unavailable) else _tiktoken_tokenizer(yardstick, found)


def _byte_reach(stretch: str, tokens: int) -> int:
    return len(stretch.encode("utf-8", "replace")[:tokens].decode("utf-8", "ignore"))


_BYTES: Final = Tokenizer(yardstick=BYTES, tokens=utf8_size, reach=_byte_reach)


# -- encodings ---------------------------------------------------------------------------------------------------------
#
# tiktoken's own loader downloads, without a timeout and again after each failure, and first deletes a cached file that
# does not match. So this package never calls the loader; it passes the loader's data, from the packed ranks beside this
# file, to tiktoken's `Encoding` class itself.


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

_COUNT_BYTES: Final = 4
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
    from lzma import LZMAError  # as in `unpack`

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


def unpack(data: bytes) -> list[bytes]:
    """Return the vocabulary of a packed file, whose indexes are the ranks. Raises `ValueError` or `LZMAError`.

    A file, compressed with xz, holds the number of tokens (4 bytes, big-endian), the length of each (one byte), and all
    tokens.
    """
    import lzma  # slow to load, and many processes never count

    plain = lzma.decompress(data)
    start = _COUNT_BYTES + int.from_bytes(plain[:_COUNT_BYTES])
    ends = list(accumulate(plain[_COUNT_BYTES:start], initial=start))
    if ends[-1] != len(plain):
        raise ValueError("the lengths of the tokens do not add up")
    return [plain[begin:end] for begin, end in pairwise(ends)]


# -- tiktoken ----------------------------------------------------------------------------------------------------------


def _tiktoken_tokenizer(yardstick: Yardstick, encoding: tiktoken.Encoding) -> Tokenizer:
    return Tokenizer(
        yardstick=yardstick,
        # `ordinary`: text of a hook or a tool is never a special token, however it is spelled.
        tokens=lambda stretch: len(encoding.encode_ordinary(stretch)),
        reach=lambda stretch, tokens: len(
            encoding.decode_bytes(encoding.encode_ordinary(stretch)[:tokens]).decode("utf-8", "ignore")
        ),
        exact=not yardstick.family,
    )
