"""The cost of looking for secrets by the byte, also in longer texts: a part of `library`.

The hook `redact_secrets` is given texts of one size and of four times that. Beside it stands what one would write
first: one expression for Python's `re`, with `sub` over the whole text; not where the text is hostile, for there it
would take hours. 20 ns a byte are 50 MB/s.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.library import RedactSecrets
from amplifier_hooks.text.secrets import SHAPES
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import VERDICT, number, verdict

if TYPE_CHECKING:
    from benchmarks.table import Report

SIZE: Final = 1_000_000
TIMES: Final = 4
ROUNDS: Final = 7
NS_AT_MOST: Final = 20.0
GROWTH_AT_MOST: Final = 1.5

LINE: Final = "The quick brown fox jumps over the lazy dog; def password(self): return self.x + 1\n"
TOKEN: Final = f"here is ghp_{'a1B2' * 9} you see\n"
ASSIGNED: Final = "export DB_PASSWORD=hunter22\n"

TEXTS: Final = {
    "no secret": LINE,
    "one each 64 KiB": LINE * (65_536 // len(LINE)) + TOKEN,
    "one each 4 KiB": LINE * (4_096 // len(LINE)) + TOKEN,
    "one each 1 KiB": LINE * (1_024 // len(LINE)) + TOKEN,
    "nothing but tokens": TOKEN,
    "nothing but passwords": ASSIGNED,
    "beginnings of web tokens": "-eyJabcdefgh",
    "beginnings of passwords": "password",
    "beginnings of URLs": "://a:",
    "beginnings of keys": "-----BEGIN ",
}
"""By name, what a text repeats."""

HONEST: Final = 6
"""So many of them are not made to be slow."""

WHY: Final = (
    "every secret that is found costs a match in Python's `re`, its place in a list and two slices of the text, some "
    "half a microsecond together; where one stands in every 28 bytes, that alone is about what all of it may cost."
)


def add_to(report: Report, *, quick: bool) -> None:
    """Measure, and put it into a report."""
    report.text(f"Looking for secrets in {SIZE:,} characters and in {TIMES} times that; ns a byte, median.")
    size, rounds = (4_000, 2) if quick else (SIZE, ROUNDS)
    cells = []
    missed = False
    for index, (name, repeated) in enumerate(TEXTS.items()):
        ours, theirs, growth = asyncio.run(costs(repeated, size, rounds, beside=index < HONEST))
        aimed = verdict(ours, NS_AT_MOST)
        missed = missed or ours > NS_AT_MOST
        times = None if theirs is None else theirs / ours
        linear = verdict(growth, GROWTH_AT_MOST)
        cells.append(
            [name, number(ours), *aimed, number(1e3 / ours), number(theirs), number(times), number(growth), *linear]
        )
    heads = [
        "text",
        "hook",
        *VERDICT,
        "MB/s",
        "one `re`",
        "times ours",
        f"{TIMES} times the text",
        *VERDICT,
    ]
    report.table(heads, cells)
    report.explain(["many secrets"] if missed else [], {"many secrets": WHY})


async def costs(repeated: str, size: int, rounds: int, *, beside: bool) -> tuple[float, float | None, float]:
    """Nanoseconds a byte for the hook and for one expression, and how those of the hook grow with the text."""
    end = "" if repeated == LINE else f"\n{TOKEN}"
    texts = {times: repeated * (size * times // len(repeated) + 1) + end for times in (1, TIMES)}
    subjects = {"short": by_hook(texts[1]), "long": by_hook(texts[TIMES])}
    if beside:
        subjects["re"] = by_expression(texts[1])
    samples = await measure(subjects, Effort(rounds, 0), number=1)
    short, long = len(texts[1].encode()), len(texts[TIMES].encode())
    growth = samples["long"].ratio(samples["short"]) * short / long
    theirs = samples["re"].usual * 1e3 / short if beside else None
    return samples["short"].usual * 1e3 / short, theirs, growth


def by_hook(text: str) -> Timed:
    """The hook after a tool, called directly."""
    hook = RedactSecrets(environment={})
    data: dict[str, Any] = {"tool_name": "Read", "tool_input": {}, "result": text}

    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            await hook.after("tool:post", data)
        return perf_counter() - start

    return timed


def by_expression(text: str) -> Timed:
    """One expression for everything."""
    whole = re.compile("|".join(f"(?:{shape.least})" for shape in SHAPES), re.ASCII)

    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            whole.sub("[redacted]", text)
        return perf_counter() - start

    return timed
