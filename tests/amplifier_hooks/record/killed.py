"""Writers that are killed: `killed.py FOLDER COUNT SEED` prints the acknowledged numbers of each writer on one line.

Each is a fork of this process, which itself only opens the log between them, as the next writer would.
"""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.record.writer import WriteSchedule

SIZES = (400, 4_000, 20_000, 45_000, 200_000)
PACE = WriteSchedule(lines=16, segment=1 << 20)
TASKS = 8


def write(path: Path, first: int, told: int) -> None:
    """Write until killed, and report each number once its record is on disk."""

    async def task(log: AuditLog, start: int) -> None:
        for number in range(start, start + 10_000, TASKS):
            await log.write("note", {"text": "y" * 300})
            await log.write("decision", {"number": number, "text": "x" * SIZES[number % len(SIZES)]}, durable=True)
            os.write(told, b"%d\n" % number)

    async def main() -> None:
        log = AuditLog.open(path, key=AuditKey(b"\x07" * 32), pace=PACE)
        await asyncio.gather(*(task(log, first + offset) for offset in range(TASKS)))

    asyncio.run(main())


def killed(path: Path, first: int, after: int) -> list[int]:
    """Kill one writer when `after` of its records are on disk, and return the acknowledged numbers."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            write(path, first, writer)
        finally:
            os._exit(1)
    os.close(writer)
    told = b""
    while told.count(b"\n") < after:
        told += os.read(reader, 65_536)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reader, 65_536):
        told += more
    os.close(reader)
    return [int(number) for number in told.split(b"\n")[:-1]]


def main(folder: str, count: str, seed: str) -> None:
    """Kill the given number of writers, one after the other."""
    path, chance = Path(folder) / "record.jsonl", random.Random(int(seed))  # not for secrets
    for turn in range(int(count)):
        sys.stdout.write(json.dumps(killed(path, turn * 10_000, chance.randint(1, 60))) + "\n")
        sys.stdout.flush()  # before the next fork


if __name__ == "__main__":
    main(*sys.argv[1:])
