"""Whether a text has a pattern in it, in time that is linear in the text, whatever the text and the pattern are.

The expressions are those of Rust's `regex`: no backtracking, and so no look-around and no back-references. It answers
whether, not where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


SURROGATES: Final = dict.fromkeys(range(55296, 57344), "�")
"""For `str.translate`: halves of characters, which no such expression can look at, as something of the same length."""


def linear(pattern: str) -> Callable[[str], bool]:
    """The question whether a text has this in it. A text with lone surrogates is never said to have it.

    Raises `pydantic_core.SchemaError` for a pattern that is none.
    """
    from pydantic_core import SchemaValidator, core_schema  # its expressions are Rust's

    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python


def literally(text: str) -> str:
    """The expression for exactly this text."""
    return "".join(f"\\x{{{ord(character):X}}}" for character in text)


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: no half of a character stands alone in it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
