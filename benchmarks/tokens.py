"""The cost of counting tokens, beside tiktoken alone and beside encoding a long text whole.

Everything is loaded before it is measured. The long text is prose of 10 MB, and encoding it whole is one call of
tiktoken.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.injection.tokens.counter import count, fit
from amplifier_hooks.injection.tokens.tokenizers import Unavailable, encoding
from benchmarks.options import parser
from benchmarks.rounds import QUICK, Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.rounds import Samples

PROSE: Final = "The quick brown fox jumps over the lazy dog, and no one who watched it would say why.\n"
CODE: Final = 'def total(rows: list[dict[str, int]]) -> int:\n    return sum(row["count"] for row in rows)  # all\n\n'
SIZES: Final = {"100 B": 100, "1 KB": 1_000, "10 KB": 10_240}
STEADY: Final = Effort(rounds=41, seconds=0.02)
JUDGED: Final = "10 KB"
COUNT_AT_MOST: Final = 1.3

LONG: Final = 10_000_000
LIMITS: Final = (1_000, 4_000, 32_000)
CHECK_AT_MOST: Final = 0.02
LONG_ROUNDS: Final = 11
SMALL: Final = 0.1


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("tokens", __doc__).parse_args(arguments)
    report = Report("tokens", ("tiktoken",))
    bare = by_tiktoken()

    report.text("Counting a text with o200k; µs, median.")
    rows = [
        [name, *compared(asyncio.run(measure({"bare": doing(bare, text), "ours": doing(count, text)}, effort)), target)]
        for effort in [QUICK if chosen.quick else STEADY]
        for name, text, target in texts()
    ]
    report.table(["text", "tiktoken", "ours", "ratio", *VERDICT], rows)

    text = repeated(PROSE, LONG // 100 if chosen.quick else LONG)
    effort = Effort(rounds=2 if chosen.quick else LONG_ROUNDS, seconds=0)
    report.text(f"A limit on {len(text) / 1e6:g} MB of prose, beside encoding it whole; µs, median.")
    rows = []
    for limit in LIMITS:
        ways = (
            (f"over {limit:,} tokens?", doing(count, text, None, limit), CHECK_AT_MOST),
            (f"what fits into {limit:,}", doing(fit, text, limit), None),
        )
        for way, timed, target in ways:
            samples = asyncio.run(measure({"bare": doing(bare, text), "ours": timed}, effort, number=1))
            rows.append([way, *compared(samples, target)])
    report.table(["", "encoded whole", "ours", "ratio", *VERDICT], rows)
    report.finish(write=chosen.write)


def by_tiktoken() -> Callable[[str], Any]:
    """Encoding with nothing around it."""
    found = encoding("o200k_base")
    if isinstance(found, Unavailable):
        raise SystemExit(found.reason)
    return found.encode_ordinary


def texts() -> Iterator[tuple[str, str, float | None]]:
    """Texts to count, with the ratio aimed at."""
    for kind, unit in (("prose", PROSE), ("code", CODE)):
        for size, characters in SIZES.items():
            yield f"{kind}, {size}", repeated(unit, characters), COUNT_AT_MOST if size == JUDGED else None


def repeated(unit: str, characters: int) -> str:
    """Return so many characters of the repeated unit."""
    return (unit * (characters // len(unit) + 1))[:characters]


def doing(function: Callable[..., Any], *arguments: Any) -> Timed:
    """Return a function that calls the function so many times."""

    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            function(*arguments)
        return perf_counter() - start

    return timed


def compared(samples: dict[str, Samples], target: float | None) -> list[str]:
    """The cells of one comparison."""
    bare, ours = samples["bare"], samples["ours"]
    ratio = ours.ratio(bare)
    shown = f"{ratio:.5f}" if ratio < SMALL else number(ratio)
    return [number(bare.usual), number(ours.usual), shown, *(verdict(ratio, target) if target else ("", ""))]
