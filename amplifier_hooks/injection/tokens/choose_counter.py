"""Counts tokens of a text for a model, offline, and exactly where the model's tokenizer is public.

    count(text, model, limit)     → TokenCount
    count_async(…)                → TokenCount, off the event loop where counting takes long
    fit(text, limit, model)       → number of characters that fit, and their TokenCount
    counter_for(model)            → Counter, with count, fit and both as _async
    guard_counter(counter, run=…) → count_async and fit_async over a counter of the host's own

The table in `tokenizers.py` lists the tokenizer of each model, and the counts that are estimates. A `Counter` may be
used wherever a `TokenCounter` is expected.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from amplifier_hooks.injection.tokens.counter import Counter, GuardedCounter, InThread, TokenCount
from amplifier_hooks.injection.tokens.tokenizers import Yardstick, yardstick

if TYPE_CHECKING:
    from amplifier_hooks.ports import TokenCounter


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
