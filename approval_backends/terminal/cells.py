"""Text in the cells of a terminal: its escaped form, its width, its line breaks, and the mark of a cut. Pure."""

from __future__ import annotations

from typing import Final

from attrs import frozen
from prompt_toolkit.utils import get_cwidth as width_of

from amplifier_hooks.text.escape import for_terminal

Line = tuple[tuple[str, str], ...]
"""One line of the screen: pairs of a style and a text."""

TAB: Final = "⇥"
STOP: Final = 4
"""Columns from one tab stop to the next."""

PLAIN: Final = str.maketrans(dict(zip("─│┊▸·…⇥○◆▲←→⟨⟩“”", '-|:>-~>o*!<><>""', strict=True)))
"""Our own signs where the terminal does not speak UTF-8: one character for one."""


@frozen
class Script:
    r"""The form of foreign text. With `ascii` every other character appears as `\u{E9}`, and nothing becomes `?`."""

    ascii: bool = False

    def lines(self, text: str) -> list[str]:
        r"""Return a foreign text, line by line; a tab and the last blank of a line can be seen."""
        return [self._blanks(line) for line in self._letters(for_terminal(text)).split("\n")]

    def inline(self, text: str) -> str:
        """Return a foreign text as one line."""
        one = for_terminal(text).replace("\n", "\\u{0A}").replace("\t", "\\u{09}")
        return self._blanks(self._letters(one))

    def cover(self, text: str) -> str:
        """Return the cover of a secret, in brackets that no other text has."""
        words = f"secret, {len(text):,} characters"
        return f"\\u{{{words}}}" if self.ascii else f"⟨{words}⟩"

    def _letters(self, text: str) -> str:
        """Escape the letters. Our own brackets around a number of blanks stay; no other text keeps such brackets."""
        if text.isascii():
            return text
        if not self.ascii:
            return text.replace(TAB, f"\\u{{{ord(TAB):X}}}")
        text = text.replace("⟨", "\\u{").replace("⟩", "}")
        return "".join(sign if sign.isascii() else f"\\u{{{ord(sign):02X}}}" for sign in text)

    def _blanks(self, line: str) -> str:
        if line.endswith(" "):
            line = line[:-1] + "\\u{20}"
        if "\t" not in line:
            return line
        if self.ascii:
            return line.replace("\t", "\\u{09}")
        first, *others = line.split("\t")
        for other in others:
            first += TAB + " " * (STOP - 1 - width_of(first) % STOP) + other
        return first


@frozen
class Strip:
    """A line before the width of the screen is known. `lead` stands before it, `follow` before its wrapped parts.

    Both are ours and equally wide, so that no foreign text begins where one of our own lines does.
    """

    text: str
    style: str = ""
    lead: str = " "
    follow: str = " "
    lead_style: str = "class:dim"
    words: bool = False


def lay_out(rows: tuple[Strip, ...], width: int) -> tuple[Line, ...]:
    """Return rows as lines of at most `width` cells. Nothing is left out."""
    return tuple(
        ((row.lead_style, lead), (row.style, piece))
        for row in rows
        for number, piece in enumerate(wrap_text(row.text, width - width_of(row.lead), words=row.words))
        for lead in (row.follow if number else row.lead,)
    )


def wrap_text(text: str, width: int, *, words: bool = False) -> list[str]:
    """Return pieces of at most `width` cells that together are the text; with `words`, cut between words."""
    if text.isascii() and (len(text) <= width or not words):
        return [text[start : start + width] for start in range(0, len(text) or 1, width)]
    pieces = []
    start = used = blank = 0
    for index, sign in enumerate(text):
        cells = width_of(sign)
        if used + cells > width:
            cut = blank if words and blank > start + width // 2 else index
            pieces.append(text[start:cut])
            start, used = cut, width_of(text[cut:index])
        used += cells
        if sign == " ":
            blank = index + 1
    return [*pieces, text[start:]]


def clip_text(text: str, width: int) -> str:
    """Return at most `width` cells; a cut tells how many characters are missing."""
    if width_of(text) <= width:
        return text
    room = width - len(f"…(+{len(text):,})")
    if room < 0:
        return "…"[:width]
    length = len(text)
    used = 0
    for index, sign in enumerate(text):
        used += width_of(sign)
        if used > room:
            length = index
            break
    return f"{text[:length]}…(+{len(text) - length:,})"


def text_of(line: Line) -> str:
    """Return the text of a line alone."""
    return "".join(text for _, text in line)
