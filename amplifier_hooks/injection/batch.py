"""Joins several texts into one message, and cuts the message to a number of tokens.

One text stands under the name of its hook:

    ⟦hook lint · 5f3c9e21⟧
    app.py, line 2: missing colon

Several texts stand under a heading, each with its size as the hook wrote it; a cut text is marked:

    ⟦2 texts of hooks · tool:post · 5f3c9e21⟧

    ⟦hook lint · 29 bytes · 5f3c9e21⟧
    app.py, line 2: missing colon

    ⟦hook types · 4,096 bytes · 5f3c9e21⟧
    app.py, line 7: incompatible types
    ⟦trimmed · kept 12 of 900 tokens · 5f3c9e21⟧

The heading of a hook that speaks for an outside party names it: `⟦hook review · external ·
https://hooks.example/review · 5f3c9e21⟧`. The last part is the session's mark, which no other text can know.

Tokens are always counted in the finished message: the tokens of its parts do not add up to those of the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from amplifier_hooks.injection.tokens.counter import TokenCount
from amplifier_hooks.provenance import SourceTrust
from amplifier_hooks.result import ContextInjection, Role
from amplifier_hooks.text.escape import marker

HOST: Final = SourceTrust()

TRIES: Final = 4
"""Number of attempts to cut a text shorter when the finished message is longer than its parts."""


class Counting(Protocol):
    """The interface of a counter: `Counter`, or a host's counter that `guard_counter` has wrapped."""

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """Return the number of tokens; with a limit, counting may stop once the limit is passed."""
        ...

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """Return the number of characters from the start that fit, and their count."""
        ...


class Cut(msgspec.Struct, frozen=True):
    """The kept part of a text: tokens of the text alone, without headings."""

    tokens: int
    total: int


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's text, as the model reads it."""

    item: ContextInjection
    role: Role
    text: str
    """The escaped text."""
    size: int
    """Bytes of UTF-8, as the hook wrote the text."""
    digest: str
    """SHA-256 of those bytes."""
    escaped: bool = False
    """True if characters had to be made visible."""
    cut: Cut | None = None
    source: SourceTrust = HOST
    mark: str
    """The session's mark, at the end of every heading."""

    def render(self, size: str = "") -> str:
        """Return the heading with the hook's name, the text, and a mark if the text was cut."""
        outside = (self.source.trust_level, self.source.origin) if self.source.origin else ()
        head = marker(f"hook {self.item.hook_name}", *outside, size, self.mark)
        if self.cut is None:
            return f"{head}\n{self.text}"
        line = "" if self.text.endswith("\n") else "\n"
        cut = marker("trimmed", f"kept {self.cut.tokens:,} of {self.cut.total:,} tokens", self.mark)
        return f"{head}\n{self.text}{line}{cut}"


class FittedBlocks(msgspec.Struct, frozen=True):
    """A message that fits: its text, the blocks in it, its count; and the blocks that did not fit."""

    blocks: tuple[Block, ...]
    text: str
    count: TokenCount
    rest: tuple[Block, ...] = ()


Layout: TypeAlias = Callable[[Sequence[Block]], str]


def join_blocks(blocks: Sequence[Block]) -> str:
    """Return the blocks as one message for the context."""
    if len(blocks) == 1:
        return blocks[0].render()
    heading = marker(f"{len(blocks)} texts of hooks", blocks[0].item.event, blocks[0].mark)
    return "\n\n".join([heading, *(one.render(f"{one.size:,} bytes") for one in blocks)])


def quote_blocks(blocks: Sequence[Block]) -> str:
    """Return the blocks as text inside a denial, which is the heading."""
    return "\n\n".join(one.render() for one in blocks)


async def count_blocks(blocks: Sequence[Block], whole: TokenCount, counter: Counting) -> list[TokenCount]:
    """Return the count of each block; for a single block, the count of its message."""
    if len(blocks) == 1:
        return [whole]
    return list(await asyncio.gather(*(counter.count_async(one.render()) for one in blocks)))


async def fit_blocks(
    blocks: Sequence[Block], room: int, counter: Counting, layout: Layout, *, trim: bool
) -> FittedBlocks | None:
    """Return as many of the blocks, in order, as fit into `room`; None if nothing fits.

    With `trim` the first block that does not fit is cut, and the blocks after it are left out; otherwise only the
    blocks that do not fit are left out.
    """
    chosen, over = await _choose(blocks, room, counter, trim=trim)
    fitted: FittedBlocks | None = None
    while chosen and fitted is None:
        text = layout(chosen)
        count = await counter.count_async(text, room)
        if count.over_limit:
            over = chosen.pop()
        else:
            fitted = FittedBlocks(tuple(chosen), text, count, remove_blocks(blocks, chosen))
    if trim and over is not None:
        return await _cut_block(blocks, chosen, over, room, counter, layout) or fitted
    return fitted


async def _choose(
    blocks: Sequence[Block], room: int, counter: Counting, *, trim: bool
) -> tuple[list[Block], Block | None]:
    """Return the blocks that fit by their own counts, and the first block that does not."""
    chosen: list[Block] = []
    over: Block | None = None
    left = room
    counts = await asyncio.gather(*(counter.count_async(one.render(), room) for one in blocks))
    for one, count in zip(blocks, counts, strict=True):
        if count.tokens <= left:
            chosen.append(one)
            left -= count.tokens
        else:
            over = over or one
            if trim:
                break
    return chosen, over


async def _cut_block(  # noqa: PLR0917  # one step of `fit_blocks`, with all its arguments
    blocks: Sequence[Block], before: list[Block], one: Block, room: int, counter: Counting, layout: Layout
) -> FittedBlocks | None:
    """Return the blocks before, and as much of this block as fits behind them."""
    total = (await counter.count_async(one.text)).tokens
    empty = msgspec.structs.replace(one, text="", cut=Cut(total, total))  # no marker is longer than this one
    frame = await counter.count_async(layout([*before, empty]), room)
    space = room - frame.tokens
    for _ in range(TRIES):
        if space <= 0:
            break
        end, kept = await counter.fit_async(one.text, space)
        if not one.text[:end].strip():
            break
        last = (
            msgspec.structs.replace(one, text=one.text[:end], cut=Cut(kept.tokens, total))
            if end < len(one.text)
            else one
        )
        text = layout([*before, last])
        count = await counter.count_async(text, room)
        if not count.over_limit:
            return FittedBlocks((*before, last), text, count, remove_blocks(blocks, [*before, one]))
        space -= max(1, count.tokens - room)
    return None


def remove_blocks(blocks: Sequence[Block], those: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks without `those`, compared by identity: two blocks may have equal texts."""
    known = {id(one) for one in those}
    return tuple(one for one in blocks if id(one) not in known)
