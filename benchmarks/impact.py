"""The cost of saying what a shell command would do, against a bare parse of the same command by its grammar.

The commands stand for what agents run: one program, a chain, a loop, a script that the command writes, and code in an
option. One has 1 MiB. A process keeps its last predictions, so each run gets a command with another number in it. The
last row repeats one command, and measures a kept prediction. Nothing runs, and no file is looked at.
"""

from __future__ import annotations

import asyncio
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Final

from amplifier_hooks.impact.shell import load_grammar
from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import FileFact, ImpactPolicy
from benchmarks.options import parser
from benchmarks.rounds import QUICK, THOROUGH, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.rounds import Effort, Timed

MICROSECONDS_AT_MOST: Final = 500.0
LONG_AT_MOST: Final = 50_000.0
POLICY: Final = ImpactPolicy("/home/dev/shop", "/home/dev")
LINE: Final = "a line of some text\n"
CODE: Final = "import json\nfor line in open('data.json'):\n    print(json.loads(line)['name'])\n"

NUMBER: Final = "NUMBER"
"""The place of a number in a command."""

COMMANDS: Final = {
    "one program": f"git status --short src/{NUMBER}",
    "a chain": f"cd src && grep -rn 'def main' {NUMBER} | head -5; pytest -q tests 2>&1 | tail -20",
    "a loop": f"for f in {NUMBER}/*.py; do wc -l $f; sed -n 1,5p $f; done > lines.txt",
    "a script of 4 KB": f"cat > {NUMBER}.py <<'EOF'\n{CODE * (4_000 // len(CODE))}EOF\npython {NUMBER}.py",
    "code of 4 KB": f'python3 -c "{CODE * (4_000 // len(CODE))}print({NUMBER})"',
    "1 MiB": f"cat > {NUMBER}.txt <<'EOF'\n{LINE * (1_000_000 // len(LINE))}EOF",
}
KEPT: Final = "a chain"


def _distinct(work: Callable[[str], None], command: str) -> Timed:
    numbers = count()

    async def timed(times: int) -> float:
        commands = [command.replace(NUMBER, f"{next(numbers):07}") for _ in range(times)]
        start = perf_counter()
        for one in commands:
            work(one)
        return perf_counter() - start

    return timed


def _repeated(work: Callable[[str], None], command: str) -> Timed:
    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            work(command)
        return perf_counter() - start

    return timed


def _parse(command: str) -> None:
    import tree_sitter

    tree_sitter.Parser(load_grammar()).parse(command.encode())


def _predict(command: str) -> None:
    predict_impact("Bash", {"command": command}, POLICY, FileFact)


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("impact", __doc__).parse_args(arguments)
    effort = QUICK if chosen.quick else THOROUGH
    report = Report("impact", ("tree-sitter", "tree-sitter-bash"))
    report.text(
        "The impact of one command, beside a bare parse of the same command; µs, median, and the ratio. Each run has "
        "another command, but in the last row: there the process has kept the prediction."
    )
    rows = [_row(name, _distinct, command, effort) for name, command in COMMANDS.items()]
    rows.append(_row(f"{KEPT}, kept", _repeated, COMMANDS[KEPT], effort))
    report.table(["command", "bare parse", "ours", "ratio", *VERDICT], rows)
    report.finish(write=chosen.write)


def _row(name: str, runs: Callable[[Callable[[str], None], str], Timed], command: str, effort: Effort) -> list[str]:
    _predict(command)  # the first one of a process reads the tables
    samples = asyncio.run(measure({"bare": runs(_parse, command), "ours": runs(_predict, command)}, effort))
    bare, ours = samples["bare"], samples["ours"]
    most = LONG_AT_MOST if name == "1 MiB" else MICROSECONDS_AT_MOST
    return [name, number(bare.usual), number(ours.usual), number(ours.ratio(bare)), *verdict(ours.usual, most)]
