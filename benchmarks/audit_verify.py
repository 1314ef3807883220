"""The cost of verifying a record, beside hashing its bytes at one go; and the memory it takes for a gigabyte.

The record is one file of lines like those a session writes, with a signed checkpoint every 256. `chain` follows the
hashes and nothing else; `verify` is the command's work: also every line's JSON, its number, its place and its time,
and every signature. The stranger's verifier is the one among the examples. Times are the processor's: one thread does
the work, and the machine may be shared.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.record.line import ChainPosition, Opening, VerifierKey, encode_log_record, read, unseal
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.record.read_segment import iter_chained, open_segment
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from benchmarks.options import parser
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.rounds import Samples

MEGABYTES: Final = 64
GIGABYTE: Final = 1_000_000_000
ROUNDS: Final = 11
CHAIN_AT_LEAST: Final = 250
VERIFY_AT_LEAST: Final = 100
MEMORY_AT_MOST: Final = 64

KEY: Final = AuditKey(b"\x07" * 32)
TIME: Final = "2026-11-18T15:02:11.201340+00:00"
CHUNK: Final = 1 << 18
DUE: Final = 256
"""Lines between two checkpoints."""
ALONE: Final = """
import resource, sys, time
from pathlib import Path
from amplifier_hooks.record.line import VerifierKey
from amplifier_hooks.record.verify import verify
start = time.process_time()
report = verify({1: Path(sys.argv[1])}, keys=[VerifierKey.parse(sys.argv[2])])
spent = time.process_time() - start
if sys.platform == "linux":  # where getrusage also counts what the process was forked from
    (memory,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
else:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(report.verdict.value, spent, memory, sep="\\n")
"""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("audit_verify", __doc__).parse_args(arguments)
    report = Report("audit_verify", ("msgspec", "cryptography"))
    size, large = (200_000, 2_000_000) if chosen.quick else (MEGABYTES * 1_000_000, GIGABYTE)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "record.jsonl"
        lines = write(path, size)
        bytes_there = path.stat().st_size
        report.text(f"A record of {lines:,} lines, {bytes_there // lines} bytes each on average; MB/s.")
        subjects = {
            "one hash over the file": doing(lambda: hashed(path)),
            "chain": doing(lambda: follow(path)),
            "verify": doing(lambda: unbroken(path)),
            "stranger's verifier": doing(stranger(path)),
        }
        samples = asyncio.run(measure(subjects, Effort(rounds=2 if chosen.quick else ROUNDS, seconds=0), number=1))
        targets = {"chain": CHAIN_AT_LEAST, "verify": VERIFY_AT_LEAST}
        rows = [speeds(name, found, bytes_there, targets.get(name)) for name, found in samples.items()]
        report.table(["", "median", "best", *VERDICT], rows)

        report.text(
            f"Files of {large / 1e9:g} GB, verified by a process of its own; the memory is its peak, all in all."
        )
        write(path, large)
        rows = [alone("a record", path)]
        with path.open("wb") as file:
            for _ in range(large // CHUNK):
                file.write(b"{" * CHUNK)
        rows.append(alone("one line without an end", path))
        with path.open("wb") as file:
            file.truncate(large)
        rows.append(alone("a hole", path))
        report.table(["", "seconds", "MiB", *VERDICT], rows)
    report.finish(write=chosen.write)


def write(path: Path, size: int) -> int:
    """A closed record of about this size; the number of its lines."""
    strand = ChainPosition.begin(Opening(log="5b" * 16, segment=1).with_key(KEY.public), 0)
    facts: dict[str, Any] = {
        "number": 17,
        "session": "992889228c00444983248717f7658fdb",
        "tenant": "acme",
        "event": "tool:pre",
        "action": "continue",
        "digest": "5d2517a438a94c605e0a889bf6995f32acb8fb12314e8b705f148978860d663f",
        "answers": [{"hook": "lint", "action": "continue", "status": "ok", "error": None, "duration_ms": 0.2215}],
    }
    outcome = encode_log_record("outcome", facts)
    with path.open("wb") as file:
        file.write(strand.add(encode_log_record("segment.opened", strand.opening.facts()), TIME))
        while strand.length < size:
            file.write(strand.add(outcome, TIME) if strand.since < DUE else strand.checkpoint(KEY)[0])
        file.write(strand.add(encode_log_record("log.closed", {}), TIME))
        file.write(strand.checkpoint(KEY)[0])
    return strand.seq


def hashed(path: Path) -> None:
    """SHA-256 over all bytes: nothing that verifies can be faster."""
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def follow(path: Path) -> None:
    """Follow the chain, from the first line to the last."""
    with open_segment(path) as pages:
        first = next(pages.lines())
        for _ in iter_chained(pages.lines(), Opening.of(read(unseal(first)[0]).facts).head()):
            pass


def unbroken(path: Path) -> None:
    """Verify the record as the command does."""
    if verify({1: path}, keys=[VerifierKey.parse(KEY.vkey())]).verdict is not LogVerdict.UNBROKEN:
        raise SystemExit("the record that was written does not verify")


def stranger(path: Path) -> Callable[[], object]:
    """The verifier of the examples, on this record."""
    example = Path(__file__).parents[1] / "examples" / "verify_audit.py"
    spec = importlib.util.spec_from_file_location("verify_audit", example)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{example} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda: module.verify(path, KEY.public)


def doing(work: Callable[[], object]) -> Timed:
    """Return a function that does the work so many times."""

    async def timed(count: int) -> float:
        start = process_time()
        for _ in range(count):
            work()
        return process_time() - start

    return timed


def speeds(name: str, samples: Samples, size: int, target: int | None) -> list[str]:
    """A row of MB/s."""
    usual, best = size / samples.usual, size / samples.best  # bytes in µs are MB in s
    judged = [f"≥ {target}", "met" if usual >= target else "**missed**"] if target else ["", ""]
    return [name, number(usual), number(best), *judged]


def alone(name: str, path: Path) -> list[str]:
    """Return a row of the time and memory that a fresh process needs to verify the record."""
    command = [sys.executable, "-c", ALONE, str(path), KEY.vkey()]
    said, spent, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[:3]
    mebibytes = int(memory) / 2**20
    return [f"{name}: {said}", number(float(spent)), number(mebibytes), *verdict(mebibytes, MEMORY_AT_MOST)]
