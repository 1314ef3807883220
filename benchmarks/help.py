"""The time of `amplifier-hooks --help`, beside importing the libraries that any such command line needs.

Each sample is a whole process, from its start to its end. All modules are compiled beforehand, as they are where the
command runs for the second time, whatever the environment here says.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks.imports import compiling_into
from benchmarks.options import parser
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_MOST: Final = 1.3
BASE: Final = "python -c 'import typer, rich'"
HELP: Final = "amplifier-hooks --help"
COMMANDS: Final = {
    BASE: ["-c", "import typer, rich"],
    HELP: ["-m", "amplifier_hooks", "--help"],
    "python -c pass": ["-c", "pass"],
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("help", __doc__).parse_args(arguments)
    report = Report("help", ("typer", "rich"))
    effort = Effort(rounds=3 if chosen.quick else 31, seconds=0)
    with TemporaryDirectory() as compiled:
        environment = compiling_into(compiled)
        subjects = {name: running([sys.executable, *rest], environment) for name, rest in COMMANDS.items()}
        samples = asyncio.run(measure(subjects, effort, number=1))  # the round that is thrown away compiles
    base = samples[BASE]
    rows = []
    for name, own in samples.items():
        judged = verdict(own.ratio(base), AT_MOST) if name == HELP else ("", "")
        rows.append([f"`{name}`", number(own.best / 1e3), number(own.usual / 1e3), number(own.ratio(base)), *judged])
    report.table(["", "ms, fastest", "ms, median", "ratio", *VERDICT], rows)
    report.finish(write=chosen.write)


def running(command: list[str], environment: dict[str, str]) -> Timed:
    """Return a function that runs the command, each time in a process of its own."""

    def once() -> float:
        began = perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        return perf_counter() - began

    async def timed(number: int) -> float:
        return sum(once() for _ in range(number))

    return timed
