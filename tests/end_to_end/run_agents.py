"""Agents and hooks for runs whose coordinator and runners are killed. They note their work in files of FOLDER.

A file named `die-at-<point>` in FOLDER kills the process that comes to that point, once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(os.environ["RUN_TEST_FOLDER"])


def note(what: str, run: str) -> None:
    """Write one line to a file, whole even if the process dies."""
    descriptor = os.open(FOLDER / what, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{run}\n".encode())
    os.close(descriptor)


def die(point: str) -> None:
    """Die here, if a file in FOLDER asks for it, and only once."""
    try:
        (FOLDER / f"die-at-{point}").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


async def validate(event: str, data: dict[str, Any]) -> dict[str, Any]:
    """A start hook in the coordinator."""
    note("hooked", data["run_id"])
    die("hook")
    return {"action": "continue", "parameters": {**data["parameters"], "checked": True}}


async def audit(event: str, data: dict[str, Any]) -> dict[str, Any]:
    """A finish hook in the coordinator."""
    note("audited", data["run_id"])
    die("finish")
    return {}


def write(task: Any) -> dict[str, Any]:
    """The agent, in a runner."""
    assert task.parameters["checked"]
    note("ran", task.run_id)
    die("run")
    return {"amount": task.parameters["amount"]}


AGENTS: Final = {"writer": write}
