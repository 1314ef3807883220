"""A counter somebody else wrote, held to its word and its time."""

from __future__ import annotations

import asyncio
import inspect
import operator
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from amplifier_hooks.abandoned_work import keep_until_done
from amplifier_hooks.injection.tokens.counter import LONGEST_TOKEN, Counter, TokenCount, first_place, surely_over
from amplifier_hooks.injection.tokens.tokenizer_of_model import BYTES
from amplifier_hooks.injection.tokens.tokenizers import utf8_size
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from amplifier_hooks.ports import TokenCounter


_log = get_logger(__name__)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function in a thread that may get lost to it, such as `DaemonPool.run`."""

_Trouble = Literal["raised", "timed-out", "invalid"]
_DEADLINE: Final = 2.0
_TRIES: Final = 4
_CAUTION: Final = 0.95  # of what should fit if tokens were spread evenly


class GuardedCounter:
    """Asks a foreign counter, and counts bytes where it raises, hangs or says what cannot be.

    It cannot be: no whole number, more tokens than bytes, less than one token for 128 bytes. `method` is `custom:` and
    the name of the counter's class, or what was wrong: `bytes:counter-raised`, `bytes:counter-timed-out`,
    `bytes:counter-invalid`. While a call hangs past its deadline the counter is not asked again.
    """

    def __init__(self, counter: TokenCounter, *, run: InThread, deadline: float = _DEADLINE) -> None:
        self._counter = counter
        self._run = run
        self._deadline = deadline
        self._method = f"custom:{type(counter).__name__}"
        self._overdue: list[_Question] = []
        self._told: set[_Trouble] = set()

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """How many tokens, and whether that is over the limit."""
        return surely_over(text, limit, self._method) or await self._count(text, limit, self._deadline)

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """How many characters from the start fit, and what these count; all within one deadline.

        The counter is asked for shorter and shorter parts, not for the longest that fits; then it goes by bytes.
        """
        clock = asyncio.get_running_loop().time
        ends = clock() + self._deadline
        count = await self.count_async(text, limit)
        end = len(text)
        for _ in range(_TRIES):
            if not count.over_limit:
                return end, count
            end = first_place(text, int(end * _CAUTION * max(limit, 0) / count.tokens)) if count.tokens else 0
            if not end or count.method.startswith(BYTES.method) or clock() >= ends:
                break
            count = await self._count(text[:end], limit, ends - clock())
        return (end, count) if end and not count.over_limit else Counter(BYTES).fit(text, limit)

    async def _count(self, text: str, limit: int | None, seconds: float) -> TokenCount:
        size = utf8_size(text)
        self._overdue = [question for question in self._overdue if question.is_open]
        if self._overdue:
            return self._in_bytes("timed-out", size, limit)
        question = _Question(self._counter, text)
        asking = asyncio.create_task(question.ask(self._run))
        try:
            # Not `wait_for`: that waits on for a counter that ignores its cancellation.
            done, _ = await asyncio.wait([asking], timeout=seconds)
        finally:
            keep_until_done(asking)
            asking.cancel()
        if not done:
            self._overdue.append(question)
            return self._in_bytes("timed-out", size, limit)
        if asking.cancelled() or question.error:
            return self._in_bytes("raised", size, limit, question.error)
        tokens = _whole(asking.result())
        if tokens is None or not size <= tokens * LONGEST_TOKEN <= size * LONGEST_TOKEN:
            return self._in_bytes("invalid", size, limit)
        return TokenCount(
            tokens=tokens, exact=False, method=self._method, over_limit=limit is not None and tokens > limit
        )

    def _in_bytes(
        self, trouble: _Trouble, size: int, limit: int | None, error: BaseException | None = None
    ) -> TokenCount:
        if trouble not in self._told:  # once each; every count says it in `method`
            self._told.add(trouble)
            _log.warning("tokens.counter_failed", counter=self._method, trouble=trouble, error=repr(error))
        method = f"{BYTES.method}:counter-{trouble}"
        return TokenCount(tokens=size, exact=False, method=method, over_limit=limit is not None and size > limit)


class _Question:
    """One call of the counter. It may go on after nobody waits for it any more."""

    def __init__(self, counter: TokenCounter, text: str) -> None:
        self._counter = counter
        self._text = text
        self.is_open = False
        self.error: BaseException | None = None

    async def ask(self, run: InThread) -> Any:
        """What the counter says; where it raises, nothing, with `error` set."""
        try:
            if not inspect.iscoroutinefunction(self._counter.count):
                answer = await run(self._call)
                return await self._wait(answer) if inspect.isawaitable(answer) else answer
            return await self._wait(self._counter.count(self._text))
        except (asyncio.CancelledError, KeyboardInterrupt):
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


def _whole(answer: object) -> int | None:
    """The answer as an int; None if it is not a whole number."""
    if isinstance(answer, bool):
        return None
    try:
        return int(operator.index(answer))  # type: ignore[arg-type]  # that is what is being asked
    except Exception:  # noqa: BLE001  `__index__` is theirs too
        return None
