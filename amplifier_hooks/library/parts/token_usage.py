"""What a model call used, as its provider says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST: Final = 10**12
"""Tokens one answer can claim to have used; more is no number of tokens."""


def tokens_of(data: Mapping[str, Any]) -> dict[str, int] | None:
    """The tokens of one answer by their price, in the words of any provider; None where it does not say."""
    usage = data.get("usage") or _member(data.get("response"), "usage")
    read = _count(usage, "input_tokens", "prompt_tokens")
    wrote = _count(usage, "output_tokens", "completion_tokens")
    if read is None and wrote is None:
        return None
    details = _member(usage, "input_tokens_details") or _member(usage, "prompt_tokens_details")
    # Some count what came from a cache among what was read, others beside it.
    within = min(_count(details, "cached_tokens") or 0, read or 0)
    return {
        "input": (read or 0) - within,
        "output": wrote or 0,
        "cache_read": within + (_count(usage, "cache_read_input_tokens") or 0),
        "cache_write": _count(usage, "cache_creation_input_tokens") or 0,
    }


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: object, *names: str) -> int | None:
    for name in names:
        count = _member(usage, name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST:
            return count
    return None
