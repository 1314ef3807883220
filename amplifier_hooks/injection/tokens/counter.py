"""Counting a text, and finding how much of it fits. Exact, stopping early, harmed by no input.

**Pieces.** A long text is counted in pieces of about 16,000 characters, and no further once the limit is passed. Cuts
are made only after an ASCII letter or digit that a space, tab or newline follows: there every encoding's pattern ends
a word whatever surrounds it, so the sum over the pieces is exact. (Cuts at any place are not: they can give less.)

**Guards.** A run of a million blanks crashes tiktoken. So a stretch of more than 262,144 characters without a safe
cut is not given to it but counted as its bytes, and so is one it cannot count; the count then says so.

**Bounds.** A token holds 1 to 128 bytes. A text of more than 128 bytes a token of the limit is over it without a look.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from attrs import frozen

from amplifier_hooks.injection.tokens.tokenizers import tokenizer, utf8_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amplifier_hooks.injection.tokens.tokenizer_of_model import Yardstick
    from amplifier_hooks.injection.tokens.tokenizers import Tokenizer


LONGEST_TOKEN: Final = 128  # bytes: of the encodings that ship, and no tokenizer is known to average more
_PIECE: Final = 16_384
_STRETCH: Final = 262_144
_SAFE_CUT: Final = re.compile(r"[A-Za-z0-9](?=[ \t\n])")
_TORN_ESCAPE: Final = re.compile(r"\\(?:u(?:\{[0-9A-F]{0,6})?)?\Z")  # the escapes of `escape.py`, cut through


@frozen(kw_only=True)
class TokenCount:
    """How many tokens a text has, and how far that can be relied on."""

    tokens: int
    """With `over_limit`, at least so many: counting may have stopped there."""

    exact: bool
    """Whether `tokens` is what the model's own tokenizer gives for the whole text."""

    method: str
    """How it was counted: `tiktoken:o200k_base`, `estimate:…`, `bytes`; `…+bytes` where a part was not tokenized."""

    over_limit: bool = False

    def __index__(self) -> int:
        return self.tokens


class _Sum(NamedTuple):
    """Tokens as the tokenizer counts them, and bytes, up to some place of a text."""

    tokens: int
    size: int
    tokenized: bool

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.tokens + other.tokens, self.size + other.size, self.tokenized and other.tokenized)


_NOTHING: Final = _Sum(0, 0, tokenized=True)


class _Walk(NamedTuple):
    """Where counting ended: the sums before and after the last piece, and that piece."""

    before: _Sum
    total: _Sum
    start: int
    end: int


class Counter:
    """Counts for one yardstick. The tokenizer is loaded by the first count; threads and event loops may share it."""

    def __init__(self, yardstick: Yardstick) -> None:
        self.yardstick = yardstick
        self._loaded: Tokenizer | None = None

    def count(self, text: str, limit: int | None = None) -> TokenCount:
        """How many tokens, and whether that is over the limit."""
        if over := surely_over(text, limit, self.yardstick.method):
            return over
        by = self._tokenizer()
        walk = _walk(by, text, limit)
        return _result(by, walk.total, limit, complete=walk.end == len(text))

    def fit(self, text: str, limit: int) -> tuple[int, TokenCount]:
        r"""How many characters from the start fit into the limit, and what these count.

        The cut is at the end of a line: as many whole lines as fit. Where that would give up more than half, because
        one line is so long, it is inside that line, though never inside an escape like `\u{202E}`.
        """
        by = self._tokenizer()
        walk = _walk(by, text, limit)
        if walk.end == len(text) and _tokens(by, walk.total) <= limit:
            return len(text), _result(by, walk.total, limit)
        for end in _places(text, _longest(by, text, limit, walk)):
            if end >= walk.start:  # what stands before the last piece is counted already
                count = _result(by, walk.before.plus(_measure(by, text[walk.start : end])), limit)
            else:
                count = self.count(text[:end], limit)
            if not count.over_limit:
                return end, count
        return 0, self.count("", limit)

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """`count`; in a thread if the tokenizer has to be loaded or the text is long."""
        if self._at_once(text):
            return self.count(text, limit)
        # Not a pool of ours: counting always ends, and cancelling may leave it to do so.
        return await asyncio.to_thread(self.count, text, limit)

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """`fit`; in a thread if the tokenizer has to be loaded or the text is long."""
        if self._at_once(text):
            return self.fit(text, limit)
        return await asyncio.to_thread(self.fit, text, limit)  # as above

    def _at_once(self, text: str) -> bool:
        most = self._loaded.at_once if self._loaded else -1
        return len(text) <= most and utf8_size(text) <= most

    def _tokenizer(self) -> Tokenizer:
        if self._loaded is None:
            self._loaded = tokenizer(self.yardstick)
        return self._loaded


def surely_over(text: str, limit: int | None, method: str) -> TokenCount | None:
    """The count of a text that is over the limit by its length alone."""
    if limit is None or len(text) <= LONGEST_TOKEN * max(limit, 0):
        return None
    return TokenCount(tokens=-(-len(text) // LONGEST_TOKEN), exact=False, method=method, over_limit=True)


# -- counting ----------------------------------------------------------------------------------------------------------


def _walk(by: Tokenizer, text: str, limit: int | None) -> _Walk:
    """Piece by piece, to the end of the text or of the first piece that passes the limit."""
    before = total = _NOTHING
    start = end = 0
    while end < len(text) and (limit is None or _tokens(by, total) <= limit):
        before, start = total, end
        end = _cut(text, start)
        total = before.plus(_measure(by, text[start:end]))
    return _Walk(before, total, start, end)


def _cut(text: str, start: int) -> int:
    """The end of the piece that begins at `start`."""
    at = start + _PIECE - 1
    while at < len(text):  # a window at a time: `re` keeps all other threads waiting while it searches
        if found := _SAFE_CUT.search(text, at, at + _STRETCH + 1):
            return found.end()
        at += _STRETCH
    return len(text)


def _measure(by: Tokenizer, stretch: str) -> _Sum:
    size = utf8_size(stretch)
    if len(stretch) <= _STRETCH:
        try:
            return _Sum(by.tokens(stretch), size, tokenized=True)
        except Exception:  # noqa: BLE001, S110  whatever it cannot count is counted as bytes, and the result says so
            pass
        except BaseException as crash:
            # What a panic in Rust arrives as; no package has the class to catch it by.
            if type(crash).__name__ != "PanicException":
                raise
    return _Sum(size, size, tokenized=False)


def _tokens(by: Tokenizer, total: _Sum) -> int:
    tokens = -(-total.tokens * by.yardstick.percent // 100)
    return min(tokens, total.size) if by.bounded else tokens


def _result(by: Tokenizer, total: _Sum, limit: int | None, *, complete: bool = True) -> TokenCount:
    tokens = _tokens(by, total)
    return TokenCount(
        tokens=tokens,
        exact=by.exact and total.tokenized and complete,
        method=by.yardstick.method if total.tokenized else f"{by.yardstick.method}+bytes",
        over_limit=limit is not None and tokens > limit,
    )


# -- fitting -----------------------------------------------------------------------------------------------------------


def _longest(by: Tokenizer, text: str, limit: int, walk: _Walk) -> int:
    """An end in the last piece up to which the text fits while one character or one line more does not."""

    def fits(end: int) -> bool:
        return _tokens(by, walk.before.plus(_measure(by, text[walk.start : end]))) <= limit

    room = max(0, limit * 100 // by.yardstick.percent - walk.before.tokens)
    end = _search(fits, walk.start, walk.end, walk.start + _guess(by, text[walk.start : walk.end], room))
    while (line := text.find("\n", end, walk.end) + 1) and fits(line):  # a word cut in two may count more than whole
        end = line
    return end


def _guess(by: Tokenizer, stretch: str, room: int) -> int:
    """About how many characters fit; looks not much further than that."""
    span = 8 * room + 1
    while True:
        part = stretch[: min(span, _STRETCH)]
        try:
            reached = by.reach(part, room)
        except Exception:  # noqa: BLE001  only a guess
            return room
        if reached < len(part) or len(part) < span:
            return reached
        span *= 4


def _search(fits: Callable[[int], bool], low: int, high: int, guess: int) -> int:
    """The last place that fits, near the guess; `low` is taken to fit and `high` not to."""
    probe, step = guess, 1
    while high - low > 1:
        probe = min(max(probe, low + 1), high - 1)
        if fits(probe):
            low, probe = probe, probe + step
        else:
            high, probe = probe, probe - step
        step *= 2
        if step > (high - low) // 2:
            probe = (low + high) // 2
    return low


def first_place(text: str, end: int) -> int:
    """The best place to cut the text at `end` or before it."""
    return next(_places(text, end), 0)


def _places(text: str, end: int) -> Iterator[int]:
    """Where the text may be cut, at `end` or before it, best first."""
    line = text.rfind("\n", 0, end) + 1
    while line and line * 2 >= end:
        yield line
        line = text.rfind("\n", 0, line - 1) + 1
    yield from (place for place in range(end, 0, -1) if not _TORN_ESCAPE.search(text, max(0, place - 10), place))
