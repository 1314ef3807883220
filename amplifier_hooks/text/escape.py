r"""Untrusted text comes in; text for one sink goes out, with every invisible character shown and none removed.

Removal would be a trap: the shown text would no longer be the text that runs. So a character that draws nothing, moves
the cursor or reorders its neighbours appears as `\u{202E}`, and a text that already holds `\u{` has that backslash
escaped, too (`\u{5C}u{`). Two different texts therefore never look the same after `visible`, `for_log` or `for_model`.
Such a function escapes its own output again: **call one of them, once, where the text enters its sink.** Text without
anything to escape comes back unchanged.

| sink            | function       | beyond `visible`                                                       |
|-----------------|----------------|------------------------------------------------------------------------|
| any             | `visible`      | newline and tab stay                                                   |
| terminal        | `for_terminal` | long blank runs become their size, so nothing is pushed off the screen |
| page            | `for_page`     | long blank runs, and all but three combining marks on one character    |
| log line        | `for_log`      | newline and tab are escaped too: one physical line                     |
| model's context | `for_model`    | the brackets of the coordinator's markers are escaped                  |

**Markers.** The coordinator's own lines in a model's context stand in white square brackets: `⟦hook lint · 5f3c9e21⟧`.
`for_model` escapes these brackets, and a pair that looks the same, as `\u{27E6}`. So in a hook's text a raw `⟦` is
always the coordinator's, and no wording, spacing or nesting gets around that. Texts that are not escaped, such as the
results of tools, do not know the session's mark at the end of a heading. `marker` writes one.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MARK_OPEN: Final = "⟦"
MARK_CLOSE: Final = "⟧"
_LOOK_ALIKES: Final = "〚〛"
_BETWEEN: Final = "·"

_PRINTABLE_ASCII: Final = bytes(range(0x20, 0x7F))

# Python calls these printable, and they draw nothing. All other invisible ones, every space but the ASCII one
# included, fail str.isprintable(): categories C* and Z*. Unassigned characters do too, so one that is newer than this
# Python is shown by its number.
_BLANK: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    "\U00013441\U00013442\U00016fe4\U0001d159"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))  # variation selectors
)


def visible(text: str) -> str:
    r"""Return a text with every invisible character written as `\u{202E}`; newline and tab stay."""
    return _escape(text, keep="\n\t")


def for_log(text: str) -> str:
    """Return a text escaped to one physical line, for a log."""
    return _escape(text, keep="")


def for_model(text: str) -> str:
    """Return a text escaped for a model's context: `visible`, and no raw bracket of the coordinator's markers."""
    return _escape(text, keep="\n\t", also=MARK_OPEN + MARK_CLOSE + _LOOK_ALIKES)


def marker(*parts: str) -> str:
    """Return a marker for a model's context, such as `⟦hook lint · 5f3c9e21⟧`, without empty parts.

    The parts may be untrusted.
    """
    also = MARK_OPEN + MARK_CLOSE + _LOOK_ALIKES + _BETWEEN
    return MARK_OPEN + f" {_BETWEEN} ".join(_escape(part, keep="", also=also) for part in parts if part) + MARK_CLOSE


def for_terminal(text: str, *, max_run: int = 64) -> str:
    """Return a text escaped for a terminal: `visible`, and blank runs over `max_run` columns become `⟨1,204 spaces⟩`.

    Spaces, tabs and newlines form one run, or else they could take turns. A raw `⟨` in the output is always from this
    function. A collapsed run does not show the order of its blanks.

    Terminals disagree on the width of some texts, which could hide the text after them. So characters that join their
    neighbour are shown by number: flags, skin tones, Korean vowels alone, and all combining marks but the first three.
    """
    return _collapse(_limit_stacking(_escape(text, keep="\n\t", also="⟨" + _JOINING)), max_run)


def for_page(text: str, *, max_run: int = 64) -> str:
    r"""Return a text escaped for a page, which shows `\u{202E}` and `⟨1,204 spaces⟩` as unmistakable marks.

    Of the combining marks on one character, all but three are shown by number, so that no text is drawn over the lines
    above and below it. The output is text: a page sets it as such, never as HTML.
    """
    return _collapse(_limit_stacking(_escape(text, keep="\n\t", also="⟨")), max_run)


def invisible(text: str) -> frozenset[str]:
    """Return the characters that `visible` shows by their number."""
    return frozenset(c for c in set(text) if c not in "\n\t" and (not c.isprintable() or c in _BLANK))


_JOINING: Final = "".join(
    map(
        chr,
        [
            *range(0x1160, 0x1200),  # Korean vowels and finals, for the syllable before them
            *range(0xD7B0, 0xD800),
            *range(0x1F1E6, 0x1F200),  # letters that are a flag in pairs
            *range(0x1F3FB, 0x1F400),  # skin tones
        ],
    )
)


def _limit_stacking(text: str) -> str:
    if text.isascii():
        return text
    marks = "".join(c for c in set(text) if unicodedata.category(c).startswith("M"))
    if not marks:
        return text
    return re.sub(f"([{marks}]{{3}})([{marks}]+)", lambda found: found[1] + "".join(map(_number, found[2])), text)


def _collapse(text: str, max_run: int) -> str:
    def count_run(match: re.Match[str]) -> str:
        run = match[0]
        counts = {name: run.count(blank) for blank, (name, _) in _RUNS.items()}
        if sum(counts[name] * columns for name, columns in _RUNS.values()) <= max_run:
            return run
        said = ", ".join(f"{count:,} {name}{'s' * (count > 1)}" for name, count in counts.items() if count)
        return f"⟨{said}⟩" + "\n" * ("\n" in run)

    return _RUN.sub(count_run, text)


_RUN: Final = re.compile(r"[ \t\n]{2,}")
_RUNS: Final = {"\n": ("newline", 16), "\t": ("tab", 8), " ": ("space", 1)}  # with the columns each is counted as


def clip(text: str, limit_bytes: int) -> str:
    """Return at most `limit_bytes` of UTF-8 of a text, ending in `…(+N bytes)` if something was cut.

    Cuts between characters and never through an escape. A limit too small for the mark leaves `…`, or nothing. A lone
    surrogate counts as three bytes.
    """
    data = _utf8(text)
    if len(data) <= limit_bytes:
        return text
    room = limit_bytes - len(_utf8(_rest(len(data))))
    if room < 0:
        return "…" if limit_bytes >= len(_utf8("…")) else ""
    while room and data[room] >> 6 == _CONTINUES:
        room -= 1
    kept = TORN_ESCAPE.sub("", data[:room].decode("utf-8", "surrogatepass"))
    return kept + _rest(len(data) - len(_utf8(kept)))


_CONTINUES: Final = 0b10  # how a byte of UTF-8 begins when its character began before it
TORN_ESCAPE: Final = re.compile(r"\\(?:u(?:\{[0-9A-F]{0,6})?)?\Z")
"""An escape that the end of a text cuts through."""


def _rest(count: int) -> str:
    return f"…(+{count:,} bytes)"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _escape(text: str, *, keep: str, also: str = "") -> str:
    """Return an escaped text. `keep` are the control characters that stay, `also` the printable ones that do not.

    `also` must have no ASCII characters.
    """
    text = text.replace("\\u{", "\\u{5C}u{")
    if text.isascii() and not text.encode().translate(None, _PRINTABLE_ASCII + keep.encode()):
        return text  # the usual case, in microseconds
    # Asking per distinct character keeps this linear without a table of all of Unicode.
    odd = {c for c in set(text) if c not in keep and (not c.isprintable() or c in _BLANK or c in also)}
    return text.translate({ord(c): _number(c) for c in odd}) if odd else text


def _number(character: str) -> str:
    return f"\\u{{{ord(character):02X}}}"
