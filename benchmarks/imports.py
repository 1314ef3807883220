"""The time to import the front door, beside modules that nearly every program that uses it has loaded anyway.

Each sample is a fresh interpreter that reads its processor time before and after the import: neither its own start nor
other programs are in it. Both imports of the base are made in one interpreter: what they share is counted once. All
modules are compiled beforehand, as they are where a program runs for the second time, whatever the environment says.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from benchmarks.options import parser
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE: Final = "import pydantic, asyncio"
OURS: Final = "from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator"
AT_MOST: Final = 1.3

PROGRAM: Final = """\
from time import process_time
start = process_time()
{statement}
print(process_time() - start)
"""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    options = parser("imports", __doc__)
    chosen = options.parse_args(arguments)
    report = Report("imports", ("pydantic",))

    effort = Effort(rounds=3 if chosen.quick else 31, seconds=0)
    subjects = (BASE, OURS, "import asyncio", "import msgspec", "import attrs")
    with TemporaryDirectory() as compiled:
        timed = {statement: importing(statement, compiled) for statement in subjects}
        samples = asyncio.run(measure(timed, effort, number=1))  # the round that is thrown away compiles

    base = samples[BASE]
    rows = []
    for statement in subjects:
        own = samples[statement]
        judged = verdict(own.ratio(base), AT_MOST) if statement == OURS else ("", "")
        rows.append(
            [f"`{statement}`", number(own.best / 1e3), number(own.usual / 1e3), number(own.ratio(base)), *judged]
        )
    report.table(["", "ms, fastest", "ms, median", "ratio", *VERDICT], rows)
    report.finish(write=chosen.write)


def importing(statement: str, compiled: str) -> Timed:
    """The import in interpreters of its own, which keep what they compile in a folder."""
    environment = compiling_into(compiled)
    command = [sys.executable, "-c", PROGRAM.format(statement=statement)]

    def once() -> float:
        return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)

    async def timed(number: int) -> float:
        return sum(once() for _ in range(number))

    return timed


def compiling_into(folder: str) -> dict[str, str]:
    """Return the environment of an interpreter that keeps its compiled modules in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}
