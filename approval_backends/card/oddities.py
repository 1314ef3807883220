"""The parts of an action that do not look like what they are: each by name, as shown, and with what it would have done.

Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.text.escape import invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Escape = Callable[[str], str]


MOST: Final = 20
"""Oddities named of one kind; an action with more is hostile enough to be denied unread."""
WORD: Final = re.compile(r"[^\W\d_]+")
BLANKS: Final = re.compile(r"(?:⟨|\\u\{)([\d,]+ [^⟩}]*)[⟩}]")
"""A run of blanks as screens show it, in UTF-8 or in ASCII. No other text has these brackets around a number."""
REORDER: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
ALPHABETS: Final = {
    "Latin": re.compile("[A-Za-z]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Cyrillic": re.compile("[\u0400-\u052f]"),
}


@frozen
class Oddity:
    """One thing to look at twice. `mark` is its form in the text, escaped for its screen; it may be empty."""

    what: str
    mark: str
    note: str

    def sentence(self, shown: str) -> str:
        """Return the oddity in a line, to stand beside `shown`. A mark that `shown` lacks may be part of a secret."""
        return f"{', '.join(filter(None, (self.what, self.mark if self.mark in shown else '')))}. {self.note}"


def oddities(value: object, escape: Escape) -> tuple[Oddity, ...]:
    """Return everything odd in the texts of some arguments, names included."""
    texts = list(_texts(value))
    return (*_unseen(texts, escape), *_runs(texts, escape), *_leftward(texts), *_look_alikes(texts, escape))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _unseen(texts: Sequence[str], escape: Escape) -> Iterator[Oddity]:
    counts: Counter[str] = Counter()
    for text in texts:
        for character in invisible(text):
            counts[character] += text.count(character)
    for character, count in sorted(counts.items())[:MOST]:
        name = unicodedata.name(character, "").capitalize() or "Control character"
        yield Oddity(name if count == 1 else f"{name}, {count:,} times", escape(character), _effect(character))


def _effect(character: str) -> str:
    if unicodedata.bidirectional(character) in REORDER:
        return "It would have changed the order of what you read."
    if character in "\r\x1b\x08\x9b":
        return "In a terminal it would have moved the cursor."
    return "You would not have seen it."


def _runs(texts: Sequence[str], escape: Escape) -> Iterator[Oddity]:
    runs = Counter(run for text in texts for run in BLANKS.findall(escape(text)))
    for run, count in list(runs.items())[:MOST]:
        times = "" if count == 1 else f", {count:,} times"
        yield Oddity(f"{run} in a row{times}", "", "Shown as a count. They would have pushed the rest out of sight.")


def _leftward(texts: Sequence[str]) -> Iterator[Oddity]:
    if any(unicodedata.bidirectional(character) in ("R", "AL") for text in texts for character in set(text)):
        yield Oddity("Letters of a right-to-left script", "", "Shown in the order in which they stand, left to right.")


def _look_alikes(texts: Sequence[str], escape: Escape) -> Iterator[Oddity]:
    """Yield the words that mix alphabets whose letters look the same."""
    words = {word for text in texts if not text.isascii() for word in WORD.findall(text) if not word.isascii()}
    mixed = [word for word in sorted(words) if len(_alphabets(word)) > 1]
    for word in mixed[:MOST]:
        yield Oddity("Letters that look alike", escape(word), f"One word of {' and '.join(_alphabets(word))} letters.")


def _alphabets(word: str) -> list[str]:
    return [name for name, letters in ALPHABETS.items() if letters.search(word)]
