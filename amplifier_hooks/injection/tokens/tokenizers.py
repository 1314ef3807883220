"""The tokenizers behind the yardsticks, all with one face; loaded on first use, bytes where one cannot be had."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.injection.tokens.encodings import Unavailable, encoding
from amplifier_hooks.injection.tokens.tokenizer_of_model import BYTES, Yardstick
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    import tiktoken


_log = get_logger(__name__)


@frozen(kw_only=True)
class Tokenizer:
    """How to count one stretch of text.

    Tokens of a text that is cut after an ASCII letter or digit and before a blank must add up.
    """

    yardstick: Yardstick
    """What it really is: bytes, where the one that was wanted cannot be had."""

    tokens: Callable[[str], int]
    """How many tokens a stretch has."""

    reach: Callable[[str, int], int]
    """About how many characters so many tokens hold."""

    exact: bool = False
    """Whether `tokens` is what the model's own tokenizer says."""

    at_once: int = 65_536
    """So many bytes take a few milliseconds at most; more are not counted on an event loop."""

    bounded: bool = True
    """Whether a token holds at least one byte, so that a text never has more tokens than bytes."""


def utf8_size(text: str) -> int:
    """The bytes of a text in UTF-8; three for a lone surrogate, as for the character it is replaced by."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def tokenizer(yardstick: Yardstick) -> Tokenizer:
    """The tokenizer for a yardstick. Loads it, which may take long: ask once, in a thread."""
    if yardstick == BYTES:
        return _BYTES
    if yardstick.tokenizer.startswith("ctok-"):
        return _by_ctok(yardstick)
    found = encoding(yardstick.tokenizer)
    return _BYTES if isinstance(found, Unavailable) else _by_tiktoken(yardstick, found)


def _byte_reach(stretch: str, tokens: int) -> int:
    return len(stretch.encode("utf-8", "replace")[:tokens].decode("utf-8", "ignore"))


_BYTES: Final = Tokenizer(yardstick=BYTES, tokens=utf8_size, reach=_byte_reach)


# -- tiktoken ----------------------------------------------------------------------------------------------------------


def _by_tiktoken(yardstick: Yardstick, encoding: tiktoken.Encoding) -> Tokenizer:
    return Tokenizer(
        yardstick=yardstick,
        tokens=partial(_tokens, encoding),
        reach=partial(_reach, encoding),
        exact=not yardstick.family,
    )


def _tokens(encoding: tiktoken.Encoding, stretch: str) -> int:
    # `ordinary`: what a hook or a tool wrote is never a special token, however it is spelled.
    return len(encoding.encode_ordinary(stretch))


def _reach(encoding: tiktoken.Encoding, stretch: str, tokens: int) -> int:
    return len(encoding.decode_bytes(encoding.encode_ordinary(stretch)[:tokens]).decode("utf-8", "ignore"))


# -- ctok --------------------------------------------------------------------------------------------------------------

_CHARS_A_TOKEN: Final = 3  # about


def _by_ctok(yardstick: Yardstick) -> Tokenizer:
    try:
        token_count = import_module("ctok").token_count  # untyped, and only with the extra
    except ImportError as error:
        _log.warning("tokens.ctok_unavailable", reason=str(error), effect="tokens are counted as UTF-8 bytes")
        return _BYTES
    version = yardstick.tokenizer.removeprefix("ctok-")
    frame = token_count("", version)  # it counts a whole message; a text is only a part of one

    def tokens(stretch: str) -> int:
        # A stretch that begins after a cut may lack one token for the start of a word.
        return int(token_count(stretch, version) - frame + stretch[:1].isspace())

    # Not bounded: its marks for words and capitals have no bytes of their own.
    return Tokenizer(yardstick=yardstick, tokens=tokens, reach=_ctok_reach, at_once=4_096, bounded=False)


def _ctok_reach(_stretch: str, tokens: int) -> int:
    return tokens * _CHARS_A_TOKEN
