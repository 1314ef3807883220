"""A text and a kind of personal data come in; the places of such data in the text go out.

The search takes time in proportion to the text: each pattern begins at the start of a word or number only, and its
repetitions are bounded or give nothing back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.text.secrets import Span


PersonalKind = Literal["email", "card", "phone"]

# The login of a remote (`git@example.org:team/code`) has the form of an address, and is none.
EMAIL: Final = r"(?<![\w.%+'-])[\w.%+'-]++@(?:[\w-]++\.)+[^\W\d_]{2,63}+(?![\w-]|:[\w/~.])"
CARD: Final = (
    r"(?<![0-9])(?=[2-6])(?:[0-9]{13,19}"
    r"|[0-9]{4}(?P<by>[ \xa0-])[0-9]{4}(?P=by)[0-9]{4}(?P=by)(?:[0-9]{4}(?P=by)[0-9]{3}|[0-9]{1,4})"
    r"|[0-9]{4}(?P<with>[ \xa0-])[0-9]{6}(?P=with)[0-9]{4,5})(?![0-9])"
)
PHONE: Final = (
    r"(?<![\w+])\+[1-9](?:[ \xa0.\-/()]{0,2}[0-9]){6,14}(?![0-9])"
    r"|(?<![\w.+-])(?:\([2-9][0-9]{2}\)[ \xa0]?|[2-9][0-9]{2}[.-])[0-9]{3}[.-][0-9]{4}(?![\w-])"
)


def _has_checksum(number: str) -> bool:
    """Return True if the digits of a card number end in their check digit (Luhn)."""
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])  # noqa: PLR2004  # its digits, added
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _always(_found: str) -> bool:
    return True


KINDS: Final[dict[PersonalKind, tuple[str, re.Pattern[str], Callable[[str], bool]]]] = {
    "card": ("card number", re.compile(CARD), _has_checksum),
    "phone": ("phone number", re.compile(PHONE), _always),
    "email": ("e-mail address", re.compile(EMAIL), _always),
}
"""The name, the form and the check of each kind."""

NAMES: Final = frozenset(name for name, _, _ in KINDS.values())


def personal_spans(text: str, kind: PersonalKind) -> list[Span]:
    """Return the spans of personal data of one kind, in order and disjoint."""
    name, pattern, holds = KINDS[kind]
    spans: list[Span] = []
    found = pattern.search(text)
    while found is not None:
        real = holds(found.group())
        if real:
            spans.append((*found.span(), name))
        found = pattern.search(text, found.end() if real else found.start() + 1)
    return spans
