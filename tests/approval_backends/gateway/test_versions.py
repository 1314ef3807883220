"""The gateway over every version of `websockets` that it is said to work with."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.rule("BCK-2")
@pytest.mark.parametrize("version", ["15.0.1", "16.1.1", "17.4"])
def test_version(version: str) -> None:
    """Gateway and client keep their promises with the oldest, the pinned and the newest version."""
    uv = shutil.which("uv") or os.environ.get("UV")
    if uv is None:
        pytest.skip("uv is not there to install another version")
    command = [uv, "run", "--quiet", "--no-sync", "--with", f"websockets=={version}", "python", "-m", "pytest", "-q"]
    tests = ["tests/approval_backends/gateway", "tests/approval_backends/test_client.py"]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-m", "not slow", *tests],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4_000:] + run.stderr[-2_000:]
