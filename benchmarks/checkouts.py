"""The subjects of another checkout, each measured in a process of its own, in the same rounds as those of this one.

The process runs in the other checkout with its interpreter (`.venv/bin/python`), and works only while it is asked, so
that the rounds stay interleaved. Both checkouts need the benchmark whose subjects are compared.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.rounds import Timed

__all__ = ["subject_of"]

WORKER: Final = """
import asyncio, importlib, sys
sys.path.insert(0, "")
module, function, name = sys.argv[1:]

async def work():
    timed = getattr(importlib.import_module(module), function)()[name]
    for line in sys.stdin:
        print(await timed(int(line)), flush=True)

asyncio.run(work())
"""


@contextmanager
def subject_of(checkout: Path, module: str, function: str, name: str) -> Iterator[Timed]:
    """Yield the subject `name` of `function()` in a benchmark of another checkout, for the `with` block."""
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{checkout} has no environment: run `uv sync --all-extras` there")
    command = [str(python), "-c", WORKER, module, function, name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=checkout, stdin=pipe, stdout=pipe, text=True) as worker:
        asked, answered = worker.stdin, worker.stdout
        if asked is None or answered is None:  # both are pipes
            raise RuntimeError

        async def timed(times: int) -> float:
            asked.write(f"{times}\n")
            asked.flush()
            return float(await asyncio.to_thread(answered.readline))

        try:
            yield timed
        finally:
            asked.close()
