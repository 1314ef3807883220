"""Secrets in what is shown: where they are. Pure.

A mask is a way to deceive too, so it covers only what is known to be a secret by its form or its name, holds no slash,
dot or blank, and does not stand where a command's name stands: no command word, path or host disappears behind it.
"""

from __future__ import annotations

import re
from typing import Final

Piece = tuple[str, bool]
"""A part of a text, and whether it is to be covered."""

KNOWN: Final = r"""
    \b(?P<token>
        (?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}      # model and payment providers
      | gh[pousr]_[A-Za-z0-9]{20,}              # GitHub
      | github_pat_[A-Za-z0-9_]{20,}
      | glpat-[A-Za-z0-9_-]{16,}                # GitLab
      | xox[abeprs]-[A-Za-z0-9-]{10,}           # Slack
      | AKIA[0-9A-Z]{16}                        # AWS
      | AIza[A-Za-z0-9_-]{30,}                  # Google
    )\b
  | \b(?:Bearer|Basic)\ +(?P<bearer>[A-Za-z0-9_=+-]{8,})
  | ://[^\s/:@]*:(?P<login>[^\s/:@.]{1,})@      # the password in an address
  | (?:password|passwd|secret|token|api[-_]?key)["']?\ *[=:]\ *["']?(?P<named>[A-Za-z0-9_=+-]{8,})
  | --(?:password|secret|token|api[-_]key)\ +(?P<option>[A-Za-z0-9_=+-]{8,})
"""
SECRET: Final = re.compile(KNOWN, re.VERBOSE | re.IGNORECASE)
NAME: Final = re.compile(r"pass(?:word|wd|phrase)?$|secret|token|api[-_]?key|credential|authorization", re.IGNORECASE)
VALUE: Final = re.compile(r"[A-Za-z0-9_=+-]{8,}")
COMMAND_FOLLOWS: Final = frozenset("\n\r;&|(`{")


def names_secret(name: str, value: str) -> bool:
    """Whether an argument of this name and value is one secret as a whole."""
    return NAME.search(name) is not None and VALUE.fullmatch(value) is not None


def pieces(text: str) -> list[Piece]:
    """The text in parts; joined, they are the text."""
    found: list[Piece] = []
    end = 0
    for match in SECRET.finditer(text):
        start, stop = match.span(match.lastgroup or 0)
        if _names_command(text, start):
            continue
        found += [(text[end:start], False), (text[start:stop], True)]
        end = stop
    return [*found, (text[end:], False)]


def _names_command(text: str, place: int) -> bool:
    """Whether a word that begins here may be what runs."""
    while place and text[place - 1] in " \t":
        place -= 1
    return place == 0 or text[place - 1] in COMMAND_FOLLOWS
