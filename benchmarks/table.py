"""Results as markdown: printed, and kept in the benchmark's own section of RESULTS.md.

    report = Report("dispatch")
    report.table(["case", "ratio", *VERDICT], [["1 hook", "3.10", *verdict(3.1, 7)]])
    report.finish(write=True)

A section says when and on what it was measured: versions, the date, the interpreter, its event loop and the number of
cores. It never names a machine. Sections are of the oldest Python that is supported and of asyncio's own loop; those of
another Python or loop stand beside them under a title that names it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["NOTHING", "RESULTS", "VERDICT", "Report", "loop_version", "number", "replaced", "verdict"]

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
TITLE: Final = "# Benchmark results\n\nEach section is written by `python -m benchmarks NAME --write`.\n"
VERDICT: Final = ("target", "verdict")

NOTHING: Final = "–"  # noqa: RUF001  # the dash of tables
OLDEST: Final = (3, 11)
WHOLE_FROM: Final = 100
ONE_DIGIT_FROM: Final = 10


class Report:
    """The section of one benchmark, printed as it grows."""

    def __init__(self, name: str, packages: Sequence[str] = ()) -> None:
        self.name = ", ".join([name, *other_circumstances()])
        self._parts: list[str] = []
        self.text(f"## {self.name}")
        self.text(_circumstances(packages))

    def text(self, paragraph: str) -> None:
        """Add a paragraph."""
        self._parts.append(paragraph)
        print(paragraph, end="\n\n", flush=True)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table; the first column is text, the others are figures."""
        lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
        self.text("\n".join(f"| {' | '.join(cells)} |" for cells in lines))

    def explain(self, missed: Iterable[str], why: Mapping[str, str]) -> None:
        """Name the reason for every target that was missed."""
        reasons = [f"- {name}: {why[name]}" for name in missed if name in why]
        if reasons:
            self.text("Missed targets, and the reasons:\n\n" + "\n".join(reasons))

    def finish(self, *, write: bool) -> None:
        """Keep the section in RESULTS.md, if wanted; the other sections stay as they are."""
        if write:
            text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else TITLE
            RESULTS.write_text(replaced(text, self.name, "\n\n".join(self._parts)), encoding="utf-8")


def replaced(text: str, name: str, section: str) -> str:
    """The text with this section between its markers, appended where it has none yet."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, marker, rest = text.partition(start)
    _old, _end, after = rest.partition(end)
    if not marker:
        before = f"{text.rstrip()}\n\n"
    return f"{before}{start}{section}\n{end}{after}"


def number(value: float | None) -> str:
    """A figure with about three digits that mean something."""
    if value is None:
        return NOTHING
    if value >= WHOLE_FROM:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= ONE_DIGIT_FROM else f"{value:.2f}"


def verdict(value: float, target: float) -> tuple[str, str]:
    """The two cells that say what was aimed at, and whether it was reached."""
    return f"≤ {target:g}", "met" if value <= target else "**missed**"


def other_circumstances() -> list[str]:
    """Return the Python and the loop of this process where they are not the usual ones."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}" if sys.version_info[:2] != OLDEST else ""
    return [one for one in (python, loop_version().partition(" ")[2].partition(" ")[0]) if one]


def loop_version() -> str:
    """Return the name and version of another loop than asyncio's own."""
    policy = type(asyncio.get_event_loop_policy()).__module__
    return f", uvloop {version('uvloop')}" if policy.startswith("uvloop") else ""


def _circumstances(packages: Sequence[str]) -> str:
    versions = "".join(f", {package} {version(package)}" for package in packages)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}. amplifier-hooks {version('amplifier-hooks')}{versions}; "
        f"{platform.python_implementation()} {platform.python_version()}{loop_version()}, "
        f"{platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores."
    )
