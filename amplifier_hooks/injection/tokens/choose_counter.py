"""A text comes in; its number of tokens for a model goes out, offline, and exact where the tokenizer is public.

    count(text, model, limit)     → TokenCount
    count_async(…)                  the same, off the event loop where it would take long
    fit(text, limit, model)       → how many characters fit, and their TokenCount
    counter_for(model)            → Counter, with count, fit and both as _async
    guarded(counter, run=…)       → the same two _async methods over a counter of the host's own

The table in `tokenizer_of_model.py` says which tokenizer a model has, and which counts are estimates. A `Counter` may
stand wherever a `TokenCounter` is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from amplifier_hooks.injection.tokens.counter import Counter, GuardedCounter, InThread, TokenCount
from amplifier_hooks.injection.tokens.tokenizers import Yardstick, yardstick

if TYPE_CHECKING:
    from amplifier_hooks.ports import TokenCounter


def counter_for(model: str | None = None) -> Counter:
    """The counter for a model. Nothing is loaded before it counts."""
    return _counter(yardstick(model))


@cache  # there are about ten yardsticks
def _counter(yardstick: Yardstick) -> Counter:
    return Counter(yardstick)


def guard_counter(counter: TokenCounter, *, run: InThread, deadline: float = 2.0) -> Counter | GuardedCounter:
    """A counter that can be relied on, from one that may fail, hang or lie. Ours come back as they are."""
    return counter if isinstance(counter, Counter) else GuardedCounter(counter, run=run, deadline=deadline)


def count(text: str, model: str | None = None, limit: int | None = None) -> TokenCount:
    """How many tokens a text has for a model; with a limit, counting may stop once it is over."""
    return counter_for(model).count(text, limit)


async def count_async(text: str, model: str | None = None, limit: int | None = None) -> TokenCount:
    """`count`; in a thread if the tokenizer has to be loaded or the text is long."""
    return await counter_for(model).count_async(text, limit)


def fit(text: str, limit: int, model: str | None = None) -> tuple[int, TokenCount]:
    """How many characters from the start fit into the limit, cut at a line or inside a long one; and their count."""
    return counter_for(model).fit(text, limit)
