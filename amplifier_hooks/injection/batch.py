"""Several texts as one message, and as much of it as fits into a number of tokens.

One text stands under the name of its hook:

    ⟦hook lint⟧
    app.py, line 2: missing colon

Several stand under a heading, each with its size as the hook wrote it; one that was cut says so:

    ⟦2 texts of hooks · tool:post⟧

    ⟦hook lint · 29 bytes⟧
    app.py, line 2: missing colon

    ⟦hook types · 4,096 bytes⟧
    app.py, line 7: incompatible types
    ⟦trimmed · kept 12 of 900 tokens⟧

A hook that speaks for somebody outside says for whom: `⟦hook review · external · https://hooks.example/review⟧`.

What is counted is always the finished message: the tokens of its parts do not add up to those of the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from attrs import evolve, frozen

from amplifier_hooks.provenance import SourceTrust
from amplifier_hooks.text.escape import marker

if TYPE_CHECKING:
    from amplifier_hooks.injection.tokens.counter import TokenCount
    from amplifier_hooks.result import ContextInjection, Role


HOST: Final = SourceTrust()

TRIES: Final = 4
"""How often a text is cut shorter because the finished message came out longer than its parts."""


class Counting(Protocol):
    """What is asked of a counter: `tokens.Counter`, or somebody's own under `tokens.guarded`."""

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """How many tokens; with a limit, counting may stop once it is over."""
        ...

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """How many characters from the start fit, and their count."""
        ...


@frozen
class Cut:
    """How much of a text was kept: tokens of its own, without headings."""

    kept: int
    total: int


@frozen(kw_only=True)
class Block:
    """One hook's text, as the model reads it."""

    item: ContextInjection
    role: Role
    text: str
    """Escaped."""
    size: int
    """Bytes of UTF-8, as the hook wrote it."""
    digest: str
    """SHA-256 of those."""
    escaped: bool = False
    """Whether characters had to be made visible."""
    cut: Cut | None = None
    source: SourceTrust = HOST

    def render(self, size: str = "") -> str:
        """Whose text it is, the text, and how much is missing."""
        whose = (
            f"hook {self.item.hook_name}",
            *((self.source.trust_level, self.source.origin) if self.source.origin else ()),
        )
        head = marker(*whose, size) if size else marker(*whose)
        if self.cut is None:
            return f"{head}\n{self.text}"
        line = "" if self.text.endswith("\n") else "\n"
        return f"{head}\n{self.text}{line}{marker('trimmed', f'kept {self.cut.kept:,} of {self.cut.total:,} tokens')}"


@frozen
class FittedBlocks:
    """A message that fits: its text, the blocks in it, its count; and the blocks that did not fit."""

    blocks: tuple[Block, ...]
    text: str
    count: TokenCount
    left: tuple[Block, ...] = ()


Layout: TypeAlias = Callable[[Sequence[Block]], str]


def join_blocks(blocks: Sequence[Block]) -> str:
    """One message for the context."""
    if len(blocks) == 1:
        return blocks[0].render()
    heading = marker(f"{len(blocks)} texts of hooks", blocks[0].item.event)
    return "\n\n".join([heading, *(one.render(f"{one.size:,} bytes") for one in blocks)])


def quote_blocks(blocks: Sequence[Block]) -> str:
    """Inside a denial, which is the heading."""
    return "\n\n".join(one.render() for one in blocks)


async def count_blocks(blocks: Sequence[Block], whole: TokenCount, counter: Counting) -> list[TokenCount]:
    """The count of every block for itself; of a single one, that of its message."""
    if len(blocks) == 1:
        return [whole]
    return list(await asyncio.gather(*(counter.count_async(one.render()) for one in blocks)))


async def fit_blocks(
    blocks: Sequence[Block], room: int, counter: Counting, layout: Layout, *, trim: bool
) -> FittedBlocks | None:
    """As many of the blocks, in order, as `room` holds.

    With `trim` the first one that does not fit is cut, and those after it are left out; else it is left out itself.
    None where nothing fits.
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
    """The blocks that fit by their own counts, and the first that does not."""
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


async def _cut_block(  # noqa: PLR0917  # one step of `fit`, with all it has
    blocks: Sequence[Block], before: list[Block], one: Block, room: int, counter: Counting, layout: Layout
) -> FittedBlocks | None:
    """The blocks before, and as much of this one as fits behind them."""
    total = (await counter.count_async(one.text)).tokens
    empty = evolve(one, text="", cut=Cut(total, total))  # no marker is longer than this one
    frame = await counter.count_async(layout([*before, empty]), room)
    space = room - frame.tokens
    for _ in range(TRIES):
        if space <= 0:
            break
        end, kept = await counter.fit_async(one.text, space)
        if not one.text[:end].strip():
            break
        last = evolve(one, text=one.text[:end], cut=Cut(kept.tokens, total)) if end < len(one.text) else one
        text = layout([*before, last])
        count = await counter.count_async(text, room)
        if not count.over_limit:
            return FittedBlocks((*before, last), text, count, remove_blocks(blocks, [*before, one]))
        space -= max(1, count.tokens - room)
    return None


def remove_blocks(blocks: Sequence[Block], those: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks that are none of those. Two may say the same and are still two."""
    known = {id(one) for one in those}
    return tuple(one for one in blocks if id(one) not in known)
