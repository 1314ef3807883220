"""Other dispatchers, each in an environment of its own.

They need versions of shared libraries that we do not, so none of them is a dependency of ours. An environment is made
under `.bench/` when it is first wanted, with the Python and the loop of this process; `worker.py` runs in it, and
measures the peer and the bare loop in the same process with the same rounds as ours. A peer that cannot be installed is
reported as not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.table import loop_version

__all__ = ["PEERS", "Measured", "ask"]

ROOT: Final = Path(__file__).parent.parent
CACHE: Final = ROOT / ".bench"
PATIENCE: Final = 900

PEERS: Final = {
    "amplifier-core": "amplifier-core==2.0.2",
    "blinker": "blinker==1.9.0",
    "google-adk": "google-adk==2.13.0",
    "pluggy": "pluggy==1.7.0",
    "pydantic-ai": "pydantic-ai-slim==2.66.0",
    "pydantic-ai with timeouts": "pydantic-ai-slim==2.66.0",
    "strands-agents": "strands-agents==1.62.0",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a worker."""

    version: str
    ratios: dict[str, float]
    """Times the bare loop takes, by case."""
    us: dict[str, float]
    """Median µs per emit."""
    memory: dict[str, float]
    """Bytes: `empty`, and `per hook`."""


def ask(name: str, *, quick: bool = False) -> Measured | None:
    """Measure one of them in its own environment; None where it cannot be installed."""
    other_loop = ["uvloop"] if loop_version() else []
    python = installed(PEERS[name], *other_loop)
    if python is None:
        return None
    options = [f"--{one}" for one in other_loop] + ["--quick"] * quick
    command = [str(python), "-m", "benchmarks.worker", name, *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if run.returncode:
        print(f"{name} failed:\n{run.stderr}", file=sys.stderr)
        return None
    return Measured(**json.loads(run.stdout.splitlines()[-1]))


def installed(*requirements: str) -> Path | None:
    """The interpreter of an environment that has them; made now if need be."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    home = CACHE / "-".join(["peer", version, *(one.replace("==", "-") for one in requirements)])
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return python
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", encoding="utf-8")
    uv = os.environ.get("UV", "uv")
    try:
        with TemporaryDirectory() as elsewhere:  # our own pins are not for them
            for command in (
                [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
                [uv, "pip", "install", "--quiet", "--python", str(python), *requirements],
            ):
                subprocess.run(command, cwd=elsewhere, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{' '.join(requirements)}: {error}", file=sys.stderr)
        return None
    (home / "complete").touch()
    return python
