"""The rates of redaction and verification, beside those of another checkout: `--checkout FOLDER`.

The other checkout runs in its own environment (`FOLDER/.venv`), and both in processes of their own, so that one program
measures them alike; their rounds alternate. Both verify one file, which this checkout writes. Times are the
processor's.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from benchmarks import audit_verify, redaction
from benchmarks.options import parser
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import Report, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MEGABYTES: Final = 8
SIZE: Final = 300_000
ROUNDS: Final = 15
AT_LEAST: Final = {
    "verify": 2.3,
    "nothing but tokens": 1.5,
    "nothing but passwords": 1.5,
    "one each 1 KiB": 1.5,
    "one each 4 KiB": 1.5,
}
"""The subjects, and the rate of each beside the other checkout's."""

UNBROKEN: Final = ("unbroken", "intact")
"""The verdict about the file, in the words of either checkout."""

WHY: Final = (
    "Of the 2.6 µs for a line of a record, 1.9 go to work that no verifier can leave out: decoding (0.65), encoding to "
    "compare (0.28), the hash (0.56), the signatures (0.28: 64 µs for every 256 lines) and reading (0.15). That "
    "alone would be 1.9 times the other checkout's rate. Taking 32 lines at once where none of them is special saved "
    "5 %. Two processes would halve the wait for large records, and not the processor's time. In a text with a secret "
    "in every 50 characters, finding their positions takes half of the time."
)

PROGRAM: Final = """
import asyncio, sys, time
from pathlib import Path
sys.path.insert(0, ".")
from amplifier_hooks.library import RedactSecrets
try:
    from amplifier_hooks.record.line import VerifierKey
    from amplifier_hooks.record.verify import verify
except ModuleNotFoundError:  # the names of an older checkout
    from amplifier_hooks.effects.audit.checkpoint import VerifierKey
    from amplifier_hooks.effects.audit.verify import verify
path, key = Path(sys.argv[1]), VerifierKey.parse(sys.argv[2])
hook, loop = RedactSecrets(environment={}), asyncio.new_event_loop()
texts = eval(sys.stdin.readline())

def work(name):
    if name == "verify":
        return verify({1: path}, keys=[key]).verdict.value
    data = {"tool_name": "Read", "tool_input": {}, "result": texts[name]}
    return str(loop.run_until_complete(hook.after("tool:post", data)).data["result"].count("[redacted"))

for line in sys.stdin:
    name, times = line.rstrip("\\n").split("\\t")
    start = time.process_time()
    for _ in range(int(times)):
        found = work(name)
    print(time.process_time() - start, found, sep="\\t", flush=True)
"""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    options = parser("since", __doc__)
    options.add_argument("--checkout", type=Path, help="a folder with another checkout, and its environment in .venv")
    chosen = options.parse_args(arguments)
    here = Path(__file__).parents[1]
    other: Path = chosen.checkout.resolve() if chosen.checkout else here
    effort = Effort(rounds=2 if chosen.quick else ROUNDS, seconds=0)
    report = Report("since", ("msgspec",))
    if not chosen.checkout:
        report.text("No other checkout was named: this one stands beside itself, and the figures mean nothing.")
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory())) / "record.jsonl"
        audit_verify.write(path, 100_000 if chosen.quick else MEGABYTES * 1_000_000)
        size = 10_000 if chosen.quick else SIZE
        texts = {name: (redaction.TEXTS[name] * size)[:size] for name in AT_LEAST if name in redaction.TEXTS}
        python = other / ".venv" / "bin" / "python" if chosen.checkout else Path(sys.executable)
        before, after = (
            measured_by(stack, program, folder, path, texts)
            for program, folder in ((python, other), (Path(sys.executable), here))
        )
        subjects = {f"{at} {name}": by(name) for name in AT_LEAST for at, by in (("before", before), ("now", after))}
        samples = asyncio.run(measure(subjects, effort, number=1))
    rows = []
    for name, wanted in AT_LEAST.items():
        amount = len(texts[name]) if name in texts else MEGABYTES * 1_000_000
        rates = [amount / samples[f"{at} {name}"].usual for at in ("before", "now")]
        times = samples[f"before {name}"].ratio(samples[f"now {name}"])
        judged = [f"≥ {wanted:g}", "met" if times >= wanted else "**missed**"] if chosen.checkout else ["", ""]
        rows.append([name, *map(number, rates), number(times), *judged])
    report.text("MB/s of the processor, median, and the ratio of the rates.")
    report.table(["", "the other checkout", "this one", "times", "target", "verdict"], rows)
    report.text(WHY)
    report.finish(write=chosen.write)


def measured_by(
    stack: ExitStack, python: Path, folder: Path, path: Path, texts: dict[str, str]
) -> Callable[[str], Timed]:
    """Return the measurement of each subject by the code in a folder, in a process of its own."""
    process = stack.enter_context(
        subprocess.Popen(
            [str(python), "-c", PROGRAM, str(path), audit_verify.KEY.vkey()],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stack.callback(stdin.close)
    print(repr(texts), file=stdin, flush=True)

    def subject(name: str) -> Timed:
        async def timed(times: int) -> float:
            print(name, times, sep="\t", file=stdin, flush=True)
            spent, found = stdout.readline().split("\t")
            if name == "verify" and found.strip() not in UNBROKEN:
                raise SystemExit(f"the record that was written is {found}")
            return float(spent)

        return timed

    return subject
