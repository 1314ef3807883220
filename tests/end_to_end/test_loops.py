"""The core suite on other event loops."""

import asyncio
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CORE = [
    f"tests/amplifier_hooks/{name}.py"
    for name in (
        "dispatch/test_run_hooks",
        "dispatch/test_timeouts",
        "dispatch/test_cancellation",
        "session/test_session",
        "session/test_tool_call",
    )
]


@pytest.mark.slow
@pytest.mark.fault("F-LC-07")
@pytest.mark.parametrize("kind", ["debug", "eager", "uvloop"])
def test_the_same_results(kind: str) -> None:
    """In debug mode, with eager tasks and on uvloop every test of the core passes as it does on the standard loop."""
    if kind == "uvloop" and find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    if kind == "eager" and not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("this Python has no eager tasks")
    environment = {**os.environ, "AMPLIFIER_LOOP": kind} | ({"PYTHONASYNCIODEBUG": "1"} if kind == "debug" else {})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.loops", "-m", "not slow", *CORE]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
