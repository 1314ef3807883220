"""Which yardstick a model's tokens are measured with.

| model                  | measured with                                | exact |
|------------------------|----------------------------------------------|-------|
| none named             | o200k_base                                   | yes   |
| known to tiktoken      | its encoding                                 | yes   |
| Claude, ctok installed | ctok                                         | no    |
| Claude without it      | o200k_base, times 2.8                        | no    |
| Gemini                 | o200k_base, times 1.15                       | no    |
| any other              | o200k_base, times 1.3, named `unknown-model` | no    |

The name of an encoding, or `bytes`, counts as a model. Prefixes of routers (`openai/…`, `us.anthropic.…`) are
understood. Anthropic and Google publish no tokenizer that could be had here, so theirs are estimates.

An estimate is to be too high rather than too low. Against ctok, Claude's tokens are 1.05 to 2.5 times those of
o200k_base, by the kind of text (prose in capitals is the dearest), and up to 2.7 times for the older models' runs of
one letter. Of the newer models a run of one letter or blank is dearer still; ctok counts those, too.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final

from attrs import frozen

from amplifier_hooks.injection.tokens.encodings import ENCODINGS


@frozen
class Yardstick:
    """What to count with, and how many hundredths of that a token of the model is taken to be."""

    tokenizer: str
    percent: int = 100
    family: str = ""

    @property
    def method(self) -> str:
        """How it appears in a `TokenCount`: `tiktoken:o200k_base`, `estimate:claude:o200k_base*2.8`, `bytes`."""
        if self == BYTES:
            return "bytes"
        if not self.family:
            return f"tiktoken:{self.tokenizer}"
        times = f"*{self.percent / 100:g}" if self.percent != 100 else ""  # noqa: PLR2004  a hundred percent
        return f"estimate:{self.family}:{self.tokenizer}{times}"


BYTES: Final = Yardstick("bytes")

_DEFAULT: Final = "o200k_base"
_SAME_TEXT_SAME_TOKENS: Final = {"o200k_harmony": "o200k_base"}  # they differ in special tokens, which text never is
_CLAUDE: Final = re.compile(r"(?<![a-z])(?:claude|opus|sonnet|haiku)(?![a-z])")
_VERSION: Final = re.compile(r"(?<!\d)(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")  # 4-5, 4.7, 5; not the date 20250514
_NEWER: Final = (4, 7)  # the first with the tokenizer that gives about 30 % more
_GEMINI: Final = re.compile(r"(?<![a-z])gem(?:ini|ma)(?![a-z])")


def yardstick(model: str | None) -> Yardstick:
    """The row of the table for this model."""
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
    """By what follows `claude`. Without a version it is the newest."""
    found = _VERSION.search(rest)
    version = (int(found[1]), int(found[2] or 0)) if found else (99, 0)
    ctok = find_spec("ctok")
    if ctok and ctok.origin:  # else it is just a folder of that name
        family = "4.8" if version > _NEWER else "4.7" if version == _NEWER else "3.0"
        return Yardstick(f"ctok-{family}", family="claude")
    return Yardstick(_DEFAULT, 280, "claude")


def _encoding(name: str) -> str | None:
    """The encoding that ships here and that tiktoken gives the model."""
    if name not in ENCODINGS and name not in _SAME_TEXT_SAME_TOKENS:
        try:
            from tiktoken.model import encoding_name_for_model  # a table; loads and downloads nothing

            name = encoding_name_for_model(name)
        except (ImportError, KeyError):
            return None
    name = _SAME_TEXT_SAME_TOKENS.get(name, name)
    return name if name in ENCODINGS else None
