"""Counting a text, and finding how much of it fits: exact, stopping early, safe with any input.

**Pieces.** A long text is counted in pieces of about 16,000 characters, and no further once the limit is passed. Cuts
are made only after an ASCII letter or digit that a space, tab or newline follows: there every encoding's pattern ends a
word whatever surrounds it, so the sum over the pieces is exact. (A cut at another place can change the sum.)

**Guards.** A run of a million blanks crashes tiktoken. So a stretch of more than 262,144 characters without a safe cut
is counted as its bytes instead, and so is a stretch that tiktoken cannot count; `method` then says so.

**Bounds.** A token holds 1 to 128 bytes. A text of more than 128 bytes per token of the limit is over it without
counting.

`GuardedCounter` checks a host's own counter, and holds it to a deadline. `counter_for` and `guard_counter` choose.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from amplifier_hooks.foreign_code import TooLate, within
from amplifier_hooks.injection.tokens.tokenizers import BYTES, Yardstick, tokenizer, utf8_size, yardstick
from amplifier_hooks.logs import get_logger
from amplifier_hooks.text.escape import TORN_ESCAPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_hooks.injection.tokens.tokenizers import Tokenizer
    from amplifier_hooks.ports import TokenCounter


LONGEST_CHARACTER: Final = 4
"""Bytes of UTF-8 that one character takes at most."""

LONGEST_TOKEN: Final = 128  # bytes, in the shipped encodings; no known tokenizer averages more
_AT_ONCE: Final = 65_536  # bytes that take a few milliseconds at most; the event loop counts no longer text
_PIECE: Final = 16_384
_STRETCH: Final = 262_144
_SAFE_CUT: Final = re.compile(r"[A-Za-z0-9](?=[ \t\n])")


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tokens of a text, and its reliability."""

    tokens: int
    """Number of tokens; with `over_limit`, a lower bound, because counting may have stopped."""

    exact: bool
    """True if `tokens` is the count of the model's own tokenizer for the whole text."""

    method: str
    """Method: `tiktoken:o200k_base`, `estimate:…`, `bytes`; `…+bytes` if a part was not tokenized."""

    over_limit: bool = False

    def __index__(self) -> int:
        return self.tokens


class _Sum(msgspec.Struct, frozen=True):
    """Tokens as the tokenizer counts them, and bytes, up to some index of a text."""

    tokens: int
    size: int
    tokenized: bool

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.tokens + other.tokens, self.size + other.size, self.tokenized and other.tokenized)


_NOTHING: Final = _Sum(0, 0, tokenized=True)


class _Walk(msgspec.Struct, frozen=True):
    """State at the end of counting: the sums before and after the last piece, and the bounds of that piece."""

    before: _Sum
    total: _Sum
    start: int
    end: int


class Counter:
    """Counts for one yardstick. The first count loads the tokenizer; threads and event loops may share a counter."""

    def __init__(self, yardstick: Yardstick) -> None:
        self.yardstick = yardstick
        self._cache: Tokenizer | None = None

    def count(self, text: str, limit: int | None = None) -> TokenCount:
        """Return the number of tokens, with `over_limit` set if it is over the limit."""
        if over := count_if_surely_over(text, limit, self.yardstick.method):
            return over
        by = self._tokenizer()
        walk = _walk(by, text, limit)
        return _result(by, walk.total, limit, complete=walk.end == len(text))

    def fit(self, text: str, limit: int) -> tuple[int, TokenCount]:
        r"""Return the number of characters from the start that fit into the limit, and their count.

        The cut is at the end of a line: as many whole lines as fit. Where that would lose more than half, because one
        line is very long, the cut is inside that line, though never inside an escape like `\u{202E}`.
        """
        by = self._tokenizer()
        walk = _walk(by, text, limit)
        if walk.end == len(text) and _tokens(by, walk.total) <= limit:
            return len(text), _result(by, walk.total, limit)
        for end in _cut_points(text, _longest(by, text, limit, walk)):
            if end >= walk.start:  # the text before the last piece is counted already
                count = _result(by, walk.before.plus(_measure(by, text[walk.start : end])), limit)
            else:
                count = self.count(text[:end], limit)
            if not count.over_limit:
                return end, count
        return 0, self.count("", limit)

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """Like `count`, but in a thread if the tokenizer has to be loaded or the text is long."""
        if self._is_fast(text):
            return self.count(text, limit)
        # asyncio's own pool: counting always ends, so a cancelled call may leave its thread running.
        return await asyncio.to_thread(self.count, text, limit)

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """Like `fit`, but in a thread if the tokenizer has to be loaded or the text is long."""
        if self._is_fast(text):
            return self.fit(text, limit)
        return await asyncio.to_thread(self.fit, text, limit)  # as above

    def _is_fast(self, text: str) -> bool:
        if self._cache is None:
            return False
        return LONGEST_CHARACTER * len(text) <= _AT_ONCE or utf8_size(text) <= _AT_ONCE

    def _tokenizer(self) -> Tokenizer:
        if self._cache is None:
            self._cache = tokenizer(self.yardstick)
        return self._cache


def count_if_surely_over(text: str, limit: int | None, method: str) -> TokenCount | None:
    """Return the count of a text that is over the limit by its length alone, otherwise None."""
    if limit is None or len(text) <= LONGEST_TOKEN * max(limit, 0):
        return None
    return TokenCount(tokens=-(-len(text) // LONGEST_TOKEN), exact=False, method=method, over_limit=True)


# -- counting ----------------------------------------------------------------------------------------------------------


def _walk(by: Tokenizer, text: str, limit: int | None) -> _Walk:
    """Count piece by piece, to the end of the text or of the first piece that passes the limit."""
    before = total = _NOTHING
    start = end = 0
    while end < len(text) and (limit is None or _tokens(by, total) <= limit):
        before, start = total, end
        end = _cut(text, start)
        total = before.plus(_measure(by, text[start:end]))
    return _Walk(before, total, start, end)


def _cut(text: str, start: int) -> int:
    """Return the end of the piece that begins at `start`."""
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
        except Exception:  # noqa: BLE001, S110  an uncountable stretch is counted as bytes, and the result says so
            pass
        except BaseException as crash:
            # A panic in Rust; no package exports the class of this exception.
            if type(crash).__name__ != "PanicException":
                raise
    return _Sum(size, size, tokenized=False)


def _tokens(by: Tokenizer, total: _Sum) -> int:
    return min(-(-total.tokens * by.yardstick.percent // 100), total.size)  # a token holds at least one byte


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
    """Return an end in the last piece up to which the text fits, while one character or line more does not."""

    def fits(end: int) -> bool:
        return _tokens(by, walk.before.plus(_measure(by, text[walk.start : end]))) <= limit

    room = max(0, limit * 100 // by.yardstick.percent - walk.before.tokens)
    end = _search(fits, walk.start, walk.end, walk.start + _guess(by, text[walk.start : walk.end], room))
    while (line := text.find("\n", end, walk.end) + 1) and fits(line):  # a word cut in two may count more than whole
        end = line
    return end


def _guess(by: Tokenizer, stretch: str, room: int) -> int:
    """Return about the number of characters that fit; looks not much further than that."""
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
    """Return the last index that fits, near the guess; `low` is assumed to fit and `high` not to."""
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


def best_cut(text: str, end: int) -> int:
    """Return the best index to cut the text at `end` or before it."""
    return next(_cut_points(text, end), 0)


def _cut_points(text: str, end: int) -> Iterator[int]:
    """Yield the indexes where the text may be cut, at `end` or before it, best first."""
    line = text.rfind("\n", 0, end) + 1
    while line and line * 2 >= end:
        yield line
        line = text.rfind("\n", 0, line - 1) + 1
    yield from (place for place in range(end, 0, -1) if not TORN_ESCAPE.search(text, max(0, place - 10), place))


_log = get_logger(__name__)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function in a thread that may get lost to it, such as `DaemonPool.run`."""

_Trouble = Literal["raised", "timed-out", "invalid"]
_DEADLINE: Final = 2.0
_TRIES: Final = 4
_CAUTION: Final = 0.95  # share of the part that fits if tokens are spread evenly


class GuardedCounter:
    """Asks a foreign counter, and counts bytes if it raises, hangs or gives an impossible number.

    Impossible numbers: no whole number, more tokens than bytes, less than one token for 128 bytes. `method` is
    `custom:` and the name of the counter's class, or the trouble: `bytes:counter-raised`, `bytes:counter-timed-out`,
    `bytes:counter-invalid`. While a call hangs past its deadline the counter is not asked again.
    """

    def __init__(self, counter: TokenCounter, *, run: InThread, deadline: float = _DEADLINE) -> None:
        self._counter = counter
        self._run = run
        self._deadline = deadline
        self._method = f"custom:{type(counter).__name__}"
        self._overdue: list[_Question] = []
        self._reports: set[_Trouble] = set()

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """Return the number of tokens, with `over_limit` set if it is over the limit."""
        return count_if_surely_over(text, limit, self._method) or await self._count(text, limit, self._deadline)

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """Return the number of characters from the start that fit, and their count, within one deadline.

        The counter is asked for shorter and shorter parts, not for the longest that fits; after some tries bytes
        decide.
        """
        clock = asyncio.get_running_loop().time
        ends = clock() + self._deadline
        count = await self.count_async(text, limit)
        end = len(text)
        for _ in range(_TRIES):
            if not count.over_limit:
                return end, count
            end = best_cut(text, int(end * _CAUTION * max(limit, 0) / count.tokens)) if count.tokens else 0
            if not end or count.method.startswith(BYTES.method) or clock() >= ends:
                break
            count = await self._count(text[:end], limit, ends - clock())
        return (end, count) if end and not count.over_limit else Counter(BYTES).fit(text, limit)

    async def _count(self, text: str, limit: int | None, seconds: float) -> TokenCount:
        size = utf8_size(text)
        self._overdue = [question for question in self._overdue if question.is_open]
        if self._overdue:
            return self._count_bytes("timed-out", size, limit)
        question = _Question(self._counter, text)
        try:
            tokens = _whole_number(await within(seconds, question.ask(self._run)))
        except TooLate:
            self._overdue.append(question)
            return self._count_bytes("timed-out", size, limit)
        if question.error:
            return self._count_bytes("raised", size, limit, question.error)
        if tokens is None or not size <= tokens * LONGEST_TOKEN <= size * LONGEST_TOKEN:
            return self._count_bytes("invalid", size, limit)
        return TokenCount(
            tokens=tokens, exact=False, method=self._method, over_limit=limit is not None and tokens > limit
        )

    def _count_bytes(
        self, trouble: _Trouble, size: int, limit: int | None, error: BaseException | None = None
    ) -> TokenCount:
        if trouble not in self._reports:  # log each trouble once; every count names it in `method`
            self._reports.add(trouble)
            _log.warning("tokens.counter_failed", counter=self._method, trouble=trouble, error=repr(error))
        method = f"{BYTES.method}:counter-{trouble}"
        return TokenCount(tokens=size, exact=False, method=method, over_limit=limit is not None and size > limit)


class _Question:
    """One call of the counter. The call may continue after its caller has gone."""

    def __init__(self, counter: TokenCounter, text: str) -> None:
        self._counter = counter
        self._text = text
        self.is_open = False
        self.error: BaseException | None = None

    async def ask(self, run: InThread) -> Any:
        """Return the counter's answer; if the counter raises, return None and set `error`."""
        try:
            if not inspect.iscoroutinefunction(self._counter.count):
                answer = await run(self._call)
                return await self._wait(answer) if inspect.isawaitable(answer) else answer
            return await self._wait(self._counter.count(self._text))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  not even SystemExit: it would end the event loop
            self.error = error
            return None

    async def _wait(self, answer: Awaitable[Any]) -> Any:
        self.is_open = True
        try:
            return await answer
        finally:
            self.is_open = False

    def _call(self) -> Any:
        self.is_open = True
        try:
            return self._counter.count(self._text)
        except BaseException as error:  # noqa: BLE001  as above
            self.error = error
            return None
        finally:
            self.is_open = False


def _whole_number(answer: object) -> int | None:
    """Return the answer as an int, or None if it is not a whole number."""
    if isinstance(answer, bool):
        return None
    try:
        return int(operator.index(answer))  # type: ignore[arg-type]  # `index` checks the type
    except Exception:  # noqa: BLE001  `__index__` is the counter's code, too
        return None


# -- the counter of a session ------------------------------------------------------------------------------------------


def counter_for(model: str | None = None) -> Counter:
    """Return the counter for a model. The tokenizer is loaded at the first count."""
    return _counter(yardstick(model))


@cache  # there are about ten yardsticks
def _counter(yardstick: Yardstick) -> Counter:
    return Counter(yardstick)


def guard_counter(counter: TokenCounter, *, run: InThread, deadline: float = 2.0) -> Counter | GuardedCounter:
    """Return a reliable counter over one that may fail, hang or lie. A `Counter` is returned unchanged."""
    return counter if isinstance(counter, Counter) else GuardedCounter(counter, run=run, deadline=deadline)


def count(text: str, model: str | None = None, limit: int | None = None) -> TokenCount:
    """Return the number of tokens of a text for a model; with a limit, counting may stop once the limit is passed."""
    return counter_for(model).count(text, limit)


async def count_async(text: str, model: str | None = None, limit: int | None = None) -> TokenCount:
    """Like `count`, but in a thread if the tokenizer has to be loaded or the text is long."""
    return await counter_for(model).count_async(text, limit)


def fit(text: str, limit: int, model: str | None = None) -> tuple[int, TokenCount]:
    """Return the number of characters from the start that fit into the limit, and their count.

    The cut is at the end of a line, or inside a long line.
    """
    return counter_for(model).fit(text, limit)
