"""The tokenizers of models behind one interface. They load on first use; bytes replace one that cannot be loaded.

A `Yardstick` names the tokenizer that measures a model's tokens:

| model                  | measured with                                | exact |
|------------------------|----------------------------------------------|-------|
| none named             | o200k_base                                   | yes   |
| known to tiktoken      | its encoding                                 | yes   |
| Claude, ctok installed | ctok                                         | no    |
| Claude without it      | o200k_base, times 2.8                        | no    |
| Gemini                 | o200k_base, times 1.15                       | no    |
| any other              | o200k_base, times 1.3, named `unknown-model` | no    |

The name of an encoding, or `bytes`, counts as a model. Prefixes of routers (`openai/…`, `us.anthropic.…`) are
understood. Anthropic and Google publish no tokenizer that could ship here, so theirs are estimates.

An estimate is to be too high rather than too low. Against ctok, Claude's tokens are 1.05 to 2.5 times those of
o200k_base, by the kind of text (prose in capitals costs most), and up to 2.7 times for the older models' runs of one
letter. For the newer models a run of one letter or blank costs still more; ctok counts those, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec

from amplifier_hooks.injection.tokens.encodings import ENCODINGS, Unavailable, encoding
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    import tiktoken


class Yardstick(msgspec.Struct, frozen=True):
    """A tokenizer, and the percentage of its count that a model's tokens are estimated at."""

    tokenizer: str
    percent: int = 100
    family: str = ""

    @property
    def method(self) -> str:
        """Method in a `TokenCount`: `tiktoken:o200k_base`, `estimate:claude:o200k_base*2.8`, `bytes`."""
        if self == BYTES:
            return "bytes"
        if not self.family:
            return f"tiktoken:{self.tokenizer}"
        times = f"*{self.percent / 100:g}" if self.percent != 100 else ""  # noqa: PLR2004  a hundred percent
        return f"estimate:{self.family}:{self.tokenizer}{times}"


BYTES: Final = Yardstick("bytes")

_DEFAULT: Final = "o200k_base"
_SAME_TEXT_SAME_TOKENS: Final = {"o200k_harmony": "o200k_base"}  # they differ in special tokens, which a text never has
_CLAUDE: Final = re.compile(r"(?<![a-z])(?:claude|opus|sonnet|haiku)(?![a-z])")
_VERSION: Final = re.compile(r"(?<!\d)(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")  # 4-5, 4.7, 5; not the date 20250514
_NEWER: Final = (4, 7)  # the first with the tokenizer that gives about 30 % more
_GEMINI: Final = re.compile(r"(?<![a-z])gem(?:ini|ma)(?![a-z])")


def yardstick(model: str | None) -> Yardstick:
    """Return the row of the table for this model."""
    if model is None:
        return Yardstick(_DEFAULT)
    name = model.strip().lower()
    if name == BYTES.tokenizer:
        return BYTES
    if found := _CLAUDE.search(name):
        return _claude(name[found.end() :])
    if _GEMINI.search(name):
        return Yardstick(_DEFAULT, 115, "gemini")
    encoding = _encoding(name.rpartition("/")[2])
    return Yardstick(encoding) if encoding else Yardstick(_DEFAULT, 130, "unknown-model")


def _claude(rest: str) -> Yardstick:
    """Return the yardstick for the part of a name after `claude`. A name without a version means the newest model."""
    found = _VERSION.search(rest)
    version = (int(found[1]), int(found[2] or 0)) if found else (99, 0)
    ctok = find_spec("ctok")
    if ctok and ctok.origin:  # otherwise `ctok` is only a folder
        family = "4.8" if version > _NEWER else "4.7" if version == _NEWER else "3.0"
        return Yardstick(f"ctok-{family}", family="claude")
    return Yardstick(_DEFAULT, 280, "claude")


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


_log = get_logger(__name__)


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

    at_once: int = 65_536
    """Bytes that take a few milliseconds at most; longer texts are not counted on an event loop."""

    bounded: bool = True
    """True if a token holds at least one byte, so that a text never has more tokens than bytes."""


def utf8_size(text: str) -> int:
    """Return the bytes of a text in UTF-8; a lone surrogate counts three, like the character that replaces it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def tokenizer(yardstick: Yardstick) -> Tokenizer:
    """Return the tokenizer for a yardstick. Loading may take long: call it once, in a thread."""
    if yardstick == BYTES:
        return _BYTES
    if yardstick.tokenizer.startswith("ctok-"):
        return _ctok_tokenizer(yardstick)
    found = encoding(yardstick.tokenizer)
    return _BYTES if isinstance(found, Unavailable) else _tiktoken_tokenizer(yardstick, found)


def _byte_reach(stretch: str, tokens: int) -> int:
    return len(stretch.encode("utf-8", "replace")[:tokens].decode("utf-8", "ignore"))


_BYTES: Final = Tokenizer(yardstick=BYTES, tokens=utf8_size, reach=_byte_reach)


# -- tiktoken ----------------------------------------------------------------------------------------------------------


def _tiktoken_tokenizer(yardstick: Yardstick, encoding: tiktoken.Encoding) -> Tokenizer:
    return Tokenizer(
        yardstick=yardstick,
        tokens=partial(_tokens, encoding),
        reach=partial(_reach, encoding),
        exact=not yardstick.family,
    )


def _tokens(encoding: tiktoken.Encoding, stretch: str) -> int:
    # `ordinary`: text of a hook or a tool is never a special token, however it is spelled.
    return len(encoding.encode_ordinary(stretch))


def _reach(encoding: tiktoken.Encoding, stretch: str, tokens: int) -> int:
    return len(encoding.decode_bytes(encoding.encode_ordinary(stretch)[:tokens]).decode("utf-8", "ignore"))


# -- ctok --------------------------------------------------------------------------------------------------------------

_CHARS_A_TOKEN: Final = 3  # about


def _ctok_tokenizer(yardstick: Yardstick) -> Tokenizer:
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
